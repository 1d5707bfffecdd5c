"""Several ledgers made one."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from opensafeintent.calls.ledger import LEDGER, STORED, Ledger
from opensafeintent.calls.ledger_rows import DamagedLedger, connect, id_at, reason
from opensafeintent.calls.ledger_writer import encode_request
from opensafeintent.errors import InputError, pluralize
from opensafeintent.hostile import clean_for_display

_INSERT = f"INSERT INTO calls ({STORED}, request) VALUES (?{', ?' * (STORED.count(',') + 1)})"

_ANSWER = "SELECT created, seconds FROM calls WHERE key = ? AND status <> 'failed'"

_FAILURE = (
    "SELECT created, seconds FROM calls WHERE key = ? AND status = 'failed' AND created = ? AND"
    " seconds = ?"
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
    with Ledger(source, readonly=True) as source_ledger, source_ledger.snapshot():
        if next(source_ledger.imports.rows(), None) is not None:
            raise InputError(
                f"{source}: holds imported responses, which cannot be merged; import their files"
                " instead"
            )
        return _copy_rows(ledger, source_ledger)


def copy_calls(ledger: Ledger, source: Ledger, keys: Collection[bytes]) -> int:
    """Add every attempt at some calls to another ledger, in one transaction; return how many rows
    it did not have.

    Args:
        ledger: the ledger that grows, open for writing.
        source: the other one, which stays as it is; open for reading.
        keys: of the calls.

    Raises:
        InputError: `source` is damaged, or `ledger` cannot be written. Nothing is added then.
    """
    return _copy_rows(ledger, source, keys).added


def copy_ledger(source: Path, out: Path) -> None:
    """Copy a ledger as it is at this moment, while another process may write it.

    Args:
        source: the ledger.
        out: a new file.

    Raises:
        InputError: `source` is no ledger, or `out` cannot be written.
    """
    Ledger(source, readonly=True).close()
    try:
        with (
            contextlib.closing(connect(source, readonly=True)) as connection,
            contextlib.closing(sqlite3.connect(out)) as copy,
        ):
            connection.backup(copy)
    except sqlite3.Error as error:
        raise InputError(f"{out}: cannot copy {source}: {reason(error)}") from error


def _copy_rows(ledger: Ledger, source: Ledger, keys: Collection[bytes] | None = None) -> Merged:
    """Add the rows of a ledger, or those of some calls, in one transaction."""
    ledger.holds_others = True
    with contextlib.closing(connect(ledger.path)) as connection:
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                return _add_rows(connection, source, keys)
        except sqlite3.Error as error:
            raise InputError(f"{ledger.path}: cannot write the ledger: {reason(error)}") from error


def _add_rows(
    connection: sqlite3.Connection, source: Ledger, keys: Collection[bytes] | None
) -> Merged:
    """Add the rows of a ledger, or those of some calls, but for those that are there and second
    answers to a call.
    """

    @cache
    def move_text(identity: int) -> int:
        """Return the id of a text of the source in the ledger that grows."""
        return id_at(connection, *source.read_packed_text(identity))

    def move_part(part: str | int) -> str | int:
        return part if isinstance(part, str) else move_text(part)

    rows = added = duplicates = 0
    for row, key, status, created, seconds, *fields in source.yield_rows(keys):
        rows += 1
        same = (_FAILURE, (key, created, seconds)) if status == "failed" else (_ANSWER, (key,))
        if (present := connection.execute(*same).fetchone()) is not None:
            # else it is the same row, merged before
            duplicates += present != (created, seconds)
            continue
        added += 1
        packed = source.read_packed_request(row)
        request = encode_request(packed.messages, packed.sampling, move_part)
        connection.execute(_INSERT, (key, status, created, seconds, *fields, request))
    return Merged(rows=rows, added=added, duplicates=duplicates)


@contextlib.contextmanager
def shard_read(shard: Path) -> Iterator[None]:
    """Say of a shard's ledger that is damaged which calls are in it, and how to go on without them.

    Args:
        shard: the folder of the shard.
    """
    try:
        yield
    except DamagedLedger as damage:
        calls = _readable_calls(shard / LEDGER)
        named = ", ".join(f"{clean_for_display(model)} {count:,}" for model, count in calls.items())
        raise InputError(
            f"{damage}; it holds the answers of one shard"
            f" ({f'calls that can be counted: {named}' if named else 'no call can be counted'});"
            f" put a copy in its place, or move the folder {shard} out of {shard.parent} and run"
            " the same command again"
        ) from damage


def _readable_calls(path: Path) -> Counter[str]:
    """Count the calls of a damaged ledger by model, as far as they can be read."""
    calls: Counter[str] = Counter()
    with (
        contextlib.suppress(sqlite3.Error, OSError, InputError, ValueError),
        contextlib.closing(connect(path, readonly=True)) as connection,
    ):
        connection.execute("PRAGMA writable_schema = ON")  # or a file cut short is not read at all
        for (model,) in connection.execute("SELECT model FROM calls ORDER BY id"):
            calls[str(model)] += 1
    return calls


def take_up(ledger: Ledger, shard: Path, waiting: Callable[[str], object], rows: int = 0) -> Merged:
    """Merge the ledger of a shard, once nobody writes it any more, and remove the shard's folder.

    Args:
        ledger: the run's.
        shard: the folder of the shard.
        waiting: see `replacing.lock_held`.
        rows: the least that its ledger holds.

    Raises:
        InputError: see `merge` and `shard_read`; or a network file system does not show all rows
            yet. The folder stays.
    """
    with shard_read(shard):
        Ledger(shard / LEDGER, waiting=waiting).close()  # takes in the log of a killed writer
        merged = merge(ledger, shard / LEDGER)
    if merged.rows < rows:
        raise InputError(
            f"{shard / LEDGER}: {pluralize(rows - merged.rows, 'call')} not seen yet; run again to"
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
            _lock_path(growing).unlink(
                missing_ok=True
            )  # else it stays if the next line is the last
            growing.rename(out)
        return merged
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from error
    finally:
        if new:
            _remove(growing)


def _remove(ledger: Path) -> None:
    """Remove a ledger with the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    _lock_path(ledger).unlink(missing_ok=True)


def _lock_path(ledger: Path) -> Path:
    return ledger.with_name(f".{ledger.name}.lock")
