"""Responses that were made elsewhere, in the ledger beside the calls."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.ledger_rows import (
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
from opensafeintent.calls.recorded import RecordedResponse, merged
from opensafeintent.errors import InputError

ResponsePlace = tuple[str, str, str, int]
"""Model, set id, variant, epoch."""


class SourceFile(NamedTuple):
    """A file that responses were read from."""

    path: Path
    sha256: str


_RECORD = msgspec.json.Decoder(tuple[str, RecordedResponse])
_ROWS: Any = list[tuple[int, str, str, str, int, bytes, int | None]]
_ROWS_AT_ONCE = 50
"""Their types are checked for several at once."""
_COLUMNS = "id, model, set_id, variant, epoch, record, response FROM imported"
_SELECT = f"SELECT {_COLUMNS}"
_WITH_SOURCE = f"SELECT source, {_COLUMNS}"
_SEVERAL_RUNS = "import its models into several runs, and name them all for one report"
_PLACES = "SELECT model, set_id, variant, epoch FROM imported WHERE dataset = ?"
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

    def add(self, dataset: str, responses: Iterable[tuple[SourceFile, RecordedResponse]]) -> None:
        """Record imported responses, all in one transaction or none.

        Args:
            dataset: hash of the dataset that they are responses to.
            responses: with their models and files; one that is there already is passed over.

        Raises:
            InputError: the file cannot be written, or a response is there already with another
                content.
        """
        try:
            with contextlib.closing(connect(self._path)) as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                sources: dict[str, int] = {}
                there = set(connection.execute(_PLACES, (dataset,)))
                for file, response in responses:
                    if file.sha256 not in sources:
                        sources[file.sha256] = _source(connection, file)
                    place = response.model, response.set_id, response.variant, response.epoch
                    if place not in there or self._adds(connection, dataset, place, response, file):
                        self._insert(connection, dataset, place, response, sources[file.sha256])
                    there.add(place)
        except sqlite3.Error as error:
            raise InputError(f"{self._path}: cannot write the ledger: {reason(error)}") from error
        finally:
            self._texts.forget()

    def rows(
        self, dataset: str | None = None, model: str | None = None, set_id: str | None = None
    ) -> Iterator[RecordedResponse]:
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

    def with_files(self, dataset: str) -> Iterator[tuple[SourceFile, RecordedResponse]]:
        """Yield every row that was imported for a dataset (its hash) with its file, as `add` takes
        them.

        Raises:
            TooLong: their texts do not fit into memory together.
            InputError: the ledger is damaged.
        """
        texts = TextsAt(self._reader, Room(self._path, _SEVERAL_RUNS))
        with reading(self._path):
            files = {
                typed(identity, int): SourceFile(Path(typed(name, str)), typed(digest, str))
                for identity, name, digest in self._reader.execute(
                    "SELECT id, name, sha256 FROM sources"
                )
            }
            rows = self._reader.execute(f"{_WITH_SOURCE} WHERE dataset = ? ORDER BY id", (dataset,))
            for source, *row in rows:
                [(_, *place, record, response)] = typed([row], _ROWS)
                yield files[typed(source, int)], _content(texts, tuple(place), record, response)

    def find(self, dataset: str, place: ResponsePlace) -> RecordedResponse | None:
        """Return an imported response, if there is one.

        Raises:
            InputError: the ledger is damaged.
        """
        return next(self._read(self._reader, _OF_ONE, (dataset, *place)), None)

    def _read(
        self, connection: sqlite3.Connection, where: str, values: tuple[object, ...]
    ) -> Iterator[RecordedResponse]:
        texts = TextsAt(connection, Room(self._path, _SEVERAL_RUNS))
        with reading(self._path):
            rows = connection.execute(f"{_SELECT} WHERE {where} ORDER BY id", values)
            by_place: dict[ResponsePlace, list[Any]] = {}
            while some := typed(rows.fetchmany(_ROWS_AT_ONCE), _ROWS):
                for identity, *place_of, record, response in some:
                    by_place.setdefault(tuple(place_of), []).append((identity, record, response))
            for place, same_place in by_place.items():
                contents = [_content(texts, place, *row[1:]) for row in same_place]
                text_first = sorted(same_place, key=lambda row: row[-1] is None)
                yield msgspec.structs.replace(
                    reduce(merged, contents),
                    rows=tuple(identity for identity, *_ in text_first),
                )

    def _adds(
        self,
        connection: sqlite3.Connection,
        dataset: str,
        place: ResponsePlace,
        recorded: RecordedResponse,
        file: SourceFile,
    ) -> bool:
        """Tell whether a response adds anything to what is stored of it.

        Raises:
            InputError: they contradict one another.
        """
        stored = next(self._read(connection, _OF_ONE, (dataset, *place)), None)
        try:
            return stored is None or merged(stored, recorded) != stored
        except ValueError as error:
            raise InputError(
                f"{file.path}: {recorded.model} has another response or grade for set"
                f" {recorded.set_id}, {recorded.variant}, epoch {recorded.epoch} in this run"
                " already; import into a new --out, or name the model apart with --model"
            ) from error

    def _insert(
        self,
        connection: sqlite3.Connection,
        dataset: str,
        place: ResponsePlace,
        recorded: RecordedResponse,
        source: int,
    ) -> None:
        text = recorded.response
        response = None if text is None else self._texts.id_of(connection, text)
        record = msgspec.structs.replace(recorded, model="", response=None)
        packed = pack(msgspec.json.encode((recorded.model, record)))
        connection.execute(
            "INSERT INTO imported (source, dataset, model, set_id, variant, epoch, response,"
            " record) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (source, dataset, *place, response, packed),
        )


def _source(connection: sqlite3.Connection, file: SourceFile) -> int:
    """Return the id of a file, which is added if it is not there."""
    connection.execute(
        "INSERT OR IGNORE INTO sources (sha256, name, created) VALUES (?, ?, ?)",
        (file.sha256, str(file.path), datetime.now(UTC).isoformat(timespec="milliseconds")),
    )
    identity: int = connection.execute(
        "SELECT id FROM sources WHERE sha256 = ?", (file.sha256,)
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
    model, recorded = _RECORD.decode(unpack(record))
    if (model, recorded.set_id, recorded.variant, recorded.epoch) != place:
        raise ValueError("an imported response is that to another prompt")
    text = None if response is None else texts[response]
    return msgspec.structs.replace(recorded, model=model, response=text)
