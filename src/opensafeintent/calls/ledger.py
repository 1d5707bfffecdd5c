"""The durable record of every call, keyed by content; its folder; and merging ledgers. Rows are
only ever added.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import msgspec

from opensafeintent.calls.ledger_file import (
    NO_OUTCOME,
    Entry,
    Request,
    Room,
    Texts,
    TextsAt,
    Writer,
    connect,
    id_at,
    packed_at,
    prepare,
    reading,
    reason,
    stored_request,
    text_of,
    typed,
    unpack,
)
from opensafeintent.calls.outcomes import REPLIED, NotAnAnswer, response_of
from opensafeintent.calls.reasoning_signs import REASONING_ONLY
from opensafeintent.calls.recorded import Imports
from opensafeintent.calls.records import Answered, Call, Failure, Purpose, Refused, Usage
from opensafeintent.calls.replies import ends_unopened_thought, read_reply, usage_in
from opensafeintent.errors import InputError, counted
from opensafeintent.files import held, inside, locked_folder, refuse, write_private
from opensafeintent.templates.template import Message

_OUTCOME = "model, purpose, status, response, error, input_tokens, output_tokens, served_model"
_CACHE_KIB = 16 * 1024
"""Room for the calls of one wave and their index. It is not mapped into memory: a failing disk
would end the process.
"""
_KEYS_AT_ONCE = 500
_SOME_KEYS = f"key IN ({', '.join('?' * _KEYS_AT_ONCE)}) AND status <> 'failed'"
_FIND_MANY = f"SELECT key, id, {_OUTCOME} FROM calls WHERE {_SOME_KEYS}"
_FIND_ONE = f"SELECT key, id, {_OUTCOME} FROM calls WHERE key = ? AND status <> 'failed'"
_ATTEMPT = """
    SELECT model, purpose, status, input_tokens, output_tokens, seconds, created, served_model,
           CASE status WHEN 'failed' THEN response END FROM calls"""
_ATTEMPTS_AT = tuple(
    f"{_ATTEMPT} WHERE {condition}" for condition in (_SOME_KEYS, _SOME_KEYS.replace("<>", "="))
)
_LATEST = (
    "SELECT coalesce(max(created), '') FROM (SELECT created FROM calls UNION SELECT created FROM"
    " sources)"
)
_ROW = "id, status, stop_reason, created FROM calls WHERE key = :key AND status"
_ROWS_OF = (
    f"SELECT 0 AS later, {_ROW} <> 'failed' UNION ALL SELECT 1, {_ROW} = 'failed' ORDER BY"
    " later, id"
)
"""Both indexes on keys are partial: a query uses them only with their own condition; any other
scans the table.
"""


STORED = (
    "key, status, created, seconds, response, model, purpose, template, template_hash, epoch,"
    " attempt, stop_reason, input_tokens, output_tokens, served_model, error"
)
"""The columns of `Ledger.stored`, after the row's id."""
_Status = Literal["answered", "refused", "failed"]
_STORED_ROW: Any = tuple[
    int, bytes, _Status, str, float, bytes, str, str, str, str, int, int, str, int, int, str, str
]


class Located(NamedTuple):
    """An outcome, and its position in the ledger."""

    row: int
    """Id of the row; 0 for one that is still on its way to the file."""
    outcome: Answered | Refused


class Attempted(NamedTuple):
    """Result of an attempt, as far as it was paid for."""

    model: str
    purpose: Purpose
    status: _Status
    input_tokens: int
    output_tokens: int
    seconds: float
    created: datetime
    """UTC."""
    served_model: str
    """The model that the reply names."""


_FOUND: Any = list[
    tuple[bytes, int, str, str, Literal["answered", "refused"], bytes, str, int, int, str]
]
"""Key, id and outcome of rows: their types are checked for several rows at once."""
_ROWS_AT_ONCE = 50
_RESPONSES = (
    "SELECT response FROM calls WHERE model = ? AND purpose = 'generate' AND status = 'answered'"
)


