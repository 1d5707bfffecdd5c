"""The prompt-sets and calls for a difference of two models, and the precision of a number of
prompt-sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import hypot, sqrt
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from rich.console import Console

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.calls.records import Sampling
from opensafeintent.commands.gate_check import check_k, list_gates
from opensafeintent.commands.graded_runs import read_joined_runs
from opensafeintent.commands.outcome import grade_command
from opensafeintent.commands.reproduce import list_commands
from opensafeintent.commands.settings import SampleSizeSettings
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import list_prompts, list_tasks
from opensafeintent.evaluation.pipeline import Grading, JudgePlan, ModelWork
from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.cohort import Cohort, gather_models
from opensafeintent.numbers.estimates import compare_metrics
from opensafeintent.numbers.gates import Gate, Reach, describe_sets, fill_in_k, find_reach
from opensafeintent.numbers.metrics import (
    METRICS,
    TRIPLET_SCOPE,
    MetricScope,
    find_scope,
    is_defined,
    refuse_undefined,
)
from opensafeintent.promptsets import Dataset, PromptSet, draw_sets, load_dataset
from opensafeintent.promptsets.loading import MOST_PUBLISHED, PUBLISHED, dataset_name
from opensafeintent.promptsets.record import count_units
from opensafeintent.report.columns import Column, Columns, Table, format_number
from opensafeintent.report.printing.console import Printed, print_table
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.statistics.comparisons import (
    ExtremeDifferences,
    PlannedScenario,
    adjust_confidence,
    assume_deviation,
    count_planned_sets,
    find_planned_difference,
)
from opensafeintent.statistics.intervals import Completed, compute_spread, half_width
from opensafeintent.templates import load_templates

POWERS = (0.80, 0.95)
_SIZES = (42, 115, 300, 700, 3000)
_FEWEST = 10
"""Prompt-sets of a pilot: the standard deviation of fewer says nothing."""


class Pilot(msgspec.Struct, frozen=True):
    """What a run tells about a planned one."""

    dataset: str
    """Name of its dataset."""
    judges: tuple[str, ...]
    """Those that graded it."""
    basis: str
    """The models that the standard deviations are of."""
    missing_odds: float
    away: dict[str, float]
    """By metric, what missing grades take from a difference, with any number of prompt-sets."""
    sets_each: float
    """Prompt-sets of a unit: above 1 if families are the units."""
    again: str
    """The command that asks for them again."""

    def count_units(self, sets: int) -> int:
        """Return how many units so many prompt-sets are."""
        return max(round(sets / self.sets_each), 1)

    def say_missing(self, undecided: Sequence[str]) -> list[str]:
        """Say what missing grades take away, if they do.

        Args:
            undecided: the metrics for which no number of prompt-sets is enough.
        """
        away = [
            f"{_say_difference(metric, value)} of {METRICS[metric].label}"
            for metric, value in self.away.items()
            if value
        ]
        if not away:
            return []
        lines = [
            f"Missing grades, as in the pilot, take {' and '.join(away)} from a difference"
            f" (--missing-odds {self.missing_odds:g}). More prompt-sets do not change that."
        ]
        if undecided:
            labels = " and ".join(METRICS[metric].label for metric in dict.fromkeys(undecided))
            lines.append(
                f"No number of prompt-sets is enough for {labels}, because grades are missing. Ask"
                f" for them again: {self.again}"
            )
        return lines


def _say_difference(metric: str, value: float) -> str:
    return f"{100 * value:.1f} points" if METRICS[metric].is_share else format_number(value)


class SetsNeeded(msgspec.Struct, frozen=True):
    """The prompt-sets that show a difference in one metric, or decide a margin."""

    metric: str
    deviation: float
    """Standard deviation of a paired difference."""
    power: float
    """That all pairs of models are found, or all models pass."""
    away: float
    """What the pilot's missing grades take away, with any number of prompt-sets."""
    sets: int | None
    """None if no number is enough, because grades are missing."""
    calls: int | None
    """Of all models."""


class SetsPrecision(msgspec.Struct, frozen=True):
    """The precision to expect from a number of prompt-sets."""

    sets: int
    half_width: float
    """± of the 95 % interval of a share, such as Triplet Safety of one model, at most."""
    minimum_detectable_difference: dict[str, float]
    """By metric, the difference of two models that is found with a power of 80 %; it is also the
    least margin that a gate can decide.
    """
    calls: int
    """Of all models."""


