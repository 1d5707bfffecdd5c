"""Ratings of items: people's answers, labels in files, and the grades of judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from opensafeintent.taxonomy import QUESTION_OF, Graded

Floats = NDArray[np.float64]

RatingsOfItem = Mapping[str, Mapping[str, float]]
"""The numbers of one item, by rater and scale."""


class Ratings:
    """A number for each item, rater and scale; NaN without a rating.

    Args:
        by_item: by item.
        raters: in their order; by default everybody who rated an item, in alphabetical order.
        weights: one over the probability with which each item was drawn; 1 by default.

    Attributes:
        by_item: by item.
        raters: names.
        weights: shape (item,).
    """

    def __init__(
        self,
        by_item: Sequence[RatingsOfItem],
        raters: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        everybody = sorted({rater for by_rater in by_item for rater in by_rater})
        self.raters = tuple(everybody if raters is None else raters)
        self.weights: Floats = np.ones(len(by_item)) if weights is None else np.array(weights)
        self.by_item = by_item

    @property
    def scales(self) -> frozenset[str]:
        """The scales on which somebody rated an item."""
        return frozenset(
            scale for item in self.by_item for numbers in item.values() for scale in numbers
        )

    def list_raters(self, scale: str) -> list[str]:
        """Return those who rated an item on a scale, in their order."""
        heard = {rater for item in self.by_item for rater in item if scale in item[rater]}
        return [rater for rater in self.raters if rater in heard]

    def select_scale(self, scale: str) -> Floats:
        """Return the ratings on a scale by those who rated an item on it (`list_raters`): shape
        (item, rater).
        """
        return self.select_raters(self.list_raters(scale), scale)

    def select_raters(self, raters: Sequence[str], scale: str) -> Floats:
        """Return the ratings of some raters on a scale: shape (item, rater)."""
        numbers = [
            item.get(rater, {}).get(scale, np.nan) for item in self.by_item for rater in raters
        ]
        return np.array(numbers).reshape(len(self.by_item), len(raters))

    def select_rater(self, rater: str, scale: str) -> Floats:
        """Return one rater's ratings on a scale: shape (item,)."""
        return self.select_raters([rater], scale)[:, 0]

    def mean(self, scale: str) -> Floats:
        """Return the mean rating of each item: shape (item,), NaN without a rating."""
        return average_items(self.select_scale(scale))

    def median(self, grade: Graded) -> Floats:
        """Return the grade of each item that counts, by the rule for a panel of judges
        (`Question.median`): shape (item,), NaN without a grade.
        """
        given = (row[~np.isnan(row)].tolist() for row in self.select_scale(grade))
        return np.array([QUESTION_OF[grade].median(row) if row else np.nan for row in given])

    def select(self, items: Sequence[int]) -> Ratings:
        """Return the ratings of some items, which are given by their indices."""
        weights = self.weights[list(items)].tolist()
        return Ratings([self.by_item[item] for item in items], weights=weights)


def average_items(values: Floats) -> Floats:
    """Return the mean over raters for each item, NaN if there is none: shape (item,)."""
    known = ~np.isnan(values)
    number = known.sum(axis=1)
    means = np.where(known, values, 0.0).sum(axis=1) / np.maximum(number, 1)
    return np.where(number > 0, means, np.nan)
