"""Is one model better than another? One paired comparison over the prompt-sets that count for both:
its p value and its interval are the same statistic's; all pairs of a metric as one family; rank
intervals.
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
    round_defined,
    round_number,
    sum_units,
    t_quantile,
    t_within,
)

POWER = 0.80
"""With which differences are said to be found."""
SECOND_LOOK = (
    "a larger sample that holds this one is a second look, which about doubles the risk of a wrong"
    " result"
)
"""What to add to the advice to enlarge a sample (benchmarks/gates.py)."""

NEW_SETS = "take new prompt-sets, such as a file of those that this run did not use"
_Z_POWER = NormalDist().inv_cdf(POWER)
_LEAST = 1e-6
_MOST = 10**14


class Paired(NamedTuple):
    """Differences of pairs of models, later minus earlier: arrays of shape (pair,)."""

    spread: Spread
    quantile: Floats
    """Standard errors that the interval reaches to either side."""
    low: Floats
    high: Floats
    pairs: NDArray[np.int64]
    """The size of each pair's family."""
    shares: NDArray[np.bool_]
    """Whether every unit's difference is −1, 0 or 1."""
    width: float
    """The greatest difference that a set can have."""

    @property
    def p_unadjusted(self) -> Floats:
        """The p value of each pair on its own."""
        return self.spread.p()

    @property
    def p_adjusted(self) -> Floats:
        """The p value of each pair in its family."""
        return family_p(self.p_unadjusted, self.pairs)

    @property
    def minimum_detectable_difference(self) -> Floats:
        """The difference that the test finds with a power of 80 %; see `detectable_difference`. NaN
        if it finds none that sets can have.
        """
        differences = np.full(len(self.shares), np.nan)
        for row in np.flatnonzero(self.spread.n > 0):
            equation = _find_least_share if self.shares[row] else _detectable
            differences[row] = equation(
                float(self.spread.informative[row]) - 2,
                float(np.nan_to_num(self.spread.deviation[row])),
                float(self.quantile[row]),
                _Z_POWER,
                2 * self.width**2,
            )
        differences[differences >= self.width - _LEAST] = np.nan
        return differences


def family_level(confidence: float, pairs: int) -> float:
    """Return the confidence of each of some pairs at which all of them hold at once (Šidák, Journal
    of the American Statistical Association 62, 1967).
    """
    return float(confidence ** (1 / max(pairs, 1)))


def family_p(p: Floats, pairs: int | NDArray[np.int64]) -> Floats:
    """Return p values adjusted for a family of tests, 1 − (1 − p)ᵏ (Šidák): below 1 − confidence
    exactly if the interval at `family_level` leaves 0 out.

    Args:
        p: of each test on its own.
        pairs: the size k of its family.
    """
    with np.errstate(divide="ignore"):  # a p of 1 stays 1
        return np.where(np.asarray(pairs) > 1, -np.expm1(pairs * np.log1p(-p)), p)


def _detectable(
    sets: float, deviation: float, critical: float, z: float, pseudo_squares: float
) -> float:
    """Return the equation of `detectable_difference` for a critical value and a quantile z."""
    error = sqrt((sets * deviation**2 + pseudo_squares) * (sets + 2) / (sets + 1))
    return (critical * error + z * deviation * sqrt(sets)) / sets


def _find_least_share(
    sets: float, deviation: float, critical: float, z: float, pseudo_squares: float
) -> float:
    """Return the least d that is found if each set's difference is −1, 0 or 1. A mean of d needs at
    least a share d of the sets to differ, so that σ² is d − d² or more.
    """
    low, high = 0.0, 1.0
    while high - low > _LEAST:
        d = (low + high) / 2
        spread = max(deviation, sqrt(d - d**2))
        if _detectable(sets, spread, critical, z, pseudo_squares) <= d:
            high = d
        else:
            low = d
    return high


class MeanTest(NamedTuple):
    """The mean of some differences, tested against 0 as one of a family."""

    low: float
    high: float
    """95 % interval, for all of the family at once."""
    p_unadjusted: float
    """Two-sided; of this mean on its own."""
    p_adjusted: float
    """For the family: below 0.05 exactly if the interval leaves 0 out."""
    minimum_detectable_difference: float
    """The difference that this test finds with a power of 80 %."""


