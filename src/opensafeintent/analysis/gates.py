"""Gates: which thresholds and margins the models of a report pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.cohort import Cohort, GradedRun, ModelOrigin, into_cohorts
from opensafeintent.analysis.judge_checks import unchecked_judges
from opensafeintent.analysis.versions import (
    Transitions,
    is_identical,
    paired_alike,
    transitions_of,
)
from opensafeintent.calls.baselines import contenders
from opensafeintent.errors import for_command_line, option
from opensafeintent.metrics import METRICS
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.intervals import Parts
from opensafeintent.statistics.thresholds import (
    EXACT,
    Bounds,
    Side,
    Verdict,
    bounds_of,
    bounds_of_pair,
    fewest_to_meet,
    verdict_of,
)

_SEVERITY: tuple[Verdict, ...] = ("pass", "undecided", "fail")

Kind = Literal["under", "over", "worse"]
_SETTINGS: dict[Kind, str] = {
    "under": "fail_under",
    "over": "fail_over",
    "worse": "fail_if_worse",
}


class Gate(msgspec.Struct, frozen=True):
    """One metric and its limit: the least value, the most, or by how much it may have become
    worse.
    """

    kind: Kind
    metric: str
    limit: float

    @property
    def setting(self) -> str:
        """The name of the setting that requests it."""
        return _SETTINGS[self.kind]

    @property
    def option(self) -> str:
        """The command line's, as results name the gate."""
        return for_command_line(option(self.setting))

    @property
    def side(self) -> Side:
        """Whether the limit is the least or the most that the number may be."""
        return "least" if self.kind == "under" else "most"

    @property
    def text(self) -> str:
        """Its condition: `triplet_safety ≥ 80 %`."""
        if self.kind == "worse":
            return f"{self.metric} worse by {self.shown} at most"
        return f"{self.metric} {self.shown}"

    @property
    def shown(self) -> str:
        """The limit in the metric's unit: `≥ 80 %`, `≤ 0.4`, `25 points`."""
        sign = {"under": "≥ ", "over": "≤ ", "worse": ""}[self.kind]
        return f"{sign}{self.in_unit(self.limit)}"

    def in_unit(self, value: float, n: int | None = None) -> str:
        """Return a value in the metric's unit: in per cent, points or as a score.

        Args:
            value: the value, or a change of it.
            n: the number of prompt-sets, which determines the decimals; None shows all digits, for
                a limit that a user typed.
        """
        share = METRICS[self.metric].is_share
        if share:
            value *= 100
        if n is None:
            text = f"{round(value, 6) + 0.0:g}"
        else:
            decimals = 2
            if share:
                decimals = 1 if n >= 100 else 0
            text = f"{round(value, decimals) + 0.0:.{decimals}f}"
        text = text.replace("-", "−")
        if not share:
            return text
        return f"{text} points" if self.kind == "worse" else f"{text} %"

    def is_exact(self, epochs: int) -> bool:
        """Whether each prompt-set has the value 0 or 1."""
        return epochs == 1 and METRICS[self.metric].is_binary

    def meets(self, value: float) -> bool:
        """Tell whether a value is on the right side of the limit."""
        return value >= self.limit if self.side == "least" else value <= self.limit


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a gate for one model of the report."""

    gate: Gate
    group: int
    """Index among the report's groups."""
    model: str
    against: str | None = None
    """Its earlier version, by the name in the earlier run."""
    confidence: float
    """Of the interval that decides."""
    pairs: int = 1
    """Of a change: the number of pairs of models compared together."""
    verdict: Verdict
    estimate: Estimate
    """The metric, or how it changed, later minus earlier."""
    family: tuple[float, float] | None = None
    """Of one of several pairs: the interval that holds for all of them at once, in which a failure
    has to lie.
    """
    deciding: int | None = None
    """Of an undecided one: about how many prompt-sets would decide, with a power of 80 %."""
    identical: bool = False
    """Whether responses and grades are those of the earlier version: nothing was tested."""
    worst_case: tuple[float, float] | None = None
    """The ends of the interval over all missing grades, and without them; None if none is missing.
    """
    compared: Bounds | None
    """The number that is compared with the limit: the metric, or how much worse it became; None
    without an earlier version.
    """
    unpaired: str | None = None
    """The earlier run, if it has no version of the model."""
    absent: int = 0
    """Planned responses that are not stored: the result is undecided until they are."""


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Results of every gate of a report for every model under test."""

    results: tuple[GateResult, ...]
    baseline: str | None = None
    """The earlier run."""
    cautions: tuple[str, ...] = ()
    """Cautions about the gates themselves, a line each."""
    transitions: tuple[Transitions, ...] = ()
    """By model, the prompt-sets that newly fail and newly pass against the earlier run."""

    @property
    def verdict(self) -> Verdict:
        """The overall verdict: failed if any failed, else undecided if any is undecided."""
        return max((result.verdict for result in self.results), key=_SEVERITY.index, default="pass")

    @property
    def exit_code(self) -> int:
        """4 if one failed, else 5 if one is undecided."""
        return {"fail": 4, "undecided": 5, "pass": 0}[self.verdict]


class _Graded(NamedTuple):
    """One metric of one model, numerator and denominator of shape (prompt_set,) each: as graded;
    and with every missing grade as it makes the metric least, and greatest.
    """

    as_graded: Parts
    least: Parts
    greatest: Parts


_Completion = Literal["as_graded", "least", "greatest"]


class _Metrics:
    """The metrics of every model of a cohort, as gates compare them with limits."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self._epochs = cohort.array.sizes["epoch"]

    def graded(self, metric: str, place: int) -> _Graded:
        """Return a metric of the model at a place."""
        estimates = self.cohort.estimates
        ratio, extremes = estimates.ratios[metric], estimates.extremes[metric]
        as_graded = ratio.numerator.values[place], ratio.denominator.values[place]
        return _Graded(as_graded, *((top[place], bottom[place]) for top, bottom in extremes))

    def bounds(self, gate: Gate, place: int, confidence: float) -> list[Bounds]:
        """Return the limits of a model's metric: as graded; and if grades are missing, with each as
        it makes the metric least, and greatest.
        """
        graded, metric = self.graded(gate.metric, place), METRICS[gate.metric]
        completions = graded if self.cohort.estimates.moves(gate.metric, place) else graded[:1]
        exact = gate.is_exact(self._epochs)
        return [
            bounds_of(parts, span=metric.span, confidence=confidence, exact=exact)
            for parts in completions
        ]

    def worsening(
        self, gate: Gate, pairs: Sequence[tuple[int, int]], confidence: float
    ) -> Iterator[tuple[list[Bounds], Bounds]]:
        """Yield the same of how much worse the first model of each pair is than the second; beside
        it the change, first minus second.
        """
        metric = METRICS[gate.metric]
        later = [self.graded(gate.metric, place) for place, _ in pairs]
        earlier = [self.graded(gate.metric, place) for _, place in pairs]
        width = metric.span[1] - metric.span[0]

        def change(of_later: _Completion, of_earlier: _Completion) -> list[Bounds]:
            before, after = _stacked(earlier, of_earlier), _stacked(later, of_later)
            none = np.zeros(len(pairs), dtype=bool)
            alone, together = (
                compare_pairs(before, after, width=width, confidence=confidence, family=family)
                for family in (none, ~none)
            )
            return [bounds_of_pair(alone, together, at, width) for at in range(len(pairs))]

        as_graded = change("as_graded", "as_graded")
        extremes = change("least", "greatest"), change("greatest", "least")
        for at, places in enumerate(pairs):
            bounds = [as_graded[at]]
            if any(self.cohort.estimates.moves(gate.metric, place) for place in places):
                bounds += [extreme[at] for extreme in extremes]
            if not metric.less_is_better:
                bounds = [bounds[0].negative, *(item.negative for item in reversed(bounds[1:]))]
            yield bounds, as_graded[at]


