"""Averages over models and over strata: their values, and what their intervals rest on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opensafeintent.statistics import Estimate, estimate, share_interval
from opensafeintent.statistics.intervals import (
    Averaged,
    Spread,
    average_models,
    compute_spread,
    correlate_parts,
    estimate_for_judges,
    mean_over,
)


def value_of(mean: Averaged) -> float:
    return float(mean.numerator.sum() / mean.denominator.sum())


def interval_of(mean: Averaged, **options: Any) -> tuple[float, float]:
    result = estimate(mean.numerator[None], mean.denominator[None], **options)
    return float(result.low[0]), float(result.high[0])


def test_models_that_agree_are_no_surer_than_one() -> None:
    values = np.zeros((20, 20))
    mean = average_models(values, np.ones_like(values))
    # of 20 sets, not of 400
    assert interval_of(mean) == pytest.approx(share_interval(0.0, 20))
    values[:, :6] = 1.0
    single = estimate(values[:1], np.ones((1, 20)))
    mean = average_models(values, np.ones_like(values))
    assert interval_of(mean) == (single.low[0], single.high[0])


def test_each_model_weighs_the_same_however_many_sets_it_has() -> None:
    # model a: 1, 0 over two of four sets, ½; model b: 1, 1, 1, 0, ¾; model c has none: (½ + ¾) / 2
    # = .625, not 4/6
    top = np.array([[1.0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]])
    bottom = np.array([[1.0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    mean = average_models(top, bottom)
    assert (value_of(mean), mean.parts) == (pytest.approx(0.625), 2)
    # set 2 adds (0 − ½) / 2 and (1 − ¾) / 4 to the two models' values, times 4 sets over 2 models
    added = mean.numerator - 0.625 * mean.denominator
    assert added[1] == pytest.approx((-0.5 / 2 + 0.25 / 4) * 4 / 2)
    assert mean.denominator.sum() == pytest.approx(4)


def test_judges_as_draws_add_their_variance() -> None:
    # Judges .5, .6, .7: S² = .01, S²/3 = .003333. V = .05² + .003333 = .0058333, with
    # V² / (.0025² / 40 + .003333² / 2) = 5.96 degrees of freedom, rounded down: t = 2.570582, and
    # √V = .0763763 reaches .196332.
    row = np.array([0.6, 0.95, 0.6])
    error, informative = np.full(3, 0.05), np.full(3, 41.0)
    spread = Spread(row, np.full(3, 39), row, error, informative, error, np.full(3, 39))
    by_judge = np.array([[0.5, 0.85, 0.5], [0.6, 0.95, np.nan], [0.7, 1.05, 0.7]])
    inner, cut, few = estimate_for_judges(spread, by_judge, (0.0, 1.0))
    assert inner.interval == pytest.approx((0.403668, 0.796332), abs=2e-6)
    assert (inner.value, inner.n, inner.method) == (0.6, 39, "t-satterthwaite")
    assert cut.interval == pytest.approx((0.753668, 1.0), abs=2e-6)  # within the span
    assert (few.value, few.interval, few.method) == (0.6, None, None)  # two judges have a value


def test_judges_that_agree_add_nothing() -> None:
    values = np.array([[1.0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0]])
    spread = compute_spread(values, np.ones_like(values), (0.0, 1.0))
    (wide,) = estimate_for_judges(spread, np.full((3, 1), 8 / 12), (0.0, 1.0))
    (plain,) = estimate(values, np.ones_like(values)).records()
    assert wide.interval == plain.interval


def test_no_model_has_a_value() -> None:
    mean = average_models(np.zeros((2, 5)), np.zeros((2, 5)))
    assert mean.parts == 0
    result = estimate(mean.numerator[None], mean.denominator[None])
    assert result.records()[0].value is None


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


def test_domains_that_share_families_are_not_independent() -> None:
    parts = [
        Estimate(value=0.5, n=10, interval=(0.2, 0.9)),
        Estimate(value=0.9, n=40, interval=(0.5, 1.0)),
    ]
    mean = mean_over(parts, correlations=np.array([[1.0, 0.5], [0.5, 1.0]]))
    down = (0.3**2 + 0.4**2 + 2 * 0.5 * 0.3 * 0.4) ** 0.5 / 2
    up = (0.4**2 + 0.1**2 + 2 * 0.5 * 0.4 * 0.1) ** 0.5 / 2
    assert mean.interval == pytest.approx((0.7 - down, 0.7 + up), abs=1e-6)


def test_how_domains_correlate_follows_from_their_families() -> None:
    # three families with a set in each of two domains, whose values are alike, then opposite
    units = np.array([0, 1, 2, 0, 1, 2])
    first, second = np.array([1, 1, 1, 0, 0, 0.0]), np.array([0, 0, 0, 1, 1, 1.0])
    values = np.array([1, 1, 0, 1, 1, 0.0])
    parts = [(values * inside, inside) for inside in (first, second)]
    assert correlate_parts(parts, units) == pytest.approx(np.ones((2, 2)))
    turned = [(values * first, first), ((1 - values) * second, second)]
    assert correlate_parts(turned, units) == pytest.approx(np.eye(2))  # and not below 0
    apart = np.arange(6)
    assert correlate_parts(parts, apart) == pytest.approx(np.eye(2))