def mean_test(differences: Floats, *, pairs: int = 1) -> MeanTest:
    """Test the mean of differences that have no greatest value, such as those of lengths: Student's
    paired t.

    `compare_pairs` adds pseudo-observations at the greatest difference that a set can have. The
    greatest one of a sample is no substitute: one far value would move all intervals.

    Args:
        differences: shape (prompt_set,), two or more.
        pairs: the size of the family (`family_level`).
    """
    degrees = len(differences) - 1
    mean, error = float(differences.mean()), float(differences.std(ddof=1)) / sqrt(degrees + 1)
    critical = t_quantile(0.5 + family_level(CONFIDENCE, pairs) / 2, degrees)
    # without an error, all sets differ by the same
    p = 1 - t_within(abs(mean) / error, degrees) if error else float(mean == 0)
    return MeanTest(
        low=mean - critical * error,
        high=mean + critical * error,
        p_unadjusted=p,
        p_adjusted=float(family_p(np.array(p), pairs)),
        minimum_detectable_difference=(critical + NormalDist().inv_cdf(POWER)) * error,
    )


def detectable_difference(
    sets: int,
    deviation: float,
    *,
    shares: bool = False,
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
        shares: whether each set's difference is −1, 0 or 1. A mean of d needs at least a share d of
            the sets to differ, so σ² is at least d − d².
    """
    critical = t_quantile(0.5 + family_level(confidence, pairs) / 2, sets + 1)
    detectable = _find_least_share if shares else _detectable
    return detectable(sets, deviation, critical, NormalDist().inv_cdf(power), pseudo_squares)


def assume_deviation(*, shares: bool) -> float:
    """Return the standard deviation of a paired difference that a plan assumes without a pilot."""
    return 0.5 if shares else 0.35


@lru_cache(maxsize=4096)
def sets_needed(
    difference: float,
    deviation: float,
    *,
    power: float = POWER,
    shares: bool = False,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
    pseudo_squares: float = 2.0,
    pull: float = 0.0,
) -> int | None:
    """Return the fewest prompt-sets with which a difference is found with so much power; None if
    it is 0 or undefined.

    The n sets are enough if n · |`difference`| ± `pull` reaches the numerator of
    `detectable_difference`, whose arguments these are.

    Args:
        pull: sum of the two pseudo-observations, as differences; 0 if they lie on both sides alike.
    """
    if not abs(difference) > _LEAST:
        return None
    if shares:
        deviation = max(deviation, sqrt(abs(difference) - difference**2))
    least = partial(
        detectable_difference,
        power=power,
        pairs=pairs,
        confidence=confidence,
        pseudo_squares=pseudo_squares,
    )
    toward = pull if difference > 0 else -pull
    return bisect_left(
        range(_MOST),
        True,
        lo=1,
        key=lambda sets: least(sets, deviation) <= abs(difference) + toward / sets,
    )


def count_sets(units: int | None, n: int, counted: int | None) -> int | None:
    """Return how many prompt-sets some units have, if `counted` units have n; they are sets if that
    is None.
    """
    return -(-units * n // counted) if units and counted else units


class PlannedEnd(NamedTuple):
    """A difference in a planned run: as graded, or with missing grades as they are most against
    it.
    """

    deviation: float
    """Standard deviation of a set's difference."""
    away: float = 0.0
    """What missing grades take from the difference, in a run of any size: half the range that they
    allow.
    """
    counted: float = 1.0
    """Units that count, families or single prompt-sets, over the prompt-sets."""


def count_planned(
    difference: float,
    ends: Sequence[PlannedEnd],
    *,
    power: float = POWER,
    shares: bool = False,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
) -> int | None:
    """Return the fewest prompt-sets with which a difference is found at each end with so much
    power; None if no number is enough.

    Args:
        difference: its size, above 0.
        ends: as graded, and with missing grades.
        power, shares, pairs, confidence: as for `sets_needed`.
    """
    numbers = [
        sets_needed(
            max(difference - end.away, 0.0),
            end.deviation,
            power=power,
            shares=shares,
            pairs=pairs,
            confidence=confidence,
        )
        for end in ends
    ]
    if None in numbers:
        return None
    return max(
        ceil(round(sets / end.counted, 6)) for sets, end in zip(numbers, ends, strict=True) if sets
    )


def find_planned_difference(
    sets: int,
    ends: Sequence[PlannedEnd],
    *,
    power: float = POWER,
    shares: bool = False,
    pairs: int = 1,
    confidence: float = CONFIDENCE,
) -> float:
    """Return the difference that so many prompt-sets find at each end (`count_planned`)."""
    return max(
        end.away
        + detectable_difference(
            max(int(round(sets * end.counted, 6)), 1),
            end.deviation,
            power=power,
            shares=shares,
            pairs=pairs,
            confidence=confidence,
        )
        for end in ends
    )


def compare_pairs(
    earlier: Parts | Completed,
    later: Parts | Completed,
    *,
    width: float = 1.0,
    family: NDArray[np.bool_] | None = None,
    pairs: int | None = None,
    confidence: float = CONFIDENCE,
    units: Units | None = None,
) -> Paired:
    """Compare pairs of models, later minus earlier, on the prompt-sets that count for both.

    The statistic is the mean difference in standard errors, both with two pseudo-observations at
    ± `width` (`intervals.compute_spread`); its distribution is Student's. Each pair of a family is
    tested at the level at which all hold together (`family_level`): the chance of calling any two
    equal models different is 5 % at most. Interval and p are of one statistic, at one level.

    Args:
        earlier, later: each of shape (pair, prompt_set). A set's denominator is its weight, 0 if it
            does not count; if the two models differ in it, it is the mean of the two.
        width: the greatest difference that a set can have.
        family: the pairs that are a family, shape (pair,); the others are compared on their own.
            All pairs by default.
        pairs: the size of the family; by default as many as are defined here.
        confidence: of the intervals, above 0 and below 1.
        units: families of prompt-sets.
    """
    numerator, weights, variance = pair_differences(earlier, later)
    spread = compute_spread(numerator, weights, (-width, width), variance=variance, units=units)
    defined = spread.n > 0
    member = defined if family is None else defined & family
    size = int(member.sum()) if pairs is None else pairs
    quantile = spread.quantiles(confidence)
    if size > 1:
        level = family_level(confidence, size)
        quantile = np.where(member, spread.quantiles(level), quantile)
    sizes = np.where(member, size, 1)
    interval = compute_interval(spread, quantile, (-width, width))
    numerator, weights = sum_units(numerator, units), sum_units(weights, units)
    whole = ((numerator == 0) | (np.abs(numerator) == weights)) & (
        variance.sum(axis=1, keepdims=True) == 0
    )
    shares = defined & whole.all(axis=1) & (width == 1)
    return Paired(spread, quantile, interval.low, interval.high, sizes, shares, width)


def pair_differences(earlier: Parts | Completed, later: Parts | Completed) -> Completed:
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
        """Whether no number of prompt-sets would show it, because grades are missing."""
        return self.deciding is None and bool(self.value)

    @property
    def claimed(self) -> bool:
        """Whether it is more than chance explains, with missing grades too."""
        low, high = self.missing_ci
        return self.leaves_out_zero and not low <= 0 <= high


class End(NamedTuple):
    """Differences with missing grades at one of their ends: arrays of shape (model, model), or
    those of one pair.
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
    least: End
    """With missing grades as they make the difference least."""
    greatest: End
    turning_odds: Floats | None = None
    """The greatest odds of missing grades that were tried at which a difference that the interval
    alone shows is claimed: 0 if at none, infinity if at each; NaN if it shows none, or none is
    missing.
    """

    @property
    def claimed(self) -> NDArray[np.bool_]:
        """Which differences are more than chance explains, whatever the missing grades are: their
        intervals leave 0 out, and so do those of every completion.
        """
        with np.errstate(invalid="ignore"):
            return np.asarray((self.worst_low > 0) | (self.worst_high < 0))

    @property
    def hinges(self) -> NDArray[np.bool_]:
        """Which differences are undecided because of missing grades alone."""
        with np.errstate(invalid="ignore"):
            return np.asarray(((self.low > 0) | (self.high < 0)) & ~self.claimed)

    def take_turning(self, first: int, second: int) -> float:
        """Return the odds at which a difference turns; NaN if none is known."""
        return nan if self.turning_odds is None else float(self.turning_odds[first, second])

    def pair(self, first: int, second: int) -> Difference | None:
        """Return the second model's value minus the first's, rounded; None if no prompt-set counts
        for both.
        """
        at = first, second
        if not self.n[at]:
            return None
        graded = End(
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
            deciding=count_deciding(
                [End(*(part[at] for part in end)) for end in (graded, against)],
                int(self.pairs[at]),
            ),
            turning_odds=None if isnan(turning := self.take_turning(*at)) else turning,
        )


def count_deciding(ends: Sequence[End], pairs: int) -> int | None:
    """Return how many prompt-sets would show a difference from 0 with 80 % power; None if no number
    would.

    Args:
        ends: of one pair, as graded and with missing grades as they are most against it.
        pairs: the size of the family.
    """
    planned, value = max(int(end.n) for end in ends), float(ends[0].value)
    sign = 1 if value > 0 else -1
    planned_ends = [
        PlannedEnd(
            float(end.deviation), sign * (value - float(end.value)), int(end.units) / planned
        )
        for end in ends
    ]
    return count_planned(abs(value), planned_ends, pairs=pairs)


def compare_models(
    numerator: Floats,
    denominator: Floats,
    *,
    width: float = 1.0,
    family: Sequence[bool] | NDArray[np.bool_] | None = None,
    extremes: Sequence[Completed] | None = None,
    units: Units | None = None,
) -> Comparison:
    """Compare every two models in one metric (`compare_pairs`).

    Args:
        numerator, denominator: shape (model, prompt_set), as for `compare_pairs`.
        width: the greatest difference that a set can have.
        family: the models whose pairs are the family, shape (model,); pairs with a reference point
            are compared on their own. All models by default.
        extremes: with missing grades as they make it least, and greatest; None if none is missing.
        units: families of prompt-sets.
    """
    models = len(numerator)
    within = np.ones(models, dtype=bool) if family is None else np.asarray(family)
    pairs = np.triu_indices(models, 1)
    compare = partial(_compare_some, pairs=pairs, within=within, width=width, units=units)
    as_graded = Completed.of((numerator, denominator))
    paired = compare(as_graded, as_graded)
    low, high = paired, paired
    if extremes:
        least, greatest = extremes
        low, high = compare(greatest, least), compare(least, greatest)
    return _arrange_pairs(paired, low, high, (denominator > 0).sum(axis=1), within)


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
    width: float,
    units: Units | None,
) -> Paired:
    """Compare some of the pairs of models, at the level of all pairs of the family.

    Args:
        earlier, later: of all models, shape (model, prompt_set).
        pairs: those to compare.
        within: the models whose pairs are the family.
        width, units: as for `compare_pairs`.
    """
    first, second = pairs
    counted = (earlier.denominator > 0) @ (later.denominator > 0).T
    size = int(np.triu(counted & np.outer(within, within), 1).sum())
    return compare_pairs(
        earlier.take(first),
        later.take(second),
        width=width,
        family=within[first] & within[second],
        pairs=size,
        units=units,
    )


def tell_claimed(
    comparison: Comparison,
    extremes: Sequence[Completed],
    pairs: _Pairs,
    *,
    width: float = 1.0,
    units: Units | None = None,
) -> NDArray[np.bool_]:
    """Tell which of some pairs `compare_models` would claim with other extremes: shape (pair,).

    Args:
        comparison: of the models, with any extremes.
        extremes: with missing grades as they make it least, and greatest.
        pairs: those to compare, the first model of each before the second.
        width, units: those of the comparison.
    """
    least, greatest = extremes
    at_once = max(_AT_ONCE // least.numerator.shape[1], 1)
    claimed = np.zeros(len(pairs[0]), dtype=bool)
    for start in range(0, len(claimed), at_once):
        chunk = slice(start, start + at_once)
        some = pairs[0][chunk], pairs[1][chunk]
        low, high = comparison.low[some], comparison.high[some]
        for earlier, later in ((greatest, least), (least, greatest)):
            end = _compare_some(
                earlier, later, pairs=some, within=comparison.family, width=width, units=units
            )
            low, high = np.fmin(low, end.low), np.fmax(high, end.high)
        claimed[chunk] = (low > 0) | (high < 0)
    return claimed


def _arrange_pairs(
    paired: Paired, low: Paired, high: Paired, counted: NDArray[np.int64], within: NDArray[np.bool_]
) -> Comparison:
    """Return pairs of models as squares.

    Args:
        paired, low, high: as graded, and with missing grades as they make the difference least, and
            greatest.
        counted: prompt-sets that count for each model.
        within: the models whose pairs are the family.
    """
    models = len(counted)
    square = partial(_square, models)
    worst_low = np.fmin(paired.low, np.fmin(low.low, high.low))
    worst_high = np.fmax(paired.high, np.fmax(low.high, high.high))
    deviation = np.nan_to_num(paired.spread.deviation)
    detectable = find_detectable(paired, low, high)
    p_unadjusted, p_adjusted = paired.p_unadjusted, paired.p_adjusted
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
        least=_square_ends(models, low.spread, high.spread),
        greatest=_square_ends(models, high.spread, low.spread),
    )


def find_detectable(graded: Paired, low: Paired, high: Paired) -> Floats:
    """Return the difference of each pair that is found with 80 % power if as many grades are
    missing: half the range of what these allow is added.

    Args:
        graded: the pairs as graded.
        low, high: with missing grades as they make the difference least, and greatest; `graded`
            itself if none is missing.
    """
    detectable = graded.minimum_detectable_difference
    if low is not graded:
        away = np.abs(high.spread.value - low.spread.value) / 2
        ends = [end.minimum_detectable_difference for end in (low, high)]
        detectable = np.maximum(detectable, np.mean(ends, axis=0) + away)
    return np.where(detectable < graded.width - _LEAST, detectable, np.nan)


def _square_ends(models: int, above: Spread, below: Spread) -> End:
    return End(
        _square(models, above.value, -below.value),
        _square(models, np.nan_to_num(above.deviation), np.nan_to_num(below.deviation)),
        _square(models, above.n, below.n),
        _square(models, above.units, below.units),
    )


def _square(models: int, above: NDArray[np.generic], below: NDArray[np.generic]) -> Floats:
    """Return the pairs' values as a square, those above the diagonal and those below it: shape
    (model, model).
    """
    first, second = np.triu_indices(models, 1)
    square = np.full((models, models), np.nan)
    square[first, second], square[second, first] = above, below
    return square


def find_rank_turning(comparison: Comparison) -> float | None:
    """Return the odds of missing grades up to which the intervals of ranks rest on what they rest
    on; None if they rest on no missing grade.
    """
    among = np.outer(comparison.family, comparison.family) & comparison.claimed
    if comparison.turning_odds is None or not among.any():
        return None
    least = float(np.fmin.reduce(comparison.turning_odds[among]))
    return None if isnan(least) else least


def rank_intervals(
    comparison: Comparison, *, less_is_better: bool = False
) -> list[tuple[int, int] | None]:
    """Return the ranks that each model may have: [1 + shown to be better, m − shown to be worse], m
    models of the family with a value.

    They all hold the true ranks at once in 95 % of studies (Mogstad, Romano, Shaikh and Wilhelm,
    Review of Economic Studies 91, 2024).

    Args:
        comparison: of the models.
        less_is_better: whether rank 1 is the least value.

    Returns:
        By model; None if it has no value, or is a reference point.
    """
    defined = (np.diagonal(comparison.n) > 0) & comparison.family
    claimed = comparison.claimed & np.outer(comparison.family, comparison.family)
    with np.errstate(invalid="ignore"):
        ahead = comparison.difference < 0 if less_is_better else comparison.difference > 0
    better = (claimed & ahead).sum(axis=1)
    worse = (claimed & ~ahead).sum(axis=1)
    models = int(defined.sum())
    return [
        (1 + int(above), models - int(below)) if exists else None
        for exists, above, below in zip(defined, better, worse, strict=True)
    ]
