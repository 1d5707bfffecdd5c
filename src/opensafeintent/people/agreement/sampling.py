"""Intervals over what was drawn: single items or whole prompt-sets, stratified or not, with sampling weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from math import isnan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opensafeintent.people.agreement.coefficients import Level, RatingCounts, Scheme
from opensafeintent.people.agreement.records import Estimate
from opensafeintent.statistics.intervals import RESAMPLES, SEED, Resamples, estimate, widened_tail, wilson

__all__ = ["Sample"]

Floats = NDArray[np.float64]
Kind = Literal["share", "score", "difference"]
"""A mean of yes and no or of shares; of what lies between 0 and a greatest value; of what can be negative."""

_MOST_UNDEFINED = 0.01
_FEWEST_DEVIATING = 10
"""Units whose value is not the most common one: with fewer, resamples hardly differ and the interval shrinks to a point."""


class _UnitResamples(Resamples):
    """Bootstrap weights of units: plain, or within strata.

    Within a stratum of n_h units n_h − 1 are drawn, each counting n_h / (n_h − 1) times (Rao and Wu, Journal of the American
    Statistical Association 83, 1988): the spread is unbiased for small strata as well. Strata of one unit are put together.
    """

    def __init__(self, strata: NDArray[np.int64], count: int, seed: int) -> None:
        super().__init__(len(strata), count, seed)
        self._strata = _without_singles(strata)
        self._seed_within = seed

    @cached_property
    def weights(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """How often each unit is drawn: shape (unit, resample)."""
        groups = [np.flatnonzero(self._strata == stratum) for stratum in np.unique(self._strata)]
        if len(groups) == 1:
            return super().weights
        generator = np.random.default_rng(self._seed_within)
        weights = np.empty((self.sets, self.count), dtype=np.float32)
        for group in groups:
            size = len(group)
            drawn = generator.multinomial(size - 1, np.full(size, 1 / size), size=self.count)
            weights[group] = drawn.T * (size / (size - 1))
        return weights


def _without_singles(strata: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return strata of two units or more: single ones together, and with the smallest other one where only one is single."""
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
        units: the unit that each item belongs to: the item itself, or its prompt-set. Shape (item,).
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

    @cached_property
    def _drawn(self) -> NDArray[np.float32]:
        """What each item counts in each resample: shape (item, resample)."""
        return self._resamples.weights[self.unit].astype(np.float32) * self.weights[:, None].astype(np.float32)

    def _by_unit(self, values: Floats) -> Floats:
        """Return the sum of the items' values in each unit: shape (unit,)."""
        return np.bincount(self.unit, values, self.units).astype(np.float64)

    def mean(self, values: Floats, kind: Kind, greatest: float = 1.0, undefined: str = "") -> Estimate:
        """Return the weighted mean of the items' values, NaN where an item has none: shape (item,)."""
        there = ~np.isnan(values)
        return self.ratio(np.where(there, values, 0.0), there.astype(np.float64), kind, greatest, undefined)

    def ratio(
        self, numerator: Floats, denominator: Floats, kind: Kind, greatest: float = 1.0, undefined: str = ""
    ) -> Estimate:
        """Return Σ w·numerator / Σ w·denominator over the items with a 95 % interval over units.

        Shares and differences have the intervals of docs/statistics.md, a Wilson interval of a weighted sample with Kish's
        effective number of units; scores the percentile bootstrap, and Wilson's with fewer than 10 deviating units.

        Args:
            numerator, denominator: shape (item,).
            kind: what is averaged.
            greatest: value that an item can have; the least is 0, or for a difference its negative.
            undefined: why there is no value, where nothing counts.
        """
        n = int((denominator > 0).sum())
        if not n:
            return Estimate(value=None, n=0, undefined=undefined or "no answers")
        top, bottom = self._by_unit(self.weights * numerator), self._by_unit(self.weights * denominator)
        value = float(top.sum() / bottom.sum())
        if kind == "score" and _deviating(top, bottom) >= _FEWEST_DEVIATING:
            drawn = self._resamples.ratios(top[None], bottom[None])[0]
            return self._with_percentiles(value, n, drawn, int((bottom > 0).sum()))
        least = -greatest if kind == "difference" else 0.0
        found = estimate(top[None], bottom[None], self._resamples, span=(least, greatest))
        low, high, method = float(found.low[0]), float(found.high[0]), found.method[0]
        if kind == "score" or (method == "wilson" and self.weighted):
            share = min(max(value / greatest, 0.0), 1.0)
            low, high = (greatest * limit for limit in wilson(share, _effective_units(bottom), continuity=True))
            method = "wilson"
        return Estimate(value=value, n=n, ci=(low, high), ci_method=method)

    def gwet(self, counts: RatingCounts, scheme: Scheme, undefined: str) -> Estimate:
        """Return AC1 or AC2 with a 95 % interval, and Gwet's standard error where the sample has no weights.

        Where fewer than 10 units fall short of full agreement the bootstrap interval would shrink to a point; there it is
        Wilson's interval of the observed agreement, carried over with chance agreement as it is.
        """
        once = self.weights[:, None]
        value = float(counts.gwet(once, scheme)[0])
        twice = counts.raters >= 2
        n = int(twice.sum())
        if isnan(value):
            return Estimate(value=None, n=n, undefined=undefined)
        error = None if self.weighted or self.units < len(self.unit) else counts.gwet_error(scheme)
        pairwise = counts.pairwise(scheme)
        short = self._by_unit((np.nan_to_num(pairwise, nan=1.0) < 1).astype(np.float64))
        if (short > 0).sum() >= _FEWEST_DEVIATING:
            found = self._with_percentiles(value, n, counts.gwet(self._drawn, scheme), len(np.unique(self.unit[twice])))
        else:
            chance = float(counts.expected(once, scheme)[0])
            observed = self.mean(pairwise, "score").ci or (0.0, 1.0)
            low, high = ((limit - chance) / (1 - chance) for limit in observed)
            found = Estimate(value=value, n=n, ci=(low, high), ci_method="wilson")
        return Estimate(value=value, n=n, ci=found.ci, ci_method=found.ci_method, se=_defined(error))

    def alpha(self, counts: RatingCounts, level: Level, undefined: str) -> Estimate:
        """Return Krippendorff's alpha with a 95 % interval; none where it is undefined in more than 1 % of the resamples."""
        n = int((counts.raters >= 2).sum())
        value = float(counts.alpha(self.weights[:, None], level)[0])
        if isnan(value):
            return Estimate(value=None, n=n, undefined="every answer is the same" if n else undefined)
        units = len(np.unique(self.unit[counts.raters >= 2]))
        return self._with_percentiles(value, n, counts.alpha(self._drawn, level), units)

    def _with_percentiles(self, value: float, n: int, drawn: NDArray[Any], units: int) -> Estimate:
        """Return a value with the percentile interval of its resamples, widened for few units (docs/statistics.md)."""
        defined = drawn[~np.isnan(drawn)]
        if units < 2 or len(defined) < (1 - _MOST_UNDEFINED) * len(drawn):
            return Estimate(value=value, n=n)
        tail = widened_tail(units)
        low, high = np.quantile(defined, (tail, 1 - tail))
        return Estimate(value=value, n=n, ci=(float(low), float(high)), ci_method="bootstrap")


def _numbered(names: Sequence[Hashable]) -> tuple[NDArray[np.int64], int]:
    """Return each name's number, and how many there are."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64), len(numbers)


def _defined(value: float | None) -> float | None:
    return None if value is None or isnan(value) else value


def _deviating(top: Floats, bottom: Floats) -> int:
    """Return how many of the units that count do not have the most common value."""
    values = np.round(top[bottom > 0] / bottom[bottom > 0], 9)
    _, times = np.unique(values, return_counts=True)
    return int(times.sum() - times.max())


def _effective_units(bottom: Floats) -> float:
    """Return how many units of equal weight are as informative (Kish, Survey Sampling, 1965): (Σ w)² / Σ w²."""
    return float(bottom.sum() ** 2 / (bottom**2).sum())
