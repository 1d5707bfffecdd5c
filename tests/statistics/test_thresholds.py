"""Numbers held against limits: on one side at a confidence, and how often that is wrong."""

from __future__ import annotations

from math import comb, log, nan, prod

import numpy as np
import pytest

from opensafeintent.statistics import share_interval
from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.intervals import Parts
from opensafeintent.statistics.thresholds import (
    Bounds,
    Evidence,
    Side,
    bounds_of,
    bounds_of_pair,
    confidence_sequence,
    fewest,
    fewest_to_meet,
    verdict_of,
)

ONE = (0.0, 1.0)


def shares(yes: int, n: int, weight: float = 1.0, apart: int = 0) -> Parts:
    """Return the parts of a share: `yes` of `n` sets, and `apart` sets that do not count."""
    top = np.array([1.0] * yes + [0.0] * (n - yes + apart))
    return top * weight, np.array([weight] * n + [0.0] * apart)


def paired(both: int, gained: int, lost: int, neither: int) -> tuple[Parts, Parts]:
    """Return a later and an earlier version: so many sets are safe in both, in the later alone, in
    the earlier alone.
    """
    new = [1.0] * (both + gained) + [0.0] * (lost + neither)
    old = [1.0] * both + [0.0] * gained + [1.0] * lost + [0.0] * neither
    return (np.array(new), np.ones(len(new))), (np.array(old), np.ones(len(old)))


def tail(yes: int, n: int, p: float) -> float:
    """Return the probability of `yes` or more."""
    return sum(comb(n, count) * p**count * (1 - p) ** (n - count) for count in range(yes, n + 1))


def ends_of(parts: Parts, *, confidence: float = 0.95) -> Bounds:
    return bounds_of(parts, span=ONE, confidence=confidence)


def change(new: Parts, old: Parts, confidence: float = 0.95) -> Bounds:
    before, after = ((top[None], bottom[None]) for top, bottom in (old, new))
    return bounds_of_pair(compare_pairs(before, after, confidence=confidence), 0)


# Ends
# ------------------------------------------------------------------------------


def test_the_ends_are_those_of_the_interval_that_the_number_has_everywhere() -> None:
    found = ends_of(shares(8, 10, apart=3))
    assert (found.value, found.n) == (0.8, 10)
    assert (found.low, found.high) == pytest.approx(share_interval(0.8, 10))
    assert found.estimate.interval == pytest.approx(share_interval(0.8, 10), abs=1e-6)
    wider = ends_of(shares(8, 10), confidence=0.99)
    assert wider.low < found.low and found.high <= wider.high
    assert ends_of(shares(0, 0, apart=4)).estimate.value is None


def test_a_difference_is_taken_over_the_sets_of_both() -> None:
    new, old = paired(5, 1, 2, 2)
    new[0][0] = new[1][0] = 0.0  # the first, safe in both, does not count in the later version
    found = change(new, old)
    assert (found.n, found.value) == (9, pytest.approx(-1 / 9))
    assert found.negative.low == -found.high
    nothing = change((np.zeros(10), np.zeros(10)), old)
    assert nothing.n == 0 and np.isnan(nothing.value)
    assert nothing.deciding(0.1, 0.95) is None


@pytest.mark.parametrize(
    ("ends", "limit", "side", "verdict"),
    [
        ((0.8, 0.9), 0.8, "least", "pass"),  # equal meets it
        ((0.79, 0.9), 0.8, "least", "undecided"),
        ((0.7, 0.79), 0.8, "least", "fail"),
        ((0.7, 0.8), 0.8, "least", "undecided"),
        ((0.1, 0.2), 0.2, "most", "pass"),
        ((0.1, 0.21), 0.2, "most", "undecided"),
        ((0.21, 0.3), 0.2, "most", "fail"),
        ((nan, nan), 0.2, "most", "undecided"),
    ],
)
def test_verdicts(ends: tuple[float, float], limit: float, side: Side, verdict: str) -> None:
    assert verdict_of(Bounds(sum(ends) / 2, 10, *ends, 0.1, 1.0), limit, side) == verdict


# How often it is wrong, and what cannot be shown
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [42, 115, 700])
@pytest.mark.parametrize("limit", [0.5, 0.8, 0.95, 0.98])
def test_a_gate_on_a_share_is_passed_wrongly_in_5_percent_at_most(n: int, limit: float) -> None:
    # exact: all counts that pass, with their probability where the truth is the limit itself (just
    # below it, it is less)
    passed = [yes for yes in range(n + 1) if ends_of(shares(yes, n)).low >= limit]
    probability = tail(min(passed), n, limit) if passed else 0.0
    assert probability <= 0.05
    if limit == 0.8:
        assert tail(min(passed), n, 0.75) <= 0.004  # a true .75, in a gate of .80


@pytest.mark.parametrize(("limit", "side"), [(0.95, "least"), (0.8, "least"), (0.1, "most")])
def test_the_fewest_sets_that_can_meet_a_limit_do(limit: float, side: Side) -> None:
    n = fewest_to_meet(limit, side, ONE, 0.95)
    best = (
        (shares(n, n), shares(n - 1, n - 1))
        if side == "least"
        else (shares(0, n), shares(0, n - 1))
    )
    assert [verdict_of(ends_of(parts), limit, side) for parts in best] == ["pass", "undecided"]
    assert fewest_to_meet(1.0, "least", ONE, 0.95) == 10**9


# The sequential test: its evidence by hand, its error at any stopping time, and its confidence
# ------------------------------------------------------------------------------


def by_hand(values: list[float], threshold: float) -> float:
    bets = [j / (21 * threshold) for j in range(1, 21)]
    return sum(prod(1 + bet * (value - threshold) for value in values) for bet in bets) / 20


@pytest.mark.parametrize("values", [[1.0, 1.0, 0.0, 1.0, 0.5], [0.9] * 30])
def test_the_verdict_is_yes_as_soon_as_the_evidence_is_enough(values: list[float]) -> None:
    needed = by_hand(values, 0.4)
    for error, verdict in ((1 / needed * 1.0001, True), (1 / needed * 0.9999, None)):
        evidence = Evidence(0.4, error)
        for value in values:
            evidence.add(value)
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
            evidence.add(float(value))
            if evidence.verdict is True:
                return True
        return False

    assert sum(errs() for _ in range(300)) / 300 <= 0.05 + 0.02


def test_a_confidence_sequence_leaves_out_what_was_ever_rejected() -> None:
    values = [1.0] * 25
    low, high = confidence_sequence(values, 0.05)
    assert high == 1.0
    assert log(by_hand(values, low)) == pytest.approx(log(2 / 0.05), abs=1e-3)
    # what comes later takes nothing back
    assert confidence_sequence([*values, *[0.5] * 3], 0.05)[0] >= low
    assert confidence_sequence([], 0.05) == (0.0, 1.0)
