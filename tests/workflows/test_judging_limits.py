"""`grade` and `judge-check` before they cost anything, and within limits: what is foretold is what
is called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import JUDGE, Ran, osi
from evaluation.examiner import CASES, judge
from loopback import LoopbackServer
from samples import dataset_file, json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

SETS = made_dataset(prompt_set("one", 1), prompt_set("two"))
RESPONSE = "word " * 80
"""400 characters, which count as 100 tokens."""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """A run of seven responses without grades."""
    lines = [
        {"id": item.id, "variant": variant, "response": RESPONSE}
        for item in SETS.prompt_sets
        for variant in item.wordings()
    ]
    responses, run = json_lines(tmp_path / "responses.jsonl", lines), tmp_path / "run"
    ran = osi(
        *f"import {responses} --out {run} --model m --dataset".split(),
        dataset_file(tmp_path, SETS),
        "--max-missing",
        1,
    )
    assert ran.code == 0, ran.err
    return run


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """A dollar for a token that a judge writes."""
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({JUDGE: {"input": 0, "output": 1e6}}))
    return path


def foretold(ran: Ran) -> dict[str, list[str]]:
    assert ran.code == 0, ran.err
    return {
        line.split()[1]: line.split()[2:] for line in ran.out.splitlines() if line.startswith(JUDGE)
    }


def files_of(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_grading_is_foretold_and_nobody_is_asked(
    server: LoopbackServer, imported: Path, prices: Path
) -> None:
    before = files_of(imported)
    command = ("grade", imported, "--judge", JUDGE, "--prices", prices)
    ran = osi(*command, "--dry-run", server=server)
    found = foretold(ran)
    # seven responses, two of them dual-use in its first wording; a grade is taken as 8 tokens
    assert {purpose: (cells[0], cells[2], cells[3]) for purpose, cells in found.items()} == {
        "helpfulness": ("7", "56", "56.00"),
        "harm": ("7", "56", "56.00"),
        "mode": ("2", "16", "16.00"),
    }
    assert "taken as" not in ran.out  # the responses are there: nothing is assumed of them
    assert (files_of(imported), server.stats()["total"]) == (before, 0)
    assert osi(*command, server=server).code == 0
    assert server.stats()["total"] == 16
    assert foretold(osi(*command, "--dry-run", server=server)) == {}


def test_grading_stops_at_its_budget_and_goes_on(server: LoopbackServer, imported: Path) -> None:
    stopped = osi(
        *f"grade {imported} --judge {JUDGE} --budget-calls 5 --max-connections 1".split(),
        server=server,
    )
    assert stopped.code == 3
    assert "the budget of 5 calls is used up" in stopped.err
    assert server.stats()["total"] == 5
    assert osi("grade", imported, "--judge", JUDGE, server=server).code == 0
    assert server.stats()["total"] == 16


def test_a_check_is_foretold_and_nobody_is_asked(
    server: LoopbackServer, tmp_path: Path, prices: Path
) -> None:
    server.set_faults(*judge())
    command = ("judge-check", "--judge", JUDGE, "--out", tmp_path / "check", "--prices", prices)
    ran = osi(*command, "--dry-run", server=server)
    each = str(len(CASES))
    assert {
        purpose: (cells[0], cells[3]) for purpose, cells in foretold(ran).items()
    } == dict.fromkeys(("helpfulness", "harm", "mode"), (each, f"{8 * len(CASES):,}.00"))
    assert f"At most {3 * len(CASES):,} calls" in ran.out
    assert (server.stats()["total"], (tmp_path / "check").exists()) == (0, False)
    assert osi(*command, server=server).code == 0
    assert server.stats()["total"] == 3 * len(CASES)
    assert foretold(osi(*command, "--dry-run", server=server)) == {}


@pytest.mark.parametrize("command", ["grade", "judge-check"])
def test_what_is_not_set_or_has_no_price_is_said(
    server: LoopbackServer, imported: Path, tmp_path: Path, command: str
) -> None:
    run = [imported] if command == "grade" else ["--out", tmp_path / "check"]
    ran = osi(command, *run, "--judge", "openai/m", "--dry-run")
    assert ran.code == 0
    assert "note: OPENAI_API_KEY is not set: openai/m cannot be asked without it" in " ".join(
        ran.out.split()
    )
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"openai/m": {"input": 1, "output": 1}}))
    server.set_faults(*judge())
    told = osi(command, *run, "--judge", JUDGE, "--prices", other, server=server).out
    assert f"No price is given for {JUDGE}: the sum is without it." in " ".join(told.split())
