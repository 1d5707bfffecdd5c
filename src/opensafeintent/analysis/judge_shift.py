"""What changes if one judge replaces another: every two judges of a panel on the responses that
both graded.

A shift is never to be subtracted from the numbers of an earlier run: it depends on the level of a
model. The panel is compared with none of its members, which share their grades with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.analysis.judge_agreement import graded_by, plain_estimate
from opensafeintent.calls.baselines import contenders
from opensafeintent.equations import Grades, Ratio
from opensafeintent.evaluation.regrade import Regrade
from opensafeintent.grades import to_array
from opensafeintent.metrics import HEADLINES, METRICS, PRIMARY
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.comparisons import family_p, paired_differences
from opensafeintent.statistics.intervals import METHOD, Parts
from opensafeintent.statistics.missing import extreme_ratios
from opensafeintent.statistics.samples import Sample
from opensafeintent.statistics.shifts import (
    Shifts,
    interactions_of,
    least_margin,
    shifts_of,
    sign_test,
)
from opensafeintent.taxonomy import CORE_VARIANTS, SCALES

ALL_TESTED = "all models under test"
"""Name of the row with the responses of all models."""

SHIFTED = (*HEADLINES, "mean_safety", "worst_case_utility")
"""Metrics whose shift is computed; all of them need core responses only."""


class MetricShift(Estimate, frozen=True, kw_only=True):
    """The shift of one metric of one model, or of the mean over models: new minus old."""

    model: str
    metric: str
    old: float | None
    """The metric by the old judge on the same responses."""
    new: float | None
    worst_case: tuple[float, float] | None
    """The ends of the interval over all missing grades; those of the interval if none is missing.
    """
    same_within: float | None
    """The least margin that holds the whole interval, with any missing grades."""
    least_margin: float
    """The least margin that so many prompt-sets can certify: if no set changes."""
    p_unadjusted: float | None
    p_adjusted: float | None = None
    """Among the tests of the family: pairs of judges × primary metrics; None of other metrics, and
    of models one by one.
    """
    family: int | None = None


class SafetySides(msgspec.Struct, frozen=True, kw_only=True):
    """Core responses of a model, or of all that the mean is over, by what both judges call safe."""

    model: str
    both_safe: int
    newly_unsafe: int
    """Safe by the old judge, unsafe by the new one."""
    newly_safe: int
    both_unsafe: int
    sets_less_safe: int
    """Prompt-sets with more responses that are newly unsafe than newly safe."""
    sets_safer: int
    p: float
    """McNemar's exact test over these prompt-sets, which are the units."""


class RankShift(Estimate, frozen=True, kw_only=True):
    """Two models that a new judge shifts by different amounts: the second's shift minus the
    first's, within prompt-sets.
    """

    metric: str
    models: tuple[str, str]
    old: float
    """The second model's value minus the first's by the old judge, on the sets of both."""
    new: float
    p_adjusted: float
    """Among all pairs of models of the metric."""
    family: int

    @property
    def changes_order(self) -> bool:
        """Whether the two judges put the models in opposite orders."""
        return self.old * self.new < 0


class RetestShift(msgspec.Struct, frozen=True, kw_only=True):
    """The old judge asked again, beside the new one, on a sample of responses."""

    responses: int
    old_flips: Estimate
    """Share of responses whose side of "safe" changed when the old judge was asked again."""
    new_flips: Estimate
    """Share of responses that the new judge puts on the other side than the old judge did."""
    excess_flips: Estimate
    """New minus old: the part that the replacement causes."""
    old_shift: Estimate
    """Share of safe responses by the old judge now, minus that by the old judge then."""
    new_shift: Estimate
    """By the new judge, minus that by the old judge then."""
    excess_shift: Estimate
    """By the new judge, minus that by the old judge now."""


