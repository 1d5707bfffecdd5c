"""Confidence intervals of ratios over prompt-sets: a cluster bootstrap, and Wilson where it is not to be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import atan, cos, pi, sin, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CONFIDENCE",
    "FEWEST_DEVIATING",
    "FEWEST_SETS",
    "RESAMPLES",
    "SEED",
    "Estimate",
    "Estimates",
    "Resamples",
    "deviating",
    "estimate",
    "percentiles",
    "rounded",
    "t_quantile",
    "wilson",
]

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 20260702

FEWEST_SETS = 30
"""Prompt-sets: with fewer, intervals are Wilson's with continuity correction, and wide."""
_FEWEST_EVENTS = 30
"""At 10 the two methods differ so much that a study near the switch is covered by whichever suits it: 97.5 to
98 % at true shares of .11 to .13 in 115 sets (benchmarks/coverage.py). At 30 they agree, and coverage stays in 93–97 %."""
_RARE_EVENTS = 3
FEWEST_DEVIATING = 10
"""Sets whose value is not the most common one: with fewer, resamples hardly differ and the interval shrinks to a point."""
_MOST_UNDEFINED = 0.01
_WEIGHTS_AT_ONCE = 8_000_000
"""32 MB of weights as numbers to multiply by."""
_DRAWN_AT_ONCE = 25_000
"""Few enough to stay in a processor's cache."""
_COLUMNS = 400
"""Resamples are taken in multiples of this many, so that what a machine multiplies side by side is never cut."""
_ROWS_AT_ONCE = 100
"""4 MB of resampled ratios."""
_MOST_EFFECTIVE = 3.0
"""A set holds three core responses: at most so many independent answers stand behind one set's value."""


def rounded(number: float) -> float:
    """Return a number with six decimals: beyond them, the order in which a machine adds decides."""
    return round(float(number), 6) + 0.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True, rename={"interval": "ci", "method": "ci_method"}):
    """A number and how sure it is: the record that every result with an interval has, or is a kind of.

    In JSON its fields are `value`, `n`, `ci` and `ci_method`.
    """

    value: float | None
    """None where it is undefined."""
    n: int
    """How many prompt-sets (or responses, labels, items) are behind it."""
    interval: tuple[float, float] | None = None
    """95 %, rounded."""
    method: str | None = None
    """How the interval was computed."""

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval is None else self.interval[0]

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return None if self.interval is None else self.interval[1]


