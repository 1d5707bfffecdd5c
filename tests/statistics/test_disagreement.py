"""Disagreement between wordings and within one, against values worked out by hand
(docs/metrics.md).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from opensafeintent.statistics.coefficients import disagreement


def test_between_is_the_mean_over_pairs_of_wordings() -> None:
    safe, epochs = np.array([[3.0, 1.0, 0.0, 2.0]]), np.array([3])
    pairs = combinations((1.0, 1 / 3, 0.0, 2 / 3), 2)
    expected = np.mean([a * (1 - b) + b * (1 - a) for a, b in pairs])
    assert disagreement(safe, epochs).between == pytest.approx(expected)


def test_the_excess_is_the_mean_squared_difference_of_two_wordings() -> None:
    rates = np.array([0.9, 0.6, 0.2])
    safe = np.random.default_rng(1).binomial(3, rates, size=(200_000, 3)).astype(np.float64)
    truth = np.mean([(a - b) ** 2 for a, b in combinations(rates, 2)])
    assert disagreement(safe, np.full(200_000, 3)).excess.mean() == pytest.approx(truth, abs=0.003)
