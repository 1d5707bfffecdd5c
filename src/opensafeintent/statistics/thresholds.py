"""Test whether a number, or its worsening, lies on one side of a limit, for missing grades."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import ceil, floor, isnan, sqrt
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from opensafeintent.statistics.comparisons import (
    POWER,
    PairedTests,
    convert_units_to_sets,
    count_sets_needed,
)
from opensafeintent.statistics.intervals import (
    METHOD,
    Completed,
    Estimate,
    Parts,
    Units,
    compute_interval,
    compute_spread,
    exact_share_interval,
    round_number,
    share_interval,
    tails,
)

Verdict = Literal["pass", "fail", "undecided"]
Side = Literal["least", "most"]
"""Whether a limit is the least that a number may be, or the most."""
EXACT = "clopper-pearson"
"""Name of the interval of shares of one epoch in `ci_method`."""
_MOST_STEPPED = 2000
"""Answers: beyond, a step of the power is less than a point."""
_MOST_EXACT = 10**5
"""Prompt-sets: beyond, the number that decides is not computed exactly."""


class Bounds(NamedTuple):
    """A number and the ends of its interval, not rounded; NaN if it is undefined."""

    value: float
    n: int
    """Prompt-sets that count."""
    low: float
    high: float
    deviation: float
    """Standard deviation of a unit's value."""
    span: tuple[float, float]
    """Least and greatest value that a set can have."""
    method: str = METHOD
    family: tuple[float, float] | None = None
    """Of a change: the ends at which those of all pairs hold at once; None of a pair alone."""
    pairs: int = 1
    """Of a change: the number of pairs."""
    units: int | None = None
    """Families that count, a prompt-set without one as one; None if every set is a unit."""

    @property
    def estimate(self) -> Estimate:
        """The number in the results."""
        if isnan(self.value):
            return Estimate(value=None, n=0)
        interval = round_number(self.low), round_number(self.high)
        return Estimate(
            value=round_number(self.value), n=self.n, interval=interval, method=self.method
        )

    @property
    def widest(self) -> tuple[float, float]:
        """The ends that a failure has to lie between: of many pairs, any may fail by chance."""
        return self.family or (self.low, self.high)

    @property
    def negative(self) -> Bounds:
        """The same of the number with its sign turned."""
        return self._replace(
            value=-self.value,
            low=-self.high,
            high=-self.low,
            span=(-self.span[1], -self.span[0]),
            family=self.family and (-self.family[1], -self.family[0]),
        )

    def count_deciding(self, limit: float, side: Side, confidence: float) -> int | None:
        """Return the number of prompt-sets that would show the number's side of a limit, with a
        power of 80 % if the number is as estimated. None if it is undefined or at the limit.

        All of several pairs have to pass: each does with a power of 0.8^(1/k), so that k do at once
        in 80 % of cases or more.
        """
        met = self.value >= limit if side == "least" else self.value <= limit
        least, greatest = self.span
        units = count_sets_needed(
            self.value - limit,
            self.deviation,
            power=POWER ** (1 / self.pairs) if met else POWER,
            pairs=1 if met else self.pairs,
            confidence=confidence,
            pseudo_squares=(least - self.value) ** 2 + (greatest - self.value) ** 2,
            pull=least + greatest - 2 * limit,
        )
        if self.method == EXACT and units and units < _MOST_EXACT:
            # values that were filled in tell less than answers
            variance = self.value * (1 - self.value) * self.n / max(self.n - 1, 1)
            sets_each = max(self.deviation**2 / variance, 1.0) if variance else 1.0
            is_filled = sets_each > 1 + 1e-9
            answers = _answers_needed(self.value, limit, confidence, 2 * units + 100, is_filled)
            return ceil(round((answers + is_filled / 2) * sets_each, 6))
        return convert_units_to_sets(units, self.n, self.units)


def _answers_needed(
    share: float, limit: float, confidence: float, most: int, is_filled: bool
) -> int:
    """Return the number of answers from which on the exact interval leaves out the limit with a
    power of 80 %, if the share is the true one. The power goes up and down in steps.

    If values were filled in, both the answers and their count are rounded down (`_bound_share`), by
    half of one on average. That is as if a count of n answers had to be one more in a part 1 −
    share of all cases. Runs differ in how many answers that makes, which levels the steps.
    """
    if share < limit:
        share, limit = 1 - share, 1 - limit

    @cache
    def find_power(n: int) -> float:
        fewest = int((tails(n, limit) > (1 - confidence) / 2).sum())
        if fewest > n or share == 1:
            return float(fewest <= n)
        one_more = 1 - share if is_filled else 0.0
        first, second = [*tails(n, share)[fewest : fewest + 2], 0.0][:2]
        return float(first + one_more * (second - first))

    def is_found(n: int) -> bool:
        about = range(max(n - 2, 1), n + 3) if is_filled else [n]
        return fmean(map(find_power, about)) >= POWER

    enough = bisect_left(range(most), True, lo=1, key=is_found)
    if enough < _MOST_STEPPED and share < 1 and not is_filled:
        steps = range(enough, enough + ceil(2 * sqrt(enough / share / (1 - share))) + 10)
        enough = max((n + 1 for n in steps if not is_found(n)), default=enough)
    return enough


