"""Intervals by what is averaged, each rule by itself.

How often they hold the truth is measured by benchmarks/coverage.py.
"""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import Estimate, Resamples, estimate
from opensafeintent.statistics.exact import bonett_price, mid_p, wilson

Floats = NDArray[np.float64]


def of(
    values: object,
    *,
    weights: object = 1.0,
    count: int = 2_000,
    confidence: float = 0.95,
    **more: object,
) -> Estimate:
    """Estimate one row of values, a set each."""
    top = np.asarray(values, dtype=np.float64)[None]
    bottom = np.broadcast_to(np.asarray(weights, dtype=np.float64), top.shape)
    return estimate(
        top * bottom, bottom, Resamples(top.shape[1], count), confidence=confidence, **more
    ).records()[0]  # type: ignore[arg-type]


def shares(events: int, n: int) -> Floats:
    return np.repeat([1.0, 0.0], [events, n - events])


def width(found: Estimate) -> float:
    assert found.interval is not None
    return found.interval[1] - found.interval[0]


def scores(n: int) -> Floats:
    """The same distribution of scores at any n: .1, .3, .5, .7, .9 in turn."""
    return np.resize([0.1, 0.5, 0.9, 0.3, 0.7], n)


def test_weights_that_were_let_go_are_drawn_the_same_again() -> None:
    resamples = Resamples(300, count=1_000)
    before = resamples.weights.copy()
    resamples.let_go()
    assert np.array_equal(resamples.weights, before)
    assert (
        before.sum(axis=0) == 300
    ).all()  # each resample draws as many sets as there are, over the edges of blocks too


# 0 or 1
# ------------------------------------------------------------------------------


def test_mid_p_is_where_each_tail_with_half_of_the_observed_is_rare() -> None:
    # 2 of 5 at p: P(X > 2) + ½ P(X = 2) = 2.5 % at the lower end, P(X < 2) + ½ P(X = 2) = 2.5 % at
    # the upper one
    low, high = mid_p(2, 5)

    def chance(events: int, p: float) -> float:
        return comb(5, events) * p**events * (1 - p) ** (5 - events)

    assert sum(chance(k, low) for k in (3, 4, 5)) + chance(2, low) / 2 == pytest.approx(
        0.025, abs=1e-9
    )
    assert sum(chance(k, high) for k in (0, 1)) + chance(2, high) / 2 == pytest.approx(
        0.025, abs=1e-9
    )


@pytest.mark.parametrize(
    ("n", "high"), [(1, 0.95), (17, 0.161566), (20, 0.139108), (7000, 0.000428)]
)
def test_no_event_at_all(n: int, high: float) -> None:
    # (1 − p)ⁿ = .05: at 17 p = 1 − e^(ln .05 / 17) = 1 − e^−.176219 = .16157
    found = of(shares(0, n), binary=True)
    assert (found.value, found.n, found.method) == (0.0, n, "mid-p")
    assert found.interval == pytest.approx((0.0, high), abs=1e-6)
    assert of(shares(n, n), binary=True).interval == pytest.approx((1 - high, 1.0), abs=1e-6)


def test_another_confidence_has_its_own_ends() -> None:
    # (1 − p)¹⁰ = .1: p = 1 − .1^.1 = .205672
    assert of(shares(0, 10), binary=True, confidence=0.9).interval == pytest.approx(
        (0.0, 0.205672), abs=1e-6
    )
    for values, binary in ((shares(7, 30), True), (scores(30), False)):
        assert width(of(values, binary=binary, confidence=0.9)) < width(of(values, binary=binary))


