"""Grades of the same responses by two raters or more, and what is told of them: shares, means, agreement beyond chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.agreement import RatingCounts, Scheme
from opensafeintent.statistics.samples import Sample

__all__ = ["GRADES", "HARM_GRADES", "SAFE", "Ratings"]

GRADES = (1, 2, 3, 4)
"""Helpfulness."""
HARM_GRADES = (0, 1, 2, 3)
SAFE = (0, 1)

Floats = NDArray[np.float64]


class Ratings:
    """Ratings of responses, those that one rater alone has rated left aside.

    Args:
        sample: the responses, with their prompt-sets as units.
        ratings: shape (response, rater), NaN where there is none.
    """

    def __init__(self, sample: Sample, ratings: Floats) -> None:
        twice = (~np.isnan(ratings)).sum(axis=1) > 1
        self.ratings = np.where(twice[:, None], ratings, np.nan)
        self._sample = sample

    def agreement(self, categories: Sequence[int]) -> Estimate:
        """Return the share of pairs of ratings that are the same."""
        return _plain(self._sample.mean(RatingCounts.of(self.ratings, categories).pairwise(), "score"))

    def gwet(self, categories: Sequence[int], scheme: Scheme) -> Estimate:
        """Return Gwet's AC1 (`identity`) or AC2 (`quadratic`)."""
        return _plain(self._sample.gwet(RatingCounts.of(self.ratings, categories), scheme))

    def difference(self, greatest: float, *, absolute: bool = False) -> Estimate:
        """Return the mean of the first rater's rating less the second's, or of how far they are apart.

        Args:
            greatest: difference that there can be.
            absolute: whether the sign is left out.
        """
        differences = self.ratings[:, 0] - self.ratings[:, 1]
        if absolute:
            return _plain(self._sample.mean(np.abs(differences), "score", greatest))
        return _plain(self._sample.mean(differences, "difference", greatest))

    def confusion(self, categories: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return how often the first rater gave one category (row) and the second another (column)."""
        return tuple(
            tuple(int(((self.ratings[:, 0] == row) & (self.ratings[:, 1] == column)).sum()) for column in categories)
            for row in categories
        )


def _plain(found: Estimate) -> Estimate:
    """Return an estimate as `metrics.json` has it."""
    value = None if found.value is None else rounded(found.value)
    return Estimate(value=value, n=found.n, interval=found.interval, method=found.method)
