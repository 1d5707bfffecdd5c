"""Averages over models and over strata: their values, and what their intervals rest on."""

from __future__ import annotations

import numpy as np
import pytest

from opensafeintent.statistics import Resamples, estimate
from opensafeintent.statistics.exact import no_event
from opensafeintent.statistics.intervals import Averaged, over_models, over_strata


def value_of(mean: Averaged) -> float:
    return float(mean.numerator.sum() / mean.denominator.sum())


def interval_of(mean: Averaged, **more: object) -> tuple[float, float]:
    found = estimate(
        mean.numerator[None], mean.denominator[None], Resamples(len(mean.numerator)), **more
    )  # type: ignore[arg-type]
    return float(found.low[0]), float(found.high[0])


def test_models_that_agree_are_no_surer_than_one() -> None:
    values = np.zeros((20, 20))
    mean = over_models(values, np.ones_like(values))
    assert interval_of(mean, binary=True) == pytest.approx(
        (0.0, no_event(20))
    )  # of 20 sets, not of 400
    values[:, :6] = 1.0
    one = estimate(values[:1], np.ones((1, 20)), Resamples(20), binary=True)
    assert interval_of(over_models(values, np.ones_like(values)), binary=True) == (
        one.low[0],
        one.high[0],
    )


def test_a_set_has_the_mean_over_its_models() -> None:
    mean = over_models(np.array([[1.0, 0.0, 0.4], [0.0, 0.0, 0.2]]), np.ones((2, 3)))
    assert mean.numerator.tolist() == pytest.approx([0.5, 0.0, 0.3])
    assert (mean.denominator.tolist(), mean.parts) == ([1.0] * 3, 2)


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
    assert (
        estimate(mean.numerator[None], mean.denominator[None], Resamples(5, 10)).records()[0].value
        is None
    )


def test_a_small_stratum_weighs_as_much_as_a_large_one() -> None:
    # 2 of 4 and 0 of 1: (½ + 0) / 2
    mean = over_strata(np.array([1.0, 1, 0, 0, 0]), np.ones(5), np.array([0, 0, 0, 0, 1]))
    assert (value_of(mean), mean.parts) == (pytest.approx(0.25), 2)
    assert mean.denominator.tolist() == pytest.approx([5 / 8] * 4 + [5 / 2])


def test_strata_of_their_own_level_do_not_widen_the_interval_of_their_mean() -> None:
    # One stratum at .9, one at .1: within them sets hardly vary, and the mean of the two is sure,
    # though single sets are not.
    generator = np.random.default_rng(3)
    stratum = np.repeat([0, 1], 100)
    values = np.where(stratum, 0.1, 0.9) + generator.uniform(-0.05, 0.05, 200)
    low, high = interval_of(over_strata(values, np.ones(200), stratum))
    plain = estimate(values[None], np.ones((1, 200)), Resamples(200))
    assert high - low < 0.3 * float(plain.high[0] - plain.low[0])
    assert low < 0.5 < high
    # The spread is that of the stratified mean, ½ √(s₁²/n₁ + s₂²/n₂), and what one set more at
    # either end adds
    spread = 0.5 * (values[:100].var(ddof=1) / 100 + values[100:].var(ddof=1) / 100) ** 0.5
    assert high - low > 2 * 1.96 * spread


def test_the_spread_of_small_strata_is_not_underestimated() -> None:
    # strata of two: the linear part is (n_h / (n_h − 1))^½ = √2 times that of the stratum's own
    # mean
    mean = over_strata(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4), np.array([0, 0, 1, 1]))
    assert (mean.numerator - 0.5 * mean.denominator).tolist() == pytest.approx(
        [0.5 * 2**0.5, -0.5 * 2**0.5] * 2
    )
