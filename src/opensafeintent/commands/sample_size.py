"""The prompt-sets and calls for a difference of two models, and the precision of a number of
prompt-sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from rich.console import Console

from opensafeintent.calls.baselines import contenders
from opensafeintent.calls.records import Sampling
from opensafeintent.commands.gate_check import list_gates
from opensafeintent.commands.graded_runs import check_join, name_runs, read_graded_runs
from opensafeintent.commands.settings import SampleSizeSettings
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import list_tasks
from opensafeintent.evaluation.pipeline import Grading, JudgePlan, ModelWork
from opensafeintent.hostile import show_name
from opensafeintent.numbers.cohort import Cohort, gather_models
from opensafeintent.numbers.gates import Gate, Reach, find_reach
from opensafeintent.numbers.metrics import METRICS, PRIMARY
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.loading import PUBLISHED, dataset_name
from opensafeintent.report.columns import Column, Columns, Table, number
from opensafeintent.report.printing.console import Printed, print_table
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.statistics.comparisons import (
    assume_deviation,
    detectable_difference,
    family_level,
    sets_needed,
)
from opensafeintent.statistics.intervals import half_width
from opensafeintent.templates import load_templates

POWERS = (0.80, 0.95)
_ASSUMED = {name: assume_deviation(shares=METRICS[name].is_share) for name in PRIMARY}
_SIZES = (42, 115, 300, 700, 3000)
_FEWEST = 10
"""Prompt-sets of a pilot: the standard deviation of fewer says nothing."""


_OF_MARGIN = (
    "Power: the probability that an unchanged model passes the gate. The calls of the earlier run"
    " are not counted."
)


class SetsNeeded(msgspec.Struct, frozen=True):
    """The prompt-sets that show a difference in one metric, or decide a margin."""

    metric: str
    deviation: float
    """Standard deviation of a paired difference."""
    power: float
    sets: int
    calls: int
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
    epochs: int
    confidence: float
    gates: tuple[Reach, ...]

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
            Column("gate", lambda row: _gate_text(row.gate), "Gate", "name"),
            Column("decides", _what_is_decided, "Decides"),
            Column("needed", lambda row: row.needed, "Prompt-sets\nneeded", "count"),
            Column("least_margin", _least_margin, "Least\nmargin"),
        )
        sets = pluralize(self.sets, "prompt-set")
        return Table.of(
            columns,
            self.gates,
            name="gates",
            title=f"What {sets} of {self.dataset} can decide at {100 * self.confidence:g} %",
            notes=(
                *(_NOTES_ON_LIMITS if any(not row.least_margin for row in self.gates) else ()),
                *(_NOTES_ON_MARGINS if any(row.least_margin for row in self.gates) else ()),
            ),
        )


_NOTES_ON_LIMITS = (
    "A limit: the fewest prompt-sets with which any result can pass; a model near the limit needs"
    " many more.",
)


def _gate_text(gate: Gate) -> str:
    return f"{gate.option} {gate.metric}={gate.limit:g}"


def _what_is_decided(reach: Reach) -> str:
    if reach.enough:
        return "yes"
    return "out of reach" if reach.out_of_reach else "below 80 %"


def _least_margin(reach: Reach) -> str:
    margin = reach.least_margin
    return "" if margin is None else reach.gate.format_in_unit(margin, reach.sets)


_NOTES_ON_MARGINS = (
    "Margins: a model that has not changed passes the least margin with a probability of 80 %. It"
    " passes a narrower one with a lower probability, and otherwise ends undecided (exit code 5).",
    f"Assumed SD of the difference within a prompt-set: {assume_deviation(shares=True):g} for a"
    f" share, {assume_deviation(shares=False):g} for a score; --margin X --pilot RUN takes the SD"
    " of your models.",
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
    pilot_dataset: str = ""
    """Name of the pilot's dataset; empty without a pilot."""
    pilot_judges: tuple[str, ...] = ()
    """Those that graded the pilot."""
    needed: tuple[SetsNeeded, ...]
    precision: tuple[SetsPrecision, ...]

    def show(self, console: Console) -> None:
        """Print the tables."""
        for table in self.tables:
            console.print(f"\n{table.title}", style="bold")
            print_table(console, table, notes=True)

    @property
    def tables(self) -> tuple[Table, Table]:
        """The numbers as people read them."""
        calls = ", ".join(f"{count} {what}" for what, count in self.calls_per_set.items())
        family = (
            f"All {self.pairs:,} pairs of models are compared, as `compare` does: each at"
            f" {100 * family_level(CONFIDENCE, self.pairs):.6g} % (Šidák)."
        )
        needed: tuple[Columns[SetsNeeded], ...] = (
            Column("metric", lambda row: METRICS[row.metric].label, "Metric", "name"),
            Column("deviation", lambda row: row.deviation, "SD", "number"),
            Column("power", lambda row: f"{100 * row.power:.0f} %", "Power"),
            Column("sets", lambda row: row.sets, "Prompt-sets", "count"),
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
            [self._detectable_column(metric) for metric in _ASSUMED],
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
                    *([family] if self.pairs > 1 else []),
                    *([] if self.margin is None else [_OF_MARGIN]),
                    *([self._dataset_note] if self.pilot_dataset else []),
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
    def _dataset_note(self) -> str:
        """A caution about a plan for another dataset than the pilot's."""
        name = show_name(self.pilot_dataset)
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
            value = row.minimum_detectable_difference[metric]
            return f"{100 * value:.1f} points" if METRICS[metric].is_share else number(value)

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
    deviations, basis = dict(_ASSUMED), "assumed, 0.5 for a share and 0.35 for a score"
    grading, epochs = Grading(), 1
    pilot_judges: tuple[str, ...] = ()
    pilot_dataset = ""
    if settings.pilot:
        pilot = " and ".join(map(str, settings.pilot))
        cohort = _read_pilot(settings.pilot, pilot, settings.ledger, settings.missing_odds)
        deviations, basis = _measure_deviations(cohort, pilot)
        plan = cohort.manifests[0].plan
        grading, epochs, pilot_judges = plan, plan.epochs, plan.judges
        pilot_dataset = cohort.dataset.name
    calls = _calls(grading, epochs, settings.judges)
    calls_per_set = sum(calls.values()) * models
    test = _Test(deviations, pairs, of_margin=settings.margin is not None)
    return SampleSize(
        difference=settings.difference,
        margin=settings.margin,
        models=models,
        pairs=pairs,
        calls_per_set=calls,
        basis=basis,
        pilot_judges=pilot_judges,
        pilot_dataset=pilot_dataset,
        needed=tuple(
            SetsNeeded(metric, deviation, power, sets, sets * calls_per_set)
            for metric, deviation in deviations.items()
            for power in POWERS
            if (sets := test.sets_needed(effect, metric, power))
        ),
        precision=tuple(
            SetsPrecision(sets, half_width(sets), test.detectable(sets), sets * calls_per_set)
            for sets in _SIZES
        ),
    )


def _plan_gates(settings: SampleSizeSettings, gates: Sequence[Gate]) -> GatePlan:
    name, epochs = settings.dataset or "starter", settings.epochs or 1
    published = PUBLISHED.get(name)
    sets = published.sets if published else len(load_dataset(name, settings.taxonomy))
    sets = min(sets, settings.limit or sets)
    return GatePlan(
        dataset=show_name(dataset_name(name)),
        sets=sets,
        epochs=epochs,
        confidence=settings.confidence,
        gates=tuple(find_reach(gate, sets, epochs, settings.confidence) for gate in gates),
    )


class _Test(NamedTuple):
    """The test that is planned."""

    deviations: dict[str, float]
    """By metric."""
    pairs: int
    of_margin: bool
    """Models are assumed to be equal, so that a difference needs no prompt-sets that differ."""

    def sets_needed(self, effect: float, metric: str, power: float) -> int | None:
        """Return the prompt-sets for a difference, or for a margin."""
        return sets_needed(
            effect,
            self.deviations[metric],
            power=power,
            shares=METRICS[metric].is_share and not self.of_margin,
            pairs=self.pairs,
        )

    def detectable(self, sets: int) -> dict[str, float]:
        """Return by metric the difference, or the margin, for so many prompt-sets."""
        return {
            metric: detectable_difference(
                sets,
                deviation,
                power=POWERS[0],
                shares=METRICS[metric].is_share and not self.of_margin,
                pairs=self.pairs,
            )
            for metric, deviation in self.deviations.items()
        }


def _calls(grading: Grading, epochs: int, judges: int | None) -> dict[str, int]:
    """Count by purpose the calls of one model to a shipped prompt-set, probes at most."""
    names = tuple(f"judge {n + 1}" for n in range(judges or len(grading.judges) or 1))
    plan = JudgePlan(
        judges=names,
        mode_judge=names[0],
        modes=grading.modes,
        probe=grading.probe,
        judge_samplings=dict.fromkeys(names, Sampling()),
        target_sampling=Sampling(),
    )
    work = ModelWork(
        model="model",
        plan=plan,
        templates=load_templates(),
        tasks=list_tasks("model", load_dataset("starter").prompt_sets[:1], epochs),
    )
    return Counter(step.purpose for planned in work.planned for step in planned.steps)


def _read_pilot(
    folders: Sequence[Path], pilot: str, ledgers: Sequence[Path], missing_odds: float
) -> Cohort:
    """Return the models of the pilot's runs.

    Raises:
        InputError: the runs make no report together, or have no model.
    """
    runs = read_graded_runs(folders, ledgers=ledgers)
    check_join(runs, {name: path for path, name in name_runs(folders).items()})
    if not any(run.manifest.models for run in runs):
        raise InputError(f"--pilot {pilot}: the run has no model")
    return gather_models(runs, missing_odds)


def _measure_deviations(cohort: Cohort, pilot: str) -> tuple[dict[str, float], str]:
    """Return the standard deviation of a paired difference by metric, and its source."""
    names = contenders(cohort.models)
    places = [cohort.models.index(name) for name in names]
    deviations: dict[str, float] = {}
    counted = len(cohort.dataset)
    for metric in PRIMARY:
        ratio = cohort.estimates.ratios[metric]
        weights = ratio.denominator.values[places]
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.where(weights > 0, ratio.numerator.values[places] / weights, np.nan)
        apart = (
            [later - earlier for earlier, later in combinations(values, 2)]
            if len(names) > 1
            else [values[0] * sqrt(2)]
        )
        defined = [difference[~np.isnan(difference)] for difference in apart]
        counted = min(counted, *map(len, defined))
        if counted < _FEWEST:
            raise InputError(
                f"--pilot {pilot}: {counted} prompt-sets count; expected {_FEWEST} or more"
            )
        deviations[metric] = sqrt(
            float(np.mean([np.var(values_of_pair, ddof=1) for values_of_pair in defined]))
        )
        if not deviations[metric]:
            raise InputError(
                f"--pilot {pilot}: the difference in {METRICS[metric].label} is alike in all"
                " prompt-sets, so the run does not tell how much it varies; leave --pilot out"
            )
    shown = [show_name(name) for name in names]
    if len(shown) == 1:
        of = f"the values of {shown[0]} alone, times √2 as for two unrelated models"
    elif len(shown) == 2:
        of = f"the paired differences of {shown[0]} and {shown[1]}"
    else:
        of = f"the paired differences of {len(apart)} pairs of models (root mean square)"
    return deviations, f"from {of}, {counted:,} prompt-sets"
