"""Paired tests of every two models: by enumeration of all flips, by hand, and the same in whatever
order models stand.
"""

from __future__ import annotations

from itertools import combinations, product
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import Comparison, Resamples, compare_models, rank_intervals
from opensafeintent.statistics.comparisons import Paired, mcnemar, step_down
from opensafeintent.statistics.exact import t_quantile

Floats = NDArray[np.float64]


def compared(values: Floats, weights: Floats | None = None, *, binary: bool = False) -> Comparison:
    weights = np.ones_like(values) if weights is None else weights
    ratios = {"m": (np.nan_to_num(values) * weights, weights)}
    kinds = ("m",) if binary else ()
    return compare_models(ratios, Resamples(values.shape[1], 400), binary=kinds)["m"]


# All flips, one by one
# ------------------------------------------------------------------------------


def by_enumeration(values: Floats, weights: Floats) -> dict[tuple[int, int], float]:
    """Return p adjusted among all pairs, from every flip there is."""
    models, sets = values.shape
    different: dict[tuple[int, int], Floats] = {}
    for a, b in combinations(range(models), 2):
        both = (weights[a] > 0) & (weights[b] > 0)
        row = both * (weights[a] + weights[b]) / 2 * (values[b] - values[a])
        if row.any():
            different[a, b] = row
    flips = list(product((1, -1), repeat=sets))

    def statistic(pair: tuple[int, int], signs: tuple[int, ...]) -> float:
        row = different[pair]
        return float(abs(sum(signs * row)) / sqrt(sum(row * row)))

    observed = {pair: statistic(pair, flips[0]) for pair in different}
    found, running = {}, 0.0
    for pair in sorted(different, key=lambda pair: -observed[pair]):
        rest = [other for other in different if observed[other] <= observed[pair] + 1e-9]
        reached = sum(
            max(statistic(other, signs) for other in rest) >= observed[pair] - 1e-9
            for signs in flips
        )
        running = max(running, reached / len(flips))
        found[pair] = running
    return found


@pytest.mark.parametrize("kind", ["scores", "zero or one", "missing", "weighted"])
def test_p_adjusted_is_what_all_flips_give(kind: str) -> None:
    most = 1 if kind == "zero or one" else 9
    values = np.random.default_rng(len(kind)).integers(0, most + 1, size=(4, 7)) / most
    values[1] = np.minimum(values[1] + 0.5, 1.0)
    values[3] = values[2]  # never differ
    weights = np.ones_like(values)
    if kind == "missing":
        weights[0, 2] = weights[1, 5] = weights[1, 6] = 0.0
    if kind == "weighted":
        weights *= [1, 1, 2.5, 2.5, 0.5, 1, 1]
        weights[0, 1] = 0.0
    alone, adjusted = step_down(Paired(values * weights, weights))
    together = by_enumeration(values, weights)
    for (a, b), p in together.items():
        assert adjusted[a, b] == adjusted[b, a] == pytest.approx(p, abs=1e-12), (a, b)
    assert (adjusted[2, 3], alone[2, 3]) == (1, 1)


def test_one_pair_by_hand() -> None:
    # b − a: 2, 4, −1, 3 tenths: Σ = 8. |Σ| ≥ 8 for (+ + − +) and (+ + + +), which is 10, and their
    # mirrors: 4 of 16.
    values = np.array([[0.5, 0.5, 0.5, 0.5], [0.7, 0.9, 0.4, 0.8]])
    found = compared(values)
    assert found.difference[0, 1] == pytest.approx(0.2)
    assert found.difference[1, 0] == pytest.approx(-0.2)
    assert found.p[0, 1] == found.p_adjusted[0, 1] == 0.25
    # The standard error: deviations 0, 2, −3, 1 tenths, variance 14/3 hundredths: 2.8 · √(0.14/3 /
    # 4) = 0.302435.
    assert found.detectable[0, 1] == pytest.approx(0.302435, abs=1e-6)


def test_weights_move_the_mean_and_its_error() -> None:
    # b − a: 0.2, 0.4, −0.1 with weights 1, 1, 2: Σwd = 0.4, Σw = 4: 0.1. Flips of 0.2, 0.4, −0.2:
    # |Σ| ≥ 0.4 for (+ + +), which is 0.4; (+ + −), 0.8; (− + +), 0; (− + −), 0.4; and their
    # mirrors: 6 of 8. Error: w(d − 0.1) = 0.1, 0.3, −0.4: √(0.26 · 3/2) / 4 = 0.156125; by 2.8:
    # 0.437150.
    values = np.array([[0.5, 0.5, 0.5], [0.7, 0.9, 0.4]])
    found = compared(values, np.array([[1.0, 1, 2], [1, 1, 2]]))
    assert found.difference[0, 1] == pytest.approx(0.1)
    assert found.p[0, 1] == 0.75
    assert found.detectable[0, 1] == pytest.approx(0.437150, abs=1e-6)


# Zero or one
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 0.5),  # 2 · 0 + 1/2
        (3, 1, 0.375),  # 2 · P(X < 1) + P(X = 1), X of 4: 2/16 + 4/16
        (1, 5, 0.125),  # of 6: 2/64 + 6/64
        (8, 0, 1 / 256),
        (2, 2, 1.0),  # of 4: 10/16 + 6/16
        (9, 2, (2 * (1 + 11) + 55) / 2048),
    ],
)
def test_mid_p_by_hand(better: int, worse: int, p: float) -> None:
    assert mcnemar(better, worse) == pytest.approx(p, abs=1e-15)


