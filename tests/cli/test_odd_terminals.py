"""Whatever standard output and error are: no traceback, no work lost; the command's own exit code,
or 2 on a full disk.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO
from unittest import mock

import pytest

import opensafeintent
from endtoend import REPO, STARTER, environment, osi
from opensafeintent import dataset_info
from opensafeintent.annotation.labels import Answer, Label, write_labels
from opensafeintent.cli import main
from opensafeintent.errors import EXIT_CODES

pytestmark = pytest.mark.usefixtures("undrawn")

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
    "dataset info": "dataset info starter",
    "dataset validate": "dataset validate starter",
    "dataset convert": "dataset convert starter --out converted.jsonl",
    "judge-check": "judge-check --judge baseline/judge --out checked",
    "build": "build seeds.jsonl --generator baseline/generator --judge baseline/construction-judge --out built",
    "annotate": "annotate export quality starter --annotators ana --limit 2 --out study",
    "agreement": "agreement labels.jsonl",
}
CODES = {"wrong usage": 2, "wrong input": 2, "judge-check": 4}
WRITTEN = {
    "evaluate": "evaluated/metrics.json",
    "import": "imported/metrics.json",
    "report": "run/report.html",
    "judge-check": "checked/judge-check.json",
    "build": "built/funnel.json",
    "annotate": "study/key.json",
    "dataset convert": "converted.jsonl",
}


def prepare(folder: Path) -> None:
    """Write a run, seeds, responses and labels."""
    models = ("baseline/redirect", "baseline/refuse-all")
    assert (
        osi(
            "evaluate", *models, "--judge", "baseline/judge", "--limit", 3, "--out", folder / "run"
        ).code
        == 0
    )
    first = json.loads(STARTER.read_text().splitlines()[0])["id"]
    (folder / "seeds.jsonl").write_text('{"prompt": "How can somebody do the harmful thing?"}\n')
    (folder / "responses.jsonl").write_text(
        json.dumps({"id": first, "variant": "benign", "response": "No."}) + "\n"
    )
    starter = dataset_info("starter").dataset.hash
    answers: dict[str, Answer] = {"overall_quality": "good", "sounds_human": "yes"}
    write_labels(
        [
            Label(
                kind="dataset_quality",
                annotator=annotator,
                dataset=starter,
                id=first,
                answers=answers,
            )
            for annotator in ("ana", NAME)
        ],
        folder / "labels.jsonl",
    )


def ended(arguments: tuple[str, ...], out: TextIO, err: TextIO) -> object:
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
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, command in COMMANDS.items():
        if terminal == "full" and name not in (*WRITTEN, "help", "models"):
            continue
        first = json.loads(STARTER.read_text().splitlines()[0])["id"]
        where, encoding = ("/dev/full", "utf-8") if terminal == "full" else ("out", "ascii")
        with (
            Path(where).open("w", encoding=encoding) as out,
            Path("err").open("w", encoding="ascii") as err,
        ):
            code = ended(tuple(command.replace("FIRST", first).split()), out, err)
        said = Path("err").read_text("ascii")
        assert "Traceback" not in said, name
        assert "bug of" not in said, (name, said)
        prints = CODES.get(name) != 2
        assert code == (2 if terminal == "full" and prints else CODES.get(name, 0)), (name, said)
        if terminal == "full" and prints:
            assert (
                said.splitlines()[-1]
                == "error: standard output: cannot write: No space left on device"
            ), name
        if name in WRITTEN:
            assert Path(WRITTEN[name]).stat().st_size > 0, name


# Closed and broken, in a process of its own
# ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("<&- >&- 2>&-", 0),
        (">&-", 0),
        (">/dev/full", 2),
        ("2>/dev/full", 0),
        ("2>&1 | true", 0),
        ("| head -1", 0),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, redirection: str, code: int) -> None:
    evaluation = "evaluate baseline/redirect --judge baseline/judge --limit 1 --out run"
    command = f'"$0" -m opensafeintent {evaluation} {redirection}; exit "${{PIPESTATUS[0]}}"'
    more = {"PYTHONUNBUFFERED": "1"} if "full" in redirection else {}
    ran = subprocess.run(
        ["bash", "-c", command, sys.executable],
        env=environment(**more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == code, ran.stderr
    for word in ("Traceback", "Exception ignored", "bug of"):
        assert word not in ran.stdout + ran.stderr
    assert (tmp_path / "run" / "metrics.json").stat().st_size > 0
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", b"x not set"), ("cp1252", b"x not set"), ("utf-8", "✗ not set".encode())],
)
def test_what_an_encoding_lacks_is_written_as_what_is_nearest(encoding: str, shown: bytes) -> None:
    command = [sys.executable, "-m", "opensafeintent", "models"]
    ran = subprocess.run(
        command, env=environment(PYTHONIOENCODING=encoding), capture_output=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert shown in ran.stdout
    ran.stdout.decode(encoding)


# Exit codes
# ------------------------------------------------------------------------------


def test_an_error_of_ours_ends_with_70_and_can_be_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what was\nlooked up")

    monkeypatch.setattr("opensafeintent.workflows.datasets.dataset_info", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ran = osi("dataset", "info", "starter")
    assert ran.code == 70
    (line,) = ran.errors
    (kept,) = tmp_path.iterdir()
    assert (
        f"a bug of opensafeintent {opensafeintent.__version__}, not of yours; please report:"
        " KeyError: " in line
    )
    assert re.search(r"\(opensafeintent\.cli\.datasets, line \d+\)", line)
    assert str(kept) in line
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().startswith("Traceback")
    ran = osi("dataset", "info", "starter", OPENSAFEINTENT_TRACEBACK="1")
    assert (ran.code, ran.errors[0]) == (70, "Traceback (most recent call last):")
    assert [*tmp_path.iterdir()] == [kept]


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            OSError(28, "No space left on device", "/a/file"),
            2,
            "error: /a/file: No space left on device",
        ),
        (EOFError("the end"), 70, "EOFError: the end"),  # click takes it for an interruption
        (
            BrokenPipeError(32, "Broken pipe"),
            2,
            "error: Broken pipe",
        ),  # and this for `| head`, with code 1
        (SystemExit("text"), 70, "SystemExit: text"),
        (KeyboardInterrupt(), 130, "interrupted; everything that was answered is kept"),
        (RecursionError("deep"), 70, "RecursionError: deep"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_nothing_else_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr("opensafeintent.workflows.datasets.dataset_info", failing)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ran = osi("dataset", "info", "starter")
    assert ran.code == code
    (said,) = ran.errors
    assert line in said


def test_exit_codes_are_the_same_in_the_help_and_in_the_docs() -> None:
    said = " ".join(osi("--help").out.split())
    table = (REPO / "docs" / "commands.md").read_text()
    for number, meaning in EXIT_CODES.items():
        assert f"{number} {meaning}" in said
        assert f"| {number} | {meaning} |" in table
