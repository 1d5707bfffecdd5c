"""Agreement of raters: percent agreement, Gwet's AC1 and AC2, Krippendorff's alpha.

Every coefficient is a function of sums over items of r_ik, the number of raters who put item i into
category k. So a value and all its bootstrap resamples are the same few matrix products. Each method
takes `drawn`, the count of every item in every resample, shape (item, resample). It returns one
value for each resample.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from math import isnan, isqrt, sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import (
    CONFIDENCE,
    METHOD,
    SEED,
    Design,
    Estimate,
    Floats,
    estimate,
    rounded,
    share_interval,
    t_quantile,
)

Drawn = NDArray[Any]
"""How often each item counts in each resample: shape (item, resample)."""

Scheme = Literal["identity", "quadratic"]
"""Weight of two different ratings: 0, or 1 minus the squared distance over the widest distance."""


class RatingCounts:
    """How many raters put each item into each category.

    Args:
        counts: r_ik, shape (item, category).
        categories: every category that a rater could have chosen, used or not: chance agreement
            depends on their number.
    """

    def __init__(self, counts: Floats, categories: Floats) -> None:
        self.counts = counts
        self.categories = categories
        self.raters: Floats = counts.sum(axis=1)
        """r_i: shape (item,)."""

    @classmethod
    def of(cls, ratings: Floats, categories: Sequence[float]) -> RatingCounts:
        """Count ratings of shape (item, rater), NaN if a rater did not rate an item.

        Raises:
            ValueError: a rating is none of the categories.
        """
        valid = np.asarray(categories, dtype=np.float64)
        if not (np.isnan(ratings) | np.isin(ratings, valid)).all():
            raise ValueError("a rating is none of the categories")
        return cls((ratings[:, :, None] == valid).sum(axis=1).astype(np.float64), valid)

    @cached_property
    def twice(self) -> NDArray[np.bool_]:
        """Which items have two ratings or more: shape (item,)."""
        return np.asarray(self.raters >= 2)

    @cached_property
    def once(self) -> Drawn:
        """Every item once: the sample itself."""
        return np.ones((len(self.counts), 1))

    def worth(self, scheme: Scheme) -> Floats:
        """Return the agreement weights of pairs of ratings, w_kl: shape (category, category)."""
        if scheme == "identity":
            return np.eye(len(self.categories))
        span = self.categories.max() - self.categories.min()
        return np.asarray(1.0 - ((self.categories[:, None] - self.categories) / span) ** 2)

    def pairwise(self, scheme: Scheme = "identity") -> Floats:
        """Return each item's share of agreeing pairs, NaN with fewer than two ratings: shape
        (item,).

        a_i = Σ_k r_ik (r*_ik − 1) / (r_i (r_i − 1)) with r*_ik = Σ_l w_kl r_il.
        """
        pairs = self.raters * (self.raters - 1)
        agreeing = (self.counts * (self.counts @ self.worth(scheme) - 1)).sum(axis=1)
        return np.where(pairs > 0, agreeing / np.where(pairs > 0, pairs, 1), np.nan)

    @cached_property
    def _shares(self) -> Floats:
        """Each item's ratings as shares; zeros if it has none."""
        return self.counts / np.maximum(self.raters, 1)[:, None]

    def observed(self, drawn: Drawn, scheme: Scheme = "identity") -> Floats:
        """Return p_a, the mean of a_i over the items with two ratings or more: shape
        (resample,).
        """
        pairwise = self.pairwise(scheme)
        twice = ~np.isnan(pairwise)
        return _ratio(_sums(drawn, np.where(twice, pairwise, 0.0)), _sums(drawn, twice))

    def _prevalence(self, drawn: Drawn) -> Floats:
        """Return π_k, the mean share of ratings in each category over the rated items: shape
        (resample, category).
        """
        return _ratio(_sums(drawn, self._shares), _sums(drawn, self.raters > 0)[:, None])

    def expected(self, drawn: Drawn, scheme: Scheme = "identity") -> Floats:
        """Return Gwet's chance agreement p_e = T / (q (q − 1)) · Σ_k π_k (1 − π_k), T = Σ w_kl:
        shape (resample,).
        """
        prevalence = self._prevalence(drawn)
        return np.asarray(self._chance(scheme) * (prevalence * (1 - prevalence)).sum(axis=1))

    def _chance(self, scheme: Scheme) -> float:
        size = len(self.categories)
        return float(self.worth(scheme).sum()) / (size * (size - 1))

    def gwet(self, drawn: Drawn, scheme: Scheme = "identity") -> Floats:
        """Return Gwet's coefficient (p_a − p_e) / (1 − p_e), AC1 with `identity` and AC2 otherwise:
        shape (resample,).

        Gwet, British Journal of Mathematical and Statistical Psychology 61, 2008; Handbook of
        Inter-Rater Reliability, 4th edition, 2014. It is 1 if all ratings are equal, and NaN if no
        item has two.
        """
        expected = self.expected(drawn, scheme)
        return _ratio(self.observed(drawn, scheme) - expected, 1 - expected)

    def gwet_error(self, scheme: Scheme = "identity") -> float:
        """Return the standard error of Gwet's coefficient over items (Gwet 2008; for missing
        ratings 2014).

        √(Σ_i (c_i − γ)² / (n (n − 1))) over the n rated items, with

        - γ the coefficient, and n₂ the items with two ratings or more;
        - c_i = n/n₂ · (a_i − p_e)/(1 − p_e) − 2 (1 − γ)(e_i − p_e)/(1 − p_e), its first part 0 if
          the item has one rating;
        - e_i = T / (q (q − 1)) · Σ_k (1 − π_k) r_ik / r_i.
        """
        value = float(self.gwet(self.once, scheme)[0])
        expected = float(self.expected(self.once, scheme)[0])
        rated = self.raters > 0
        items = int(rated.sum())
        if items < 2 or np.isnan(value):
            return float("nan")
        pairwise = self.pairwise(scheme)[rated]
        twice = ~np.isnan(pairwise)
        own = np.where(twice, pairwise - expected, 0.0) * items / twice.sum()
        chance = self._chance(scheme) * (self._shares[rated] @ (1 - self._prevalence(self.once)[0]))
        parts = (own - 2 * (1 - value) * (chance - expected)) / (1 - expected)
        return float(np.sqrt(((parts - value) ** 2).sum() / (items * (items - 1))))

    def alpha(self, drawn: Drawn) -> Floats:
        """Return Krippendorff's alpha for nominal data: shape (resample,).

        α = 1 − (n − 1) Σ o_kl δ_kl / Σ n_k n_l δ_kl (Krippendorff, Computing Krippendorff's
        Alpha-Reliability, 2011), with

        - o_kl the coincidences Σ_i (pairs k, l in i) / (r_i − 1) over items with two ratings or
          more;
        - n_k = Σ_l o_kl and n = Σ n_k;
        - δ_kl 1 for two different categories.

        It is NaN if all ratings are equal: chance disagreement is then 0.
        """
        size = len(self.categories)
        same = np.eye(size)
        pairs = self.counts[:, :, None] * self.counts[:, None, :] - self.counts[:, :, None] * same
        pairs = pairs * (self.twice / np.maximum(self.raters - 1, 1))[:, None, None]
        coincidences = _sums(drawn, pairs.reshape(len(pairs), size * size)).reshape(-1, size, size)
        totals = coincidences.sum(axis=2)
        ratings = totals.sum(axis=1)
        seen = (coincidences * (1 - same)).sum(axis=(1, 2))
        chance = (totals[:, :, None] * totals[:, None, :] * (1 - same)).sum(axis=(1, 2))
        return 1 - _ratio((ratings - 1) * seen, chance)


