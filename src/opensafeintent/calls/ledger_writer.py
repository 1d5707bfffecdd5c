"""The thread that writes the rows of a ledger."""

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

from opensafeintent.calls.ledger_rows import (
    T,
    Texts,
    checkpoint_and_close,
    compress_with_checksum,
    connect,
    reason,
)
from opensafeintent.calls.records import Answered, Attempt, Call, Failure, Refused, Replied, Usage
from opensafeintent.calls.replies import protocol_named, usage_in
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json
from opensafeintent.templates.template import MessageRole as Role

_BATCH_SECONDS = 0.05
"""For so long the writer gathers rows that it commits together."""

_SHARED_TEXT_CHARS = 80
"""A part of a request with so many characters is stored once, and rows hold its id."""

_CATCH_UP_SECONDS = 0.01
"""For so long `LedgerWriter.add` waits if more than `_MOST_WAITING_ROWS` rows wait."""

_MOST_WAITING_ROWS = 1_000
"""Rows that may wait before the thread that adds rows lets the writer catch up. Without this limit
a busy loop left the writer hardly any time: 80,000 answers once waited to be written.
"""

RESERVED_BYTES = 8 * 2**20
"""Bytes of the disk that a ledger reserves while it is written. If the disk is full, they are
enough for the answers to calls in flight and for those of the present commit.
"""

_WRITE_BYTES = 2**20
"""The reserve is written in pieces of so many bytes."""

_FILE_REPLACED = "the file was deleted or replaced while it was written"