class Resamples:
    """Cluster-bootstrap weights over prompt-sets, one matrix for all models and metrics.

    Args:
        sets: number of prompt-sets.
        count: number of resamples.
        seed: of the resampling.
    """

    def __init__(self, sets: int, count: int = RESAMPLES, seed: int = SEED) -> None:
        self.sets = sets
        self.count = count
        self._seed = seed

    @cached_property
    def weights(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """How often each set is drawn, which is hardly ever more than ten times: shape (prompt_set, resample)."""
        generator = np.random.default_rng(self._seed)
        weights = np.empty((self.sets, self.count), dtype=np.uint8)
        block = max(1, _DRAWN_AT_ONCE // self.sets)
        for start in range(0, self.count, block):
            rows = min(block, self.count - start)
            drawn = generator.integers(0, self.sets, size=(rows, self.sets), dtype=np.int64)
            drawn += np.arange(rows, dtype=np.int64)[:, None] * self.sets
            counts = np.bincount(drawn.ravel(), minlength=rows * self.sets)
            weights[:, start : start + rows] = counts.reshape(rows, self.sets).T
        return weights

    def let_go(self) -> None:
        """Let the weights go, 10 kB for each set; whoever asks for them gets the same ones, drawn again."""
        self.__dict__.pop("weights", None)

    def sums(self, values: Floats) -> NDArray[np.float32]:
        """Return Σ values over the sets in each resample: shape (row, prompt_set) becomes (row, resample)."""
        sums = np.empty((len(values), self.count), dtype=np.float32)
        block = max(_COLUMNS, _WEIGHTS_AT_ONCE // self.sets // _COLUMNS * _COLUMNS)
        for start in range(0, self.count, block):
            sums[:, start : start + block] = values.astype(np.float32) @ self.weights[:, start : start + block].astype(
                np.float32
            )
        return sums

    def ratios(self, numerator: Floats, denominator: Floats) -> NDArray[np.float32]:
        """Return Σ numerator / Σ denominator in each resample, NaN where nothing counts.

        Args:
            numerator, denominator: shape (row, prompt_set).

        Returns:
            Shape (row, resample).
        """
        kinds, which = np.unique(denominator, axis=0, return_inverse=True)  # most metrics share their denominators
        bottom = np.where((kinds == 1).all(axis=1)[:, None], np.float32(self.sets), np.float32(0))
        counted = np.flatnonzero(~(kinds == 1).all(axis=1))
        top = self.sums(numerator)
        if len(counted):
            bottom = np.repeat(bottom, self.count, axis=1)
            bottom[counted] = self.sums(kinds[counted])
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = top / bottom[which.ravel()]
        ratios[~np.isfinite(ratios)] = np.nan
        return np.asarray(ratios, dtype=np.float32)


class Estimates(NamedTuple):
    """Values with intervals: arrays of shape (row,), a row for each model, or for each metric and model."""

    value: Floats
    n: NDArray[np.int64]
    """Prompt-sets that count."""
    low: Floats
    high: Floats
    method: list[str | None]
    """`bootstrap`, `wilson` or `bonett-price`; None where there is no value."""

    def records(self) -> list[Estimate]:
        """Return the estimate of each row."""
        rows = zip(self.value.tolist(), self.n.tolist(), self.low.tolist(), self.high.tolist(), self.method, strict=True)
        return [
            Estimate(value=value, n=n, interval=(rounded(low), rounded(high)), method=method)
            if n
            else Estimate(value=None, n=0)
            for value, n, low, high, method in rows
        ]


def estimate(
    numerator: Floats, denominator: Floats, resamples: Resamples, *, span: Sequence[float] | Floats = (0.0, 1.0)
) -> Estimates:
    """Return Σ numerator / Σ denominator of each row with a 95 % interval.

    The interval is the percentile bootstrap over prompt-sets, at levels widened for small samples (Hesterberg, What Teachers
    Should Know About the Bootstrap, 2015, section 5.3: the percentile interval is too narrow by about √((n−1)/n) and by the
    normal instead of the t quantile). With fewer than 30 sets in the denominator, fewer than 30 events or non-events, or more
    than 1 % undefined resamples it is Wilson's; with fewer than 30 sets or 3 events the one with continuity correction.
    With fewer than 10 sets that deviate from the most common value it is Wilson's as well. A metric that can be negative is a
    difference: for the same reasons it is then Bonett and Price's.

    Args:
        numerator, denominator: shape (row, prompt_set).
        resamples: the weights, of as many prompt-sets.
        span: least and greatest value that the metric can take, for all rows or, of shape (row, 2), for each.
    """
    least, greatest = np.broadcast_to(np.asarray(span, dtype=np.float64), (len(numerator), 2)).T
    counted = denominator > 0
    n = counted.sum(axis=1)
    total = denominator.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(total > 0, numerator.sum(axis=1) / total, np.nan)
        share = (value - least) / (greatest - least)
    signed = least < 0
    events = np.where(signed, n, np.minimum(share, 1 - share) * n)
    small = (n < FEWEST_SETS) | (events < _FEWEST_EVENTS)
    for place in np.flatnonzero(~small):
        small[place] = deviating(numerator[place], denominator[place]) < FEWEST_DEVIATING
    low, high = np.full(len(n), np.nan), np.full(len(n), np.nan)
    method: list[str | None] = [None] * len(n)
    rest = np.flatnonzero(~small & (n > 0))
    for start in range(0, len(rest), _ROWS_AT_ONCE):
        block = rest[start : start + _ROWS_AT_ONCE]
        for place, drawn in zip(block, resamples.ratios(numerator[block], denominator[block]), strict=True):
            limits = percentiles(drawn, int(n[place]))
            if limits is None:
                small[place] = True
            else:
                low[place], high[place] = limits
                method[place] = "bootstrap"
    for place in np.flatnonzero(small & (n > 0)):
        top, bottom = numerator[place], denominator[place]
        if signed[place]:
            low[place], high[place] = _bonett_price(top, bottom, greatest[place])
            method[place] = "bonett-price"
            continue
        width = greatest[place] - least[place]
        sure = bool(n[place] < FEWEST_SETS or events[place] < _RARE_EVENTS)
        size = float(n[place]) if sure else _effective_sets(top - least[place] * bottom, width * bottom, share[place])
        limits = wilson(float(share[place]), size, continuity=sure)
        low[place], high[place] = least[place] + width * limits[0], least[place] + width * limits[1]
        method[place] = "wilson"
    return Estimates(value, n, low, high, method)


def wilson(share: float, n: float, *, continuity: bool = False) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of `n` (Wilson 1927; on the mean for scores in [0, 1]).

    With `continuity` the share is first moved by half an event to either side (Newcombe 1998, method 4). Plain Wilson covers
    only 84–93 % for some shares near 0 and 1 and for few sets; the corrected one covers at least 95 % there, and is wider.
    """
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    half_event = 0.5 / n if continuity else 0.0

    def limit(shifted: float, sign: float) -> float:
        centre = shifted + z * z / (2 * n)
        spread = z * sqrt(shifted * (1 - shifted) / n + z * z / (4 * n * n))
        return (centre + sign * spread) / (1 + z * z / n)

    low = 0.0 if share <= half_event else limit(share - half_event, -1.0)
    high = 1.0 if share >= 1 - half_event else limit(share + half_event, 1.0)
    return max(low, 0.0), min(high, 1.0)


def deviating(numerator: Floats, denominator: Floats) -> int:
    """Return how many of the sets that count do not have the most common value, to nine decimals: shape (prompt_set,)."""
    counted = denominator > 0
    _, times = np.unique(np.round(numerator[counted] / denominator[counted], 9), return_counts=True)
    return int(times.sum() - times.max())


def _bonett_price(numerator: Floats, denominator: Floats, greatest: float) -> tuple[float, float]:
    """Return the 95 % interval of a mean difference from few sets (Bonett and Price 2012, for paired proportions).

    Two sets are added, one with the greatest difference either way; the rest is the normal interval.
    """
    counted = denominator > 0
    values = np.append(numerator[counted] / denominator[counted], (greatest, -greatest))
    weights = np.append(denominator[counted], (1.0, 1.0))
    centre = float(np.average(values, weights=weights))
    variance = float(np.average((values - centre) ** 2, weights=weights)) / len(values)
    half = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * sqrt(variance)
    return max(centre - half, -greatest), min(centre + half, greatest)


def _effective_sets(numerator: Floats, denominator: Floats, share: float) -> float:
    """Return how many yes-or-no answers would be as informative as the sets that count, for a ratio in [0, 1].

    The share p of such answers has variance p(1 − p) / n. A mean of scores varies less; its own variance, from the residuals
    of the ratio, gives the n that belongs to it, at least the number of sets and at most three times that.
    """
    counted = denominator > 0
    n = float(counted.sum())
    if n < 2 or share <= 0 or share >= 1:
        return n
    residuals = (numerator - share * denominator)[counted] / denominator[counted].mean()
    variance = float(residuals @ residuals) / (n - 1) / n
    if variance <= 0:
        return n
    return float(np.clip(share * (1 - share) / variance, n, _MOST_EFFECTIVE * n))


def percentiles(drawn: NDArray[np.floating[Any]], n: int) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of `n` units from their resamples, at levels widened for few units.

    Args:
        drawn: a value of each resample, NaN where it is undefined: shape (resample,).
        n: units behind them.

    Returns:
        The limits; None with fewer than two units, or with more than 1 % of the resamples undefined.
    """
    ordered = np.sort(drawn)  # undefined resamples go last
    defined = ordered[: len(ordered) - int(np.isnan(ordered).sum())]
    if n < 2 or len(defined) < (1 - _MOST_UNDEFINED) * len(ordered):
        return None
    tail = _widened_tail(n)
    return _quantile(defined, tail), _quantile(defined, 1 - tail)


@lru_cache(maxsize=4096)
def _widened_tail(n: int) -> float:
    """Return the tail at which a percentile interval of `n` units covers what a t interval would (Hesterberg, 2015)."""
    quantile = t_quantile(0.5 + CONFIDENCE / 2, n - 1)
    return NormalDist().cdf(-quantile * sqrt(n / (n - 1)))


def _quantile(ordered: NDArray[np.floating[Any]], share: float) -> float:
    """Return a quantile of sorted values, interpolated."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (at - below))


# Student's t, for whole degrees of freedom, so that scipy need not be installed -----------------------------------------

_MANY = 200
"""Degrees of freedom from which on the expansion in their inverse is exact to eight digits or more."""


@lru_cache(maxsize=4096)
def t_quantile(share: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, exact to about eight digits.

    Args:
        share: above 0 and below 1.
        degrees: degrees of freedom, 1 or more.

    Source: Abramowitz and Stegun (1964), 26.7.3 and 26.7.4 for few degrees of freedom, 26.7.5 for many.
    """
    if share < 0.5:
        return -t_quantile(1 - share, degrees)
    if degrees >= _MANY:
        return _expanded(NormalDist().inv_cdf(share), degrees)
    low, high = 0.0, 1.0
    while _within(high, degrees) < 2 * share - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 2 * share - 1 else (low, middle)
    return (low + high) / 2


def _within(t: float, degrees: int) -> float:
    """Return the probability of a value between −t and t: a finite sum for whole degrees of freedom."""
    angle = atan(t / sqrt(degrees))
    square = cos(angle) ** 2
    odd = degrees % 2
    term = total = 1.0
    for step in range(2 + odd, degrees - 1, 2):
        term *= square * (step - 1) / step
        total += term
    if not odd:
        return sin(angle) * total if degrees > 0 else 0.0
    return 2 / pi * (angle + (sin(angle) * cos(angle) * total if degrees > 1 else 0.0))


def _expanded(x: float, degrees: int) -> float:
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(degrees) ** power for power, term in enumerate(terms, start=1))