def _sums(drawn: Drawn, features: NDArray[Any]) -> Floats:
    """Return the sums of features over drawn items: shape (resample,) or (resample, feature)."""
    return np.asarray(drawn.T @ features.astype(drawn.dtype), dtype=np.float64)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """Return top / bottom, NaN if the bottom is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(bottom > 1e-9, top / bottom, np.nan)


# Resamples: of coefficients that are no ratio of sums
# ------------------------------------------------------------------------------

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

    def let_go(self) -> None:
        """Free the weights, 10 kB for each set; the next use draws the same ones again."""
        self.__dict__.pop("weights", None)

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


# Intervals of samples
# ------------------------------------------------------------------------------
# Single items or whole prompt-sets, stratified or not, with sampling weights.

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


class _UnitResamples(Resamples):
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
    others = numbers[sizes > 1]
    home = single[0] if len(single) > 1 or not len(others) else others[np.argmin(sizes[sizes > 1])]
    return np.where(np.isin(strata, single), home, strata)


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
        self._resamples = _UnitResamples(of_unit, count, seed)
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
        known = np.where(complete[:, None], values, 0.0)
        parts = (complete[:, None], known, known[:, first] * known[:, second])
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
    total, means = sums[0], sums[1 : columns + 1] / sums[0]
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
