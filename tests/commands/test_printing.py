"""Results in Python: what `print` shows, and how a function shows its progress."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import opensafeintent
from endtoend import osi
from opensafeintent import (
    BuildSettings,
    CompareSettings,
    EvaluateSettings,
    JudgeCheckSettings,
    ReportSettings,
    SampleSizeSettings,
)

MODELS = ("baseline/redirect", "baseline/refuse-all")
EVALUATION: dict[str, Any] = {
    "models": MODELS,
    "judges": ("baseline/judge",),
    "limit": 3,
    "probe": "none",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed") / "run"
    opensafeintent.evaluate(EvaluateSettings(**EVALUATION, out=folder), quiet=True)
    return folder


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def in_terminal(*words: object) -> str:
    """Return what a command prints, up to the lines about files and the next command."""
    text = osi(*words, COLUMNS="120").out
    kept = re.split(r"^(?:Results in|Next:|All metrics)", text, flags=re.MULTILINE)[0]
    return "\n".join(line.rstrip() for line in kept.strip("\n").split("\n"))


@pytest.mark.slow
def test_a_printed_result_is_what_the_command_line_shows(run: Path, tmp_path: Path) -> None:
    judge = ("--judge", "baseline/judge")
    models = ("--limit", 3, "--probe", "none")
    evaluated = opensafeintent.evaluate(EvaluateSettings(**EVALUATION, out=run), quiet=True)
    expected = in_terminal("evaluate", *MODELS, *judge, *models, "--out", run)
    assert str(evaluated) == expected
    assert "Triplet Safety" in expected and "calls made" in expected
    reported = opensafeintent.write_report(ReportSettings(runs=run), quiet=True)
    assert str(reported) == in_terminal("report", run)
    compared = opensafeintent.compare(CompareSettings(runs=run), quiet=True)
    assert str(compared) == in_terminal("compare", run)
    assert "less safe" in str(compared)
    forecast = EvaluateSettings(**EVALUATION, out=tmp_path / "dry", dry_run=True)
    words = (*MODELS, *judge, *models, "--out", tmp_path / "dry", "--dry-run")
    planned = opensafeintent.evaluate(forecast, quiet=True)
    assert str(planned) == in_terminal("evaluate", *words)


@pytest.mark.slow
def test_a_printed_gate_has_its_verdict_and_its_note(run: Path) -> None:
    gated = opensafeintent.write_report(
        ReportSettings(runs=run, fail_under="triplet_safety=0.99"), quiet=True
    )
    text = str(gated)
    assert "Release gate" in text and "triplet_safety" in text
    assert text == in_terminal("report", run, "--fail-under", "triplet_safety=0.99")


@pytest.mark.slow
def test_plans_and_judges_are_printed_too(tmp_path: Path) -> None:
    planned = opensafeintent.sample_size(SampleSizeSettings(difference=0.1))
    assert str(planned) == in_terminal("sample-size", "--difference", 0.1)
    checked = opensafeintent.check_judges(
        JudgeCheckSettings(judges="baseline/judge", out=tmp_path / "check"), quiet=True
    )
    words = ("--judge", "baseline/judge", "--out", tmp_path / "check")
    shown = in_terminal("judge-check", *words)
    # the second time all calls are in the ledger
    assert re.sub(r".*calls made.*", "", str(checked)) == re.sub(r".*calls made.*", "", shown)
    assert "FAILED: " in shown or "PASSED: " in shown
    built = opensafeintent.build(
        BuildSettings(
            generator="baseline/generator",
            judge="baseline/judge",
            per_cell=1,
            out=tmp_path / "build",
            dry_run=True,
        )
    )
    assert "to make, if every unknown item passes" in str(built)


def test_a_notebook_shows_the_same(run: Path) -> None:
    compared = opensafeintent.compare(CompareSettings(runs=run), quiet=True)
    html = compared._repr_html_()
    assert html.startswith("<pre") and "baseline/redirect" in html and "\x1b" not in html


def test_progress_is_shown_on_standard_error_unless_it_is_to_be_quiet(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opensafeintent.compare(CompareSettings(runs=run))
    shown = capsys.readouterr()
    assert "reading run" in shown.err and shown.out == ""
    opensafeintent.compare(CompareSettings(runs=run), quiet=True)
    assert capsys.readouterr().err == ""