class Ledger:
    """A ledger file, open for reading on the caller's thread and written in batches by a thread of
    its own.

    `with Ledger(path) as ledger:` creates a missing file, private to its user. `readonly=True`
    neither creates nor writes; with `missing_ok=True` a missing file reads as a ledger without
    rows.

    One process at a time writes a ledger, and any number read it. `waiting` is called with the
    holder's name (`files.held`).

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
        self._no_outcome: dict[bytes, str] = {}
        """By key of a stored reply that is none by today's rules, the failure that it is."""
        self._reasoning_only: set[bytes] = set()
        """Keys of the attempts that held reasoning alone, as far as this process met them: they may
        not be stored yet.
        """
        self._opens_no_thought: dict[str, bool] = {}
        """By model, whether a reply of its ends a thought that no mark opened."""
        self._texts = Texts()
        self._writer: Writer | None = None
        with contextlib.ExitStack() as opened:  # if a later step fails, the opened files are closed
            try:
                if not readonly:
                    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                    file = path.resolve()  # under any name that was given
                    if file.stat().st_nlink > 1:
                        raise InputError(
                            f"{path}: has several names (hard links), which cannot be locked as"
                            " one; use a copy"
                        )
                    opened.enter_context(
                        held(
                            path,
                            file.with_name(f".{file.name}.lock"),
                            "writing this ledger",
                            waiting,
                        )
                    )
                # a run that was killed as it began leaves an empty file: to a reader, a ledger
                # without rows
                begun = not readonly or not (
                    (missing_ok and not path.exists()) or path.stat().st_size == 0
                )
                self._unlocked = (
                    begun and readonly and not path.with_name(path.name + "-wal").exists()
                )
                self._reader = (
                    connect(path, readonly=readonly)
                    if begun
                    else sqlite3.connect(":memory:", isolation_level=None)
                )
                opened.callback(self._reader.close)
                prepare(self._reader, path, readonly=readonly, begun=begun)
                self._reader.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
                self.imports = Imports(path, self._reader, self._texts)
                """Responses from elsewhere."""
                if not readonly:
                    self._writer = Writer(path, self._texts, self._on_record)
            except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
                # SQLite quotes a damaged schema in an error, and Python decodes it
                raise InputError(f"{path}: cannot open the ledger: {reason(error)}") from error
            self._opened = opened.pop_all()

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
        with reading(self.path):
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
        located = self.find_all([key]).get(key)
        return located.outcome if located else None

    def find_all(self, keys: Collection[bytes], room: Room | None = None) -> dict[bytes, Located]:
        """Return the outcomes that satisfy some keys, for those that have one: `find` for thousands
        at a time.

        Calls from about the same time are close together in the file: look up their keys together.

        Args:
            keys: of the calls.
            room: for the texts of the stored answers.

        Raises:
            TooLong: there is no room for one.
            InputError: the ledger is damaged.
        """
        located: dict[bytes, Located] = {}
        left: list[bytes] = []

        def locate(
            key: bytes, row: int, model: str, purpose: str, own: Answered | Refused | NotAnAnswer
        ) -> None:
            settled = self.settled(model, purpose, own)
            if isinstance(settled, NotAnAnswer):
                self._no_outcome[key] = f"{settled.kind}: {settled}"
                self._note_kind(key, settled.kind)
            else:
                located[key] = Located(row, settled)

        for key in keys:
            if (pending := self._pending.get(key)) is None:
                left.append(key)
            else:
                call, outcome = pending
                locate(key, 0, call.model, call.purpose, outcome)
        with reading(self.path):
            for some in [left] if len(left) == 1 else _parts(left):
                statement = _FIND_ONE if len(some) == 1 else _FIND_MANY
                cursor = self._reader.execute(statement, some)
                while rows := typed(cursor.fetchmany(_ROWS_AT_ONCE), _FOUND):
                    for key, row, model, purpose, *content in rows:
                        stored = _stored_outcome(*content)
                        if room is not None and isinstance(stored, Answered):
                            room.take(stored.text)
                        locate(key, row, model, purpose, stored)
        return located

    def settled(
        self, model: str, purpose: str, outcome: Answered | Refused | NotAnAnswer
    ) -> Answered | Refused | NotAnAnswer:
        """Return the outcome of a call, in view of its purpose and of the model's other replies.

        A response without text beside reasoning is none. One that a limit cut, and that shows no
        reasoning, is a thought that was cut if the model's other replies end a thought that no
        mark opened: then it has no text.

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
        try:
            return response_of(outcome)
        except NotAnAnswer as wrong:
            return wrong

    def _thinks_unopened(self, model: str) -> bool:
        if model not in self._opens_no_thought:
            self._opens_no_thought[model] = any(
                ends_unopened_thought(unpack(typed(body, bytes)))
                for (body,) in self._reader.execute(_RESPONSES, (model,))
            )
        return self._opens_no_thought[model]

    def last_failure(self, key: bytes) -> str | None:
        """Return how the last attempt at a call failed, as `kind: error`, if one is stored."""
        with reading(self.path):
            row = self._reader.execute(
                "SELECT error FROM calls WHERE key = ? AND status = 'failed' ORDER BY id DESC"
                " LIMIT 1",
                (key,),
            ).fetchone()
            return typed(row[0], str) if row else self._no_outcome.get(key)

    def reasoning_only(self) -> set[bytes]:
        """Return the keys of the calls with an attempt that held reasoning and no text."""
        with reading(self.path):
            rows = self._reader.execute(
                "SELECT DISTINCT key FROM calls WHERE status = 'failed' AND error GLOB ?",
                (f"{REASONING_ONLY}: *",),
            )
            return self._reasoning_only | {typed(key, bytes) for (key,) in rows}

    def _note_kind(self, key: bytes, kind: str) -> None:
        if kind == REASONING_ONLY:
            self._reasoning_only.add(key)

    def answering_models(self) -> set[str]:
        """Return the names of the models that have replied at least once: an answer, a refusal, or
        without either.
        """
        with reading(self.path):
            rows = self._reader.execute(
                "SELECT DISTINCT model FROM calls WHERE status <> 'failed'"
                + " OR error GLOB ?" * len(REPLIED),
                tuple(f"{start}*" for start in REPLIED),
            )
            return {typed(name, str) for (name,) in rows}

    def attempts(self, keys: Iterable[bytes] | None = None) -> Iterator[Attempted]:
        """Yield every recorded attempt, or those at some calls; tokens of a failed one are those
        that its reply reported.
        """
        queries: list[tuple[str, list[bytes]]] = [(f"{_ATTEMPT} WHERE true", [])]
        if keys is not None:
            queries = [(statement, some) for some in _parts(keys) for statement in _ATTEMPTS_AT]
        with reading(self.path):
            for statement, some in queries:
                for row in self._reader.execute(statement, some):
                    attempted = typed(row[:-1], Attempted)
                    if row[-1] is not None and not attempted.input_tokens + attempted.output_tokens:
                        attempted = attempted._replace(
                            **msgspec.structs.asdict(usage_in(unpack(typed(row[-1], bytes))))
                        )
                    yield attempted

    def rows_of(self, key: bytes) -> list[tuple[int, str, str, str]]:
        """Return (id, status, stop reason, created) of every attempt at a call, the one that
        satisfies it first.
        """
        with reading(self.path):
            return [
                typed(row[1:], tuple[int, str, str, str])
                for row in self._reader.execute(_ROWS_OF, {"key": key})
            ]

    def latest(self) -> str:
        """Return when a call was last made or a file imported, ISO 8601; "" if none was."""
        with reading(self.path):
            row = self._reader.execute(_LATEST).fetchone()
            return typed(row[0], str)

    def stored(self) -> Iterator[tuple[Any, ...]]:
        """Yield every row as it is stored, without its request: the id, then `STORED`."""
        with reading(self.path):
            for row in self._reader.execute(f"SELECT id, {STORED} FROM calls ORDER BY id"):
                unpack(typed(row, _STORED_ROW)[5])  # for its checksum
                yield row

    def count(self) -> int:
        """Return how many attempts are stored."""
        with reading(self.path):
            return int(self._reader.execute("SELECT count(*) FROM calls").fetchone()[0])

    # Writing

    def add(self, entry: Entry) -> None:
        """Record one attempt; it is on disk within a twentieth of a second.

        A failed write is raised by `check`: a paid answer is accepted in any case.
        """
        if self._writer is None:
            raise RuntimeError("the ledger is open for reading only")
        if (outcome := entry.outcome) is not None:
            self._pending[entry.key] = entry.call, outcome
        if isinstance(entry.attempt, Failure):
            self._note_kind(entry.key, entry.attempt.kind)
        if (failure := self._no_outcome.pop(entry.key, "")) != "":
            entry = msgspec.structs.replace(entry, earlier_failure=failure)
        self._writer.add(entry)

    def on_failure(self, tell: Callable[[InputError], None]) -> None:
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

    def _on_record(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._pending.pop(key, None)

    def request(self, row_id: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return the messages and sampling of one row, its texts put back."""
        texts = TextsAt(self._reader, Room(self.path, "no request has as many"))
        with reading(self.path):
            data = self.packed_request(row_id)
            messages = tuple(
                Message(
                    role, tuple(part if isinstance(part, str) else texts[part] for part in parts)
                )
                for role, parts in data.messages
            )
        return messages, data.sampling

    def packed_request(self, row_id: int) -> Request:
        """Return the request of one row, with the ids of its texts."""
        with reading(self.path):
            row = self._reader.execute("SELECT request FROM calls WHERE id = ?", (row_id,))
            return msgspec.json.decode(typed(row.fetchone()[0], str), type=Request)

    def packed_text(self, identity: int) -> tuple[bytes, bytes]:
        """Return the hash of a text of a request, and its packed form, which was looked at."""
        with reading(self.path):
            sha, body = packed_at(self._reader, identity)
            text_of(sha, body)
            return sha, body


