"""A run of revision 0a33c27, whose ledger is of version 1 and holds failures as answers and
refusals (`write_version_1`).

They read as failed attempts everywhere, and are asked again; the rest of the ledger counts as it
did.
"""

from __future__ import annotations

import sqlite3
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from calls.reply_cases import CASES, replying
from calls.support import rows
from calls.test_ledger import answered, folder, ordinary_user  # noqa: F401
from calls.write_version_1 import COUNT_NO_MORE, HELD, STILL_COUNT
from endtoend import TARGET, evaluate, grades, osi
from opensafeintent.calls import client as client_module
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import pack
from opensafeintent.calls.records import Answered, Refused
from opensafeintent.errors import InputError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run as that revision left it."""
    with tarfile.open(HELD) as archive:
        archive.extractall(tmp_path / "run", filter="data")
    return tmp_path / "run"


@pytest.fixture
def ledger(run: Path) -> Path:
    return run / "ledger.sqlite"


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def keys(path: Path) -> dict[str, bytes]:
    """Return the keys of the target's calls for dual-use wordings, by prompt-set."""
    found = {}
    with closing(sqlite3.connect(path)) as connection:
        for key, request in connection.execute(
            "SELECT key, request FROM calls WHERE purpose = 'generate' ORDER BY id"
        ):
            name, _, wording = (
                request.partition('"messages":[["user",["')[2].partition('"]')[0].rpartition(", ")
            )
            if wording == "in between":
                found[name] = key
    return found


def test_the_ledger_is_what_it_is_said_to_be(ledger: Path) -> None:
    assert version(ledger) == 1
    assert Counter(status for (status,) in rows(ledger, "status"))["failed"] == 0
    assert keys(ledger).keys() == {*STILL_COUNT, *COUNT_NO_MORE}


def check(ledger: Ledger, of: dict[str, bytes]) -> None:
    """See that a ledger holds what still counts, and the rest as failures with their reasons."""
    for name in STILL_COUNT:
        outcome = ledger.find(of[name])
        assert isinstance(
            outcome, Refused if CASES[name].outcome == "refused" and name != "empty" else Answered
        ), name
        assert ledger.last_failure(of[name]) is None
    for name, kind in COUNT_NO_MORE.items():
        assert ledger.find(of[name]) is None, name
        assert (ledger.last_failure(of[name]) or "").startswith(f"{kind}: "), name
        assert [status for _, status, *_ in ledger.rows_of(of[name])] == ["failed"]
    assert ledger.count("failed") == len(COUNT_NO_MORE)
    attempts = list(ledger.attempts(of.values()))
    assert {(one.purpose, one.model) for one in attempts} == {("generate", TARGET)}
    assert [one.status for one in attempts].count("failed") == len(COUNT_NO_MORE)
    assert len(attempts) == len(COUNT_NO_MORE) + len(STILL_COUNT)
    assert ledger.answering_models() == {TARGET, "baseline/judge"}


def test_to_a_reader_they_are_failed_and_nothing_is_written(ledger: Path) -> None:
    of, before = keys(ledger), ledger.read_bytes()
    with Ledger(ledger, readonly=True) as opened:
        check(opened, of)
    assert ledger.read_bytes() == before
    assert [path.name for path in ledger.parent.glob("ledger*")] == ["ledger.sqlite"]


def test_a_writer_makes_failures_of_them_once_and_changes_nothing_else(ledger: Path) -> None:
    of, every = (
        keys(ledger),
        "id, key, request, stop_reason, served_model, seconds, response, created",
    )
    before = rows(ledger, every)
    for _ in range(2):
        with Ledger(ledger) as opened:
            check(opened, of)
        assert version(ledger) == 2
    assert rows(ledger, every) == before


def test_they_can_be_answered_again(ledger: Path) -> None:
    of = keys(ledger)["null"]
    entry = answered("null, in between")
    with Ledger(ledger) as opened:
        opened.add(type(entry)(of, entry.call, entry.attempt))
    with Ledger(ledger, readonly=True) as opened:
        assert opened.find(of) == entry.outcome
        assert [status for _, status, *_ in opened.rows_of(of)] == ["answered", "failed"]


def test_a_damaged_body_leaves_the_ledger_as_it_was(ledger: Path) -> None:
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute("UPDATE calls SET response = ? WHERE id = 1", (pack(b"{"),))
    before = rows(ledger)
    for readonly in (False, True):
        with pytest.raises(InputError, match="the ledger is damaged"):
            Ledger(ledger, readonly=readonly)
    assert (version(ledger), rows(ledger)) == (1, before)


def test_every_look_up_of_a_reader_is_by_an_index(ledger: Path) -> None:
    statements: list[str] = []
    with Ledger(ledger, readonly=True) as opened:
        connection = opened._reader
        connection.set_trace_callback(statements.append)
        opened.find(b"x")
        opened.last_failure(b"x")
        list(opened.rows_of(b"x"))
        connection.set_trace_callback(None)
        assert len(statements) == 3
        for statement in statements:
            plan = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            # the rows that were found are gone through one by one; no table is
            assert {step for step in plan if step.startswith("SCAN")} == {"SCAN calls"}, plan
            assert "CO-ROUTINE calls" in plan


# The command line
# ------------------------------------------------------------------------------


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.001)
    yield


def reasons(run: Path) -> dict[str, str]:
    return {row["id"]: row["missing"] for row in grades(run) if row["variant"] == "dual_use"}


EXPECTED = dict.fromkeys(STILL_COUNT, "") | {
    name: f"response:{kind}" for name, kind in COUNT_NO_MORE.items()
}


def test_report_shows_them_as_missing(run: Path, ledger: Path) -> None:
    before = ledger.read_bytes()
    ran = osi("report", run)
    assert ran.code == 1, ran.err
    assert reasons(run) == EXPECTED
    assert ledger.read_bytes() == before


def test_trace_shows_them_as_failed_in_a_folder_that_cannot_be_written(
    folder: Path,  # noqa: F811
) -> None:
    with tarfile.open(HELD) as archive:
        archive.extractall(folder / "run", filter="data")
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with ordinary_user():
        ran = osi("trace", folder / "run", "--set", "null")
    folder.chmod(0o755)
    (folder / "run").chmod(0o755)
    assert ran.code == 0, ran.err
    assert "failed" in ran.out


@pytest.mark.usefixtures("quickly")
def test_evaluate_asks_for_them_again_and_for_nothing_else(
    run: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "calls.reply_cases.CASES", {"text": CASES["text"]}
    )  # by now the server is well
    options = (run / "prompt_sets.jsonl", run, "--probe", "none")
    with replying() as server:
        dry = evaluate(server, *options, "--dry-run", judges=["baseline/judge"])
        assert dry.code == 0, dry.err
        assert (version(ledger), server.asked) == (1, Counter())
        ran = evaluate(server, *options, judges=["baseline/judge"])
        assert ran.code == 0, ran.err
        assert server.asked == Counter(COUNT_NO_MORE.keys())
    assert version(ledger) == 2
    assert set(reasons(run).values()) == {""}
