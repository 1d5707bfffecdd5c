"""Merge ledgers: those of shards into the run's, or any by hand."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from opensafeintent.calls.ledger import STORED, Ledger
from opensafeintent.calls.ledger_file import Texts, connect, reason
from opensafeintent.calls.writer import stored_request
from opensafeintent.errors import InputError

LEDGER = "ledger.sqlite"
"""The name of a ledger in the folder of a shard."""
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
    first answer stands.

    Merging a ledger again adds nothing.

    Args:
        ledger: the ledger that grows, open for writing.
        source: the other one.

    Raises:
        InputError: `source` is no ledger, is damaged, or holds imported responses; or `ledger`
            cannot be written. Nothing is added then.
    """
    rows = added = duplicates = 0
    texts = Texts()
    with (
        Ledger(source, readonly=True) as other,
        other.snapshot(),
        closing(connect(ledger.path)) as connection,
    ):
        if next(other.imports.rows(), None) is not None:
            raise InputError(
                f"{source}: holds imported responses, which cannot be merged; import their files"
                " instead"
            )
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                for row, key, status, created, seconds, *rest in other.stored():
                    rows += 1
                    same = (
                        (_FAILURE, (key, created, seconds))
                        if status == "failed"
                        else (_ANSWER, (key,))
                    )
                    if (known := connection.execute(*same).fetchone()) is not None:
                        duplicates += known != (
                            created,
                            seconds,
                        )  # else the same row, merged before
                        continue
                    added += 1
                    request = stored_request(connection, texts, *other.request(row))
                    connection.execute(_INSERT, (key, status, created, seconds, *rest, request))
        except sqlite3.Error as error:
            raise InputError(f"{ledger.path}: cannot write the ledger: {reason(error)}") from error
    return Merged(rows=rows, added=added, duplicates=duplicates)


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
            f"{shard / LEDGER}: {rows - merged.rows:,} calls cannot be seen yet; run again to take"
            " them up"
        )
    shutil.rmtree(shard)
    return merged


def merge_ledgers(ledgers: Sequence[Path], out: Path) -> dict[Path, Merged]:
    """Merge ledgers into one; return the result of each. If two of them answer a call, the first
    answer stands.

    Args:
        ledgers: the ledgers.
        out: a new ledger, or one of `ledgers`, which then grows.

    Raises:
        InputError: see `merge`; or `out` is there and is none of the ledgers.
    """
    for path in ledgers:
        Ledger(path, readonly=True).close()
    new = not out.exists()
    sources = [path for path in ledgers if new or not out.samefile(path)]
    if not new and len(sources) == len(ledgers):
        raise InputError(
            f"{out}: is there already; expected a new file, or one of the ledgers that are merged"
        )
    try:
        with Ledger(out) as ledger:
            return {path: merge(ledger, path) for path in sources}
    except BaseException:  # an interruption as well: no half of a new ledger stays
        if new:
            out.unlink(missing_ok=True)
        raise
