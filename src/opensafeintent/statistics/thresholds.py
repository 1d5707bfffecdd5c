"""Test whether a number, or its worsening, lies on one side of a limit, for any missing grades; and
a test that may stop at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import isnan, log
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.comparisons import POWER, Paired, sets_needed
from opensafeintent.statistics.intervals import (
    METHOD,
    Estimate,
    Floats,
    Parts,
    at_least,
    exact_share_interval,
    interval_of,
    rounded,
    share_interval,
    spread_of,
    tails,
)

Verdict = Literal["pass", "fail", "undecided"]
Side = Literal["least", "most"]
"""Whether a limit is the least that a number may be, or the most."""
EXACT = "clopper-pearson"
"""Name of the interval of shares of one epoch in `ci_method`."""
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
    """Standard deviation of a set's value."""
    span: tuple[float, float]
    """Least and greatest value that a set can have."""
    method: str = METHOD
    family: tuple[float, float] | None = None
    """Of a change: the ends at which those of all pairs hold at once; None of a pair alone."""
    pairs: int = 1
    """Of a change: the number of pairs."""

    @property
    def estimate(self) -> Estimate:
        """The number in the results."""
        if isnan(self.value):
            return Estimate(value=None, n=0)
        interval = rounded(self.low), rounded(self.high)
        return Estimate(value=rounded(self.value), n=self.n, interval=interval, method=self.method)

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

    def deciding(self, limit: float, side: Side, confidence: float) -> int | None:
        """Return the number of prompt-sets that would show the number's side of a limit, with a
        power of 80 % if the number is as estimated. None if it is undefined or at the limit.
        """
        met = self.value >= limit if side == "least" else self.value <= limit
        least, greatest = self.span
        found = sets_needed(
            self.value - limit,
            self.deviation,
            pairs=1 if met else self.pairs,
            confidence=confidence,
            ends=(least - self.value) ** 2 + (greatest - self.value) ** 2,
            pull=least + greatest - 2 * limit,
        )
        if self.method == EXACT and found and found < _MOST_EXACT:
            return _answers_needed(self.value, limit, confidence, 2 * found + 100)
        return found


def _answers_needed(share: float, limit: float, confidence: float, most: int) -> int:
    """Return the number of answers whose exact interval leaves out the limit with a power of 80 %,
    if the share is the true one.
    """
    if share < limit:
        share, limit = 1 - share, 1 - limit

    def is_found(n: int) -> bool:
        fewest = int((tails(n, limit) > (1 - confidence) / 2).sum())
        return fewest <= n and (share == 1 or at_least(fewest, n, share) >= POWER)

    return bisect_left(range(most), True, lo=1, key=is_found)


def verdict_of(bounds: Bounds, limit: float, side: Side) -> Verdict:
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


def bounds_of(
    parts: Parts, *, span: tuple[float, float], confidence: float, exact: bool = False
) -> Bounds:
    """Return Σ numerator / Σ denominator with its interval.

    Args:
        parts: of one model, each of shape (prompt_set,).
        span: least and greatest value of the metric.
        confidence: above 0 and below 1.
        exact: whether each prompt-set that counts has the value 0 or 1, as a share of one epoch:
            then the interval is Clopper and Pearson's, which keeps every level; else it is the one
            that the number has everywhere.
    """
    spread = spread_of(parts[0][None], parts[1][None], span)
    interval = interval_of(spread, spread.quantiles(confidence), span)
    value, n = float(interval.value[0]), int(interval.n[0])
    found = Bounds(
        value,
        n,
        float(interval.low[0]),
        float(interval.high[0]),
        float(np.nan_to_num(spread.deviation[0])),
        span,
    )
    if not (exact and n):
        return found
    low, high = exact_share_interval(round(float(parts[0].sum())), n, confidence)
    return found._replace(low=low, high=high, method=EXACT)


def bounds_of_pair(alone: Paired, together: Paired, at: int, width: float = 1.0) -> Bounds:
    """Return how much a pair of models differs, if a set can differ by `width`.

    Args:
        alone, together: the comparison of some pairs, each on its own and as a family.
        at: the pair's place.
        width: the greatest difference that a set can have.
    """
    pairs = int(together.pairs[at])
    return Bounds(
        float(alone.spread.value[at]),
        int(alone.spread.n[at]),
        float(alone.low[at]),
        float(alone.high[at]),
        float(np.nan_to_num(alone.spread.deviation[at])),
        (-width, width),
        family=(float(together.low[at]), float(together.high[at])) if pairs > 1 else None,
        pairs=pairs,
    )


