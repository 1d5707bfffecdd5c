"""The file of a ledger: its tables, how it is opened, and what a row and a text hold."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from opensafeintent.calls.records import Answered, Purpose, Refused, Usage
from opensafeintent.calls.replies import protocol_named, read_reply
from opensafeintent.errors import InputError
from opensafeintent.files import sha256_hex
from opensafeintent.hostile import clean_for_display
from opensafeintent.templates.template import MessageRole as Role

T = TypeVar("T")

_SNAPSHOT_MILLISECONDS = 1000
"""So long the end of a ledger's writer waits for readers of an earlier state."""

_APPLICATION_ID = 0x4F53496C  # "OSIl": distinguishes a ledger from any other SQLite file

_SCHEMA_VERSION = 4

_COMPRESS = 512  # bytes; a shorter reply takes as long to pack as to write

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
  cached_tokens INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  served_model TEXT NOT NULL,
  tier TEXT NOT NULL,
  protocol TEXT NOT NULL,
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
    check_beside(path)
    # without a log beside it the file is complete: it can be read without a trace, even if nothing
    # can be written; else whoever closes it last, a reader too, puts the log into the file
    mode = "mode=ro&immutable=1" if readonly and not has_log(path) else "mode=rw"
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(
        uri, uri=True, check_same_thread=False, isolation_level=None, timeout=30
    )
    connection.execute(f"PRAGMA query_only = {int(readonly)}")
    return connection


def has_log(path: Path) -> bool:
    """Tell whether a file is being written, or rows of it are in the log beside it alone."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def checkpoint_and_close(connection: sqlite3.Connection) -> None:
    """Close a connection that has written: the file holds every row then, even if others have it
    open. What another's snapshot holds up is put into it when that is closed.
    """
    with contextlib.suppress(sqlite3.Error):
        connection.execute(f"PRAGMA busy_timeout = {_SNAPSHOT_MILLISECONDS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def check_beside(path: Path) -> None:
    """See that the files beside a database that others may have made lead nowhere else.

    Raises:
        InputError: a journal or log is a link, or names other files.
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
        raise DamagedLedger(f"{path}: is not a ledger of opensafeintent")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != _SCHEMA_VERSION:
        raise InputError(
            f"{path}: is a ledger of version {version}; this program reads version"
            f" {_SCHEMA_VERSION}"
        )
    with contextlib.closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(_SCHEMA)
        with report_damage(path):
            differences = _contents(connection) ^ _contents(ours)
        if differences:
            named = ", ".join(
                sorted(f"{kind} {clean_for_display(name)}" for kind, name, *_ in differences)
            )
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
    return check_types(rows, set[tuple[str, str, str, str | None]])


class DamagedLedger(InputError):
    """A file that is no ledger any more, or a ledger with a part that cannot be read."""


@contextlib.contextmanager
def report_damage(path: Path) -> Iterator[None]:
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
        raise DamagedLedger(f"{path}: the ledger is damaged: {damage}") from damage


def check_types(row: Any, kind: type[T]) -> T:
    """Return a row, or several, if they are of the types that they should be: SQLite itself takes
    anything in any column.

    Raises:
        ValueError: they are not.
    """
    return msgspec.convert(row, kind)


class TooLong(InputError):
    """The texts of a ledger do not fit into memory together."""


class TextBudget:
    """Memory for the texts that one reading of a ledger keeps: a small file may unpack to more than
    a machine has.

    Args:
        path: the ledger.
        advice: for the error: what to do.
        most: bytes.
    """

    def __init__(self, path: Path, advice: str, most: int = MOST_TEXT) -> None:
        self.charged = 0
        """Bytes."""
        self._path, self._advice, self._most = path, advice, most

    def charge(self, text: str) -> str:
        """Return a text that is kept from now on.

        Raises:
            TooLong: the texts so far and this one are more than the budget.
        """
        self.charged += sys.getsizeof(text)
        if self.charged > self._most:
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

    def find_text_id(self, connection: sqlite3.Connection, text: str) -> int:
        """Return the id of a text, which is added if it is not there."""
        if (cached := self._ids.get(text)) is not None:
            return cached
        raw = text.encode()
        identity = id_at(connection, bytes.fromhex(sha256_hex(raw)), compress_with_checksum(raw))
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
    return check_types(row[0], int)


