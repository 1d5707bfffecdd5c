"""Values of small strata moved towards their model's own: by hand, at the edges, and closer to the truth than raw ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics.shrinkage import shrunken, spread_between

Floats = NDArray[np.float64]


def of_shares(successes: list[int], sets: int) -> list[float]:
    """Shrink shares of as many sets each towards their mean."""
    values = np.array(successes) / sets
    squares = sets * values * (1 - values)
    found = shrunken(values[None], values.mean()[None], squares[None], np.full((1, len(values)), float(sets)))
    return [float(value) for value in found[0]]


def test_worked_by_hand() -> None:
    # of 5 sets each: 1, .8, .4, .2, mean .6. σ² = (0 + .8 + 1.2 + .8)/16 = .175, V = .035. Σ(y − .6)² = .4, so that
    # .4/(V + A) = 4 − 1 at V + A = .13333. B = (1/3) · .035/.13333 = .0875: 1 − .0875 · .4 = .965
    assert of_shares([5, 4, 2, 1], 5) == pytest.approx([0.965, 0.7825, 0.4175, 0.235])


def test_strata_that_differ_no_more_than_sets_do_keep_a_part_of_their_distance() -> None:
    # .6, .6, .6, .4, mean .55: V = .3/5 = .06, Σ(y − .55)²/V = .5 < 3, so A = 0 and B = 1/3
    values = np.array([[0.6, 0.6, 0.6, 0.4]])
    assert spread_between(values, np.full((1, 4), 0.06)) == pytest.approx([0.0])
    assert of_shares([3, 3, 3, 2], 5) == pytest.approx([0.6 - 0.05 / 3, 0.6 - 0.05 / 3, 0.6 - 0.05 / 3, 0.4 + 0.15 / 3])


def test_the_spread_solves_its_equation() -> None:
    values, variances = np.array([[0.1, 0.5, 0.45, 0.9]]), np.array([[0.01, 0.04, 0.002, 0.02]])
    (between,) = spread_between(values, variances)
    weights = 1 / (variances + between)
    mean = (weights * values).sum() / weights.sum()
    assert (weights * (values - mean) ** 2).sum() == pytest.approx(3)


def test_one_or_two_sets_are_moved_most() -> None:
    values, counts = np.array([[0.0, 1.0, 0.5, 0.7, 0.6]]), np.array([[1.0, 2.0, 20.0, 20.0, 20.0]])
    squares = counts * values * (1 - values)
    found = shrunken(values, np.array([0.6]), squares, counts)
    moved = np.abs(found - values)[0] / np.abs(values - 0.6)[0].clip(1e-9)
    assert moved[0] > moved[1] > moved[2] == pytest.approx(moved[3])
    assert found[0, 4] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("values", "squares", "counts", "expected"),
    [
        ([1.0] * 5, [0.0] * 5, [4.0] * 5, [1.0] * 5),  # all alike
        ([0.0, 0.2, 0.4, 0.6], [0.0] * 4, [5.0] * 4, [0.0, 0.2, 0.4, 0.6]),  # no two sets of a stratum differ
        ([0.0, 1.0, 1.0], [1.0] * 3, [9.0] * 3, [np.nan] * 3),  # three strata
        ([0.0, 1.0, 1.0, 0.0, 1.0], [0.0] * 5, [1.0] * 5, [np.nan] * 5),  # one set each: nothing is known of a set's spread
        (
            [0.4, np.nan, 0.6, 0.4, 0.6],
            [2.0] * 5,
            [9.0, 0.0, 9.0, 9.0, 9.0],
            [0.4333333, np.nan, 0.5666667, 0.4333333, 0.5666667],
        ),
    ],
)
def test_at_the_edges(values: list[float], squares: list[float], counts: list[float], expected: list[float]) -> None:
    centre = np.array([np.nanmean(values)])
    found = shrunken(np.array([values]), centre, np.array([squares]), np.array([counts]))
    assert found[0] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("sizes", [(24, 22, 16, 16, 15, 12, 10), (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5)])
@pytest.mark.parametrize("spread", [0.0, 0.07, 0.15, 0.3])
def test_shrunken_values_are_closer_to_the_truth_than_raw_ones(sizes: tuple[int, ...], spread: float) -> None:
    generator = np.random.default_rng(5)
    truth = np.clip(generator.normal(0.6, spread, (2000, len(sizes))), 0.01, 0.99)
    counts = np.tile(np.array(sizes, dtype=float), (len(truth), 1))
    values = generator.binomial(np.array(sizes), truth) / counts
    centre = (values * counts).sum(axis=1) / counts.sum(axis=1)
    found = shrunken(values, centre, counts * values * (1 - values), counts)
    raw, moved = (((part - truth) ** 2).mean() for part in (values, found))
    assert moved < (0.98 if spread == 0.3 else 0.9) * raw
