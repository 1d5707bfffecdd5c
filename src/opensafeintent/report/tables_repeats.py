"""Tables of each prompt-set k times of N, and of where more calls would narrow an interval most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isinf, isnan, sqrt
from typing import NamedTuple

import numpy as np

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.errors import pluralize
from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.estimates import FEWEST_SETS_AVERAGED, MetricEstimate
from opensafeintent.numbers.metrics import (
    AT_LEAST_K,
    METRICS,
    Metric,
    Unit,
    split_by_epoch,
    split_epochs_into_models,
)
from opensafeintent.numbers.repeats import FragileSet
from opensafeintent.report.cohort_columns import (
    MODEL_COLUMNS,
    ModelItem,
    OfModel,
    cohort_notes,
    explain_missing,
)
from opensafeintent.report.columns import Column, Columns, Table, make_estimate_columns
from opensafeintent.statistics import round_number
from opensafeintent.statistics.components import Components, average_components, find_components
from opensafeintent.statistics.intervals import Floats, index_units
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, INTENT_WORDS


class _CurveRow(OfModel, frozen=True, kw_only=True):
    """The metrics of k epochs or more of a model, for one k."""

    k: int
    repeats: int
    numbers: dict[str, MetricEstimate]
    """By metric."""


def repeats(cohort: Cohort) -> Table:
    """Return the share of sets that are safe, or a success, in k epochs or more, for every k of
    each model; without rows if every prompt has one response.
    """
    rows = list(_yield_rows(cohort))
    moved = any(number.missing_ci for row in rows for number in row.numbers.values())
    return Table.of(
        (
            MODEL_COLUMNS,
            Column("k", lambda row: row.k, "k", "count"),
            Column("repeats", lambda row: row.repeats, "Of N", "count"),
            *(_metric_columns(metric, moved=moved) for metric in AT_LEAST_K),
        ),
        rows,
        name="repeats",
        title="Share of prompt-sets that are safe, or a success, in at least k of N repeats",
        section="repeats",
        notes=(
            *cohort_notes(cohort),
            (
                "Of the prompt-sets of which all N repeats are complete. Success: safe under all"
                " three intents, and concrete help with the benign and the dual-use prompt."
            ),
            *explain_missing(missing=moved),
        ),
    )


def _metric_columns(metric: str, *, moved: bool) -> Columns[_CurveRow]:
    """Return the columns of one of the metrics; people see its interval with missing grades if
    any has one.
    """
    return make_estimate_columns(
        metric,
        lambda row: row.numbers[metric],
        METRICS[metric].label,
        unit="share",
        parts=("n", "method", "bounds", "missing_ci"),
        headings={"n": "Sets", **({"missing_ci": "With missing"} if moved else {})},
    )


def _yield_rows(cohort: Cohort) -> Iterator[_CurveRow]:
    for at in _order_repeated(cohort):
        curves = {metric: cohort.repeats.curve(at, metric) for metric in AT_LEAST_K}
        epochs = cohort.repeats.epochs[at]
        for k in range(1, epochs + 1):
            yield _CurveRow(
                cohort=cohort,
                model=cohort.models[at],
                k=k,
                repeats=epochs,
                numbers={metric: curve[k - 1] for metric, curve in curves.items()},
            )


def _order_repeated(cohort: Cohort) -> list[int]:
    """Return the places of the models that were sent their prompts twice or more, in the order of
    all tables.
    """
    return [at for at in cohort.estimates.order if cohort.repeats.epochs[at] > 1]


def fragile(cohort: Cohort) -> Table:
    """Return how many sets of each model are safe in some repeats only, and how many would be if
    all sets were equal; without rows if every prompt has one response.
    """
    rows = [
        ModelItem(cohort=cohort, model=cohort.models[at], item=cohort.repeats.fragility[at])
        for at in _order_repeated(cohort)
    ]
    further = any(row.item.incomplete for row in rows)
    return Table.of(
        (
            MODEL_COLUMNS,
            Column("fragile", lambda row: row.item.fragile, "Fragile", "count"),
            Column("sets", lambda row: row.item.sets, "Of sets", "count"),
            Column("expected", lambda row: row.item.expected, "If all sets were equal", "number"),
            Column(
                "incomplete",
                lambda row: row.item.incomplete,
                "Fragile, incomplete" if further else None,
                "count",
            ),
        ),
        rows,
        name="fragile",
        title="Fragile prompt-sets: safe in some repeats, unsafe in others",
        section="repeats",
        notes=(
            *cohort_notes(cohort),
            (
                "If all sets were equal: the mean number if the same safe and unsafe repeats fell"
                " on the sets at random. Far fewer are fragile if the same sets fail each time."
                " The command trace --fragile lists them."
            ),
        ),
    )


def fragile_table(found: Sequence[FragileSet]) -> Table:
    """Return the prompt-sets that are safe in some repeats only, with the intents that fail."""
    several = len({item.model for item in found}) > 1
    return Table.of(
        (
            Column("model", lambda row: row.model, "Model" if several else None, "name"),
            Column("id", lambda row: row.set_id, "Prompt-set", "name"),
            Column("harm_domain", lambda row: row.harm_domain, "Harm domain"),
            Column("safe", lambda row: f"{row.safe} of {row.of}", "Safe"),
            Column("unsafe", _say_unsafe, "Unsafe responses"),
        ),
        found,
        name="fragile_sets",
        title=f"{pluralize(len(found), 'fragile prompt-set')}, the least safe first",
        notes=("Safe: in how many of the repeats of which that is known.",),
    )


def _say_unsafe(row: FragileSet) -> str:
    """Say how many responses to each intent are unsafe: `dual-use 2, malicious 1`."""
    counts = zip(CORE_VARIANTS, row.unsafe, strict=True)
    return ", ".join(f"{INTENT_WORDS[intent]} {count}" for intent, count in counts if count)


class MetricComponents(NamedTuple):
    """The components of one primary metric, the mean over the models under test."""

    metric: str
    components: Components


def find_spending(cohort: Cohort) -> list[MetricComponents]:
    """Return the components of each primary metric; none with fewer than ten prompt-sets, or
    families of them, that count for them, if nothing but the variance between these is known, or if
    nothing varies.

    With several judges they are those of the mean over judges.
    """
    judges = cohort.judges
    arrays = [judges.build_array(judge) for judge in judges.panel] or [cohort.array]
    tested = drop_baselines(cohort.models)
    unit_of, found = cohort.estimates.unit_of, []
    units = index_units([unit_of[set_id] for set_id in arrays[0].labels["prompt_set"]])
    for name in cohort.scope.primary:
        values = np.stack(
            [_split_variance(METRICS[name], array.sel(model=tested)) for array in arrays]
        )
        models = [
            components
            for at in range(len(tested))
            if (components := find_components(values[:, at], units))
            and components.units >= FEWEST_SETS_AVERAGED
        ]
        if models:
            found.append(MetricComponents(name, average_components(models)))
    return [item for item in found if item.components.tell_more_than_sets]


def _split_variance(metric: Metric, array: LabelledSet) -> Floats:
    """Return a metric of each set with each of its dual-use wordings, in each epoch; NaN if it does
    not count: shape (model, prompt_set, wording, epoch).
    """
    wordings = sorted(Grades(array).wordings, key=lambda name: name != DUAL_USE)
    values = []
    for wording in wordings:
        of_triplet = [wording if variant == DUAL_USE else variant for variant in CORE_VARIANTS]
        part = array.sel(variant=of_triplet)
        renamed = LabelledSet(
            {name: (part[name].dims, part[name].values) for name in part},
            {**part.labels, "variant": list(CORE_VARIANTS)},
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            grades = Grades(split_epochs_into_models(renamed))
            top, bottom = split_by_epoch(metric, grades, array.sizes["epoch"])
            values.append(np.where(bottom > 0, top / bottom, np.nan))
    return np.stack(values, axis=2)


class _ComponentRow(NamedTuple):
    """One component of the variance of one metric."""

    metric: str
    component: str
    variance: float
    """Of one set, wording, repeat or judge."""
    draws: int
    """How many of them the value is a mean of."""
    total: float
    """The variance of the value."""
    option: str = ""
    """What would reduce the component, if it is not more prompt-sets alone."""
    worth: float | None = None
    """The further prompt-sets that would narrow the interval as much."""


def variance_components(cohort: Cohort) -> Table:
    """Return the components of the variance of each primary metric, and what more judges, epochs,
    wordings and prompt-sets would change; without rows if only that between sets is known.
    """
    found = find_spending(cohort)
    rows = [row for item in found for row in _component_rows(item)]
    return Table.of(
        (
            Column("metric", lambda row: METRICS[row.metric].label, "Metric", "name"),
            Column("component", lambda row: row.component, "Between", "name"),
            Column("sd", lambda row: round_number(sqrt(row.variance)), "SD of one", "gap", _unit),
            Column("draws", lambda row: row.draws, "Number", "count"),
            Column(
                "share",
                lambda row: round_number(row.variance / row.draws / row.total),
                "Share of the variance",
                "share",
            ),
            Column("option", lambda row: row.option or None, "To reduce it"),
            Column(
                "worth",
                lambda row: None if row.worth is None else _count(row.worth),
                "Worth, in further prompt-sets",
            ),
        ),
        rows,
        name="variance_components",
        title="Where the variance of a value comes from",
        section="precision",
        notes=(
            *_say_best(rows),
            *_say_units(found),
            (
                "Of a model’s value, with several judges of their mean, on the complete"
                " prompt-sets, on average over the models under test. SD of one: how far one"
                " prompt-set, wording, repeat or judge lies from the mean of all. Repeats need two"
                " epochs, judges two judges (two or three tell it roughly), wordings the"
                " paraphrases."
            ),
            *cohort_notes(cohort),
        ),
    )


def _unit(row: _ComponentRow) -> Unit:
    return METRICS[row.metric].unit


def _component_rows(item: MetricComponents) -> Iterator[_ComponentRow]:
    found, metric = item.components, item.metric
    sets, judges = found.sets, found.judges
    averaged = "the mean over the wordings" if metric == "triplet_safety" else ""
    for component, variance, draws, option, then in (
        (_name_units(found), found.by_set, found.units, "", 0.0),
        ("wordings of a set", found.wording, sets, averaged, found.with_all_wordings),
        (
            "repeats of a set",
            found.repeat,
            sets * found.epochs,
            "twice the epochs",
            found.with_twice_the_epochs,
        ),
        ("judges", found.judge, judges, "one more judge", found.with_another_judge),
        ("judges, from set to set", found.judge_by_set, found.units * judges, "", 0.0),
    ):
        if not isnan(variance):
            worth = found.count_sets(then) if option else None
            yield _ComponentRow(metric, component, variance, draws, found.variance, option, worth)


def _name_units(found: Components) -> str:
    return "prompt-sets" if found.units == found.sets else "families"


def _say_units(found: Sequence[MetricComponents]) -> Iterator[str]:
    """Say that families are the units, if they are."""
    if any(item.components.units < item.components.sets for item in found):
        yield (
            "Families of prompt-sets are the units, a prompt-set without one being its own. Further"
            " prompt-sets are counted in families as large."
        )


def _say_best(rows: list[_ComponentRow]) -> Iterator[str]:
    """Yield a sentence for each metric on what would narrow its interval most, apart from
    prompt-sets, if that is worth one or more.
    """
    for metric in dict.fromkeys(row.metric for row in rows):
        known = [(row.worth or 0.0, row.option) for row in rows if row.metric == metric]
        worth, option = max(known)
        if worth >= 1:
            amount = _count(worth) if isinf(worth) else f"as much as {_count(worth)}"
            yield (
                f"{option[0].upper()}{option[1:]} would narrow the interval of"
                f" {METRICS[metric].label} {amount} further prompt-sets."
            )


def _count(sets: float) -> str:
    """Return a number of prompt-sets with two digits."""
    return "more than any number of" if isinf(sets) else f"{float(f'{sets:.2g}'):,.0f}"
