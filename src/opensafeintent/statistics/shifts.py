"""Does a number stay the same if the same responses are graded by another judge? The shift of a
metric, the margin within which it lies, and exact tests of what changed sides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.comparisons import (
    PairedTests,
    compare_pairs,
    compute_paired_differences,
)
from opensafeintent.statistics.intervals import (
    CONFIDENCE,
    Completed,
    Estimates,
    Floats,
    Parts,
    Spread,
    Units,
    average_completed,
    compute_interval,
    compute_spread,
    compute_upper_tail,
)


class Shifts(NamedTuple):
    """The shifts of a metric, new minus old: of each model and, in the last row, of their mean."""

    old: Floats
    """The metric by the old judge on the prompt-sets that count for both: shape (row,)."""
    new: Floats
    spread: Spread
    interval: Estimates
    worst_low: Floats
    """The lower end of the interval with missing grades."""
    worst_high: Floats
    same_within: Floats
    """The least margin that two one-sided tests certify, each at `EQUIVALENCE`, with missing
    grades: the larger end of the 90 % interval, without its sign.
    """


EQUIVALENCE = 0.05
"""The level of each of the two tests that a shift lies within a margin (Schuirmann, Journal of
Pharmacokinetics and Biopharmaceutics 15, 1987).
"""


def compute_shifts(
    old: Parts,
    new: Parts,
    *,
    max_difference: float,
    averaged: NDArray[np.bool_],
    extremes: tuple[Parts | Completed, Parts | Completed] | None = None,
    units: Units | None = None,
) -> Shifts:
    """Return the shift of a metric from one judge to another, of each model and of some models
    together.

    The prompt-set is the unit, of the mean too: a set's shift is its mean over the models
    (`average_models`). A set's shift lies between ± `max_difference`, the ends at which the
    interval has its pseudo-observations (`compute_spread`).

    Args:
        old, new: numerator and denominator by each judge, each of shape (model, prompt_set), on the
            responses that both graded.
        max_difference: the greatest shift that a set can have.
        averaged: the models that the mean is over, shape (model,).
        extremes: the shifts with missing grades as they make them least, and greatest
            (`compute_paired_differences`); None if none is missing.
        units: families of prompt-sets.
    """
    shift = _add_mean(compute_paired_differences(old, new), averaged)
    span = (-max_difference, max_difference)
    spread = compute_spread(shift.numerator, shift.denominator, span, units=units)
    completed = [_add_mean(Completed.of(end), averaged) for end in extremes or ()]
    least, greatest = [
        compute_spread(end.numerator, end.denominator, span, variance=end.variance, units=units)
        for end in completed
    ] or (spread, spread)

    def find_ends(confidence: float) -> tuple[Estimates, Floats, Floats]:
        interval, below, above = (
            compute_interval(of, of.quantiles(confidence), span) for of in (spread, least, greatest)
        )
        return interval, np.fmin(interval.low, below.low), np.fmax(interval.high, above.high)

    interval, low, high = find_ends(CONFIDENCE)
    _, *nearer = find_ends(1 - 2 * EQUIVALENCE)
    values = [_values(part, shift.denominator[:-1], averaged) for part in (old, new)]
    return Shifts(values[0], values[1], spread, interval, low, high, np.abs(nearer).max(axis=0))


def _add_mean(shift: Completed, averaged: NDArray[np.bool_]) -> Completed:
    """Return a ratio of each model, and their mean in a further row."""
    mean = average_completed(shift.take(averaged))
    return Completed(*(np.vstack(part) for part in zip(shift, mean, strict=True)))


def _values(parts: Parts, weights: Floats, averaged: NDArray[np.bool_]) -> Floats:
    """Return a metric of each model on the sets with a weight, and the mean: shape (row,)."""
    top, bottom = parts
    with np.errstate(invalid="ignore", divide="ignore"):
        by_set = np.where(weights > 0, top / bottom, 0.0)
        values = (by_set * weights).sum(axis=1) / weights.sum(axis=1)
    defined = values[averaged & ~np.isnan(values)]
    return np.append(values, defined.mean() if len(defined) else np.nan)


def least_margin(sets: int, max_difference: float = 1.0) -> float:
    """Return the least margin that this number of prompt-sets can certify: the half-width of the
    90 % interval if no set changes.
    """
    none = np.zeros((1, max(sets, 1)))
    spread = compute_spread(none, np.ones_like(none), (-max_difference, max_difference))
    quantiles = spread.quantiles(1 - 2 * EQUIVALENCE)
    return float(compute_interval(spread, quantiles, (-max_difference, max_difference)).high[0])


class Interactions(NamedTuple):
    """Differences of shifts of every two models, the second's minus the first's: arrays of shape
    (pair,).
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    """The places of the models."""
    old: Floats
    """The second model's value minus the first's by the old judge, on the sets of both."""
    new: Floats
    paired: PairedTests
    """The difference of the two, which is what breaks a ranking."""
    worst_low: Floats
    """The lower end of its interval with missing grades."""
    worst_high: Floats


def compute_interactions(
    old: Parts,
    new: Parts,
    *,
    max_difference: float,
    family: NDArray[np.bool_],
    extremes: tuple[Completed, Completed] | None = None,
    units: Units | None = None,
) -> Interactions:
    """Return for every two models how much more the one is shifted than the other, within
    prompt-sets.

    A shift that all models share leaves their order as it is. The pairs of the family are tested at
    the level at which all hold together (Šidák over k(k − 1)/2 pairs of k models).

    Args:
        old, new, max_difference, extremes: as for `compute_shifts`.
        family: the models whose pairs are the family, shape (model,); pairs with others are
            compared on their own.
        units: families of prompt-sets.
    """
    first, second = np.triu_indices(len(family), 1)
    shift = compute_paired_differences(old, new)

    def compare(earlier: Completed, later: Completed) -> PairedTests:
        return compare_pairs(
            earlier.take(first),
            later.take(second),
            max_difference=2 * max_difference,
            family=family[first] & family[second],
            units=units,
        )

    least, greatest = extremes or (shift, shift)
    paired = compare(shift, shift)
    lowest, highest = (
        (compare(greatest, least), compare(least, greatest)) if extremes else (paired, paired)
    )
    differences = []
    for top, bottom in (old, new):
        counted = np.where(shift.denominator > 0, bottom, 0.0)
        pairs = compute_paired_differences(
            (top[first], counted[first]), (top[second], counted[second])
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            differences.append(pairs.numerator.sum(axis=1) / pairs.denominator.sum(axis=1))
    return Interactions(
        first,
        second,
        differences[0],
        differences[1],
        paired,
        np.fmin(paired.low, lowest.low),
        np.fmax(paired.high, highest.high),
    )


def sign_test(one_way: int, other_way: int) -> float:
    """Return the two-sided p value of McNemar's exact test: changes in both directions are equally
    likely (Psychometrika 12, 1947).

    Args:
        one_way, other_way: numbers of units that changed in each direction.
    """
    n = one_way + other_way
    if not n:
        return 1.0
    return min(1.0, 2 * compute_upper_tail(max(one_way, other_way), n, 0.5))
