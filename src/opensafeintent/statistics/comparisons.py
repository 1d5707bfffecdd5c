"""Is one model better than another? Paired comparisons over the prompt-sets that count for both
models, adjusted for the family of all pairs of a metric; intervals of ranks; power and sample size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache, partial
from math import ceil, isnan, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import (
    CONFIDENCE,
    METHOD,
    Completed,
    Estimate,
    Floats,
    Parts,
    Spread,
    Units,
    compute_interval,
    compute_spread,
    halve_until,
    leave_out_zero,
    round_defined,
    round_number,
    sum_units,
    t_quantile,
    t_within,
)

POWER = 0.80
"""Power of the detectable differences and sample sizes that reports state."""
SECOND_LOOK_WARNING = (
    "a larger sample that holds this one is a second look, which about doubles the risk of a wrong"
    " result"
)
"""A clause after the advice to enlarge a sample (benchmarks/gates.py)."""

NEW_SETS_ADVICE = "take new prompt-sets, such as a file of those that this run did not use"
_Z_POWER = NormalDist().inv_cdf(POWER)
_TOLERANCE = 1e-6
"""Smaller differences count as 0, and detectable differences are found to this precision."""
_MOST_SETS = 10**14
"""Upper end of the search for a number of prompt-sets."""


class PairedTests(NamedTuple):
    """Paired tests of the differences of pairs of models, later minus earlier: arrays of shape
    (pair,).
    """

    spread: Spread
    quantile: Floats
    """Standard errors that the interval reaches to either side."""
    low: Floats
    high: Floats
    pairs: NDArray[np.int64]
    """The size of each pair's family."""
    binary: NDArray[np.bool_]
    """Whether each unit's metric is 0 or 1 for both models, so that its difference is −1, 0 or 1.
    """
    max_difference: float
    """The greatest difference that a set can have."""

    @property
    def p_unadjusted(self) -> Floats:
        """The p value of each pair on its own."""
        return self.spread.p()

    @property
    def p_adjusted(self) -> Floats:
        """The p value of each pair in its family."""
        return adjust_p(self.p_unadjusted, self.pairs)

    @property
    def minimum_detectable_difference(self) -> Floats:
        """The difference that the test detects with a power of 80 %
        (`compute_detectable_difference`); NaN if that is `max_difference` or more.
        """
        differences = np.full(len(self.binary), np.nan)
        for row in np.flatnonzero(self.spread.n > 0):
            equation = _compute_detectable_of_binary if self.binary[row] else _compute_detectable
            differences[row] = equation(
                float(self.spread.informative[row]) - 2,
                float(np.nan_to_num(self.spread.deviation[row])),
                float(self.quantile[row]),
                _Z_POWER,
                2 * self.max_difference**2,
            )
        differences[differences >= self.max_difference - _TOLERANCE] = np.nan
        return differences


def adjust_confidence(confidence: float, pairs: int) -> float:
    """Return the confidence of a single interval at which the intervals of a family all hold at
    once: confidence^(1/k) (Šidák, Journal of the American Statistical Association 62, 1967).

    Args:
        confidence: of all of them together.
        pairs: the size k of the family.
    """
    return float(confidence ** (1 / max(pairs, 1)))


def adjust_p(p: Floats, pairs: int | NDArray[np.int64]) -> Floats:
    """Return p values adjusted for a family of tests, 1 − (1 − p)ᵏ (Šidák): below 1 − confidence
    exactly if the interval at `adjust_confidence` leaves 0 out.

    Args:
        p: of each test on its own.
        pairs: the size k of its family.
    """
    with np.errstate(divide="ignore"):  # a p of 1 stays 1
        return np.where(np.asarray(pairs) > 1, -np.expm1(pairs * np.log1p(-p)), p)


def _compute_detectable(
    sets: float, deviation: float, critical: float, z: float, pseudo_squares: float
) -> float:
    """Return the detectable difference for a critical value and the quantile z of the power."""
    error = sqrt((sets * deviation**2 + pseudo_squares) * (sets + 2) / (sets + 1))
    return (critical * error + z * deviation * sqrt(sets)) / sets


