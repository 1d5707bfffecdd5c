"""Is the mean of values in [0, 1] above or below a threshold? A test that may stop at any time.

Evidence for a mean above m after n values is the average over j = 1 … 20 of ∏ (1 + λ_j (x_i −
m)), λ_j = j / (21 m): a bet that nobody can win on average if the mean is m or less. By Ville's
inequality it exceeds 1 / error with probability `error` at most, however often one looks
(Waudby-Smith and Ramdas, Journal of the Royal Statistical Society B 86, 2024).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import Floats, halve_until

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

    def add(self, least: float, greatest: float, weight: float = 1.0) -> None:
        """Take one more value, from 0 to 1, by the ends between which it lies: the lower one is
        evidence for a mean above the threshold, the upper one for a mean below.

        Args:
            least, greatest: the ends.
            weight: of the value in the mean, above 0 and at most 1: a smaller one bets less.
        """
        self._above = self._above + _growth(least, self._threshold, weight)
        self._below = self._below + _growth(1 - greatest, 1 - self._threshold, weight)

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

    def find_first(mean: float) -> int:
        return 1 + bisect_left(
            range(1, 10**15), True, key=lambda n: bool(_is_enough(n * _growth(1.0, mean, 1), error))
        )

    return find_first(threshold), find_first(1 - threshold)


def confidence_sequence(
    values: Sequence[tuple[float, float, float]], error: float
) -> tuple[float, float]:
    """Return the limits of the means that neither side rejected at any time.

    Args:
        values: in their order, each by the ends between which it lies, from 0 to 1, and its weight.
        error: probability of a mean outside, half of it on each side.
    """

    def least(values: Floats) -> float:
        # the greater the mean, the less evidence there is that it is above
        def is_left(mean: float) -> bool:
            growth = _growth(values, mean, weights[:, None])
            return not _is_enough(np.cumsum(growth, axis=0), error / 2).any()

        return halve_until(is_left, 1e-7)[0]

    lows, highs, weights = np.asarray(values, dtype=np.float64).reshape(-1, 3).T
    return least(lows), 1 - least(1 - highs)


def _growth(values: Floats | float, mean: float, weights: Floats | float) -> Floats:
    """Return the logarithm of the growth of each bet on a mean above `mean`; shape (…, bet)."""
    return np.asarray(np.log1p(_BETS / mean * (np.asarray(values)[..., None] - mean) * weights))


def _is_enough(logarithms: Floats, error: float) -> NDArray[np.bool_]:
    return np.asarray(np.logaddexp.reduce(logarithms, axis=-1) - log(len(_BETS)) >= -log(error))
