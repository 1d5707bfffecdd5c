"""Ledgers with bytes flipped, cut off, of wrong types in their columns, and with references to what
is not there.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fuzz.contract import FUZZ, SLOW, attempt, write
from fuzz.faults import LITERALS, TEXTS, damaged
from fuzz.runs import built, evaluated, read_run
from opensafeintent import BuildSettings, build
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.merging import merge_ledgers

CELLS = (
    *(
        None,
        -1,
        0,
        2**62,
        1.5,
        float("inf"),
        "",
        "x",
        b"",
        b"z",
        b"zzzz",
        b"r\xff\xfe",
        b"r{}",
        b"\0" * 32,
        b"x" * 32,
    ),
    *(text for text in TEXTS if len(text) < 100),
    *(literal for literal in LITERALS if len(literal) < 10_000 and "\\ud" not in literal),
    '{"messages": [["user", [999999]]], "sampling": {}}',
    '{"messages": [["user", [null, {}]]], "sampling": 7}',
    '{"stop_reason": 7, "missing": 3, "by_judge": [1]}',
    b'r{"choices": [{"message": {"content": ""}}]}',
)


def forget_log(path: Path) -> None:
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def kept(ledger: Path) -> Path:
    """The ledger as it was made."""
    good = ledger.with_suffix(".good")
    if not good.exists():
        shutil.copyfile(ledger, good)
    return good


def of_calls(place: Path) -> Path:
    """The same without imported responses, which are not merged."""
    path = place / "calls.good"
    if not path.exists():
        shutil.copyfile(kept(evaluated(place) / "ledger.sqlite"), path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM imported")
    return path


@st.composite
def damaged_ledger(draw: st.DrawFn, good: Path, path: Path) -> Path:
    """Draw a ledger with faults in its bytes, or in its rows."""
    forget_log(path)
    if draw(st.integers(0, 2)) == 0:
        return write(path, draw(damaged(good.read_bytes())))
    shutil.copyfile(good, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        for _ in range(draw(st.integers(1, 2))):
            _damage(draw, connection)
    return path


def _damage(draw: st.DrawFn, connection: sqlite3.Connection) -> None:
    table = draw(st.sampled_from(("calls", "calls", "texts", "sources", "imported")))
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if not names:  # the first fault was to drop it
        return
    column = draw(st.sampled_from(names[1:]))
    rows = [row for (row,) in connection.execute(f"SELECT id FROM {table} ORDER BY id")]
    some = rows if draw(st.booleans()) else rows[draw(st.integers(0, len(rows))) :][:1]
    fault = draw(
        st.sampled_from(("cell", "cell", "cell", "delete", "drop", "rename", "version", "index"))
    )
    try:
        match fault:
            case "cell":
                value = draw(st.sampled_from(CELLS))
                connection.executemany(
                    f"UPDATE OR IGNORE {table} SET {column} = ? WHERE id = ?",
                    [(value, row) for row in some],
                )
            case "delete":
                connection.executemany(
                    f"DELETE FROM {table} WHERE id = ?", [(row,) for row in some]
                )
            case "drop":
                connection.execute(f"DROP TABLE {table}")
            case "rename":
                connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO another")
            case "version":
                connection.execute(f"PRAGMA user_version = {draw(st.sampled_from((-1, 0, 99)))}")
            case _:
                connection.execute("DROP INDEX satisfied")
    except sqlite3.Error:  # the table or the column has gone already, or a cell may not hold this
        return


@SLOW
@given(draw=st.data())
def test_ledger_of_a_run(place: Path, draw: st.DataObject) -> None:
    run = evaluated(place)
    path = run / "ledger.sqlite"
    kept(path)
    try:
        draw.draw(damaged_ledger(kept(path), path))
        attempt("ledger of a run (SQLite)", read_run, run, named="ledger.sqlite")
    finally:
        forget_log(path)
        shutil.copyfile(kept(path), path)


@FUZZ
@given(draw=st.data())
def test_rows_of_a_ledger(place: Path, tmp_path: Path, draw: st.DataObject) -> None:
    """All that a ledger is asked for, over every row of it."""
    path = draw.draw(
        damaged_ledger(kept(evaluated(place) / "ledger.sqlite"), tmp_path / "rows.sqlite")
    )

    def read(path: Path) -> None:
        with Ledger(path, readonly=True) as ledger:
            ledger.count()
            ledger.answering_models()
            list(ledger.imports.rows())
            with closing(sqlite3.connect(evaluated(place) / "ledger.good")) as good:
                keys = [key for (key,) in good.execute("SELECT key FROM calls")]
            list(ledger.attempts(keys))
            list(ledger.attempts())
            for key in keys:
                ledger.find(key)
                ledger.last_failure(key)
                for row, *_ in ledger.rows_of(key):
                    ledger.request(row)

    attempt("rows of a ledger (SQLite)", read, path)


@FUZZ
@given(draw=st.data())
def test_ledger_that_is_merged(place: Path, tmp_path: Path, draw: st.DataObject) -> None:
    source = draw.draw(damaged_ledger(of_calls(place), tmp_path / "source.sqlite"))
    target = tmp_path / "target.sqlite"
    attempt("ledgers that are merged (SQLite)", lambda path: merge_ledgers([path], target), source)
    forget_log(target)
    target.unlink(missing_ok=True)


@FUZZ
@given(draw=st.data())
def test_ledger_that_is_merged_into(place: Path, tmp_path: Path, draw: st.DataObject) -> None:
    good = of_calls(place)
    target = draw.draw(damaged_ledger(good, tmp_path / "target.sqlite"))
    attempt(
        "ledgers that are merged (SQLite)", lambda path: merge_ledgers([path, good], path), target
    )


@SLOW
@given(draw=st.data())
def test_ledger_of_a_build(place: Path, draw: st.DataObject) -> None:
    """A build that goes on reads the outcome of every call."""
    out = built(place)
    path = out / "ledger.sqlite"
    kept(path)
    settings = BuildSettings(
        seeds=str(place / "seeds.jsonl"),
        out=out,
        generator="baseline/generator",
        judge="baseline/construction-judge",
        dry_run=True,
    )
    try:
        draw.draw(damaged_ledger(kept(path), path))
        attempt("ledger of a build (SQLite)", lambda _: build(settings), path)
    finally:
        forget_log(path)
        shutil.copyfile(kept(path), path)


def test_what_is_damaged_is_good_before(place: Path, tmp_path: Path) -> None:
    assert attempt("none", read_run, evaluated(place))
    good = of_calls(place)
    assert merge_ledgers([good], tmp_path / "target.sqlite")[good].added > 20
