"""Has a judge changed? Grades of the same responses, then and now."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from opensafeintent.analysis.drift import Drift, SecondGrades, drift_of
from opensafeintent.evaluation.records import JudgeGrades, Missing

Pair = tuple[int | Missing, int | Missing]


def regraded(pairs: Iterable[tuple[Pair, Pair]], judge: str = "j") -> list[SecondGrades]:
    return [
        SecondGrades(
            model="m",
            set_id=f"s{number // 2}",
            variant="benign",
            epoch=1 + number % 2,
            first={judge: JudgeGrades(helpfulness=first[0], harm_severity=first[1])},
            again={judge: JudgeGrades(helpfulness=again[0], harm_severity=again[1])},
        )
        for number, (first, again) in enumerate(pairs)
    ]


def drifted(pairs: Iterable[tuple[Pair, Pair]]) -> Drift:
    return drift_of(regraded(pairs), ["j"], run="v1", kept="v3")


def test_a_shift_by_hand() -> None:
    # helpfulness +1, +1, 0, −2: 0 on average; safe: 1 → 0, 0 → 0, 1 → 1, 1 → 0: −½
    found = drifted([((2, 0), (3, 1)), ((3, 2), (4, 1)), ((1, 0), (1, 0)), ((4, 0), (2, 3))])
    helpfulness, safe = found.shifts
    assert (helpfulness.what, helpfulness.shift.value, helpfulness.responses, helpfulness.shift.n) == ("helpfulness", 0, 4, 2)
    assert (safe.what, safe.shift.value) == ("safe", -0.5)
    assert found.responses == 4


def test_a_judge_that_says_the_same_has_not_changed() -> None:
    found = drifted([((2, 0), (2, 0))] * 100)
    assert found.changed == []
    assert [(shift.shift.value, shift.shift.n) for shift in found.shifts] == [(0, 50), (0, 50)]
    assert [shift.shift.interval for shift in found.shifts] == [None, None]  # no grade moved: nothing to tell how far


@pytest.mark.parametrize(("moved", "told"), [(6, False), (7, True)])
def test_so_many_responses_that_all_move_one_way_are_more_than_chance(moved: int, told: bool) -> None:
    # of k sets that differ, all flips have one direction with 2^−k on either side: 2⁻⁶ = .0156 and 2⁻⁷ = .0078, and each
    # interval of one judge leaves .0125 on either side
    found = drifted([((2, 0), (3, 0)), ((2, 0), (2, 0))] * moved + [((2, 0), (2, 0))] * 60)
    assert bool(found.changed) is told


def test_two_sets_can_tell_nothing() -> None:
    # the subsets of two sets are both, either and none: a quarter of them is none, and lies beyond either end
    found = drifted([((1, 0), (2, 1))] * 4)
    assert [shift.shift.interval for shift in found.shifts] == [(-3, 3), (-1, 1)]
    assert found.changed == []


def test_the_interval_holds_a_change_that_there_is() -> None:
    generator = np.random.default_rng(3)
    held = []
    for _ in range(200):
        then, moved = generator.integers(2, 4, 80), generator.choice((0, 0, 0, 1, -1, 1), 80)  # by ⅙ on average
        pairs: list[tuple[Pair, Pair]] = [
            ((int(a), 0), (int(a + b), 0)) for a, b in zip(then.tolist(), moved.tolist(), strict=True)
        ]
        low, high = drifted(pairs).shifts[0].shift.interval or (0, 0)
        held.append(low <= 1 / 6 <= high)
    assert np.mean(held) >= 0.95


def test_a_judge_that_became_stricter_has() -> None:
    shifts = drifted([((3, 0), (2, 0)), ((3, 0), (3, 1)), ((3, 1), (3, 1)), ((2, 0), (2, 1))] * 25).changed
    assert [(shift.what, shift.shift.value) for shift in shifts] == [("helpfulness", -0.25), ("safe", -0.5)]


def test_missing_grades_count_on_neither_side() -> None:
    found = drifted([((3, Missing("unparsed")), (3, 0)), ((Missing("filtered"), 0), (4, 0)), ((1, 0), (2, 0))])
    assert [shift.responses for shift in found.shifts] == [2, 2]
    assert [shift.shift.value for shift in found.shifts] == [0.5, 0]


def test_without_any_grade_there_is_no_shift_and_no_change() -> None:
    found = drifted([((Missing("unparsed"), Missing("unparsed")), (1, 0))])
    assert [shift.shift.value for shift in found.shifts] == [None, None]
    assert found.changed == []


def test_noise_is_told_a_change_in_five_of_a_hundred_checks_at_most() -> None:
    generator = np.random.default_rng(11)
    told = 0
    for _ in range(200):
        then, now = (generator.binomial(3, 0.5, size=(100, 2)) for _ in range(2))
        pairs = [((1 + int(a[0]), int(a[1] > 1)), (1 + int(b[0]), int(b[1] > 1))) for a, b in zip(then, now, strict=True)]
        told += bool(drifted(pairs).changed)
    assert told <= 18  # 5 % of 200 and two and a half standard errors


@pytest.mark.parametrize(("judges", "expected"), [(1, 0.975), (3, 1 - 0.05 / 6)])
def test_the_intervals_of_all_judges_hold_together(judges: int, expected: float) -> None:
    found = drift_of([], [f"j{n}" for n in range(judges)], run="v1", kept="v2")
    assert found.confidence == pytest.approx(expected)
    assert len(found.shifts) == 2 * judges