def _parts(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield keys, each once, in parts of one length: one statement, compiled once."""
    left = list(dict.fromkeys(keys))
    for start in range(0, len(left), _KEYS_AT_ONCE):
        some = left[start : start + _KEYS_AT_ONCE]
        yield some + some[-1:] * (_KEYS_AT_ONCE - len(some))


def _stored_outcome(
    status: str, body: bytes, error: str, input_tokens: int, output_tokens: int, served: str
) -> Answered | Refused | NotAnAnswer:
    """Return the outcome of a row, by the rules of today.

    A refusal by a filter whose reply has a text is an answer that the filter cut. Without a count
    of tokens nobody knows whether the model wrote that text.
    """
    refused = Refused(reason=error, usage=Usage(input_tokens, output_tokens), served_model=served)
    try:
        outcome = read_reply(unpack(body), stored=True)
    except NotAnAnswer as wrong:
        return refused if status == "refused" else wrong
    except ValueError:
        if status == "answered":
            raise
        return refused
    if status == "answered":
        return outcome
    if isinstance(outcome, Answered) and outcome.usage == Usage():
        return msgspec.structs.replace(refused, text_kept=False)
    return outcome if isinstance(outcome, Answered) else refused


# The folder of a run or of a build: a manifest, the ledger that it names, and one process at a time
# -----------------------


class _HasLedger(Protocol):
    @property
    def ledger(self) -> str:
        """Relative to the folder, or absolute if it is shared."""


def ledger_name(named: Path | None) -> str:
    """Return the ledger's entry in the manifest of a new folder."""
    return str(named.resolve()) if named else LEDGER


class LedgerFolder:
    """The common part of folders of runs and of builds."""

    manifest_name: ClassVar[str]
    doing: ClassVar[str]
    """Activity of a process in it, for another's error: `evaluating into`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest."""
        return inside(self.path, self.manifest_name)

    def save(self, manifest: _HasLedger) -> None:
        """Write the manifest."""
        text = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2)
        write_private(self.manifest_path, text + b"\n")

    def ledger_path(self, manifest: _HasLedger) -> Path:
        """Path of the ledger: in the folder, or absolute.

        Raises:
            InputError: see `inside`.
        """
        path = Path(manifest.ledger)
        return path if path.is_absolute() else inside(self.path, manifest.ledger)

    def ledger_to_write(self, manifest: _HasLedger, named: Path | None) -> Path:
        """Path of the ledger, for a command that writes it.

        Args:
            manifest: of the folder; somebody else may have made it.
            named: the ledger that the command names.

        Raises:
            InputError: the command names another ledger than the folder has, or none and it is
                outside the folder; see also `inside`.
        """
        path = self.ledger_path(manifest)
        resolved = path.resolve()
        if (
            resolved != named.resolve()
            if named
            else not resolved.is_relative_to(self.path.resolve())
        ):
            what = f"its ledger is not {named}" if named else "its ledger is outside the folder"
            raise InputError(f"{self.path}: {what}; expected --ledger {path}, or a new --out")
        return path

    def lock(
        self, waiting: Callable[[str], object] = refuse
    ) -> contextlib.AbstractContextManager[None]:
        """Hold the folder for this process.

        Raises:
            Taken: another process holds it.
        """
        return locked_folder(self.path, self.doing, waiting)


