"""A run only grows: a command that asks for less than it has, or for more than there is, says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensafeintent import EvaluateSettings, GradeSettings, evaluate, grade
from opensafeintent.calls.functions import FunctionModel
from samples import dataset_file, made_dataset, prompt_set

SETS = made_dataset(*(prompt_set(f"s{number}", 1) for number in range(15)))


def judge(text: str) -> str:
    return "3" if "1 to 4" in text else "0"


JUDGE = FunctionModel(lambda messages: judge(messages[0]["content"]), name="judge", version="1")


def settings(folder: Path, **more: Any) -> EvaluateSettings:
    return EvaluateSettings(
        models=("baseline/comply-all",),
        judges=(JUDGE,),
        dataset=dataset_file(folder, SETS),
        out=folder / "run",
        follow_ups=True,
        **more,
    )


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 of 15 prompt-sets."""
    folder = tmp_path_factory.mktemp("sizes")
    sizes = {"limit": 12, "epochs": 3, "judge_retest": 8, "request_swap": 4, "follow_up_audit": 10}
    assert not said(evaluate(settings(folder, **sizes, dry_run=True)).notes)
    evaluate(settings(folder, **sizes))
    return folder


def said(notes: list[str]) -> list[str]:
    return [note for note in notes if "none is removed" in note or "all are taken" in note]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"limit": 6}, "--limit 6: the run has 12 prompt-sets already; none is removed"),
        ({"epochs": 2}, "--epochs 2: the run has 3 epochs already; none is removed"),
        (
            {"judge_retest": 1},
            "--judge-retest 1: the run has 8 retested responses already; none is removed",
        ),
        (
            {"request_swap": 2},
            "--request-swap 2: the run has 4 audited prompt-sets already; none is removed",
        ),
        (
            {"follow_up_audit": 4},
            "--follow-up-audit 4: the run has 10 audited responses already; none is removed",
        ),
        # 15 sets x 3 epochs x a benign and a malicious prompt
        (
            {"follow_up_audit": 1000},
            "--follow-up-audit 1,000: the run has 90 direct responses; all are taken",
        ),
        (
            {"limit": 12, "request_swap": 13},
            "--request-swap 13: the run has 12 prompt-sets; all are taken",
        ),
    ],
)
def test_a_number_that_a_run_does_not_get_is_said(
    grown: Path, asked: dict[str, int], line: str
) -> None:
    assert said(evaluate(settings(grown, **asked, dry_run=True)).notes) == [line]


@pytest.mark.slow
def test_the_precision_of_a_dry_run_is_that_of_the_grown_run(grown: Path) -> None:
    """The run has 12 prompt-sets, whatever the limit."""
    notes = evaluate(settings(grown, limit=6, dry_run=True)).notes
    assert notes[0].startswith("with 12 prompt-sets, the 95 % interval of Triplet Safety")


@pytest.mark.slow
def test_a_new_judge_of_a_run_says_it_too(grown: Path, tmp_path: Path) -> None:
    how = {"run": grown / "run", "judges": ("baseline/judge",), "out": tmp_path / "again"}
    grade(GradeSettings(**how, judge_retest=5))
    notes = grade(GradeSettings(**how, judge_retest=3, dry_run=True)).notes
    assert said(notes) == [
        "--judge-retest 3: the run has 5 retested responses already; none is removed"
    ]
