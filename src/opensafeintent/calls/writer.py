"""The writing side of a ledger: rows and claims, in batches, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.claims import Claimed, Claims, Sharing
from opensafeintent.calls.ledger_file import Texts, connect, pack, reason
from opensafeintent.calls.records import Answered, Attempt, Call, Failure, Refused, Replied, Usage
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError

__all__ = ["Entry", "Writer"]

_BATCH_SECONDS = 0.05
_SHARED_BATCH_SECONDS = 0.02
"""Where a call waits for its claim and its outcome for being on record, they wait less."""
_SHARED_TEXT = 80  # characters; a shorter part costs less inline than by reference

_CATCH_UP_SECONDS = 0.01
_MOST_WAITING = 1_000
"""Rows and claims that may wait before whoever adds a row lets the writer catch up: a loop that is never idle leaves it
hardly any time, and 80,000 answers once stood unwritten."""
_MOST_TRIES = 40
"""Failed writes of a batch, by halves; one row in the way of thousands is found in some dozen."""


class Entry(msgspec.Struct, frozen=True):
    """One attempt at a call: what becomes one row."""

    key: bytes
    call: Call
    attempt: Attempt

    @property
    def outcome(self) -> Answered | Refused | None:
        """What satisfies the key, if the attempt does."""
        return self.attempt.outcome if isinstance(self.attempt, Replied) else None


class _Row(NamedTuple):
    entry: Entry
    told: asyncio.Future[bool] | None
    """Whether it is this outcome that the ledger holds."""


class _Claim(NamedTuple):
    key: bytes
    told: asyncio.Future[Claimed]


class _Free(NamedTuple):
    key: bytes


class _Wake:
    """Those who wait for others' calls have news to look at."""


class _End:
    """Nothing more comes."""


_Job = _Row | _Claim | _Free | _Wake | _End
_News = tuple[bytes, asyncio.Future[Any], object]
"""Of which call, who waits to be told, and what."""


class _Gone(Exception):
    """The file that is written is not the one of its name any more."""