def _stacked(graded: Sequence[_Graded], completion: _Completion) -> Parts:
    """Return numerators and denominators of several models: shape (model, prompt_set) each."""
    parts: list[Parts] = [getattr(item, completion) for item in graded]
    return np.array([top for top, _ in parts]), np.array([bottom for _, bottom in parts])


def _result(
    gate: Gate,
    bounds: Sequence[Bounds],
    confidence: float,
    *,
    group: int,
    model: str,
    shown: Bounds,
    against: str | None = None,
    identical: bool = False,
) -> GateResult:
    """Compare a number with a gate.

    Args:
        gate: the gate.
        bounds: as graded; and if grades are missing, with each as it makes the number least, and
            greatest.
        confidence: of the intervals.
        shown: the number, or how it changed, later minus earlier.
        group, model, against, identical: of the result.
    """
    verdict: Verdict = "pass" if identical else _verdict(gate, bounds)
    return GateResult(
        gate=gate,
        group=group,
        model=model,
        against=against,
        confidence=confidence,
        pairs=shown.pairs,
        verdict=verdict,
        estimate=shown.estimate,
        family=shown.family and (rounded(shown.family[0]), rounded(shown.family[1])),
        worst_case=_worst_case(gate, bounds),
        deciding=_deciding(gate, bounds[0], confidence) if verdict == "undecided" else None,
        identical=identical,
        compared=bounds[0],
    )


