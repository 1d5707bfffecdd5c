"""The durable record of every call, keyed by content. Rows are only ever added (one exception: `ledger_file`)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import msgspec

from opensafeintent.calls.imports import Imports
from opensafeintent.calls.ledger_file import Texts, connect, pack, prepare, reading, reason, text_at, unpack
from opensafeintent.calls.records import REPLIED, Answered, Call, Message, NotAnAnswer, Refused, Usage, read_reply
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError

__all__ = ["Entry", "Ledger"]

_BATCH_SECONDS = 0.05
_SHARED_TEXT = 80  # characters; a shorter part costs less inline than by reference


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a call: what becomes one row."""

    key: bytes
    call: Call
    status: str
    """`answered`, `refused` or `failed`."""
    body: bytes = b""
    """The raw response, whatever came."""
    stop_reason: str = ""
    usage: Usage = Usage()
    served_model: str = ""
    seconds: float = 0.0
    error: str = ""


class Ledger:
    """A ledger file, open for reading on the caller's thread and written in batches by a thread of its own.

    `with Ledger(path) as ledger:` creates the file where it is not there, private to its user. `readonly=True` neither
    creates nor writes; with `missing_ok=True` a file that is not there reads as a ledger without rows.

    Raises:
        InputError: the file is not a ledger, is of a newer version, or cannot be read or written.
    """

    def __init__(self, path: Path, *, readonly: bool = False, missing_ok: bool = False) -> None:
        self.path = path
        self._pending: dict[bytes, Answered | Refused] = {}
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        self._error: Exception | None = None
        self._texts = Texts()
        self._thread: threading.Thread | None = None
        try:
            if not readonly:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            # a run that was killed as it began leaves an empty file: to a reader, a ledger without rows
            begun = not readonly or not ((missing_ok and not path.exists()) or path.stat().st_size == 0)
            self._reader = connect(path, readonly=readonly) if begun else sqlite3.connect(":memory:", isolation_level=None)
            prepare(self._reader, path, readonly=readonly, begun=begun)
            self.imports = Imports(path, self._reader, self._texts)
            """Responses from elsewhere."""
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: cannot open the ledger: {reason(error)}") from error
        if not readonly:
            self._thread = threading.Thread(target=self._write_forever, name="ledger", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def find(self, key: bytes) -> Answered | Refused | None:
        """Return the outcome that satisfies a key, if there is one."""
        if (outcome := self._pending.get(key)) is not None:
            return outcome
        with reading(self.path):
            row = self._reader.execute(
                "SELECT status, response, error, input_tokens, output_tokens, served_model FROM calls "
                "WHERE key = ? AND status <> 'failed'",
                (key,),
            ).fetchone()
            if row is None:
                return None
            status, body, error, input_tokens, output_tokens, served = row
            if status == "refused":
                return Refused(reason=error, usage=Usage(input_tokens, output_tokens), served_model=served)
            try:
                return read_reply(unpack(body))
            except NotAnAnswer:  # an earlier version of the program wrote it, while we were reading
                return None

    def last_failure(self, key: bytes) -> str | None:
        """Return how the last attempt at a call failed, as `kind: error`, if one is on record."""
        with reading(self.path):
            row = self._reader.execute(
                "SELECT error FROM calls WHERE key = ? AND status = 'failed' ORDER BY id DESC LIMIT 1", (key,)
            ).fetchone()
        return row[0] if row else None

    def answering_models(self) -> set[str]:
        """Return the names of the models that have replied at least once: an answer, a refusal, or without either."""
        with reading(self.path):
            rows = self._reader.execute(
                "SELECT DISTINCT model FROM calls WHERE status <> 'failed' OR error GLOB ? OR error GLOB ?",
                tuple(f"{start}*" for start in REPLIED),
            ).fetchall()
        return {name for (name,) in rows}

    def usage_of(self, keys: Iterable[bytes]) -> dict[tuple[str, str], tuple[int, int, int]]:
        """Return (calls, input tokens, output tokens) of the calls with these keys, by (purpose, model)."""
        totals: dict[tuple[str, str], tuple[int, int, int]] = {}
        with reading(self.path):
            for key in keys:
                row = self._reader.execute(
                    "SELECT purpose, model, input_tokens, output_tokens FROM calls WHERE key = ? AND status <> 'failed'",
                    (key,),
                ).fetchone()
                if row is not None:
                    purpose, model, *tokens = row
                    before = totals.get((purpose, model), (0, 0, 0))
                    totals[purpose, model] = (before[0] + 1, before[1] + tokens[0], before[2] + tokens[1])
        return totals

    def rows_of(self, key: bytes) -> Iterator[tuple[Any, ...]]:
        """Yield (id, status, stop reason, created) of every attempt at a call, the one that satisfies it first."""
        with reading(self.path):
            rows = self._reader.execute(
                "SELECT id, status, stop_reason, created FROM calls WHERE key = ? ORDER BY status = 'failed', id", (key,)
            ).fetchall()
        yield from rows

    def count(self, status: str | None = None) -> int:
        """Return how many attempts are on record, all or those of one status."""
        where, values = ("WHERE status = ?", (status,)) if status else ("", ())
        total: int = self._reader.execute(f"SELECT count(*) FROM calls {where}", values).fetchone()[0]
        return total

    # Writing

    def add(self, entry: Entry, outcome: Answered | Refused | None = None) -> None:
        """Record one attempt; it is on disk within a twentieth of a second. `outcome` is what satisfies the key, if it does.

        Raises:
            InputError: an earlier row could not be written (disk full, file gone).
        """
        self.check()
        if outcome is not None:
            self._pending[entry.key] = outcome
        self._queue.put(entry)

    def check(self) -> None:
        """Raise what has kept the writer from writing, if anything has."""
        if self._error is not None:
            raise InputError(f"{self.path}: cannot write the ledger: {reason(self._error)}") from self._error

    def close(self) -> None:
        """Write what is waiting and close the file.

        Raises:
            InputError: what was waiting could not be written.
        """
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._reader.close()
        self.check()

    def _write_forever(self) -> None:
        try:
            connection = connect(self.path)
            connection.execute("PRAGMA synchronous = NORMAL")
            while (batch := self._next_batch()) is not None:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    rows = [self._row(connection, entry) for entry in batch]
                    connection.executemany(
                        f"INSERT OR IGNORE INTO calls VALUES (NULL{', ?' * len(rows[0])})",
                        rows,
                    )
                for entry in batch:
                    if entry.status != "failed":
                        self._pending.pop(entry.key, None)
            connection.close()
        except Exception as error:  # whatever ends this thread has to be told: rows would be lost in silence
            self._error = error

    def _next_batch(self) -> list[Entry] | None:
        """Wait for rows and gather what comes within a twentieth of a second; None when the ledger closes."""
        first = self._queue.get()
        if first is None:
            return None
        batch, until = [first], time.monotonic() + _BATCH_SECONDS
        while (left := until - time.monotonic()) > 0:
            try:
                time.sleep(left)
                while True:
                    entry = self._queue.get_nowait()
                    if entry is None:
                        self._queue.put(None)
                        return batch
                    batch.append(entry)
            except Empty:
                continue
        return batch

    def _row(self, connection: sqlite3.Connection, entry: Entry) -> tuple[Any, ...]:
        call = entry.call
        return (
            entry.key,
            call.model,
            call.purpose,
            call.template,
            call.template_hash,
            call.epoch,
            call.attempt,
            self._request(connection, call),
            entry.status,
            entry.stop_reason,
            entry.usage.input_tokens,
            entry.usage.output_tokens,
            entry.served_model,
            round(entry.seconds, 4),
            entry.error,
            pack(entry.body),
            datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def _request(self, connection: sqlite3.Connection, call: Call) -> str:
        """Return the request as JSON in which a long part of a message is the id of a text (an integer)."""
        messages = [
            [
                message.role,
                [self._texts.id_of(connection, part) if len(part) >= _SHARED_TEXT else part for part in message.parts],
            ]
            for message in call.messages
        ]
        return canonical_json({"messages": messages, "sampling": call.sampling}).decode()

    def request(self, row_id: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return the messages and sampling of one row, its texts put back."""
        request = self._reader.execute("SELECT request FROM calls WHERE id = ?", (row_id,)).fetchone()[0]
        data = msgspec.json.decode(request)
        messages = tuple(
            Message(role, tuple(part if isinstance(part, str) else text_at(self._reader, part) for part in parts))
            for role, parts in data["messages"]
        )
        return messages, data["sampling"]
