"""Each command as a user meets it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

import opensafeintent
from endtoend import (
    JUDGE,
    KEY,
    STARTER,
    TARGET,
    entry,
    environment,
    evaluate,
    fails,
    grades,
    osi,
    says,
    some_sets,
    total,
    values,
)
from loopback import GENERATE, HARM, LoopbackServer
from opensafeintent import EvaluateSettings, OpenSafeIntentError, RunOutcome

pty = pytest.importorskip("pty")

STEERING = "\x1b]0;"
HOSTILE = f"{STEERING}owned\x07"
"""Sets a terminal's title."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the screen of one demonstration."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    began = time.process_time()
    ran = osi("demo", "--out", folder)
    assert ran.code == 0
    assert time.process_time() - began < 15
    return folder, ran.out


# demo
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_shows_why_each_number_is_needed(demo: tuple[Path, str]) -> None:
    folder, screen = demo
    lines = screen.splitlines()[:8]  # a warning may begin with a name too
    shown = [line.split()[0] for line in lines if line.startswith("baseline/")]
    # by utility, the most first
    assert (shown[0], shown[-1]) == ("baseline/redirect", "baseline/refuse-all")
    assert entry(folder, "triplet_safety", "baseline/refuse-all")["value"] == 1
    assert values(grades(folder), "judge") == {"baseline/judge"}


# What a terminal is given
# ------------------------------------------------------------------------------


def on_terminal(*arguments: object, server: LoopbackServer | None = None) -> tuple[int, str]:
    """Run a command whose output and errors go to one terminal; return its exit code and all that
    the terminal got.
    """
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "opensafeintent", *map(str, arguments)]
    variables = environment(server, TERM="xterm-256color")
    process = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    screen = b""
    try:
        while piece := os.read(ours, 65536):
            screen += piece
    except OSError:  # how Linux says that the other end has gone
        pass
    os.close(ours)
    return process.wait(timeout=60), screen.decode()


def evaluate_on_terminal(server: LoopbackServer, folder: Path) -> tuple[int, str]:
    options = ("--dataset", some_sets(folder, 2, paraphrases=1), "--out", folder / "run")
    return on_terminal("evaluate", TARGET, "--judge", JUDGE, *options, server=server)


@pytest.mark.slow
def test_live_display_counts_calls(server: LoopbackServer, tmp_path: Path) -> None:
    code, screen = evaluate_on_terminal(server, tmp_path)
    made_calls = total(server)
    assert code == 0 and f"{made_calls} of {made_calls} calls" in screen


@pytest.mark.slow
def test_what_a_server_says_cannot_steer_the_terminal(
    server: LoopbackServer, tmp_path: Path
) -> None:
    server.set_faults(
        says(HOSTILE, GENERATE, finish_reason=HOSTILE, first=3),
        fails(404, GENERATE, message=f"None{HOSTILE}\nsuch."),
    )
    code, screen = evaluate_on_terminal(server, tmp_path)
    assert code == 3
    assert "such." in screen and STEERING not in screen


def test_a_dataset_cannot_steer_the_terminal(tmp_path: Path) -> None:
    record = json.loads(STARTER.read_text().splitlines()[0])
    record |= {"id": f"x{HOSTILE}", "language": HOSTILE, "dual_use_paraphrases": []}
    path = tmp_path / f"name{HOSTILE}.jsonl"
    path.write_text(json.dumps(record) + "\n")
    code, screen = on_terminal("dataset", "check", path)
    assert code == 0
    assert STEERING not in screen


def test_formulas_do_not_reach_a_spreadsheet(server: LoopbackServer, tmp_path: Path) -> None:
    formula, dataset = '=HYPERLINK("http://x","y")', some_sets(tmp_path, 2, paraphrases=0)
    server.set_faults(says(formula, GENERATE, finish_reason=formula))
    assert evaluate(server, dataset, tmp_path / "run").code == 0
    assert values(grades(tmp_path / "run"), "stop_reason") == {"'" + formula}


# report
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluate_writes_the_page_where_it_is_asked_to(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset, run = some_sets(tmp_path, 2, paraphrases=1), tmp_path / "run"
    files = [run / name for name in ("report.html", "metrics.json", "grades.csv.gz")]
    ran = evaluate(server, dataset, run, "--report")
    assert ran.code == 0
    assert f"Results in {run}: report.html, figures/" in ran.out
    written = [path.read_bytes() for path in files]
    for again in (osi("report", run), evaluate(server, dataset, run, "--report")):
        assert again.code == 0 and "removed" not in again.out
        assert [path.read_bytes() for path in files] == written
    assert "removed" not in evaluate(server, dataset, run).out
    assert files[0].read_bytes() == written[0]
    assert "removed" in evaluate(server, dataset, run, "--epochs", 2).out
    assert not files[0].exists()


def test_a_page_with_the_evaluation_ends_as_the_evaluation_does(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    server.set_faults(says("none", HARM))
    ran = evaluate(server, dataset, tmp_path / "missing", "--report")
    assert (ran.code, (tmp_path / "missing" / "report.html").is_file()) == (1, True)
    assert " ".join(ran.out.split()).count("of --max-missing") == 2  # core and paraphrases


# models, dataset
# ------------------------------------------------------------------------------


def test_models_lists_variables_and_what_is_set() -> None:
    ran = osi("models", OPENAI_API_KEY=KEY)
    assert ran.code == 0
    ready, lacking = (
        {line.split()[0]: line for line in part.splitlines() if "/" in line.split(" ")[0]}
        for part in ran.out.split("Ready once")
    )
    assert {"openai/MODEL", "baseline/judge", "vllm/MODEL"} <= ready.keys()
    assert "GROQ_API_KEY" in lacking["groq/MODEL"]
    assert "P_BASE_URL P_API_KEY" in ran.text
    assert "VLLM_BASE_URL" in ran.out
    assert KEY not in ran.out


@pytest.mark.parametrize("columns", [80, 60])
def test_a_list_fits_the_columns_of_the_environment(columns: int) -> None:
    *lines, following = osi("models", COLUMNS=str(columns)).out.splitlines()
    assert following.startswith("Next: ") and max(map(len, lines)) <= columns


# The program
# ------------------------------------------------------------------------------


# The Python API
# ------------------------------------------------------------------------------


def test_the_python_api_works_within_a_running_loop_and_raises_what_is_printed(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset, run = str(some_sets(tmp_path, 2, paraphrases=1)), tmp_path / "run"

    async def notebook(model: str) -> RunOutcome:
        return opensafeintent.evaluate(
            EvaluateSettings(models=(model,), judges=(JUDGE,), dataset=dataset, out=run)
        )

    with mock.patch.dict(os.environ, environment(server)):
        outcome = asyncio.run(notebook(TARGET))
        with pytest.raises(OpenSafeIntentError, match="did you mean 'openai'") as raised:
            asyncio.run(notebook("opena/x"))
    assert raised.value.exit_code == 2
    assert outcome.exit_code == 0 and outcome.tally is not None
    assert outcome.tally.calls == total(server) > 0
    assert (run / "metrics.json").is_file()
