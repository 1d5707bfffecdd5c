"""The writing side of a ledger: rows, in batches, on a thread of its own."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from opensafeintent.calls.ledger_file import Texts, connect, pack, reason
from opensafeintent.calls.records import Answered, Attempt, Call, Failure, Refused, Replied, Usage
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError
from opensafeintent.messages import Message

_BATCH_SECONDS = 0.05
_SHARED_TEXT = 80  # characters; a shorter part costs less inline than by reference

_CATCH_UP_SECONDS = 0.01
_MOST_WAITING = 1_000
"""Rows that may wait before whoever adds a row lets the writer catch up: a loop that is never idle
leaves it hardly any time, and 80,000 answers once stood unwritten."""


_GONE = "the file was deleted or replaced while it was written"


class Entry(msgspec.Struct, frozen=True):
    """One attempt at a call: what becomes one row."""

    key: bytes
    call: Call
    attempt: Attempt

    @property
    def outcome(self) -> Answered | Refused | None:
        """What satisfies the key, if the attempt does."""
        return self.attempt.outcome if isinstance(self.attempt, Replied) else None


class Writer:
    """What is written to one ledger.

    A write that fails is the last that was asked for: from then on `failure` is set, and
    `on_failure` has been told. What comes in all the same, the answers of calls in flight, is still
    written where there is room for it.

    Args:
        path: the ledger, which is there.
        texts: ids of its texts.
        written: called with the keys of outcomes that are on record, on the writer's thread.
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
        self._connection: sqlite3.Connection | None = None
        self._cannot_write: Exception | None = None
        self._kept = 0
        """Answers that are on record."""
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
        """Write what is waiting, and end.

        Raises:
            InputError: something could not be written; the text says how many answers are lost.
        """
        self._queue.put(None)
        try:
            self._thread.join()
        except KeyboardInterrupt:  # however urgent it is: what was answered is written first
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
            except Exception as error:  # whatever it is must not pass in silence
                self._fail(error)
                self._write_singly(entries)
        self._finish()

    def _next_batch(self) -> list[Entry | None]:
        """Wait until there is something to do, and gather what comes shortly after."""
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
        if self._file_is_gone():
            raise OSError(_GONE)
        if self._connection is None:
            self._connection = connect(self._path)
            self._connection.execute("PRAGMA synchronous = NORMAL")
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            rows = [self._values(connection, entry) for entry in entries]
            added = connection.executemany(
                f"INSERT OR IGNORE INTO calls VALUES (NULL{', ?' * len(rows[0])})", rows
            ).rowcount
            connection.execute("COMMIT")
        except BaseException:  # whatever it was, no half of a transaction stays
            self._texts.forget()  # those that were new are not there
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if added < len(rows):  # what is at work here took other answers than those on record
            self._stop(
                InputError(
                    f"{self._path}: another process has written into this ledger; run the command"
                    " again"
                )
            )
        outcomes = [entry.key for entry in entries if entry.outcome]
        self._kept += len(outcomes)
        self._written(outcomes)

    def _file_is_gone(self) -> bool:
        return _identity(self._path) != self._file

    def _fail(self, error: Exception) -> None:
        self._cannot_write = self._cannot_write or error
        if self._connection is not None:
            self._connection.execute("PRAGMA busy_timeout = 0")
        self._stop(InputError(f"{self._path}: cannot write the ledger: {reason(error)}"))

    def _stop(self, failure: InputError) -> None:
        if self.failure is None:
            self.failure = failure
            for tell in self.on_failure:
                tell(failure)

    def _write_singly(self, entries: Sequence[Entry]) -> None:
        """Write what there is room for: what stands in the way may be one row."""
        for entry in entries:
            try:
                self._commit([entry])
            except Exception:  # how many answers are lost is said at the end
                self._unwritten.append(entry)

    def _finish(self) -> None:
        """Try once more to write what could not be written, and say how that went."""
        last, self._unwritten = self._unwritten, []
        self._write_singly(last)
        lost = sum(entry.outcome is not None for entry in self._unwritten)
        if self._file_is_gone():
            self._fail(OSError(_GONE))
            lost += self._kept
        if self._connection is not None:
            self._connection.close()
        if self._cannot_write is not None:
            answers = f"answers that came and are lost: {lost:,}"
            if not lost:
                answers = "every answer that came is kept"
            self.failure = InputError(f"{self.failure}; no further call was made; {answers}")
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
            stored_request(connection, self._texts, call.messages, call.sampling),
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


def stored_request(
    connection: sqlite3.Connection, texts: Texts, messages: Sequence[Message], sampling: Any
) -> str:
    """Return a request as JSON in which a long part of a message is the id of a text (an
    integer).
    """
    parts = [
        [
            message.role,
            [
                texts.id_of(connection, part) if len(part) >= _SHARED_TEXT else part
                for part in message.parts
            ],
        ]
        for message in messages
    ]
    return canonical_json({"messages": parts, "sampling": sampling}).decode()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of its name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
