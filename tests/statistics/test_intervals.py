"""Intervals of ratios over prompt-sets: Student's t with two pseudo-observations.

How often they hold the truth is measured by benchmarks/coverage.py.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import Estimate, estimate, share_interval
from opensafeintent.statistics.averages import Averaged, mean_over, over_models
from opensafeintent.statistics.disagreement import disagreement
from opensafeintent.statistics.intervals import spread_of
from opensafeintent.statistics.students_t import t_quantile, t_within

Floats = NDArray[np.float64]


def of(
    values: object,
    *,
    weights: object = 1.0,
    confidence: float = 0.95,
    **more: Any,
) -> Estimate:
    """Estimate one row of values, a set each."""
    top = np.asarray(values, dtype=np.float64)[None]
    bottom = np.broadcast_to(np.asarray(weights, dtype=np.float64), top.shape)
    return estimate(top * bottom, bottom, confidence=confidence, **more).records()[0]


def shares(events: int, n: int) -> Floats:
    return np.repeat([1.0, 0.0], [events, n - events])


def width(found: Estimate) -> float:
    assert found.interval is not None
    return found.interval[1] - found.interval[0]


# One method, by hand and against scipy
# ------------------------------------------------------------------------------


def test_a_share_by_hand() -> None:
    # 12 of 20, and a pseudo-observation at either end: 13 of 22; 22 sets, 21 degrees of freedom
    p, half = 13 / 22, 2.0796138447 * (13 / 22 * 9 / 22 / 21) ** 0.5
    found = of(shares(12, 20))
    assert (found.value, found.n, found.method) == (0.6, 20, "t-pseudo-observations")
    assert found.interval == pytest.approx((p - half, p + half), abs=1e-6)
    assert share_interval(0.6, 20) == pytest.approx(found.interval, abs=1e-6)


def test_scores_have_the_t_interval_of_their_sets_and_the_pseudo_sets() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(5).beta(1, 3, 57)
    every = np.append(values, (0.0, 1.0))
    ends = stats.t.interval(0.95, 58, every.mean(), stats.sem(every))
    assert of(values).interval == pytest.approx(ends, abs=2e-6)
    narrower = stats.t.interval(0.9, 58, every.mean(), stats.sem(every))
    assert of(values, confidence=0.9).interval == pytest.approx(narrower, abs=2e-6)


def test_paired_differences_of_shares() -> None:
    # 3 sets are better, 1 is worse, 16 alike; with one set more at +1 and at −1: mean 2/22,
    # variance 6/22 − (2/22)², over 21
    values = np.repeat([1.0, -1.0, 0.0], [3, 1, 16])
    mean, spread = 2 / 22, ((6 / 22 - (2 / 22) ** 2) / 21) ** 0.5
    found = of(values, span=(-1.0, 1.0))
    ends = (mean - 2.0796138447 * spread, mean + 2.0796138447 * spread)
    assert (found.value, found.interval) == (0.1, pytest.approx(ends, abs=1e-6))


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
    for there, mirrored, ends in ((of(values), of(1 - values), 1), differences):
        assert there.interval is not None
        low, high = there.interval
        assert (ends - high, ends - low) == pytest.approx(mirrored.interval, abs=2e-6)


# Few sets, and sets that are all alike
# ------------------------------------------------------------------------------


def test_one_set_says_next_to_nothing() -> None:
    assert of([1.0]).interval == (0.0, 1.0)
    assert of([0.0], span=(-1.0, 1.0)).interval == (-1.0, 1.0)


@pytest.mark.parametrize(("n", "low"), [(20, 0.86), (42, 0.931), (115, 0.974), (700, 0.9957)])
def test_sets_that_are_all_alike_are_not_certain(n: int, low: float) -> None:
    found = of(shares(n, n))
    assert found.interval == (pytest.approx(low, abs=0.002), 1.0)
    # what so many sets may have missed in 5 % of all studies is 1 − .05^(1/n)
    assert found.interval[0] == pytest.approx(0.05 ** (1 / n), abs=0.005)
    severity = of(np.full(n, 3.0), span=(0.0, 3.0))
    assert severity.interval == pytest.approx((3 * found.interval[0], 3.0), abs=1e-5)


def test_pairs_that_never_differ_may_differ_elsewhere() -> None:
    shown = of(np.zeros(42), span=(-1.0, 1.0))
    assert shown.interval == pytest.approx((-0.066, 0.066), abs=0.001)


def test_nothing_is_no_number() -> None:
    assert of([0.0, 0.0], weights=0.0) == Estimate(value=None, n=0)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_estimate_stays_what_it_is_and_lies_in_its_interval(confidence: float) -> None:
    generator = np.random.default_rng(5)
    values = generator.choice([0.0, 0.05, 1.0], p=[0.9, 0.08, 0.02], size=(200, 12))
    found = estimate(values, np.ones_like(values), confidence=confidence)
    assert np.allclose(found.value, values.mean(axis=1))
    assert ((found.low <= found.value) & (found.value <= found.high)).all()
    assert ((found.low >= 0) & (found.high <= 1)).all()


def test_rows_do_not_depend_on_each_other() -> None:
    generator = np.random.default_rng(7)
    tops = np.vstack((generator.beta(1, 3, (40, 60)), generator.integers(0, 2, (40, 60))))
    bottoms = np.ones_like(tops)
    bottoms[::3, :20] = 0.0
    tops *= bottoms
    together = estimate(tops, bottoms).records()
    assert estimate(tops[::-1], bottoms[::-1]).records()[::-1] == together
    alone = [estimate(tops[row : row + 1], bottoms[row : row + 1]) for row in range(80)]
    assert [found.records()[0] for found in alone] == together


@pytest.mark.parametrize("against", [-0.1, 0.0, 0.05])
def test_p_is_below_5_percent_exactly_if_the_interval_leaves_the_value_out(against: float) -> None:
    generator = np.random.default_rng(9)
    values = generator.choice([-1.0, 0.0, 0.3, 1.0], size=(2_000, 23), p=[0.1, 0.5, 0.2, 0.2])
    weights = generator.choice([0.5, 1.0, 2.0], size=values.shape)
    spread = spread_of(values * weights, weights, (-1.0, 1.0))
    found = estimate(values * weights, weights, span=(-1.0, 1.0))
    left_out = (found.low > against) | (found.high < against)
    assert 100 < left_out.sum() < 1_900
    assert np.array_equal(spread.p(against) < 0.05, left_out)


# Against the tables that everybody has
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 28, 29, 114, 199, 200, 201, 699, 13_999])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.975, 0.9995])
def test_students_t_as_scipy_has_it(share: float, degrees: int) -> None:
    special = pytest.importorskip("scipy.special")
    quantile = t_quantile(share, degrees)
    assert quantile == pytest.approx(float(special.stdtrit(degrees, share)), rel=1e-8, abs=1e-12)
    assert t_within(quantile, degrees) == pytest.approx(2 * share - 1, abs=1e-8)


# Averages over models and over strata: their values, and what their intervals rest on
# ------------------------------------------------------------------------------


def value_of(mean: Averaged) -> float:
    return float(mean.numerator.sum() / mean.denominator.sum())


def interval_of(mean: Averaged, **more: Any) -> tuple[float, float]:
    found = estimate(mean.numerator[None], mean.denominator[None], **more)
    return float(found.low[0]), float(found.high[0])


def test_models_that_agree_are_no_surer_than_one() -> None:
    values = np.zeros((20, 20))
    mean = over_models(values, np.ones_like(values))
    # of 20 sets, not of 400
    assert interval_of(mean) == pytest.approx(share_interval(0.0, 20))
    values[:, :6] = 1.0
    one = estimate(values[:1], np.ones((1, 20)))
    mean = over_models(values, np.ones_like(values))
    assert interval_of(mean) == (one.low[0], one.high[0])


def test_each_model_weighs_the_same_however_many_sets_it_has() -> None:
    # model a: 1, 0 over two of four sets, ½; model b: 1, 1, 1, 0, ¾; model c has none: (½ + ¾) / 2
    # = .625, not 4/6
    top = np.array([[1.0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]])
    bottom = np.array([[1.0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    mean = over_models(top, bottom)
    assert (value_of(mean), mean.parts) == (pytest.approx(0.625), 2)
    # set 2 adds (0 − ½) / 2 and (1 − ¾) / 4 to the two models' values, times 4 sets over 2 models
    added = mean.numerator - 0.625 * mean.denominator
    assert added[1] == pytest.approx((-0.5 / 2 + 0.25 / 4) * 4 / 2)
    assert mean.denominator.sum() == pytest.approx(4)


def test_no_model_has_a_value() -> None:
    mean = over_models(np.zeros((2, 5)), np.zeros((2, 5)))
    assert mean.parts == 0
    found = estimate(mean.numerator[None], mean.denominator[None])
    assert found.records()[0].value is None


def test_a_mean_of_estimates_combines_the_distances_of_their_limits() -> None:
    parts = [
        Estimate(value=0.5, n=10, interval=(0.2, 0.9)),
        Estimate(value=0.9, n=40, interval=(0.5, 1.0)),
    ]
    mean = mean_over(parts)
    assert (mean.value, mean.n) == (0.7, 2)
    down, up = (0.3**2 + 0.4**2) ** 0.5 / 2, (0.4**2 + 0.1**2) ** 0.5 / 2
    assert mean.interval == pytest.approx((0.7 - down, 0.7 + up), abs=1e-6)
    assert mean_over([*parts, Estimate(value=1.0, n=1)]).interval is None
    assert mean_over([]).value is None


# Disagreement between wordings and within one, against values worked out by hand (docs/metrics.md)
# ------------------------------------------------------------------------------


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