def fewest_to_meet(
    limit: float, side: Side, span: tuple[float, float], confidence: float, *, exact: bool = False
) -> int:
    """Return how many prompt-sets, all of them at the best value, show that a number meets a limit.

    The limit lies within the span. To meet its far end takes more sets than there can be: 10**9.

    Args:
        limit, side, span, confidence, exact: as for `verdict_of` and `bounds_of`.
    """
    share = (limit - span[0]) / (span[1] - span[0])
    share = share if side == "least" else 1 - share

    def low(n: int) -> float:
        return ((1 - confidence) / 2) ** (1 / n) if exact else share_interval(1.0, n, confidence)[0]

    return bisect_left(range(10**9), True, lo=1, key=lambda n: low(n) >= share)


# Is the mean of values in [0, 1] above or below a threshold? A test that may stop at any time
# ------------------------------------------------------------------------------
# Evidence for a mean above m after n values is the average over j = 1 … 20 of ∏ (1 + λ_j (x_i −
# m)), λ_j = j / (21 m): a bet that nobody can win on average if the mean is m or less. By Ville's
# inequality it exceeds 1 / error with probability `error` at most, however often one looks
# (Waudby-Smith and Ramdas, Journal of the Royal Statistical Society B 86, 2024).

_BETS = np.arange(1, 21) / 21


class Evidence:
    """Evidence from values on whether their mean is above or below a threshold.

    Args:
        threshold: above 0 and below 1.
        error: probability of each of the two wrong answers, at most.
    """

    def __init__(self, threshold: float, error: float) -> None:
        self._threshold, self._error = threshold, error
        self._above = self._below = np.zeros(len(_BETS))

    def add(self, least: float, greatest: float) -> None:
        """Take one more value, from 0 to 1, by the ends between which it lies: the lower one is
        evidence for a mean above the threshold, the upper one for a mean below.
        """
        self._above = self._above + _growth(least, self._threshold)
        self._below = self._below + _growth(1 - greatest, 1 - self._threshold)

    @property
    def verdict(self) -> bool | None:
        """True if the mean is above the threshold, False if it is below, None if neither is
        shown.
        """
        if _is_enough(self._above, self._error):
            return True
        return False if _is_enough(self._below, self._error) else None


def fewest(threshold: float, error: float) -> tuple[int, int]:
    """Return after how many values, all of them 1 (all of them 0), the mean is shown to be above
    (below) a threshold.
    """

    def until(mean: float) -> int:
        return 1 + bisect_left(
            range(1, 10**15), True, key=lambda n: bool(_is_enough(n * _growth(1.0, mean), error))
        )

    return until(threshold), until(1 - threshold)


def confidence_sequence(values: Sequence[tuple[float, float]], error: float) -> tuple[float, float]:
    """Return the limits of the means that neither side rejected at any time.

    Args:
        values: in their order, each by the ends between which it lies, from 0 to 1.
        error: probability of a mean outside, half of it on each side.
    """

    def least(of: Floats) -> float:
        low, high = 0.0, 1.0
        while (
            high - low > 1e-7
        ):  # the greater the mean, the less evidence there is that it is above
            middle = (low + high) / 2
            rejected = _is_enough(np.cumsum(_growth(of, middle), axis=0), error / 2).any()
            low, high = (middle, high) if rejected else (low, middle)
        return low

    ends = np.asarray(values, dtype=np.float64).reshape(-1, 2)
    return least(ends[:, 0]), 1 - least(1 - ends[:, 1])


def _growth(values: Floats | float, mean: float) -> Floats:
    """Return the logarithm of the growth of each bet on a mean above `mean`; shape (…, bet)."""
    return np.asarray(np.log1p(_BETS / mean * (np.asarray(values)[..., None] - mean)))


def _is_enough(logarithms: Floats, error: float) -> NDArray[np.bool_]:
    return np.asarray(np.logaddexp.reduce(logarithms, axis=-1) - log(len(_BETS)) >= -log(error))
