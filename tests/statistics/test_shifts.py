"""Shifts between judges, worked by hand, and as often right as they say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import estimate
from opensafeintent.statistics.intervals import Parts
from opensafeintent.statistics.shifts import (
    compute_interactions,
    compute_shifts,
    least_margin,
    sign_test,
)

Floats = NDArray[np.float64]


def parts(*rows: list[float]) -> Parts:
    """Return values of models as numerator and denominator; NaN is a set that does not count."""
    values = np.array(rows, dtype=float)
    return np.nan_to_num(values), (~np.isnan(values)).astype(float)


MISSING = float("nan")
OLD = parts([1, 1, 0, 1, MISSING], [1, 0, 0, 1, 1])
NEW = parts([1, 0, 0, 0, 1], [1, 1, 0, 0, 1])
BOTH = np.array([True, True])


def test_a_shift_is_the_mean_over_the_sets_that_both_judges_graded() -> None:
    shifts = compute_shifts(OLD, NEW, max_difference=1.0, averaged=BOTH)
    # the first model: 0, −1, 0, −1 in four sets; the second: 0, 1, 0, −1, 0 in five
    assert shifts.spread.value[:2] == pytest.approx([-2 / 4, 0])
    assert shifts.spread.n.tolist() == [4, 5, 5]
    # by the old judge on these sets 3/4 and 3/5, by the new one 1/4 and 3/5
    assert shifts.old[:2] == pytest.approx([3 / 4, 3 / 5])
    assert shifts.new[:2] == pytest.approx([1 / 4, 3 / 5])
    # the mean over models weighs both the same
    assert shifts.spread.value[2] == pytest.approx(-1 / 4)
    assert shifts.new[2] - shifts.old[2] == pytest.approx(-1 / 4)
    # as graded, so the ends with any missing grades are those of the interval
    assert shifts.worst_low == pytest.approx(shifts.interval.low)


def test_the_unit_of_the_mean_is_the_prompt_set() -> None:
    # twenty models that are shifted alike are no more than one model
    generator = np.random.default_rng(4)
    old = generator.integers(0, 2, 30).astype(float)
    new = np.where(generator.random(30) < 0.2, 1 - old, old)
    one = compute_shifts(
        parts([*old]), parts([*new]), max_difference=1.0, averaged=np.array([True])
    )
    rows = [[*old]] * 20, [[*new]] * 20
    twenty = compute_shifts(
        parts(*rows[0]), parts(*rows[1]), max_difference=1.0, averaged=np.ones(20, dtype=bool)
    )
    assert twenty.interval.low[-1] == pytest.approx(one.interval.low[0])
    assert twenty.interval.high[-1] == pytest.approx(one.interval.high[0])
    # and one model's interval is that of any mean of −1 to 1
    alone = estimate((new - old)[None], np.ones((1, 30)), span=(-1.0, 1.0))
    assert one.interval.low[0] == pytest.approx(alone.low[0])


def test_missing_grades_widen_the_interval_to_both_sides() -> None:
    # the new judge lacks a grade in the fifth set, where the old one says 1: its shift is −1 to 0
    old, new = parts([1, 1, 0, 1, 1]), parts([1, 1, 0, 1, MISSING])
    least = np.array([[0.0, 0, 0, 0, -1]]), np.ones((1, 5))
    greatest = np.zeros((1, 5)), np.ones((1, 5))
    alone = np.array([True])
    shifts = compute_shifts(
        old, new, max_difference=1.0, averaged=alone, extremes=(least, greatest)
    )
    assert shifts.spread.n[0] == 4
    expected = estimate(*least, span=(-1.0, 1.0)).low[0]
    assert shifts.worst_low[0] == pytest.approx(min(expected, shifts.interval.low[0]))
    assert shifts.worst_low[0] < shifts.interval.low[0] < 0
    # two one-sided tests at 5 %: the larger end of the 90 % interval
    nearer = estimate(*least, span=(-1.0, 1.0), confidence=0.9).low[0]
    assert shifts.same_within[0] == pytest.approx(-nearer)
    assert expected < nearer


def test_the_least_margin_is_that_of_no_change() -> None:
    # n zeros with −1 and 1: the standard error of n + 2 values is √(2 / (n + 1) / (n + 2))
    stats = pytest.importorskip("scipy.stats")
    for sets in (10, 42, 115, 700):
        expected = stats.t.ppf(0.95, sets + 1) * (2 / (sets + 1) / (sets + 2)) ** 0.5
        assert least_margin(sets) == pytest.approx(expected)
        assert least_margin(sets, 3.0) == pytest.approx(3 * expected)
    # so 42 sets certify no margin of five points
    assert [round(least_margin(sets), 3) for sets in (42, 115, 700)] == [0.055, 0.020, 0.003]
    assert least_margin(0) == 1


def test_what_breaks_a_ranking_is_the_difference_of_two_shifts() -> None:
    old, new = parts([0.9, 0.8, 0.7, 0.6], [0.5, 0.6, 0.7, 0.2]), None
    alike = parts([0.8, 0.7, 0.6, 0.5], [0.4, 0.5, 0.6, 0.1])
    same = compute_interactions(old, alike, max_difference=1.0, family=BOTH)
    assert same.paired.spread.value == pytest.approx([0])
    assert (same.old, same.new) == (pytest.approx([-0.25]), pytest.approx([-0.25]))
    # the first model loses 0.4 in each set, the second gains 0.1: an interaction of 0.5
    new = parts([0.5, 0.4, 0.3, 0.2], [0.6, 0.7, 0.8, 0.3])
    turned = compute_interactions(old, new, max_difference=1.0, family=BOTH)
    assert turned.paired.spread.value == pytest.approx([0.5])
    assert (turned.old, turned.new) == (pytest.approx([-0.25]), pytest.approx([0.25]))
    assert turned.paired.max_difference == 2
    assert turned.paired.pairs.tolist() == [1]


def test_interactions_are_one_family() -> None:
    generator = np.random.default_rng(1)
    old, new = (parts(*generator.random((4, 40)).tolist()) for _ in range(2))
    four = compute_interactions(old, new, max_difference=1.0, family=np.ones(4, dtype=bool))
    assert four.paired.pairs.tolist() == [6] * 6
    # Šidák: 1 − (1 − p)⁶
    assert four.paired.p_adjusted == pytest.approx(1 - (1 - four.paired.p_unadjusted) ** 6)
    # a baseline is compared on its own
    three = compute_interactions(
        old, new, max_difference=1.0, family=np.array([True, True, True, False])
    )
    assert sorted(three.paired.pairs.tolist()) == [1, 1, 1, 3, 3, 3]


def test_mcnemar() -> None:
    # 2 · P(8 or more of 9 at one half) = 2 · (9 + 1) / 512
    assert sign_test(1, 8) == sign_test(8, 1) == pytest.approx(20 / 512)
    assert sign_test(5, 5) == sign_test(0, 0) == 1
    stats = pytest.importorskip("scipy.stats")
    for one, other in ((3, 14), (0, 6), (20, 31)):
        expected = stats.binomtest(one, one + other).pvalue
        assert sign_test(one, other) == pytest.approx(expected)


def test_a_judge_that_differs_by_the_margin_is_rarely_called_the_same() -> None:
    # a judge that moves twelve sets of a hundred one way and two the other: a shift of exactly 0.1.
    # Two one-sided tests of equivalence allow 5 %, and 6.2 % here; a judge that moves sets one way
    # alone passes in up to 10 % (benchmarks/README.md)
    generator, certified, studies = np.random.default_rng(6), 0, 600
    for _ in range(studies):
        change = generator.choice([1.0, -1.0, 0.0], p=[0.12, 0.02, 0.86], size=115)
        shifts = compute_shifts(
            parts([0.0] * 115), parts([*change]), max_difference=1.0, averaged=np.array([True])
        )
        certified += shifts.same_within[0] <= 0.1
    assert 0.03 <= certified / studies <= 0.08
