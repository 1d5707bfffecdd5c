"""The ledgers that workers write, each its own, and how they become one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Self

import msgspec

from opensafeintent.calls.client import Model
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import connect, is_older, read_request, reading, see_as_failed, typed, uri_of
from opensafeintent.calls.records import Answered, Attempt, Call, Refused, call_key
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError
from opensafeintent.files import os_errors

__all__ = ["Added", "AttemptFiles", "ShardLedger", "Spent", "lost_calls", "merge_ledger", "settled", "spent_in"]

_COLUMNS = (
    *("key", "model", "purpose", "template", "template_hash", "epoch", "attempt", "request", "status", "stop_reason"),
    *("input_tokens", "output_tokens", "served_model", "seconds", "error", "response", "created"),
)
_TYPES: Any = tuple[bytes, str, str, str, str, int, int, str, str, str, int, int, str, float, str, bytes, str]
"""Of the columns."""
_BATCH = 2000
_SATISFIES = "status <> 'failed'"
_SAME_ROW = " AND ".join(f"theirs.{name} IS ours.{name}" for name in ("created", "seconds", "response"))
"""Merged before: no two calls are recorded in the same microsecond, after the same seconds, with the same response."""


class Added(msgspec.Struct, kw_only=True):
    """What one ledger brought into another."""

    rows: int = 0
    """Attempts that were not there."""
    made: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Calls among them, by (model, purpose); the attempts at one call count once."""
    answers: int = 0
    refusals: int = 0
    tokens: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Tokens by (model, `input` or `output`)."""
    twice: int = 0
    """Outcomes that were left out, for the call had one already: it was made twice."""

    @property
    def retries(self) -> int:
        """Attempts beyond the first one of each call."""
        return self.rows - self.made.total()

    def add(self, other: Added) -> None:
        """Count what another ledger brought as well."""
        self.rows += other.rows
        self.made += other.made
        self.answers += other.answers
        self.refusals += other.refusals
        self.tokens += other.tokens
        self.twice += other.twice


def merge_ledger(target: Path, source: Path, keys: Collection[bytes] | None = None) -> Added:
    """Add the calls of one ledger to another, in one transaction; the texts that requests refer to come along.

    Merging the same ledger again adds nothing. Where both have an outcome of a call, that of `target` stays.

    Args:
        target: the ledger that grows; it may be open for writing elsewhere on this machine.
        source: the other one. With `keys` it may be open elsewhere on this machine, else nobody writes it (`settled`).
        keys: calls whose outcomes are added; None for every call and each attempt at it.

    Raises:
        InputError: one of them is no ledger, or is damaged, or cannot be read or written.
    """
    if not target.exists() or target.stat().st_size == 0 or _is_old(target):
        Ledger(target).close()  # makes it; one that is there may be open in this process, and is left as it is
    Ledger(source, readonly=True).close()
    if source.stat().st_size == 0:  # killed as it began
        return Added()
    try:
        with contextlib.closing(connect(target)) as connection:
            connection.execute("ATTACH ? AS source", (uri_of(source, readonly=True),))
            theirs = see_as_failed(connection, "source", "theirs") if is_older(connection, "source") else "source.calls"
            with _transaction(connection):
                return _Copy(connection, theirs).run(keys)
    except (sqlite3.Error, zlib.error, ValueError, LookupError, OverflowError, RecursionError) as error:
        raise InputError(f"{source}: cannot merge this ledger into {target}: {error}") from error


def settled(path: Path, beside: Path) -> Path:
    """Return a ledger that can be read wherever its writer is: itself, or a copy with what its write-ahead log holds.

    A writer that was killed leaves its log behind. On a network file system, what such a log's index says is only of use to
    the machine that wrote it; a copy without the index is read afresh.

    Args:
        path: a ledger.
        beside: a folder on this machine for the copy.

    Raises:
        InputError: it is no ledger, or is damaged, or cannot be read.
    """
    log = path.with_name(path.name + "-wal")
    with os_errors(f"{path}: cannot read the ledger"):
        if not log.exists():
            return path
        copy = beside / path.name
        # the log first: what moves from it into the file afterwards is there twice, and not lost
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        shutil.copyfile(path, copy)
    Ledger(copy).close()  # takes in the log
    return copy


def _is_old(path: Path) -> bool:
    with contextlib.closing(connect(path)) as connection, reading(path):
        return is_older(connection, "main")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back
        yield


class _Copy:
    """The rows of an attached ledger on their way into another."""

    def __init__(self, connection: sqlite3.Connection, theirs: str) -> None:
        self._connection = connection
        self._theirs = theirs
        self._ids: dict[int, int] = {}
        self._added = Added()
        self._counted: set[bytes] = set()

    def run(self, keys: Collection[bytes] | None) -> Added:
        connection = self._connection
        which = ""
        if keys is None:
            self._all_texts()
        else:
            connection.execute("CREATE TEMP TABLE wanted (key BLOB PRIMARY KEY)")
            connection.executemany("INSERT OR IGNORE INTO temp.wanted VALUES (?)", ((key,) for key in keys))
            which = f"WHERE theirs.{_SATISFIES} AND theirs.key IN temp.wanted"
        columns = ", ".join(f"theirs.{name}" for name in _COLUMNS)
        cursor = connection.execute(
            f"SELECT {columns}, ours.id IS NOT NULL, {_SAME_ROW} FROM {self._theirs} AS theirs "
            f"LEFT JOIN main.calls AS ours ON ours.key = theirs.key AND ours.{_SATISFIES} {which} ORDER BY theirs.id"
        )
        insert = f"INSERT INTO main.calls ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
        while rows := cursor.fetchmany(_BATCH):
            connection.executemany(insert, [self._values(row) for row in rows if self._is_new(row)])
        return self._added

    def _all_texts(self) -> None:
        self._connection.execute("INSERT OR IGNORE INTO main.texts (sha, body) SELECT sha, body FROM source.texts")
        ids = self._connection.execute("SELECT theirs.id, ours.id FROM source.texts theirs JOIN main.texts ours USING (sha)")
        self._ids = dict(ids.fetchall())

    def _is_new(self, row: tuple[Any, ...]) -> bool:
        """Tell a row that is to be added from one that was merged before, or that has an outcome here already."""
        *values, has_outcome, same_row = row
        if values[_COLUMNS.index("status")] == "failed":
            names = ("key", "created", "seconds", "error")
            query = f"SELECT 1 FROM main.calls WHERE status = 'failed' AND {' AND '.join(f'{name} IS ?' for name in names)}"
            return self._connection.execute(query, [values[_COLUMNS.index(name)] for name in names]).fetchone() is None
        self._added.twice += has_outcome and not same_row
        return not has_outcome

    def _values(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Count a row, and return it as it is here."""
        values: tuple[Any, ...] = typed(row[: len(_COLUMNS)], _TYPES)
        fields = dict(zip(_COLUMNS, values, strict=True))
        added, model, status = self._added, fields["model"], fields["status"]
        added.rows += 1
        added.made[model, fields["purpose"]] += fields["key"] not in self._counted
        self._counted.add(fields["key"])
        added.answers += status != "failed"
        added.refusals += status == "refused"
        added.tokens[model, "input"] += fields["input_tokens"]
        added.tokens[model, "output"] += fields["output_tokens"]
        fields["request"] = self._request(fields["request"])
        return tuple(fields.values())

    def _request(self, request: str) -> str:
        """Return a request with the ids that its texts have here."""
        data = read_request(request)
        data.messages = [
            (role, [part if isinstance(part, str) else self._text(part) for part in parts]) for role, parts in data.messages
        ]
        return canonical_json(data).decode()

    def _text(self, identity: int) -> int:
        if identity not in self._ids:
            row = self._connection.execute("SELECT sha, body FROM source.texts WHERE id = ?", (identity,)).fetchone()
            if row is None:
                raise LookupError(f"text {identity} is missing")
            self._connection.execute("INSERT OR IGNORE INTO main.texts (sha, body) VALUES (?, ?)", row)
            sha = row[0]
            self._ids[identity] = self._connection.execute("SELECT id FROM main.texts WHERE sha = ?", (sha,)).fetchone()[0]
        return self._ids[identity]


