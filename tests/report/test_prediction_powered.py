"""Corrections of a judge's numbers: hand-worked examples."""

from __future__ import annotations

import numpy as np
import pytest

from opensafeintent.report.corrections import Corrected, LabelledUnits, prediction_powered
from opensafeintent.statistics import share_interval


def units(*kinds: tuple[int, float, float, float]) -> LabelledUnits:
    """Make prompt-sets of one unit each from (how many, judged, truth, weight); a truth of NaN is
    no label.
    """
    rows = np.array([kind[1:] for kind in kinds for _ in range(kind[0])])
    judged, truth, weight = (rows[:, [column]] for column in range(3))
    return LabelledUnits(judged, truth, weight, np.ones_like(judged))


def width(result: Corrected) -> float:
    return result.interval[1] - result.interval[0]


# PPI++
# ------------------------------------------------------------------------------

NAN = float("nan")
SIXTY = (
    *((12, 1.0, 1.0, 2.0), (6, 1.0, 0.0, 2.0), (3, 0.0, 1.0, 2.0), (9, 0.0, 0.0, 2.0)),
    *((24, 1.0, NAN, 1.0), (6, 0.0, NAN, 1.0)),
)
"""60 units of which 42 are judged 1; 30 are labelled: 15 of them true, 18 judged 1, 12 both."""


def test_ppi_by_hand() -> None:
    # λ = Cov/Var over labels and everything: (12/30 − 15/30·18/30) / (42/60·18/60) = .1/.21 = 10/21
    # θ = 15/30 + 10/21 · (42/60 − 18/30) = 1/2 + 1/21 = 23/42
    result = prediction_powered(units(*SIXTY))
    assert result.power == pytest.approx(10 / 21)
    assert result.value == pytest.approx(23 / 42)
    assert (result.n, result.sets) == (30, 30)
    assert result.interval[0] < result.value < result.interval[1]


def test_weights_undo_a_sample_stratified_by_grade() -> None:
    # 42 are judged 1, of which 15 are labelled (weight 2.8), 12 true; 18 are judged 0, of which 15
    # (weight 1.2), 3 true: (42 · 12/15 + 18 · 3/15) / 60 = .62, and judged alike in all and among
    # the labelled, so that no shift is left
    sample = units(
        *((12, 1.0, 1.0, 2.8), (3, 1.0, 0.0, 2.8), (27, 1.0, NAN, 1.0)),
        *((3, 0.0, 1.0, 1.2), (12, 0.0, 0.0, 1.2), (3, 0.0, NAN, 1.0)),
    )
    assert prediction_powered(sample).value == pytest.approx(0.62)


def test_a_judge_that_tells_nothing_is_not_relied_on() -> None:
    # truth and judgement are independent among the labels: the labels' mean is all there is
    labels = [(10, judged, truth, 1.0) for judged in (1.0, 0.0) for truth in (1.0, 0.0)]
    result = prediction_powered(units(*labels, (40, 1.0, NAN, 1.0)))
    assert result.power == pytest.approx(0.0, abs=1e-9)
    assert result.value == pytest.approx(0.5)


def test_scores_are_corrected_as_shares_are() -> None:
    # the judge is a quarter too high wherever there is a label, and labels and rest are judged
    # alike: mean − 1/4
    labels = ((20, 0.75, 0.5, 1.0), (20, 0.5, 0.25, 1.0))
    sample = units(*labels, (20, 0.75, NAN, 1.0), (20, 0.5, NAN, 1.0))
    assert prediction_powered(sample).value == pytest.approx(0.375)


def test_units_of_a_set_stand_and_fall_together() -> None:
    # 60 sets of three equal units each know no more than 60 sets of one: the interval is that of
    # one unit a set
    single = units(*SIXTY)
    three = LabelledUnits(*(np.repeat(part, 3, axis=1) for part in single))
    alone, together = (prediction_powered(sample) for sample in (single, three))
    assert together.value == pytest.approx(alone.value)
    assert width(together) == pytest.approx(width(alone), rel=0.05)


def test_no_error_among_few_labels_is_not_no_error_ever() -> None:
    # 30 labels, all as judged: with two labelled pseudo-observations the interval is not that of the judge's
    # mean alone
    labels = ((15, 1.0, 1.0, 1.0), (15, 0.0, 0.0, 1.0))
    sample = units(*labels, (485, 1.0, NAN, 1.0), (485, 0.0, NAN, 1.0))
    result = prediction_powered(sample)
    assert result.value == pytest.approx(0.5)
    assert width(result) > 2 * 1.96 * (0.25 / 1000) ** 0.5 * 1.3


def test_safe_labels_say_what_so_many_sets_say_anywhere() -> None:
    # the judge says safe throughout, and is not relied on
    result = prediction_powered(units((40, 1.0, 1.0, 1.0), (200, 1.0, NAN, 1.0)))
    assert (result.value, result.power) == (1.0, 0.0)
    assert result.interval == pytest.approx(share_interval(1.0, 40), abs=1e-6)


def test_what_does_not_count_plays_no_part() -> None:
    sample = units(*SIXTY, (5, NAN, 1.0, 9.0))
    assert prediction_powered(sample).value == pytest.approx(23 / 42)
