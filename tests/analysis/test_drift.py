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
    assert drifted([((2, 0), (2, 0))] * 100).changed == []


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