class GatePlan(Printed, msgspec.Struct, frozen=True, kw_only=True):
    """What the prompt-sets of a planned run can decide about each gate."""

    dataset: str
    sets: int
    families: int | None = None
    """Of the prompt-sets, if these are the units."""
    pairs: int = 0
    """Those of them without a dual-use prompt, if not all are."""
    epochs: int
    confidence: float
    gates: tuple[Reach, ...]
    pilot: Pilot | None = None

    @property
    def exit_code(self) -> int:
        """5 if a gate is out of reach: no outcome of the run can pass it."""
        return 5 if any(reach.out_of_reach for reach in self.gates) else 0

    def show(self, console: Console) -> None:
        """Print the table."""
        console.print(f"\n{self.table.title}", style="bold")
        print_table(console, self.table, notes=True)

    @property
    def table(self) -> Table:
        """The gates as people read them."""
        columns: tuple[Columns[Reach], ...] = (
            Column("gate", lambda row: row.gate.as_typed, "Gate", "name"),
            Column("decides", _what_is_decided, "Decides"),
            Column("needed", lambda row: row.needed or "none", "Prompt-sets\nneeded", "count"),
            Column("least_margin", _least_margin, "Least\nmargin"),
        )
        sets = describe_sets(self.sets, self.families)
        return Table.of(
            columns,
            self.gates,
            name="gates",
            title=f"What {sets} of {self.dataset} can decide at {100 * self.confidence:g} %",
            notes=(
                *(_NOTES_ON_FAMILIES if self.families else ()),
                *self._notes_on_pairs,
                *(_NOTES_ON_LIMITS if any(not row.least_margin for row in self.gates) else ()),
                *(self._notes_on_margins if any(row.least_margin for row in self.gates) else ()),
            ),
        )

    @property
    def _notes_on_pairs(self) -> list[str]:
        """Of how many prompt-sets the gates are whose metric needs a dual-use prompt."""
        metrics = [METRICS[row.gate.metric] for row in self.gates]
        of_some = [
            of.name for of in metrics if not of.defined_for_pairs and of.inputs != "questions"
        ]
        if not (self.pairs and of_some):
            return []
        named = " and ".join(dict.fromkeys(METRICS[name].label for name in of_some))
        have = self.sets - self.pairs
        return [f"{named}: of the {pluralize(have, 'prompt-set')} that have a dual-use prompt."]

    @property
    def _notes_on_margins(self) -> list[str]:
        beyond = _say_beyond(row.needed for row in self.gates)
        if self.pilot is None:
            return [_PASSING, _ASSUMED_SD, *beyond]
        lacking = [row.gate.metric for row in self.gates if row.needed is None]
        basis = f"SD of the difference within a prompt-set: {self.pilot.basis}."
        return [_PASSING, basis, *self.pilot.say_missing(lacking), *beyond]


def _say_beyond(needed: Iterable[int | None]) -> list[str]:
    """Say of numbers beyond the largest published dataset that more prompt-sets do not help."""
    if not any(sets and sets > MOST_PUBLISHED for sets in needed):
        return []
    return [
        f"More prompt-sets do not help where more than {MOST_PUBLISHED} are needed: no published"
        " dataset has them."
    ]


_NOTES_ON_FAMILIES = (
    "Families are the units: the prompt-sets that are needed are in families as large. Without a"
    " pilot, the sets of a family are assumed to be all alike.",
)
_NOTES_ON_LIMITS = (
    "A limit: the fewest prompt-sets with which any result can pass; a model near the limit needs"
    " many more.",
)


def _what_is_decided(reach: Reach) -> str:
    if reach.enough:
        return "yes"
    return "out of reach" if reach.out_of_reach else "below 80 %"


def _least_margin(reach: Reach) -> str:
    margin = reach.least_margin
    return "" if margin is None else reach.gate.format_in_unit(margin, reach.sets)


_PASSING = (
    "Margins: a model that has not changed passes the least margin with a probability of 80 %. It"
    " passes a narrower one with a lower probability, and otherwise ends undecided (exit code 5)."
)
_ASSUMED_SD = (
    f"Assumed SD of the difference within a prompt-set: {assume_deviation(binary=True):g} for a"
    f" share, {assume_deviation(binary=False):g} for a score; --pilot RUN takes the SD and the"
    " missing grades of your models."
)


