"""The durable record of every call, keyed by content. Rows are only ever added."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from opensafeintent.calls.ledger_rows import (
    AttemptRow,
    Attempts,
    DamagedLedger,
    Located,
    Request,
    Status,
    TextBudget,
    Texts,
    TextsAt,
    Tier,
    check_types,
    connect,
    decompress_and_check,
    has_log,
    prepare,
    read_outcome,
    read_packed,
    reason,
    report_damage,
    unpack_text,
)
from opensafeintent.calls.ledger_writer import LedgerEntry, LedgerWriter
from opensafeintent.calls.outcomes import REPLIED
from opensafeintent.calls.reasoning import REASONING_ONLY
from opensafeintent.calls.recorded import Imports
from opensafeintent.calls.records import Answered, Call, Failure, Refused
from opensafeintent.calls.replies import ends_unopened_thought, protocol_named, read_reply_reasoning
from opensafeintent.calls.service_tiers import BATCH
from opensafeintent.errors import InputError
from opensafeintent.replacing import lock_held, refuse
from opensafeintent.templates.template import Message

_OUTCOME = (
    "model, purpose, status, response, protocol, error, input_tokens, output_tokens, served_model"
)

_CACHE_KIB = 16 * 1024
"""Room for the calls of one wave and their index. It is not mapped into memory: a failing disk
would end the process.
"""

_CATCH_UP_SECONDS = 0.01

_KEYS_AT_ONCE = 500
_FEW_KEYS = 10
"""So few have a statement of their own: one for many looks up as many each time."""

_SOME_KEYS = f"key IN ({', '.join('?' * _KEYS_AT_ONCE)}) AND status <> 'failed'"

_FIND = {
    number: f"SELECT key, id, {_OUTCOME} FROM calls"
    f" WHERE key IN ({', '.join('?' * number)}) AND status <> 'failed'"
    for number in (*range(1, _FEW_KEYS + 1), _KEYS_AT_ONCE)
}
"""By the number of keys."""

_SPENT = (
    "SELECT model, purpose, status, tier, served_model, count(*),"
    " sum(input_tokens + output_tokens = 0), sum(input_tokens), sum(output_tokens),"
    " sum(cached_tokens), sum(cache_write_tokens), min(created), max(created) FROM calls WHERE "
)
_BY_COST = " GROUP BY model, purpose, status, tier, served_model"
_SECONDS = (
    "SELECT model, purpose, seconds FROM calls WHERE status <> 'failed' AND tier <> ?"
    " AND input_tokens + output_tokens > 0"
)

_LATEST = (
    "SELECT coalesce(max(created), '') FROM (SELECT created FROM calls UNION ALL SELECT created"
    " FROM sources)"
)

_ROW = f"{', '.join(AttemptRow._fields)} FROM calls WHERE key = :key AND status"

_ROWS_OF = (
    f"SELECT 0 AS later, {_ROW} <> 'failed' UNION ALL SELECT 1, {_ROW} = 'failed' ORDER BY"
    " later, id"
)
"""Both indexes on keys are partial: a query uses them only with their own condition; any other
scans the table.
"""

_REPLIED_SINCE = (
    "SELECT EXISTS (SELECT 1 FROM calls WHERE id > (SELECT min(id) FROM calls WHERE key = ? AND"
    " status = 'failed') AND model = ? AND status <> 'failed')"
)

STORED = (
    "key, status, created, seconds, response, model, purpose, template, template_hash, epoch,"
    " attempt, stop_reason, input_tokens, output_tokens, cached_tokens, cache_write_tokens,"
    " served_model, tier, protocol, error"
)
"""The columns of `Ledger.yield_rows`, after the row's id."""


_STORED_ROW: Any = tuple[
    int,
    bytes,
    Status,
    str,
    float,
    bytes,
    str,
    str,
    str,
    str,
    int,
    int,
    str,
    int,
    int,
    int,
    int,
    str,
    Tier,
    str,
    str,
]

_FOUND: Any = list[tuple[bytes, int, str, str, str, bytes, str, str, int, int, str]]
"""Key, id and outcome of rows: their types are checked for several rows at once."""

_ROWS_AT_ONCE = 50

_REPLIES = "SELECT response, protocol FROM calls WHERE"
_RESPONSES = f"{_REPLIES} model = ? AND purpose = 'generate' AND status = 'answered'"


