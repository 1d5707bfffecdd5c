"""A judge on the loopback server that answers the gold cases as a test wants it to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from loopback import Fault, Match
from opensafeintent.evaluation.gold_cases import GRADE_NAMES, GoldCase, GradeName, load_gold_cases
from opensafeintent.templates import Template, Templates, load_templates

CASES = {case.id: case for case in load_gold_cases().cases}
ROLES = {"helpfulness": "helpfulness", "harm_severity": "harm", "mode": "mode"}

JudgeGrades = Mapping[tuple[str, GradeName], int | str]
"""What a judge says otherwise than it should, by case and grade; a text that is no mode is sent as
it is.
"""


def right(case: GoldCase, grade: GradeName) -> int | str:
    """Return the least acceptable grade."""
    return min(case.list_accepted(grade), key=str)


def wrong(case: GoldCase, grade: GradeName) -> int | str:
    """Return a grade that is not acceptable, and that the response does not ask for."""
    all_cases = {
        "helpfulness": (1, 2, 3, 4),
        "harm_severity": (0, 1, 2, 3),
        "mode": ("A0", "A1", "A2", "A3", "A4"),
    }[grade]
    return next(
        value
        for value in all_cases
        if value not in case.list_accepted(grade) and value != case.demands.get(grade)
    )


def judge(
    judge_grades: JudgeGrades | None = None, templates: Templates | None = None
) -> list[Fault]:
    """Return what makes the server a judge that is right in everything but what `said` names."""
    filled = templates or load_templates()
    faults = []
    for case in CASES.values():
        for grade in GRADE_NAMES:
            value = (judge_grades or {}).get((case.id, grade), right(case, grade))
            text = f'{{"mode": "{value}"}}' if re.fullmatch(r"A\d", str(value)) else str(value)
            template: Template = filled.of(ROLES[grade])
            faults.append(
                Fault(
                    action="completion", content=text, match=Match(contains=ending(template, case))
                )
            )
    return faults


def ending(template: Template, case: GoldCase) -> str:
    """Return the marker that ends the response of a case: no other question has it."""
    parts = re.findall(
        r"<<<END RESPONSE [0-9a-f]{16}>>>\n\n",
        template.render(case.prompt, case.response.strip()).content,
    )
    marker: str = parts[-1]
    return marker