class LedgerEntry(msgspec.Struct, frozen=True):
    """One attempt at a call, which becomes one row of the ledger."""

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
    """Writes the rows of one ledger, in a thread of its own.

    A file beside the ledger (the reserve) holds `RESERVED_BYTES` of the disk. After a failed write
    it is removed, `failure` is set, and `on_failure` has been called, so that no further call
    begins. Answers of the calls then in flight are written into that room.

    Args:
        path: the ledger, which exists.
        texts: ids of its texts.
        on_written: called with the keys of recorded outcomes, on the writer's thread.

    Raises:
        InputError: the disk has not that much room.
    """

    def __init__(
        self, path: Path, texts: Texts, on_written: Callable[[Iterable[bytes]], None]
    ) -> None:
        self.failure: InputError | None = None
        self.on_failure: list[Callable[[InputError], None]] = []
        self._path = path
        self._file_identity = _get_file_identity(path)
        self._texts = texts
        self._on_written = on_written
        self._queue: SimpleQueue[LedgerEntry | None] = SimpleQueue()
        """None is the end."""
        self._reserve_file = path.resolve().with_name(f".{path.name}.room")
        _reserve_disk_space(self._reserve_file, path)
        # a run may use up its open files: paid answers are written even then
        self._connection = connect(path)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("SELECT 1 FROM calls LIMIT 1").fetchall()  # opens the log
        self._spare_descriptor = Path(os.devnull).open("rb")  # noqa: SIM115
        """Closed to let SQLite open another file."""
        self._write_error: Exception | None = None
        self._rows_added = 0
        """Rows that were passed to `add`."""
        self._rows_handled = 0
        """Rows that were written, or could not be."""
        self._outcomes_stored = 0
        """Outcomes that this writer has stored."""
        self._failed_entries: list[LedgerEntry] = []
        self._thread = threading.Thread(target=self._write_until_closed, name="ledger", daemon=True)
        self._thread.start()

    # Called from the thread that makes the calls

    @property
    def waiting(self) -> int:
        """The number of rows that are still to be written."""
        return self._rows_added - self._rows_handled

    def add(self, entry: LedgerEntry) -> None:
        """Add a row to the queue of the writer."""
        self._rows_added += 1
        self._queue.put(entry)
        if (
            self._queue.qsize() > _MOST_WAITING_ROWS
        ):  # a loop that is never idle leaves the writer no time
            time.sleep(_CATCH_UP_SECONDS)

    def close(self) -> None:
        """Write the waiting rows, and end the thread.

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

    # Called from the writer's thread

    def _write_until_closed(self) -> None:
        ended = False
        while not ended:
            batch = self._wait_for_batch()
            entries = [entry for entry in batch if entry is not None]
            ended = len(entries) < len(batch)
            try:
                self._commit(entries)
            except Exception as error:  # no error may pass in silence
                self._handle_write_error(error)
                self._retry(entries)
            self._rows_handled += len(entries)
        self._finish()

    def _wait_for_batch(self) -> list[LedgerEntry | None]:
        """Wait for a row, and gather the rows that follow shortly after."""
        batch = [self._queue.get()]
        time.sleep(_BATCH_SECONDS)
        with contextlib.suppress(Empty):
            while True:
                batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, entries: Sequence[LedgerEntry]) -> None:
        """Write rows in one transaction."""
        if not entries:
            return
        if _get_file_identity(self._path) != self._file_identity:
            raise OSError(_FILE_REPLACED)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            rows = [self._make_row(connection, entry) for entry in entries]
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
            self._report_failure(
                InputError(
                    f"{self._path}: another process has written into this ledger; run the command"
                    " again"
                )
            )
        outcomes = [entry.key for entry in entries if entry.outcome]
        self._outcomes_stored += len(outcomes)
        self._on_written(outcomes)

    def _handle_write_error(self, error: Exception) -> None:
        self._write_error = self._write_error or error
        self._spare_descriptor.close()
        self._release_reserve()
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._report_failure(InputError(f"{self._path}: cannot write the ledger: {reason(error)}"))

    def _report_failure(self, failure: InputError) -> None:
        if self.failure is None:
            self.failure = failure
            for callback in self.on_failure:
                callback(failure)

    def _release_reserve(self) -> None:
        with contextlib.suppress(OSError):  # the folder may be gone
            self._reserve_file.unlink(missing_ok=True)

    def _retry(self, entries: Sequence[LedgerEntry]) -> None:
        """Write rows together once more. If that fails, write each by itself, as a single row may
        be the cause.
        """
        try:
            self._commit(entries)
        except Exception:  # how many answers are lost is said at the end
            if len(entries) == 1:
                self._failed_entries += entries
            else:
                for entry in entries:
                    self._retry([entry])

    def _finish(self) -> None:
        """Try once more to write the failed rows, and report the result."""
        last, self._failed_entries = self._failed_entries, []
        self._retry(last)
        lost = sum(entry.outcome is not None for entry in self._failed_entries)
        if _get_file_identity(self._path) != self._file_identity:
            self._handle_write_error(OSError(_FILE_REPLACED))
            lost += self._outcomes_stored
        self._release_reserve()
        checkpoint_and_close(self._connection)
        self._spare_descriptor.close()
        if self._write_error is not None:
            answers = f"answers that came and are lost: {lost:,}"
            kept = "every answer that came is kept"
            self.failure = InputError(
                f"{self.failure}; no further call was made; {answers if lost else kept}"
            )
            self.failure.__cause__ = self._write_error

    def _make_row(self, connection: sqlite3.Connection, entry: LedgerEntry) -> tuple[Any, ...]:
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
            self._encode_request(connection, call),
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
            compress_with_checksum(attempt.body),
            datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def _encode_request(self, connection: sqlite3.Connection, call: Call) -> str:
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
    encode_part: Callable[[T], str | int],
) -> str:
    """Return a request as JSON.

    Args:
        messages: role and parts of each.
        sampling: of the request.
        encode_part: returns a part as the row holds it: a long one as the id of a text.
    """
    parts = [(role, list(map(encode_part, parts))) for role, parts in messages]
    return canonical_json({"messages": parts, "sampling": sampling}).decode()


def _reserve_disk_space(reserve: Path, ledger: Path) -> None:
    """Write the reserve file, in place of one that a killed process left.

    Raises:
        InputError: there is not enough.
    """
    try:
        reserve.unlink(missing_ok=True)
        descriptor = os.open(reserve, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            # a file system that compresses would keep no room for zeros
            file.write(os.urandom(_WRITE_BYTES) * (RESERVED_BYTES // _WRITE_BYTES))
    except OSError as error:
        with contextlib.suppress(OSError):
            reserve.unlink(missing_ok=True)
        raise InputError(
            f"{ledger}: cannot keep {RESERVED_BYTES >> 20} MiB of the disk for the last answers:"
            f" {reason(error)}; make room, or use another folder"
        ) from error


def _get_file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, by which it differs from a later file of its name; None if
    there is no file.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
