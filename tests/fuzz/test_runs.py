"""The files of a run and of a build, damaged: manifests, prompt-sets, and ledgers with bytes flipped
or cut off, wrong types in their columns, and references to what is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from hypothesis import given, strategies as st

from fuzz.contract import FUZZ, SLOW, attempt, write
from fuzz.faults import LITERALS, TEXTS, damaged, damaged_json, damaged_lines
from fuzz.runs import MODELS, build_settings, built, evaluated, read_run
from opensafeintent import EvaluateSettings, build, evaluate
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_merge import merge_ledgers
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.evaluation.manifest import RunFolder

CELLS = (
    *(None, -1, 0, 2**62, 1.5, float("inf"), "", "x", b"", b"z", b"zzzz", b"r\xff\xfe", b"r{}"),
    *(b"\0" * 32, b"x" * 32, b'r{"choices": [{"message": {"content": ""}}]}'),
    *(text for text in TEXTS if len(text) < 100),
    *(literal for literal in LITERALS if len(literal) < 10_000 and "\\ud" not in literal),
    '{"messages": [["user", [999999]]], "sampling": {}}',
    '{"messages": [["user", [null, {}]]], "sampling": 7}',
    '{"stop_reason": 7, "missing": 3, "by_judge": [1]}',
)

SCHEMA = (
    "CREATE VIEW another AS WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i FROM n) SELECT * FROM n",
    "CREATE TRIGGER later AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "CREATE TABLE another (x)",
    "CREATE INDEX another ON {table} ({column})",
)


def forget_log(path: Path) -> None:
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def kept(path: Path) -> Path:
    """The file as it was made."""
    good = path.with_suffix(".good")
    if not good.exists():
        shutil.copyfile(path, good)
    return good


@contextmanager
def restored(path: Path) -> Iterator[Path]:
    """Give the good file, and put it back in its place afterwards."""
    good = kept(path)
    try:
        yield good
    finally:
        forget_log(path)
        shutil.copyfile(good, path)


# Manifests and prompt-sets
# ------------------------------------------------------------------------------


@SLOW
@given(draw=st.data(), again=st.booleans())
def test_manifest_of_a_run(place: Path, draw: st.DataObject, again: bool) -> None:
    """It is read by a report, or by an evaluation that goes on."""
    run = evaluated(place)
    settings = EvaluateSettings(
        models=("baseline/redirect",), judges=("baseline/judge",), limit=1, out=run, dry_run=True
    )
    with restored(run / "run.json") as good:
        write(run / "run.json", draw.draw(damaged_json(json.loads(good.read_bytes()))))
        reader = (lambda _: evaluate(settings)) if again else read_run
        attempt("manifest of a run (JSON)", reader, run, named="run")


NAMES = (
    *(
        "run.json",
        "prompt_sets.jsonl",
        "ledger.sqlite",
        "ledger.sqlite-wal",
        "ledger.sqlite-journal",
    ),
    *(".lock", "metrics.json", "grades.csv.gz", "tables", "shards", "shards/0", "report.html"),
    *(".results-new", ".results-new/.ready", ".results-new/metrics.json", ".results-new/tables"),
)
"""What a command opens, makes or replaces in a run folder."""


@SLOW
@given(draw=st.data(), again=st.booleans())
def test_folder_of_a_run(place: Path, tmp_path: Path, draw: st.DataObject, again: bool) -> None:
    """Links, pipes, folders and lists of names are in it: nothing outside it is touched."""
    run, mine = tmp_path / "run", tmp_path / "mine"
    for folder in (run, mine):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(evaluated(place), run, ignore=shutil.ignore_patterns("*.good"))
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    ways = ("../mine/thesis.txt", str(mine / "thesis.txt"), "../mine", str(mine), "/dev/null")
    for name in draw.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)):
        if not (run / name).parent.resolve().is_relative_to(run.resolve()):
            continue  # a link that was laid before leads elsewhere: this test itself would write there
        path, to = run / name, draw.draw(st.sampled_from((*ways, "metrics.json", "..", "a\nb")))
        with suppress(OSError):  # what it would lie in has gone already
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            match draw.draw(st.sampled_from(("link", "link", "pipe", "folder", "names", "gone"))):
                case "link":
                    path.symlink_to(to)
                case "pipe":
                    os.mkfifo(path)
                case "folder":
                    path.mkdir()
                case "names":
                    path.write_text(f"metrics.json\n{to}\n")
    settings = EvaluateSettings(models=MODELS, judges=("baseline/judge",), limit=2, out=run)
    reader = (lambda _: evaluate(settings)) if again else read_run
    attempt("folder of a run", reader, run, named="run")
    assert [(path.name, path.read_text()) for path in mine.iterdir()] == [
        ("thesis.txt", "precious")
    ]


@FUZZ
@given(draw=st.data())
def test_prompt_sets_of_a_run(place: Path, draw: st.DataObject) -> None:
    run = evaluated(place)
    path = run / "prompt_sets.jsonl"
    with restored(path) as good:
        records = [json.loads(line) for line in good.read_bytes().splitlines()][:2]
        write(path, draw.draw(damaged_lines(records)))
        attempt("prompt-sets (JSONL)", lambda run: RunFolder(run).load(), run, named=path.name)


@SLOW
@given(draw=st.data())
def test_manifest_of_a_build(place: Path, draw: st.DataObject) -> None:
    path = built(place) / "build.json"

    def read(_: Path) -> None:
        BuildFolder(path.parent).load()
        build(build_settings(place, dry_run=True))

    with restored(path) as good:
        write(path, draw.draw(damaged_json(json.loads(good.read_bytes()))))
        attempt("manifest of a build (JSON)", read, path)


# Ledgers
# ------------------------------------------------------------------------------


def of_calls(place: Path) -> Path:
    """The ledger without imported responses, which are not merged."""
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
    rows = connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()
    some = rows if draw(st.booleans()) else rows[draw(st.integers(0, len(rows))) :][:1]
    faults = ("cell", "cell", "cell", "delete", "drop", "rename", "version", "index", *SCHEMA)
    try:
        match draw(st.sampled_from(faults)):
            case "cell":
                value = draw(st.sampled_from(CELLS))
                statement = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE id = ?"
                connection.executemany(statement, [(value, row) for (row,) in some])
            case "delete":
                connection.executemany(f"DELETE FROM {table} WHERE id = ?", some)
            case "drop":
                connection.execute(f"DROP TABLE {table}")
            case "rename":
                connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO another")
            case "version":
                connection.execute(f"PRAGMA user_version = {draw(st.sampled_from((-1, 0, 99)))}")
            case "index":
                connection.execute("DROP INDEX satisfied")
            case schema:
                connection.execute(schema.format(table=table, column=column))
    except sqlite3.Error:  # the table or the column has gone already, or a cell may not hold this
        return


@SLOW
@given(draw=st.data())
def test_ledger_of_a_run(place: Path, draw: st.DataObject) -> None:
    path = evaluated(place) / "ledger.sqlite"
    with restored(path) as good:
        draw.draw(damaged_ledger(good, path))
        attempt("ledger of a run (SQLite)", read_run, path.parent, named=path.name)


@FUZZ
@given(draw=st.data())
def test_rows_of_a_ledger(place: Path, tmp_path: Path, draw: st.DataObject) -> None:
    """All that a ledger is asked for, over every row of it."""
    good = kept(evaluated(place) / "ledger.sqlite")
    with closing(sqlite3.connect(good)) as connection:
        keys = [key for (key,) in connection.execute("SELECT key FROM calls")]

    def read(path: Path) -> None:
        with Ledger(path, readonly=True) as ledger:
            ledger.count()
            ledger.find_answering_models()
            list(ledger.imports.rows())
            list(ledger.attempts(keys))
            list(ledger.attempts())
            for key in keys:
                ledger.find(key)
                ledger.last_failure(key)
                for row in ledger.list_attempts(key):
                    ledger.request(row.id)

    path = draw.draw(damaged_ledger(good, tmp_path / "rows.sqlite"))
    attempt("rows of a ledger (SQLite)", read, path)


@FUZZ
@given(draw=st.data(), into=st.booleans())
def test_ledgers_that_are_merged(
    place: Path, tmp_path: Path, draw: st.DataObject, into: bool
) -> None:
    good = of_calls(place)
    bad = draw.draw(damaged_ledger(good, tmp_path / "bad.sqlite"))
    target = bad if into else tmp_path / "target.sqlite"
    sources = [bad, good] if into else [bad]
    attempt("ledgers that are merged (SQLite)", lambda _: merge_ledgers(sources, target), bad)
    forget_log(target)
    target.unlink(missing_ok=True)


@SLOW
@given(draw=st.data())
def test_ledger_of_a_build(place: Path, draw: st.DataObject) -> None:
    """A build that goes on reads the outcome of every call."""
    path = built(place) / "ledger.sqlite"
    with restored(path) as good:
        draw.draw(damaged_ledger(good, path))
        settings = build_settings(place, dry_run=True)
        attempt("ledger of a build (SQLite)", lambda _: build(settings), path)


def test_what_is_damaged_is_good_before(place: Path, tmp_path: Path) -> None:
    assert attempt("none", read_run, evaluated(place))
    assert BuildFolder(built(place)).load()
    good = of_calls(place)
    assert merge_ledgers([good], tmp_path / "target.sqlite")[good].added > 20
