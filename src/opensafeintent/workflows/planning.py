"""What a decision, or a budget, can be expected to take and to tell, before any call is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from opensafeintent.analysis.decisions import planned_design
from opensafeintent.analysis.groups import Group, group_studies
from opensafeintent.analysis.questions import Match, matches_of, question_text
from opensafeintent.analysis.spread import difference_by_set, values_by_judge
from opensafeintent.calls.baselines import contenders
from opensafeintent.calls.progress import Display
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.promptsets import Dataset, sample_order
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.statistics.decisions import Design, Question
from opensafeintent.statistics.power import (
    Components,
    Differences,
    PowerRow,
    PrecisionRow,
    affordable,
    assumed_components,
    assumed_differences,
    components_of,
    differences_of,
    power_rows,
    precision_rows,
)
from opensafeintent.workflows.deciding import check_question, most_sets
from opensafeintent.workflows.reporting import read_studies
from opensafeintent.workflows.settings import EvaluateSettings

__all__ = ["Plan", "Power", "Precision", "power_plan"]


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What to expect of a decision about one model, or one pair."""

    about: str
    """The pair; `each model` for a threshold, of which nothing need be known."""
    rows: tuple[PowerRow, ...]
    source: str = ""
    """Where the spread of a pair's differences is from."""


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """What a number of calls buys for one metric of one model."""

    metric: str
    budget: int
    """Calls, one model's."""
    rows: tuple[PrecisionRow, ...]
    source: str
    """Where the variances are from."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `--power-plan` prints."""

    question: str | None
    design: Design | None
    power: tuple[Power, ...]
    precision: tuple[Precision, ...]
    notes: tuple[str, ...]


class _Costs(NamedTuple):
    """Calls for one prompt-set and epoch of one model, on average over the sets; probes and re-asks aside."""

    target: float
    """Whatever the number of judges."""
    judge: float
    """Of each judge."""


def power_plan(settings: EvaluateSettings, models: Sequence[str], dataset: Dataset, display: Display) -> Plan:
    """Return what a decision and a budget can be expected to take and to tell. No call is made.

    Raises:
        InputError: the question cannot be decided, the budget is too small for it, or there is no such run.
    """
    question = check_question(settings, models, dataset) if settings.decide is not None else None
    sets, costs, groups = most_sets(settings, dataset), _costs(settings, dataset), _groups(settings, display)
    metrics = (question.metric,) if question else PRIMARY
    notes: list[str] = []
    design: Design | None = None
    power: tuple[Power, ...] = ()
    if question is not None:
        per_set = settings.epochs * (costs.target + len(set(settings.judges)) * costs.judge)
        within = affordable(sets, per_set * len(models), settings.budget_calls)
        if within < sets:
            notes.append(
                f"{settings.budget_calls:,} calls pay for {within:,} of {sets:,} prompt-sets: this is for --limit {within}"
            )
        matches = matches_of(question, models)
        design = _design(settings, question, within, len(matches))
        power = tuple(_powers(design, matches, groups, per_set))
    return Plan(
        question=question_text(question) if question else None,
        design=design,
        power=power,
        precision=tuple(_precision(metric, settings, models, sets, costs, groups) for metric in metrics),
        notes=tuple(notes),
    )


def _design(settings: EvaluateSettings, question: Question, sets: int, families: int) -> Design:
    confidence = settings.confidence or CONFIDENCE
    try:
        return planned_design(question, sets, confidence=confidence, families=families, epochs=settings.epochs)
    except InputError as error:
        raise InputError(f"--budget-calls {settings.budget_calls}: pays for {sets} prompt-sets; {error}") from error


def _costs(settings: EvaluateSettings, dataset: Dataset) -> _Costs:
    sample = sample_order(dataset.prompt_sets)[: most_sets(settings, dataset)]
    wordings = sum(len(prompt_set.wordings()) for prompt_set in sample) / len(sample)
    return _Costs(target=wordings + (3 if settings.modes == "core" else 1), judge=2 * wordings)


def _groups(settings: EvaluateSettings, display: Display) -> list[Group]:
    """Return what is known from a run: the one that is named, or this evaluation's own, where it is there."""
    run = settings.power_from or (settings.folder.path if settings.folder.exists() else None)
    return [] if run is None else group_studies(read_studies([run], display))


# Where variances are from -----------------------------------------------------------------------------------------------


def _powers(design: Design, matches: Sequence[Match], groups: Sequence[Group], per_set: float) -> list[Power]:
    """Return what to expect, of each pair of which something is known, and once of all others."""
    if not design.question.paired:
        return [Power(about="each model", rows=power_rows(design, calls_per_set=per_set))]
    known = {match: found for match in matches if (found := _differences(design, match, groups))}
    assumed = assumed_differences(binary=design.binary)
    about = [(str(match), found) for match, found in known.items()]
    if len(known) < len(matches):
        about.append(("each other pair" if known else "each pair" if len(matches) > 1 else str(matches[0]), assumed))
    return [
        Power(about=who, rows=power_rows(design, differences=found, calls_per_set=2 * per_set), source=found.source)
        for who, found in about
    ]


def _differences(design: Design, match: Match, groups: Sequence[Group]) -> Differences | None:
    """Return how two models differ in a run: these two, or the first two that are no baselines in their place."""
    low, high = design.span
    for group in groups:
        pair = match.models if set(match.models) <= set(group.models) else tuple(contenders(group.models)[:2])
        if len(pair) < 2:
            continue
        values = difference_by_set(group, design.question.metric, *pair)
        source = f"from {_run_of(group)}: {' against '.join(one_line(name, 80) for name in pair)}"
        if found := differences_of(values, width=high - low, source=source):
            return found
    return None


def _precision(
    metric: str, settings: EvaluateSettings, models: Sequence[str], sets: int, costs: _Costs, groups: Sequence[Group]
) -> Precision:
    budget = settings.budget_calls // len(models) if settings.budget_calls else round(sets * (costs.target + costs.judge))
    components = _components(metric, models, groups) or assumed_components(binary=METRICS[metric].binary)
    rows = precision_rows(components, sets, target_calls=costs.target, judge_calls=costs.judge, budget_calls=budget)
    return Precision(metric=metric, budget=budget, rows=rows, source=components.source)


def _components(metric: str, models: Sequence[str], groups: Sequence[Group]) -> Components | None:
    """Return what makes a model's values vary in a run: one of those to be evaluated, or the first that is no baseline."""
    for group in groups:
        for model in ([name for name in models if name in group.models] or contenders(group.models))[:1]:
            values = values_by_judge(group, metric, model)
            if found := components_of(values, source=f"from {_run_of(group)}: {one_line(model, 80)}"):
                return found
    return None


def _run_of(group: Group) -> str:
    return one_line(next(iter(group.origins.values())).run, 80)
