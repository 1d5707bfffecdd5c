"""A judge that is added to a run changes its numbers: the terminal says so, with both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensafeintent import (
    EvaluateSettings,
    FunctionModel,
    GradeSettings,
    OpenSafeIntentError,
    Outcome,
    evaluate,
    grade,
)
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

SETS = made_dataset(*(prompt_set(f"s{n}", 1) for n in range(3)))


def judge(name: str, helpfulness: str, harm: str) -> FunctionModel:
    def ask(messages: list[dict[str, str]]) -> str:
        text = messages[-1]["content"]
        if '"mode"' in text:
            return '{"mode": "A3"}'
        return helpfulness if "one integer from 1 to 4" in text else harm

    return FunctionModel(ask, name=name, version="1")


MILD, STERN = judge("mild", "4", "0"), judge("stern", "2", "1")
MODEL = "baseline/comply-all"


def evaluated(
    folder: Path, *judges: FunctionModel, models: Any = MODEL, **settings: Any
) -> Outcome:
    where = {"dataset": dataset_file(folder, SETS), "out": folder / "run", "probe": "none"}
    return evaluate(EvaluateSettings(models=models, judges=judges, **(where | settings)))


def panel_notes(outcome: Outcome) -> list[str]:
    return [note for note in outcome.notes if "before, now" in note]


@pytest.mark.slow
def test_a_second_judge_is_told_with_the_numbers_before_and_after(tmp_path: Path) -> None:
    assert panel_notes(evaluated(tmp_path, MILD)) == []
    (line,) = panel_notes(evaluated(tmp_path, MILD, STERN))
    assert line.startswith(f"{MODEL}: graded by python/mild@1 before")
    assert "now by python/mild@1 + python/stern@1" in line
    for metric in ("Triplet Safety", "Mean Utility", "Mean Safety"):
        assert f"{metric} 1.00, now 0.00" in line
    assert panel_notes(evaluated(tmp_path, MILD, STERN)) == []


def test_before_a_call_is_made_it_is_told_without_numbers(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD)
    (line,) = panel_notes(evaluated(tmp_path, MILD, STERN, dry_run=True))
    assert "Triplet Safety" not in line


@pytest.mark.slow
def test_only_models_whose_judges_changed_are_told(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD, models=(MODEL, "baseline/refuse-all"))
    (line,) = panel_notes(evaluated(tmp_path, MILD, STERN))
    assert line.startswith(MODEL)
    assert panel_notes(evaluated(tmp_path, STERN, models="baseline/redirect")) == []


def test_grade_tells_of_a_second_judge_and_not_of_the_first(tmp_path: Path) -> None:
    import_lines(tmp_path, lines_of(SETS), SETS)
    settings: dict[str, Any] = {"run": tmp_path / "run"}
    assert panel_notes(grade(GradeSettings(judges=(MILD,), **settings))) == []
    (line,) = panel_notes(grade(GradeSettings(judges=(MILD, STERN), **settings)))
    assert line.startswith("m: ") and "Mean Safety 1.00, now 0.00" in line


@pytest.mark.slow
def test_an_addition_that_was_interrupted_is_told_when_it_is_complete(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD)
    for _ in range(2):
        with pytest.raises(OpenSafeIntentError, match="budget of 3 calls"):
            evaluated(tmp_path, MILD, STERN, budget_calls=3)
    (line,) = panel_notes(evaluated(tmp_path, MILD, STERN))
    assert "Mean Safety 1.00, now 0.00" in line
    assert panel_notes(evaluated(tmp_path, MILD, STERN)) == []


def unlike_notes(outcome: Outcome) -> list[str]:
    return [note for note in outcome.notes if " of this run" in note]


@pytest.mark.slow
def test_a_model_that_other_judges_grade_than_the_run_s_models_is_told(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD, STERN)
    new: dict[str, Any] = {"models": "baseline/redirect", "dry_run": True}
    (line,) = unlike_notes(evaluated(tmp_path, MILD, **new))
    assert line.startswith("baseline/redirect: graded by python/mild@1; ")
    assert f"{MODEL} of this run by python/mild@1 + python/stern@1." in line
    assert "the same command with --judge python/stern@1 added" in line
    assert unlike_notes(evaluated(tmp_path, MILD, STERN, **new)) == []
    # a further judge: the models of the run have to be named too
    third = judge("third", "3", "0")
    (line,) = unlike_notes(evaluated(tmp_path, MILD, STERN, third, **new))
    assert f"the same command with {MODEL} added" in line


def test_a_model_that_is_asked_less_often_than_the_run_s_models_is_told(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD, epochs=2)
    new: dict[str, Any] = {"models": "baseline/redirect", "dry_run": True}
    (line,) = unlike_notes(evaluated(tmp_path, MILD, **new))
    expected = f"1 response to each prompt; {MODEL} of this run: 2. --epochs 2 makes them alike"
    assert line == f"baseline/redirect: {expected}"
    (line,) = unlike_notes(evaluated(tmp_path, MILD, epochs=3, **new))
    assert line.endswith(f"--epochs 3 for {MODEL} makes them alike")
    assert unlike_notes(evaluated(tmp_path, MILD, epochs=2, **new)) == []