def _verdict(gate: Gate, bounds: Sequence[Bounds]) -> Verdict:
    """Return a verdict that holds for any missing grades; an undefined number is undecided."""
    verdict, *other_verdicts = (verdict_of(item, gate.limit, gate.side) for item in bounds)
    return "undecided" if any(other != verdict for other in other_verdicts) else verdict


def _worst_case(gate: Gate, bounds: Sequence[Bounds]) -> tuple[float, float] | None:
    """Return the ends of the interval over all missing grades, of a change as later minus
    earlier.
    """
    extremes = bounds[1:]
    if not extremes or isnan(extremes[0].low + extremes[1].high):
        return None
    # as graded, a number without any grade is undefined
    low = rounded(min(b.low for b in bounds if not isnan(b.low)))
    high = rounded(max(b.high for b in bounds if not isnan(b.high)))
    # `bounds` are of how much worse it is
    if gate.kind == "worse" and not METRICS[gate.metric].less_is_better:
        return -high, -low
    return low, high


def _deciding(gate: Gate, bounds: Bounds, confidence: float) -> int | None:
    """Return about how many prompt-sets would decide, with a power of 80 %."""
    deciding = bounds.deciding(gate.limit, gate.side, confidence)
    if deciding and gate.kind != "worse" and gate.meets(bounds.value):
        span, exact = METRICS[gate.metric].span, bounds.method == EXACT
        fewest = fewest_to_meet(gate.limit, gate.side, span, confidence, exact=exact)
        return max(deciding, fewest)
    return deciding


def check_thresholds(
    cohorts: Sequence[Cohort], gates: Sequence[Gate], confidence: float
) -> list[GateResult]:
    """Compare every model with thresholds; baselines are reference points and count only if there
    is nothing else.

    Args:
        cohorts: of the report.
        gates: those of `--fail-under` and `--fail-over`.
        confidence: of the interval that has to lie on one side of the limit.
    """
    tested = contenders(model for cohort in cohorts for model in cohort.models)
    results = []
    for group, cohort in enumerate(cohorts):
        metrics = _Metrics(cohort)
        for place, model in enumerate(cohort.models):
            if model not in tested:
                continue
            for gate in gates:
                bounds = metrics.bounds(gate, place, confidence)
                result = _result(
                    gate, bounds, confidence, group=group, model=model, shown=bounds[0]
                )
                results.append(_until_stored(result, cohort))
    return results


def _until_stored(result: GateResult, cohort: Cohort) -> GateResult:
    """Return a result, undecided as long as the run of its model can still bring responses."""
    coverage = cohort.coverage[result.model]
    if not coverage.can_resume:
        return result
    absent = coverage.planned - coverage.responses
    return msgspec.structs.replace(result, verdict="undecided", deciding=None, absent=absent)


def most_sets(results: Sequence[GateResult]) -> dict[Gate, int]:
    """Return the largest number of prompt-sets that a result of each gate has."""
    ordered = sorted(results, key=lambda result: result.estimate.n)
    return {result.gate: result.estimate.n for result in ordered}