@pytest.mark.parametrize("n", [1, 2, 5, 30, 115])
def test_p_and_what_it_lacks_to_1_have_mirrored_intervals(n: int) -> None:
    for events in range(n // 2 + 1):
        low, high = mid_p(events, n)
        assert mid_p(n - events, n) == pytest.approx((1 - high, 1 - low), abs=1e-15)
        assert low <= events / n <= high


def test_mirrored_scores_have_mirrored_intervals() -> None:
    generator = np.random.default_rng(4)
    values = generator.beta(0.3, 2, size=25).round(6)
    there, lacking = of(values), of(1 - values)
    assert there.interval is not None and lacking.interval is not None
    assert (1 - there.interval[1], 1 - there.interval[0]) == pytest.approx(
        lacking.interval, abs=2e-6
    )
    ahead, behind = of(values - 0.2, span=(-1.0, 1.0)), of(0.2 - values, span=(-1.0, 1.0))
    assert ahead.interval is not None and behind.interval is not None
    assert (-ahead.interval[1], -ahead.interval[0]) == pytest.approx(behind.interval, abs=2e-6)


def test_shares_where_the_exact_interval_does_not_apply() -> None:
    # several epochs, or sets that count differently: resampled, and wider than if every set weighed
    # the same
    values = shares(12, 40)
    assert of(np.resize([1.0, 2 / 3, 1 / 3, 0.0], 40), binary=True).method == "bootstrap"
    weighted = of(values, weights=np.resize([1.0, 5.0, 1.0], 40), binary=True)
    assert weighted.method == "bootstrap"
    assert width(weighted) > width(of(values, binary=True))
    # all of one weight are as of weight 1
    assert of(values, weights=3.5, binary=True).interval == of(values, binary=True).interval


# Few sets, many sets
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [True, False])
def test_there_is_no_cliff(binary: bool) -> None:
    """Each set more makes an interval a little narrower: at 29, 30 and 31 and elsewhere."""
    widths = {
        n: width(of(shares(n // 2, n) if binary else scores(n), binary=binary, count=10_000))
        for n in (25, 30, 35, 40)
    }
    assert sorted(widths.values(), reverse=True) == list(widths.values())
    for n in (29, 30, 31):
        values = np.tile(0.5, n) if not binary else shares(0, n)
        values[: n // 3] += 0.3 if not binary else 0.0
        widths[n] = width(of(values, binary=binary, count=10_000))
    assert widths[29] > widths[30] * 0.99 and widths[30] > widths[31] * 0.99
    assert widths[29] / widths[31] < 1.12


def test_one_set() -> None:
    # mid-P of one answer: (1 − p)¹ = .05; a score of ½ may have missed 95 % of what lies at either
    # end
    assert of([1.0], binary=True).interval == pytest.approx((0.05, 1.0))
    assert of([0.5]).interval == pytest.approx((0.025, 0.975))
    assert of([0.0], span=(-1.0, 1.0)).interval == pytest.approx((-0.95, 0.95))


def test_fewer_than_five_sets_have_the_interval_of_shares() -> None:
    four, five = of([0.2, 0.4, 0.6, 0.8]), of([0.2, 0.4, 0.5, 0.6, 0.8], count=10_000)
    assert four.method == "wilson"
    assert four.interval == pytest.approx(wilson(0.5, 4, continuity=True), abs=1e-6)
    assert five.method == "bootstrap"
    assert width(four) > width(five) > 0.3
    few = of([0.2, -0.4, 0.6], span=(-1.0, 1.0))
    assert few.method == "bonett-price"


def test_sets_that_are_all_alike_are_not_certain() -> None:
    # 20 sets of .75: another kind of set may be missed in 1 − .05^(1/20) = .139108 of all, at
    # either end
    found = of(np.full(20, 0.75))
    assert (found.method, found.value) == ("mid-p", 0.75)
    assert found.interval == pytest.approx(
        (0.75 - 0.75 * 0.139108, 0.75 + 0.25 * 0.139108), abs=1e-6
    )
    severity = of(np.full(20, 3.0), span=(0.0, 3.0))
    assert severity.interval == pytest.approx((3 - 3 * 0.139108, 3.0), abs=2e-6)


def test_nothing_is_no_number() -> None:
    assert of([0.0, 0.0], weights=0.0) == Estimate(value=None, n=0)


# Scores
# ------------------------------------------------------------------------------


def test_the_estimate_stays_what_it_is_and_lies_in_its_interval() -> None:
    generator = np.random.default_rng(5)
    values = generator.choice([0.0, 0.05, 1.0], p=[0.9, 0.08, 0.02], size=(200, 12))
    found = estimate(values, np.ones_like(values), Resamples(12, 1_000))
    assert np.allclose(found.value, values.mean(axis=1))
    assert ((found.low <= found.value) & (found.value <= found.high)).all()
    assert ((found.low >= 0) & (found.high <= 1)).all()
    assert set(found.method) == {"bootstrap", "mid-p"}


def test_many_sets_have_nearly_the_interval_of_the_normal_distribution() -> None:
    values = np.random.default_rng(6).normal(0.5, 0.1, size=2_000).clip(0, 1)
    found = of(values, count=10_000)
    half = 1.96 * values.std(ddof=1) / 2_000**0.5
    assert found.interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.0006)


def test_rows_do_not_depend_on_each_other() -> None:
    generator = np.random.default_rng(7)
    tops = np.concatenate(
        [generator.beta(1, 3, size=(40, 60)), generator.integers(0, 2, size=(40, 60)).astype(float)]
    )
    bottoms = np.ones_like(tops)
    bottoms[::3, :20] = 0.0
    tops *= bottoms
    binary = [False] * 40 + [True] * 40
    resamples = Resamples(60, 1_000)
    together = estimate(tops, bottoms, resamples, binary=binary).records()
    back = estimate(tops[::-1], bottoms[::-1], resamples, binary=binary[::-1]).records()
    assert back[::-1] == together
    alone = [
        estimate(tops[row : row + 1], bottoms[row : row + 1], resamples, binary=binary[row])
        for row in range(80)
    ]
    assert [found.records()[0] for found in alone] == together


# Differences
# ------------------------------------------------------------------------------


def test_paired_differences_of_shares() -> None:
    # 3 sets are better, 1 is worse, 16 alike; with one set more at +1 and at −1: mean 2/22,
    # variance 6/22 − (2/22)²
    values = np.repeat([1.0, -1.0, 0.0], [3, 1, 16])
    mean, spread = 2 / 22, ((6 / 22 - (2 / 22) ** 2) / 22) ** 0.5
    found = of(values, span=(-1.0, 1.0), binary=True)
    assert (found.value, found.method) == (0.1, "bonett-price")
    assert found.interval == pytest.approx(
        (mean - 1.959964 * spread, mean + 1.959964 * spread), abs=1e-6
    )
    assert bonett_price(values, np.full(20, 7.0), 1.0) == pytest.approx(found.interval, abs=1e-6)


def test_pairs_that_never_differ_may_differ_elsewhere() -> None:
    shown = of(np.zeros(30), span=(-1.0, 1.0))
    assert shown.interval == pytest.approx((-0.095034, 0.095034), abs=1e-6)  # 1 − .05^(1/30)
    nearly = np.zeros(30)
    nearly[:3] = (0.01, -0.01, 0.02)
    found = of(nearly, span=(-1.0, 1.0), count=10_000)
    assert found.method == "bootstrap"
    assert (
        width(found) > 0.12
    )  # one set in 30 that is lost altogether is seen in 64 % of studies only