class SampleSize(Printed, msgspec.Struct, frozen=True, kw_only=True):
    """How many prompt-sets and calls a difference of two models takes, or the margin of a gate."""

    exit_code = 0

    difference: float | None
    margin: float | None
    """Of `--fail-if-worse`; None if a difference is to be found."""
    models: int
    pairs: int
    """Of models, all of which are compared; 1 for a margin, which each model keeps to or not."""
    calls_per_set: dict[str, int]
    """By purpose, the calls of one model to a prompt-set of seven prompts, at most."""
    basis: str
    """The source of the standard deviations."""
    pilot: Pilot | None = None
    needed: tuple[SetsNeeded, ...]
    precision: tuple[SetsPrecision, ...]

    @property
    def metrics(self) -> list[str]:
        """The metrics of the difference."""
        return [*dict.fromkeys(row.metric for row in self.needed)]

    def show(self, console: Console) -> None:
        """Print the tables."""
        for table in self.tables:
            console.print(f"\n{table.title}", style="bold")
            print_table(console, table, notes=True)

    @property
    def tables(self) -> tuple[Table, Table]:
        """The numbers as people read them."""
        calls = ", ".join(f"{count} {what}" for what, count in self.calls_per_set.items())
        lacking = [row.metric for row in self.needed if row.sets is None]
        needed: tuple[Columns[SetsNeeded], ...] = (
            Column("metric", lambda row: METRICS[row.metric].label, "Metric", "name"),
            Column("deviation", lambda row: row.deviation, "SD", "number"),
            Column("power", lambda row: f"{100 * row.power:.0f} %", "Power"),
            Column("sets", lambda row: row.sets or "none", "Prompt-sets", "count"),
            Column("calls", lambda row: row.calls, "Calls", "count"),
        )
        precision: tuple[Columns[SetsPrecision], ...] = (
            Column("sets", lambda row: row.sets, "Prompt-sets", "count"),
            Column(
                "half_width",
                lambda row: f"{100 * row.half_width:.1f} points",
                "± of a share,\none model",
                "count",
            ),
            [self._detectable_column(metric) for metric in self.metrics],
            Column("calls", lambda row: row.calls, "Calls", "count"),
        )
        return (
            Table.of(
                needed,
                self.needed,
                name="needed",
                title=self._title,
                notes=(
                    f"SD of the difference within a prompt-set: {self.basis}.",
                    self._power_note,
                    *(self.pilot.say_missing(lacking) if self.pilot else []),
                    *_say_beyond(row.sets for row in self.needed),
                    *([self._dataset_note] if self.pilot else []),
                    f"Calls: {sum(self.calls_per_set.values())} a prompt-set and model at most"
                    f" ({calls}), re-asks aside.",
                ),
            ),
            Table.of(
                precision,
                self.precision,
                name="precision",
                title="Precision by number of prompt-sets",
                notes=(
                    "±: half of the 95 % interval at a share of one half; it is narrower"
                    " elsewhere.",
                    "Differences and margins are those of a power of 80 %.",
                ),
            ),
        )

    @property
    def _power_note(self) -> str:
        """What is found, or passed, with the power."""
        if self.margin is not None:
            what = "all models pass" if self.models > 1 else "the model passes"
            return (
                f"Power: the probability that {what} the gate, unchanged. The calls of the earlier"
                " run are not counted."
            )
        if self.pairs == 1:
            return "Power: the probability that the difference is found."
        return (
            f"Power: the probability that the differences of all {self.pairs:,} pairs of models are"
            " found, if each is so large. Each is tested at"
            f" {100 * adjust_confidence(CONFIDENCE, self.pairs):.6g} % (Šidák), as in `compare`."
        )

    @property
    def _dataset_note(self) -> str:
        """A caution about a plan for another dataset than the pilot's."""
        name = clean_for_display(self.pilot.dataset if self.pilot else "")
        return (
            f"The SD is that of the dataset {name}, and SDs differ between datasets. For another"
            " dataset, run the pilot on it."
        )

    @property
    def _title(self) -> str:
        if self.margin is not None:
            return f"Prompt-sets with which an unchanged model passes a margin of {self.margin:g}"
        paired = f"any two of {self.models:,} models" if self.pairs > 1 else "two models"
        return f"Prompt-sets that show a difference of {self.difference:g} between {paired}"

    def _detectable_column(self, metric: str) -> Column[SetsPrecision]:
        """Return the column of the difference that is found in a metric, or of the margin."""

        def show_difference(row: SetsPrecision) -> str:
            return _say_difference(metric, row.minimum_detectable_difference[metric])

        what = "Difference" if self.margin is None else "Margin"
        return Column(metric, show_difference, f"{what} in\n{METRICS[metric].label}", "count")


