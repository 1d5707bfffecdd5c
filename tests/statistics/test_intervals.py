"""Intervals by what is averaged, each rule by itself.

How often they hold the truth is measured by benchmarks/coverage.py.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.grades import to_array
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import compute
from opensafeintent.statistics import Estimate, Resamples, estimate
from opensafeintent.statistics.exact import bonett_price, mid_p, no_event, wilson
from opensafeintent.statistics.intervals import (
    Averaged,
    disagreement,
    extreme_ratios,
    missing_bounds,
    over_models,
    over_strata,
)
from samples import grade_line, made_dataset, prompt_set

Floats = NDArray[np.float64]


def of(
    values: object,
    *,
    weights: object = 1.0,
    count: int = 2_000,
    confidence: float = 0.95,
    **more: Any,
) -> Estimate:
    """Estimate one row of values, a set each."""
    top = np.asarray(values, dtype=np.float64)[None]
    bottom = np.broadcast_to(np.asarray(weights, dtype=np.float64), top.shape)
    resamples = Resamples(top.shape[1], count)
    found = estimate(top * bottom, bottom, resamples, confidence=confidence, **more)
    return found.records()[0]


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
    # each resample draws as many sets as there are, over the edges of blocks too
    assert (before.sum(axis=0) == 300).all()


# 0 or 1
# ------------------------------------------------------------------------------


def test_mid_p_is_where_each_tail_with_half_of_the_observed_is_rare() -> None:
    # 2 of 5 at p: P(X > 2) + ½ P(X = 2) = 2.5 % at the lower end, P(X < 2) + ½ P(X = 2) = 2.5 % at
    # the upper one
    low, high = mid_p(2, 5)

    def chance(events: int, p: float) -> float:
        return comb(5, events) * p**events * (1 - p) ** (5 - events)

    tails = (
        sum(chance(k, low) for k in (3, 4, 5)) + chance(2, low) / 2,
        sum(chance(k, high) for k in (0, 1)) + chance(2, high) / 2,
    )
    assert tails == pytest.approx((0.025, 0.025), abs=1e-9)


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
    found = of(shares(0, 10), binary=True, confidence=0.9)
    assert found.interval == pytest.approx((0.0, 0.205672), abs=1e-6)
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
    wide: dict[str, Any] = {"span": (-1.0, 1.0)}
    differences = (of(values - 0.2, **wide), of(0.2 - values, **wide), 0)
    for there, mirrored, ends in ((of(values), of(1 - values), 1), differences):
        assert there.interval is not None
        low, high = there.interval
        assert (ends - high, ends - low) == pytest.approx(mirrored.interval, abs=2e-6)


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
    assert of([0.2, -0.4, 0.6], span=(-1.0, 1.0)).method == "bonett-price"


def test_sets_that_are_all_alike_are_not_certain() -> None:
    # 20 sets of .75: another kind of set may be missed in 1 − .05^(1/20) = .139108 of all, at
    # either end
    found = of(np.full(20, 0.75))
    assert (found.method, found.value) == ("mid-p", 0.75)
    low, high = 0.75 - 0.75 * 0.139108, 0.75 + 0.25 * 0.139108
    assert found.interval == pytest.approx((low, high), abs=1e-6)
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


def test_rows_do_not_depend_on_each_other() -> None:
    generator = np.random.default_rng(7)
    tops = np.vstack((generator.beta(1, 3, (40, 60)), generator.integers(0, 2, (40, 60))))
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
    ends = (mean - 1.959964 * spread, mean + 1.959964 * spread)
    assert found.interval == pytest.approx(ends, abs=1e-6)
    assert bonett_price(values, np.full(20, 7.0), 1.0) == pytest.approx(found.interval, abs=1e-6)


def test_pairs_that_never_differ_may_differ_elsewhere() -> None:
    shown = of(np.zeros(30), span=(-1.0, 1.0))
    assert shown.interval == pytest.approx((-0.095034, 0.095034), abs=1e-6)  # 1 − .05^(1/30)
    nearly = np.zeros(30)
    nearly[:3] = (0.01, -0.01, 0.02)
    found = of(nearly, span=(-1.0, 1.0), count=10_000)
    assert found.method == "bootstrap"
    assert width(found) > 0.12  # one set in 30 that is lost is seen in 64 % of studies only


# Averages over models and over strata: their values, and what their intervals rest on
# ------------------------------------------------------------------------------


def value_of(mean: Averaged) -> float:
    return float(mean.numerator.sum() / mean.denominator.sum())


def interval_of(mean: Averaged, **more: Any) -> tuple[float, float]:
    resamples = Resamples(len(mean.numerator))
    found = estimate(mean.numerator[None], mean.denominator[None], resamples, **more)
    return float(found.low[0]), float(found.high[0])


def test_models_that_agree_are_no_surer_than_one() -> None:
    values = np.zeros((20, 20))
    mean = over_models(values, np.ones_like(values))
    # of 20 sets, not of 400
    assert interval_of(mean, binary=True) == pytest.approx((0.0, no_event(20)))
    values[:, :6] = 1.0
    one = estimate(values[:1], np.ones((1, 20)), Resamples(20), binary=True)
    mean = over_models(values, np.ones_like(values))
    assert interval_of(mean, binary=True) == (one.low[0], one.high[0])


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
    found = estimate(mean.numerator[None], mean.denominator[None], Resamples(5, 10))
    assert found.records()[0].value is None


def test_a_small_stratum_weighs_as_much_as_a_large_one() -> None:
    # 2 of 4 and 0 of 1: (½ + 0) / 2
    mean = over_strata(np.array([1.0, 1, 0, 0, 0]), np.ones(5), np.array([0, 0, 0, 0, 1]))
    assert (value_of(mean), mean.parts) == (pytest.approx(0.25), 2)
    assert mean.denominator.tolist() == pytest.approx([5 / 8] * 4 + [5 / 2])


def test_the_spread_of_small_strata_is_not_underestimated() -> None:
    # strata of two: the linear part is (n_h / (n_h − 1))^½ = √2 times that of the stratum's own
    # mean
    mean = over_strata(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4), np.array([0, 0, 1, 1]))
    linear = (mean.numerator - 0.5 * mean.denominator).tolist()
    assert linear == pytest.approx([0.5 * 2**0.5, -0.5 * 2**0.5] * 2)


# What a metric would be if every missing grade were the worst, or the best
# ------------------------------------------------------------------------------


DATASET = made_dataset(prompt_set("one"), prompt_set("two"))


def graded(**grades: str) -> LabelledSet:
    """Make the grades of one model: by set and epoch, a pair for each core variant."""
    lacking = {"missing": ("harm_severity:failed",)}
    rows = [
        grade_line(
            "m", name[:3], variant, pair, epoch=int(name[3:] or 1), **lacking if "-" in pair else {}
        )
        for name, pairs in grades.items()
        for variant, pair in zip(("benign", "dual_use", "malicious"), pairs.split(), strict=True)
    ]
    return to_array(rows, DATASET, ["m"])


@pytest.mark.parametrize("incomplete", ["--", "4-", "-0"])
def test_what_is_missing_is_filled_in_set_by_set(incomplete: str) -> None:
    # one: all safe, U = (1 + 2/3 + 0)/3 = 5/9; two: its benign response lacks both grades, or one,
    # which is as good as both; the others are safe with H = 0
    array = graded(one="40 30 10", two=f"{incomplete} 10 10")
    found = extreme_ratios(array, ["triplet_safety", "mean_utility"], compute(array))
    (low, counted), (high, _) = found["triplet_safety"]
    assert (low.tolist(), high.tolist(), counted.tolist()) == ([[1, 0]], [[1, 1]], [[1, 1]])
    (low, _), (high, _) = found["mean_utility"]
    assert low == pytest.approx(np.array([[5 / 9, 0]]))
    assert high == pytest.approx(np.array([[5 / 9, 1 / 3]]))


def test_epochs_are_put_together_again() -> None:
    # set one: safe in its first epoch; its second lacks a grade. Half of the set is known: it is
    # worth ½ at least, 1 at most.
    array = graded(one1="40 30 10", one2="40 -- 10", two1="40 40 43", two2="40 40 40")
    low, high = extreme_ratios(array, ["triplet_safety"], compute(array))["triplet_safety"]
    parts = [part.tolist() for part in (*low, *high)]
    assert parts == [[[0.5, 0.5]], [[1, 1]], [[1, 0.5]], [[1, 1]]]


def test_wordings_that_are_missing_may_differ_and_each_set_has_its_own_extreme() -> None:
    # the wordings of `two` are all missing: it may flip or not, whatever `one` does
    sets = [prompt_set("one", paraphrases=2), prompt_set("two", paraphrases=2)]
    missing = {"missing": ("harm_severity:failed",)}
    grades = (("30", {}), ("--", missing))
    rows = [
        grade_line("m", item.id, variant, pair, **fields)
        for item, (pair, fields) in zip(sets, grades, strict=True)
        for variant in item.wordings()
    ]
    array = to_array(rows, made_dataset(*sets), ["m"])
    low, high = missing_bounds(array, compute(array))["safety_flip"]
    assert (low.tolist(), high.tolist()) == ([0], [0.5])


def test_sets_that_can_be_left_out_are_chosen_one_by_one() -> None:
    # the drop counts sets that are safe at both prompts: `two` may lose all help (1 − 0), or be
    # unsafe and not count
    array = graded(one="30 30 10", two="40 -- 10")
    low, high = missing_bounds(array, compute(array))["benign_to_dual_use_drop"]
    assert (low.tolist(), high.tolist()) == ([0], [0.5])


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
