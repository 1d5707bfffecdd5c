"""Responses from elsewhere, kept in the ledger beside the calls."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.ledger_file import Texts, connect, reading, reason, text_at, text_of
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError

__all__ = ["ImportedRow", "Imports"]


class ImportedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A response from elsewhere, with the grades that came with it."""

    model: str
    set_id: str
    variant: str
    epoch: int
    response: str | None
    record: dict[str, Any]
    """Stop reason, grades and reasons for missing ones, as the importer read them."""
    source: str = ""
    """The file that it came from."""
    source_sha256: str


class Imports:
    """The imported responses of one ledger.

    Args:
        path: the ledger's file.
        reader: a connection to it, for reading.
        texts: its texts.
    """

    def __init__(self, path: Path, reader: sqlite3.Connection, texts: Texts) -> None:
        self._path, self._reader, self._texts = path, reader, texts

    def add(self, dataset: str, rows: Iterable[ImportedRow]) -> None:
        """Record imported responses, all in one transaction or none.

        Args:
            dataset: hash of the dataset that they are responses to.
            rows: the responses; one that is there already is passed over.

        Raises:
            InputError: the file cannot be written, or a response is there already with another content.
        """
        try:
            with contextlib.closing(connect(self._path)) as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                for row in rows:
                    self._insert(connection, dataset, row)
        except sqlite3.Error as error:
            raise InputError(f"{self._path}: cannot write the ledger: {reason(error)}") from error
        finally:
            self._texts.forget()

    def rows(self, dataset: str | None = None) -> Iterator[ImportedRow]:
        """Yield every response that was imported, for one dataset (its hash) or for any, in the order of import."""
        with reading(self._path):
            rows = self._reader.execute(
                "SELECT model, set_id, variant, epoch, texts.body, record, name, sha256 FROM imported "
                "JOIN sources ON sources.id = imported.source LEFT JOIN texts ON texts.id = imported.response "
                "WHERE dataset = :dataset OR :dataset IS NULL ORDER BY imported.id",
                {"dataset": dataset},
            ).fetchall()
        by_place: dict[tuple[str, str, str, int], list[tuple[Any, ...]]] = {}
        for model, set_id, variant, epoch, *content in rows:
            by_place.setdefault((model, set_id, variant, epoch), []).append(tuple(content))
        for (model, set_id, variant, epoch), contents in by_place.items():
            with reading(self._path):
                merged = _merged([(text_of(body), msgspec.json.decode(record)) for body, record, _, _ in contents])
            if merged is None:
                raise InputError(f"{self._path}: the ledger is damaged: two responses for {model}, {set_id}, {variant}")
            _, _, name, sha = contents[0]
            yield ImportedRow(
                model=model,
                set_id=set_id,
                variant=variant,
                epoch=epoch,
                response=merged[0],
                record=merged[1],
                source=name,
                source_sha256=sha,
            )

    def at(self, dataset: str, place: tuple[str, str, str, int]) -> tuple[int, str | None]:
        """Return row id and text of an imported response; (0, None) where there is none."""
        with reading(self._path):
            found = self._reader.execute(
                "SELECT id, response FROM imported WHERE dataset = ? AND model = ? AND set_id = ? AND variant = ? "
                "AND epoch = ? ORDER BY response IS NULL, id LIMIT 1",
                (dataset, *place),
            ).fetchone()
            if found is None:
                return 0, None
            row, text = found
            return row, None if text is None else text_at(self._reader, text)

    def rows_at(self, dataset: str, place: tuple[str, str, str, int]) -> list[int]:
        """Return the ids of all rows of an imported response: its text and its grades may come from several files."""
        with reading(self._path):
            rows = self._reader.execute(
                "SELECT id FROM imported WHERE dataset = ? AND model = ? AND set_id = ? AND variant = ? AND epoch = ? "
                "ORDER BY id",
                (dataset, *place),
            ).fetchall()
        return [number for (number,) in rows]

    def _insert(self, connection: sqlite3.Connection, dataset: str, row: ImportedRow) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        connection.execute(
            "INSERT OR IGNORE INTO sources (sha256, name, created) VALUES (?, ?, ?)", (row.source_sha256, row.source, now)
        )
        source = connection.execute("SELECT id FROM sources WHERE sha256 = ?", (row.source_sha256,)).fetchone()[0]
        place = (dataset, row.model, row.set_id, row.variant, row.epoch)
        there = connection.execute(
            "SELECT body, record FROM imported LEFT JOIN texts ON texts.id = imported.response "
            "WHERE dataset = ? AND model = ? AND set_id = ? AND variant = ? AND epoch = ? ORDER BY imported.id",
            place,
        ).fetchall()
        known = _merged([(text_of(body), msgspec.json.decode(record)) for body, record in there])
        merged = _merged([*([known] if known else []), (row.response, row.record)])
        if merged is None:
            raise InputError(
                f"{row.source}: {row.model} has another response or grade for set {row.set_id}, {row.variant}, "
                f"epoch {row.epoch} in this run already; import into a new --out, or name the model apart with --model"
            )
        if merged != known:
            response = None if row.response is None else self._texts.id_of(connection, row.response)
            connection.execute(
                "INSERT INTO imported (source, dataset, model, set_id, variant, epoch, response, record) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (source, *place, response, canonical_json(row.record).decode()),
            )


def _merged(contents: list[tuple[str | None, dict[str, Any]]]) -> tuple[str | None, dict[str, Any]] | None:
    """Put together what several files say of one response; None where they contradict one another.

    The authors' scripts write grades, modes and strategies into files of their own.
    """
    text: str | None = None
    record: dict[str, Any] = {}
    missing: set[str] = set()
    for other_text, other in contents:
        if text is not None and other_text not in (None, text):
            return None
        text = other_text if text is None else text
        missing |= set(other.get("missing", ()))
        for field, value in other.items():
            if field != "missing" and record.setdefault(field, value) != value:
                return None
    open_reasons = sorted(reason for reason in missing if reason.split(":")[0] not in record)
    return text, record | ({"missing": open_reasons} if open_reasons else {})
