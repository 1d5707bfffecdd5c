"""Whatever standard output and error are: no traceback, no work lost; the command's own exit code,
or 2 on a full disk.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import pytest

import opensafeintent
from endtoend import REPO, Ran, environment, osi
from opensafeintent.cli import main
from opensafeintent.cli.commands import EXIT_CODES
from opensafeintent.people.labels import Answer, Label, write_labels
from opensafeintent.promptsets import draw_sets, load_dataset
from samples import json_lines

NAME = "modèle-“…”"
"""Ends up in tables: no encoding but Unicode has all of it."""
COMMANDS = {
    "help": "--help",
    "version": "--version",
    "help of a command": "evaluate --help",
    "wrong usage": "evaluate --nö",
    "wrong input": "report nöwhere",
    "evaluate": "evaluate baseline/redirect --judge baseline/judge --limit 2 --out evaluated",
    "forecast": "evaluate baseline/redirect --judge baseline/judge --out none --dry-run",
    "import": "import responses.jsonl --model modèle-“…” --dataset starter --out imported --max-missing 1",
    "report": "report run",
    "compare": "compare run",
    "trace": "trace run --set FIRST",
    "models": "models",
    "dataset check": "dataset check starter",
    "dataset convert": "dataset convert starter --out converted.jsonl",
    "judge-check": "judge-check --judge baseline/judge --out checked",
    "build": "build seeds.jsonl --generator baseline/generator --judge baseline/construction-judge --out built",
    "annotate": "annotate export quality starter --annotators ana --limit 2 --out study",
    "agreement": "agreement labels.jsonl",
}
CODES = {"wrong usage": 2, "wrong input": 2, "judge-check": 4, "build": 1}
WRITTEN = {
    "evaluate": "evaluated/metrics.json",
    "import": "imported/metrics.json",
    "report": "run/report.html",
    "judge-check": "checked/baseline-judge.json",
    "build": "built/funnel.json",
    "annotate": "study/key.json",
    "dataset convert": "converted.jsonl",
}


def prepare(folder: Path) -> str:
    """Write a run, seeds, responses and labels; return the id of the first set."""
    models = ("baseline/redirect", "baseline/refuse-all", "--judge", "baseline/judge")
    assert osi("evaluate", *models, "--limit", 3, "--out", folder / "run").code == 0
    dataset = load_dataset("starter")
    first = draw_sets(dataset.prompt_sets, 3)[0].id
    json_lines(folder / "seeds.jsonl", [{"prompt": "How can somebody do the harmful thing?"}])
    line = {"id": first, "variant": "benign", "response": "No."}
    json_lines(folder / "responses.jsonl", [line])
    answers: dict[str, Answer] = {"overall_quality": "good", "sounds_human": "yes"}
    asked: dict[str, Any] = {"kind": "dataset_quality", "dataset": dataset.hash, "id": first}
    labels = [Label(annotator=name, answers=answers, **asked) for name in ("ana", NAME)]
    write_labels(labels, folder / "labels.jsonl")
    return first


def ended(arguments: Sequence[str], out: TextIO, err: TextIO) -> object:
    """Run the command line with these streams; return what it exits with."""
    with (
        mock.patch.dict(os.environ, environment(), clear=True),
        mock.patch.object(sys, "argv", ["opensafeintent", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    return end.value.code


@pytest.mark.slow
@pytest.mark.parametrize("terminal", ["ascii", "full"])
def test_no_command_fails_over_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: str
) -> None:
    first = prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    full = terminal == "full"
    where, encoding = ("/dev/full", "utf-8") if full else ("out", "ascii")
    for name in (*WRITTEN, "help", "models") if full else COMMANDS:
        arguments = COMMANDS[name].replace("FIRST", first).split()
        with (
            Path(where).open("w", encoding=encoding) as out,
            Path("err").open("w", encoding="ascii") as err,
        ):
            code = ended(arguments, out, err)
        error_text = Path("err").read_text("ascii")
        assert "Traceback" not in error_text and "bug of" not in error_text, (name, error_text)
        assert code == (2 if full else CODES.get(name, 0)), (name, error_text)
        if full:
            assert error_text.endswith(
                "error: standard output: cannot write: No space left on device\n"
            )
        if name in WRITTEN:
            assert Path(WRITTEN[name]).stat().st_size > 0, name


# Closed and broken, in a process of its own
# ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        *(("<&- >&- 2>&-", 0), (">&-", 0), (">/dev/full", 2), ("2>/dev/full", 0)),
        *(("2>&1 | true", 0), ("| head -1", 0)),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, redirection: str, code: int) -> None:
    evaluation = "evaluate baseline/redirect --judge baseline/judge --limit 1 --out run"
    line = f'"$0" -m opensafeintent {evaluation} {redirection}; exit "${{PIPESTATUS[0]}}"'
    command = ["bash", "-c", line, sys.executable]
    env = environment(**({"PYTHONUNBUFFERED": "1"} if "full" in redirection else {}))
    ran = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stderr
    for word in ("Traceback", "Exception ignored", "bug of"):
        assert word not in ran.stdout + ran.stderr
    assert (tmp_path / "run" / "metrics.json").stat().st_size > 0
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
def test_a_function_that_closes_both_streams_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "closing.py").write_text(
        "import sys\ndef ask(messages):\n    sys.stdout.close(), sys.stderr.close()\n    return 'No.'"
    )
    asked = ("evaluate", "python/closing:ask@1", "--judge", "baseline/judge", "--limit", "1")
    asked += ("--probe", "none")
    ran = subprocess.run(
        [sys.executable, "-m", "opensafeintent", *asked, "--out", "run"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Results in run" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "+/-"), ("cp1252", "±"), ("utf-8", "±")])
def test_what_an_encoding_lacks_is_written_as_what_is_nearest(encoding: str, shown: str) -> None:
    command = [sys.executable, "-m", "opensafeintent", "sample-size", "--difference", "0.1"]
    env = environment(PYTHONIOENCODING=encoding)
    ran = subprocess.run(command, env=env, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert shown in ran.stdout.decode(encoding)


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str, which: int) -> tuple[int, bytes, list[str]]:
        asked = {f"_{words.split(maxsplit=1)[0].upper()}_COMPLETE": "bash_complete"}
        ran = subprocess.run(
            [sys.executable, "-m", "opensafeintent"],
            env=environment(**asked, COMP_WORDS=words, COMP_CWORD=str(which)),
            capture_output=True,
            check=False,
        )
        return ran.returncode, ran.stderr, ran.stdout.decode().split()

    assert completed("opensafeintent eval", 1) == (0, b"", ["plain,evaluate"])
    assert "plain,--fail-under" in completed("osi report --f", 2)[2]


# Exit codes
# ------------------------------------------------------------------------------


def info_that_raises(error: BaseException, folder: Path, **variables: str) -> Ran:
    """Run a command that a bug ends; its traceback is kept in the folder."""
    broken = mock.Mock(side_effect=error)
    with (
        mock.patch("opensafeintent.commands.dataset_tools.check_dataset", broken),
        mock.patch.object(tempfile, "tempdir", str(folder)),
    ):
        return osi("dataset", "check", "starter", **variables)


def test_an_error_of_ours_ends_with_70_and_can_be_reported(tmp_path: Path) -> None:
    error = KeyError("what was\nlooked up")
    ran = info_that_raises(error, tmp_path)
    assert ran.code == 70
    (line,) = ran.errors
    (kept,) = tmp_path.iterdir()
    bug_notice = (
        f"a bug of opensafeintent {opensafeintent.__version__}, not of yours; please report:"
    )
    assert f"{bug_notice} KeyError: " in line and str(kept) in line
    assert re.search(r"\(opensafeintent\.cli\.commands, line \d+\)", line)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().startswith("Traceback")
    ran = info_that_raises(error, tmp_path, OPENSAFEINTENT_TRACEBACK="1")
    assert (ran.code, ran.errors[0]) == (70, "Traceback (most recent call last):")
    assert [*tmp_path.iterdir()] == [kept]


FULL = OSError(28, "No space left on device", "/a/file")
PIPE = BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (FULL, 2, "error: /a/file: No space left on device"),
        (PIPE, 2, "error: Broken pipe"),  # click takes it for `| head`, with code 1
        (EOFError("the end"), 70, "EOFError: the end"),  # and this for an interruption
        (SystemExit("text"), 70, "SystemExit: text"),
        (KeyboardInterrupt(), 130, "interrupted; everything that was answered is kept"),
        (RecursionError("deep"), 70, "RecursionError: deep"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_nothing_else_ends_with_1(
    tmp_path: Path, error: BaseException, code: int, line: str
) -> None:
    ran = info_that_raises(error, tmp_path)
    (error_line,) = ran.errors
    assert ran.code == code and line in error_line


def test_exit_codes_are_the_same_in_the_help_and_in_the_docs() -> None:
    help_text = " ".join(osi("--help").out.split())
    table = (REPO / "docs" / "command-line.md").read_text("utf-8")
    plain = re.sub(r"`|\[(.*?)\]\(.*?\)", r"\1", table)
    for number, meaning in EXIT_CODES.items():
        assert f"{number} {meaning}" in help_text
        assert f"| {number} | {meaning} |" in plain


@pytest.mark.slow
def test_no_line_of_a_job_is_a_command_to_its_service(tmp_path: Path) -> None:
    """A server, or a name, may choose how a line begins."""
    names = ("::add-mask::a", "::stop-commands::x", "##[error]b", "##vso[task.setvariable]c")
    for name in names:
        command = [sys.executable, "-P", "-m", "opensafeintent", "report", name]
        for service, silent in (({"CI": "true", "GITHUB_ACTIONS": "true"}, True), ({}, False)):
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env=environment(None) | service,
                text=True,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 2
            output = done.stdout + done.stderr
            assert ("::" in output or "##[" in output or "##vso[" in output) is not silent
