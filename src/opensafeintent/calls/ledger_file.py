"""The file of a ledger: its tables, how it is opened, the form of texts and replies in it, and the
thread that writes it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from opensafeintent.calls.records import Answered, Attempt, Call, Failure, Refused, Replied, Usage
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.hostile import one_line
from opensafeintent.templates.template import MessageRole as Role

T = TypeVar("T")

_APPLICATION_ID = 0x4F53496C  # "OSIl": distinguishes a ledger from any other SQLite file
_SCHEMA_VERSION = 3
_COMPRESS = 200  # bytes
_TEXTS_IN_MEMORY = 4096
_LONG_IN_MEMORY = 2**26
"""Characters of them."""
_LONGEST = 2**28
"""Bytes that a text or a reply may unpack to."""
MOST_TEXT = 2**31
"""Bytes of the texts that one reading keeps; hundreds of thousands of responses have less."""

_OTHERS_NAMED = bytes.fromhex("d9d505f920a163d7")
"""Last bytes of a rollback journal that names another file, which SQLite would delete."""

_SCHEMA = f"""
CREATE TABLE texts (id INTEGER PRIMARY KEY, sha BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE calls (
  id INTEGER PRIMARY KEY,
  key BLOB NOT NULL,
  model TEXT NOT NULL,
  purpose TEXT NOT NULL,
  template TEXT NOT NULL,
  template_hash TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  request TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('answered', 'refused', 'failed')),
  stop_reason TEXT NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  served_model TEXT NOT NULL,
  seconds REAL NOT NULL,
  error TEXT NOT NULL,
  response BLOB NOT NULL,
  created TEXT NOT NULL
);
CREATE UNIQUE INDEX satisfied ON calls (key) WHERE status <> 'failed';
CREATE INDEX failures ON calls (key) WHERE status = 'failed';
CREATE TABLE sources (
  id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, name TEXT NOT NULL, created TEXT NOT NULL
);
CREATE TABLE imported (
  id INTEGER PRIMARY KEY,
  source INTEGER NOT NULL REFERENCES sources (id),
  dataset TEXT NOT NULL,
  model TEXT NOT NULL,
  set_id TEXT NOT NULL,
  variant TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  response INTEGER REFERENCES texts (id),
  record BLOB NOT NULL
);
CREATE INDEX place ON imported (dataset, model, set_id, variant, epoch);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
"""


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """Return a connection to an existing file; it waits for other writers, and may pass between
    threads.

    Raises:
        InputError: a journal or log beside it is not of a ledger.
    """
    for ending in ("-journal", "-wal", "-shm"):
        beside = Path(f"{path.resolve()}{ending}")
        if beside.is_symlink() or (beside.exists() and not beside.is_file()):
            raise InputError(f"{beside}: expected a file beside a ledger, no link, pipe or folder")
    journal = Path(f"{path.resolve()}-journal")
    if journal.is_file():
        with journal.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_OTHERS_NAMED)))
            if file.read() == _OTHERS_NAMED:
                raise InputError(f"{journal}: names other files; expected none beside a ledger")
    mode = "mode=rw"
    if readonly:
        # without a log beside it the file is complete: it can be read without a trace, even if
        # nothing can be written
        mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None, timeout=30)


def prepare(connection: sqlite3.Connection, path: Path, *, readonly: bool, begun: bool) -> None:
    """Make missing tables, and check that this is a readable ledger.

    Args:
        connection: to the file, or to an empty one in memory in its place.
        path: the file, for the error.
        readonly: whether nothing is to be written.
        begun: whether the file is not empty.

    Raises:
        InputError: it is no ledger, or one of another version.
    """
    if (
        not (readonly and begun)
        and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    ):
        connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise InputError(f"{path}: is not a ledger of opensafeintent")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != _SCHEMA_VERSION:
        raise InputError(
            f"{path}: is a ledger of version {version}; this program reads version"
            f" {_SCHEMA_VERSION}"
        )
    with contextlib.closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(_SCHEMA)
        with reading(path):
            others = _contents(connection) ^ _contents(ours)
        if others:
            named = ", ".join(sorted(f"{kind} {one_line(name, 60)}" for kind, name, *_ in others))
            raise InputError(f"{path}: expected the tables of a ledger and no other; see {named}")
    if not readonly:
        connection.execute("PRAGMA journal_mode = WAL")
        # a first write makes the log's file: by it a reader knows that the ledger is being written
        # (see connect)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _contents(connection: sqlite3.Connection) -> set[tuple[str, str, str, str | None]]:
    """Return the schema of a database: tables, indexes, views and triggers.

    Raises:
        ValueError: something in it is no text.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return typed(rows, set[tuple[str, str, str, str | None]])


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of a ledger that cannot be read as it should that it is damaged."""
    try:
        yield
    except (
        sqlite3.Error,
        zlib.error,
        ValueError,
        LookupError,
        OverflowError,
        RecursionError,
    ) as damage:
        raise InputError(f"{path}: the ledger is damaged: {damage}") from damage


def typed(row: Any, kind: type[T]) -> T:
    """Return a row, or several, if they are of the types that they should be: SQLite itself takes
    anything in any column.

    Raises:
        ValueError: they are not.
    """
    return msgspec.convert(row, kind)


class TooLong(InputError):
    """The texts of a ledger do not fit into memory together."""


class Room:
    """Memory for the texts that one reading of a ledger keeps: a small file may unpack to more than
    a machine has.

    Args:
        path: the ledger.
        advice: for the error: what to do.
        most: bytes.
    """

    def __init__(self, path: Path, advice: str, most: int = MOST_TEXT) -> None:
        self.taken = 0
        """Bytes."""
        self._path, self._advice, self._most = path, advice, most

    def take(self, text: str) -> str:
        """Return a text that is kept from now on.

        Raises:
            TooLong: there is no room for it.
        """
        self.taken += sys.getsizeof(text)
        if self.taken > self._most:
            most = f"{self._most / 2**30:g} GiB"
            raise TooLong(f"{self._path}: texts of more than {most} at once; {self._advice}")
        return text


class Request(msgspec.Struct):
    """A request as a row holds it, as JSON."""

    messages: list[tuple[Role, list[str | int]]]
    """Role and parts; a long part is the id of a text."""
    sampling: dict[str, Any]


class Texts:
    """The texts that rows refer to, each of them once."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._characters = 0

    def id_of(self, connection: sqlite3.Connection, text: str) -> int:
        """Return the id of a text, which is added if it is not there."""
        if (known := self._ids.get(text)) is not None:
            return known
        raw = text.encode()
        identity = id_at(connection, bytes.fromhex(sha256_hex(raw)), pack(raw))
        self._characters += len(text)
        # a cache, not a register: memory stays bounded in a run of any size
        if len(self._ids) > _TEXTS_IN_MEMORY or self._characters > _LONG_IN_MEMORY:
            self.forget()
        self._ids[text] = identity
        return identity

    def forget(self) -> None:
        """Forget ids that may have been rolled back."""
        self._ids.clear()
        self._characters = 0


