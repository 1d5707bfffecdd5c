"""The file that keeps batches and their calls, beside the ledger that their results go into.

Each step of a batch is on disk before the next one begins. So a program that is killed knows what
it may have submitted, and submits nothing twice.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from opensafeintent.calls.ledger_rows import (
    Texts,
    check_beside,
    check_types,
    checkpoint_and_close,
    read_packed,
    reason,
    unpack_text,
)
from opensafeintent.calls.records import Call, Purpose, Sampling
from opensafeintent.errors import InputError
from opensafeintent.templates.template import Message, MessageRole

BatchState = Literal["planned", "uploaded", "submitting", "open", "ended"]
"""`planned`: nothing was sent. `uploaded`: the file is there, and no batch. `submitting`: a batch
was requested, and it is not known to exist. `open`: it exists. `ended`: its results are stored.
"""

_APPLICATION_ID = 0x4F534962  # "OSIb"
_VERSION = 2
_SHARED_TEXT = 80
"""Characters; a shorter part costs less inline than by reference."""
_TEXTS_KEPT = 1_000
_SCHEMA = f"""
CREATE TABLE texts (id INTEGER PRIMARY KEY, sha BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE batches (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  base_url TEXT NOT NULL,
  account TEXT NOT NULL,
  state TEXT NOT NULL,
  mark TEXT NOT NULL,
  file TEXT NOT NULL,
  remote TEXT NOT NULL,
  lines INTEGER NOT NULL,
  planned REAL NOT NULL,
  tried REAL NOT NULL,
  opened REAL NOT NULL,
  ended REAL NOT NULL,
  status TEXT NOT NULL,
  answered INTEGER NOT NULL,
  note TEXT NOT NULL
);
CREATE TABLE lines (key BLOB PRIMARY KEY, batch INTEGER, model TEXT NOT NULL, call BLOB NOT NULL)
  WITHOUT ROWID;
CREATE INDEX of_batch ON lines (batch, model);
CREATE TABLE downloads (batch INTEGER NOT NULL, name TEXT NOT NULL, content BLOB NOT NULL,
  equal INTEGER NOT NULL, at REAL NOT NULL, PRIMARY KEY (batch, name)) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
"""


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, as far as it has come. Times are seconds since 1970, 0 if there is none."""

    id: int
    model: str
    base_url: str
    account: str
    """A hash of the key that it was made with."""
    state: BatchState
    mark: str
    file: str
    """Id of the uploaded file."""
    remote: str
    """Id of the batch."""
    lines: int
    planned: float
    tried: float
    """Time of the last request to create it."""
    opened: float
    ended: float
    status: str
    """The last state in the provider's words."""
    answered: int
    """Lines with an answer or a refusal."""
    note: str
    """What its end was like, for people."""


class Downloads(NamedTuple):
    """The last downloads of a file of results, as far as they were equal."""

    content: bytes
    """A hash of what they hold."""
    equal: int
    at: float
    """Time of the last one that counts."""


class _PackedCall(msgspec.Struct, array_like=True):
    """A call as a row holds it: a long part of a message is the id of a text."""

    purpose: Purpose
    epoch: int
    attempt: int
    template: str
    template_hash: str
    sampling: Sampling
    messages: list[tuple[MessageRole, list[str | int]]]


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_PackedCall).decode


def store_path(ledger: Path) -> Path:
    """Return the path of the batches of a ledger."""
    return ledger.with_name(f"{ledger.stem}-batches.sqlite")