def sample_size(settings: SampleSizeSettings) -> SampleSize | GatePlan:
    """Tell how many prompt-sets and calls a difference takes, or the margin of a gate; or what the
    prompt-sets of a planned run can decide about gates. No call is made.

    A model that has not changed keeps to a margin if its interval ends below it. That takes as many
    prompt-sets as it takes to find a difference of that size.

    Raises:
        InputError: a gate cannot be read, the dataset cannot be used, or the pilot is no run, or
            too small to tell a standard deviation.
    """
    if gates := list_gates(settings):
        return _plan_gates(settings, gates)
    effect = settings.difference or settings.margin or 0.0
    models = settings.models or (2 if settings.margin is None else 1)
    pairs = models * (models - 1) // 2 if settings.margin is None else 1
    scope, prompt_set = _find_scope(settings.dataset, settings.taxonomy)
    ends: Mapping[str, Sequence[PlannedScenario]] = {
        name: [PlannedScenario(assume_deviation(binary=METRICS[name].is_share))]
        for name in scope.primary
    }
    basis = "assumed, 0.5 for a share and 0.35 for a score"
    grading, epochs, pilot = Grading(), 1, None
    if settings.pilot:
        cohort, again = _read_pilot(settings)
        grading = plan = cohort.manifests[0].plan
        epochs = plan.epochs
        prompt_set = _find_longest(cohort.dataset, plan)
        ends, pilot = _measure_pilot(cohort, cohort.scope.primary, settings, again)
        basis = pilot.basis
    calls = _count_calls(prompt_set, grading, epochs, settings.judges)
    calls_per_set = sum(calls.values()) * models
    test = _Test(ends, pairs, models, of_margin=settings.margin is not None)
    return SampleSize(
        difference=settings.difference,
        margin=settings.margin,
        models=models,
        pairs=pairs,
        calls_per_set=calls,
        basis=basis,
        pilot=pilot,
        needed=tuple(_list_needed(test, effect, calls_per_set)),
        precision=tuple(
            SetsPrecision(
                sets,
                half_width(pilot.count_units(sets) if pilot else sets),
                test.detectable(sets),
                sets * calls_per_set,
            )
            for sets in _SIZES
        ),
    )


def _list_needed(test: _Test, effect: float, calls_per_set: int) -> Iterator[SetsNeeded]:
    """Yield the prompt-sets that find an effect, by metric and power."""
    for metric, (graded, *others) in test.ends.items():
        for power in POWERS:
            sets = test.count_sets(effect, metric, power)
            away = max(end.missing_shift for end in (graded, *others))
            calls = sets and sets * calls_per_set
            yield SetsNeeded(metric, graded.deviation, power, away, sets, calls)


def _plan_gates(settings: SampleSizeSettings, gates: Sequence[Gate]) -> GatePlan:
    name, epochs = settings.dataset or "starter", settings.epochs or 1
    published = PUBLISHED.get(name)
    dataset = None if published else load_dataset(name, settings.taxonomy)
    sets = published.sets if published else len(dataset or ())
    sets = min(sets, settings.limit or sets)
    check_k(gates, epochs, "the plan")
    gates = [fill_in_k(gate, epochs) for gate in gates]
    pairs, families = 0, None
    drawn: Sequence[PromptSet] = ()
    if dataset is not None:
        for gate in gates:
            refuse_undefined(gate.metric, dataset, gate.option)
        drawn = draw_sets(dataset.prompt_sets, settings.limit)
        pairs = sum(item.is_pair for item in drawn)
        units = count_units(drawn)
        families = None if units == sets else units
    margins = list(dict.fromkeys(gate.metric for gate in gates if gate.kind == "worse"))
    ends: Mapping[str, Sequence[PlannedScenario]] = {}
    pilot = None
    if settings.pilot:
        if counted := [gate.metric for gate in gates if gate.kind == "worse" and gate.k]:
            raise InputError(
                f"--fail-if-worse {counted[0]}: is planned without --pilot; leave one of them out"
            )
        cohort, again = _read_pilot(settings)
        measured, pilot = _measure_pilot(cohort, margins, settings, again)
        ends = {
            metric: [
                end._replace(units_per_set=min(end.units_per_set, units / sets))
                for end in of_metric
            ]
            for metric, of_metric in measured.items()
        }
    return GatePlan(
        dataset=clean_for_display(dataset_name(name)),
        sets=sets,
        families=families,
        pairs=pairs,
        epochs=epochs,
        confidence=settings.confidence,
        gates=tuple(
            find_reach(
                gate,
                sum(is_defined(METRICS[gate.metric], item) for item in drawn) if drawn else sets,
                epochs,
                settings.confidence,
                ends.get(gate.metric, ()),
                families,
            )
            for gate in gates
        ),
        pilot=pilot,
    )


