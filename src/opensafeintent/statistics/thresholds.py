"""Does a number, or how much worse it became, lie on one side of a limit, at a confidence, whatever
the missing grades are?

Every interval here is two one-sided ones: each of its ends holds at the confidence asked for, by
itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import log
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.comparisons import differences_not_rejected
from opensafeintent.statistics.exact import least_share
from opensafeintent.statistics.intervals import (
    Estimate,
    Floats,
    Parts,
    Resamples,
    estimate,
    rounded,
)

Verdict = Literal["pass", "fail", "undecided"]
Side = Literal["least", "most"]
"""Whether a limit is the least that a number may be, or the most."""


class ConfidenceBounds(NamedTuple):
    """A number and the ends between which it lies, not rounded; without a confidence the ends are
    the number.
    """

    value: float
    """NaN where it is undefined, as its ends are."""
    n: int
    """Prompt-sets that count."""
    low: float
    high: float
    method: str | None = None
    """None without a confidence."""

    @property
    def estimate(self) -> Estimate:
        """The number as results have it."""
        if np.isnan(self.value):
            return Estimate(value=None, n=0)
        interval = (rounded(self.low), rounded(self.high)) if self.method else None
        return Estimate(value=rounded(self.value), n=self.n, interval=interval, method=self.method)

    @property
    def negative(self) -> ConfidenceBounds:
        """The same of the number with its sign turned."""
        return self._replace(value=-self.value, low=-self.high, high=-self.low)


def verdict_of(bounds: ConfidenceBounds, limit: float, side: Side) -> Verdict:
    """Hold a number against a limit: passed where both ends meet it, failed where neither does,
    else undecided.
    """
    if np.isnan(bounds.low) or np.isnan(bounds.high):
        return "undecided"
    met = [end >= limit if side == "least" else end <= limit for end in (bounds.low, bounds.high)]
    return "pass" if all(met) else "undecided" if any(met) else "fail"


def bounds_of(
    parts: Parts,
    resamples: Resamples,
    *,
    span: tuple[float, float],
    binary: bool,
    confidence: float | None,
) -> ConfidenceBounds:
    """Return Σ numerator / Σ denominator with its ends.

    Where a set's value is 0 or 1 and all weigh the same, they are Clopper and Pearson's: the exact
    test, so a gate errs in 1 − `confidence` of all studies at most. (Mid-P is right on average, and
    errs up to twice that at some limits.) Elsewhere they are those of the interval that the number
    has everywhere, at 2 × `confidence` − 1.

    Args:
        parts: of one model, each of shape (prompt_set,).
        resamples: of as many prompt-sets.
        span: least and greatest value of the metric.
        binary: whether it is 0 or 1 for one response or set.
        confidence: above 0.5 and below 1; None where the number itself counts.
    """
    top, bottom = parts
    n, total = int((bottom > 0).sum()), float(bottom.sum())
    value = float(top.sum()) / total if total > 0 else float("nan")
    if confidence is None or not n:
        return ConfidenceBounds(value, n, value, value)
    if binary and _is_zero_or_one(top, bottom):
        events = round(float(top.sum() / bottom.max()))
        low, high = least_share(events, n, confidence), 1 - least_share(n - events, n, confidence)
        return ConfidenceBounds(value, n, low, high, "clopper-pearson")
    return _estimated(
        value, top, bottom, resamples, span=span, binary=binary, confidence=confidence
    )


def _estimated(
    value: float,
    top: Floats,
    bottom: Floats,
    resamples: Resamples,
    *,
    span: tuple[float, float],
    confidence: float,
    binary: bool = False,
) -> ConfidenceBounds:
    """Return the ends of the interval that a number has everywhere, as one-sided ones."""
    counted = bottom > 0
    # of sets that are all alike, what so many may have missed lies at either end with all of the
    # error
    level = confidence if _alike(top[counted] / bottom[counted]) else 2 * confidence - 1
    found = estimate(top[None], bottom[None], resamples, span=span, binary=binary, confidence=level)
    return ConfidenceBounds(
        value, int(counted.sum()), float(found.low[0]), float(found.high[0]), found.method[0]
    )


def bounds_of_difference(
    new: Parts, old: Parts, resamples: Resamples, *, span: tuple[float, float], confidence: float
) -> ConfidenceBounds:
    """Return the mean of new minus old over the sets that count for both, with its ends.

    Where all sets weigh the same, they are those of the score interval (`score_statistic`;
    for 0 and 1 it is Tango's, Statistics in Medicine 17, 1998), with and without its correction for
    skewness, whichever is farther away: where one of two models alone fails now and then, each of
    them errs up to twice too often on one side. Elsewhere they are the bootstrap's of a mean
    difference, at 2 × `confidence` − 1.

    Args:
        new, old: numerator and denominator, each of shape (prompt_set,).
        resamples, span, confidence: see `bounds_of`.
    """
    both = (new[1] > 0) & (old[1] > 0)
    n, weight = int(both.sum()), np.where(both, np.maximum(new[1], old[1]), 0.0)
    if not n:
        return ConfidenceBounds(*(float("nan"), 0, float("nan"), float("nan")))
    difference = np.zeros(len(both))
    difference[both] = new[0][both] / new[1][both] - old[0][both] / old[1][both]
    value = float((weight * difference).sum() / weight.sum())
    width = span[1] - span[0]
    if _alike(weight[both]) and not _alike(difference[both]):
        values, counts = np.unique(np.round(difference[both], 9), return_counts=True)
        quantile = NormalDist().inv_cdf(confidence)
        intervals = [
            differences_not_rejected(
                values, counts.astype(float), quantile, width, skewness=skewness
            )
            for skewness in (False, True)
        ]
        low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
        return ConfidenceBounds(value, n, low, high, "score")
    return _estimated(
        value, weight * difference, weight, resamples, span=(-width, width), confidence=confidence
    )


def _is_zero_or_one(top: Floats, bottom: Floats) -> bool:
    """Tell whether every set that counts has the value 0 or 1, and all of them weigh the same."""
    counted = bottom > 0
    weights = bottom[counted]
    return _alike(weights) and bool(np.isin(top[counted] / weights, (0.0, 1.0)).all())


def _alike(values: Floats) -> bool:
    return bool(np.allclose(values, values[0], rtol=0, atol=1e-9))


# Is the mean of values in [0, 1] above or below a threshold? A test that may stop at any time
# ------------------------------------------------------------------------------
# Evidence for a mean above m after n values is the average over j = 1 … 20 of ∏ (1 + λ_j (x_i −
# m)), λ_j = j / (21 m): a bet that nobody can win on average if the mean is m or less. By Ville's
# inequality it exceeds 1 / error with probability `error` at most, however often one looks
# (Waudby-Smith and Ramdas, Journal of the Royal Statistical Society B 86, 2024).

_BETS = np.arange(1, 21) / 21


class Evidence:
    """What values say of whether their mean is above or below a threshold.

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
    """Return the limits between which the mean lies, however often one looked: what neither side
    rejected at any time.

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
    """Return the logarithm of what each bet on a mean above some `mean` grows by; shape (…,
    bet).
    """
    return np.asarray(np.log1p(_BETS / mean * (np.asarray(values)[..., None] - mean)))


def _is_enough(logarithms: Floats, error: float) -> NDArray[np.bool_]:
    return np.asarray(np.logaddexp.reduce(logarithms, axis=-1) - log(len(_BETS)) >= -log(error))
