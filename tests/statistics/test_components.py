"""Components of variance: worked by hand, recovered from a simulation, and what they promise."""

from __future__ import annotations

from math import inf, isnan

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics.components import (
    Components,
    average_components,
    find_components,
)

Floats = NDArray[np.float64]
N = float("nan")


def find(values: Floats) -> Components:
    found = find_components(values)
    assert found is not None
    return found


def test_repeats_by_hand() -> None:
    # a set has 1 and 0 in two epochs, one 1 and 1; a third lacks an epoch. The means ½ and 1 have
    # the variance 1/8, the repeats (½ + 0) / 2 = ¼, of which half is in each mean: nothing is left
    found = find(np.array([[[[1.0, 0.0]], [[1.0, 1.0]], [[1.0, N]]]]))
    assert (found.sets, found.epochs, found.judges) == (2, 2, 1)
    assert (found.by_set, found.repeat) == pytest.approx((0.0, 0.25))
    assert isnan(found.judge) and isnan(found.wording) and isnan(found.with_another_judge)
    assert found.variance == pytest.approx(0.125 / 2)
    assert found.with_twice_the_epochs == pytest.approx(0.0625 / 2)
    assert found.count_sets(found.with_twice_the_epochs) == pytest.approx(2)  # four in all


def test_judges_by_hand() -> None:
    # by A 1 and 0, by B 1 and 1. Means of sets 1 and ½, of judges ½ and 1: variances 1/8. What is
    # beyond both is ± ¼ in each cell: mean square ¼, of which half is in either variance
    found = find(np.array([[[[1.0]], [[0.0]]], [[[1.0]], [[1.0]]]]))
    assert (found.judge, found.judge_by_set, found.by_set) == pytest.approx((0.0, 0.25, 0.0))
    # a judge that is stricter by 0.4 in each of two sets: S² = .08 between judges alone, so that
    # a third one helps more than sets do
    found = find(np.array([[[[0.8]], [[0.6]]], [[[0.4]], [[0.2]]]]))
    assert (found.judge, found.judge_by_set, found.by_set) == pytest.approx((0.08, 0.0, 0.02))
    assert found.variance == pytest.approx(0.02 / 2 + 0.08 / 2)
    assert found.with_another_judge == pytest.approx(0.02 / 2 + 0.08 / 3)
    assert found.count_sets(found.with_another_judge) == inf


def test_wordings_by_hand() -> None:
    # own wordings 1, 1, 0: variance 1/3. Within a set 1 and 0, 1 and 1, 0 and 0: (½ + 0 + 0) / 3;
    # a mean over two saves half of that
    found = find(np.array([[[[1.0], [0.0]], [[1.0], [1.0]], [[0.0], [0.0]]]]))
    assert (found.wording, found.by_set) == pytest.approx((1 / 6, 1 / 6))
    assert found.saved_by_wordings == pytest.approx(1 / 12)
    assert found.with_all_wordings == pytest.approx((1 / 3 - 1 / 12) / 3)
    # a set with one wording says nothing of wordings
    found = find(np.array([[[[1.0], [N]], [[1.0], [0.0]], [[0.0], [0.0]]]]))
    assert found.wording == pytest.approx(0.25)


