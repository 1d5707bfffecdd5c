"""The second turn: models and judges made up for the purpose, their effects worked out by hand."""

from __future__ import annotations

import pytest

from opensafeintent.analysis.gate_plans import second_turn_in_reach


@pytest.mark.parametrize(
    ("sets", "epochs", "models", "alone", "adjusted"),
    [
        # σ² = 0.2, t(0.975; 43) = 2.017, z = 0.842: E² = (42 · 0.2 + 2) · 44/43 = 10.64, and
        # (2.017 · 3.262 + 0.842 · 0.447 · √42) / 42 = 0.215
        (42, 1, 1, 21, 24),
        (42, 3, 1, 14, 16),
        (115, 1, 2, 12, 15),
    ],
)
def test_a_plan_says_which_effect_it_can_see(
    sets: int, epochs: int, models: int, alone: int, adjusted: int
) -> None:
    line = second_turn_in_reach(sets, epochs, models)
    assert f"a history effect on safety of {alone} points, or {adjusted} points with" in line
    assert f"{2 * models} adjusted tests" in line