def read_packed(connection: sqlite3.Connection, identity: int) -> tuple[bytes, bytes]:
    """Return the hash of a text and its packed form by its id.

    Raises:
        ValueError, LookupError: it is missing.
    """
    row = connection.execute("SELECT sha, body FROM texts WHERE id = ?", (identity,)).fetchone()
    if row is None:
        raise LookupError(f"the text {identity} is not there")
    return check_types(row, tuple[bytes, bytes])


class TextsAt(dict[int, str]):
    """Texts of a ledger by their ids, each unpacked once.

    Args:
        connection: to the ledger.
        budget: for all of them.

    Raises:
        ValueError, LookupError, zlib.error: one is missing, or differs from the stored one.
        TooLong: there is no room for one.
    """

    def __init__(self, connection: sqlite3.Connection, budget: TextBudget) -> None:
        super().__init__()
        self._connection, self._budget = connection, budget

    def __missing__(self, identity: int) -> str:
        text = self[identity] = self._budget.charge(
            unpack_text(*read_packed(self._connection, identity))
        )
        return text


def unpack_text(sha: bytes, body: bytes) -> str:
    """Return a text from its hash and its packed form.

    Raises:
        ValueError, zlib.error: it differs from the stored one.
    """
    raw = decompress_and_check(body)
    if bytes.fromhex(sha256_hex(raw)) != sha:
        raise ValueError("a text does not match the hash beside it")
    return raw.decode()


def compress_with_checksum(raw: bytes) -> bytes:
    """Compress long texts, and add a checksum to all; the first byte names the form.

    `z`: zlib, which ends with an Adler-32. `c`: a CRC-32 of four bytes, then the bytes themselves.
    """
    if len(raw) > _COMPRESS:
        return b"z" + zlib.compress(raw, 1)
    return b"c" + zlib.crc32(raw).to_bytes(4) + raw


def decompress_and_check(body: bytes) -> bytes:
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


Status = Literal["answered", "refused", "failed"]


class Located(msgspec.Struct, frozen=True):
    """An outcome, and its position in the ledger."""

    row: int
    """Id of the row; 0 for one that is still on its way to the file."""
    outcome: Answered | Refused


Tier = Annotated[str, msgspec.Meta(pattern=r"\A[a-z_]{1,40}\Z")]


class AttemptRow(NamedTuple):
    """The row of one attempt, without its texts."""

    id: int
    status: Status
    stop_reason: str
    created: str
    """ISO 8601."""
    served_model: str
    """The model that the reply names; "" if it names none."""
    input_tokens: int
    """0 if the reply reports no tokens."""
    output_tokens: int
    protocol: str
    """The wire protocol of the reply."""


class Attempts(NamedTuple):
    """Attempts that have all of this in common, as far as they were paid for."""

    model: str
    purpose: Purpose
    status: Status
    tier: Tier
    """The service tier that served them."""
    served_model: str
    """The model that the replies name."""
    number: int
    without_usage: int
    """Those whose replies report no number of tokens."""
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """Input tokens that were read from a cache."""
    cache_write_tokens: int
    """Input tokens that were written to one."""
    earliest: datetime
    latest: datetime
    """UTC."""


def read_outcome(
    status: str,
    body: bytes,
    protocol: str,
    error: str = "",
    input_tokens: int = 0,
    output_tokens: int = 0,
    served: str = "",
) -> Answered | Refused:
    """Return the outcome of a row, read by the protocol that it was asked in.

    Raises:
        ValueError: the stored reply is no such outcome.
    """
    reply = decompress_and_check(body)
    if status == "answered":
        return read_reply(reply, protocol_named(protocol))
    if status != "refused":
        raise ValueError(f"a call is stored as {clean_for_display(status)}")
    return Refused(reason=error, usage=Usage(input_tokens, output_tokens), served_model=served)