def test_wordings_and_repeats_are_told_apart_by_hand() -> None:
    # one set has wordings 1, 0 and 0, 1 in two epochs, one only 1. Means of wordings do not differ,
    # and what is beyond wordings and epochs is ± ½ in four cells: 1, half of it in a mean of epochs
    found = find(np.array([[[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]]))
    assert found.wording == pytest.approx((0 - 1 / 2) / 2)
    assert average_components([found]).wording == 0.0


def test_too_little_has_no_components() -> None:
    assert find_components(np.array([[[[1.0]], [[N]]]])) is None
    assert find_components(np.full((1, 3, 1, 1), N)) is None


def test_models_are_averaged() -> None:
    first = Components(40, 40, 2, 1, 0.1, N, 0.2, N, N, N)
    second = first._replace(sets=42, by_set=0.3, wording=0.05, repeat=-0.4)
    mean = average_components([first, second, second])
    assert mean[:4] == (42, 40, 2, 1)
    assert (mean.by_set, mean.wording) == pytest.approx((0.7 / 3, 0.05))
    assert mean.repeat == 0.0  # a variance
    assert isnan(mean.judge)


def test_families_are_units() -> None:
    # sets of a family that are all alike are one draw: the variance is that of the families
    generator = np.random.default_rng(9)
    of_families = draw(generator, 12, 3, 2)
    alone, units = find(of_families), np.repeat(np.arange(12), 3)
    alike = find_components(np.repeat(of_families, 3, axis=1), units)
    assert alike is not None
    assert (alike.sets, alike.units, alike.sets_each) == (36, 12, 3)
    assert alike.variance == pytest.approx(alone.variance)
    assert alike.judge == pytest.approx(alone.judge)
    # as many further sets are worth as little as they are alike
    half = alone.variance - alone.of_unit / alone.units / 2
    assert alone.count_sets(half) == pytest.approx(12)
    assert alike.count_sets(half) == pytest.approx(36)
    # sets of which each is a family of its own
    single = find_components(of_families, np.arange(12))
    assert single is not None and single[4:] == pytest.approx(alone[4:])


def test_a_family_of_unlike_sets_has_the_variance_of_the_mean() -> None:
    # families of 2, 1 and 1: the residuals from the mean .5 sum to −.5 − .5, .5 and .5
    values = np.array([0.0, 0.0, 1.0, 1.0]).reshape(1, 4, 1, 1)
    found = find_components(values, np.array([0, 0, 1, 2]))
    assert found is not None
    sums = np.array([-1.0, 0.5, 0.5])
    assert found.variance == pytest.approx(3 / 2 * (sums**2).sum() / 4**2)


TRUE = {"by_set": 1.0, "wording": 0.5, "repeat": 0.6, "judge": 0.3, "judge_by_set": 0.4}


def draw(
    generator: np.random.Generator, sets: int, judges: int, epochs: int, wordings: int = 4
) -> Floats:
    """Draw values with the components of TRUE: a repeat has a part of the set and one of each
    wording.
    """

    def part(variance: float, *shape: int) -> Floats:
        return generator.normal(0, variance**0.5, shape)

    return (
        part(TRUE["by_set"], 1, sets, 1, 1)
        + part(TRUE["wording"], 1, sets, wordings, 1)
        + part(TRUE["repeat"] / 3, 1, sets, 1, epochs)
        + part(TRUE["repeat"] * 2 / 3, 1, sets, wordings, epochs)
        + part(TRUE["judge"], judges, 1, 1, 1)
        + part(TRUE["judge_by_set"], judges, sets, 1, 1)
    )


def test_the_components_of_a_simulation_are_recovered() -> None:
    generator = np.random.default_rng(5)
    drawn = [find(draw(generator, 40, 3, 2)) for _ in range(400)]
    for name, true in TRUE.items():
        found = np.array([getattr(each, name) for each in drawn])
        assert abs(found.mean() - true) < 4 * found.std() / 20, name


@pytest.mark.parametrize(
    ("sets", "judges", "epochs", "option"),
    [
        (40, 2, 2, "variance"),
        (40, 3, 2, "with_another_judge"),
        (40, 2, 4, "with_twice_the_epochs"),
        (40, 2, 2, "with_all_wordings"),
    ],
)
def test_what_more_would_change_is_what_it_changes(
    sets: int, judges: int, epochs: int, option: str
) -> None:
    generator = np.random.default_rng(6)
    promised = np.mean([getattr(find(draw(generator, 40, 2, 2)), option) for _ in range(300)])
    means = []
    for _ in range(4000):
        values = draw(generator, sets, judges, epochs)
        means.append(values.mean() if option == "with_all_wordings" else values[:, :, 0].mean())
    assert np.var(means) == pytest.approx(promised, rel=0.1)
