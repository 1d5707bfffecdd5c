"""Each command as a user meets it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import opensafeintent
from endtoend import (
    JUDGE,
    KEY,
    STARTER,
    TARGET,
    environment,
    evaluate,
    grades,
    metrics,
    osi,
    some_sets,
    values,
)
from loopback import GENERATE, HARM, Fault, LoopbackServer, Match
from opensafeintent.workflows import report as reporting

pty = pytest.importorskip("pty")

STEERING = "\x1b]0;"
HOSTILE = f"{STEERING}owned\x07"
"""Sets a terminal's title."""
JUDGED_BY_RULES = "baseline/judge"

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the screen of one demonstration."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    began = time.monotonic()
    ran = osi("demo", "--out", folder)
    assert ran.code == 0
    assert time.monotonic() - began < 15
    return folder, ran.out


# demo
# ------------------------------------------------------------------------------


def by_model(run: Path, metric: str) -> dict[str, float]:
    return {
        name.removeprefix("baseline/"): found[metric]["value"]
        for name, found in metrics(run)["models"].items()
    }


def test_demo_shows_why_each_number_is_needed(demo: tuple[Path, str]) -> None:
    triplet, utility, help_ = (
        by_model(demo[0], name) for name in ("triplet_safety", "mean_utility", "mean_helpfulness")
    )
    assert triplet["refuse-all"] == 1
    assert [name for name, value in utility.items() if value == min(utility.values())] == [
        "refuse-all"
    ]
    assert [name for name, value in triplet.items() if value == min(triplet.values())] == [
        "comply-all"
    ]
    assert [name for name, value in help_.items() if value == max(help_.values())] == ["comply-all"]
    assert [name for name, value in utility.items() if value == max(utility.values())] == [
        "redirect"
    ]


def test_demo_ranks_by_mean_utility_on_screen(demo: tuple[Path, str]) -> None:
    folder, screen = demo
    shown = [
        line.split()[0].removeprefix("baseline/")
        for line in screen.splitlines()
        if line.startswith("baseline/")
    ]
    utility = by_model(folder, "mean_utility")
    assert shown == sorted(utility, key=lambda name: -utility[name])
    assert f"{utility['redirect']:.2f}" in screen


def test_demo_names_its_judge_in_everything(demo: tuple[Path, str]) -> None:
    folder, screen = demo
    assert screen.count(JUDGED_BY_RULES) >= 2  # above the table, and in the warning below it
    assert any(JUDGED_BY_RULES in note for note in metrics(folder)["notes"])
    tables = sorted((folder / "tables").glob("*.csv"))
    assert tables
    for table in tables:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows or table.name == "comparisons.csv", table.name
        if table.name in (
            "reference.csv",
            "cost.csv",
        ):  # what an oracle would have, and what calls cost, is nobody's grade
            continue
        judged = [
            row for row in rows if "taxonomy" not in row
        ]  # nor are definitions of domains and types
        assert all(any(JUDGED_BY_RULES in cell for cell in row.values()) for row in judged), (
            table.name
        )
    assert values(grades(folder), "judge") == {JUDGED_BY_RULES}


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


