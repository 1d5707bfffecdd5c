"""Intervals of ratios over prompt-sets: Student's t with two pseudo-observations.

How often they hold the truth is measured by benchmarks/coverage.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import Estimate, estimate, share_interval
from opensafeintent.statistics.intervals import compute_spread

Floats = NDArray[np.float64]


def of(
    values: object,
    *,
    weights: object = 1.0,
    confidence: float = 0.95,
    **options: Any,
) -> Estimate:
    """Estimate one row of values, a set each."""
    top = np.asarray(values, dtype=np.float64)[None]
    bottom = np.broadcast_to(np.asarray(weights, dtype=np.float64), top.shape)
    return estimate(top * bottom, bottom, confidence=confidence, **options).records()[0]


def shares(events: int, n: int) -> Floats:
    return np.repeat([1.0, 0.0], [events, n - events])


def width(result: Estimate) -> float:
    assert result.interval is not None
    return result.interval[1] - result.interval[0]


def test_a_share_by_hand() -> None:
    # 12 of 20, and a pseudo-observation at either end: 13 of 22; 22 sets, 21 degrees of freedom
    p, half = 13 / 22, 2.0796138447 * (13 / 22 * 9 / 22 / 21) ** 0.5
    result = of(shares(12, 20))
    assert (result.value, result.n, result.method) == (0.6, 20, "t-pseudo-observations")
    assert result.interval == pytest.approx((p - half, p + half), abs=1e-6)
    assert share_interval(0.6, 20) == pytest.approx(result.interval, abs=1e-6)


def test_scores_have_the_t_interval_of_their_sets_and_the_pseudo_sets() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(5).beta(1, 3, 57)
    everything = np.append(values, (0.0, 1.0))
    limits = stats.t.interval(0.95, 58, everything.mean(), stats.sem(everything))
    assert of(values).interval == pytest.approx(limits, abs=2e-6)
    narrower = stats.t.interval(0.9, 58, everything.mean(), stats.sem(everything))
    assert of(values, confidence=0.9).interval == pytest.approx(narrower, abs=2e-6)


def test_paired_differences_of_shares() -> None:
    # 3 sets are better, 1 is worse, 16 alike; with one set more at +1 and at −1: mean 2/22,
    # variance 6/22 − (2/22)², over 21
    values = np.repeat([1.0, -1.0, 0.0], [3, 1, 16])
    mean, spread = 2 / 22, ((6 / 22 - (2 / 22) ** 2) / 21) ** 0.5
    result = of(values, span=(-1.0, 1.0))
    limits = (mean - 2.0796138447 * spread, mean + 2.0796138447 * spread)
    assert (result.value, result.interval) == (0.1, pytest.approx(limits, abs=1e-6))


def test_sets_that_weigh_differently_are_fewer() -> None:
    values = shares(12, 40)
    weighted = of(values, weights=np.resize([1.0, 5.0, 1.0], 40))
    assert width(weighted) > width(of(values))
    # all of one weight are as of weight 1
    assert of(values, weights=3.5).interval == of(values).interval


def test_mirrored_scores_have_mirrored_intervals() -> None:
    generator = np.random.default_rng(4)
    values = generator.beta(0.3, 2, size=25).round(6)
    wide: dict[str, Any] = {"span": (-1.0, 1.0)}
    differences = (of(values - 0.2, **wide), of(0.2 - values, **wide), 0)
    for there, mirrored, limits in ((of(values), of(1 - values), 1), differences):
        assert there.interval is not None
        low, high = there.interval
        assert (limits - high, limits - low) == pytest.approx(mirrored.interval, abs=2e-6)


def test_one_set_says_next_to_nothing() -> None:
    assert of([1.0]).interval == (0.0, 1.0)
    assert of([0.0], span=(-1.0, 1.0)).interval == (-1.0, 1.0)


@pytest.mark.parametrize(("n", "low"), [(20, 0.86), (42, 0.931), (115, 0.974), (700, 0.9957)])
def test_sets_that_are_all_alike_are_not_certain(n: int, low: float) -> None:
    result = of(shares(n, n))
    assert result.interval == (pytest.approx(low, abs=0.002), 1.0)
    # what so many sets may have missed in 5 % of all studies is 1 − .05^(1/n)
    assert result.interval[0] == pytest.approx(0.05 ** (1 / n), abs=0.005)
    severity = of(np.full(n, 3.0), span=(0.0, 3.0))
    assert severity.interval == pytest.approx((3 * result.interval[0], 3.0), abs=1e-5)


def test_pairs_that_never_differ_may_differ_elsewhere() -> None:
    shown = of(np.zeros(42), span=(-1.0, 1.0))
    assert shown.interval == pytest.approx((-0.066, 0.066), abs=0.001)


def test_nothing_is_no_number() -> None:
    assert of([0.0, 0.0], weights=0.0) == Estimate(value=None, n=0)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_estimate_stays_what_it_is_and_lies_in_its_interval(confidence: float) -> None:
    generator = np.random.default_rng(5)
    values = generator.choice([0.0, 0.05, 1.0], p=[0.9, 0.08, 0.02], size=(200, 12))
    result = estimate(values, np.ones_like(values), confidence=confidence)
    assert np.allclose(result.value, values.mean(axis=1))
    assert ((result.low <= result.value) & (result.value <= result.high)).all()
    assert ((result.low >= 0) & (result.high <= 1)).all()


def test_rows_do_not_depend_on_each_other() -> None:
    generator = np.random.default_rng(7)
    tops = np.vstack((generator.beta(1, 3, (40, 60)), generator.integers(0, 2, (40, 60))))
    bottoms = np.ones_like(tops)
    bottoms[::3, :20] = 0.0
    tops *= bottoms
    together = estimate(tops, bottoms).records()
    assert estimate(tops[::-1], bottoms[::-1]).records()[::-1] == together
    alone = [estimate(tops[row : row + 1], bottoms[row : row + 1]) for row in range(80)]
    assert [result.records()[0] for result in alone] == together


@pytest.mark.parametrize("against", [-0.1, 0.0, 0.05])
def test_p_is_below_5_percent_exactly_if_the_interval_leaves_the_value_out(against: float) -> None:
    generator = np.random.default_rng(9)
    values = generator.choice([-1.0, 0.0, 0.3, 1.0], size=(2_000, 23), p=[0.1, 0.5, 0.2, 0.2])
    weights = generator.choice([0.5, 1.0, 2.0], size=values.shape)
    spread = compute_spread(values * weights, weights, (-1.0, 1.0))
    result = estimate(values * weights, weights, span=(-1.0, 1.0))
    left_out = (result.low > against) | (result.high < against)
    assert 100 < left_out.sum() < 1_900
    assert np.array_equal(spread.p(against) < 0.05, left_out)