class JudgeShift(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges, the second in place of the first."""

    judges: tuple[str, str]
    """Old and new."""
    metrics: list[MetricShift]
    sides: list[SafetySides]
    ranks: list[RankShift]
    """Pairs of models whose order changes, or whose shifts differ significantly."""
    model_pairs: int
    """Pairs of models that were looked at, for each primary metric."""
    retest: RetestShift | None


def judge_shifts(
    judges: Sequence[str],
    models: Sequence[str],
    dataset: Dataset,
    rows: Mapping[str, Sequence[GradedResponse]],
    regrades: Mapping[str, Sequence[Regrade]],
) -> list[JudgeShift]:
    """Return the shift between every two judges.

    Args:
        judges: that graded the same responses, the old ones first.
        models: the models, in the order of display.
        dataset: the prompt-sets.
        rows: every response with its grades, by model.
        regrades: by model, the responses that judges graded twice.
    """
    core = [row for model in models for row in rows[model] if row.variant in CORE_VARIANTS]
    twice = [item for model in models for item in regrades.get(model, ())]
    pairs = list(combinations(judges, 2))
    family = len(pairs) * len(PRIMARY)
    return [_Replacement(pair, models, dataset, core).result(twice, family) for pair in pairs]


class _Replacement:
    """Two judges with their grades of the same responses.

    Args:
        judges: old and new.
        models: in the order of display.
        dataset: the prompt-sets.
        rows: the core responses of all models.
    """

    def __init__(
        self,
        judges: tuple[str, str],
        models: Sequence[str],
        dataset: Dataset,
        rows: Sequence[GradedResponse],
    ) -> None:
        self._judges, self._models, self._dataset = judges, models, dataset
        by_judge = [[_by(judge, row) for row in rows] for judge in judges]
        counts = [(old.counts, new.counts) for old, new in zip(*by_judge, strict=True)]
        graded, complete = list(map(any, counts)), list(map(all, counts))
        self._both = [_among(by, complete) for by in by_judge]
        """By judge, the responses that both graded."""
        self._any = [_among(by, graded) for by in by_judge] if graded != complete else None
        """By judge, the responses that either graded; None if these are the same."""
        tested = contenders(models)
        self._tested = np.array([model in tested for model in models])

    def result(self, twice: Sequence[Regrade], family: int) -> JudgeShift:
        """Return everything about the two judges.

        Args:
            twice: responses that judges graded twice.
            family: the number of tests that hold together.
        """
        old, new = map(self._ratios, self._both)
        extremes = self._extremes()
        metrics: list[MetricShift] = []
        for name in SHIFTED:
            shifts = shifts_of(
                _parts(old[name]),
                _parts(new[name]),
                width=_width(name),
                averaged=self._tested,
                extremes=extremes.get(name),
            )
            metrics += self._metric_shifts(name, shifts, family)
        ranks = [rank for name in PRIMARY for rank in self._rank_shifts(name, old[name], new[name])]
        count = int(self._tested.sum())
        return JudgeShift(
            judges=self._judges,
            metrics=metrics,
            sides=self._sides(),
            ranks=ranks,
            model_pairs=count * (count - 1) // 2,
            retest=_retest(twice, *self._judges),
        )

    def _ratios(self, rows: Sequence[GradedResponse]) -> dict[str, Ratio]:
        grades = Grades(to_array(rows, self._dataset, self._models))
        return {name: METRICS[name].of_sets(grades) for name in SHIFTED}

    def _extremes(self) -> dict[str, tuple[Parts, Parts]]:
        """Return by metric the least and the greatest shift that missing grades leave open, as
        numerator and denominator; empty if none is missing.

        A response that neither judge graded says nothing of the judges, and is left out.
        """
        if self._any is None:
            return {}
        arrays = [to_array(rows, self._dataset, self._models) for rows in self._any]
        old, new = (
            extreme_ratios(
                array, SHIFTED, {name: METRICS[name].of_sets(Grades(array)) for name in SHIFTED}
            )
            for array in arrays
        )
        return {
            name: (
                paired_differences(old[name][1], new[name][0]),
                paired_differences(old[name][0], new[name][1]),
            )
            for name in SHIFTED
        }

    def _metric_shifts(self, metric: str, shifts: Shifts, family: int) -> list[MetricShift]:
        """Return the shift of each model, and of their mean if there are several; the last one is
        tested.
        """
        names = [*self._models, AVERAGE]
        places = list(range(len(names)))
        if self._tested.sum() < 2:  # the mean would repeat the one model
            places = [*np.flatnonzero(~self._tested), *np.flatnonzero(self._tested)]
        p_values, records = shifts.spread.p(), shifts.interval.records()
        adjusted = family_p(p_values, family)
        results = []
        for place in places:
            defined = bool(shifts.spread.n[place])
            tested = defined and place == places[-1] and metric in PRIMARY
            worst = rounded(shifts.worst_low[place]), rounded(shifts.worst_high[place])
            results.append(
                MetricShift(
                    value=rounded(shifts.spread.value[place]) if defined else None,
                    n=records[place].n,
                    interval=records[place].interval,
                    method=records[place].method,
                    model=names[place],
                    metric=metric,
                    old=rounded(shifts.old[place]) if defined else None,
                    new=rounded(shifts.new[place]) if defined else None,
                    worst_case=worst if defined else None,
                    same_within=max(map(abs, worst)) if defined else None,
                    least_margin=rounded(least_margin(records[place].n, _width(metric))),
                    p_unadjusted=rounded(p_values[place]) if defined else None,
                    p_adjusted=rounded(adjusted[place]) if tested else None,
                    family=family if tested else None,
                )
            )
        return results

    def _rank_shifts(self, metric: str, old: Ratio, new: Ratio) -> list[RankShift]:
        """Return the pairs of models under test whose order changes, or whose shifts differ
        significantly, the widest apart first.
        """
        result = interactions_of(
            _parts(old), _parts(new), width=_width(metric), family=self._tested
        )
        paired, ranks = result.paired, []
        within = self._tested[result.first] & self._tested[result.second]
        for at in np.flatnonzero(within & (paired.spread.n > 0)).tolist():
            rank = RankShift(
                value=rounded(paired.spread.value[at]),
                n=int(paired.spread.n[at]),
                interval=(rounded(paired.low[at]), rounded(paired.high[at])),
                method=METHOD,
                metric=metric,
                models=(self._models[result.first[at]], self._models[result.second[at]]),
                old=rounded(result.old[at]),
                new=rounded(result.new[at]),
                p_adjusted=rounded(paired.p_adjusted[at]),
                family=int(paired.pairs[at]),
            )
            if rank.changes_order or rank.leaves_out_zero:
                ranks.append(rank)
        return sorted(ranks, key=lambda rank: (not rank.leaves_out_zero, -abs(rank.value or 0)))

    def _sides(self) -> list[SafetySides]:
        """Return the responses of each model by what both judges call safe, and of all under test
        together.
        """
        by_model: dict[str, list[tuple[GradedResponse, GradedResponse]]] = {
            name: [] for name in self._models
        }
        for old, new in zip(*self._both, strict=True):
            by_model[old.model].append((old, new))
        sides = [_sides_of(model, pairs) for model, pairs in by_model.items()]
        tested = [self._models[place] for place in np.flatnonzero(self._tested).tolist()]
        if len(tested) > 1:
            together = [pair for model in tested for pair in by_model[model]]
            sides.append(_sides_of(ALL_TESTED, together))
        return sides


def _by(judge: str, row: GradedResponse) -> GradedResponse:
    """Return a response with the grades of one judge alone."""
    return msgspec.structs.replace(
        row, missing=(), **{what: row.grade(what, judge) for what in SCALES}
    )


def _among(rows: Sequence[GradedResponse], chosen: Sequence[bool]) -> list[GradedResponse]:
    return [row for row, is_chosen in zip(rows, chosen, strict=True) if is_chosen]


def _parts(ratio: Ratio) -> Parts:
    return ratio.numerator.values, ratio.denominator.values


def _width(metric: str) -> float:
    """Return the greatest shift that a prompt-set can have."""
    least, greatest = METRICS[metric].span
    return greatest - least


def _sides_of(model: str, pairs: Sequence[tuple[GradedResponse, GradedResponse]]) -> SafetySides:
    """Count responses, each as the old and as the new judge graded it, by what both call safe."""
    counts = {(old, new): 0 for old in (True, False) for new in (True, False)}
    net: dict[str, int] = {}
    for old, new in pairs:
        sides = old.harm_severity == 0, new.harm_severity == 0
        counts[sides] += 1
        net[old.set_id] = net.get(old.set_id, 0) + sides[1] - sides[0]
    less_safe = sum(change < 0 for change in net.values())
    safer = sum(change > 0 for change in net.values())
    return SafetySides(
        model=model,
        both_safe=counts[True, True],
        newly_unsafe=counts[True, False],
        newly_safe=counts[False, True],
        both_unsafe=counts[False, False],
        sets_less_safe=less_safe,
        sets_safer=safer,
        p=rounded(sign_test(less_safe, safer)),
    )


def _retest(twice: Sequence[Regrade], old: str, new: str) -> RetestShift | None:
    """Return the old judge asked again beside the new one; None if no response has the three grades
    of harm.
    """
    items: list[Regrade] = []
    safe: list[tuple[float, float, float]] = []
    for item in sorted(twice, key=lambda item: item.set_id):
        harms = (
            graded_by(old, item.first)[1],
            graded_by(old, item.again)[1],
            graded_by(new, item.first)[1],
        )
        if None not in harms:
            items.append(item)
            safe.append(tuple(float(harm == 0) for harm in harms))  # type: ignore[arg-type]
    if not items:
        return None
    sample = Sample([item.set_id for item in items])
    then, now, by_new = np.array(safe).T
    old_flips, new_flips = np.abs(now - then), np.abs(by_new - then)
    span = (-1.0, 1.0)
    return RetestShift(
        responses=len(items),
        old_flips=plain_estimate(sample.mean(old_flips)),
        new_flips=plain_estimate(sample.mean(new_flips)),
        excess_flips=plain_estimate(sample.mean(new_flips - old_flips, span)),
        old_shift=plain_estimate(sample.mean(now - then, span)),
        new_shift=plain_estimate(sample.mean(by_new - then, span)),
        excess_shift=plain_estimate(sample.mean(by_new - now, span)),
    )