# Merge ledgers
# ------------------------------------------------------------------------------

LEDGER = "ledger.sqlite"
"""The name of a ledger in the folder of a shard."""
_INSERT = f"INSERT INTO calls ({STORED}, request) VALUES (?{', ?' * (STORED.count(',') + 1)})"
_ANSWER = (
    "SELECT created, seconds, purpose, status, response FROM calls WHERE key = ? AND status <>"
    " 'failed'"
)
_FAILURE = (
    "SELECT created, seconds, purpose, status, response FROM calls WHERE key = ? AND status ="
    " 'failed' AND created = ? AND seconds = ?"
)


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of merging one ledger into another."""

    rows: int
    """Attempts in the ledger that was merged."""
    added: int
    """Attempts that the other ledger did not have."""
    duplicates: int
    """Answers that were left out, because the call had another answer already."""


def merge(ledger: Ledger, source: Path) -> Merged:
    """Add every attempt of a ledger to another one, in one transaction. If both answer a call, the
    first answer is kept.

    Merging a ledger again adds nothing.

    Args:
        ledger: the ledger that grows, open for writing.
        source: the other one.

    Raises:
        InputError: `source` is no ledger, is damaged, or holds imported responses; or `ledger`
            cannot be written. Nothing is added then.
    """
    rows = added = duplicates = 0
    with (
        Ledger(source, readonly=True) as other,
        other.snapshot(),
        contextlib.closing(connect(ledger.path)) as connection,
    ):
        if next(other.imports.rows(), None) is not None:
            raise InputError(
                f"{source}: holds imported responses, which cannot be merged; import their files"
                " instead"
            )

        @cache
        def moved(identity: int) -> int:
            """Return the id of a text of the other ledger in this one."""
            return id_at(connection, *other.packed_text(identity))

        def kept(part: str | int) -> str | int:
            return part if isinstance(part, str) else moved(part)

        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                for row, key, stored_status, created, seconds, *rest in other.stored():
                    rows += 1
                    body, _, purpose = rest[:3]
                    status = stored_status
                    if failure := _failure_of(purpose, status, body):
                        status, rest[-1] = "failed", failure
                    same = (
                        (_FAILURE, (key, created, seconds))
                        if status == "failed"
                        else (_ANSWER, (key,))
                    )
                    if (known := connection.execute(*same).fetchone()) is not None:
                        if known[:2] == (created, seconds):
                            continue  # the same row, merged before
                        if not (failure := _failure_of(*known[2:])):
                            duplicates += 1
                            continue
                        connection.execute(NO_OUTCOME, (failure, key))
                    added += 1
                    packed = other.packed_request(row)
                    request = stored_request(packed.messages, packed.sampling, kept)
                    connection.execute(_INSERT, (key, status, created, seconds, *rest, request))
        except sqlite3.Error as error:
            raise InputError(f"{ledger.path}: cannot write the ledger: {reason(error)}") from error
    return Merged(rows=rows, added=added, duplicates=duplicates)


def _failure_of(purpose: str, status: str, body: bytes) -> str:
    """Return the failure that a stored outcome is by the rules of today; "" if it is none."""
    if purpose != "generate" or status != "answered":
        return ""
    outcome = _stored_outcome(status, body, "", 0, 0, "")
    try:
        if not isinstance(outcome, NotAnAnswer):
            response_of(outcome)
            return ""
    except NotAnAnswer as wrong:
        outcome = wrong
    return f"{outcome.kind}: {outcome}"


def take_up(ledger: Ledger, shard: Path, waiting: Callable[[str], object], rows: int = 0) -> Merged:
    """Merge the ledger of a shard, once nobody writes it any more, and remove the shard's folder.

    Args:
        ledger: the run's.
        shard: the folder of the shard.
        waiting: see `files.held`.
        rows: the least that its ledger holds.

    Raises:
        InputError: see `merge`; or a network file system does not show all rows yet. The folder
            stays.
    """
    with Ledger(shard / LEDGER, waiting=waiting):  # takes in the log of a writer that was killed
        pass
    merged = merge(ledger, shard / LEDGER)
    if merged.rows < rows:
        raise InputError(
            f"{shard / LEDGER}: {counted(rows - merged.rows, 'call')} not seen yet; run again to"
            " take them up"
        )
    shutil.rmtree(shard)
    return merged


def merge_ledgers(ledgers: Sequence[Path], out: Path) -> dict[Path, Merged]:
    """Merge ledgers into one; return the result of each. If two of them answer a call, the first
    answer is kept.

    Args:
        ledgers: the ledgers.
        out: a new ledger, or one of `ledgers`, which then grows.

    Raises:
        InputError: see `merge`; or `out` exists and is none of the ledgers.
    """
    for path in ledgers:
        Ledger(path, readonly=True).close()
    new = not out.exists()
    sources = [path for path in ledgers if new or not out.samefile(path)]
    if not new and len(sources) == len(ledgers):
        raise InputError(
            f"{out}: is there already; expected a new file, or one of the ledgers that are merged"
        )
    # a new one is written beside its place: one that is killed half-way leaves nothing there
    growing = out.with_name(f".{out.name}.merging") if new else out
    if new:
        _remove(growing)
    try:
        with Ledger(growing) as ledger:
            merged = {path: merge(ledger, path) for path in sources}
        if new:
            growing.rename(out)
        return merged
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from error
    finally:
        if new:
            _remove(growing)


def _remove(ledger: Path) -> None:
    """Remove a ledger with the files that SQLite keeps beside it."""
    names = (
        *(ledger.name + end for end in ("", "-wal", "-shm", "-journal")),
        f".{ledger.name}.lock",
    )
    for name in names:
        ledger.with_name(name).unlink(missing_ok=True)
