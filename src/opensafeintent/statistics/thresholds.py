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

from opensafeintent.statistics.comparisons import Paired, sets_needed
from opensafeintent.statistics.intervals import (
    METHOD,
    Estimate,
    Floats,
    Parts,
    interval_of,
    rounded,
    share_interval,
    spread_of,
)

Verdict = Literal["pass", "fail", "undecided"]
Side = Literal["least", "most"]
"""Whether a limit is the least that a number may be, or the most."""


class Bounds(NamedTuple):
    """A number and the ends of its interval, not rounded; NaN if it is undefined."""

    value: float
    n: int
    """Prompt-sets that count."""
    low: float
    high: float
    deviation: float
    """Standard deviation of a set's value."""
    ends: float
    """Squares of how far the two pseudo-observations lie from the number."""
    pairs: int = 1
    """Of a change: the number of simultaneous tests."""

    @property
    def estimate(self) -> Estimate:
        """The number in the results."""
        if isnan(self.value):
            return Estimate(value=None, n=0)
        interval = rounded(self.low), rounded(self.high)
        return Estimate(value=rounded(self.value), n=self.n, interval=interval, method=METHOD)

    @property
    def negative(self) -> Bounds:
        """The same of the number with its sign turned."""
        return self._replace(value=-self.value, low=-self.high, high=-self.low)

    def deciding(self, limit: float, confidence: float) -> int | None:
        """Return the number of prompt-sets that would show the number's side of a limit, with a
        power of 80 % if the number is as estimated. None if it is undefined or at the limit.
        """
        return sets_needed(
            self.value - limit,
            self.deviation,
            pairs=self.pairs,
            confidence=confidence,
            ends=self.ends,
        )


def verdict_of(bounds: Bounds, limit: float, side: Side) -> Verdict:
    """Compare a number with a limit: passed if the whole interval lies on its side, failed if it
    lies on the other, else undecided.
    """
    if isnan(bounds.low):
        return "undecided"
    met = [end >= limit if side == "least" else end <= limit for end in (bounds.low, bounds.high)]
    return "pass" if all(met) else "undecided" if any(met) else "fail"


def bounds_of(parts: Parts, *, span: tuple[float, float], confidence: float) -> Bounds:
    """Return Σ numerator / Σ denominator with the interval that it has everywhere.

    Args:
        parts: of one model, each of shape (prompt_set,).
        span: least and greatest value of the metric.
        confidence: above 0 and below 1.
    """
    spread = spread_of(parts[0][None], parts[1][None], span)
    interval = interval_of(spread, spread.quantiles(confidence), span)
    value = float(interval.value[0])
    return Bounds(
        value,
        int(interval.n[0]),
        float(interval.low[0]),
        float(interval.high[0]),
        float(np.nan_to_num(spread.deviation[0])),
        (span[0] - value) ** 2 + (span[1] - value) ** 2,
    )


def bounds_of_pair(paired: Paired, at: int, width: float = 1.0) -> Bounds:
    """Return how much a pair of models differs, if a set can differ by `width`."""
    return Bounds(
        float(paired.spread.value[at]),
        int(paired.spread.n[at]),
        float(paired.low[at]),
        float(paired.high[at]),
        float(np.nan_to_num(paired.spread.deviation[at])),
        2 * width**2,
        int(paired.pairs[at]),
    )


def fewest_to_meet(limit: float, side: Side, span: tuple[float, float], confidence: float) -> int:
    """Return how many prompt-sets, all of them at the best value, show that a number meets a limit.

    The limit lies within the span. To meet its far end takes more sets than there can be: 10**9.
    """
    share = (limit - span[0]) / (span[1] - span[0])
    share = share if side == "least" else 1 - share
    return bisect_left(
        range(10**9), True, lo=1, key=lambda n: share_interval(1.0, n, confidence)[0] >= share
    )


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

    def add(self, value: float) -> None:
        """Take one more value, from 0 to 1."""
        self._above = self._above + _growth(value, self._threshold)
        self._below = self._below + _growth(1 - value, 1 - self._threshold)

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


def confidence_sequence(values: Sequence[float], error: float) -> tuple[float, float]:
    """Return the limits of the means that neither side rejected at any time.

    Args:
        values: in their order, each from 0 to 1.
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

    array = np.asarray(values, dtype=np.float64)
    return least(array), 1 - least(1 - array)


def _growth(values: Floats | float, mean: float) -> Floats:
    """Return the logarithm of the growth of each bet on a mean above `mean`; shape (…, bet)."""
    return np.asarray(np.log1p(_BETS / mean * (np.asarray(values)[..., None] - mean)))


def _is_enough(logarithms: Floats, error: float) -> NDArray[np.bool_]:
    return np.asarray(np.logaddexp.reduce(logarithms, axis=-1) - log(len(_BETS)) >= -log(error))
