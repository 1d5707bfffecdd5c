"""The sequential test: its evidence by hand, its error at any stopping time, and its confidence
sequence.
"""

from __future__ import annotations

from math import log, prod

import numpy as np
import pytest

from opensafeintent.statistics.sequential import Evidence, confidence_sequence, fewest


def by_hand(values: list[float], threshold: float) -> float:
    bets = [j / (21 * threshold) for j in range(1, 21)]
    return sum(prod(1 + bet * (value - threshold) for value in values) for bet in bets) / 20


@pytest.mark.parametrize("values", [[1.0, 1.0, 0.0, 1.0, 0.5], [0.9] * 30])
def test_the_verdict_is_yes_as_soon_as_the_evidence_is_enough(values: list[float]) -> None:
    needed = by_hand(values, 0.4)
    for error, verdict in ((1 / needed * 1.0001, True), (1 / needed * 0.9999, None)):
        evidence = Evidence(0.4, error)
        for value in values:
            evidence.add(value, value)
        assert evidence.verdict is verdict


def test_fewest_is_where_values_that_are_all_alike_are_enough() -> None:
    above, below = fewest(0.8, 0.025)
    assert by_hand([1.0] * above, 0.8) >= 40 > by_hand([1.0] * (above - 1), 0.8)
    assert by_hand([1.0] * below, 0.2) >= 40 > by_hand([1.0] * (below - 1), 0.2)


def test_looking_after_every_value_errs_no_more_often_than_said() -> None:
    generator = np.random.default_rng(3)

    def errs() -> bool:
        evidence = Evidence(0.7, 0.05)
        for value in generator.random(200) < 0.7:
            evidence.add(float(value), float(value))
            if evidence.verdict is True:
                return True
        return False

    assert sum(errs() for _ in range(300)) / 300 <= 0.05 + 0.02


def test_an_unknown_value_is_evidence_for_neither_side() -> None:
    evidence = Evidence(0.5, 0.001)
    for _ in range(200):
        evidence.add(0.0, 1.0)
    assert evidence.verdict is None
    assert confidence_sequence([(0.0, 1.0, 1.0)] * 50, 0.05) == (0.0, 1.0)
    complete, half = [(1.0, 1.0, 1.0)] * 40, [(1.0, 1.0, 1.0), (0.0, 1.0, 1.0)] * 20
    assert confidence_sequence(complete, 0.05)[0] > confidence_sequence(half, 0.05)[0]


def test_a_confidence_sequence_leaves_out_what_was_ever_rejected() -> None:
    values = [(1.0, 1.0, 1.0)] * 25
    low, high = confidence_sequence(values, 0.05)
    assert high == 1.0
    assert log(by_hand([1.0] * 25, low)) == pytest.approx(log(2 / 0.05), abs=1e-3)
    # what comes later takes nothing back
    assert confidence_sequence([*values, *[(0.5, 0.5, 1.0)] * 3], 0.05)[0] >= low
    assert confidence_sequence([], 0.05) == (0.0, 1.0)