class BatchStore:
    """The batches of one ledger, of which one process at a time has the lock for writing.

    Args:
        path: the file, which is made if it is missing.
        readonly: whether nothing is to be written; the file has to exist.

    Raises:
        InputError: the file is none of this program's, or cannot be read or written.
    """

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self.path = path
        self._texts = Texts()
        self._unpacked: dict[int, str] = {}
        if path.is_symlink():
            raise InputError(f"{path}: is a link; expected the file of batches itself")
        with self._usable():
            check_beside(path)
            mode = "rw" if readonly else "rwc"
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=30,
                check_same_thread=False,
            )
            try:
                self._prepare(readonly=readonly)
            except BaseException:  # an interruption too: a file that was refused is not held open
                self._connection.close()
                raise

    def _prepare(self, *, readonly: bool) -> None:
        execute = self._connection.execute
        if not readonly:
            self.path.chmod(0o600)
            execute("PRAGMA journal_mode = WAL")
            # each commit is on disk when it returns
            execute("PRAGMA synchronous = FULL")
            if execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                self._connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        with contextlib.closing(sqlite3.connect(":memory:")) as ours:
            ours.executescript(_SCHEMA)
            # a file of others might do anything by a trigger
            if _contents(self._connection) != _contents(ours):
                raise InputError(f"{self.path}: expected a file of batches of this version")

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, LookupError) as error:
            raise InputError(
                f"{self.path}: the file of batches cannot be used: {reason(error)}"
            ) from error

    @contextlib.contextmanager
    def _change(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Make some changes one, which is on disk at the end."""
        with self._usable():
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            try:
                yield execute
                execute("COMMIT")
            except BaseException:  # on any error, no half of a change stays
                self._texts.forget()
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        checkpoint_and_close(self._connection)

    # Calls

    def stage(self, calls: Iterable[tuple[bytes, Call]]) -> int:
        """Keep calls for a batch to come, but for those that a batch holds; return how many are
        new.
        """
        count = 0
        with self._change() as execute:
            for key, call in calls:
                held = execute("SELECT 1 FROM lines WHERE key = ?", (key,)).fetchone()
                if held is None:
                    packed = self._pack_call(call)
                    execute("INSERT INTO lines VALUES (?, NULL, ?, ?)", (key, call.model, packed))
                    count += 1
        return count

    def count_staged(self, model: str) -> int:
        """Return how many calls of a model wait for a batch."""
        with self._usable():
            row = self._connection.execute(
                "SELECT count(*) FROM lines WHERE batch IS NULL AND model = ?", (model,)
            )
            return int(row.fetchone()[0])

    def calls(self, model: str, batch: int | None = None) -> Iterator[tuple[bytes, Call]]:
        """Yield the calls of a model in a batch, or without one, by key."""
        condition = "batch IS NULL" if batch is None else "batch = ?"
        values = [] if batch is None else [batch]
        with self._usable():
            rows = self._connection.execute(
                f"SELECT key, call FROM lines WHERE {condition} AND model = ? ORDER BY key",
                [*values, model],
            )
            for key, packed in rows:
                yield check_types(key, bytes), self._call(model, check_types(packed, bytes))

    def keys(self, batch: StoredBatch) -> list[bytes]:
        """Return the keys of a batch's calls."""
        with self._usable():
            rows = self._connection.execute("SELECT key FROM lines WHERE batch = ?", (batch.id,))
            return [check_types(key, bytes) for (key,) in rows]

    def find(self, batch: StoredBatch, keys: Collection[bytes]) -> dict[bytes, Call]:
        """Return the calls of a batch with some keys."""
        with self._usable():
            rows = self._connection.execute(
                f"SELECT key, call FROM lines WHERE batch = ? AND key IN"
                f" ({', '.join('?' * len(keys))})",
                (batch.id, *keys),
            ).fetchall()
            return {
                check_types(key, bytes): self._call(batch.model, check_types(packed, bytes))
                for key, packed in rows
            }

    def unstage(self, model: str | None = None) -> None:
        """Forget the calls without a batch, of one model or all."""
        with self._change() as execute:
            if model is None:
                execute("DELETE FROM lines WHERE batch IS NULL")
            else:
                execute("DELETE FROM lines WHERE batch IS NULL AND model = ?", (model,))

    def unstage_call(self, key: bytes) -> None:
        """Forget a call without a batch."""
        with self._change() as execute:
            execute("DELETE FROM lines WHERE batch IS NULL AND key = ?", (key,))

    def _pack_call(self, call: Call) -> bytes:
        def share_text(part: str) -> str | int:
            if len(part) < _SHARED_TEXT:
                return part
            return self._texts.find_text_id(self._connection, part)

        return _pack(
            _PackedCall(
                call.purpose,
                call.epoch,
                call.attempt,
                call.template,
                call.template_hash,
                call.sampling,
                [(message.role, list(map(share_text, message.parts))) for message in call.messages],
            )
        )

    def _call(self, model: str, packed: bytes) -> Call:
        data = _unpack(packed)
        return Call(
            model=model,
            messages=tuple(
                Message(role, tuple(map(self._part, parts))) for role, parts in data.messages
            ),
            sampling=data.sampling,
            purpose=data.purpose,
            epoch=data.epoch,
            attempt=data.attempt,
            template=data.template,
            template_hash=data.template_hash,
        )

    def _part(self, part: str | int) -> str:
        if isinstance(part, str):
            return part
        if part not in self._unpacked:
            if len(self._unpacked) >= _TEXTS_KEPT:
                self._unpacked.clear()
            self._unpacked[part] = unpack_text(*read_packed(self._connection, part))
        return self._unpacked[part]

    # Files of results

    def downloads(self, batch: StoredBatch, name: str) -> Downloads | None:
        """Return the last downloads of a file of a batch; None if there is none."""
        with self._usable():
            row = self._connection.execute(
                "SELECT content, equal, at FROM downloads WHERE batch = ? AND name = ?",
                (batch.id, name),
            ).fetchone()
            return row and msgspec.convert(row, Downloads)

    def note_download(
        self, batch: StoredBatch, name: str, content: bytes, apart: float
    ) -> Downloads:
        """Count a download, if it differs from the last one that counts or is so many seconds
        apart from it.
        """
        last, now = self.downloads(batch, name), time.time()
        if last is None or last.content != content:
            last = Downloads(content, 1, now)
        elif is_apart(last.at, apart):
            last = Downloads(content, last.equal + 1, now)
        with self._change() as execute:
            execute("REPLACE INTO downloads VALUES (?, ?, ?, ?, ?)", (batch.id, name, *last))
        return last

    def find_file(self, batch: StoredBatch, name: str) -> Path:
        """Return the path for a file of results, which is kept no longer than the batch is open."""
        return self.path.with_name(f".{self.path.stem}-{batch.id}-{name}.jsonl")

    def remove_files(self) -> None:
        """Remove the files of results of batches that are not open."""
        is_open = {str(batch.id) for batch in self.batches("open")}
        name = re.compile(rf"\.{re.escape(self.path.stem)}-(\d+)-[a-z-]+\.jsonl")
        for path in self.path.parent.iterdir():
            if (match := name.fullmatch(path.name)) and match[1] not in is_open:
                path.unlink(missing_ok=True)

    # Batches

    def batches(self, *states: BatchState, model: str | None = None) -> list[StoredBatch]:
        """Return the batches in some states, or all, the oldest first."""
        with self._usable():
            cursor = self._connection.execute("SELECT * FROM batches ORDER BY id")
            names = [column[0] for column in cursor.description]
            found = [
                msgspec.convert(dict(zip(names, row, strict=True)), StoredBatch) for row in cursor
            ]
        return [
            batch
            for batch in found
            if (not states or batch.state in states) and model in (None, batch.model)
        ]

    def plan(
        self, model: str, base_url: str, account: str, mark: str, keys: Collection[bytes]
    ) -> StoredBatch:
        """Make a batch of some staged calls: the intent to submit it."""
        values = (model, base_url, account, mark, len(keys), time.time())
        with self._change() as execute:
            number = execute(
                "INSERT INTO batches VALUES"
                " (NULL, ?, ?, ?, 'planned', ?, '', '', ?, ?, 0, 0, 0, '', 0, '')",
                values,
            ).lastrowid
            self._connection.executemany(
                "UPDATE lines SET batch = ? WHERE key = ?", ((number, key) for key in keys)
            )
        return self._get_batch(number)

    def advance(self, batch: StoredBatch, state: BatchState, **fields: Any) -> StoredBatch:
        """Note the next state of a batch, with further fields."""
        with self._change() as execute:
            _update_batch(execute, batch, state=state, **fields)
        return self._get_batch(batch.id)

    def end(self, batch: StoredBatch, **fields: Any) -> None:
        """Note that a batch has ended and its results are in the ledger; forget its calls."""
        with self._change() as execute:
            _update_batch(execute, batch, state="ended", ended=time.time(), **fields)
            execute("DELETE FROM lines WHERE batch = ?", (batch.id,))
            execute("DELETE FROM downloads WHERE batch = ?", (batch.id,))
            is_last = execute("SELECT 1 FROM lines LIMIT 1").fetchone() is None
            if is_last:
                execute("DELETE FROM texts")
                self._texts.forget()
                self._unpacked.clear()
        if is_last:
            with self._usable():
                # texts leave the file, and not only its tables
                self._connection.execute("VACUUM")

    def give_back(self, batch: StoredBatch) -> None:
        """Take back the intent of a batch that does not exist, or has failed before its first line:
        its calls wait for another one.
        """
        with self._change() as execute:
            execute("UPDATE lines SET batch = NULL WHERE batch = ?", (batch.id,))
            execute("DELETE FROM downloads WHERE batch = ?", (batch.id,))
            execute("DELETE FROM batches WHERE id = ?", (batch.id,))

    def _get_batch(self, number: int | None) -> StoredBatch:
        return next(batch for batch in self.batches() if batch.id == number)


def is_apart(earlier: float, seconds: float) -> bool:
    """Tell whether so many seconds lie between an earlier time and now, by a clock that may have
    been set back.
    """
    return abs(time.time() - earlier) >= seconds


def _update_batch(
    execute: Callable[..., sqlite3.Cursor], batch: StoredBatch, **fields: Any
) -> None:
    names = ", ".join(f"{name} = ?" for name in fields)
    execute(f"UPDATE batches SET {names} WHERE id = ?", (*fields.values(), batch.id))


def _contents(connection: sqlite3.Connection) -> list[Any]:
    """Return the stamps and the schema of a database."""
    execute = connection.execute
    stamps = [execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
    return [*stamps, *execute("SELECT type, name, sql FROM sqlite_master ORDER BY name")]
