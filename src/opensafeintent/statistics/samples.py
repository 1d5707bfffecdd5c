"""Samples of single items or of whole prompt-sets, stratified or not, with sampling weights: means,
coefficients of agreement and correlations, each with its interval.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import isnan, isqrt

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.agreement import RatingCounts, Scheme
from opensafeintent.statistics.intervals import (
    METHOD,
    SEED,
    Design,
    Estimate,
    Floats,
    estimate,
    rounded,
    share_interval,
)
from opensafeintent.statistics.resampling import RESAMPLES, UnitResamples, percentiles

_FEWEST_DEVIATING = 10
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
        self.unit, self.units = _numbered(units)
        stratum, self.strata = _numbered(strata if strata is not None else [""] * len(units))
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

    def _by_unit(self, values: Floats) -> Floats:
        """Return the sum of the items' values in each unit: shape (unit,)."""
        return np.bincount(self.unit, values, self.units).astype(np.float64)

    def mean(
        self, values: Floats, span: tuple[float, float] = (0.0, 1.0), undefined: str = ""
    ) -> SampleEstimate:
        """Return the weighted mean of the items' values, NaN for an item without one: shape
        (item,).
        """
        defined = ~np.isnan(values)
        return self.ratio(
            np.where(defined, values, 0.0), defined.astype(np.float64), span, undefined
        )

    def ratio(
        self,
        numerator: Floats,
        denominator: Floats,
        span: tuple[float, float] = (0.0, 1.0),
        undefined: str = "",
    ) -> SampleEstimate:
        """Return Σ w·numerator / Σ w·denominator over the items with a 95 % interval over units.

        The interval is the one of docs/statistics.md for averages. With sampling weights, a
        pseudo-observation weighs as much as the heaviest unit that was drawn.

        Args:
            numerator, denominator: shape (item,).
            span: least and greatest value that an item can have.
            undefined: the reason for a missing value, if no item counts.
        """
        n = int((denominator > 0).sum())
        if not n:
            return SampleEstimate(value=None, n=0, undefined=undefined or "no answers")
        interval = estimate(
            self._by_unit(self.weights * numerator)[None],
            self._by_unit(self.weights * denominator)[None],
            span=span,
            design=self._design,
            pseudo_weight=self._by_unit(self.weights).max(keepdims=True) if self.weighted else None,
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
        if len(np.unique(self.unit[pairwise < 1])) >= _FEWEST_DEVIATING:
            patterns, drawn = self._drawn(counts)
            limits = percentiles(patterns.gwet(drawn, scheme), self._units_twice(counts))
            method = "bootstrap"
        else:
            chance, observed = (
                float(of(once, scheme)[0]) for of in (counts.expected, counts.observed)
            )
            weights = self._by_unit(self.weights * counts.twice)
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
        patterns, drawn = self._drawn(counts)
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
        features = np.concatenate([part * self.weights[:, None] for part in parts], axis=1)
        by_unit = np.array([self._by_unit(feature) for feature in features.T])
        value = _mean_correlation(by_unit.sum(axis=1, keepdims=True))[0]
        n = int(complete.sum())
        if isnan(value):
            return SampleEstimate(value=None, n=n, undefined=undefined)
        drawn = _mean_correlation(self._resamples.sums(by_unit))
        units = len(np.unique(self.unit[complete]))
        return _estimate(float(value), n, percentiles(drawn, units), "bootstrap")

    def _drawn(self, counts: RatingCounts) -> tuple[RatingCounts, Floats]:
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
    return SampleEstimate(
        value=value, n=n, interval=(rounded(limits[0]), rounded(limits[1])), method=method, se=se
    )


def _numbered(names: Sequence[Hashable]) -> tuple[NDArray[np.int64], int]:
    """Return each name's number, and how many there are."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64), len(numbers)