class Ledger:
    """A ledger file, open for reading on the caller's thread and written in batches by a thread of
    its own.

    `with Ledger(path) as ledger:` creates a missing file, private to its user. `readonly=True`
    neither creates nor writes; with `missing_ok=True` a missing file reads as a ledger without
    rows.

    One process at a time writes a ledger, and any number read it. `waiting` is called with the
    holder's name (`replacing.lock_held`).

    Raises:
        Taken: another process writes it.
        InputError: the file is not a ledger, is of another version, or cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        *,
        readonly: bool = False,
        missing_ok: bool = False,
        waiting: Callable[[str], object] = refuse,
    ) -> None:
        self.path = path
        self._pending: dict[bytes, tuple[Call, Answered | Refused]] = {}
        """Outcomes that are not stored yet."""
        self._reasoning_only: set[bytes] = set()
        """Keys of the attempts that held reasoning alone, as far as this process met them: they may
        not be stored yet.
        """
        self._opens_no_thought: dict[str, bool] = {}
        """By model, whether a reply of its ends a thought that no mark opened."""
        self.added: set[bytes] = set()
        """Keys of the outcomes that were added."""
        self._texts = Texts()
        self._writer: LedgerWriter | None = None
        with contextlib.ExitStack() as opened:  # if a later step fails, the opened files are closed
            try:
                if not readonly:
                    _lock(path, opened, waiting)
                self._open_for_reading(opened, readonly=readonly, missing_ok=missing_ok)
                self.imports = Imports(path, self._reader, self._texts)
                """Responses from elsewhere."""
                if not readonly:
                    self._writer = LedgerWriter(path, self._texts, self._drop_pending)
            except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
                # SQLite quotes a damaged schema in an error, and Python decodes it
                unreadable = type(error) in (sqlite3.DatabaseError, UnicodeDecodeError)
                raise (DamagedLedger if unreadable else InputError)(
                    f"{path}: cannot open the ledger: {reason(error)}"
                ) from error
            self._opened = opened.pop_all()

    def _open_for_reading(
        self, opened: contextlib.ExitStack, *, readonly: bool, missing_ok: bool
    ) -> None:
        """Connect to the file, or to an empty ledger if there are no rows to read yet."""
        path = self.path
        # a run that was killed as it began leaves an empty file: to a reader, a ledger without rows
        begun = not readonly or not ((missing_ok and not path.exists()) or path.stat().st_size == 0)
        self._unlocked = begun and readonly and not has_log(path)
        self._reader = (
            connect(path, readonly=readonly)
            if begun
            else sqlite3.connect(":memory:", isolation_level=None)
        )
        opened.callback(self._reader.close)
        prepare(self._reader, path, readonly=readonly, begun=begun)
        self._reader.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        first = self._reader.execute("SELECT 1 FROM calls LIMIT 1").fetchone()
        self.holds_others = readonly or first is not None
        """Whether it may hold rows of others: of an earlier process, or merged ones."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of a ledger that is open for reading only, while another process may write
        it.

        Raises:
            InputError: it was opened as a file without a writer, and a process has begun to write
                it.
        """
        before = self._file_state()
        with report_damage(self.path):
            self._reader.execute("BEGIN")
            self._reader.execute("SELECT 1 FROM calls LIMIT 1").fetchone()  # from here on
        try:
            yield
        finally:
            with contextlib.suppress(
                sqlite3.Error
            ):  # nothing was written; the file's problem was reported before
                self._reader.execute("ROLLBACK")
        if self._file_state() != before:
            raise InputError(
                f"{self.path}: calls were written to the ledger while it was read; run the same"
                " command again"
            )

    def _file_state(self) -> tuple[int, int] | None:
        """Return a value that changes if a file read without locks changes."""
        if not self._unlocked:
            return None
        status = self.path.stat()
        return status.st_mtime_ns, status.st_size

    def find(self, key: bytes) -> Answered | Refused | None:
        """Return the outcome that satisfies a key, if there is one."""
        if not self.holds_others and key not in self.added:
            return None
        located = self.find_all([key]).get(key)
        return located.outcome if located else None

    def find_all(
        self, keys: Collection[bytes], budget: TextBudget | None = None
    ) -> dict[bytes, Located]:
        """Return the outcomes that satisfy some keys, for those that have one: `find` for thousands
        at a time.

        Calls from about the same time are close together in the file: look up their keys together.

        Args:
            keys: of the calls.
            budget: memory for the texts of the stored answers.

        Raises:
            TooLong: there is no room for one.
            InputError: the ledger is damaged.
        """
        located: dict[bytes, Located] = {}
        not_pending: list[bytes] = []

        for key in keys:
            if (pending := self._pending.get(key)) is None:
                not_pending.append(key)
            else:
                call, outcome = pending
                located[key] = Located(0, self.settle(call.model, call.purpose, outcome))
        with report_damage(self.path):
            few = 0 < len(not_pending) <= _FEW_KEYS
            for part in [not_pending] if few else _parts(not_pending):
                cursor = self._reader.execute(_FIND[len(part)], part)
                while rows := check_types(cursor.fetchmany(_ROWS_AT_ONCE), _FOUND):
                    for key, row, model, purpose, *content in rows:
                        stored = read_outcome(*content)
                        if budget is not None and isinstance(stored, Answered):
                            budget.charge(stored.text)
                        located[key] = Located(row, self.settle(model, purpose, stored))
        return located

    def settle(self, model: str, purpose: str, outcome: Answered | Refused) -> Answered | Refused:
        """Return the outcome of a call, in view of its purpose and of the model's other replies.

        A response that a limit cut, and that shows no reasoning, is a thought that was cut if the
        model's other replies end a thought that no mark opened: then it has no text.

        Args:
            model: the name of the model.
            purpose: of the call.
            outcome: its outcome by itself.
        """
        if purpose != "generate" or not isinstance(outcome, Answered):
            return outcome
        if outcome.unopened:
            self._opens_no_thought[model] = True
        if outcome.may_be_thought and self._thinks_unopened(model):
            return msgspec.structs.replace(outcome, text="")
        return outcome

    def _thinks_unopened(self, model: str) -> bool:
        if model not in self._opens_no_thought:
            self._opens_no_thought[model] = any(
                ends_unopened_thought(
                    decompress_and_check(check_types(body, bytes)), protocol_named(protocol)
                )
                for body, protocol in self._reader.execute(_RESPONSES, (model,))
            )
        return self._opens_no_thought[model]

    def last_failure(self, key: bytes) -> str | None:
        """Return how the last attempt at a call failed, as `kind: error`, if one is stored."""
        with report_damage(self.path):
            row = self._reader.execute(
                "SELECT error FROM calls WHERE key = ? AND status = 'failed' ORDER BY id DESC"
                " LIMIT 1",
                (key,),
            ).fetchone()
            return check_types(row[0], str) if row else None

    def has_replied_since(self, key: bytes, model: str) -> bool:
        """Tell whether a model replied after a stored failure of a call: then it is the call that
        fails.
        """
        with report_damage(self.path):
            return bool(self._reader.execute(_REPLIED_SINCE, (key, model)).fetchone()[0])

    def find_reasoning_only(self) -> set[bytes]:
        """Return the keys of the calls with an attempt that held reasoning and no text."""
        with report_damage(self.path):
            rows = self._reader.execute(
                "SELECT DISTINCT key FROM calls WHERE status = 'failed' AND error GLOB ?",
                (f"{REASONING_ONLY}: *",),
            )
            return self._reasoning_only | {check_types(key, bytes) for (key,) in rows}

    def find_answering_models(self) -> set[str]:
        """Return the names of the models that have replied at least once: an answer, a refusal, or
        without either.
        """
        with report_damage(self.path):
            rows = self._reader.execute(
                "SELECT DISTINCT model FROM calls WHERE status <> 'failed'"
                + " OR error GLOB ?" * len(REPLIED),
                tuple(f"{start}*" for start in REPLIED),
            )
            return {check_types(name, str) for (name,) in rows}

    def attempts(self, keys: Iterable[bytes] | None = None) -> Iterator[Attempts]:
        """Yield the sums of all recorded attempts, or of those at some calls; what they have in
        common may come again.
        """
        queries: list[tuple[str, list[bytes]]] = [("true", [])]
        if keys is not None:
            failed = _SOME_KEYS.replace("<>", "=")
            queries = [(some, part) for part in _parts(keys) for some in (_SOME_KEYS, failed)]
        with report_damage(self.path):
            for condition, values in queries:
                for row in self._reader.execute(_SPENT + condition + _BY_COST, values):
                    yield check_types(row, Attempts)

    def seconds(self) -> Iterator[tuple[str, str, float]]:
        """Yield model, purpose and seconds of every reply that counts its tokens, those of batches
        left out.
        """
        with report_damage(self.path):
            for row in self._reader.execute(_SECONDS, (BATCH,)):
                yield check_types(row, tuple[str, str, float])

    def list_attempts(self, key: bytes) -> list[AttemptRow]:
        """Return the row of every attempt at a call, the one that satisfies it first."""
        with report_damage(self.path):
            return [
                check_types(row[1:], AttemptRow)
                for row in self._reader.execute(_ROWS_OF, {"key": key})
            ]

    def latest(self) -> str:
        """Return when a call was last made or a file imported, ISO 8601; "" if none was."""
        with report_damage(self.path):
            row = self._reader.execute(_LATEST).fetchone()
            return check_types(row[0], str)

    def yield_rows(self, keys: Collection[bytes] | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield every row, or those of some calls, without its request: the id, then `STORED`."""
        with report_damage(self.path):
            for row in self._reader.execute(f"SELECT id, {STORED} FROM calls ORDER BY id"):
                if keys is None or row[1] in keys:
                    decompress_and_check(check_types(row, _STORED_ROW)[5])  # for its checksum
                    yield row

    def count(self) -> int:
        """Return how many attempts are stored."""
        with report_damage(self.path):
            return int(self._reader.execute("SELECT count(*) FROM calls").fetchone()[0])

    # Writing

    def add(self, entry: LedgerEntry) -> None:
        """Record one attempt; it is on disk within a twentieth of a second.

        A failed write is raised by `check`: a paid answer is accepted in any case.
        """
        if self._writer is None:
            raise RuntimeError("the ledger is open for reading only")
        if (outcome := entry.outcome) is not None:
            self._pending[entry.key] = entry.call, outcome
            self.added.add(entry.key)
        if isinstance(entry.attempt, Failure) and entry.attempt.kind == REASONING_ONLY:
            self._reasoning_only.add(entry.key)
        self._writer.add(entry)

    async def catch_up(self, most: int = 0) -> None:
        """Wait until at most so many of the rows that were added are not on disk yet.

        Raises:
            InputError: the ledger cannot be written.
        """
        while self._writer is not None and self._writer.waiting > most:
            self.check()
            await asyncio.sleep(_CATCH_UP_SECONDS)
        self.check()

    def call_on_failure(self, tell: Callable[[InputError], None]) -> None:
        """Call it at once, on another thread, if the ledger cannot be written."""
        if self._writer is not None:
            self._writer.on_failure.append(tell)

    def check(self) -> None:
        """Raise the error that prevents writing the ledger, if there is one."""
        if self._writer is not None and self._writer.failure is not None:
            raise self._writer.failure

    def close(self) -> None:
        """Write the waiting rows and close the file.

        Raises:
            InputError: a row could not be written.
        """
        with self._opened:
            if self._writer is not None:
                self._writer.close()

    def _drop_pending(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._pending.pop(key, None)

    def request(self, row_id: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return the messages and sampling of one row, its texts put back."""
        texts = TextsAt(self._reader, TextBudget(self.path, "no request has as many"))
        with report_damage(self.path):
            data = self.read_packed_request(row_id)
            messages = tuple(
                Message(
                    role, tuple(part if isinstance(part, str) else texts[part] for part in parts)
                )
                for role, parts in data.messages
            )
        return messages, data.sampling

    def read_reasoning(self, row_id: int) -> str:
        """Return the reasoning that the reply of one row shows; "" if it shows none."""
        with report_damage(self.path):
            row = self._reader.execute(f"{_REPLIES} id = ?", (row_id,)).fetchone()
            body, protocol = check_types(row, tuple[bytes, str])
            return read_reply_reasoning(decompress_and_check(body), protocol_named(protocol))

    def read_packed_request(self, row_id: int) -> Request:
        """Return the request of one row, with the ids of its texts."""
        with report_damage(self.path):
            row = self._reader.execute("SELECT request FROM calls WHERE id = ?", (row_id,))
            return msgspec.json.decode(check_types(row.fetchone()[0], str), type=Request)

    def read_packed_text(self, identity: int) -> tuple[bytes, bytes]:
        """Return the hash of a text of a request, and its packed form, which was looked at."""
        with report_damage(self.path):
            sha, body = read_packed(self._reader, identity)
            unpack_text(sha, body)
            return sha, body


def _lock(path: Path, opened: contextlib.ExitStack, waiting: Callable[[str], object]) -> None:
    """Create a missing file, and lock it for writing until `opened` is closed.

    Raises:
        Taken: another process writes it.
        InputError: it has several names.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    file = path.resolve()  # under any name that was given
    if file.stat().st_nlink > 1:
        raise InputError(
            f"{path}: has several names (hard links), which cannot be locked as one; use a copy"
        )
    lock = file.with_name(f".{file.name}.lock")
    opened.enter_context(lock_held(path, lock, "writing this ledger", waiting))


def _parts(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield keys, each once, in parts of one length: one statement, compiled once."""
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), _KEYS_AT_ONCE):
        part = distinct[start : start + _KEYS_AT_ONCE]
        yield part + part[-1:] * (_KEYS_AT_ONCE - len(part))


LEDGER = "ledger.sqlite"
"""The name of a ledger in the folder of a shard."""
