"""Every statement of ours finds rows of `calls` by an index: a ledger of many calls is not read
through for one of them.

Statements are taken down as they are executed, on the connection that executes them; and each that
the source holds has to be among them, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import source
from calls.support import answered, failed, written
from endtoend import osi, some_sets
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.ledger_merge import merge, shard_read
from opensafeintent.calls.ledger_rows import DamagedLedger
from opensafeintent.calls.records import Answered
from opensafeintent.errors import InputError

READ_ONCE = (
    "SELECT DISTINCT model FROM calls",  # who has ever answered: as a run is taken up again
    "SELECT DISTINCT key FROM calls",  # whose attempts held reasoning alone: failed ones only
    "FROM calls WHERE model = ? AND purpose",  # how a model thinks, if a limit cut a reply of its
    "SELECT count(*) FROM calls",  # how many rows there are
    "SELECT created FROM calls UNION",  # when the newest row was written: it dates an export
    "SELECT 1 FROM calls LIMIT 1",  # from here on the state of the file is read: one row is read
    "FROM calls ORDER BY id",  # every row of a ledger that is merged into another, or of a damaged one
    "SELECT model, purpose, seconds FROM calls",  # how long calls take: for a forecast, every reply
    "FROM calls WHERE true",  # what everything in a ledger came to: every row counts
)
"""Statements that read a whole table because they are meant to, and why."""


class _Explained(sqlite3.Connection):
    plans: ClassVar[dict[str, list[str]]] = {}

    def _explain(self, statement: str, values: Any = ()) -> None:
        verb = statement.split(maxsplit=1)[0].upper() if statement.strip() else ""
        if verb in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH") and statement not in self.plans:
            rows = super().execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            self.plans[statement] = [detail for *_, detail in rows]

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self._explain(statement, *values)
        return super().execute(statement, *values)

    def executemany(self, statement: str, values: Any) -> sqlite3.Cursor:
        rows = list(values)
        if rows:
            self._explain(statement, rows[0])
        return super().executemany(statement, rows)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[str]]]:
    """Return how SQLite goes about each statement that is executed from now on."""
    connect = sqlite3.connect
    monkeypatch.setattr(_Explained, "plans", {})
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: connect(*args, factory=_Explained, **options)
    )
    yield _Explained.plans


def _ledgers(folder: Path) -> None:
    """Look up and count, with outcomes and failures."""
    entries = [make(f"q{number}") for number in range(9) for make in (failed, answered)]
    keys = [entry.key for entry in entries if entry.outcome]
    written(folder / "one.sqlite", *entries)
    for _ in range(2):
        with Ledger(folder / "two.sqlite") as ledger:
            assert merge(ledger, folder / "one.sqlite").rows == 18
    with Ledger(folder / "two.sqlite", readonly=True) as ledger:
        assert ledger.count() == 18 and ledger.latest()
        assert list(ledger.attempts(keys))
        assert len(list(ledger.seconds())) <= ledger.count()
        assert sum(attempts.number for attempts in ledger.attempts()) == ledger.count()
        assert len(list(ledger.list_attempts(keys[-1]))) == 2
        assert len(ledger.find_all(keys)) == 9
        assert ledger.request(1)[0] == entries[0].call.messages
        assert ledger.last_failure(b"none") is None
        assert not ledger.has_replied_since(b"none", "m")
        cut = Answered(text="A plan", stop_reason="length")
        assert ledger.settle("m", "generate", cut) == cut
    written(folder / "shard" / LEDGER, *entries)
    with pytest.raises(InputError, match="m 18"), shard_read(folder / "shard"):
        raise DamagedLedger("a part cannot be read")


def _run(folder: Path) -> None:
    """Evaluate, resume, report, compare, trace, import and grade."""
    sets, run = some_sets(folder, 3), folder / "run"
    models = ("baseline/comply-all", "baseline/refuse-all")
    options = ("--judge", "baseline/judge", "--dataset", sets, "--out", run)
    for extra_options in ((), ("--epochs", 2, "--audit", "retest=4"), ("--dry-run",)):
        assert osi("evaluate", *models, *options, *extra_options).code in (0, 1)
    assert osi("report", run, "--include-unsafe").code == 0
    assert osi("compare", run).code == 0
    assert osi("evaluate", *models, *options[:4], "--out", folder / "newer").code in (0, 1)
    assert osi("compare", run, folder / "newer").code == 0
    ids = (folder / "run" / "prompt_sets.jsonl").read_text().split('"id":"')[1].split('"')[0]
    assert osi("trace", run, "--set", ids).code == 0
    responses = folder / "model.jsonl"
    responses.write_text(f'{{"id": "{ids}", "variant": "benign", "response": "A response."}}\n')
    assert osi("import", responses, "--dataset", sets, "--out", folder / "imported").code in (0, 1)
    assert osi("grade", folder / "imported", "--judge", "baseline/judge").code in (0, 1)
    assert osi("report", folder / "imported").code in (0, 1)
    assert osi("trace", folder / "imported", "--set", ids).code == 0


@pytest.mark.slow
def test_no_statement_reads_all_calls_to_find_some(
    tmp_path: Path, plans: dict[str, list[str]]
) -> None:
    _ledgers(tmp_path)
    _run(tmp_path)
    for statement, plan in plans.items():
        if any(expected in statement for expected in READ_ONCE):
            continue
        scans = [step for step in plan if step.startswith("SCAN") and "CONSTANT ROW" not in step]
        assert not (scans and "calls" in statement), (statement, plan)
        assert not any("AUTOMATIC" in step for step in plan), (statement, plan)
    for expected in (*READ_ONCE, *_written()):  # nothing says it any more, or it was forgotten here
        assert any(expected in statement for statement in plans), expected


def _written() -> list[str]:
    """Return the texts in the source that read or change `calls`, as far as they are literal."""
    constants = [node.value for _, node in source.nodes() if isinstance(node, ast.Constant)]
    verbs = re.compile("(FROM|JOIN|INTO) calls")
    texts = [text for text in constants if isinstance(text, str) and verbs.search(text)]
    assert len(texts) > 10
    return texts
