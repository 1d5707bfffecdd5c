"""Gates: which thresholds and margins the models of a report pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.cohort import Cohort, GradedRun, ModelOrigin, into_cohorts
from opensafeintent.analysis.coverage import Coverage
from opensafeintent.analysis.gate_results import Gate, GateResult, Gates
from opensafeintent.analysis.judge_checks import unchecked_judges
from opensafeintent.analysis.versions import (
    is_identical,
    paired_alike,
    transitions_of,
)
from opensafeintent.calls.baselines import contenders
from opensafeintent.metrics import METRICS
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.intervals import Parts
from opensafeintent.statistics.thresholds import (
    EXACT,
    Bounds,
    Verdict,
    bounds_of,
    bounds_of_pair,
    fewest_to_meet,
    verdict_of,
)


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
                results.append(_until_stored(result, cohort.coverage[model]))
    return results


def _until_stored(result: GateResult, coverage: Coverage, run: str = "the run") -> GateResult:
    """Return a result, undecided as long as a run can still bring responses of its model."""
    if not coverage.can_resume:
        return result
    return msgspec.structs.replace(
        result,
        verdict="undecided",
        deciding=None,
        absent=coverage.planned - coverage.responses,
        absent_of=run,
    )


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

    def until_stored(self, result: GateResult, coverage: Coverage) -> GateResult:
        """Return a result, undecided as long as either run can still bring responses.

        Args:
            result: of the model.
            coverage: of the model in the report.
        """
        cohort = self.metrics.cohort
        earlier = cohort.coverage[cohort.models[self.earlier_place]]
        return _until_stored(_until_stored(result, earlier, "the earlier run"), coverage)


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
        compared[version.name, gate] = version.until_stored(result, cohorts[group].coverage[model])
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
