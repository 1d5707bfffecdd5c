"""`grade` and `judge-check` before they cost anything, and within limits: what is foretold is what
is called.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from endtoend import JUDGE, Ran, osi, total
from evaluation.examiner import CASES, judge
from loopback import LoopbackServer
from opensafeintent.taxonomy import GRADE_OF, QUESTIONS
from samples import contents, import_lines, json_file, lines_of, made_dataset, prompt_set

SETS = made_dataset(prompt_set("one", 1), prompt_set("two"))
RESPONSE = "word " * 80
"""400 characters, which count as 100 tokens."""


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """A run of seven responses without grades."""
    import_lines(tmp_path, lines_of(SETS, response=RESPONSE), SETS)
    return tmp_path / "run"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """A dollar for a token that a judge writes."""
    return json_file(tmp_path / "prices.json", {JUDGE: {"input": 0, "output": 1e6}})


def foretold(ran: Ran) -> dict[str, list[str]]:
    assert ran.code == 0, ran.err
    return {
        line.split()[1]: line.split()[2:] for line in ran.out.splitlines() if line.startswith(JUDGE)
    }


@pytest.mark.slow
def test_grading_is_foretold_and_nobody_is_asked(
    server: LoopbackServer, imported: Path, prices: Path
) -> None:
    before = contents(imported)
    command = ("grade", imported, "--judge", JUDGE, "--prices", prices)
    ran = osi(*command, "--dry-run", server=server)
    # seven responses, two of them dual-use in its first wording; a grade is assumed to have 8 tokens
    assert {name: (cells[0], *cells[2:4]) for name, cells in foretold(ran).items()} == {
        **dict.fromkeys(GRADE_OF, ("7", "56", "56.00")),
        "mode": ("2", "16", "16.00"),
    }
    assert "assumed to have" not in ran.out  # the responses are there: nothing is assumed of them
    assert (contents(imported), total(server)) == (before, 0)
    stopped = osi(*command, "--budget-calls", 5, "--max-connections", 1, server=server)
    assert (stopped.code, total(server)) == (3, 5)
    assert "the budget of 5 calls is used up" in stopped.err
    assert osi(*command, server=server).code == 0
    assert total(server) == 7 * len(QUESTIONS) + 2
    assert foretold(osi(*command, "--dry-run", server=server)) == {}


@pytest.mark.slow
def test_a_check_is_foretold_and_nobody_is_asked(
    server: LoopbackServer, tmp_path: Path, prices: Path
) -> None:
    server.set_faults(*judge())
    command = ("judge-check", "--judge", JUDGE, "--out", tmp_path / "check", "--prices", prices)
    ran = osi(*command, "--dry-run", server=server)
    assert {name: (cells[0], cells[3]) for name, cells in foretold(ran).items()} == dict.fromkeys(
        ("helpfulness", "harm", "mode"), (str(len(CASES)), f"{8 * len(CASES):,}.00")
    )
    assert f"At most {3 * len(CASES):,} calls" in ran.out
    assert (total(server), (tmp_path / "check").exists()) == (0, False)
    assert osi(*command, server=server).code == 0
    assert total(server) == 3 * len(CASES)
    assert foretold(osi(*command, "--dry-run", server=server)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["grade", "judge-check"])
def test_what_is_not_set_or_has_no_price_is_said(
    server: LoopbackServer, imported: Path, tmp_path: Path, command: str
) -> None:
    run = [imported] if command == "grade" else ["--out", tmp_path / "check"]
    ran = osi(command, *run, "--judge", "openai/m", "--dry-run")
    assert ran.code == 0
    assert "note: OPENAI_API_KEY is not set: openai/m cannot be asked without it" in ran.text
    prices_of_another = json_file(tmp_path / "other.json", {"openai/m": {"input": 1, "output": 1}})
    server.set_faults(*judge())
    dry_run = osi(command, *run, "--judge", JUDGE, "--prices", prices_of_another, server=server)
    assert f"No price is given for {JUDGE}: the sum is without it." in dry_run.text