def _compute_detectable_of_binary(
    sets: float, deviation: float, critical: float, z: float, pseudo_squares: float
) -> float:
    """Return the detectable difference d of a binary metric, whose differences are −1, 0 or 1. A
    mean of d needs at least a share d of the sets to differ, so σ² is d − d² or more.
    """

    def is_detected(d: float) -> bool:
        spread = max(deviation, sqrt(d - d**2))
        return _compute_detectable(sets, spread, critical, z, pseudo_squares) <= d

    return halve_until(is_detected, _TOLERANCE)[1]


class MeanTest(NamedTuple):
    """A test of a mean difference against 0, adjusted for its family."""

    low: float
    high: float
    """95 % interval, for all of the family at once."""
    p_unadjusted: float
    """Two-sided, not adjusted."""
    p_adjusted: float
    """Adjusted for the family; below 0.05 exactly if the interval leaves 0 out."""
    minimum_detectable_difference: float
    """The difference that this test finds with a power of 80 %."""


def run_mean_test(differences: Floats, *, pairs: int) -> MeanTest:
    """Test the mean of differences that have no greatest value, such as those of lengths: Student's
    paired t.

    `compare_pairs` adds pseudo-observations at the greatest difference that a set can have. The
    greatest one of a sample is no substitute: one far value would move all intervals.

    Args:
        differences: shape (prompt_set,), two or more.
        pairs: the size of the family (`adjust_confidence`).
    """
    degrees = len(differences) - 1
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / sqrt(degrees + 1)
    critical = t_quantile(0.5 + adjust_confidence(CONFIDENCE, pairs) / 2, degrees)
    # without an error, all sets differ by the same
    p = 1 - t_within(abs(mean) / error, degrees) if error else float(mean == 0)
    return MeanTest(
        low=mean - critical * error,
        high=mean + critical * error,
        p_unadjusted=p,
        p_adjusted=float(adjust_p(np.array(p), pairs)),
        minimum_detectable_difference=(critical + NormalDist().inv_cdf(POWER)) * error,
    )


def compute_detectable_difference(
    sets: int,
    deviation: float,
    *,
    binary: bool = False,
    power: float = POWER,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
    pseudo_squares: float = 2.0,
) -> float:
    """Return the difference that the test detects with this power.

    It is (c · E + z · σ · √n) / n, with the critical value c and the quantile z of the power. E² =
    (n σ² + `pseudo_squares`) (n + 2) / (n + 1), because the test counts two pseudo-observations.

    Args:
        sets: prompt-sets n, 1 or more.
        deviation: standard deviation σ of a set's difference.
        power: above 0 and below 1.
        pairs: number of pairs compared together.
        confidence: of the intervals.
        pseudo_squares: sum of the squared distances of the two pseudo-observations from the
            difference.
        binary: whether the metric of a set is 0 or 1, so that its difference is −1, 0 or 1
            (`_compute_detectable_of_binary`).
    """
    critical = t_quantile(0.5 + adjust_confidence(confidence, pairs) / 2, sets + 1)
    detectable = _compute_detectable_of_binary if binary else _compute_detectable
    return detectable(sets, deviation, critical, NormalDist().inv_cdf(power), pseudo_squares)


def assume_deviation(*, binary: bool) -> float:
    """Return the standard deviation of a set's paired difference that a plan assumes without a
    pilot: that of a binary metric, or of a score.
    """
    return 0.5 if binary else 0.35


