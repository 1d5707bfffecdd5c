"""Disagreement between wordings and within one, against values worked out by hand (docs/metrics.md) and by enumeration."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from opensafeintent.statistics import wording
from opensafeintent.statistics.wording import disagreement, permutation_p

SAFE = np.array([[2.0, 1.0, 0.0], [2.0, 2.0, 2.0], [1.0, 1.0, 2.0]])
"""Safe answers of two, to each of three wordings of three sets."""
TWICE = np.array([2, 2, 2])


def test_worked_by_hand() -> None:
    found = disagreement(SAFE, TWICE)
    assert found.between == pytest.approx([2 / 3, 0, 1 / 2])
    assert found.within == pytest.approx([1 / 3, 0, 2 / 3])
    assert found.excess == pytest.approx([1 / 3, 0, -1 / 6])
    assert permutation_p(SAFE, TWICE) == pytest.approx(0.68, abs=0.02)  # .6 + .4 · .2


def test_between_is_the_mean_over_pairs_of_wordings() -> None:
    safe, epochs = np.array([[3.0, 1.0, 0.0, 2.0]]), np.array([3])
    pairs = [(a, b) for a, b in combinations((1.0, 1 / 3, 0.0, 2 / 3), 2)]
    assert disagreement(safe, epochs).between == pytest.approx(np.mean([a * (1 - b) + b * (1 - a) for a, b in pairs]))


def test_the_excess_is_the_mean_squared_difference_of_two_wordings() -> None:
    rates = np.array([0.9, 0.6, 0.2])
    safe = np.random.default_rng(1).binomial(3, rates, size=(200_000, 3)).astype(np.float64)
    truth = np.mean([(a - b) ** 2 for a, b in combinations(rates, 2)])
    assert disagreement(safe, np.full(200_000, 3)).excess.mean() == pytest.approx(truth, abs=0.003)


@pytest.mark.parametrize(("wordings", "epochs", "there"), [(2, 2, 2), (3, 2, 3), (3, 3, 4), (2, 4, 3)])
def test_deals_are_those_that_can_be_enumerated(wordings: int, epochs: int, there: int) -> None:
    seen: Counter[float] = Counter()
    for dealt in combinations(range(wordings * epochs), there):
        safe = np.array([[sum(place // epochs == w for place in dealt) for w in range(wordings)]], dtype=np.float64)
        seen[round(float(disagreement(safe, np.array([epochs])).excess[0]), 9)] += 1
    values, chances = wording._deals(wordings, epochs, there)
    found: dict[float, float] = {}
    for value, chance in zip(values, chances, strict=True):
        found[round(float(value), 9)] = found.get(round(float(value), 9), 0.0) + float(chance)
    assert found == pytest.approx({value: float(Fraction(n, seen.total())) for value, n in seen.items()})


def test_sets_with_fewer_wordings_or_epochs_have_their_own_part() -> None:
    safe = np.array([[2.0, 0.0, np.nan], [1.0, np.nan, np.nan], [1.0, 0.0, 1.0], [3.0, 0.0, 0.0]])
    found = disagreement(safe, np.array([2, 2, 1, 3]))
    assert found.between == pytest.approx([1, np.nan, np.nan, 2 / 3], nan_ok=True)
    assert found.within == pytest.approx([0, np.nan, np.nan, 0], nan_ok=True)
    assert permutation_p(safe, np.array([2, 2, 1, 3])) == pytest.approx(1 / 3 * 3 / 84, abs=0.005)


def test_nothing_to_permute_has_no_p() -> None:
    assert permutation_p(np.full((4, 3), 2.0), np.full(4, 2)) is None


def test_many_epochs_are_drawn_and_agree_with_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    safe, epochs = np.random.default_rng(2).binomial(5, 0.6, size=(20, 4)).astype(np.float64), np.full(20, 5)
    listed = permutation_p(safe, epochs)
    monkeypatch.setattr(wording, "_MOST_LISTED", 1)
    assert permutation_p(safe, epochs) == pytest.approx(listed, abs=0.03)


@pytest.mark.slow
def test_size_where_wording_makes_no_difference() -> None:
    generator = np.random.default_rng(3)
    rates = generator.beta(0.253, 0.128, size=(300, 60, 1)).repeat(5, axis=2)
    safe = generator.binomial(3, rates).astype(np.float64)
    found = [permutation_p(one, np.full(60, 3)) for one in safe]
    assert sum(p is not None and p < 0.05 for p in found) <= 27  # 5 % of 300 are 15; more than 27 has a chance below .001