def id_at(connection: sqlite3.Connection, sha: bytes, body: bytes) -> int:
    """Return the id of a packed text, which is added if it is not there."""
    connection.execute("INSERT OR IGNORE INTO texts (sha, body) VALUES (?, ?)", (sha, body))
    row = connection.execute("SELECT id FROM texts WHERE sha = ?", (sha,)).fetchone()
    return typed(row[0], int)


def packed_at(connection: sqlite3.Connection, identity: int) -> tuple[bytes, bytes]:
    """Return the hash of a text and its packed form by its id.

    Raises:
        ValueError, LookupError: it is missing.
    """
    row = connection.execute("SELECT sha, body FROM texts WHERE id = ?", (identity,)).fetchone()
    if row is None:
        raise LookupError(f"the text {identity} is not there")
    return typed(row, tuple[bytes, bytes])


class TextsAt(dict[int, str]):
    """Texts of a ledger by their ids, each unpacked once.

    Args:
        connection: to the ledger.
        room: for all of them.

    Raises:
        ValueError, LookupError, zlib.error: one is missing, or differs from the stored one.
        TooLong: there is no room for one.
    """

    def __init__(self, connection: sqlite3.Connection, room: Room) -> None:
        super().__init__()
        self._connection, self._room = connection, room

    def __missing__(self, identity: int) -> str:
        text = self[identity] = self._room.take(text_of(*packed_at(self._connection, identity)))
        return text


def text_of(sha: bytes, body: bytes) -> str:
    """Return a text from its hash and its packed form.

    Raises:
        ValueError, zlib.error: it differs from the stored one.
    """
    raw = unpack(body)
    if bytes.fromhex(sha256_hex(raw)) != sha:
        raise ValueError("a text does not match the hash beside it")
    return raw.decode()


