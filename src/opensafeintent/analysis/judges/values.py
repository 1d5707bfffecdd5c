"""Grades of the same responses by two raters or more, and what is told of them: shares, means, agreement beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opensafeintent.people.agreement.coefficients import RatingCounts, Scheme
from opensafeintent.statistics import Estimate, Resamples, estimate, rounded

__all__ = ["GRADES", "HARM_GRADES", "SAFE", "Ratings"]

GRADES = (1, 2, 3, 4)
"""Helpfulness."""
HARM_GRADES = (0, 1, 2, 3)
SAFE = (0, 1)

Floats = NDArray[np.float64]

_FEWEST_DEVIATING = 10
"""Prompt-sets that differ from the rest: with fewer, resamples hardly differ and the interval shrinks to a point."""


class Ratings:
    """Ratings of responses, those that one rater alone has rated left aside.

    Args:
        sets: place of each response's prompt-set in the dataset: shape (response,).
        ratings: shape (response, rater), NaN where there is none.
        resamples: of the dataset's prompt-sets.
    """

    def __init__(self, sets: Sequence[int], ratings: Floats, resamples: Resamples) -> None:
        twice = (~np.isnan(ratings)).sum(axis=1) > 1
        self.ratings = ratings[twice]
        self.n = len(self.ratings)
        self._sets = np.asarray(sets, dtype=np.int64)[twice]
        self._resamples = resamples

    @cached_property
    def _patterns(self) -> tuple[Floats, Floats]:
        """Every combination of ratings that occurs, and how often in which set: (pattern, rater), (pattern, prompt_set)."""
        coded = np.nan_to_num(self.ratings, nan=-1.0)
        patterns, which = np.unique(coded, axis=0, return_inverse=True)
        table = np.zeros((len(patterns), self._resamples.sets))
        np.add.at(table, (which.ravel(), self._sets), 1.0)
        return np.where(patterns < 0, np.nan, patterns), table

    def mean(self, values: Floats, span: tuple[float, float] = (0.0, 1.0)) -> Estimate:
        """Return the mean of a value of each response, NaN where it has none: shape (response,).

        The interval is the percentile bootstrap's over prompt-sets where 10 of them or more deviate from the most common
        value: a set's value is a mean of many responses. Elsewhere it is that of every share (docs/statistics.md).
        """
        there = ~np.isnan(values)
        if not there.any():
            return Estimate(value=None, n=0)
        counted, sets = there.astype(np.float64), self._resamples.sets
        top = np.bincount(self._sets, np.nan_to_num(values), sets).astype(np.float64)
        bottom = np.bincount(self._sets, counted, sets).astype(np.float64)
        n, value = int(there.sum()), rounded(top.sum() / bottom.sum())
        _, times = np.unique(np.round(top[bottom > 0] / bottom[bottom > 0], 9), return_counts=True)
        drawn = self._resamples.ratios(top[None], bottom[None])[0]
        if times.sum() - times.max() >= _FEWEST_DEVIATING and not np.isnan(drawn).any():
            low, high = np.quantile(drawn, (0.025, 0.975))
            return Estimate(value=value, n=n, interval=(rounded(low), rounded(high)), method="bootstrap")
        found = estimate(top[None], bottom[None], self._resamples, span=span).at(0)
        return Estimate(value=value, n=n, interval=found.interval, method=found.method)

    def agreement(self, categories: Sequence[int]) -> Estimate:
        """Return the share of pairs of ratings that are the same."""
        if not self.n:
            return Estimate(value=None, n=0)
        return self.mean(RatingCounts(self.ratings, categories).pairwise())

    def gwet(self, categories: Sequence[int], scheme: Scheme) -> Estimate:
        """Return Gwet's AC1 (`identity`) or AC2 (`quadratic`) with a percentile interval over prompt-sets.

        A coefficient depends on sums over responses alone, so a resample is the number of times that each combination of
        ratings occurs in it. Where fewer than 10 sets hold a disagreement, resamples hardly differ: there it is Wilson's
        interval of the observed agreement, carried over with chance agreement as it is.
        """
        if not self.n:
            return Estimate(value=None, n=0)
        patterns, table = self._patterns
        counts = RatingCounts(patterns, categories)
        once = table.sum(axis=1)[:, None]
        value = float(counts.gwet(once, scheme)[0])
        apart = counts.pairwise(scheme) < 1
        if int((table[apart].sum(axis=0) > 0).sum()) >= _FEWEST_DEVIATING:
            drawn = counts.gwet(table @ self._resamples.weights, scheme)
            low, high = (float(limit) for limit in np.quantile(drawn, (0.025, 0.975)))
            method = "bootstrap"
        else:
            chance = float(counts.expected(once, scheme)[0])
            observed = self.mean(RatingCounts(self.ratings, categories).pairwise(scheme)).interval or (0.0, 1.0)
            low, high = ((limit - chance) / (1 - chance) for limit in observed)
            method = "wilson"
        return Estimate(value=rounded(value), n=self.n, interval=(rounded(low), rounded(high)), method=method)

    def between(self, first: int, second: int) -> Ratings:
        """Return the ratings of two of the raters."""
        return Ratings(self._sets.tolist(), self.ratings[:, [first, second]], self._resamples)

    def difference(self, span: float, *, absolute: bool = False) -> Estimate:
        """Return the mean of the first rater's rating less the second's, or of how far they are apart.

        Args:
            span: the greatest difference that there can be.
            absolute: whether the sign is left out.
        """
        differences = self.ratings[:, 0] - self.ratings[:, 1]
        return self.mean(np.abs(differences), (0.0, span)) if absolute else self.mean(differences, (-span, span))

    def confusion(self, categories: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return how often the first rater gave one category (row) and the second another (column)."""
        return tuple(
            tuple(int(((self.ratings[:, 0] == row) & (self.ratings[:, 1] == column)).sum()) for column in categories)
            for row in categories
        )
