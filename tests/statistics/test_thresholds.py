"""Numbers held against limits: on one side at a confidence, and how often that is wrong."""

from __future__ import annotations

from math import comb, log, nan, prod

import numpy as np
import pytest

from opensafeintent.statistics import Resamples
from opensafeintent.statistics.exact import least_share
from opensafeintent.statistics.intervals import Parts
from opensafeintent.statistics.thresholds import (
    ConfidenceBounds,
    Evidence,
    Side,
    bounds_of,
    bounds_of_difference,
    confidence_sequence,
    fewest,
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


def ends_of(
    parts: Parts, *, binary: bool = True, confidence: float | None = 0.95
) -> ConfidenceBounds:
    resamples = Resamples(len(parts[0]), 1_000)
    return bounds_of(parts, resamples, span=ONE, binary=binary, confidence=confidence)


# Ends
# ------------------------------------------------------------------------------


def test_the_ends_of_a_share_are_exact() -> None:
    # 8 of 10: P(X ≥ 8) = .05 at the lower end, P(X ≤ 8) = .05 at the upper
    found = ends_of(shares(8, 10, apart=3))
    assert (found.value, found.n, found.method) == (0.8, 10, "clopper-pearson")
    assert (found.low, found.high) == pytest.approx((0.4931, 0.9632), abs=1e-4)
    assert tail(8, 10, found.low) == pytest.approx(0.05)
    assert 1 - tail(9, 10, found.high) == pytest.approx(0.05)


def test_where_all_are_alike_the_other_end_is_the_least_share_that_may_have_none() -> None:
    # 42 of 42: p⁴² = .05 at p = .93116
    assert least_share(42, 42, 0.95) == pytest.approx(0.05 ** (1 / 42))
    assert least_share(0, 42, 0.95) == 0.0
    for binary in (True, False):  # a mean of scores promises as much
        found = ends_of(shares(42, 42), binary=binary)
        assert (found.low, found.high) == pytest.approx((0.931157, 1.0), abs=1e-6)


def test_scores_have_the_ends_of_their_interval_at_one_side() -> None:
    values = np.tile([0.0, 1 / 3, 2 / 3, 1.0, 1.0], 20)
    found = ends_of((values, np.ones(100)), binary=False)
    # sd √(Σ(v − .6)²/5) = .3887, so the mean .6 ± 1.645 · .0389
    assert found.method == "bootstrap"
    assert (found.low, found.high) == pytest.approx((0.536, 0.664), abs=0.006)


def test_without_a_confidence_the_number_itself_counts() -> None:
    found = ends_of(shares(3, 4), confidence=None)
    assert found == ConfidenceBounds(0.75, 4, 0.75, 0.75)
    assert found.estimate.interval is None
    assert ends_of(shares(0, 0, apart=4)).estimate.value is None


def test_the_ends_of_a_difference_hold_those_of_tango() -> None:
    # 1 gained, 7 lost of 21: −.286, Tango's 95 % interval −.517 to −.026 (Fagerland, Lydersen and
    # Laake, Statistics in Medicine 33, 2014); each of its ends is at 97.5 % by itself, and the
    # correction for skewness moves one farther
    found = bounds_of_difference(*paired(12, 1, 7, 1), Resamples(21), span=ONE, confidence=0.975)
    assert (found.value, found.n, found.method) == (pytest.approx(-6 / 21), 21, "score")
    assert found.high == pytest.approx(-0.026, abs=0.0005)
    assert -0.53 < found.low <= -0.517


def test_two_versions_that_agree_in_every_set_may_still_differ() -> None:
    # what 42 sets may have missed: (1 − x)⁴² = .05
    found = bounds_of_difference(*paired(30, 0, 0, 12), Resamples(42), span=ONE, confidence=0.95)
    assert (found.low, found.high) == pytest.approx((-0.068843, 0.068843), abs=1e-6)


def test_a_difference_is_taken_over_the_sets_of_both() -> None:
    new, old = paired(5, 1, 2, 2)
    new[0][0] = new[1][0] = 0.0  # the first, safe in both, does not count in the later version
    found = bounds_of_difference(new, old, Resamples(10), span=ONE, confidence=0.95)
    assert (found.n, found.value) == (9, pytest.approx(-1 / 9))
    none = (np.zeros(10), np.zeros(10))
    nothing = bounds_of_difference(none, old, Resamples(10), span=ONE, confidence=0.95)
    assert nothing.n == 0 and np.isnan(nothing.value)


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
    assert verdict_of(ConfidenceBounds(sum(ends) / 2, 10, *ends), limit, side) == verdict


# How often it is wrong
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [42, 115, 700])
@pytest.mark.parametrize("limit", [0.5, 0.8, 0.95, 0.98])
def test_a_gate_on_a_share_is_passed_wrongly_in_5_percent_at_most(n: int, limit: float) -> None:
    # exact: all counts that pass, with their probability where the truth is the limit itself (just
    # below it, it is less)
    passed = [yes for yes in range(n + 1) if least_share(yes, n, 0.95) >= limit]
    probability = tail(min(passed), n, limit) if passed else 0.0
    assert probability <= 0.05
    if limit == 0.8:
        assert tail(min(passed), n, 0.75) <= 0.004  # a true .75, in a gate of .80


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
