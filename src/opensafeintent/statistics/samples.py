"""Statistics of samples: weights, resampling, and agreement on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from math import isnan, isqrt, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.coefficients import RatingCounts, Scheme
from opensafeintent.statistics.intervals import (
    CONFIDENCE,
    METHOD,
    SEED,
    Design,
    Estimate,
    Floats,
    estimate,
    make_parts,
    number_names,
    round_limits,
    share_interval,
    t_quantile,
)

RESAMPLES = 10_000
_MOST_UNDEFINED = 0.01
_WEIGHTS_AT_ONCE = 4_000_000
"""32 MB of weights as numbers to multiply by."""
_DRAWN_AT_ONCE = 25_000
"""Few enough to stay in a processor's cache."""
_COLUMNS = 400
"""Resamples come in multiples of this number, so that no block of a vectorised product is cut."""


class UnitResamples:
    """Bootstrap weights of units: plain, or within strata.

    Within a stratum of n_h units n_h − 1 are drawn, each counting n_h / (n_h − 1) times (Rao and
    Wu, Journal of the American Statistical Association 83, 1988). So the variance is unbiased for
    small strata too. Strata of one unit are merged.

    Args:
        strata: of each unit, shape (unit,).
        count: number of resamples.
        seed: of the resampling.
    """

    def __init__(self, strata: NDArray[np.int64], count: int, seed: int) -> None:
        self.strata = _merge_singles(strata)
        self._units, self._count, self._seed = len(strata), count, seed

    @cached_property
    def weights(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """How often each unit is drawn: shape (unit, resample)."""
        generator = np.random.default_rng(self._seed)
        groups = [np.flatnonzero(self.strata == stratum) for stratum in np.unique(self.strata)]
        if len(groups) == 1:
            return self._draw_plain(generator)
        weights = np.empty((self._units, self._count), dtype=np.float32)
        for group in groups:
            size = len(group)
            drawn = generator.multinomial(size - 1, np.full(size, 1 / size), size=self._count)
            weights[group] = drawn.T * (size / (size - 1))
        return weights

    def _draw_plain(self, generator: np.random.Generator) -> NDArray[np.uint8]:
        """Return how often each unit is drawn, which is hardly ever more than ten times."""
        units = self._units
        weights = np.empty((units, self._count), dtype=np.uint8)
        block = max(1, _DRAWN_AT_ONCE // units)
        for start in range(0, self._count, block):
            rows = min(block, self._count - start)
            drawn = generator.integers(0, units, size=(rows, units), dtype=np.int64)
            drawn += np.arange(rows, dtype=np.int64)[:, None] * units
            counts = np.bincount(drawn.ravel(), minlength=rows * units)
            weights[:, start : start + rows] = counts.reshape(rows, units).T
        return weights

    def sums(self, values: Floats) -> Floats:
        """Return Σ values over the units in each resample: shape (row, unit) becomes (row,
        resample).
        """
        sums = np.empty((len(values), self._count))
        block = max(_COLUMNS, _WEIGHTS_AT_ONCE // self._units // _COLUMNS * _COLUMNS)
        for start in range(0, self._count, block):
            sums[:, start : start + block] = values @ self.weights[:, start : start + block].astype(
                np.float64
            )
        return sums


def _merge_singles(strata: NDArray[np.int64]) -> NDArray[np.int64]:
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
    tail = NormalDist().cdf(-t_quantile(0.5 + CONFIDENCE / 2, n - 1) * sqrt(n / (n - 1)))
    return _quantile(defined, tail), _quantile(defined, 1 - tail)


def _quantile(drawn: NDArray[np.floating[Any]], share: float) -> float:
    """Return a quantile, interpolated."""
    at = share * (len(drawn) - 1)
    below = int(at)
    above = min(below + 1, len(drawn) - 1)
    ordered = np.partition(drawn, (below, above))
    return float(ordered[below] + (ordered[above] - ordered[below]) * (at - below))


FEWEST_DEVIATING = 10
"""Units that fall short of full agreement: with fewer, resamples hardly differ and the interval
shrinks to a point.
"""
Limits = tuple[float, float] | None


class SampleEstimate(Estimate, frozen=True, kw_only=True):
    """An estimate from a sample; `n` is the items behind it."""

    se: float | None = None
    """Gwet's standard error, for AC1 and AC2 of a sample without weights."""
    undefined: str = ""
    """Why there is no value."""


class Sample:
    """Items as they were drawn, with the resamples behind every interval.

    Args:
        units: the unit that each item belongs to: the item itself, or its prompt-set. Shape
            (item,).
        strata: the stratum that each item's unit was drawn from. Shape (item,).
        weights: one over the probability with which each item was drawn. Shape (item,).
        count: number of resamples.
        seed: of the resampling.
    """

    def __init__(
        self,
        units: Sequence[Hashable],
        strata: Sequence[Hashable] | None = None,
        weights: Sequence[float] | None = None,
        *,
        count: int = RESAMPLES,
        seed: int = SEED,
    ) -> None:
        self.unit, self.units = number_names(units)
        stratum, self.strata = number_names(strata if strata is not None else [""] * len(units))
        of_unit = np.zeros(self.units, dtype=np.int64)
        of_unit[self.unit] = stratum
        raw = np.asarray(weights if weights is not None else np.ones(len(units)), dtype=np.float64)
        self.weights: Floats = raw / raw.mean()
        """Mean 1: weights change the share of each item, not the number of items."""
        self.weighted = not np.allclose(self.weights, 1.0)
        self._resamples = UnitResamples(of_unit, count, seed)
        chances = np.ones(self.units)
        chances[self.unit] = 1 / np.maximum(raw, 1.0)
        self._design = Design(self._resamples.strata, chances)

    def _sum_by_unit(self, values: Floats) -> Floats:
        """Return the sum of the items' values in each unit: shape (unit,)."""
        return np.bincount(self.unit, values, self.units).astype(np.float64)

    def mean(
        self, values: Floats, span: tuple[float, float] = (0.0, 1.0), undefined: str = ""
    ) -> SampleEstimate:
        """Return the weighted mean of the items' values, NaN for an item without one: shape
        (item,).
        """
        return self.ratio(*make_parts(values), span, undefined)

    def mean_grade(
        self, values: Floats, span: tuple[float, float], undefined: str = ""
    ) -> SampleEstimate:
        """Return the mean as `mean` does, with pseudo-observations of the weight of one item.

        Of differences between grades: two units of many items at the ends of so wide a scale make
        an interval that hardly depends on the data (benchmarks/README.md).
        """
        heaviest = float(self.weights.max())
        return self.ratio(*make_parts(values), span, undefined, pseudo_weight=heaviest)

    def ratio(
        self,
        numerator: Floats,
        denominator: Floats,
        span: tuple[float, float] = (0.0, 1.0),
        undefined: str = "",
        *,
        pseudo_weight: float | None = None,
    ) -> SampleEstimate:
        """Return Σ w·numerator / Σ w·denominator over the items with a 95 % interval over units.

        The interval is the one of docs/statistics.md for averages. With sampling weights, a
        pseudo-observation weighs as much as the heaviest unit that was drawn.

        Args:
            numerator, denominator: shape (item,).
            span: least and greatest value that an item can have.
            undefined: the reason for a missing value, if no item counts.
            pseudo_weight: of a pseudo-observation, in place of the weight of a unit.
        """
        if pseudo_weight is None and self.weighted:
            pseudo_weight = float(self._sum_by_unit(self.weights).max())
        n = int((denominator > 0).sum())
        if not n:
            return SampleEstimate(value=None, n=0, undefined=undefined or "no answers")
        interval = estimate(
            self._sum_by_unit(self.weights * numerator)[None],
            self._sum_by_unit(self.weights * denominator)[None],
            span=span,
            design=self._design,
            pseudo_weight=None if pseudo_weight is None else np.array([pseudo_weight]),
        )
        return _estimate(
            float(interval.value[0]),
            n,
            (float(interval.low[0]), float(interval.high[0])),
            METHOD,
        )

    def gwet(self, counts: RatingCounts, scheme: Scheme, undefined: str = "") -> SampleEstimate:
        """Return AC1 or AC2 with a 95 % interval, and Gwet's standard error if the sample has no
        weights.

        With fewer than 10 units short of full agreement, the bootstrap interval would shrink to a
        point. The interval is then that of the observed agreement as a share, with chance agreement
        fixed.
        """
        once = self.weights[:, None]
        value, n = float(counts.gwet(once, scheme)[0]), int(counts.twice.sum())
        if isnan(value):
            return SampleEstimate(value=None, n=n, undefined=undefined)
        error = (
            float("nan")
            if self.weighted or self.units < len(self.unit)
            else counts.gwet_error(scheme)
        )
        pairwise = counts.pairwise(scheme)
        if len(np.unique(self.unit[pairwise < 1])) >= FEWEST_DEVIATING:
            patterns, drawn = self._draw_counts(counts)
            limits = percentiles(patterns.gwet(drawn, scheme), self._units_twice(counts))
            method = "bootstrap"
        else:
            chance, observed = (
                float(of(once, scheme)[0])
                for of in (counts.compute_expected, counts.compute_observed)
            )
            weights = self._sum_by_unit(self.weights * counts.twice)
            units = round(float(weights.sum() ** 2 / (weights @ weights)), 9)  # Kish's number
            low, high = share_interval(min(max(observed, 0.0), 1.0), units)
            limits = (low - chance) / (1 - chance), (high - chance) / (1 - chance)
            method = METHOD
        return _estimate(value, n, limits, method, se=None if isnan(error) else error)

    def alpha(self, counts: RatingCounts, undefined: str = "") -> SampleEstimate:
        """Return Krippendorff's alpha with a 95 % interval; no interval if alpha is undefined in
        more than 1 % of the resamples.
        """
        n = int(counts.twice.sum())
        value = float(counts.alpha(self.weights[:, None])[0])
        if isnan(value):
            return SampleEstimate(
                value=None, n=n, undefined="every answer is the same" if n else undefined
            )
        patterns, drawn = self._draw_counts(counts)
        return _estimate(
            value,
            n,
            percentiles(patterns.alpha(drawn), self._units_twice(counts)),
            "bootstrap",
        )

    def correlation(self, values: Floats, undefined: str = "") -> SampleEstimate:
        """Return the mean of the Pearson correlations of each two columns, with a 95 % interval
        over units. There is none if a column does not vary, in the sample or in over 1 % of the
        resamples.

        Args:
            values: shape (item, column); items with NaN are left out.
            undefined: why there is no value, if a column does not vary.
        """
        complete = np.asarray(~np.isnan(values).any(axis=1))
        first, second = np.triu_indices(values.shape[1])
        filled = np.where(complete[:, None], values, 0.0)
        parts = (complete[:, None], filled, filled[:, first] * filled[:, second])
        (estimate,) = self.resample(
            np.concatenate(parts, axis=1).T,
            lambda sums: _mean_correlation(sums)[None],
            complete,
            undefined,
        )
        return estimate

    def resample(
        self,
        features: Floats,
        compute: Callable[[Floats], Floats],
        counts: NDArray[np.bool_],
        undefined: str = "",
    ) -> list[SampleEstimate]:
        """Return numbers that follow from weighted sums over the items, each with a 95 % percentile
        interval over units; none if it is undefined in over 1 % of the resamples.

        Args:
            features: of the items, shape (feature, item).
            compute: makes numbers, NaN if they are undefined, from sums of the features: (feature,
                resample) becomes (number, resample).
            counts: the items behind the numbers, shape (item,).
            undefined: why there is no value, if one is NaN.
        """
        by_unit = np.array([self._sum_by_unit(self.weights * feature) for feature in features])
        values = compute(by_unit.sum(axis=1, keepdims=True))[:, 0].tolist()
        n, units = int(counts.sum()), len(np.unique(self.unit[counts]))
        if any(map(isnan, values)):
            return [SampleEstimate(value=None, n=n, undefined=undefined)] * len(values)
        drawn = compute(self._resamples.sums(by_unit))
        return [
            _estimate(value, n, percentiles(of, units), "bootstrap")
            for value, of in zip(values, drawn, strict=True)
        ]

    def _draw_counts(self, counts: RatingCounts) -> tuple[RatingCounts, Floats]:
        """Return every combination of ratings that occurs, and its count in each resample:
        (pattern, resample).
        """
        patterns, which = np.unique(counts.counts, axis=0, return_inverse=True)
        by_unit = np.zeros((len(patterns), self.units))
        np.add.at(by_unit, (which.ravel(), self.unit), self.weights)
        return RatingCounts(patterns, counts.categories), self._resamples.sums(by_unit)

    def _units_twice(self, counts: RatingCounts) -> int:
        return len(np.unique(self.unit[counts.twice]))


def _mean_correlation(sums: Floats) -> Floats:
    """Return the mean correlation of each two of k columns, NaN if one of them does not vary: shape
    (resample,).

    Args:
        sums: the weights; Σ w·x of each column; Σ w·x·y of each two, in the order of
            `numpy.triu_indices`. Shape (1 + k + k·(k + 1)/2, resample).
    """
    columns = (isqrt(8 * len(sums) + 1) - 3) // 2
    total = np.where(sums[0] > 0, sums[0], np.nan)
    means = sums[1 : columns + 1] / total
    first, second = np.triu_indices(columns)
    covariances = sums[columns + 1 :] / total - means[first] * means[second]
    apart = np.less(first, second)
    variances = covariances[~apart]
    products = variances[first[apart]] * variances[second[apart]]
    correlations = covariances[apart] / np.sqrt(np.maximum(products, 1e-18))
    return np.where((variances > 1e-9).all(axis=0), correlations.mean(axis=0), np.nan)


def _estimate(
    value: float, n: int, limits: Limits, method: str, *, se: float | None = None
) -> SampleEstimate:
    if limits is None:
        return SampleEstimate(value=value, n=n, se=se)
    return SampleEstimate(value=value, n=n, interval=round_limits(*limits), method=method, se=se)
