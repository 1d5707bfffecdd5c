"""Paired comparisons of every two models: p and interval are one statistic's, the family's error is
held, and nothing depends on the order in which models stand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import Comparison, compare_models, compute_rank_intervals
from opensafeintent.statistics.comparisons import (
    PlannedScenario,
    compare_pairs,
    compute_detectable_difference,
    count_planned_sets,
    count_sets_needed,
    find_planned_difference,
)

Floats = NDArray[np.float64]


def compared(values: Floats, weights: Floats | None = None, **options: object) -> Comparison:
    weights = np.ones_like(values) if weights is None else weights
    return compare_models(np.nan_to_num(values) * weights, weights, **options)  # type: ignore[arg-type]


def test_one_pair_is_a_t_test_with_the_pseudo_sets() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(2)
    values = generator.integers(0, 10, (2, 40)) / 9
    result = compared(values)
    everything = np.append(values[1] - values[0], (1.0, -1.0))
    assert result.p_unadjusted[0, 1] == result.p_adjusted[0, 1]
    assert result.p_unadjusted[0, 1] == pytest.approx(
        stats.ttest_1samp(everything, 0).pvalue, abs=1e-9
    )
    limits = stats.t.interval(0.95, 41, everything.mean(), stats.sem(everything))
    assert (result.low[0, 1], result.high[0, 1]) == pytest.approx(limits)
    assert result.difference[0, 1] == pytest.approx((values[1] - values[0]).mean())
    assert result.pairs[0, 1] == 1
    # (c · E + z · σ · √n) / n, with E² = (n σ² + 2)(n + 2)/(n + 1): the documented equation
    deviation = (values[1] - values[0]).std(ddof=1)
    error = ((40 * deviation**2 + 2) * 42 / 41) ** 0.5
    power = stats.t.ppf(0.975, 41) * error + stats.norm.ppf(0.8) * deviation * 40**0.5
    assert result.minimum_detectable_difference[0, 1] == pytest.approx(power / 40)
    assert compute_detectable_difference(40, deviation) == pytest.approx(power / 40)


def test_a_difference_of_shares_is_found_as_often_as_is_said() -> None:
    # two models that are alike but in 2 of 42 sets: their spread is 0.22, and a difference of 20
    # points needs nine sets that differ, whose spread is 0.4
    values = np.zeros((2, 42))
    values[1, :2] = 1
    result = compared(values).minimum_detectable_difference[0, 1]
    generator, studies, hits = np.random.default_rng(5), 400, 0
    for _ in range(studies):
        later = (generator.random(42) < result).astype(float)
        hits += compared(np.array([np.zeros(42), later])).p_unadjusted[0, 1] < 0.05
    assert 0.75 < hits / studies < 0.9
    expected = compute_detectable_difference(42, values[1].std(ddof=1), binary=True)
    assert result == pytest.approx(expected, abs=1e-4)


def test_weights_move_the_mean() -> None:
    # b − a: 0.2, 0.4, −0.1 with weights 1, 1, 2: Σwd = 0.4, Σw = 4
    values = np.array([[0.5, 0.5, 0.5], [0.7, 0.9, 0.4]])
    assert compared(values, np.array([[1.0, 1, 2], [1, 1, 2]])).difference[0, 1] == pytest.approx(
        0.1
    )
    # two models that weigh a set differently: the mean of the two
    result = compared(values, np.array([[1.0, 1, 1], [1, 1, 3]]))
    assert result.difference[0, 1] == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["scores", "zero or one", "missing", "weighted"])
@pytest.mark.parametrize("sets", [6, 42])
def test_p_is_below_5_percent_exactly_if_the_interval_leaves_0_out(kind: str, sets: int) -> None:
    most, claims = 1 if kind == "zero or one" else 9, 0
    for seed in range(12):
        generator = np.random.default_rng(seed)
        drawn = generator.random((6, sets)) < np.linspace(0.3, 0.9, 6)[:, None]
        values = generator.integers(0, most + 1, (6, sets)) / most * 0.3 + drawn * 0.7
        values = values.round() if kind == "zero or one" else values
        weights = np.ones_like(values)
        if kind == "missing":
            weights = (generator.random(values.shape) < 0.8).astype(float)
        if kind == "weighted":
            weights = generator.choice([0.5, 1.0, 2.5], size=values.shape)
        result = compared(values, weights)
        above = np.triu_indices(6, 1)
        there = ~np.isnan(result.p_unadjusted[above])
        left_out = (result.low[above] > 0) | (result.high[above] < 0)
        assert np.array_equal(result.p_adjusted[above][there] < 0.05, left_out[there])
        assert np.array_equal(result.significant[above], left_out)
        assert (result.p_adjusted[above][there] >= result.p_unadjusted[above][there]).all()
        claims += left_out.sum()
    assert claims > 0 or sets == 6


def test_equal_models_are_called_different_in_5_percent_of_studies_at_most() -> None:
    generator = np.random.default_rng(11)
    wrong = 0
    for _ in range(200):
        values = (generator.random((5, 42)) < 0.6).astype(float)
        wrong += compared(values).significant.any()
    assert wrong <= 20  # 5 % of 200 is 10; 20 and fewer come in 99.8 %


def test_reference_points_are_outside_the_family() -> None:
    generator = np.random.default_rng(4)
    values = (generator.random((4, 60)) < [[0.4], [0.6], [0.8], [0.5]]).astype(float)
    result = compared(values, family=[True, True, True, False])
    assert result.pairs[:3, :3][np.triu_indices(3, 1)].tolist() == [3, 3, 3]
    assert result.pairs[3, :3].tolist() == [1, 1, 1]
    among = compared(values[:3])
    assert np.array_equal(result.p_adjusted[:3, :3], among.p_adjusted, equal_nan=True)
    assert compute_rank_intervals(result) == [*compute_rank_intervals(among), None]
    alone = compared(values[[0, 3]])
    assert result.p_adjusted[0, 3] == pytest.approx(alone.p_unadjusted[0, 1])


def test_pairs_may_be_chosen() -> None:
    generator = np.random.default_rng(6)
    old, new = generator.random((2, 3, 30))
    ones = np.ones((3, 30))
    result = compare_pairs((old, ones), (new, ones), confidence=0.9)
    for at in range(3):
        alone = compare_pairs((old[[at]], ones[:1]), (new[[at]], ones[:1]), confidence=0.9)
        assert result.spread.value[at] == pytest.approx((new - old)[at].mean())
        assert alone.low[0] >= result.low[at] and alone.high[0] <= result.high[at]
    assert result.pairs.tolist() == [3, 3, 3]


def test_the_order_of_models_changes_nothing_but_signs() -> None:
    generator = np.random.default_rng(7)
    values = generator.integers(0, 10, (9, 60)) / 9
    values[5] = values[2]
    weights = (generator.random((9, 60)) < 0.9).astype(float)
    before = compared(values, weights)
    order = generator.permutation(9)
    after = compared(values[order], weights[order])

    def squares(comparison: Comparison) -> dict[str, NDArray[Any]]:
        parts = comparison._asdict()
        ends = {
            f"{end} {name}": part
            for end in ("least", "greatest")
            for name, part in parts.pop(end)._asdict().items()
        }
        del parts["family"], parts["turning_odds"]
        return parts | ends

    for name, values in squares(before).items():
        assert np.allclose(values[np.ix_(order, order)], squares(after)[name], equal_nan=True), name
    assert np.array_equal(before.difference, -before.difference.T, equal_nan=True)
    assert np.array_equal(before.low, -before.high.T, equal_nan=True)
    ranks = compute_rank_intervals(before)
    assert compute_rank_intervals(after) == [ranks[place] for place in order]


def test_ranks_of_clearly_different_models() -> None:
    values = np.array([[0.2], [0.9], [0.5], [0.9]]) + np.zeros((4, 60))
    result = compared(values)
    assert compute_rank_intervals(result) == [(4, 4), (1, 2), (3, 3), (1, 2)]
    assert compute_rank_intervals(result, less_is_better=True) == [(1, 1), (3, 4), (2, 2), (3, 4)]


def test_a_model_without_a_value_has_no_rank_and_takes_none() -> None:
    values = np.array([[0.1], [0.5], [0.9]]) + np.zeros((3, 20))
    weights = np.ones_like(values)
    weights[1] = 0.0
    result = compared(values, weights)
    assert compute_rank_intervals(result) == [(2, 2), None, (1, 1)]
    assert np.isnan(
        [result.p_unadjusted[0, 1], result.p_adjusted[0, 1], result.difference[0, 1]]
    ).all()
    assert result.get_difference(0, 1) is None


def test_every_set_tied() -> None:
    result = compared(np.full((3, 40), 1 / 3))
    above = np.triu_indices(3, 1)
    assert (result.p_unadjusted[above] == 1).all() and (result.p_adjusted[above] == 1).all()
    assert not result.significant.any()
    assert compute_rank_intervals(result) == [(1, 3)] * 3
    pair = result.get_difference(0, 1)
    assert pair and pair.interval and pair.interval[0] < 0 < pair.interval[1]


def test_a_metric_undefined_in_half_the_sets() -> None:
    generator = np.random.default_rng(3)
    values, weights = generator.random((3, 40)), np.ones((3, 40))
    weights[0, ::2] = weights[1, 1::2] = 0.0  # the first two have no set in common
    result = compared(values, weights)
    assert (result.n[0, 1], result.n[0, 2], result.n[1, 2]) == (0, 20, 20)
    alone = compared(values[[0, 2]][:, 1::2])
    assert result.p_unadjusted[0, 2] == pytest.approx(alone.p_unadjusted[0, 1])
    assert result.difference[0, 2] == pytest.approx(alone.difference[0, 1])


def test_so_many_sets_find_the_difference_that_they_were_asked_for() -> None:
    for deviation, pairs in ((0.5, 1), (0.35, 10), (0.0, 1)):
        sets = count_sets_needed(0.1, deviation, pairs=pairs)
        assert sets
        assert compute_detectable_difference(sets, deviation, pairs=pairs) <= 0.1
        assert compute_detectable_difference(sets - 1, deviation, pairs=pairs) > 0.1
    assert count_sets_needed(-0.1, 0.5) == count_sets_needed(0.1, 0.5)
    assert count_sets_needed(0.0, 0.5) is count_sets_needed(float("nan"), 0.5) is None


def test_what_missing_grades_take_away_does_not_shrink_with_the_sets() -> None:
    ends = [PlannedScenario(0.5), PlannedScenario(0.6, missing_shift=0.04, units_per_set=0.9)]
    sets = count_planned_sets(0.1, ends)
    # ((1.96 + 0.8416) · 0.6 / (0.1 − 0.04))² / 0.9 = 872, and what the pseudo-sets add
    assert sets == pytest.approx(872, rel=0.01)
    assert find_planned_difference(sets, ends) == pytest.approx(0.1, abs=1e-4)
    assert count_planned_sets(0.1, ends[:1]) == count_sets_needed(0.1, 0.5)
    assert count_planned_sets(0.04, ends) is count_planned_sets(0.03, ends) is None
    assert find_planned_difference(10**7, ends) == pytest.approx(0.04, abs=1e-3)


def test_a_pair_is_decided_by_the_sets_that_its_spread_asks_for() -> None:
    generator = np.random.default_rng(8)
    values = (generator.random((2, 42)) < [[0.5], [0.6]]).astype(float)
    pair = compared(values).get_difference(0, 1)
    assert pair and pair.value and pair.deciding
    assert pair.deciding == count_sets_needed(pair.value, (values[1] - values[0]).std(ddof=1))
