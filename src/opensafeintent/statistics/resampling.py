"""Bootstrap resamples over prompt-sets and other units, of coefficients that are no ratio of sums;
their percentile intervals.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import CONFIDENCE, SEED, Floats
from opensafeintent.statistics.students_t import t_quantile

RESAMPLES = 10_000
_MOST_UNDEFINED = 0.01
_WEIGHTS_AT_ONCE = 4_000_000
"""32 MB of weights as numbers to multiply by."""
_DRAWN_AT_ONCE = 25_000
"""Few enough to stay in a processor's cache."""
_COLUMNS = 400
"""Resamples come in multiples of this number, so that no block of a vectorised product is cut."""


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
        """How often each set is drawn, which is hardly ever more than ten times: shape (prompt_set,
        resample).
        """
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

    def sums(self, values: Floats) -> Floats:
        """Return Σ values over the sets in each resample: shape (row, prompt_set) becomes (row,
        resample).
        """
        sums = np.empty((len(values), self.count))
        block = max(_COLUMNS, _WEIGHTS_AT_ONCE // self.sets // _COLUMNS * _COLUMNS)
        for start in range(0, self.count, block):
            sums[:, start : start + block] = values @ self.weights[:, start : start + block].astype(
                np.float64
            )
        return sums


class UnitResamples(Resamples):
    """Bootstrap weights of units: plain, or within strata.

    Within a stratum of n_h units n_h − 1 are drawn, each counting n_h / (n_h − 1) times (Rao and
    Wu, Journal of the American Statistical Association 83, 1988). So the variance is unbiased for
    small strata too. Strata of one unit are merged.
    """

    def __init__(self, strata: NDArray[np.int64], count: int, seed: int) -> None:
        super().__init__(len(strata), count, seed)
        self.strata = _without_singles(strata)

    @cached_property
    def weights(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """How often each unit is drawn: shape (unit, resample)."""
        groups = [np.flatnonzero(self.strata == stratum) for stratum in np.unique(self.strata)]
        if len(groups) == 1:
            return super().weights
        generator = np.random.default_rng(self._seed)
        weights = np.empty((self.sets, self.count), dtype=np.float32)
        for group in groups:
            size = len(group)
            drawn = generator.multinomial(size - 1, np.full(size, 1 / size), size=self.count)
            weights[group] = drawn.T * (size / (size - 1))
        return weights


def _without_singles(strata: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return strata of two units or more: single ones are merged; if only one is single, it joins
    the smallest other one.
    """
    numbers, sizes = np.unique(strata, return_counts=True)
    single = numbers[sizes == 1]
    if not len(single) or len(numbers) == 1:
        return strata
    larger = numbers[sizes > 1]
    home = single[0] if len(single) > 1 or not len(larger) else larger[np.argmin(sizes[sizes > 1])]
    return np.where(np.isin(strata, single), home, strata)


def percentiles(drawn: NDArray[np.floating[Any]], n: int) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of `n` units from their resamples, at levels widened for
    few units.

    A percentile interval is too narrow by about √((n−1)/n), and by the normal instead of the t
    quantile (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section 5.3).

    Args:
        drawn: a value of each resample, NaN if it is undefined: shape (resample,).
        n: units behind them.

    Returns:
        The limits; None with fewer than two units, or with more than 1 % of the resamples
            undefined.
    """
    defined = drawn[~np.isnan(drawn)]
    if n < 2 or len(defined) < (1 - _MOST_UNDEFINED) * len(drawn):
        return None
    tail = _normal_tail(t_quantile(0.5 + CONFIDENCE / 2, n - 1) * sqrt(n / (n - 1)))
    return _quantile(defined, tail), _quantile(defined, 1 - tail)


@lru_cache(maxsize=4096)
def _normal_tail(distance: float) -> float:
    return NormalDist().cdf(-distance)


def _quantile(drawn: NDArray[np.floating[Any]], share: float) -> float:
    """Return a quantile, interpolated."""
    at = share * (len(drawn) - 1)
    below = int(at)
    above = min(below + 1, len(drawn) - 1)
    ordered = np.partition(drawn, (below, above))
    return float(ordered[below] + (ordered[above] - ordered[below]) * (at - below))