# One worker's ledger -------------------------------------------------------------------------------------------------

# A shard is worked on by one process at a time. Each attempt at it has a ledger of its own, so that no two machines write
# one file, and finds what was recorded before: what the run knew as it began, and what earlier attempts wrote.

_KEY_BYTES = 32


class AttemptFiles(msgspec.Struct, frozen=True):
    """The files of one attempt at a shard."""

    folder: Path
    shard: str
    number: int
    """From 1."""

    def _path(self, ending: str) -> Path:
        return self.folder / f"{self.shard}.{self.number}.{ending}"

    @property
    def ledger(self) -> Path:
        """Its ledger."""
        return self._path("sqlite")

    @property
    def begun(self) -> Path:
        """The keys of all attempts at calls that it began, 32 bytes each."""
        return self._path("begun")

    @property
    def progress(self) -> Path:
        """How far it says that it is."""
        return self._path("json")

    @classmethod
    def of(cls, folder: Path, shard: str) -> list[Self]:
        """Return every attempt at a shard so far, in order."""
        # by their names: on a network file system a list may lack what another machine has just made
        every = (cls(folder, shard, number) for number in count(1))
        return list(takewhile(lambda files: files.begun.exists(), every))

    @classmethod
    def begin(cls, folder: Path, shard: str) -> Self:
        """Return the files of a new attempt, which nobody else has."""
        for number in count(1):
            files = cls(folder, shard, number)
            try:
                os.close(os.open(files.begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                continue
            except OSError as error:
                raise InputError(f"{folder}: cannot write here: {error.strerror or error}") from error
            return files
        raise AssertionError("counting does not end")


class ShardLedger(Ledger):
    """The ledger of one attempt, which also finds what is known from before.

    Args:
        files: of this attempt.
        known: ledgers that nobody writes any more.
    """

    def __init__(self, files: AttemptFiles, known: Sequence[Path] = ()) -> None:
        self.files = files
        self.found_earlier = 0
        """Outcomes that an earlier attempt at this shard had recorded."""
        earlier = [AttemptFiles(files.folder, files.shard, number).ledger for number in range(1, files.number)]
        with ExitStack() as stack:
            beside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opensafeintent-")))
            open_for_reading = [
                stack.enter_context(Ledger(settled(path, beside), readonly=True, missing_ok=True))
                for path in (*earlier, *known)
            ]
            self._earlier, self._known = open_for_reading[: len(earlier)], open_for_reading[len(earlier) :]
            self._begun = os.open(files.begun, os.O_WRONLY | os.O_APPEND)
            stack.callback(os.close, self._begun)
            super().__init__(files.ledger)
            self._stack = stack.pop_all()

    def find(self, key: bytes) -> Answered | Refused | None:
        """Return the outcome that satisfies a key, from here or from before."""
        if (outcome := super().find(key)) is not None:
            return outcome
        for ledger in self._earlier:
            if (outcome := ledger.find(key)) is not None:
                self.found_earlier += 1
                return outcome
        return next((outcome for ledger in self._known if (outcome := ledger.find(key)) is not None), None)

    def noted(self, model: Model) -> Model:
        """Return a model whose attempts are noted as they begin: what is begun and not recorded was lost."""
        return _Noted(model, self._begun)

    def close(self) -> None:
        """Write what is waiting, and close all files."""
        try:
            super().close()
        finally:
            self._stack.close()


class _Noted:
    """A model that leaves a note before each attempt."""

    def __init__(self, model: Model, notes: int) -> None:
        self.identity = model.identity
        self.limiter = model.limiter
        self._model = model
        self._notes = notes

    @property
    def notices(self) -> Sequence[str]:
        """What a reader of the results should know of how the model was asked."""
        return self._model.notices

    async def attempt(self, call: Call) -> Attempt:
        """Try once."""
        os.write(self._notes, call_key(call, self.identity))
        return await self._model.attempt(call)


class Spent(msgspec.Struct, frozen=True):
    """What a shard has taken so far, every attempt at it together."""

    calls: int = 0
    """Requests, retries included."""
    tokens: int = 0
    recorded: int = 0
    """Of the requests, those that are on record."""


def spent_in(folder: Path, shard: str) -> Spent:
    """Add up what the attempts at a shard have recorded, and the requests that were lost.

    Raises:
        InputError: a ledger among them is damaged.
    """
    calls = tokens = recorded = 0
    for files in AttemptFiles.of(folder, shard):
        begun, rows, spent = _counts(files)
        calls += max(begun.total(), rows.total())
        tokens += spent
        recorded += rows.total()
    return Spent(calls, tokens, recorded)


def lost_calls(folder: Path, shard: str) -> tuple[int, int]:
    """Return how many requests were begun and never recorded, and how many of them were made again by a later attempt.

    They were in flight when their process was lost, or answered in the twentieth of a second before.

    Raises:
        InputError: a ledger among them is damaged.
    """
    lost: Counter[bytes] = Counter()
    again = 0
    for files in AttemptFiles.of(folder, shard):
        begun, rows, _ = _counts(files)
        again += sum(min(number, lost[key]) for key, number in begun.items())
        lost -= begun
        lost += begun - rows
    return lost.total() + again, again


def _counts(files: AttemptFiles) -> tuple[Counter[bytes], Counter[bytes], int]:
    """Return the attempts that were begun and those that were recorded, by key, and the tokens of the latter."""
    notes = files.begun.read_bytes()
    begun = Counter(notes[at : at + _KEY_BYTES] for at in range(0, len(notes) - _KEY_BYTES + 1, _KEY_BYTES))
    if not files.ledger.exists() or files.ledger.stat().st_size == 0:
        return begun, Counter(), 0
    with tempfile.TemporaryDirectory(prefix="opensafeintent-") as beside:
        path = settled(files.ledger, Path(beside))
        with (
            reading(files.ledger),
            closing(connect(path, readonly=True)) as connection,
        ):
            counted = connection.execute("SELECT key, input_tokens + output_tokens FROM calls").fetchall()
            rows = typed(counted, list[tuple[bytes, int]])
    return begun, Counter(key for key, _ in rows), sum(tokens for _, tokens in rows)