class _Test(NamedTuple):
    """The test that is planned."""

    ends: Mapping[str, Sequence[PlannedScenario]]
    """By metric."""
    pairs: int
    models: int
    of_margin: bool
    """Models are assumed to be equal, so that a difference needs no prompt-sets that differ."""

    def count_sets(self, effect: float, metric: str, power: float) -> int | None:
        """Return the prompt-sets for a difference of all pairs, or for a margin of all models."""
        return count_planned_sets(
            effect,
            self.ends[metric],
            power=self._split_power(power),
            binary=METRICS[metric].is_share and not self.of_margin,
            pairs=self.pairs,
        )

    def _split_power(self, power: float) -> float:
        """Return the power of each of independent tests that all succeed with this one."""
        return adjust_confidence(power, self.models if self.of_margin else self.pairs)

    def detectable(self, sets: int) -> dict[str, float]:
        """Return by metric the difference, or the margin, for so many prompt-sets."""
        return {
            metric: find_planned_difference(
                sets,
                ends,
                power=self._split_power(POWERS[0]),
                binary=METRICS[metric].is_share and not self.of_margin,
                pairs=self.pairs,
            )
            for metric, ends in self.ends.items()
        }


def _find_scope(name: str | None, taxonomy: Path | None) -> tuple[MetricScope, PromptSet]:
    """Return the metrics that there are of a dataset, and its set with most prompts; by default
    those of the shipped one.
    """
    if name is None or name in PUBLISHED:
        return TRIPLET_SCOPE, load_dataset("starter").prompt_sets[0]
    dataset = load_dataset(name, taxonomy)
    return find_scope(dataset), max(dataset.prompt_sets, key=lambda item: len(item.wordings()))


def _find_longest(dataset: Dataset, grading: Grading) -> PromptSet:
    """Return the prompt-set that takes most calls."""

    def count(item: PromptSet) -> tuple[int, int]:
        sent = list_prompts(item, only_asked_about=not grading.by_rubric)
        asked = [name for name in sent if item.questions_about(name)]
        return len(sent), len(asked) if grading.by_questions else 0

    return max(dataset.prompt_sets, key=count)


def _count_calls(
    prompt_set: PromptSet, grading: Grading, epochs: int, judges: int | None
) -> dict[str, int]:
    """Count by purpose the calls of one model to a prompt-set, probes at most."""
    names = tuple(f"judge {n + 1}" for n in range(judges or len(grading.judges) or 1))
    plan = JudgePlan(
        judges=names,
        mode_judge=names[0],
        modes=grading.modes,
        probe=grading.probe,
        judge_by=grading.judge_by,
        judge_samplings=dict.fromkeys(names, Sampling()),
        target_sampling=Sampling(),
    )
    work = ModelWork(
        model="model",
        plan=plan,
        templates=load_templates(),
        tasks=list_tasks("model", [prompt_set], epochs, only_asked_about=not grading.by_rubric),
    )
    return Counter(step.purpose for planned in work.planned for step in planned.steps)


def _read_pilot(settings: SampleSizeSettings) -> tuple[Cohort, str]:
    """Return the models of the pilot's runs, and the commands that ask for what is missing.

    Raises:
        InputError: the runs make no report together, or have no model.
    """
    runs = read_joined_runs(settings.pilot, settings.ledger)
    if not any(run.manifest.models for run in runs):
        raise InputError(f"--pilot {_name_pilot(settings)}: the run has no model")
    commands = [
        (list_commands([run.manifest]) or [grade_command(folder)])[-1]
        for run, folder in zip(runs, settings.pilot, strict=True)
    ]
    return gather_models(runs, settings.missing_odds), "; ".join(commands)


def _name_pilot(settings: SampleSizeSettings) -> str:
    return " and ".join(map(str, settings.pilot))