def test_two_models_of_zero_or_one_are_tested_by_mid_p() -> None:
    # b alone succeeds in 5 sets, a alone in 1, both in 4: 2/64 + 6/64; all flips would give 2 · (1
    # + 6)/64 = 0.21875.
    values = np.array([[0.0] * 5 + [1] + [1] * 4, [1.0] * 5 + [0] + [1] * 4])
    found = compared(values, binary=True)
    assert found.p[0, 1] == found.p_adjusted[0, 1] == 0.125
    assert compared(values).p[0, 1] == 0.21875
    weights = np.ones_like(values)
    weights[:, 0] = 2.0  # then sets are no longer alike
    assert compared(values, weights, binary=True).p[0, 1] == compared(values, weights).p[0, 1]


def test_among_several_the_adjusted_p_is_never_below_a_pairs_own() -> None:
    drawn = np.random.default_rng(4).random((5, 30)) < [[0.3], [0.5], [0.6], [0.7], [0.9]]
    values = drawn.astype(float)
    found = compared(values, binary=True)
    above = np.triu_indices(5, 1)
    assert (found.p_adjusted[above] >= found.p[above]).all()
    better, worse = ((values[4] > values[0]).sum(), (values[4] < values[0]).sum())
    assert found.p[0, 4] == mcnemar(int(better), int(worse))


# The same in any order
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_the_order_of_models_changes_nothing_but_signs(binary: bool) -> None:
    generator = np.random.default_rng(7)
    most = 1 if binary else 9
    values = generator.integers(0, most + 1, (9, 60)) / most
    values[5] = values[2]
    weights = (generator.random((9, 60)) < 0.9).astype(float)
    before = compared(values, weights, binary=binary)
    order = generator.permutation(9)
    after = compared(values[order], weights[order], binary=binary)
    for name, one in before._asdict().items():
        assert np.array_equal(one[np.ix_(order, order)], getattr(after, name), equal_nan=True), name
    assert np.array_equal(before.difference, -before.difference.T, equal_nan=True)
    assert np.array_equal(before.low, -before.high.T, equal_nan=True)
    ranks = rank_intervals(before)
    assert rank_intervals(after) == [ranks[place] for place in order]


# Ranks
# ------------------------------------------------------------------------------


def test_ranks_of_clearly_different_models() -> None:
    values = np.array([[0.2], [0.9], [0.5], [0.9]]) + np.zeros((4, 20))
    found = compared(values)
    assert rank_intervals(found) == [(4, 4), (1, 2), (3, 3), (1, 2)]
    assert rank_intervals(found, less_is_better=True) == [(1, 1), (3, 4), (2, 2), (3, 4)]


def test_a_model_without_a_value_has_no_rank_and_takes_none() -> None:
    values = np.array([[0.1], [0.5], [0.9]]) + np.zeros((3, 20))
    weights = np.ones_like(values)
    weights[1] = 0.0
    found = compared(values, weights)
    assert rank_intervals(found) == [(2, 2), None, (1, 1)]
    assert np.isnan([found.p[0, 1], found.p_adjusted[0, 1], found.difference[0, 1]]).all()
    assert found.pair(0, 1) is None


# Edges
# ------------------------------------------------------------------------------


def test_every_set_tied() -> None:
    found = compared(np.full((3, 40), 1 / 3))
    above = np.triu_indices(3, 1)
    assert (found.p[above] == 1).all() and (found.p_adjusted[above] == 1).all()
    assert np.isnan(found.detectable[above]).all()
    assert rank_intervals(found) == [(1, 3)] * 3


def test_equal_sums_that_rounding_moves_apart_are_equal() -> None:
    # 0.1 + 0.2 − 0.3 is 0, which every flip reaches; a machine has 5.6e-17.
    assert 0.1 + 0.2 - 0.3 > 0
    assert compared(np.array([[0.0, 0.0, 0.3], [0.1, 0.2, 0.0]])).p[0, 1] == 1


def test_a_metric_undefined_in_half_the_sets() -> None:
    generator = np.random.default_rng(3)
    values, weights = generator.random((3, 40)), np.ones((3, 40))
    weights[0, ::2] = weights[1, 1::2] = 0.0  # the first two have no set in common
    found = compared(values, weights)
    assert (found.n[0, 1], found.n[0, 2], found.n[1, 2]) == (0, 20, 20)
    alone = compared(values[[0, 2]][:, 1::2])
    assert found.p[0, 2] == pytest.approx(alone.p[0, 1], abs=0.02)  # other flips, the same test
    assert found.difference[0, 2] == pytest.approx(alone.difference[0, 1])


# Against the tables that everybody has, and against scipy where it is at hand
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 28, 29, 114, 199, 200, 201, 699, 13_999])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.975, 0.9995])
def test_students_t_as_scipy_has_it(share: float, degrees: int) -> None:
    special = pytest.importorskip("scipy.special")
    assert t_quantile(share, degrees) == pytest.approx(
        float(special.stdtrit(degrees, share)), rel=1e-8, abs=1e-12
    )
