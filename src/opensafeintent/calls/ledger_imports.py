"""Responses that were made elsewhere, in the ledger beside the calls."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.ledger_file import (
    Room,
    Texts,
    TextsAt,
    connect,
    pack,
    reading,
    reason,
    typed,
    unpack,
)
from opensafeintent.calls.recorded import RecordedResponse, in_words, merged
from opensafeintent.errors import InputError, option

ResponsePlace = tuple[str, str, str, int]
"""Model, set id, variant, epoch."""


class ImportedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A response from elsewhere, with the grades that came with it."""

    model: str
    recorded: RecordedResponse
    source: Path
    """The file that it came from."""
    source_sha256: str


class ImportedResponse(msgspec.Struct, frozen=True):
    """An imported response as the ledger holds it."""

    model: str
    recorded: RecordedResponse
    rows: tuple[int, ...]
    """Ids of its rows: its text and its grades may come from several files."""
    text_row: int
    """Id of the row that has its text; the first one if none has."""


_ROW: Any = tuple[int, ResponsePlace, bytes, int | None]
_SELECT = "SELECT id, model, set_id, variant, epoch, record, response FROM imported"
_SEVERAL_RUNS = "import its models into several runs, and name them all for one report"
_OF_ONE = "dataset = ? AND model = ? AND set_id = ? AND variant = ? AND epoch = ?"


class Imports:
    """The imported responses of one ledger.

    Args:
        path: the ledger's file.
        reader: a connection to it, for reading.
        texts: its texts.
    """

    def __init__(self, path: Path, reader: sqlite3.Connection, texts: Texts) -> None:
        self._path, self._reader, self._texts = path, reader, texts
        self.unreadable: dict[ResponsePlace, str] = {}
        """Stored responses that were left out, as an earlier version stored values off their
        scales; and why.
        """

    def add(self, dataset: str, rows: Iterable[ImportedRow]) -> None:
        """Record imported responses, all in one transaction or none.

        Args:
            dataset: hash of the dataset that they are responses to.
            rows: the responses; one that is there already is passed over.

        Raises:
            InputError: the file cannot be written, or a response is there already with another
                content.
        """
        try:
            with contextlib.closing(connect(self._path)) as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                sources: dict[str, int] = {}
                for row in rows:
                    if row.source_sha256 not in sources:
                        sources[row.source_sha256] = _source(connection, row)
                    self._insert(connection, dataset, row, sources[row.source_sha256])
        except sqlite3.Error as error:
            raise InputError(f"{self._path}: cannot write the ledger: {reason(error)}") from error
        finally:
            self._texts.forget()

    def rows(
        self, dataset: str | None = None, model: str | None = None, set_id: str | None = None
    ) -> Iterator[ImportedResponse]:
        """Yield every response that was imported, for one dataset (its hash) or for any, in the
        order of import; of one model, or of one of its prompt-sets, alone if it is named.

        Raises:
            TooLong: their texts do not fit into memory together.
            InputError: the ledger is damaged.
        """
        columns = {"dataset": dataset, "model": model, "set_id": set_id}
        filters = {column: value for column, value in columns.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in filters) or "true"
        yield from self._read(self._reader, where, tuple(filters.values()))

    def find(self, dataset: str, place: ResponsePlace) -> ImportedResponse | None:
        """Return an imported response, if there is one.

        Raises:
            InputError: the ledger is damaged.
        """
        return next(self._read(self._reader, _OF_ONE, (dataset, *place)), None)

    def _read(
        self, connection: sqlite3.Connection, where: str, values: tuple[object, ...]
    ) -> Iterator[ImportedResponse]:
        texts = TextsAt(connection, Room(self._path, _SEVERAL_RUNS))
        with reading(self._path):
            rows = connection.execute(f"{_SELECT} WHERE {where} ORDER BY id", values)
            by_place: dict[ResponsePlace, list[Any]] = {}
            for identity, *key, record, response in rows:
                row = typed((identity, key, record, response), _ROW)
                by_place.setdefault(row[1], []).append(row)
            for place, same_place in by_place.items():
                try:
                    contents = [_content(texts, *row[1:]) for row in same_place]
                except msgspec.ValidationError as error:
                    self.unreadable[place] = in_words(str(error))
                    continue
                yield ImportedResponse(
                    place[0],
                    reduce(merged, contents),
                    tuple(identity for identity, *_ in same_place),
                    next((row[0] for row in same_place if row[-1] is not None), same_place[0][0]),
                )

    def _insert(
        self, connection: sqlite3.Connection, dataset: str, row: ImportedRow, source: int
    ) -> None:
        recorded = row.recorded
        key = (dataset, row.model, recorded.set_id, recorded.variant, recorded.epoch)
        stored = next(self._read(connection, _OF_ONE, key), None)
        try:
            if stored is not None and merged(stored.recorded, recorded) == stored.recorded:
                return
        except ValueError as error:
            raise InputError(
                f"{row.source}: {row.model} has another response or grade for set"
                f" {recorded.set_id}, {recorded.variant}, epoch {recorded.epoch} in this run"
                f" already; import into a new {option('out')}, or name the model apart with"
                f" {option('model')}"
            ) from error
        text = recorded.response
        response = None if text is None else self._texts.id_of(connection, text)
        without_text = msgspec.structs.replace(recorded, response=None)
        connection.execute(
            "INSERT INTO imported (source, dataset, model, set_id, variant, epoch, response,"
            " record) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (source, *key, response, pack(msgspec.json.encode((row.model, without_text)))),
        )


def _source(connection: sqlite3.Connection, row: ImportedRow) -> int:
    """Return the id of a row's file, which is added if it is not there."""
    connection.execute(
        "INSERT OR IGNORE INTO sources (sha256, name, created) VALUES (?, ?, ?)",
        (row.source_sha256, str(row.source), datetime.now(UTC).isoformat(timespec="milliseconds")),
    )
    identity: int = connection.execute(
        "SELECT id FROM sources WHERE sha256 = ?", (row.source_sha256,)
    ).fetchone()[0]
    return identity


def _content(
    texts: Mapping[int, str], place: ResponsePlace, record: bytes, response: int | None
) -> RecordedResponse:
    """Return the content of one row.

    Raises:
        ValueError, LookupError, zlib.error: it differs from the stored one.
        TooLong: see `TextsAt`.
    """
    model, recorded = msgspec.json.decode(unpack(record), type=tuple[str, RecordedResponse])
    if (model, recorded.set_id, recorded.variant, recorded.epoch) != place:
        raise ValueError("an imported response is that to another prompt")
    if response is None:
        return recorded
    return msgspec.structs.replace(recorded, response=texts[response])