def _measure_pilot(
    cohort: Cohort, metrics: Sequence[str], settings: SampleSizeSettings, again: str
) -> tuple[dict[str, list[PlannedScenario]], Pilot]:
    """Return the paired difference of two models by metric, as graded and with missing grades, and
    what the pilot is.

    Raises:
        InputError: too few prompt-sets count, or the run does not tell a standard deviation.
    """
    names = drop_baselines(cohort.models)
    places = [cohort.models.index(name) for name in names]
    ends: dict[str, list[PlannedScenario]] = {}
    counted = len(cohort.dataset)
    for metric in metrics:
        ends[metric], sets = (
            _measure_pairs(cohort, metric, places)
            if len(names) > 1
            else _measure_alone(cohort, metric, places[0])
        )
        counted = min(counted, sets)
        if counted < _FEWEST:
            raise InputError(
                f"--pilot {_name_pilot(settings)}: {counted} prompt-sets count; expected {_FEWEST}"
                " or more"
            )
        if not ends[metric][0].deviation:
            raise InputError(
                f"--pilot {_name_pilot(settings)}: the difference in {METRICS[metric].label} is"
                " alike in all prompt-sets, so the run does not tell how much it varies; leave"
                " --pilot out"
            )
    shown = [clean_for_display(name) for name in names]
    pairs = len(shown) * (len(shown) - 1) // 2
    if len(shown) == 1:
        of = f"the values of {shown[0]} alone, times √2 as for two unrelated models"
    elif len(shown) == 2:
        of = f"the paired differences of {shown[0]} and {shown[1]}"
    else:
        of = f"the paired differences of {pairs} pairs of models (root mean square)"
    units = None
    about = ""
    if cohort.estimates.units is not None:
        units = round(counted * min(of_metric[0].units_per_set for of_metric in ends.values()))
        about = (
            ". Families are the units, so it is the SD between these; a plan's prompt-sets are in"
            " families as large"
        )
    return ends, Pilot(
        dataset=cohort.dataset.name,
        judges=cohort.manifests[0].plan.judges,
        basis=f"from {of}, {describe_sets(counted, units)}{about}",
        missing_odds=settings.missing_odds,
        sets_each=1
        / min(end.units_per_set for of_metric in ends.values() for end in of_metric[:1]),
        away={
            metric: max(end.missing_shift for end in of_metric)
            for metric, of_metric in ends.items()
        },
        again=again,
    )


def _measure_pairs(
    cohort: Cohort, metric: str, places: Sequence[int]
) -> tuple[list[PlannedScenario], int]:
    """Return the difference of two models as the root mean square, or the mean, over the pairs, and
    the fewest prompt-sets that count for a pair.
    """
    estimates = cohort.estimates
    ratios = {metric: estimates.ratios[metric]}
    compared = compare_metrics(ratios, estimates.units, estimates.complete, estimates.missing_odds)[
        metric
    ]
    earlier, later = np.array(list(combinations(places, 2))).T
    graded, n = compared.deviation[earlier, later], compared.n[earlier, later]
    least, greatest = (
        ExtremeDifferences(*(part[earlier, later] for part in end))
        for end in (compared.least, compared.greatest)
    )
    planned = np.maximum(n, np.maximum(least.n, greatest.n))
    away = np.abs(greatest.value - least.value) / 2
    sides = (
        (graded, 0 * away, compared.units[earlier, later]),
        (least.deviation, away, least.units),
        (greatest.deviation, away, greatest.units),
    )
    return [
        PlannedScenario(
            sqrt(float(np.mean(deviation**2))),
            float(np.mean(taken)),
            float(np.mean(units / planned)),
        )
        for deviation, taken, units in sides
    ], int(n.min())


def _measure_alone(cohort: Cohort, metric: str, place: int) -> tuple[list[PlannedScenario], int]:
    """Return the difference of two unrelated models that are like one, and its prompt-sets."""
    estimates = cohort.estimates
    ratio = estimates.ratios[metric]
    as_graded = Completed.of((ratio.numerator.values, ratio.denominator.values))
    extremes = estimates.complete(metric, estimates.missing_odds)
    graded, least, greatest = (
        compute_spread(top, bottom, METRICS[metric].span, variance=variance, units=estimates.units)
        for top, bottom, variance in (end.take([place]) for end in (as_graded, *extremes))
    )
    n, planned = int(graded.n[0]), max(int(end.n[0]) for end in (graded, least, greatest))
    deviations = [float(np.nan_to_num(end.deviation[0])) for end in (graded, least, greatest)]
    return [
        PlannedScenario(sqrt(2) * deviations[0], units_per_set=int(graded.units[0]) / planned),
        PlannedScenario(
            hypot(*deviations[1:]),
            float(greatest.value[0] - least.value[0]),
            min(int(least.units[0]), int(greatest.units[0])) / planned,
        ),
    ], n