def compare_with_limit(bounds: Bounds, limit: float, side: Side) -> Verdict:
    """Compare a number with a limit: passed if the whole interval lies on its side, failed if it
    lies on the other, else undecided. Of several pairs, all have to pass, and so each is tested on
    its own; if any fails, all have failed, and so the interval is the one for all at once.
    """
    if isnan(bounds.low):
        return "undecided"
    sign = 1 if side == "least" else -1
    if min(sign * bounds.low, sign * bounds.high) >= sign * limit:
        return "pass"
    return "fail" if max(sign * end for end in bounds.widest) < sign * limit else "undecided"


def bound_ratio(
    parts: Parts | Completed,
    *,
    span: tuple[float, float],
    confidence: float,
    exact: bool,
    units: Units | None = None,
) -> Bounds:
    """Return Σ numerator / Σ denominator with its interval.

    Args:
        parts: of one model, arrays of shape (prompt_set,).
        span: least and greatest value of the metric.
        confidence: above 0 and below 1.
        exact: whether each prompt-set that counts has the value 0 or 1, as a share of one epoch:
            then the interval is Clopper and Pearson's, which keeps every level; else it is the one
            that the number has everywhere. Answers within a family are not independent: with
            `units` it is that one too.
        units: families of prompt-sets.
    """
    parts = Completed.of(parts)
    top, bottom, variance = parts.take(None)
    spread = compute_spread(top, bottom, span, variance=variance, units=units)
    interval = compute_interval(spread, spread.quantiles(confidence), span)
    value, n = float(interval.value[0]), int(interval.n[0])
    bounds = Bounds(
        value,
        n,
        float(interval.low[0]),
        float(interval.high[0]),
        float(np.nan_to_num(spread.deviation[0])),
        span,
        units=None if units is None else int(spread.units[0]),
    )
    if not (exact and n) or units is not None:
        return bounds
    low, high = _bound_share(parts, confidence)
    return bounds._replace(low=low, high=high, method=EXACT)


def _bound_share(parts: Completed, confidence: float) -> tuple[float, float]:
    """Return the exact interval of a share. If values were filled in, that of as many whole answers
    as are as informative.
    """
    n, yes = len(parts.numerator[parts.denominator > 0]), float(parts.numerator.sum())
    share = yes / n
    squares = float(((parts.numerator - share * parts.denominator) ** 2 + parts.variance).sum())
    if not parts.variance.any():
        return exact_share_interval(round(yes), n, confidence)
    answers = n * min(n * share * (1 - share) / squares, 1.0)
    fewest = max(floor(answers), 1)
    low, _ = exact_share_interval(floor(share * answers), fewest, confidence)
    _, high = exact_share_interval(fewest - floor((1 - share) * answers), fewest, confidence)
    # no completion is worse than each filled value at its end
    filled = parts.variance > 0
    certain = round(float(parts.numerator[~filled].sum()))
    worst, _ = exact_share_interval(certain, n, confidence)
    _, best = exact_share_interval(certain + int(filled.sum()), n, confidence)
    return max(low, worst), min(high, best)


def bound_pair_difference(
    alone: PairedTests, together: PairedTests, at: int, max_difference: float = 1.0
) -> Bounds:
    """Return how much a pair of models differs, if a set can differ by `max_difference`.

    Args:
        alone, together: the comparison of some pairs, each on its own and as a family.
        at: the pair's place.
        max_difference: the greatest difference that a set can have.
    """
    pairs = int(together.pairs[at])
    return Bounds(
        float(alone.spread.value[at]),
        int(alone.spread.n[at]),
        float(alone.low[at]),
        float(alone.high[at]),
        float(np.nan_to_num(alone.spread.deviation[at])),
        (-max_difference, max_difference),
        family=(float(together.low[at]), float(together.high[at])) if pairs > 1 else None,
        pairs=pairs,
        units=int(alone.spread.units[at]),
    )


def fewest_to_meet(
    limit: float, side: Side, span: tuple[float, float], confidence: float, *, exact: bool
) -> int:
    """Return how many prompt-sets, all of them at the best value, show that a number meets a limit.

    The limit lies within the span. To meet its far end takes more sets than there can be: 10**9.

    Args:
        limit, side, span, confidence, exact: as for `compare_with_limit` and `bound_ratio`.
    """
    share = (limit - span[0]) / (span[1] - span[0])
    share = share if side == "least" else 1 - share

    def low(n: int) -> float:
        return ((1 - confidence) / 2) ** (1 / n) if exact else share_interval(1.0, n, confidence)[0]

    return bisect_left(range(10**9), True, lo=1, key=lambda n: low(n) >= share)
