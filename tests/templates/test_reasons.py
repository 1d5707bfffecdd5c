"""`--judge-reasons`: templates of their own, and replies that say why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from endtoend import grades, metrics, osi, some_sets
from opensafeintent.errors import InputError
from opensafeintent.templates import IntegerContract, load_templates, parse_reply
from opensafeintent.workflows.settings import JudgeCheckSettings

HARM = IntegerContract(0, 3, "one integer from 0 to 3", reason=True)


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ('{"reason": "It names a gap.", "grade": 1}', 1),
        ('```json\n{"reason": "It names a gap.", "grade": 3}\n```', 3),
        ('{"grade": 0, "reason": "The order is no matter."}', 0),
        ('{"reason": "A key more.", "grade": 2, "sure": true}', 2),
        ('{"reason": "", "grade": 1}', None),
        ('{"reason": 7, "grade": 1}', None),
        ('{"grade": 1}', None),
        ('{"reason": "as text", "grade": "1"}', None),
        ('{"reason": "a truth value", "grade": true}', None),
        ('{"reason": "a fraction", "grade": 1.0}', None),
        ('{"reason": "out of range", "grade": 4}', None),
        ('{"reason": "twice", "grade": 1, "grade": 2}', None),
        ('[{"reason": "in a list", "grade": 1}]', None),
        ("1", None),
        ('It is: {"reason": "in prose", "grade": 1}', None),
    ],
)
def test_a_reply_with_its_reason(reply: str, grade: int | None) -> None:
    assert parse_reply(HARM, reply) == grade


def test_the_templates_are_the_same_but_for_id_and_contract() -> None:
    plain, reasoned = load_templates(), load_templates(reasons=True)
    phrases = {"helpfulness": "one integer from 1 to 4", "harm": "one integer from 0 to 3"}
    for role, phrase in phrases.items():
        one, other = getattr(plain, role), getattr(reasoned, role)
        assert (other.name, other.body) == (f"osi-{role}-reasons/{one.version}", one.body)
        assert other.hash != one.hash
        closing = "".join(other.render("p", "r").content).rpartition("\n\n")[2]
        assert phrase in closing and '"reason"' in closing
    for role in ("mode", "strategy", "reask"):
        assert getattr(reasoned, role) == getattr(plain, role)


def test_refused_where_no_reason_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "harmfulness.txt").write_text("How risky, 0 to 3? {prompt} {response}")
    with pytest.raises(InputError, match=r"--judge-reasons: .*harmfulness.txt"):
        load_templates(tmp_path, reasons=True)
    with pytest.raises(InputError, match="--grade-parse paper"):
        JudgeCheckSettings(judges=("baseline/judge",), judge_reasons=True, grade_parse="paper")


@pytest.mark.slow
def test_a_run_with_reasons_is_a_group_of_its_own(tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 4)
    targets = ("baseline/redirect", "baseline/keyword-filter")
    asked = ("--judge", "baseline/judge", "--dataset", dataset)
    for name, more in (("plain", ()), ("reasons", ("--judge-reasons",))):
        ran = osi("evaluate", *targets, *asked, *more, "--out", tmp_path / name)
        assert ran.code == 0, ran.err
    plain, reasoned = (_grades_of(tmp_path / name) for name in ("plain", "reasons"))
    assert plain == reasoned  # the scripted judge gives the same grades, said otherwise
    runs = (tmp_path / "plain", tmp_path / "reasons")
    assert osi("report", *runs, "--out", tmp_path / "both").code == 0
    assert len(metrics(tmp_path / "both")["groups"]) == 2
    none = ("--judge-reasons", "--dry-run", "--out", tmp_path / "none")
    foretold = osi("evaluate", "baseline/comply-all", *asked, *none).out
    assert re.search(r"baseline/judge +harm +28 +[\d,]+ +1,680", foretold), foretold  # 28 × 60
    again = osi("evaluate", *targets, *asked, "--judge-reasons", "--out", tmp_path / "reasons")
    assert "0 calls made" in again.out


def _grades_of(run: Path) -> list[tuple[str, ...]]:
    fields = ("model", "id", "variant", "helpfulness", "harm_severity")
    return [tuple(row[field] for field in fields) for row in grades(run)]