class Writer:
    """What is written to one ledger.

    A write that fails is the last that was asked for: from then on `failure` is set, and `on_failure` has been told. What
    comes in all the same, the answers of calls in flight, is still written where there is room for it.

    Args:
        path: the ledger, which is there.
        texts: ids of its texts.
        written: called with the keys of outcomes that are on record, on the writer's thread.
        sharing: how to share the ledger with other processes; None where nobody else writes it.
    """

    def __init__(self, path: Path, texts: Texts, written: Callable[[Iterable[bytes]], None], sharing: Sharing | None) -> None:
        self.failure: InputError | None = None
        self.on_failure: list[Callable[[InputError], None]] = []
        self._path = path
        self._file = _identity(path)
        self._texts = texts
        self._written = written
        self._sharing = sharing
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._claims: Claims | None = None
        self._waiting: dict[bytes, list[asyncio.Future[Claimed]]] = {}
        """Who waits for calls that others are making."""
        self._next_look = 0.0
        self._cannot_write: Exception | None = None
        self._kept = 0
        self._unwritten: list[Entry] = []
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    # The asking side

    def add(self, entry: Entry, told: asyncio.Future[bool] | None = None) -> None:
        """Write a row; `told` becomes whether the ledger holds this outcome, and not one that came before it."""
        self._queue.put(_Row(entry, told))
        if self._queue.qsize() > _MOST_WAITING:  # a loop that is never idle leaves the writer no time
            time.sleep(_CATCH_UP_SECONDS)

    def claim(self, key: bytes) -> asyncio.Future[Claimed]:
        """Claim a call; what is returned is done as soon as the call is ours, or need not be made."""
        told: asyncio.Future[Claimed] = asyncio.get_running_loop().create_future()
        self._queue.put(_Claim(key, told))
        return told

    def free(self, key: bytes) -> None:
        """Give a claim up, if it is ours."""
        self._queue.put(_Free(key))

    def wake(self) -> None:
        """Have everyone who waits for others' calls look at the news."""
        self._queue.put(_Wake())

    def close(self) -> None:
        """Write what is waiting, and end.

        Raises:
            InputError: something could not be written; the text says how many answers are lost.
        """
        self._queue.put(_End())
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
            ended = any(isinstance(job, _End) for job in batch)
            self._handle(batch)
        self._finish()

    def _next_batch(self) -> list[_Job]:
        """Wait until there is something to do, and gather what comes shortly after."""
        try:
            batch: list[_Job] = [self._queue.get(timeout=self._pause())]
        except Empty:
            return []
        time.sleep(_SHARED_BATCH_SECONDS if self._sharing else _BATCH_SECONDS)
        with contextlib.suppress(Empty):
            while True:
                batch.append(self._queue.get_nowait())
        return batch

    def _pause(self) -> float | None:
        """Return how long there is nothing to do unless it is asked for; None for ever."""
        if self._waiting and self._sharing is not None:
            return self._sharing.look
        return self._claims.pause if self._claims is not None else None

    def _handle(self, batch: Sequence[_Job]) -> None:
        rows = [job for job in batch if isinstance(job, _Row)]
        freed = [job.key for job in batch if isinstance(job, _Free)]
        news: list[_News] = []
        for job in batch:  # in their order: who was waiting before the news is told of them
            if isinstance(job, _Claim):
                self._waiting.setdefault(job.key, []).append(job.told)
            elif isinstance(job, _Wake):
                news += self._let_go(Claimed.WOKEN)
        try:
            asked = self._worth_a_try([job.key for job in batch if isinstance(job, _Claim) and job.key in self._waiting])
            if rows or freed or asked or (self._claims is not None and self._claims.pause == 0.0):
                news += self._commit(rows, freed, asked)
        except Exception as error:  # whatever it is must not pass in silence: rows would be lost
            self._fail(error)
            news += self._rescue(rows, error)
        if self.failure is not None:
            news += self._let_go(self.failure)
        _tell(news, self.free)

    def _let_go(self, result: Claimed | InputError) -> list[_News]:
        news: list[_News] = [(key, told, result) for key, waiting in self._waiting.items() for told in waiting]
        self._waiting.clear()
        return news

    def _worth_a_try(self, new: Sequence[bytes]) -> list[bytes]:
        """Return the keys to claim now: the new ones, and once in a while those whose claim by others is no more."""
        if not self._waiting or self._sharing is None or self.failure is not None:
            return []
        if time.monotonic() < self._next_look:
            return list(new)
        self._next_look = time.monotonic() + self._sharing.look
        for key in [key for key, waiting in self._waiting.items() if all(told.cancelled() for told in waiting)]:
            del self._waiting[key]
        self._open()
        assert self._claims is not None
        old = self._waiting.keys() - set(new)
        return [*(key for key in new if key in self._waiting), *self._claims.changed(list(old))]

    def _commit(self, rows: Sequence[_Row], freed: Sequence[bytes] = (), asked: Sequence[bytes] = ()) -> list[_News]:
        """Write in one transaction, and return what there is to tell of it."""
        if _identity(self._path) != self._file:
            raise _Gone("the file was deleted or replaced while it was written")
        connection = self._open()
        entries = [row.entry for row in rows]
        taken: list[tuple[bytes, Claimed]] = []
        connection.execute("BEGIN IMMEDIATE")
        try:
            stands = self._insert(connection, entries)
            if self._claims is not None:
                self._claims.free([*(entry.key for entry in entries if entry.outcome), *freed])
                self._claims.renew()
                taken = [(key, claimed) for key in asked if (claimed := self._claims.take(key)) is not None]
            connection.execute("COMMIT")
        except BaseException:  # whatever it was, no half of a transaction stays
            self._texts.forget()  # those that were new are not there
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        outcomes = [entry.key for entry in entries if entry.outcome]
        self._kept += len(outcomes)
        self._written(outcomes)
        news: list[_News] = [
            (row.entry.key, row.told, stood) for row, stood in zip(rows, stands, strict=True) if row.told is not None
        ]
        news += [(key, told, claimed) for key, claimed in taken for told in self._waiting.pop(key, ())]
        return news

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path)
            self._connection.execute("PRAGMA synchronous = NORMAL")
        if self._claims is None and self._sharing is not None:
            self._claims = Claims(self._connection, self._sharing)
        return self._connection

    def _insert(self, connection: sqlite3.Connection, entries: Sequence[Entry]) -> list[bool]:
        """Add rows, and return for each whether it was added: only the first outcome of a key is."""
        rows = [self._values(connection, entry) for entry in entries]
        if not rows:
            return []
        insert = f"INSERT OR IGNORE INTO calls VALUES (NULL{', ?' * len(rows[0])})"
        if self._sharing is not None:
            return [connection.execute(insert, row).rowcount == 1 for row in rows]
        if connection.executemany(insert, rows).rowcount < len(rows):
            self._see_who_was_first(connection, entries)
        return [True] * len(rows)

    def _see_who_was_first(self, connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
        """Stop where somebody else has written into a ledger that is ours alone: what is at work here took other answers."""
        bodies: dict[bytes, set[bytes]] = {}
        for entry in entries:
            bodies.setdefault(entry.key, set()).add(pack(entry.attempt.body))
        for key, ours in bodies.items():
            row = connection.execute("SELECT response FROM calls WHERE key = ? AND status <> 'failed'", (key,)).fetchone()
            if row is not None and row[0] not in ours:
                line = "another process has written other answers into this ledger, and those stand; run the command again"
                self._stop(InputError(f"{self._path}: {line}"))
                return

    def _fail(self, error: Exception) -> None:
        self._cannot_write = self._cannot_write or error
        self._stop(InputError(f"{self._path}: cannot write the ledger: {reason(error)}"))

    def _stop(self, failure: InputError) -> None:
        if self.failure is None:
            self.failure = failure
            for tell in self.on_failure:
                tell(failure)

    def _rescue(self, rows: Sequence[_Row], error: Exception, tries: Iterator[int] | None = None) -> list[_News]:
        """Write what there is room for, by halves: what stands in the way may be one row. Where nothing fits, it gives up."""
        tries = tries or iter(range(_MOST_TRIES))
        busy = isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        if len(rows) < 2 or busy or isinstance(error, _Gone) or next(tries, None) is None:
            self._unwritten += [row.entry for row in rows]
            return [(row.entry.key, row.told, self.failure) for row in rows if row.told is not None]
        news: list[_News] = []
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            try:
                news += self._commit(half)
            except Exception as again:  # as above: what is not written has to be counted
                news += self._rescue(half, again, tries)
        return news

    def _finish(self) -> None:
        """Try once more to write what could not be written, and say how that went."""
        gone = _identity(self._path) != self._file
        if gone:
            self._fail(_Gone("the file was deleted or replaced while it was written"))
        last, self._unwritten = [_Row(entry, None) for entry in self._unwritten], []
        try:
            if last:
                self._commit(last)
        except Exception as error:  # as above; how many answers are lost is said below
            self._rescue(last, error)
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                if self._claims is not None:
                    self._claims.free_all()
                self._connection.close()
        if self._cannot_write is not None:
            lost = sum(entry.outcome is not None for entry in self._unwritten) + (self._kept if gone else 0)
            answers = "every answer that came is kept" if not lost else f"answers that came and are lost: {lost:,}"
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
        """Return the request as JSON in which a long part of a message is the id of a text (an integer)."""
        messages = [
            [
                message.role,
                [self._texts.id_of(connection, part) if len(part) >= _SHARED_TEXT else part for part in message.parts],
            ]
            for message in call.messages
        ]
        return canonical_json({"messages": messages, "sampling": call.sampling}).decode()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of its name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _tell(news: Sequence[_News], free: Callable[[bytes], None]) -> None:
    """Hand results to those who wait, in their own loops."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_News]] = {}
    for item in news:
        by_loop.setdefault(item[1].get_loop(), []).append(item)
    for loop, items in by_loop.items():
        with contextlib.suppress(RuntimeError):  # closed: nobody waits there any more
            loop.call_soon_threadsafe(_settle, items, free)


def _settle(news: Sequence[_News], free: Callable[[bytes], None]) -> None:
    for key, told, result in news:
        if not told.done():
            told.set_exception(result) if isinstance(result, Exception) else told.set_result(result)
        elif result is Claimed.OURS:  # whoever asked was cancelled meanwhile
            free(key)
