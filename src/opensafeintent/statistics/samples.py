"""Intervals over what was drawn: single items or whole prompt-sets, stratified or not, with
sampling weights.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from math import isnan
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.agreement import RatingCounts, Scheme
from opensafeintent.statistics.exact import wilson
from opensafeintent.statistics.intervals import (
    RESAMPLES,
    SEED,
    Estimate,
    Floats,
    Resamples,
    estimate,
    kish,
    percentiles,
    rounded,
)

_FEWEST_DEVIATING = 10
"""Units that fall short of full agreement: with fewer, resamples hardly differ and the interval
shrinks to a point.
"""
Limits = tuple[float, float] | None
Kind = Literal["share", "score", "difference"]
"""A mean of yes and no or of shares; of what lies between 0 and a greatest value; of what can be
negative.
"""


class SampleEstimate(Estimate, frozen=True, kw_only=True):
    """An estimate from a sample; `n` is the items behind it."""

    se: float | None = None
    """Gwet's standard error, for AC1 and AC2 of a sample without weights."""
    undefined: str = ""
    """Why there is no value."""


class _UnitResamples(Resamples):
    """Bootstrap weights of units: plain, or within strata.

    Within a stratum of n_h units n_h − 1 are drawn, each counting n_h / (n_h − 1) times (Rao and
    Wu, Journal of the American Statistical Association 83, 1988): the spread is unbiased for small
    strata as well. Strata of one unit are put together.
    """

    def __init__(self, strata: NDArray[np.int64], count: int, seed: int) -> None:
        super().__init__(len(strata), count, seed)
        self._strata = _without_singles(strata)

    @cached_property
    def weights(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """How often each unit is drawn: shape (unit, resample)."""
        groups = [np.flatnonzero(self._strata == stratum) for stratum in np.unique(self._strata)]
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
    """Return strata of two units or more: single ones together, and with the smallest other one
    where only one is single.
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
        """Mean 1: they change what counts how much, not how much there is."""
        self.weighted = not np.allclose(self.weights, 1.0)
        self._resamples = _UnitResamples(of_unit, count, seed)

    def _by_unit(self, values: Floats) -> Floats:
        """Return the sum of the items' values in each unit: shape (unit,)."""
        return np.bincount(self.unit, values, self.units).astype(np.float64)

    def mean(
        self, values: Floats, kind: Kind, greatest: float = 1.0, undefined: str = ""
    ) -> SampleEstimate:
        """Return the weighted mean of the items' values, NaN where an item has none: shape
        (item,).
        """
        there = ~np.isnan(values)
        return self.ratio(
            np.where(there, values, 0.0), there.astype(np.float64), kind, greatest, undefined
        )

    def ratio(
        self,
        numerator: Floats,
        denominator: Floats,
        kind: Kind,
        greatest: float = 1.0,
        undefined: str = "",
    ) -> SampleEstimate:
        """Return Σ w·numerator / Σ w·denominator over the items with a 95 % interval over units.

        The interval is the one that docs/statistics.md names for what is averaged.

        Args:
            numerator, denominator: shape (item,).
            kind: what is averaged.
            greatest: value that an item can have; the least is 0, or for a difference its negative.
            undefined: why there is no value, where nothing counts.
        """
        n = int((denominator > 0).sum())
        if not n:
            return SampleEstimate(value=None, n=0, undefined=undefined or "no answers")
        top, bottom = (
            self._by_unit(self.weights * numerator),
            self._by_unit(self.weights * denominator),
        )
        span = (-greatest if kind == "difference" else 0.0, greatest)
        found = estimate(
            top[None], bottom[None], self._resamples, span=span, binary=kind == "share"
        )
        return _estimate(
            float(found.value[0]),
            n,
            (float(found.low[0]), float(found.high[0])),
            str(found.method[0]),
        )

    def gwet(self, counts: RatingCounts, scheme: Scheme, undefined: str = "") -> SampleEstimate:
        """Return AC1 or AC2 with a 95 % interval, and Gwet's standard error where the sample has no
        weights.

        Where fewer than 10 units fall short of full agreement the bootstrap interval would shrink
        to a point; there it is Wilson's interval of the observed agreement, carried over with
        chance agreement as it is.
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
            limits, method = (
                percentiles(patterns.gwet(drawn, scheme), self._units_twice(counts)),
                "bootstrap",
            )
        else:
            chance, observed = (
                float(of(once, scheme)[0]) for of in (counts.expected, counts.observed)
            )
            units = kish(self._by_unit(self.weights * counts.twice))
            low, high = wilson(min(max(observed, 0.0), 1.0), units, continuity=True)
            limits, method = (
                ((low - chance) / (1 - chance), (high - chance) / (1 - chance)),
                "wilson",
            )
        return _estimate(value, n, limits, method, se=None if isnan(error) else error)

    def alpha(self, counts: RatingCounts, undefined: str = "") -> SampleEstimate:
        """Return Krippendorff's alpha with a 95 % interval; none where it is undefined in more than
        1 % of the resamples.
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

    def _drawn(self, counts: RatingCounts) -> tuple[RatingCounts, Floats]:
        """Return every combination of ratings that occurs, and what it counts in each resample:
        (pattern, resample).
        """
        patterns, which = counts.distinct()
        by_unit = np.zeros((len(patterns.counts), self.units))
        np.add.at(by_unit, (which, self.unit), self.weights)
        return patterns, self._resamples.sums(by_unit)

    def _units_twice(self, counts: RatingCounts) -> int:
        return len(np.unique(self.unit[counts.twice]))


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