def pack(raw: bytes) -> bytes:
    """Compress long texts, and add a checksum to all; the first byte names the form.

    `z`: zlib, which ends with an Adler-32. `c`: a CRC-32 of four bytes, then the bytes themselves.
    """
    if len(raw) > _COMPRESS:
        return b"z" + zlib.compress(raw, 1)
    return b"c" + zlib.crc32(raw).to_bytes(4) + raw


def unpack(body: bytes) -> bytes:
    """Return the packed bytes.

    Raises:
        ValueError, zlib.error: the bytes are not those that were packed.
    """
    match body[:1]:
        case b"z":
            stream = zlib.decompressobj()
            raw = stream.decompress(body[1:], _LONGEST)
            if not stream.eof or stream.unused_data:
                raise ValueError("a packed text does not end at its last byte")
            return raw
        case b"c" if zlib.crc32(body[5:]).to_bytes(4) == body[1:5]:
            return body[5:]
    raise ValueError("a packed text is damaged")


def reason(error: Exception) -> str:
    """Return the problem of a file, without its name."""
    return getattr(error, "strerror", None) or str(error)


# The writing side of a ledger
# ------------------------------------------------------------------------------

_BATCH_SECONDS = 0.05
_SHARED_TEXT = 80  # characters; a shorter part costs less inline than by reference

_CATCH_UP_SECONDS = 0.01
_MOST_WAITING = 1_000
"""Rows that may wait before the thread that adds rows lets the writer catch up. Without this limit
a busy loop left the writer hardly any time: 80,000 answers once waited to be written.
"""


_GONE = "the file was deleted or replaced while it was written"


NO_OUTCOME = (
    "UPDATE calls SET status = 'failed', stop_reason = '', error = ? WHERE key = ? AND status <>"
    " 'failed'"
)
"""Makes a failed attempt of an outcome of an earlier version: rows are only ever added, and no
other one is changed.
"""


class Entry(msgspec.Struct, frozen=True):
    """One attempt at a call; it becomes one row."""

    key: bytes
    call: Call
    attempt: Attempt
    earlier_failure: str = ""
    """The failure that the stored outcome of the call is by the rules of today, if it has one."""

    @property
    def outcome(self) -> Answered | Refused | None:
        """The outcome that satisfies the key, if the attempt does."""
        return self.attempt.outcome if isinstance(self.attempt, Replied) else None