class _Versions(NamedTuple):
    """A model of the run, and its earlier version."""

    name: str
    earlier_name: str
    metrics: _Metrics
    """Of the cohort that both are in."""
    place: int
    """In that cohort."""
    earlier_place: int
    identical: bool
    """Whether both have the same responses with the same grades."""


def check_regressions(
    cohorts: Sequence[Cohort],
    new: GradedRun,
    old: GradedRun,
    gates: Sequence[Gate],
    confidence: float,
    pairs: Sequence[str] = (),
    same_text: Callable[[GradedResponse, GradedResponse], bool] = lambda new, old: False,
) -> Gates:
    """Compare the models of a run with their earlier versions; baselines count only if there is
    nothing else.

    Args:
        cohorts: of the report, which has the models of `new`.
        new, old: the run and the earlier one.
        gates: those of `--fail-if-worse`.
        confidence: of the interval that has to lie on one side of the margin.
        pairs: models that were paired by hand, `NEW=OLD`.
        same_text: whether a response of the new run has the text of one of the old run.

    Raises:
        InputError: models cannot be paired, or were not treated alike in the two runs.
    """
    tested = contenders(new.manifest.models)
    paired = paired_alike(new, old, tested, pairs)
    in_report = {
        origin: (group, model)
        for group, cohort in enumerate(cohorts)
        for model, origin in cohort.origins.items()
    }
    measured = [_Metrics(cohort) for cohort in into_cohorts([new, old])]
    versions = _versions(measured, new, old, paired, same_text)
    compared: dict[tuple[str, Gate], GateResult] = {}
    for version, gate, bounds, change in _worsenings(measured, versions, gates, confidence):
        group, model = in_report[ModelOrigin(new.name, version.name)]
        result = _result(
            gate,
            bounds,
            confidence,
            group=group,
            model=model,
            shown=change,
            against=version.earlier_name,
            identical=version.identical,
        )
        compared[version.name, gate] = _until_stored(result, cohorts[group])
    return Gates(
        results=tuple(
            compared.get((name, gate))
            or _unpaired(gate, *in_report[ModelOrigin(new.name, name)], old, confidence)
            for name in tested
            for gate in gates
        ),
        baseline=old.name,
        cautions=unchecked_judges([metrics.cohort for metrics in measured]),
        transitions=tuple(
            transitions_of(version.metrics.cohort, version.place, version.earlier_place)
            for version in versions
        ),
    )


def _versions(
    measured: Sequence[_Metrics],
    new: GradedRun,
    old: GradedRun,
    paired: Mapping[str, str],
    same_text: Callable[[GradedResponse, GradedResponse], bool],
) -> list[_Versions]:
    places = {
        origin: (metrics, place)
        for metrics in measured
        for place, origin in enumerate(metrics.cohort.origins.values())
    }
    versions = []
    for name, earlier_name in paired.items():
        metrics, place = places[ModelOrigin(new.name, name)]
        _, earlier_place = places[ModelOrigin(old.name, earlier_name)]
        identical = is_identical(new, name, old, earlier_name, same_text)
        versions.append(_Versions(name, earlier_name, metrics, place, earlier_place, identical))
    return versions


def _worsenings(
    measured: Sequence[_Metrics],
    versions: Sequence[_Versions],
    gates: Sequence[Gate],
    confidence: float,
) -> Iterator[tuple[_Versions, Gate, list[Bounds], Bounds]]:
    """Yield how much worse each model became in each gate's metric, and the change itself; models
    of one cohort are compared together.
    """
    for metrics in measured:
        members = [version for version in versions if version.metrics is metrics]
        if not members:
            continue
        places = [(version.place, version.earlier_place) for version in members]
        for gate in gates:
            changes = metrics.worsening(gate, places, confidence)
            for version, (bounds, change) in zip(members, changes, strict=True):
                yield version, gate, bounds, change


def _unpaired(gate: Gate, group: int, model: str, old: GradedRun, confidence: float) -> GateResult:
    return GateResult(
        gate=gate,
        group=group,
        model=model,
        confidence=confidence,
        verdict="undecided",
        estimate=Estimate(value=None, n=0),
        compared=None,
        unpaired=old.name,
    )
