"""A judge that is added to a run changes its numbers: the terminal says so, with both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from endtoend import metrics
from loopback import LoopbackServer
from opensafeintent import (
    EvaluateSettings,
    FunctionModel,
    GradeSettings,
    OpenSafeIntentError,
    RunOutcome,
    evaluate,
    grade,
)
from opensafeintent.commands.graded_runs import read_joined_runs
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.taxonomy import QUESTIONS
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

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
    folder: Path, *judges: FunctionModel | str, models: Any = MODEL, **settings: Any
) -> RunOutcome:
    where = {"dataset": dataset_file(folder, SETS), "out": folder / "run", "probe": "none"}
    return evaluate(EvaluateSettings(models=models, judges=judges, **(where | settings)))


def panel_notes(outcome: RunOutcome) -> list[str]:
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


def test_before_a_call_is_made_the_growth_is_told(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD)
    outcome = evaluated(tmp_path, MILD, STERN, dry_run=True)
    (line,) = (note for note in outcome.notes if "grows" in note)
    assert line == "the run grows: judges: python/mild@1 → python/mild@1 + python/stern@1"


def test_the_progress_counts_the_calls_that_were_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated(tmp_path, MILD)
    with pytest.raises(Stopped, match="budget of 5 calls"):
        evaluated(tmp_path, MILD, STERN, budget_calls=5, max_connections=1)
    stopped = capsys.readouterr().err
    announced = re.search(r"that takes at most (\d+) calls", stopped)
    assert announced is not None
    calls = int(announced[1])
    assert f" 5 of {calls} calls · " in stopped
    assert "\n5 calls made, " in stopped
    evaluated(tmp_path, MILD, STERN)
    assert f" {calls - 5} of {calls - 5} calls · " in capsys.readouterr().err


def test_a_judge_counts_when_it_was_asked_about_every_model(tmp_path: Path) -> None:
    other = "baseline/refuse-all"
    before = evaluated(tmp_path, MILD, models=(MODEL, other))
    outcome = evaluated(tmp_path, MILD, STERN)  # of one model alone
    assert panel_notes(outcome) == []
    (added,) = (said for said in outcome.notices if said.code == "added_judges")
    grades = len(QUESTIONS) * 12, len(QUESTIONS) * 24
    assert added.facts[0] == {
        "added": ("python/stern@1",),
        "before": ("python/mild@1",),
        "grades": grades,
    }
    assert f"So far {grades[0]} of {grades[1]} grades are there." in added.text
    assert "few_judges" not in {said.code for said in outcome.notices}
    (run,) = read_joined_runs([tmp_path / "run"], ())
    assert run.added_grades == grades
    assert outcome.results.conditions == before.results.conditions
    lines = panel_notes(evaluated(tmp_path, MILD, STERN, models=(MODEL, other)))
    assert [line.partition(":")[0] for line in lines] == [MODEL, other]


def test_fewer_judges_are_refused_with_the_way_out(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD, STERN)
    with pytest.raises(
        InputError, match=r"judges \(--judge\): the run has .*--out; with --ledger .*ledger"
    ):
        evaluated(tmp_path, MILD)


def test_grade_tells_of_a_second_judge_and_not_of_the_first(tmp_path: Path) -> None:
    import_lines(tmp_path, lines_of(SETS), SETS)
    settings: dict[str, Any] = {"run": tmp_path / "run"}
    assert panel_notes(grade(GradeSettings(judges=(MILD,), **settings))) == []
    (line,) = panel_notes(grade(GradeSettings(judges=(MILD, STERN), **settings)))
    assert line.startswith("m: ") and "Mean Safety 1.00, now 0.00" in line


def test_grade_into_a_new_run_compares_new_judges_with_those_of_the_run(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD)
    others = STERN, judge("harsh", "1", "2")
    run, out = tmp_path / "run", tmp_path / "three"
    outcome = grade(GradeSettings(run=run, judges=(MILD, *others), out=out))
    shifts = [note.partition(":")[0] for note in outcome.notes if "replaced" in note]
    assert shifts == [f"if {other.identity} replaced python/mild@1" for other in others]


def test_an_added_judge_that_never_answered_is_owed_its_calls_until_the_judges_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, silent = "openai-api/loop/judge", "openai-api/loop/silent"
    with LoopbackServer(models=["judge"]) as server:
        monkeypatch.setenv("LOOP_BASE_URL", server.base_url)
        monkeypatch.setenv("LOOP_API_KEY", "a-key-for-tests")
        evaluated(tmp_path, first)
        with pytest.raises(Stopped, match="silent"):
            evaluated(tmp_path, first, silent)
        # a judge that is not stated is the run's, and so are its calls
        resumed = evaluate(EvaluateSettings(out=tmp_path / "run", dry_run=True))
        assert (
            resumed.forecast is not None and sum(line.calls for line in resumed.forecast.lines) > 0
        )
        with pytest.raises(Stopped, match="silent"):
            evaluate(EvaluateSettings(out=tmp_path / "run"))
        assert evaluated(tmp_path, first).exit_code == 0
    assert metrics(tmp_path / "run")["judges"] == [first]


def test_a_judge_of_modes_that_never_answered_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "openai-api/loop/silent"
    with LoopbackServer(models=["judge"]) as server:
        monkeypatch.setenv("LOOP_BASE_URL", server.base_url)
        monkeypatch.setenv("LOOP_API_KEY", "a-key-for-tests")
        with pytest.raises(Stopped, match="silent"):
            evaluated(tmp_path, MILD, mode_judge=silent)
        assert evaluated(tmp_path, MILD, mode_judge="openai-api/loop/judge").exit_code == 0
        with pytest.raises(InputError, match="judge of modes"):
            evaluated(tmp_path, MILD, mode_judge=MILD)
    plan = RunFolder(tmp_path / "run").manifest().plan
    assert plan.mode_judge == "openai-api/loop/judge" and silent not in plan.judge_samplings


def test_an_addition_that_was_interrupted_counts_when_it_is_complete(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(messages: list[dict[str, str]]) -> str:
        asked.append(messages[-1]["content"])
        return "2" if "one integer from 1 to 4" in asked[-1] else "1"

    stern, folder = FunctionModel(ask, name="stern", version="1"), RunFolder(tmp_path / "run")
    evaluated(tmp_path, MILD)
    before = metrics(folder.path)["models"]
    for _ in range(2):
        with pytest.raises(OpenSafeIntentError, match="budget of 3 calls"):
            evaluated(tmp_path, MILD, stern, budget_calls=3)
        assert folder.manifest().panel_before == ("python/mild@1",)
        assert metrics(folder.path)["models"] == before
    (line,) = panel_notes(evaluated(tmp_path, MILD, stern))
    assert "Mean Safety 1.00, now 0.00" in line
    assert len(asked) == len(QUESTIONS) * 12  # no grade is paid for twice
    assert folder.manifest().panel_before == ()
    assert panel_notes(evaluated(tmp_path, MILD, stern)) == []


def test_what_is_not_stated_is_the_run_s(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD, epochs=2, limit=1, modes="core")
    settings = EvaluateSettings(models="baseline/redirect", judges=MILD, out=tmp_path / "run")
    evaluate(settings)
    manifest = RunFolder(tmp_path / "run").manifest()
    assert set(manifest.models) == {MODEL, "baseline/redirect"}
    plan = manifest.plan
    assert (plan.epochs, plan.limit, plan.modes, plan.probe) == (2, 1, "core", "none")
    assert [command.settings["models"] for command in manifest.commands] == [
        [MODEL],
        ["baseline/redirect"],
    ]


def test_a_model_asked_for_less_than_the_run_s_plan_is_refused(tmp_path: Path) -> None:
    evaluated(tmp_path, MILD, epochs=2)
    with pytest.raises(InputError, match=r"epochs \(--epochs\): the run has 2, this has 1"):
        evaluated(tmp_path, MILD, models="baseline/redirect", epochs=1)
