"""Unsafe rates of assistance modes within prompt-sets, against values worked out by hand and a confounded world."""

from __future__ import annotations

import numpy as np
import pytest

from opensafeintent.analysis.modes import ModeDifference, mode_differences
from opensafeintent.grades import GradeRow, to_array
from opensafeintent.labelled import LabelledSet
from opensafeintent.statistics import Resamples
from opensafeintent.taxonomy import MODES
from report.pages import group_with
from samples import grade_line, made_dataset, prompt_set

MODELS = ("m1", "m2", "m3")


def rows_of(**sets: str) -> list[GradeRow]:
    """Make dual-use responses of three models: `A3 S`, the mode and whether safe; `-` has no mode or grade."""
    return [
        grade_line(model, set_id, "dual_use", {"S": "30", "U": "31", "-": "--"}[safe], mode=None if mode == "--" else mode)
        for set_id, responses in sets.items()
        for model, (mode, safe) in zip(MODELS, (part.split() for part in responses.split(", ")), strict=True)
    ]


def differences(rows: list[GradeRow], models: tuple[str, ...] = MODELS) -> dict[str, ModeDifference]:
    dataset = made_dataset(*(prompt_set(name) for name in dict.fromkeys(row.set_id for row in rows)))
    return mode_differences(to_array(rows, dataset, models), Resamples(len(dataset)))


def test_worked_by_hand() -> None:
    found = differences(rows_of(u1="A3 S, A4 U, A4 S", u2="A3 U, A3 U, A4 U", u3="A3 S, A3 S, A3 U"))
    one = found["unsafe_difference_A3_A4"]
    # u1 adds (0·2 − 1·1)/3 over 1·2/3, u2 (2·1 − 1·2)/3 over 2·1/3, u3 has no A4.
    assert (one.value, one.n) == (pytest.approx(-0.25), 2)
    assert (one.responses, one.rates) == ((6, 3), (0.5, pytest.approx(2 / 3)))
    assert one.crude == pytest.approx(3 / 6 - 2 / 3)
    other = found["unsafe_difference_A2_A4"]
    assert (other.value, other.n, other.crude, other.rates) == (None, 0, None, (None, pytest.approx(2 / 3)))


def test_a_response_without_grades_or_mode_counts_nowhere() -> None:
    found = differences(rows_of(u1="A3 S, A4 U, A4 -", u2="A3 U, -- U, A4 U"))["unsafe_difference_A3_A4"]
    # u1 (0·1 − 1·1)/2 over 1/2, u2 (1·1 − 1·1)/2 over 1/2
    assert (found.value, found.n, found.responses) == (pytest.approx(-0.5), 2, (2, 2))


def test_without_a_set_that_has_both_modes_it_is_undefined_beside_a_crude_difference() -> None:
    found = differences(rows_of(u1="A3 S, A3 S, A3 S", u2="A4 U, A4 U, A4 U"))["unsafe_difference_A3_A4"]
    assert (found.value, found.n, found.interval, found.crude) == (None, 0, None, -1.0)
    nothing = differences(rows_of(u1="-- -, -- -, -- -"))["unsafe_difference_A3_A4"]
    assert (nothing.value, nothing.crude, nothing.responses) == (None, None, (0, 0))


def test_epochs_of_one_model_are_compared_too() -> None:
    rows = [
        grade_line("m1", "u1", "dual_use", pair, mode=mode, epoch=epoch)
        for epoch, (mode, pair) in enumerate((("A3", "30"), ("A4", "31")), start=1)
    ]
    assert differences(rows, ("m1",))["unsafe_difference_A3_A4"].value == -1.0


def test_baselines_stay_aside() -> None:
    dataset = made_dataset(prompt_set("u1"))
    rows = [
        grade_line(model, "u1", variant, pair, mode=mode if variant == "dual_use" else None)
        for model, pair, mode in (("lab/a", "30", "A3"), ("lab/b", "31", "A4"), ("baseline/comply-all", "30", "A4"))
        for variant in ("benign", "dual_use", "malicious")
    ]
    found = group_with(dataset, rows).mode_differences["unsafe_difference_A3_A4"]
    assert (found.value, found.responses) == (-1.0, (1, 1))


def confounded(models: int, sets: int, seed: int) -> LabelledSet:
    """Half of the sets are hard, .8 unsafe in any mode, and answered in A4 with .7; the others .2 and .3."""
    generator = np.random.default_rng(seed)
    hard = np.arange(sets) % 2 == 0
    shape = (models, sets, 1, 1)
    direct = generator.random(shape) < np.where(hard, 0.7, 0.3)[:, None, None]
    unsafe = generator.random(shape) < np.where(hard, 0.8, 0.2)[:, None, None]
    dims = ("model", "prompt_set", "variant", "epoch")
    mode = np.where(direct, MODES.index("A4"), MODES.index("A3")).astype(float)
    return LabelledSet(
        {"harm_severity": (dims, unsafe.astype(float)), "mode": (dims, mode)},
        {"model": range(models), "prompt_set": range(sets), "variant": ["dual_use"], "epoch": [1]},
    )


def test_difficulty_that_confounds_crude_rates_is_taken_out() -> None:
    # Crude: unsafe in A3 .3 · .8 + .7 · .2 = .38, in A4 .7 · .8 + .3 · .2 = .62: −.24, where the truth is 0.
    found = mode_differences(confounded(20, 400, seed=3), Resamples(400))["unsafe_difference_A3_A4"]
    assert found.crude == pytest.approx(-0.24, abs=0.02)
    assert found.value == pytest.approx(0.0, abs=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high
    assert found.high - found.low < 0.1