@lru_cache(maxsize=4096)
def count_sets_needed(
    difference: float,
    deviation: float,
    *,
    power: float = POWER,
    binary: bool = False,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
    pseudo_squares: float = 2.0,
    pull: float = 0.0,
) -> int | None:
    """Return the fewest prompt-sets with which a difference is found with so much power; None if
    it is 0 or undefined.

    The n sets are enough if n · |`difference`| ± `pull` reaches the numerator of
    `compute_detectable_difference`, whose arguments these are.

    Args:
        pull: sum of the two pseudo-observations, as differences; 0 if they lie on both sides alike.
    """
    if not abs(difference) > _TOLERANCE:
        return None
    if binary:
        deviation = max(deviation, sqrt(abs(difference) - difference**2))
    share, z = 0.5 + adjust_confidence(confidence, pairs) / 2, NormalDist().inv_cdf(power)
    toward = pull if difference > 0 else -pull

    def is_enough(sets: int) -> bool:
        critical = t_quantile(share, sets + 1)
        least = _compute_detectable(sets, deviation, critical, z, pseudo_squares)
        return least <= abs(difference) + toward / sets

    return bisect_left(range(_MOST_SETS), True, lo=1, key=is_enough)


def convert_units_to_sets(units: int | None, n: int, counted: int | None) -> int | None:
    """Return the number of prompt-sets in some units (families), rounded up, if `counted` units
    have `n` sets; if `counted` is None, units are sets.
    """
    return -(-units * n // counted) if units and counted else units


class PlannedScenario(NamedTuple):
    """What a planned run is assumed to be like, for one end of the range of missing grades: none
    missing, or the missing ones most against the difference.
    """

    deviation: float
    """Standard deviation of a set's difference."""
    missing_shift: float = 0.0
    """By how much missing grades reduce the difference, in a run of any size: half the range that
    they allow.
    """
    units_per_set: float = 1.0
    """Units that count (families, and sets without one) over prompt-sets."""


def count_planned_sets(
    difference: float,
    ends: Sequence[PlannedScenario],
    *,
    power: float = POWER,
    binary: bool = False,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
) -> int | None:
    """Return the fewest prompt-sets with which a difference is detected in each scenario; None if
    no number is enough.

    Args:
        difference: its size, above 0.
        ends: the scenarios: without missing grades, and with them.
        power, binary, pairs, confidence: as for `count_sets_needed`.
    """
    numbers = [
        count_sets_needed(
            max(difference - end.missing_shift, 0.0),
            end.deviation,
            power=power,
            binary=binary,
            pairs=pairs,
            confidence=confidence,
        )
        for end in ends
    ]
    if None in numbers:
        return None
    return max(
        ceil(round(sets / end.units_per_set, 6))
        for sets, end in zip(numbers, ends, strict=True)
        if sets
    )


def find_planned_difference(
    sets: int,
    ends: Sequence[PlannedScenario],
    *,
    power: float = POWER,
    binary: bool = False,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
) -> float:
    """Return the difference that so many prompt-sets detect in each scenario
    (`count_planned_sets`).
    """
    return max(
        end.missing_shift
        + compute_detectable_difference(
            max(int(round(sets * end.units_per_set, 6)), 1),
            end.deviation,
            power=power,
            binary=binary,
            pairs=pairs,
            confidence=confidence,
        )
        for end in ends
    )


def compare_pairs(
    earlier: Parts | Completed,
    later: Parts | Completed,
    *,
    max_difference: float = 1.0,
    family: NDArray[np.bool_] | None = None,
    pairs: int | None = None,
    confidence: float = CONFIDENCE,
    units: Units | None = None,
) -> PairedTests:
    """Compare pairs of models, later minus earlier, on the prompt-sets that count for both.

    The statistic is the mean difference in standard errors, both with two pseudo-observations at ±
    `max_difference` (`intervals.compute_spread`); its distribution is Student's. Each pair of a
    family is tested at the level at which all hold together (`adjust_confidence`): the chance of
    calling any two equal models different is 5 % at most. Interval and p are of one statistic, at
    one level.

    Args:
        earlier, later: each of shape (pair, prompt_set). A set's denominator is its weight, 0 if it
            does not count; if the two models differ in it, it is the mean of the two.
        max_difference: the greatest difference that a set can have.
        family: the pairs that are a family, shape (pair,); the others are compared on their own.
            All pairs by default.
        pairs: the size of the family; by default as many as are defined here.
        confidence: of the intervals, above 0 and below 1.
        units: families of prompt-sets.
    """
    numerator, weights, variance = compute_paired_differences(earlier, later)
    spread = compute_spread(
        numerator, weights, (-max_difference, max_difference), variance=variance, units=units
    )
    defined = spread.n > 0
    member = defined if family is None else defined & family
    size = int(member.sum()) if pairs is None else pairs
    quantile = spread.quantiles(confidence)
    if size > 1:
        level = adjust_confidence(confidence, size)
        quantile = np.where(member, spread.quantiles(level), quantile)
    sizes = np.where(member, size, 1)
    interval = compute_interval(spread, quantile, (-max_difference, max_difference))
    numerator, weights = sum_units(numerator, units), sum_units(weights, units)
    whole = ((numerator == 0) | (np.abs(numerator) == weights)) & (
        variance.sum(axis=1, keepdims=True) == 0
    )
    binary = defined & whole.all(axis=1) & (max_difference == 1)
    return PairedTests(spread, quantile, interval.low, interval.high, sizes, binary, max_difference)


def compute_paired_differences(earlier: Parts | Completed, later: Parts | Completed) -> Completed:
    """Return weight × difference and weight of each pair, later minus earlier: shape (pair,
    prompt_set). A set counts if it counts for both.
    """
    old, new = (Completed.of(side).values for side in (earlier, later))
    counted = (old.denominator > 0) & (new.denominator > 0)
    weights = np.where(counted, (old.denominator + new.denominator) / 2, 0.0)
    return Completed(
        weights * (new.numerator - old.numerator),
        weights,
        weights**2 * (old.variance + new.variance),
    )


class Difference(Estimate, frozen=True, kw_only=True):
    """The difference of two models, second minus first; `n` prompt-sets count for both.

    Its interval leaves 0 out exactly if `p_adjusted` is below 1 − the confidence.
    """

    missing_ci: tuple[float, float]
    """The ends of the interval over all missing grades; those of the interval if none is missing.
    """
    p_unadjusted: float
    """Of this pair on its own."""
    p_adjusted: float
    """Of this pair among the pairs of its family."""
    minimum_detectable_difference: float | None
    """The difference that this test finds with a power of 80 %; None if it finds none that sets can
    have.
    """
    deviation: float
    """Standard deviation of a unit's difference; 0 of a single unit."""
    units: int
    """Families, and prompt-sets without one, that count for both."""
    pairs: int
    """How many pairs the family has; 1 if the pair is compared on its own."""
    deciding: int | None
    """How many prompt-sets would show a difference as large as this one with 80 % power, if as many
    grades are missing; None if no number would.
    """
    turning_odds: float | None
    """As that of `Comparison`; None for NaN."""

    @property
    def lacks_grades(self) -> bool:
        """Whether missing grades keep any number of prompt-sets from making it significant."""
        return self.deciding is None and bool(self.value)

    @property
    def significant(self) -> bool:
        """Whether the interval leaves 0 out without missing grades, and over all missing grades."""
        low, high = self.missing_ci
        return self.leaves_out_zero and not low <= 0 <= high


class ExtremeDifferences(NamedTuple):
    """Differences with missing grades as they make them least, or greatest: arrays of shape (model,
    model), or scalars for one pair. The fields are those of `Comparison`.
    """

    value: Floats
    deviation: Floats
    n: Floats
    units: Floats


class Comparison(NamedTuple):
    """Differences of every two models in one metric: arrays of shape (model, model), column minus
    row; NaN if no prompt-set counts for both.
    """

    difference: Floats
    """[a, b] is the value of b minus that of a: later minus earlier, if models are in naming order.
    """
    low: Floats
    high: Floats
    """95 % interval of the difference, for all pairs of the family at once."""
    n: NDArray[np.int64]
    """Prompt-sets that count for both; on the diagonal, for the one."""
    p_unadjusted: Floats
    """Of each pair on its own; two-sided."""
    p_adjusted: Floats
    """For all pairs of the family: below 0.05 exactly if the interval leaves 0 out."""
    minimum_detectable_difference: Floats
    """The difference that this test finds with a power of 80 %."""
    deviation: Floats
    """Standard deviation of a unit's difference; 0 of a single unit."""
    units: NDArray[np.int64]
    """Families, and prompt-sets without one, that count for both."""
    pairs: NDArray[np.int64]
    """How many pairs the family has; 1 if the pair is compared on its own."""
    family: NDArray[np.bool_]
    """The models whose pairs are the family, shape (model,); the others are reference points."""
    worst_low: Floats
    worst_high: Floats
    """The ends of the interval over all missing grades."""
    least: ExtremeDifferences
    """With missing grades as they make the difference least."""
    greatest: ExtremeDifferences
    """With missing grades as they make it greatest."""
    turning_odds: Floats | None = None
    """Of a difference whose interval leaves 0 out, the greatest odds of missing grades at which it
    is significant (`completions.find_turning_odds`); NaN for other differences, and if no grade is
    missing.
    """

    @property
    def significant(self) -> NDArray[np.bool_]:
        """Which differences are significant with missing grades too: their intervals leave 0 out
        without missing grades, and over all missing grades.
        """
        return leave_out_zero(self.worst_low, self.worst_high)

    @property
    def hinges_on_missing(self) -> NDArray[np.bool_]:
        """Which differences would be significant if no grade were missing, and are not."""
        return leave_out_zero(self.low, self.high) & ~self.significant

    def get_turning_odds(self, first: int, second: int) -> float:
        """Return the turning odds of a difference; NaN if it has none."""
        return nan if self.turning_odds is None else float(self.turning_odds[first, second])

    def get_difference(self, first: int, second: int) -> Difference | None:
        """Return the record of a difference, second model minus first; None if no prompt-set counts
        for both.
        """
        at = first, second
        if not self.n[at]:
            return None
        graded = ExtremeDifferences(
            self.difference, self.deviation, self.n.astype(float), self.units.astype(float)
        )
        against = self.least if self.difference[at] > 0 else self.greatest
        return Difference(
            value=round_number(self.difference[at]),
            n=int(self.n[at]),
            interval=(round_number(self.low[at]), round_number(self.high[at])),
            method=METHOD,
            missing_ci=(round_number(self.worst_low[at]), round_number(self.worst_high[at])),
            p_unadjusted=round_number(self.p_unadjusted[at]),
            p_adjusted=round_number(self.p_adjusted[at]),
            minimum_detectable_difference=round_defined(self.minimum_detectable_difference[at]),
            deviation=round_number(self.deviation[at]),
            units=int(self.units[at]),
            pairs=int(self.pairs[at]),
            deciding=count_deciding_sets(
                [ExtremeDifferences(*(part[at] for part in end)) for end in (graded, against)],
                int(self.pairs[at]),
            ),
            turning_odds=None if isnan(turning := self.get_turning_odds(*at)) else turning,
        )


def count_deciding_sets(ends: Sequence[ExtremeDifferences], pairs: int) -> int | None:
    """Return how many prompt-sets would make a difference significant with 80 % power; None if no
    number would.

    Args:
        ends: of one pair: as graded, and with the missing grades most against the difference.
        pairs: the size of the family.
    """
    planned, value = max(int(end.n) for end in ends), float(ends[0].value)
    sign = 1 if value > 0 else -1
    planned_ends = [
        PlannedScenario(
            float(end.deviation), sign * (value - float(end.value)), int(end.units) / planned
        )
        for end in ends
    ]
    return count_planned_sets(abs(value), planned_ends, pairs=pairs)


def compare_models(
    numerator: Floats,
    denominator: Floats,
    *,
    max_difference: float = 1.0,
    family: Sequence[bool] | NDArray[np.bool_] | None = None,
    extremes: Sequence[Completed] | None = None,
    units: Units | None = None,
) -> Comparison:
    """Compare every two models in one metric (`compare_pairs`).

    Args:
        numerator, denominator: shape (model, prompt_set), as for `compare_pairs`.
        max_difference: the greatest difference that a set can have.
        family: the models whose pairs are the family, shape (model,); pairs with a reference point
            are compared on their own. All models by default.
        extremes: with missing grades as they make it least, and greatest; None if none is missing.
        units: families of prompt-sets.
    """
    models = len(numerator)
    within = np.ones(models, dtype=bool) if family is None else np.asarray(family)
    pairs = np.triu_indices(models, 1)
    compare = partial(
        _compare_some, pairs=pairs, within=within, max_difference=max_difference, units=units
    )
    as_graded = Completed.of((numerator, denominator))
    paired = compare(as_graded, as_graded)
    low, high = paired, paired
    if extremes:
        least, greatest = extremes
        low, high = compare(greatest, least), compare(least, greatest)
    return _make_comparison(paired, low, high, (denominator > 0).sum(axis=1), within)


_Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Places of the first and the second model of each pair."""
_AT_ONCE = 500_000
"""Differences of sets that are compared together, so that they stay in the processor's cache."""


def _compare_some(
    earlier: Completed,
    later: Completed,
    *,
    pairs: _Pairs,
    within: NDArray[np.bool_],
    max_difference: float,
    units: Units | None,
    size: int | None = None,
) -> PairedTests:
    """Compare some of the pairs of models, at the level of all pairs of the family.

    Args:
        earlier, later: of all models, shape (model, prompt_set).
        pairs: those to compare.
        within: the models whose pairs are the family.
        max_difference, units: as for `compare_pairs`.
        size: of the family (`_count_family`); by default these are all of its pairs.
    """
    first, second = pairs
    return compare_pairs(
        earlier.take(first),
        later.take(second),
        max_difference=max_difference,
        family=within[first] & within[second],
        pairs=size,
        units=units,
    )


def _count_family(earlier: Completed, later: Completed, within: NDArray[np.bool_]) -> int:
    """Return how many pairs of the models `within` share a prompt-set that counts."""
    counted = (earlier.denominator > 0) @ (later.denominator > 0).T
    return int(np.triu(counted & np.outer(within, within), 1).sum())


def are_significant(
    comparison: Comparison,
    extremes: Sequence[Completed],
    pairs: _Pairs,
    *,
    max_difference: float,
    units: Units | None,
) -> NDArray[np.bool_]:
    """Tell which of some pairs `compare_models` would claim with other extremes: shape (pair,).

    Args:
        comparison: of the models, with any extremes.
        extremes: with missing grades as they make it least, and greatest.
        pairs: those to compare, the first model of each before the second.
        max_difference, units: those of the comparison.
    """
    least, greatest = extremes
    low, high = comparison.low[pairs], comparison.high[pairs]
    at_once = max(_AT_ONCE // least.numerator.shape[1], 1)
    for earlier, later in ((greatest, least), (least, greatest)):
        size = _count_family(earlier, later, comparison.family)
        for start in range(0, len(low), at_once):
            chunk = slice(start, start + at_once)
            end = _compare_some(
                earlier,
                later,
                pairs=(pairs[0][chunk], pairs[1][chunk]),
                within=comparison.family,
                max_difference=max_difference,
                units=units,
                size=size,
            )
            low[chunk] = np.fmin(low[chunk], end.low)
            high[chunk] = np.fmax(high[chunk], end.high)
    return leave_out_zero(low, high)


def _make_comparison(
    paired: PairedTests,
    low: PairedTests,
    high: PairedTests,
    counted: NDArray[np.int64],
    within: NDArray[np.bool_],
) -> Comparison:
    """Return the tests of pairs as arrays of shape (model, model).

    Args:
        paired, low, high: as graded, and with missing grades as they make the difference least, and
            greatest.
        counted: prompt-sets that count for each model.
        within: the models whose pairs are the family.
    """
    models = len(counted)
    square = partial(_fill_square, models)
    worst_low = np.fmin(paired.low, np.fmin(low.low, high.low))
    worst_high = np.fmax(paired.high, np.fmax(low.high, high.high))
    deviation = np.nan_to_num(paired.spread.deviation)
    detectable = compute_detectable_with_missing(paired, low, high)
    p_unadjusted = paired.p_unadjusted
    p_adjusted = adjust_p(p_unadjusted, paired.pairs)
    counts = square(paired.spread.n, paired.spread.n)
    np.fill_diagonal(counts, counted)
    units_of_both, pairs = (
        np.nan_to_num(square(part, part)) for part in (paired.spread.units, paired.pairs)
    )
    return Comparison(
        difference=square(paired.spread.value, -paired.spread.value),
        low=square(paired.low, -paired.high),
        high=square(paired.high, -paired.low),
        n=counts.astype(np.int64),
        p_unadjusted=square(p_unadjusted, p_unadjusted),
        p_adjusted=square(p_adjusted, p_adjusted),
        minimum_detectable_difference=square(detectable, detectable),
        deviation=square(deviation, deviation),
        units=units_of_both.astype(np.int64),
        pairs=pairs.astype(np.int64),
        family=within,
        worst_low=square(worst_low, -worst_high),
        worst_high=square(worst_high, -worst_low),
        least=_fill_square_of_extremes(models, low.spread, high.spread),
        greatest=_fill_square_of_extremes(models, high.spread, low.spread),
    )


def compute_detectable_with_missing(
    graded: PairedTests, low: PairedTests, high: PairedTests
) -> Floats:
    """Return the difference of each pair that is detected with 80 % power if as many grades are
    missing. Half the range that missing grades allow is added to it.

    Args:
        graded: the pairs as graded.
        low, high: with missing grades as they make the difference least, and greatest; `graded`
            itself if none is missing.
    """
    detectable = graded.minimum_detectable_difference
    if low is not graded:
        missing_shift = np.abs(high.spread.value - low.spread.value) / 2
        ends = [end.minimum_detectable_difference for end in (low, high)]
        detectable = np.maximum(detectable, np.mean(ends, axis=0) + missing_shift)
    return np.where(detectable < graded.max_difference - _TOLERANCE, detectable, np.nan)


def _fill_square_of_extremes(models: int, above: Spread, below: Spread) -> ExtremeDifferences:
    return ExtremeDifferences(
        _fill_square(models, above.value, -below.value),
        _fill_square(models, np.nan_to_num(above.deviation), np.nan_to_num(below.deviation)),
        _fill_square(models, above.n, below.n),
        _fill_square(models, above.units, below.units),
    )


def _fill_square(models: int, above: NDArray[np.generic], below: NDArray[np.generic]) -> Floats:
    """Return the pairs' values as a square, those above the diagonal and those below it: shape
    (model, model).
    """
    first, second = np.triu_indices(models, 1)
    square = np.full((models, models), np.nan)
    square[first, second], square[second, first] = above, below
    return square


def find_rank_turning_odds(comparison: Comparison) -> float | None:
    """Return the odds of missing grades up to which the intervals of ranks hold: the least turning
    odds of the significant differences; None if missing grades move none of these.
    """
    among = np.outer(comparison.family, comparison.family) & comparison.significant
    if comparison.turning_odds is None or not among.any():
        return None
    least = float(np.fmin.reduce(comparison.turning_odds[among]))
    return None if isnan(least) else least


def compute_rank_intervals(
    comparison: Comparison, *, less_is_better: bool = False
) -> list[tuple[int, int] | None]:
    """Return the ranks that each model may have: [1 + significantly better, m − significantly
    worse], m models of the family with a value.

    They all hold the true ranks at once in 95 % of studies (Mogstad, Romano, Shaikh and Wilhelm,
    Review of Economic Studies 91, 2024).

    Args:
        comparison: of the models.
        less_is_better: whether rank 1 is the least value.

    Returns:
        By model; None if it has no value, or is a reference point.
    """
    defined = (np.diagonal(comparison.n) > 0) & comparison.family
    significant = comparison.significant & np.outer(comparison.family, comparison.family)
    with np.errstate(invalid="ignore"):
        ahead = comparison.difference < 0 if less_is_better else comparison.difference > 0
    better = (significant & ahead).sum(axis=1)
    worse = (significant & ~ahead).sum(axis=1)
    models = int(defined.sum())
    return [
        (1 + int(above), models - int(below)) if exists else None
        for exists, above, below in zip(defined, better, worse, strict=True)
    ]
