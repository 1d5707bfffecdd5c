"""The writing side of a ledger."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from opensafeintent.calls.ledger_rows import T, Texts, close_whole, connect, pack, reason
from opensafeintent.calls.records import Answered, Attempt, Call, Failure, Refused, Replied, Usage
from opensafeintent.calls.replies import protocol_named, usage_in
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json
from opensafeintent.templates.template import MessageRole as Role

_BATCH_SECONDS = 0.05

_SHARED_TEXT_CHARS = 80  # characters; a shorter part costs less inline than by reference

_CATCH_UP_SECONDS = 0.01

_MOST_WAITING_ROWS = 1_000
"""Rows that may wait before the thread that adds rows lets the writer catch up. Without this limit
a busy loop left the writer hardly any time: 80,000 answers once waited to be written.
"""

RESERVED_BYTES = 8 * 2**20
"""Bytes of the disk that a ledger keeps while it is written: enough for the answers on their way
and for those of the commit in hand, if the disk is full.
"""

_WRITE_BYTES = 2**20

_FILE_REPLACED = "the file was deleted or replaced while it was written"


class LedgerEntry(msgspec.Struct, frozen=True):
    """One attempt at a call; it becomes one row."""

    key: bytes
    call: Call
    attempt: Attempt

    @property
    def outcome(self) -> Answered | Refused | None:
        """The outcome that satisfies the key, if the attempt does."""
        return self.attempt.outcome if isinstance(self.attempt, Replied) else None

    @property
    def usage(self) -> Usage:
        """The tokens that the reply reports, of any kind of reply."""
        attempt = self.attempt
        if isinstance(attempt, Replied):
            return attempt.outcome.usage
        return usage_in(attempt.body, protocol_named(attempt.protocol)) if attempt.body else Usage()


class LedgerWriter:
    """The writer of one ledger.

    A file beside the ledger keeps `RESERVED_BYTES` of the disk. After a failed write it is removed,
    `failure` is set, and `on_failure` has been called, so that no further call begins. Answers of
    the calls then in flight are written into that room.

    Args:
        path: the ledger, which exists.
        texts: ids of its texts.
        written: called with the keys of recorded outcomes, on the writer's thread.

    Raises:
        InputError: the disk has not that much room.
    """

    def __init__(
        self, path: Path, texts: Texts, written: Callable[[Iterable[bytes]], None]
    ) -> None:
        self.failure: InputError | None = None
        self.on_failure: list[Callable[[InputError], None]] = []
        self._path = path
        self._file = _get_file_identity(path)
        self._texts = texts
        self._written = written
        self._queue: SimpleQueue[LedgerEntry | None] = SimpleQueue()
        """None is the end."""
        self._room = path.resolve().with_name(f".{path.name}.room")
        _reserve_disk_space(self._room, path)
        # a run may use up its open files: paid answers are written even then
        self._connection = connect(path)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("SELECT 1 FROM calls LIMIT 1").fetchall()  # opens the log
        self._spare = Path(os.devnull).open("rb")  # noqa: SIM115
        """Closed to let SQLite open another file."""
        self._cannot_write: Exception | None = None
        self._added = 0
        """Rows that were handed over."""
        self._handled = 0
        """Those of them that were written, or cannot be."""
        self._kept = 0
        """Answers that are stored."""
        self._unwritten: list[LedgerEntry] = []
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    # The asking side

    @property
    def waiting(self) -> int:
        """Rows that are still to be written."""
        return self._added - self._handled

    def add(self, entry: LedgerEntry) -> None:
        """Write a row."""
        self._added += 1
        self._queue.put(entry)
        if (
            self._queue.qsize() > _MOST_WAITING_ROWS
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
                self._write_again(entries)
            self._handled += len(entries)
        self._finish()

    def _next_batch(self) -> list[LedgerEntry | None]:
        """Wait for a row, and gather the rows that follow shortly after."""
        batch = [self._queue.get()]
        time.sleep(_BATCH_SECONDS)
        with contextlib.suppress(Empty):
            while True:
                batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, entries: Sequence[LedgerEntry]) -> None:
        """Write in one transaction."""
        if not entries:
            return
        if _get_file_identity(self._path) != self._file:
            raise OSError(_FILE_REPLACED)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            rows = [self._values(connection, entry) for entry in entries]
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
        self._give_up_room()
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._stop(InputError(f"{self._path}: cannot write the ledger: {reason(error)}"))

    def _stop(self, failure: InputError) -> None:
        if self.failure is None:
            self.failure = failure
            for tell in self.on_failure:
                tell(failure)

    def _give_up_room(self) -> None:
        with contextlib.suppress(OSError):  # the folder may be gone
            self._room.unlink(missing_ok=True)

    def _write_again(self, entries: Sequence[LedgerEntry]) -> None:
        """Write rows together or, where that fails, each by itself: a single row may be the
        obstacle.
        """
        try:
            self._commit(entries)
        except Exception:  # how many answers are lost is said at the end
            if len(entries) == 1:
                self._unwritten += entries
            else:
                for entry in entries:
                    self._write_again([entry])

    def _finish(self) -> None:
        """Try once more to write the failed rows, and report the result."""
        last, self._unwritten = self._unwritten, []
        self._write_again(last)
        lost = sum(entry.outcome is not None for entry in self._unwritten)
        if _get_file_identity(self._path) != self._file:
            self._fail(OSError(_FILE_REPLACED))
            lost += self._kept
        self._give_up_room()
        close_whole(self._connection)
        self._spare.close()
        if self._cannot_write is not None:
            answers = f"answers that came and are lost: {lost:,}"
            kept = "every answer that came is kept"
            self.failure = InputError(
                f"{self.failure}; no further call was made; {answers if lost else kept}"
            )
            self.failure.__cause__ = self._cannot_write

    def _values(self, connection: sqlite3.Connection, entry: LedgerEntry) -> tuple[Any, ...]:
        call, attempt = entry.call, entry.attempt
        match attempt:
            case Replied(outcome=Answered(stop_reason=stop_reason)):
                status, error = "answered", ""
            case Replied(outcome=Refused(reason=error)):
                status, stop_reason = "refused", "content_filter"
            case Failure(kind=kind, error=why):
                status, stop_reason, error = "failed", "", f"{kind}: {why}"
        usage = entry.usage
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
            usage.cached_tokens,
            usage.cache_write_tokens,
            entry.outcome.served_model if entry.outcome else "",
            attempt.tier,
            attempt.protocol,
            round(attempt.seconds, 4),
            error,
            pack(attempt.body),
            datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def _request(self, connection: sqlite3.Connection, call: Call) -> str:
        def store_text(part: str) -> str | int:
            return (
                self._texts.find_text_id(connection, part)
                if len(part) >= _SHARED_TEXT_CHARS
                else part
            )

        messages = ((message.role, message.parts) for message in call.messages)
        return encode_request(messages, call.sampling, store_text)


def encode_request(
    messages: Iterable[tuple[Role, Iterable[T]]],
    sampling: Any,
    kept: Callable[[T], str | int],
) -> str:
    """Return a request as JSON.

    Args:
        messages: role and parts of each.
        sampling: of the request.
        kept: returns a part as the row holds it: a long one as the id of a text.
    """
    parts = [(role, list(map(kept, parts))) for role, parts in messages]
    return canonical_json({"messages": parts, "sampling": sampling}).decode()


def _reserve_disk_space(room: Path, ledger: Path) -> None:
    """Write a file that keeps room on the disk, in place of one that a killed process left.

    Raises:
        InputError: there is not enough.
    """
    try:
        room.unlink(missing_ok=True)
        descriptor = os.open(room, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            # a file system that compresses would keep no room for zeros
            file.write(os.urandom(_WRITE_BYTES) * (RESERVED_BYTES // _WRITE_BYTES))
    except OSError as error:
        with contextlib.suppress(OSError):
            room.unlink(missing_ok=True)
        raise InputError(
            f"{ledger}: cannot keep {RESERVED_BYTES >> 20} MiB of the disk for the last answers:"
            f" {reason(error)}; make room, or use another folder"
        ) from error


def _get_file_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which a replacement of the same name does not share; None if
    there is none.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