class Writer:
    """The writer of one ledger.

    After a failed write, `failure` is set, `on_failure` has been called, and no further write is
    accepted. Answers of calls then in flight are still written if there is room for them.

    Args:
        path: the ledger, which exists.
        texts: ids of its texts.
        written: called with the keys of recorded outcomes, on the writer's thread.
    """

    def __init__(
        self, path: Path, texts: Texts, written: Callable[[Iterable[bytes]], None]
    ) -> None:
        self.failure: InputError | None = None
        self.on_failure: list[Callable[[InputError], None]] = []
        self._path = path
        self._file = _identity(path)
        self._texts = texts
        self._written = written
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        """None is the end."""
        # a run may use up its open files: paid answers are written even then
        self._connection = connect(path)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("SELECT 1 FROM calls LIMIT 1").fetchall()  # opens the log
        self._spare = Path(os.devnull).open("rb")  # noqa: SIM115
        """Closed to let SQLite open another file."""
        self._cannot_write: Exception | None = None
        self._kept = 0
        """Answers that are stored."""
        self._unwritten: list[Entry] = []
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    # The asking side

    def add(self, entry: Entry) -> None:
        """Write a row."""
        self._queue.put(entry)
        if (
            self._queue.qsize() > _MOST_WAITING
        ):  # a loop that is never idle leaves the writer no time
            time.sleep(_CATCH_UP_SECONDS)

    def close(self) -> None:
        """Write the waiting rows, and end.

        Raises:
            InputError: a row could not be written; the text gives the number of lost answers.
        """
        self._queue.put(None)
        try:
            self._thread.join()
        except KeyboardInterrupt:  # even on an urgent interrupt, answers are written first
            self._thread.join()
            raise
        if self.failure is not None:
            raise self.failure

    # The writer's thread

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = self._next_batch()
            entries = [entry for entry in batch if entry is not None]
            ended = len(entries) < len(batch)
            try:
                self._commit(entries)
            except Exception as error:  # no error may pass in silence
                self._fail(error)
                self._write_singly(entries)
        self._finish()

    def _next_batch(self) -> list[Entry | None]:
        """Wait for a row, and gather the rows that follow shortly after."""
        batch = [self._queue.get()]
        time.sleep(_BATCH_SECONDS)
        with contextlib.suppress(Empty):
            while True:
                batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, entries: Sequence[Entry]) -> None:
        """Write in one transaction."""
        if not entries:
            return
        if _identity(self._path) != self._file:
            raise OSError(_GONE)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            rows = [self._values(connection, entry) for entry in entries]
            for entry in entries:
                if entry.earlier_failure:
                    connection.execute(NO_OUTCOME, (entry.earlier_failure, entry.key))
            added = connection.executemany(
                f"INSERT OR IGNORE INTO calls VALUES (NULL{', ?' * len(rows[0])})", rows
            ).rowcount
            connection.execute("COMMIT")
        except BaseException:  # on any error, no half of a transaction stays
            self._texts.forget()  # those that were new are not there
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if added < len(rows):  # this process used other answers than the recorded ones
            self._stop(
                InputError(
                    f"{self._path}: another process has written into this ledger; run the command"
                    " again"
                )
            )
        outcomes = [entry.key for entry in entries if entry.outcome]
        self._kept += len(outcomes)
        self._written(outcomes)

    def _fail(self, error: Exception) -> None:
        self._cannot_write = self._cannot_write or error
        self._spare.close()
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._stop(InputError(f"{self._path}: cannot write the ledger: {reason(error)}"))

    def _stop(self, failure: InputError) -> None:
        if self.failure is None:
            self.failure = failure
            for tell in self.on_failure:
                tell(failure)

    def _write_singly(self, entries: Sequence[Entry]) -> None:
        """Write the rows for which there is room: a single row may be the obstacle."""
        for entry in entries:
            try:
                self._commit([entry])
            except Exception:  # how many answers are lost is said at the end
                self._unwritten.append(entry)

    def _finish(self) -> None:
        """Try once more to write the failed rows, and report the result."""
        last, self._unwritten = self._unwritten, []
        self._write_singly(last)
        lost = sum(entry.outcome is not None for entry in self._unwritten)
        if _identity(self._path) != self._file:
            self._fail(OSError(_GONE))
            lost += self._kept
        self._connection.close()
        self._spare.close()
        if self._cannot_write is not None:
            answers = f"answers that came and are lost: {lost:,}"
            kept = "every answer that came is kept"
            self.failure = InputError(
                f"{self.failure}; no further call was made; {answers if lost else kept}"
            )
            self.failure.__cause__ = self._cannot_write

    def _values(self, connection: sqlite3.Connection, entry: Entry) -> tuple[Any, ...]:
        call, attempt = entry.call, entry.attempt
        match attempt:
            case Replied(outcome=Answered(stop_reason=stop_reason)):
                status, error = "answered", ""
            case Replied(outcome=Refused(reason=error)):
                status, stop_reason = "refused", "content_filter"
            case Failure(kind=kind, error=why):
                status, stop_reason, error = "failed", "", f"{kind}: {why}"
        usage = entry.outcome.usage if entry.outcome else Usage()
        return (
            entry.key,
            call.model,
            call.purpose,
            call.template,
            call.template_hash,
            call.epoch,
            call.attempt,
            self._request(connection, call),
            status,
            stop_reason,
            usage.input_tokens,
            usage.output_tokens,
            entry.outcome.served_model if entry.outcome else "",
            round(attempt.seconds, 4),
            error,
            pack(attempt.body),
            datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def _request(self, connection: sqlite3.Connection, call: Call) -> str:
        def kept(part: str) -> str | int:
            return self._texts.id_of(connection, part) if len(part) >= _SHARED_TEXT else part

        messages = ((message.role, message.parts) for message in call.messages)
        return stored_request(messages, call.sampling, kept)


def stored_request(
    messages: Iterable[tuple[Role, Iterable[T]]], sampling: Any, kept: Callable[[T], str | int]
) -> str:
    """Return a request as JSON.

    Args:
        messages: role and parts of each.
        sampling: of the request.
        kept: returns a part as the row holds it: a long one as the id of a text.
    """
    parts = [(role, list(map(kept, parts))) for role, parts in messages]
    return canonical_json({"messages": parts, "sampling": sampling}).decode()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which a replacement of the same name does not share; None if
    there is none.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
