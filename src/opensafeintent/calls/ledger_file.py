"""The file of a ledger: its tables, how it is opened, and how texts and replies lie in it."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.messages import Role

T = TypeVar("T")

_APPLICATION_ID = 0x4F53496C  # "OSIl": tells a ledger from any other SQLite file
_SCHEMA_VERSION = 3
_COMPRESS = 200  # bytes
_TEXTS_IN_MEMORY = 4096
_LONGEST = 2**28
"""Bytes that a text or a reply may unpack to."""

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
    """Return a connection to a file that is there; it waits for other writers, and may pass between
    threads.
    """
    mode = "mode=rw"
    if readonly:
        # without a log beside it the file is whole: it can be read without a trace, also where
        # nothing can be written
        mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None, timeout=30)


def prepare(connection: sqlite3.Connection, path: Path, *, readonly: bool, begun: bool) -> None:
    """Make the tables where there are none, and see that this is a ledger that can be read.

    Args:
        connection: to the file, or to an empty one in memory in its place.
        path: the file, for the error.
        readonly: whether nothing is to be written.
        begun: whether the file holds anything yet.

    Raises:
        InputError: it is no ledger, or one of another version.
    """
    if (
        not (readonly and begun)
        and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    ):
        connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION_ID:
        raise InputError(f"{path}: is not a ledger of opensafeintent")
    if version != _SCHEMA_VERSION:
        raise InputError(
            f"{path}: is a ledger of version {version}; this program reads version"
            f" {_SCHEMA_VERSION}"
        )
    if not readonly:
        connection.execute("PRAGMA journal_mode = WAL")
        # a first write makes the log's file: by it a reader knows that the ledger is being written
        # (see connect)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


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


class Request(msgspec.Struct):
    """A request as a row holds it, as JSON."""

    messages: list[tuple[Role, list[str | int]]]
    """Role and parts; a long part is the id of a text."""
    sampling: dict[str, Any]


def read_request(request: Any) -> Request:
    """Return what a row holds under `request`.

    Raises:
        ValueError: it is no request.
    """
    return msgspec.json.decode(typed(request, str), type=Request)


class Texts:
    """The texts that rows refer to, each of them once."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id_of(self, connection: sqlite3.Connection, text: str) -> int:
        """Return the id of a text, which is added if it is not there."""
        if (known := self._ids.get(text)) is not None:
            return known
        raw = text.encode()
        sha = bytes.fromhex(sha256_hex(raw))
        connection.execute(
            "INSERT OR IGNORE INTO texts (sha, body) VALUES (?, ?)", (sha, pack(raw))
        )
        identity: int = connection.execute("SELECT id FROM texts WHERE sha = ?", (sha,)).fetchone()[
            0
        ]
        if (
            len(self._ids) > _TEXTS_IN_MEMORY
        ):  # a cache, not a register: memory stays bounded in a run of any size
            self._ids.clear()
        self._ids[text] = identity
        return identity

    def forget(self) -> None:
        """Forget ids that may have been rolled back."""
        self._ids.clear()


def text_at(connection: sqlite3.Connection, identity: int) -> str:
    """Return a text by its id.

    Raises:
        ValueError, LookupError, zlib.error: it is not there, or is not what was kept.
    """
    row = connection.execute("SELECT sha, body FROM texts WHERE id = ?", (identity,)).fetchone()
    if row is None:
        raise LookupError(f"the text {identity} is not there")
    return text_of(*typed(row, tuple[bytes, bytes]))


def text_of(sha: bytes, body: bytes) -> str:
    """Return a text from its hash and its packed form.

    Raises:
        ValueError, zlib.error: it is not what was kept.
    """
    raw = unpack(body)
    if bytes.fromhex(sha256_hex(raw)) != sha:
        raise ValueError("a text is not the one whose hash stands beside it")
    return raw.decode()


def pack(raw: bytes) -> bytes:
    """Compress what is worth it, and have a checksum on all; the first byte tells.

    `z`: zlib, which ends with an Adler-32. `c`: a CRC-32 of four bytes, then the bytes themselves.
    """
    if len(raw) > _COMPRESS:
        return b"z" + zlib.compress(raw, 1)
    return b"c" + zlib.crc32(raw).to_bytes(4) + raw


def unpack(body: bytes) -> bytes:
    """Return what was packed.

    Raises:
        ValueError, zlib.error: the bytes are not those that were packed.
    """
    match body[:1]:
        case b"z":
            stream = zlib.decompressobj()
            raw = stream.decompress(body[1:], _LONGEST)
            if not stream.eof or stream.unused_data:
                raise ValueError("a packed text does not end where it should")
            return raw
        case b"c" if zlib.crc32(body[5:]).to_bytes(4) == body[1:5]:
            return body[5:]
    raise ValueError("a packed text is not what was packed")


def reason(error: Exception) -> str:
    """Return what is wrong with a file, without its name."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
