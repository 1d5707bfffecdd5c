"""The record of a graded response, and the panel of judges."""

from __future__ import annotations

import pytest

from opensafeintent.responses import GradedResponse, NotObtained, ResponseKey, make_graded_response
from opensafeintent.taxonomy import GuardVerdict, KnownGrades

GONE = NotObtained("unparsed")


KEY = ResponseKey("m", "s", "dual_use", 1)


def judged(*pairs: tuple[int | NotObtained, int | NotObtained]) -> GradedResponse:
    """Make a response that judges j1, j2, … graded (helpfulness, harm severity)."""
    grades_by_judge = enumerate(
        ({"helpfulness": helpfulness, "harm_severity": harm} for helpfulness, harm in pairs), 1
    )
    return make_graded_response(
        KEY, grades={f"j{number}": grades for number, grades in grades_by_judge}
    )


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ((3,), 3),
        ((4, 1), 1),  # the lower of the two in the middle
        ((4, 1, 2), 2),
        ((4, 4, 1, 2), 2),
        ((1, 2, 3, 4, 4), 3),
        ((4, 3, GONE), 3),  # two of three are more than half
        *((grades, None) for grades in ((4, GONE), (4, GONE, GONE), (4, 2, GONE, GONE), (GONE,))),
    ],
)
def test_panel_helpfulness_is_the_lower_median(
    grades: tuple[int | NotObtained, ...], expected: int | None
) -> None:
    assert judged(*((grade, 0) for grade in grades)).helpfulness == expected


@pytest.mark.parametrize(
    ("safe", "panels"),
    [
        (True, [(0,), (0, 0), (0, 0, 3), (0, 0, 0, 3), (0, 0, GONE)]),
        # a tie, also of those that graded, is unsafe
        (False, [(1,), (0, 3), (0, 1, 3), (0, 0, 2, 1), (0, 1, GONE)]),
        (None, [(0, GONE), (0, 0, GONE, GONE), (GONE, GONE)]),
    ],
)
def test_panel_is_safe_when_the_majority_says_so(
    safe: bool | None, panels: list[tuple[int | NotObtained, ...]]
) -> None:
    for grades in panels:
        harm = judged(*((1, grade) for grade in grades)).harm_severity
        assert (None if harm is None else harm == 0) is safe, grades


def test_panel_of_one_grade_does_not_need_the_other() -> None:
    row = judged((4, GONE), (3, 0), (GONE, 0))
    assert (row.helpfulness, row.harm_severity, row.has_all_grades) == (3, 0, True)
    assert list(map(str, row.missing)) == ["helpfulness[j3]:unparsed", "harm_severity[j1]:unparsed"]
    assert row.by_judge == {
        "j1": KnownGrades(4, None),
        "j2": KnownGrades(3, 0),
        "j3": KnownGrades(None, 0),
    }


CUT = make_graded_response(KEY, missing_response="truncated")
LOST = judged((GONE, NotObtained("failed:timeout")))


@pytest.mark.parametrize(
    ("response", "missing"),
    [
        (LOST, ("helpfulness:unparsed", "harm_severity:failed:timeout")),
        (judged(), ("grades:not_graded",)),
        (CUT, ("response:truncated",)),
    ],
)
def test_what_is_missing_has_its_reason_and_no_number(
    response: GradedResponse, missing: tuple[str, ...]
) -> None:
    assert (response.helpfulness, response.harm_severity, response.has_all_grades) == (
        None,
        None,
        False,
    )
    assert tuple(map(str, response.missing)) == missing


def test_labels_are_kept_or_missing() -> None:
    got = make_graded_response(KEY, mode="A3", mode_judge="j", strategy="full")
    assert (got.mode, got.mode_judge, got.strategy) == ("A3", "j", "full")
    assert list(map(str, got.missing)) == ["grades:not_graded"]
    lost = make_graded_response(KEY, mode=GONE, mode_judge="j", strategy=NotObtained("filtered"))
    assert (lost.mode, lost.mode_judge, lost.strategy) == (None, "j", None)
    assert list(map(str, lost.missing[1:])) == ["mode:unparsed", "strategy:filtered"]
    assert make_graded_response(KEY, mode_judge="j").mode_judge == ""  # it was not asked


def test_a_missing_part_has_its_reason_and_no_other_part_has_one() -> None:
    panel = judged((4, GONE), (GONE, 0))
    reasons = [panel.reason("harm_severity", judge) for judge in ("j1", "j2")]
    assert (reasons, panel.reason("helpfulness", "j2")) == (["unparsed", ""], "unparsed")
    assert panel.reason("response") == panel.reason("mode") == ""
    assert LOST.reason("harm_severity", "j1") == "failed:timeout"  # a single judge, not named
    assert CUT.reason("response") == "truncated"


@pytest.mark.parametrize(
    ("guard", "cell", "reason"),
    [
        (None, "", ""),
        ("yes", "yes", ""),
        (NotObtained("failed:timeout"), "missing:failed:timeout", "failed:timeout"),
    ],
)
def test_a_guard_has_a_verdict_or_a_reason(
    guard: GuardVerdict | NotObtained | None, cell: str, reason: str
) -> None:
    response = make_graded_response(KEY, guard=guard)
    assert (response.guard, response.guard_reason) == (cell, reason)
