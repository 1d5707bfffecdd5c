"""Agreement coefficients against published examples, hand-worked cases, and a second way of
reckoning.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics.coefficients import RatingCounts, Scheme

Floats = NDArray[np.float64]
N = np.nan

FOUR_RATERS = np.array(
    [
        *([1, 1, N, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4]),
        *([4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [N, 5, 5, 5], [N, N, 1, 1], [N, N, 3, N]),
    ]
)
"""Twelve units by four raters, with missing ratings: Gwet, Handbook of Inter-Rater Reliability, 4th
edition, 2014, page 120 (`raw_4raters` of irrCAC); but for who gave the one rating of the last unit
the example of Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011, as well."""
FIVE_OBSERVERS = np.array(
    [
        *([1, 1, 2, N, 2], [1, 1, 0, 1, N], [2, 3, 3, 3, N], [N, 0, 0, N, 0], [0, 0, 0, N, 0]),
        *([0, 0, 0, N, 0], [1, 0, 2, N, 1], [1, N, 2, 0, N], [2, 2, 2, N, 2], [2, 1, 1, 1, N]),
        *([N, 1, 0, 0, N], [0, 0, 0, 0, N], [1, 2, 2, 2, N], [3, 3, 2, 2, 3], [1, 1, 1, N, 1]),
    ]
)
"""Fifteen units by five observers: Gwet 2014 (`raw_5observers` of irrCAC)."""


class Gwet(NamedTuple):
    value: float
    standard_error: float
    observed: float
    expected: float


def gwet(ratings: Floats, categories: Sequence[float], scheme: Scheme = "identity") -> Gwet:
    counts = RatingCounts.of(ratings, categories)
    value, observed, expected = (
        float(of(counts.once, scheme)[0])
        for of in (counts.gwet, counts.compute_observed, counts.compute_expected)
    )
    return Gwet(value, counts.gwet_error(scheme), observed, expected)


def alpha(ratings: Floats, categories: Sequence[float]) -> float:
    counts = RatingCounts.of(ratings, categories)
    return float(counts.alpha(counts.once)[0])


@pytest.mark.parametrize(
    ("ratings", "categories", "scheme", "value", "error"),
    [
        # AC1 as irrCAC's documentation gives it
        (FOUR_RATERS, 5, "identity", 0.77544, 0.14295),
        (FIVE_OBSERVERS, 4, "identity", 0.49662, 0.12197),
        # what irrCAC 0.4.4 prints for CAC(data, weights="quadratic", categories=…).gwet()
        (FOUR_RATERS, 5, "quadratic", 0.91400, 0.10396),
        (FIVE_OBSERVERS, 4, "quadratic", 0.83043, 0.05825),
    ],
)
def test_gwets_coefficients_and_their_standard_errors(
    ratings: Floats, categories: int, scheme: Scheme, value: float, error: float
) -> None:
    least = int(np.nanmin(ratings))
    result = gwet(ratings, range(least, least + categories), scheme)
    assert (result.value, result.standard_error) == pytest.approx((value, error), abs=5e-6)


def test_alpha() -> None:
    # Krippendorff 2011, the same data
    assert alpha(FOUR_RATERS, (1, 2, 3, 4, 5)) == pytest.approx(0.743, abs=5e-4)


# By hand
# ------------------------------------------------------------------------------

HAND = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, N, 1.0], [0.0, N, N]])
"""Yes and no by three raters; the last item has one rating."""


def test_by_hand() -> None:
    # pairs that agree: 1, 1/3 and 1 on the three items rated twice: p_a = 7/9
    result = gwet(HAND, (0, 1))
    assert result.observed == pytest.approx(7 / 9)
    # π_yes = (1 + 2/3 + 1 + 0) / 4 = 2/3; p_e = 2 · 2/3 · 1/3 = 4/9, as q = 2 and T = 2; AC1 = (7/9
    # − 4/9) / (5/9) = 3/5
    assert (result.value, result.expected) == (pytest.approx(3 / 5), pytest.approx(4 / 9))
    assert RatingCounts.of(HAND, (0, 1)).twice.sum() == 3
    # c_i: n/n₂ = 4/3; e_i = yes share · 1/3 + no share · 2/3 = 1/3, 4/9, 1/3, 2/3
    #   item 1: (4/3 · 5/9 − 4/5 · (1/3 − 4/9)) / (5/9) = 4/3 + 4/25;       item 3 the same
    #   item 2: (4/3 · (1/3 − 4/9) − 0) / (5/9) = −4/15
    #   item 4: (0 − 4/5 · (2/3 − 4/9)) / (5/9) = −8/25
    # less 3/5: 67/75, −13/15, 67/75, −23/25: squares 4489, 4225, 4489, 4761 over 5625: 17964/5625 /
    # 12
    assert result.standard_error == pytest.approx((17964 / 5625 / 12) ** 0.5)
    # coincidences: item 1 gives 3 yes-yes; item 2 one yes-yes, one yes-no, one no-yes; item 3 two
    # yes-yes: o_yy 6, o_yn 1, o_ny 1; n_y 7, n_n 1, n 8: α = 1 − 7 · 2 / (2 · 7 · 1) = 0
    assert alpha(HAND, (0, 1)) == pytest.approx(0.0)


def test_a_near_miss_counts_in_part() -> None:
    # grades 1–4: two raters apart by one agree to 1 − 1/9, apart by three not at all
    for grade, scheme, share in ((2, "quadratic", 8 / 9), (4, "quadratic", 0), (2, "identity", 0)):
        result = gwet(np.array([[1.0, grade]]), (1, 2, 3, 4), scheme)
        assert result.observed == pytest.approx(share)


def test_everyone_agreeing_on_everything() -> None:
    ratings = np.ones((5, 3))
    result = gwet(ratings, (0, 1))
    assert result == Gwet(1.0, 0.0, 1.0, 0.0)
    assert gwet(np.full((5, 3), 4.0), (1, 2, 3, 4), "quadratic").value == 1.0
    assert np.isnan(alpha(ratings, (0, 1)))


@pytest.mark.parametrize(
    "ratings",
    [[[1.0], [0.0]], [[1.0, N], [N, 0.0]], [[N, N]], [[]]],
    ids=["one rater", "no item twice", "no rating", "nothing"],
)
def test_what_nobody_rated_twice_has_no_agreement(ratings: list[list[float]]) -> None:
    rated = np.array(ratings)
    result = gwet(rated, (0, 1))
    assert np.isnan([result.value, result.standard_error, result.observed]).all()
    assert RatingCounts.of(rated, (0, 1)).twice.sum() == 0
    assert np.isnan(alpha(rated, (0, 1)))


def test_ratings_outside_the_categories_are_refused() -> None:
    with pytest.raises(ValueError, match="none of the categories"):
        gwet(np.array([[1.0, 7.0]]), (0, 1))


def random_ratings(seed: int) -> Floats:
    generator = np.random.default_rng(seed)
    level = generator.integers(1, 5, size=(40, 1))
    ratings = np.clip(level + generator.integers(-1, 2, size=(40, 4)), 1, 4).astype(float)
    ratings[generator.random(ratings.shape) < 0.2] = N
    return ratings


def alpha_by_pairs(ratings: Floats) -> float:
    """Alpha from its definition: observed over expected disagreement, over every ordered pair of
    values.
    """
    rows = [row[~np.isnan(row)] for row in ratings]
    rows = [row for row in rows if len(row) >= 2]
    values = np.concatenate(rows)
    n = len(values)
    disagreement = (
        sum((a != b) / (len(row) - 1) for row in rows for a, b in permutations(row, 2)) / n
    )
    chance = sum(a != b for a, b in permutations(values, 2)) / (n * (n - 1))
    return float(1 - disagreement / chance)


@pytest.mark.parametrize("seed", range(3))
def test_alpha_is_observed_over_expected_disagreement(seed: int) -> None:
    ratings = random_ratings(seed)
    assert alpha(ratings, (1, 2, 3, 4)) == pytest.approx(alpha_by_pairs(ratings))


@pytest.mark.parametrize("scheme", ["identity", "quadratic"])
def test_a_resample_is_the_coefficient_of_the_items_drawn(scheme: Scheme) -> None:
    ratings = random_ratings(5)
    generator = np.random.default_rng(5)
    drawn = generator.integers(0, 40, size=(6, 40))
    weights = np.array([np.bincount(row, minlength=40) for row in drawn]).T.astype(np.float32)
    counts = RatingCounts.of(ratings, (1, 2, 3, 4))
    one_by_one = [RatingCounts.of(ratings[row], (1, 2, 3, 4)) for row in drawn]
    gwets = [float(sample.gwet(sample.once, scheme)[0]) for sample in one_by_one]
    assert counts.gwet(weights, scheme) == pytest.approx(gwets, abs=1e-5)
    alphas = [float(sample.alpha(sample.once)[0]) for sample in one_by_one]
    assert counts.alpha(weights) == pytest.approx(alphas, abs=1e-5)
