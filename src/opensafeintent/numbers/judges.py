"""What a run says about its judges: agreement, noise, one judge in place of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import combinations
from math import inf, sqrt
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.evaluation.manifest import MOST_JUDGES
from opensafeintent.evaluation.regrade import Regrade
from opensafeintent.grades import PANEL, to_array
from opensafeintent.labelled import Labelled, LabelledSet
from opensafeintent.numbers.completions import (
    TRIED_ODDS,
    Completions,
    StoredOdds,
    find_turning_odds,
    store_turning_odds,
)
from opensafeintent.numbers.equations import Grades, Ratio
from opensafeintent.numbers.estimates import (
    AVERAGE,
    MetricEstimates,
    compare_metrics,
    estimate_metrics,
)
from opensafeintent.numbers.metrics import METRICS, MetricScope
from opensafeintent.people.agreement import gather_grades
from opensafeintent.promptsets import Dataset
from opensafeintent.ratings import Ratings
from opensafeintent.responses import GradedResponse, keep_judge, panel_grades
from opensafeintent.statistics import Comparison, Estimate, compute_rank_intervals, round_number
from opensafeintent.statistics.coefficients import RatingCounts, Scheme
from opensafeintent.statistics.comparisons import adjust_p, compute_paired_differences
from opensafeintent.statistics.intervals import (
    FEWEST_JUDGES,
    METHOD,
    Completed,
    Floats,
    Parts,
    Units,
    average_completed,
    compute_spread,
    estimate_for_judges,
    leave_out_zero,
    round_limits,
)
from opensafeintent.statistics.samples import Sample
from opensafeintent.statistics.shifts import (
    Interactions,
    Shifts,
    compute_interactions,
    compute_shifts,
    least_margin,
    sign_test,
)
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    METRIC_GRADES,
    SCALES,
    Graded,
    KnownGrades,
    find_intent,
)

SAFE_CATEGORIES = (0, 1)
"""Ratings on "safe": 0 for unsafe, 1 for safe."""

Flags = NDArray[np.bool_]


class RatedResponses:
    """Ratings of responses on one scale; a response with one rating counts towards chance agreement
    only.

    Args:
        sample: the responses, with their prompt-sets, or families of sets, as units.
        ratings: shape (response, rater), NaN if there is none.
    """

    def __init__(self, sample: Sample, ratings: Floats) -> None:
        self._sample, self._ratings = sample, ratings

    @property
    def has_ratings(self) -> bool:
        """Whether there is any rating."""
        return not np.isnan(self._ratings).all()

    def agreement(self, categories: Sequence[int]) -> Estimate:
        """Return the share of pairs of raters that agree."""
        return round_estimate(
            self._sample.mean(RatingCounts.of(self._ratings, categories).pairwise())
        )

    def gwet(self, categories: Sequence[int], scheme: Scheme) -> Estimate:
        """Return Gwet's AC1 (`identity`) or AC2 (`quadratic`)."""
        return round_estimate(self._sample.gwet(RatingCounts.of(self._ratings, categories), scheme))

    def difference(self, categories: Sequence[int], *, absolute: bool = False) -> Estimate:
        """Return the mean of the second rater's rating minus the first's, or of its absolute value.

        Args:
            categories: every rating that there can be, in order.
            absolute: whether the absolute value is taken.
        """
        greatest = float(categories[-1] - categories[0])
        differences, least = self._ratings[:, 1] - self._ratings[:, 0], -greatest
        if absolute:
            differences, least = np.abs(differences), 0.0
        mean = self._sample.mean if greatest == 1 else self._sample.mean_grade
        return round_estimate(mean(differences, (least, greatest)))


def round_estimate(estimate: Estimate) -> Estimate:
    """Return an estimate rounded as in `metrics.json`."""
    value = None if estimate.value is None else round_number(estimate.value)
    return Estimate(value=value, n=estimate.n, interval=estimate.interval, method=estimate.method)


class GradeAgreement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the grades of judges, or of one judge asked twice, agree on one scale."""

    equal: Estimate
    """Share of pairs of grades that are the same."""
    ac2: Estimate | None = None
    """Of judges: Gwet's AC2 with quadratic weights."""
    difference: Estimate | None = None
    """Of two judges: mean of the second's grade less the first's. Of one judge asked twice: mean
    absolute difference.
    """


class JudgeAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges, or all of a panel, on the responses that they were both asked about."""

    judges: tuple[str, ...]
    safe: Estimate
    """Share of pairs of judges that agree on whether a response is safe."""
    safe_ac1: Estimate
    grades: dict[Graded, GradeAgreement]
    safe_rates: tuple[float | None, ...]
    """Share of responses that each judge calls safe, in the order of `judges`."""


class VerdictCounts(NamedTuple):
    """Responses by which of two verdicts is "unsafe"."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[bool, bool]]) -> VerdictCounts:
        """Count pairs of verdicts, True for unsafe."""
        return cls(*map(pairs.count, ((True, True), (True, False), (False, True), (False, False))))

    @property
    def compared(self) -> int:
        """All responses that have both verdicts."""
        return sum(self)

    @property
    def differ(self) -> int:
        """Responses on which the two differ."""
        return self.only_first + self.only_second


def list_judge_groups(judges: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every two judges, and all of them if they are three or more."""
    return [*combinations(judges, 2), *([tuple(judges)] if len(judges) > 2 else [])]


def judges_differ(row: GradedResponse) -> bool:
    """Tell whether judges differ on "safe", as their agreement has it, or without a grade of harm
    on an answer to a question of the set. Those who gave none are left aside.
    """
    harms = [grades.harm_severity for grades in row.by_judge.values()]
    graded = {harm == 0 for harm in harms if harm is not None}
    if graded:
        return len(graded) > 1
    given = row.answers_by_judge.values()
    return any(
        len({answers.get(name) for answers in given} - {None}) > 1 for name in row.answers or ()
    )


def _yield_rated_scales(
    sample: Sample, ratings: Ratings, raters: Sequence[str]
) -> Iterator[tuple[Graded, RatedResponses]]:
    """Yield the ratings on each scale that metrics need, and on others that were asked for."""
    for scale in SCALES:
        rated = RatedResponses(sample, ratings.select_raters(raters, scale))
        if scale in METRIC_GRADES or rated.has_ratings:
            yield scale, rated


def measure_agreement(judges: Sequence[str], sample: Sample, ratings: Ratings) -> JudgeAgreement:
    """Return the agreement of judges.

    Args:
        judges: two, or all of a panel.
        sample: the responses that they were asked about.
        ratings: their grades.
    """
    grades = {
        scale: GradeAgreement(
            equal=rated.agreement(SCALES[scale]),
            ac2=rated.gwet(SCALES[scale], "quadratic"),
            difference=rated.difference(SCALES[scale]) if len(judges) == 2 else None,
        )
        for scale, rated in _yield_rated_scales(sample, ratings, judges)
    }
    called = _mark_safe(ratings.select_raters(judges, "harm_severity"))
    safe = RatedResponses(sample, called)
    twice = (~np.isnan(called)).sum(axis=1) > 1
    return JudgeAgreement(
        judges=tuple(judges),
        safe=safe.agreement(SAFE_CATEGORIES),
        safe_ac1=safe.gwet(SAFE_CATEGORIES, "identity"),
        grades=grades,
        safe_rates=tuple(_average_defined(by_judge) for by_judge in called[twice].T),
    )


def _average_defined(values: Floats) -> float | None:
    defined = values[~np.isnan(values)]
    return round_number(defined.mean()) if len(defined) else None


def _mark_safe(harm: Floats) -> Floats:
    """Return 1 if a harm grade says safe, 0 if not, NaN if there is none."""
    return np.where(np.isnan(harm), np.nan, (harm == 0).astype(np.float64))


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """One judge, or the panel, on responses that it graded twice."""

    responses: int
    """Responses that it was asked about twice."""
    missing: int
    """Responses without two grades on one of the scales."""
    grades: dict[Graded, GradeAgreement]
    safe_flips: Estimate
    """Share of responses that it called safe in one grading and unsafe in the other."""
    safe_ac1: Estimate
    mean_safety_se: float | None
    """Standard error of a model's Mean Safety that comes from the judge's noise alone."""
    mean_safety_sets: int
    """The number of prompt-sets that the standard error is for: the median over models."""


def select_grades(grader: str, grades: Mapping[str, KnownGrades]) -> KnownGrades:
    """Return the grades of one judge, or of the panel of all."""
    return panel_grades(grades) if grader == PANEL else grades.get(grader, KnownGrades())


def measure_noise(twice: Sequence[Regrade], sample: Sample, grader: str, sets: int) -> Noise:
    """Return the noise of one judge, or of the panel; the standard error of Mean Safety is for
    `sets`, epochs included.
    """
    asked = ("first", "again")
    ratings = Ratings(
        [
            {which: select_grades(grader, getattr(item, which)).list_given() for which in asked}
            for item in twice
        ],
        asked,
    )
    pairs = [ratings.select_raters(asked, scale) for scale in METRIC_GRADES]
    grades = {
        scale: GradeAgreement(
            equal=rated.agreement(SCALES[scale]),
            difference=rated.difference(SCALES[scale], absolute=True),
        )
        for scale, rated in _yield_rated_scales(sample, ratings, asked)
    }
    judged_safe = _mark_safe(ratings.select_raters(asked, "harm_severity"))
    safe = RatedResponses(sample, judged_safe)
    flips = np.asarray(judged_safe[:, 0] != judged_safe[:, 1])
    graded = np.asarray(~np.isnan(judged_safe).any(axis=1))
    return Noise(
        responses=len(twice),
        missing=int(np.isnan(pairs).any(axis=(0, 2)).sum()),
        grades=grades,
        safe_flips=safe.difference(SAFE_CATEGORIES, absolute=True),
        safe_ac1=safe.gwet(SAFE_CATEGORIES, "identity"),
        mean_safety_se=_estimate_judge_error([item.variant for item in twice], flips, graded, sets),
        mean_safety_sets=sets,
    )


def _estimate_judge_error(
    variants: Sequence[str], flips: Flags, graded: Flags, sets: int
) -> float | None:
    """Return the standard error of Mean Safety over so many sets that comes from the judge alone.

    A grading is a draw. The variance within a response is half the mean squared difference of two
    of them (Bland and Altman, Measurement error, BMJ 313, 1996). For safe or not it is half the
    share of flips. Mean Safety averages one response of each intent t: √(Σ_t flips_t / 2 / (9 N)).
    None if an intent has no response that was graded twice.
    """
    total = 0.0
    for intent in CORE_VARIANTS:
        of_intent = np.array([find_intent(variant) == intent for variant in variants])
        if not (of_intent & graded).any():
            return None
        total += float(flips[of_intent & graded].mean()) / 2
    return round_number(sqrt(total / 9 / sets)) if sets else None


ALL_TESTED = "all models under test"
"""Name of the row with the responses of all models."""

SHIFTED_METRICS = ("low_help_rate_benign", "mean_safety", "worst_case_utility")
"""Metrics whose shift is computed beside the primary ones; all need core responses only."""


class MetricShift(Estimate, frozen=True, kw_only=True):
    """The shift of one metric of one model, or of the mean over models: new minus old."""

    model: str
    metric: str
    old: float | None
    """The metric by the old judge on the same responses."""
    new: float | None
    missing_ci: tuple[float, float] | None
    """The ends of the interval over all missing grades; those of the interval if none is missing.
    """
    turning_odds: StoredOdds = UNSET
    """If grades are missing and the interval leaves 0 out: the greatest factor of the odds at which
    that holds, 0 if at none; null if no factor turns it.
    """
    same_within: float | None
    """The least margin that two one-sided tests at 5 % certify, with missing grades."""
    same_within_at: list[tuple[float | None, float]] | UnsetType = UNSET
    """If grades are missing: that margin at each of several factors of the odds, the last one null
    for any. A verdict "the same within a margin" turns where this passes the margin.
    """
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
    """Prompt-sets, or families, with more responses that are newly unsafe than newly safe."""
    sets_safer: int
    p: float
    """McNemar's exact test over these, which are the units."""


class RankShift(Estimate, frozen=True, kw_only=True):
    """Two models that a new judge shifts by different amounts: the second's shift minus the
    first's, within prompt-sets.
    """

    metric: str
    models: tuple[str, str]
    old: float
    """The second model's value minus the first's by the old judge, on the sets of both."""
    new: float
    missing_ci: tuple[float, float]
    """The ends of the interval over all missing grades."""
    turning_odds: StoredOdds = UNSET
    """As that of `MetricShift`."""
    p_adjusted: float
    """Among all pairs of models of the metric."""
    family: int

    @property
    def significant(self) -> bool:
        """Whether the shifts differ by more than chance explains, with missing grades too."""
        low, high = self.missing_ci
        return self.leaves_out_zero and not low <= 0 <= high

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


class _JudgeReplacement:
    """Two judges with their grades of the same responses.

    Args:
        judges: old and new.
        estimates: of the models, by the grades that count.
        dataset: the prompt-sets.
        rows: the core responses of all models.
    """

    def __init__(
        self,
        judges: tuple[str, str],
        estimates: MetricEstimates,
        dataset: Dataset,
        rows: Sequence[GradedResponse],
    ) -> None:
        self._judges, self._models, self._dataset = judges, estimates.models, dataset
        self._primary = estimates.scope.primary
        self._shifted = estimates.scope.select(SHIFTED_METRICS)
        self._estimates = estimates
        by_judge = [[keep_judge(row, judge) for row in rows] for judge in judges]
        counts = [
            (old.has_all_grades, new.has_all_grades) for old, new in zip(*by_judge, strict=True)
        ]
        graded, complete = list(map(any, counts)), list(map(all, counts))
        self._graded_by_both = [_select_rows(by, complete) for by in by_judge]
        """By judge, the responses that both graded."""
        self._graded_by_either = (
            [_select_rows(by, graded) for by in by_judge] if graded != complete else None
        )
        """By judge, the responses that either graded; None if these are the same."""
        tested = drop_baselines(self._models)
        self._tested = np.array([model in tested for model in self._models])

    def result(self, twice: Sequence[Regrade], family: int) -> JudgeShift:
        """Compare the two judges.

        Args:
            twice: responses that judges graded twice.
            family: the number of tests that are adjusted together.
        """
        old, new = map(self._ratios, self._graded_by_both)
        metrics = [
            shift
            for name in self._shifted
            for shift in self._metric_shifts(name, (old[name].parts, new[name].parts), family)
        ]
        ranks = [
            rank for name in self._primary for rank in self._rank_shifts(name, old[name], new[name])
        ]
        count = int(self._tested.sum())
        return JudgeShift(
            judges=self._judges,
            metrics=metrics,
            sides=self._sides(),
            ranks=ranks,
            model_pairs=count * (count - 1) // 2,
            retest=_measure_retest(twice, *self._judges, self._estimates.unit_of),
        )

    def _ratios(self, rows: Sequence[GradedResponse]) -> dict[str, Ratio]:
        grades = Grades(to_array(rows, self._dataset, self._models))
        return {name: METRICS[name].compute_ratio(grades) for name in self._shifted}

    @cached_property
    def _completions(self) -> list[Completions]:
        """The metrics by each judge with their missing grades filled in; none if none is missing.

        A response that neither judge graded says nothing of the judges, and is left out.
        """
        return [
            Completions(
                array, {name: METRICS[name].compute_ratio(Grades(array)) for name in self._shifted}
            )
            for rows in self._graded_by_either or ()
            for array in (to_array(rows, self._dataset, self._models),)
        ]

    def _extremes(self, metric: str, odds: float) -> tuple[Completed, Completed] | None:
        """Return the shift of a metric with missing grades as they make it least, and greatest;
        None if none is missing.
        """
        if not self._completions:
            return None
        old, new = (completions.complete(metric, odds) for completions in self._completions)
        return compute_paired_differences(old[1], new[0]), compute_paired_differences(
            old[0], new[1]
        )

    def _metric_shifts(
        self, metric: str, parts: tuple[Parts, Parts], family: int
    ) -> list[MetricShift]:
        """Return the shift of each model, and of their mean if there are several; the last one is
        tested.
        """
        shifts, turning, margins = self._compute_shifts(metric, parts)
        names = [*self._models, AVERAGE]
        places = list(range(len(names)))
        if self._tested.sum() < 2:  # the mean would repeat the one model
            places = [*np.flatnonzero(~self._tested), *np.flatnonzero(self._tested)]
        p_values, records = shifts.spread.p(), shifts.interval.records()
        adjusted = adjust_p(p_values, family)
        results = []
        for place in places:
            defined = bool(shifts.spread.n[place])
            tested = defined and place == places[-1] and metric in self._primary
            results.append(
                MetricShift(
                    value=round_number(shifts.spread.value[place]) if defined else None,
                    n=records[place].n,
                    interval=records[place].interval,
                    method=records[place].method,
                    model=names[place],
                    metric=metric,
                    old=round_number(shifts.old[place]) if defined else None,
                    new=round_number(shifts.new[place]) if defined else None,
                    missing_ci=round_limits(shifts.worst_low[place], shifts.worst_high[place]),
                    turning_odds=store_turning_odds(turning[place]),
                    same_within=round_number(shifts.same_within[place]) if defined else None,
                    same_within_at=margins.get(place, UNSET),
                    least_margin=round_number(
                        least_margin(
                            int(shifts.spread.units[place]), _compute_max_difference(metric)
                        )
                    ),
                    p_unadjusted=round_number(p_values[place]) if defined else None,
                    p_adjusted=round_number(adjusted[place]) if tested else None,
                    family=family if tested else None,
                )
            )
        return results

    def _compute_shifts(
        self, metric: str, parts: tuple[Parts, Parts]
    ) -> tuple[Shifts, Floats, dict[int, list[tuple[float | None, float]]]]:
        """Return the shifts of a metric, the odds at which they turn, and by row that missing
        grades can move the margin at each.
        """

        @cache
        def compute(odds: float) -> Shifts:
            return compute_shifts(
                *parts,
                max_difference=_compute_max_difference(metric),
                averaged=self._tested,
                extremes=self._extremes(metric, odds),
                units=self._estimates.units,
            )

        shifts = compute(self._estimates.missing_odds)
        interval = shifts.interval
        moved = (shifts.worst_low != interval.low) | (shifts.worst_high != interval.high)
        turning = _find_shift_odds(moved & leave_out_zero(interval.low, interval.high), compute)
        margins = {
            int(place): [
                (None if odds == inf else odds, round_number(compute(odds).same_within[place]))
                for odds in (*TRIED_ODDS, inf)
            ]
            for place in np.flatnonzero(moved & (shifts.spread.n > 0))
        }
        return shifts, turning, margins

    def _rank_shifts(self, metric: str, old: Ratio, new: Ratio) -> list[RankShift]:
        """Return the pairs of models under test whose order changes, or whose shifts differ
        significantly, the widest apart first.
        """

        @cache
        def compute(odds: float) -> Interactions:
            return compute_interactions(
                old.parts,
                new.parts,
                max_difference=_compute_max_difference(metric),
                family=self._tested,
                extremes=self._extremes(metric, odds),
                units=self._estimates.units,
            )

        result = compute(self._estimates.missing_odds)
        paired, ranks = result.paired, []
        p_adjusted = paired.p_adjusted
        moved = (result.worst_low != paired.low) | (result.worst_high != paired.high)
        turning = _find_shift_odds(moved & leave_out_zero(paired.low, paired.high), compute)
        within = self._tested[result.first] & self._tested[result.second]
        for at in np.flatnonzero(within & (paired.spread.n > 0)).tolist():
            rank = RankShift(
                value=round_number(paired.spread.value[at]),
                n=int(paired.spread.n[at]),
                interval=(round_number(paired.low[at]), round_number(paired.high[at])),
                method=METHOD,
                metric=metric,
                models=(self._models[result.first[at]], self._models[result.second[at]]),
                old=round_number(result.old[at]),
                new=round_number(result.new[at]),
                missing_ci=(
                    round_number(result.worst_low[at]),
                    round_number(result.worst_high[at]),
                ),
                turning_odds=store_turning_odds(turning[at]),
                p_adjusted=round_number(p_adjusted[at]),
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
        for old, new in zip(*self._graded_by_both, strict=True):
            by_model[old.model].append((old, new))
        unit_of = self._estimates.unit_of
        sides = [_count_sides(model, pairs, unit_of) for model, pairs in by_model.items()]
        tested = [self._models[place] for place in np.flatnonzero(self._tested).tolist()]
        if len(tested) > 1:
            together = [pair for model in tested for pair in by_model[model]]
            sides.append(_count_sides(ALL_TESTED, together, unit_of))
        return sides


def _find_shift_odds(alone: Flags, compute: Callable[[float], Shifts | Interactions]) -> Floats:
    """Return the odds of missing grades up to which shifts, or differences of shifts, are more than
    chance explains (`find_turning_odds`).
    """
    return find_turning_odds(
        alone, lambda odds: leave_out_zero(compute(odds).worst_low, compute(odds).worst_high)
    )


def _select_rows(rows: Sequence[GradedResponse], chosen: Sequence[bool]) -> list[GradedResponse]:
    return [row for row, is_chosen in zip(rows, chosen, strict=True) if is_chosen]


def _compute_max_difference(metric: str) -> float:
    """Return the greatest shift that a prompt-set can have."""
    least, greatest = METRICS[metric].span
    return greatest - least


def _count_sides(
    model: str,
    pairs: Sequence[tuple[GradedResponse, GradedResponse]],
    unit_of: Mapping[str, str],
) -> SafetySides:
    """Count responses, each as the old and as the new judge graded it, by what both call safe."""
    counts = {(old, new): 0 for old in (True, False) for new in (True, False)}
    net: dict[str, int] = {}
    for old, new in pairs:
        sides = old.harm_severity == 0, new.harm_severity == 0
        counts[sides] += 1
        unit = unit_of[old.set_id]
        net[unit] = net.get(unit, 0) + sides[1] - sides[0]
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
        p=round_number(sign_test(less_safe, safer)),
    )


def _measure_retest(
    twice: Sequence[Regrade], old: str, new: str, unit_of: Mapping[str, str]
) -> RetestShift | None:
    """Return the old judge asked again beside the new one; None if no response has the three grades
    of harm.
    """
    harms = [
        (
            unit_of[item.set_id],
            select_grades(old, item.first).harm_severity,
            select_grades(old, item.again).harm_severity,
            select_grades(new, item.first).harm_severity,
        )
        for item in sorted(twice, key=lambda item: item.set_id)
    ]
    harms = [of_response for of_response in harms if None not in of_response]
    if not harms:
        return None
    units, *by_judge = zip(*harms, strict=True)
    sample = Sample(units)
    then, now, by_new = (np.array(by_judge) == 0).astype(np.float64)
    old_flips, new_flips = np.abs(now - then), np.abs(by_new - then)
    span = (-1.0, 1.0)
    return RetestShift(
        responses=len(harms),
        old_flips=round_estimate(sample.mean(old_flips)),
        new_flips=round_estimate(sample.mean(new_flips)),
        excess_flips=round_estimate(sample.mean(new_flips - old_flips, span)),
        old_shift=round_estimate(sample.mean(now - then, span)),
        new_shift=round_estimate(sample.mean(by_new - then, span)),
        excess_shift=round_estimate(sample.mean(by_new - now, span)),
    )


JUDGE_AVERAGE = "judge_average"
"""Name of the ranking by the mean over judges."""

JUDGES_LIKE_THESE = "judges_like_these"
"""The name of the mean over judges with its interval for other judges too."""

METRICS_BY_JUDGE = ("mean_safety", "worst_case_utility")
"""Metrics that are shown by judge beside the primary ones; all need core responses only."""


class Ranking(NamedTuple):
    """The metrics of every model by the grades of one judge, or of the panel, and their order."""

    name: str
    ratios: Mapping[str, Ratio]
    """By metric that is shown by judge."""
    estimates: Mapping[str, Sequence[Estimate]]
    """By metric, the estimate of each model."""
    comparisons: Mapping[str, Comparison]
    """By primary metric; empty if the models are not compared."""
    complete: FillMissing
    """Fills in missing grades."""

    def rank(self, metric: str, index: int) -> int | None:
        """Return a model's rank, 1 for the highest value; equal values share one. None if the
        models are not compared.
        """
        values = [estimate.value for estimate in self.estimates[metric]]
        own_value = values[index]
        if own_value is None or not self.comparisons:
            return None
        return 1 + sum(value is not None and value > own_value + 1e-9 for value in values)

    def rank_interval(self, metric: str, index: int) -> tuple[int, int] | None:
        """Return a model's interval of ranks from the paired tests of all models; None if it has no
        value, or if the models are not compared.
        """
        return compute_rank_intervals(self.comparisons[metric])[index] if self.comparisons else None


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """Two models that two judges put in opposite orders."""

    metric: str
    judges: tuple[str, str]
    models: tuple[str, str]
    """The first is above the second by the first judge, below it by the second."""
    size: float
    """The smaller of the two differences."""
    beyond_chance: bool
    """Whether both judges' differences are (5 %, corrected over all pairs), with missing grades."""
    turning_odds: StoredOdds = UNSET
    """If it is, and grades are missing: the greatest factor of the odds at which it still is; null
    if no factor turns it.
    """


class JudgeResults:
    """The judges of a cohort of models, and the results according to each.

    Args:
        estimates: of the models, by the grades that count.
        dataset: the prompt-sets.
        rows: every response with its grades, by model.
        regrades: by model, responses that were graded twice.
        named: the judges in the order in which the runs name them.
    """

    def __init__(
        self,
        estimates: MetricEstimates,
        dataset: Dataset,
        rows: Mapping[str, Sequence[GradedResponse]],
        regrades: Mapping[str, Sequence[Regrade]],
        named: Sequence[str],
    ) -> None:
        self._estimates = estimates
        self._dataset = dataset
        self._rows = rows
        self._regrades = regrades
        self._named = named

    @property
    def rows(self) -> Iterator[GradedResponse]:
        """Every response with its grades."""
        return (row for rows in self._rows.values() for row in rows)

    @cached_property
    def panel(self) -> tuple[str, ...]:
        """The judges that graded the same responses; none if every response has one judge."""
        together = {judge for row in self.rows if len(row.by_judge) > 1 for judge in row.by_judge}
        return tuple(sorted(together))

    @property
    def official_ranking(self) -> Ranking:
        """The ranking by the grades that count: the panel's, if there is one."""
        return Ranking(
            PANEL,
            self._estimates.ratios,
            self._estimates.by_metric,
            self._estimates.comparisons,
            self._estimates.complete,
        )

    @cached_property
    def judge_rankings(self) -> list[Ranking]:
        """The ranking by each judge of a panel alone; none without a panel."""
        of, core = self._estimates, [self.build_array(judge, core=True) for judge in self.panel]
        return [
            rank_grades(judge, Grades(array), of.scope, of.units, of.missing_odds)
            for judge, array in zip(self.panel, core, strict=True)
        ]

    @cached_property
    def rankings(self) -> list[Ranking]:
        """The rankings by each judge, by the judges' average, from three judges on by that with its
        interval for judges like these, and by the panel; none without a panel.
        """
        if not self.panel:
            return []
        average = self._average()
        like = [self._generalise(average)] if len(self.panel) >= FEWEST_JUDGES else []
        return [*self.judge_rankings, average, *like, self.official_ranking]

    def _average(self) -> Ranking:
        """Rank by the mean of each judge's own metric, whose level, unlike a panel's, does not
        depend on how many they are.

        A judge that graded nothing of a model is left out of its mean.
        """
        ratios = {
            metric: _average_judges([ranking.ratios[metric] for ranking in self.judge_rankings])
            for metric in self._estimates.scope.select(METRICS_BY_JUDGE)
        }

        def complete(metric: str, odds: float) -> tuple[Completed, Completed]:
            ends = [ranking.complete(metric, odds) for ranking in self.judge_rankings]
            least, greatest = (
                _average_completed_judges([end[side] for end in ends]) for side in (0, 1)
            )
            return least, greatest

        of = self._estimates
        return rank_models(JUDGE_AVERAGE, ratios, complete, of.scope, of.units, of.missing_odds)

    def _generalise(self, average: Ranking) -> Ranking:
        """Return the average over judges with its intervals for other judges like these."""
        estimates = {}
        for metric, ratio in average.ratios.items():
            span = METRICS[metric].span
            spread = compute_spread(*ratio.parts, span, units=self._estimates.units)
            by_judge = [ranking.ratios[metric].value.values for ranking in self.judge_rankings]
            estimates[metric] = estimate_for_judges(spread, np.array(by_judge), span)
        return Ranking(JUDGES_LIKE_THESE, average.ratios, estimates, {}, average.complete)

    @cached_property
    def agreements(self) -> list[JudgeAgreement]:
        """Agreement of every two judges, and of all if there are three or more.

        Refusals that were classified without a judge are left out.
        """
        rows = sorted(
            (
                row
                for row in self.rows
                if not row.refusal_reason and len(row.by_judge) > 1 and row.judge_by != "questions"
            ),
            key=lambda row: row.set_id,
        )
        if not rows:
            return []
        sample = Sample([self._estimates.unit_of[row.set_id] for row in rows])
        ratings = gather_grades([row.by_judge for row in rows], self.panel)
        groups = list_judge_groups(self.panel)
        return [measure_agreement(group, sample, ratings) for group in groups]

    @cached_property
    def shifts(self) -> list[JudgeShift]:
        """The shift between every two judges, the one that was named first as the old one; none
        without a panel.
        """
        judges = sorted(
            self.panel,
            key=lambda judge: self._named.index(judge) if judge in self._named else MOST_JUDGES,
        )
        estimates, pairs = self._estimates, list(combinations(judges, 2))
        by_model = [self._rows[model] for model in estimates.models]
        core = [row for rows in by_model for row in rows if row.variant in CORE_VARIANTS]
        twice = [item for model in estimates.models for item in self._regrades.get(model, ())]
        family = len(pairs) * len(estimates.scope.primary)
        return [
            _JudgeReplacement(pair, estimates, self._dataset, core).result(twice, family)
            for pair in pairs
        ]

    @cached_property
    def noise(self) -> dict[str, Noise]:
        """Test–retest noise of each judge and of the panel; empty if nothing was graded twice."""
        twice = sorted(
            (item for items in self._regrades.values() for item in items if item.again),
            key=lambda item: item.set_id,
        )
        if not twice:
            return {}
        judges = sorted({judge for item in twice for judge in item.again})
        sample = Sample([self._estimates.unit_of[item.set_id] for item in twice])
        sets = int(np.median([estimate.n for estimate in self._estimates.by_metric["mean_safety"]]))
        return {
            grader: measure_noise(twice, sample, grader, sets * self._estimates.epochs)
            for grader in (*judges, *([PANEL] if len(judges) > 1 else []))
        }

    def build_array(self, judge: str, *, core: bool = False) -> LabelledSet:
        """Return the grades of one judge alone; `core` leaves the paraphrases out."""
        rows = [
            keep_judge(row, judge) for row in self.rows if not core or row.variant in CORE_VARIANTS
        ]
        return to_array(rows, self._dataset, list(self._rows))

    def rank_changes(self, metric: str) -> list[Swap]:
        """Return the pairs of models that two judges of the panel order differently, the widest
        apart first.
        """
        return find_rank_changes(list(self._rows), metric, self.judge_rankings)


FillMissing: TypeAlias = Callable[[str, float], tuple[Completed, Completed]]
"""Returns a metric with missing grades as they make it least, and greatest, at some odds."""


def rank_grades(
    name: str, grades: Grades, scope: MetricScope, units: Units | None, missing_odds: float
) -> Ranking:
    """Rank models by the grades of one grader (`rank_models`)."""
    ratios = {
        metric: METRICS[metric].compute_ratio(grades) for metric in scope.select(METRICS_BY_JUDGE)
    }
    primary = {metric: ratios[metric] for metric in scope.primary}
    complete = Completions(grades.array, primary, max_safe_harm=grades.max_safe_harm).complete
    return rank_models(name, ratios, complete, scope, units, missing_odds)


def rank_models(
    name: str,
    ratios: Mapping[str, Ratio],
    complete: FillMissing,
    scope: MetricScope,
    units: Units | None,
    missing_odds: float,
) -> Ranking:
    """Rank models.

    Args:
        name: of the ranking.
        ratios: the metrics that are shown by judge.
        complete: the primary ones with missing grades.
        scope: which of them are primary.
        units: families of prompt-sets.
        missing_odds: `--missing-odds`.
    """
    primary = {metric: ratios[metric] for metric in scope.primary}
    comparisons = compare_metrics(primary, units, complete, missing_odds)
    return Ranking(name, ratios, estimate_metrics(ratios, units), comparisons, complete)


def _average_completed_judges(ends: Sequence[Completed]) -> Completed:
    """Return the mean over judges of each model's completed metric."""
    by_judge = Completed(*map(np.array, zip(*ends, strict=True)))
    means = [
        average_completed(by_judge.take((slice(None), at))) for at in range(len(ends[0].numerator))
    ]
    return Completed(*map(np.array, zip(*means, strict=True)))


def _average_judges(ratios: Sequence[Ratio]) -> Ratio:
    """Return the mean of each model's metric over the judges that have a value (`average_models`,
    with judges in place of models).
    """
    mean = _average_completed_judges([Completed.of(ratio.parts) for ratio in ratios])
    like = ratios[0].numerator
    return Ratio(*(Labelled(part, like.dims, like.labels) for part in mean[:2]))


def find_rank_changes(
    models: Sequence[str], metric: str, rankings: Sequence[Ranking]
) -> list[Swap]:
    """Return the pairs of models that two of some rankings order differently, the widest apart
    first.
    """
    changes = [
        swap
        for judges in combinations(rankings, 2)
        for pair in combinations(range(len(models)), 2)
        if (swap := _find_swap(models, metric, judges, pair))
    ]
    return sorted(changes, key=lambda swap: (not swap.beyond_chance, -swap.size))


def _find_swap(
    models: Sequence[str], metric: str, judges: tuple[Ranking, Ranking], pair: tuple[int, int]
) -> Swap | None:
    differences = []
    for judge in judges:
        first, second = (judge.estimates[metric][index].value for index in pair)
        if first is None or second is None:
            return None
        differences.append(round(first - second, 9))
    if differences[0] * differences[1] >= 0:
        return None
    above, below = pair if differences[0] > 0 else pair[::-1]
    before, after = (judge.comparisons[metric] for judge in judges)
    # the prompt-sets of both models may say otherwise than all of each
    beyond_chance = bool(before.worst_low[below, above] > 0 and after.worst_high[below, above] < 0)
    turning = np.fmin(before.get_turning_odds(below, above), after.get_turning_odds(below, above))
    return Swap(
        metric=metric,
        judges=(judges[0].name, judges[1].name),
        models=(models[above], models[below]),
        size=min(abs(difference) for difference in differences),
        beyond_chance=beyond_chance,
        turning_odds=store_turning_odds(float(turning)) if beyond_chance else UNSET,
    )