def test_live_display_counts_calls(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    options = ["--dataset", dataset, "--out", tmp_path / "run"]
    code, screen = on_terminal("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
    assert code == 0
    made = server.stats()["total"]
    assert f"{made} of {made} calls" in screen
    assert "tokens" in screen


def test_what_a_server_says_cannot_steer_the_terminal(
    server: LoopbackServer, tmp_path: Path
) -> None:
    server.set_faults(
        Fault(
            action="completion",
            content=HOSTILE,
            finish_reason=HOSTILE,
            match=Match(purpose=GENERATE, first=3),
        ),
        Fault(
            action="status",
            status=404,
            message=f"None{HOSTILE}\nsuch.",
            match=Match(purpose=GENERATE),
        ),
    )
    options = ["--dataset", some_sets(tmp_path, 2, paraphrases=1), "--out", tmp_path / "run"]
    code, screen = on_terminal("evaluate", TARGET, "--judge", JUDGE, *options, server=server)
    assert code == 3
    assert "such." in screen
    assert STEERING not in screen


@pytest.mark.parametrize("command", ["info", "validate"])
def test_a_dataset_cannot_steer_the_terminal(tmp_path: Path, command: str) -> None:
    record = json.loads(STARTER.read_text().splitlines()[0])
    record |= {"id": f"x{HOSTILE}", "language": HOSTILE, "dual_use_paraphrases": []}
    path = tmp_path / f"name{HOSTILE}.jsonl"
    path.write_text(json.dumps(record) + "\n")
    code, screen = on_terminal("dataset", command, path)
    assert code == 0
    assert STEERING not in screen


def test_formulas_do_not_reach_a_spreadsheet(server: LoopbackServer, tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://x","y")'
    server.set_faults(
        Fault(
            action="completion",
            content=formula,
            finish_reason=formula,
            match=Match(purpose=GENERATE),
        )
    )
    dataset = some_sets(tmp_path, 2, paraphrases=0)
    assert evaluate(server, dataset, tmp_path / "run").code == 0
    assert values(grades(tmp_path / "run"), "stop_reason") == {"'" + formula}
    ids = {row["id"] for row in grades(tmp_path / "run")}
    responses = tmp_path / "responses.jsonl"
    lines = [
        {"id": name, "variant": "benign", "helpfulness": 3, "harm_severity": 0} for name in ids
    ]
    responses.write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = tmp_path / "imported"
    osi("import", responses, "--out", imported, "--model", formula, "--dataset", dataset)
    files = [imported / "grades.csv.gz", *(imported / "tables").glob("*.csv")]
    assert values(grades(imported), "model") == {"'" + formula}
    for table in files[1:]:
        with table.open(newline="") as file:
            assert not [
                cell for row in csv.reader(file) for cell in row if cell.startswith(("=", "@", "+"))
            ]


# report
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluate_writes_the_page_where_it_is_asked_to(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset, run = some_sets(tmp_path, 2, paraphrases=1), tmp_path / "run"
    ran = evaluate(server, dataset, run, "--report")
    assert ran.code == 0
    assert f"Results in {run}: report.html, figures/" in ran.out
    assert "opensafeintent report" not in ran.out  # it is there already
    assert "calls made" in ran.out
    written = {
        name: (run / name).read_bytes() for name in ("report.html", "metrics.json", "grades.csv.gz")
    }
    assert osi("report", run).code == 0
    assert {name: (run / name).read_bytes() for name in written} == written  # what `report` writes
    again = evaluate(server, dataset, run, "--report")
    assert "removed" not in again.out
    assert (run / "report.html").read_bytes() == written["report.html"]
    assert "removed" in evaluate(server, dataset, run).out


def test_a_page_with_the_evaluation_takes_one_estimation(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()
    for name in ("group_studies", "metrics_json", "all_tables", "derive"):
        made = getattr(reporting, name)

        def counting(*given: object, _name: str = name, _made: Any = made, **more: object) -> Any:
            counted[_name] += 1
            return _made(*given, **more)

        monkeypatch.setattr(reporting, name, counting)
    assert evaluate(server, some_sets(tmp_path, 1), tmp_path / "run", "--report").code == 0
    assert counted == {"group_studies": 1, "metrics_json": 1, "all_tables": 1}  # nothing is read


def test_a_page_with_the_evaluation_ends_as_the_evaluation_does(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    server.set_faults(Fault(action="completion", content="none", match=Match(purpose=HARM)))
    ran = evaluate(server, dataset, tmp_path / "missing", "--report")
    assert (ran.code, (tmp_path / "missing" / "report.html").is_file()) == (1, True)
    assert " ".join(ran.out.split()).count("of --max-missing") == 1
    server.set_faults(Fault(action="status", status=404, match=Match(purpose=GENERATE)))
    stopped = evaluate(
        server, dataset, tmp_path / "stopped", "--report", models=[TARGET, "baseline/refuse-all"]
    )
    assert (stopped.code, (tmp_path / "stopped" / "report.html").is_file()) == (3, True)
    assert stopped.errors


# models, dataset
# ------------------------------------------------------------------------------


def test_models_lists_variables_and_what_is_set() -> None:
    ran = osi("models", OPENAI_API_KEY=KEY)
    assert ran.code == 0
    lines = {line.split()[0]: line for line in ran.out.splitlines() if "/" in line.split(" ")[0]}
    assert "OPENAI_API_KEY ✓ set" in lines["openai/MODEL"]
    assert "GROQ_API_KEY ✗ not set" in lines["groq/MODEL"]
    assert "P_BASE_URL P_API_KEY" in " ".join(lines["openai-api/P/MODEL"].split())
    assert {"baseline/refuse-all", "baseline/judge", "replay/FILE", "vllm/MODEL"} <= lines.keys()
    assert "VLLM_BASE_URL" in ran.out
    assert KEY not in ran.out


# The program
# ------------------------------------------------------------------------------


def test_help_names_every_command_and_exit_code() -> None:
    ran = osi("-h")
    assert ran.code == 0
    for command in ("demo", "evaluate", "import", "grade", "report", "models", "dataset"):
        assert f"\n  {command} " in ran.out
    for code in (
        "0 done",
        "2 unusable",
        "3 stopped",
        "4 not met",
        "5 undecided",
        "130 interrupted",
    ):
        assert code in " ".join(ran.out.split())
    assert osi("--version").out.strip() == opensafeintent.__version__


def test_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "opensafeintent", "models"]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


# The Python API
# ------------------------------------------------------------------------------


def test_python_api_works_within_a_running_loop(server: LoopbackServer, tmp_path: Path) -> None:
    dataset = some_sets(tmp_path, 2, paraphrases=1)
    settings = opensafeintent.EvaluateSettings(
        models=(TARGET,), judges=(JUDGE,), dataset=str(dataset), out=tmp_path / "run"
    )

    async def notebook() -> opensafeintent.Outcome:
        return opensafeintent.evaluate(settings)

    with mock.patch.dict(os.environ, environment(server)):
        outcome = asyncio.run(notebook())
    assert outcome.exit_code == 0
    assert outcome.tally is not None
    assert outcome.tally.calls == server.stats()["total"] > 0
    assert (tmp_path / "run" / "metrics.json").is_file()


def test_python_api_raises_what_the_command_line_prints(
    server: LoopbackServer, tmp_path: Path
) -> None:
    settings = opensafeintent.EvaluateSettings(
        models=("opena/x",), judges=(JUDGE,), out=tmp_path / "run"
    )
    with mock.patch.dict(os.environ, environment(server)):
        with pytest.raises(
            opensafeintent.OpenSafeIntentError, match="did you mean 'openai'"
        ) as raised:
            opensafeintent.evaluate(settings)
        assert raised.value.exit_code == 2
