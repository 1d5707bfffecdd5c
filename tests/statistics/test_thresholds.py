"""Numbers held against limits: on one side at a confidence, and how often that is wrong."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil, comb, nan
from statistics import fmean

import numpy as np
import pytest

from opensafeintent.statistics import share_interval
from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.intervals import Parts, exact_share_interval, t_quantile
from opensafeintent.statistics.thresholds import (
    Bounds,
    Side,
    bound_pair_difference,
    bound_ratio,
    compare_with_limit,
    fewest_to_meet,
)

ONE = (0.0, 1.0)


def shares(yes: int, n: int, weight: float = 1.0, apart: int = 0) -> Parts:
    """Return the parts of a share: `yes` of `n` sets, and `apart` sets that do not count."""
    top = np.array([1.0] * yes + [0.0] * (n - yes + apart))
    return top * weight, np.array([weight] * n + [0.0] * apart)


def paired(in_both: int, gained: int, lost: int, neither: int) -> tuple[Parts, Parts]:
    """Return a later and an earlier version: so many sets are safe in both, in the later alone, in
    the earlier alone.
    """
    new = [1.0] * (in_both + gained) + [0.0] * (lost + neither)
    old = [1.0] * in_both + [0.0] * gained + [1.0] * lost + [0.0] * neither
    return (np.array(new), np.ones(len(new))), (np.array(old), np.ones(len(old)))


def tail(yes: int, n: int, p: float) -> float:
    """Return the probability of `yes` or more."""
    return sum(comb(n, count) * p**count * (1 - p) ** (n - count) for count in range(yes, n + 1))


def ends_of(parts: Parts, *, confidence: float = 0.95, exact: bool = False) -> Bounds:
    return bound_ratio(parts, span=ONE, confidence=confidence, exact=exact)


def change(new: Parts, old: Parts, confidence: float = 0.95) -> Bounds:
    before, after = ((top[None], bottom[None]) for top, bottom in (old, new))
    compared = compare_pairs(before, after, confidence=confidence)
    return bound_pair_difference(compared, compared, 0)


def test_the_ends_are_those_of_the_interval_that_the_number_has_everywhere() -> None:
    result = ends_of(shares(8, 10, apart=3))
    assert (result.value, result.n) == (0.8, 10)
    assert (result.low, result.high) == pytest.approx(share_interval(0.8, 10))
    assert result.estimate.interval == pytest.approx(share_interval(0.8, 10), abs=1e-6)
    wider = ends_of(shares(8, 10), confidence=0.99)
    assert wider.low < result.low and result.high <= wider.high
    assert ends_of(shares(0, 0, apart=4)).estimate.value is None


def test_a_difference_is_taken_over_the_sets_of_both() -> None:
    new, old = paired(5, 1, 2, 2)
    new[0][0] = new[1][0] = 0.0  # the first, safe in both, does not count in the later version
    result = change(new, old)
    assert (result.n, result.value) == (9, pytest.approx(-1 / 9))
    assert result.negative.low == -result.high
    nothing = change((np.zeros(10), np.zeros(10)), old)
    assert nothing.n == 0 and np.isnan(nothing.value)
    assert nothing.count_deciding(0.1, "most", 0.95) is None


@pytest.mark.parametrize(
    ("limits", "limit", "side", "verdict"),
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
def test_verdicts(limits: tuple[float, float], limit: float, side: Side, verdict: str) -> None:
    assert (
        compare_with_limit(Bounds(sum(limits) / 2, 10, *limits, 0.1, ONE), limit, side) == verdict
    )


@pytest.mark.parametrize("n", [42, 115, 700])
@pytest.mark.parametrize("limit", [0.5, 0.8, 0.95, 0.98])
@pytest.mark.parametrize("confidence", [0.95, 0.99, 0.999])
def test_a_gate_on_a_share_of_one_epoch_keeps_its_level(
    n: int, limit: float, confidence: float
) -> None:
    # exact: all counts that pass, with their probability if the truth is the limit itself (just
    # below it, it is less)
    def passes(yes: int) -> bool:
        return ends_of(shares(yes, n), confidence=confidence, exact=True).low >= limit

    fewest = bisect_left(range(n + 1), True, key=passes)
    assert fewest > n or tail(fewest, n, limit) <= (1 - confidence) / 2
    if (limit, confidence) == (0.8, 0.95):
        assert tail(fewest, n, 0.75) <= 0.004  # a true .75, in a gate of .80


def test_the_exact_interval_by_hand() -> None:
    # all of 72 safe: the least p with p^72 ≥ .025
    result = ends_of(shares(72, 72), exact=True)
    assert (result.low, result.high) == (pytest.approx(0.025 ** (1 / 72)), 1.0)
    assert result.estimate.method == "clopper-pearson"
    low, high = exact_share_interval(8, 10)
    assert tail(8, 10, low) == pytest.approx(0.025)
    assert 1 - tail(9, 10, high) == pytest.approx(0.025)


@pytest.mark.parametrize(("limit", "side"), [(0.95, "least"), (0.8, "least"), (0.1, "most")])
@pytest.mark.parametrize("exact", [False, True])
def test_the_fewest_sets_that_can_meet_a_limit_do(limit: float, side: Side, exact: bool) -> None:
    n = fewest_to_meet(limit, side, ONE, 0.95, exact=exact)
    best = (
        (shares(n, n), shares(n - 1, n - 1))
        if side == "least"
        else (shares(0, n), shares(0, n - 1))
    )
    result = [compare_with_limit(ends_of(parts, exact=exact), limit, side) for parts in best]
    assert result == ["pass", "undecided"]
    assert fewest_to_meet(1.0, "least", ONE, 0.95, exact=exact) == 10**9
    if exact and limit == 0.95:
        assert n == 72


@pytest.mark.slow
@pytest.mark.parametrize(
    ("true", "limit"), [(0.99, 0.98), (0.97, 0.95), (0.95, 0.9), (0.85, 0.8), (0.7, 0.8)]
)
def test_as_many_sets_as_would_decide_do_so_with_80_percent_power(
    true: float, limit: float
) -> None:
    yes = round(1000 * true)
    number = ends_of(shares(yes, 1000), exact=True).count_deciding(limit, "least", 0.95)
    assert number

    def find_power(n: int) -> float:
        def verdict(count: int) -> str:
            return compare_with_limit(ends_of(shares(count, n), exact=True), limit, "least")

        if true > limit:
            passing = bisect_left(range(n + 1), True, key=lambda count: verdict(count) == "pass")
            return tail(passing, n, true)
        open_from = bisect_left(range(n + 1), True, key=lambda count: verdict(count) != "fail")
        return 1 - tail(open_from, n, true)

    # the power goes up and down in steps: it is 80 % from there on
    assert find_power(number - 1) < 0.8
    assert all(find_power(n) >= 0.8 for n in range(number, number + 40))


def test_the_pull_of_the_pseudo_observations_counts_in_the_number_that_decides() -> None:
    # scores near their end: n (v − L) + (0 + 1 − 2L) has to reach c·E + z·σ·√n
    values = np.tile([1.0, 1.0, 1.0, 2 / 3], 50)
    result = ends_of((values, np.ones(200)))
    n = result.count_deciding(0.9, "least", 0.95)
    assert n
    v, sigma = result.value, result.deviation
    limits = v**2 + (1 - v) ** 2

    def enough(sets: int) -> bool:
        error = ((sets * sigma**2 + limits) * (sets + 2) / (sets + 1)) ** 0.5
        needed = t_quantile(0.975, sets + 1) * error + 0.8416212 * sigma * sets**0.5
        return sets * (v - 0.9) + (0 + 1 - 2 * 0.9) >= needed

    assert enough(n) and not enough(n - 1)


def test_values_that_were_filled_in_need_more_sets_than_answers() -> None:
    # 90 % of 200 sets, whose values vary as much as 1/1.21 as many answers
    whole = ends_of(shares(180, 200), exact=True)
    filled = whole._replace(deviation=whole.deviation * 1.1)

    def power(n: int) -> float:
        fewest = next((yes for yes in range(n + 1) if tail(yes, n, 0.8) <= 0.025), n + 1)
        # count and answers are rounded down, by half of one each: of those that pass, one in ten
        # would have to have one more
        return 0.9 * tail(fewest, n, 0.9) + 0.1 * tail(fewest + 1, n, 0.9)

    # runs differ in the number of answers, which levels the steps of the power
    answers = next(n for n in range(3, 400) if fmean(map(power, range(n - 2, n + 3))) >= 0.8)
    sets = filled.count_deciding(0.8, "least", 0.95)
    assert sets == ceil((answers + 0.5) * 1.21)
    assert sets > (whole.count_deciding(0.8, "least", 0.95) or 0) * 1.21


def test_all_of_several_versions_pass_with_80_percent_power() -> None:
    # each of 5 passes with 0.8^(1/5) = 0.956, whose quantile is 1.709 in place of 0.842
    change = Bounds(0.0, 400, -0.05, 0.05, 0.5, (-1.0, 1.0))
    one, five = (
        change._replace(pairs=pairs).count_deciding(0.05, "most", 0.95) for pairs in (1, 5)
    )
    assert one == pytest.approx(((1.96 + 0.842) * 0.5 / 0.05) ** 2, rel=0.03)
    assert five == pytest.approx(((1.96 + 1.709) * 0.5 / 0.05) ** 2, rel=0.03)
    # any of five that fails: at the level of the family, with 0.8 of its own
    worse = change._replace(value=0.1)
    failing = [worse._replace(pairs=k).count_deciding(0.05, "most", 0.95) for k in (1, 5)]
    assert failing[0] == pytest.approx(one, rel=0.02)
    assert failing[1] == pytest.approx(((2.569 + 0.842) * 0.5 / 0.05) ** 2, rel=0.03)


def test_passing_needs_no_family_and_failing_does() -> None:
    # one of three versions: lost 6 of 40 sets, kept the rest
    new, old = paired(30, 0, 6, 4)
    before, after = ((np.tile(part, (3, 1)) for part in parts) for parts in (old, new))
    tops = np.array(list(before)), np.array(list(after))
    earlier, later = ((item[0], item[1]) for item in tops)
    none = np.zeros(3, dtype=bool)
    alone = compare_pairs(earlier, later, family=none)
    result = bound_pair_difference(alone, compare_pairs(earlier, later), 0).negative
    assert result.family and result.family[0] < result.low and result.high < result.family[1]
    assert compare_with_limit(result, result.high, "most") == "pass"
    assert compare_with_limit(result, (result.low + result.family[0]) / 2, "most") == "undecided"
    assert compare_with_limit(result, result.family[0] - 0.001, "most") == "fail"
