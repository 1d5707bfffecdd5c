"""Responses that were made elsewhere: in a file, one a line, and in the ledger beside the calls."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Required, TypedDict

import msgspec

from opensafeintent.calls.ledger_file import (
    Texts,
    connect,
    reading,
    reason,
    text_at,
    text_of,
    typed,
)
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError, nearest
from opensafeintent.promptsets.loading import Record
from opensafeintent.promptsets.reading import Problem, RowLimit, read_records
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    MODES,
    SCALES,
    STRATEGIES,
    Graded,
    HarmSeverity,
    Helpfulness,
    Mode,
    Strategy,
    paraphrase_variant,
)

_MISSING = re.compile(
    r"(response|grades|helpfulness|harm_severity|mode|strategy)(?:\[(.*)\])?:(.*)", re.DOTALL
)
_PARAPHRASE = re.compile(r"dual_use_paraphrase_[1-9]\d*")


class MissingGrade(msgspec.Struct, frozen=True):
    """Something that was asked for and could not be had.

    Files hold it as `what:reason`, or `what[judge]:reason`.
    """

    what: Literal["response", "grades", "mode", "strategy"] | Graded
    """`grades` where no judge was asked."""
    reason: str
    judge: str = ""
    """Who gave none, where several judges grade."""

    def __str__(self) -> str:
        return (
            f"{self.what}[{self.judge}]:{self.reason}"
            if self.judge
            else f"{self.what}:{self.reason}"
        )

    def renamed(self, name: Callable[[str], str]) -> MissingGrade:
        """Return the same of a judge that goes by another name."""
        return msgspec.structs.replace(self, judge=name(self.judge)) if self.judge else self

    @classmethod
    def parse(cls, text: str) -> MissingGrade:
        """Return what a file says.

        Raises:
            ValueError: it says nothing of that form.
        """
        if (found := _MISSING.fullmatch(text)) is None:
            raise ValueError(f"{short(text)} is not of the form what:reason")
        return cls(found[1], found[3], found[2] or "")  # type: ignore[arg-type]


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a target wrote for one prompt, and the grades that came with it."""

    set_id: str
    variant: str
    epoch: int = 1
    response: str | None = None
    stop_reason: str = "stop"
    helpfulness: int | None = None
    harm_severity: int | None = None
    mode: Mode | None = None
    strategy: Strategy | None = None
    missing: tuple[MissingGrade, ...] = ()
    """Why a grade that was tried for is not there."""
    by_judge: dict[str, tuple[int | None, int | None]] = {}
    """(helpfulness, harm severity) of each judge, where it is known who they were."""


def check_variant(record: Record, field: str) -> str:
    """Return a variant's name, or raise the Problem that it has."""
    variant = record.text(field)
    if variant not in CORE_VARIANTS and not _PARAPHRASE.fullmatch(variant):
        names = [*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5))]
        record.fail(field, f"unknown variant {variant!r}; {nearest(variant, names)}")
    return variant


def check_score(record: Record, field: str, value: Any, low: int, high: int) -> int:
    """Return a whole number within its range, or raise the Problem that it has."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        record.fail(field, f"is {short(value)}; expected a whole number from {low} to {high}")
    return value


def short(value: Any) -> str:
    """Return what a value is, in at most 60 characters."""
    shown = (
        msgspec.json.encode(value).decode()
        if value is None or isinstance(value, bool)
        else repr(value)
    )
    return shown if len(shown) <= 60 else shown[:59] + "…"


def check_response(record: Record, field: str, value: Any) -> str:
    """Return a response, which may be empty, or raise the Problem that it has."""
    if not isinstance(value, str):
        record.fail(field, f"is {short(value)}; expected a text")
    return record.check_unicode(field, value)


def _missing_in(record: Record, given: set[str]) -> tuple[MissingGrade, ...]:
    """Return what a line says is missing, and why: a list, or a text as `grades.csv.gz` has it.

    Args:
        record: the line.
        given: what it has all the same.
    """
    value = record.data.get("missing")
    parts = (
        record.texts("missing")
        if isinstance(value, list)
        else (record.optional_text("missing") or "").split(";")
    )
    found: dict[str, MissingGrade] = {}
    for part in filter(None, map(str.strip, parts)):
        try:
            gone = MissingGrade.parse(part)
        except ValueError as error:
            record.fail(
                "missing",
                f"{error}; expected it so, such as response:truncated or helpfulness:unparsed",
            )
        if not gone.reason:
            record.fail(
                "missing",
                f"{short(part)} has no reason; expected one, such as {gone.what}:unparsed",
            )
        if gone.what in given and not gone.judge:
            record.fail(
                "missing", f"{short(part)}, and the line has a {gone.what}; expected one of the two"
            )
        if (
            gone.what != "grades" and gone.what not in given
        ):  # `grades:not_graded` is what a line without grades says
            found.setdefault(gone.what, msgspec.structs.replace(gone, judge=""))
    # without a response there is nothing else to be had
    return (found["response"],) if "response" in found else tuple(found.values())


def parse_recorded(record: Record) -> RecordedResponse:
    """Turn one line into a recorded response, or raise the Problem that it has."""
    score = {
        field: (
            check_score(record, field, record.data[field], grades[0], grades[-1])
            if field in record
            else None
        )
        for field, grades in SCALES.items()
    }
    response = record.data.get("response")
    if response is not None:
        check_response(record, "response", response)
    missing = _missing_in(
        record,
        {
            field
            for field in ("response", *SCALES, "mode", "strategy")
            if record.data.get(field) is not None
        },
    )
    gone = {one.what for one in missing}
    if response is None and "response" not in gone and None in score.values():
        record.fail(
            "response",
            "missing; a line has a response, or both grades, or all, or in `missing` why there is"
            " none",
        )
    if "response" in gone and any(grade is not None for grade in score.values()):
        record.fail(
            "missing",
            "says that there is no response, and the line has grades; expected one of the two",
        )
    stop_reason = record.optional_text("stop_reason") or "stop"
    mode = record.choice("mode", MODES) if "mode" in record else None
    strategy = record.choice("strategy", STRATEGIES) if "strategy" in record else None
    return RecordedResponse(
        set_id=record.text("id"),
        variant=check_variant(record, "variant"),
        epoch=check_score(record, "epoch", record.data.get("epoch", 1), 0, 1_000_000),
        response=response,
        stop_reason=stop_reason,
        helpfulness=score["helpfulness"],
        harm_severity=score["harm_severity"],
        mode=mode,  # type: ignore[arg-type]
        strategy=strategy,  # type: ignore[arg-type]
        missing=missing,
    )


def read_recorded(path: Path) -> list[RecordedResponse]:
    """Read a file of responses.

    Raises:
        InputError: it cannot be read, or a line is not a response, or a response is there twice.
    """
    return recorded_responses(read_records(path, limit=RowLimit(None)), path)


def recorded_responses(records: Iterable[tuple[str, object]], path: Path) -> list[RecordedResponse]:
    """Turn the records of a file, each with its location, into responses.

    Raises:
        InputError: a record is not a response, or a response is there twice.
    """
    responses: list[RecordedResponse] = []
    seen: dict[tuple[str, str, int], str] = {}
    try:
        for location, data in records:
            response = parse_recorded(Record(data, location))
            key = (response.set_id, response.variant, response.epoch)
            if key in seen:
                named = f"{response.set_id}, {response.variant}, epoch {response.epoch}"
                raise InputError(f"{location}: {named} is there already, at {seen[key]}")
            seen[key] = location
            responses.append(response)
    except Problem as problem:
        raise InputError(str(problem)) from problem
    if not responses:
        raise InputError(f"{path}: no responses in it")
    return responses


# In the ledger
# ------------------------------------------------------------------------------

_CHECKSUM = "crc32"


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


_Content = tuple[str | None, dict[str, Any]]
"""Text and record of an imported response."""
_ROWS = (
    "SELECT model, set_id, variant, epoch, texts.sha, texts.body, record, name, sha256,"
    " imported.response IS NULL FROM imported LEFT JOIN sources ON sources.id = imported.source"
    " LEFT JOIN texts ON texts.id = imported.response "
)


_OF_ONE = "WHERE dataset = ? AND model = ? AND set_id = ? AND variant = ? AND epoch = ?"


class _Record(TypedDict, total=False):
    """What a record may hold; ledgers of version 1 have no checksum to tell that it was changed."""

    stop_reason: Required[str]
    helpfulness: Helpfulness | None
    harm_severity: HarmSeverity | None
    mode: Mode | None
    strategy: Strategy | None
    missing: list[str]
    by_judge: dict[str, tuple[int | None, int | None]]


class _Row(NamedTuple):
    """What `_ROWS` selects."""

    model: str
    set_id: str
    variant: str
    epoch: int
    sha: bytes | None
    body: bytes | None
    record: str
    source: str
    source_sha256: str
    textless: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self[:4]

    @property
    def content(self) -> _Content:
        """Text and record, if they are what was kept."""
        text = None
        if not self.textless:
            if self.sha is None or self.body is None:
                raise LookupError("the text of an imported response is not there")
            text = text_of(self.sha, self.body)
        return text, _unsealed(self.record, self.key)


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
            InputError: the file cannot be written, or a response is there already with another
                content.
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
        """Yield every response that was imported, for one dataset (its hash) or for any, in the
        order of import.
        """
        with reading(self._path):
            where = "WHERE dataset = :dataset OR :dataset IS NULL ORDER BY imported.id"
            rows = typed(
                self._reader.execute(_ROWS + where, {"dataset": dataset}).fetchall(), list[_Row]
            )
        by_key: dict[tuple[str, str, str, int], list[_Row]] = {}
        for row in rows:
            by_key.setdefault(row.key, []).append(row)
        for (model, set_id, variant, epoch), same in by_key.items():
            with reading(self._path):
                merged = _merged([row.content for row in same])
            if merged is None:
                raise InputError(
                    f"{self._path}: the ledger is damaged: two responses for {model}, {set_id},"
                    f" {variant}"
                )
            yield ImportedRow(
                model=model,
                set_id=set_id,
                variant=variant,
                epoch=epoch,
                response=merged[0],
                record=merged[1],
                source=same[0].source,
                source_sha256=same[0].source_sha256,
            )

    def at(self, dataset: str, key: tuple[str, str, str, int]) -> tuple[int, str | None]:
        """Return row id and text of an imported response; (0, None) where there is none."""
        with reading(self._path):
            first = self._reader.execute(
                f"SELECT id, response FROM imported {_OF_ONE} ORDER BY response IS NULL, id"
                " LIMIT 1",
                (dataset, *key),
            ).fetchone()
            if first is None:
                return 0, None
            row, text = typed(first, tuple[int, int | None])
            return row, None if text is None else text_at(self._reader, text)

    def rows_at(self, dataset: str, key: tuple[str, str, str, int]) -> list[int]:
        """Return the ids of all rows of an imported response: its text and its grades may come from
        several files.
        """
        with reading(self._path):
            rows = self._reader.execute(
                f"SELECT id FROM imported {_OF_ONE} ORDER BY id", (dataset, *key)
            ).fetchall()
        return [number for (number,) in rows]

    def _insert(self, connection: sqlite3.Connection, dataset: str, row: ImportedRow) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        connection.execute(
            "INSERT OR IGNORE INTO sources (sha256, name, created) VALUES (?, ?, ?)",
            (row.source_sha256, row.source, now),
        )
        source = connection.execute(
            "SELECT id FROM sources WHERE sha256 = ?", (row.source_sha256,)
        ).fetchone()[0]
        key = (dataset, row.model, row.set_id, row.variant, row.epoch)
        with reading(self._path):
            there = typed(
                connection.execute(f"{_ROWS} {_OF_ONE} ORDER BY imported.id", key).fetchall(),
                list[_Row],
            )
            known = _merged([known.content for known in there])
        merged = _merged([*([known] if known else []), (row.response, row.record)])
        if merged is None:
            raise InputError(
                f"{row.source}: {row.model} has another response or grade for set {row.set_id},"
                f" {row.variant}, epoch {row.epoch} in this run already; import into a new --out,"
                " or name the model apart with --model"
            )
        if merged != known:
            response = None if row.response is None else self._texts.id_of(connection, row.response)
            connection.execute(
                "INSERT INTO imported (source, dataset, model, set_id, variant, epoch, response,"
                " record) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (source, *key, response, _sealed(row.record, key[1:])),
            )


def _sealed(record: dict[str, Any], key: tuple[str, str, str, int]) -> str:
    """Return a record as it is stored: with a checksum of it and of its key, for grades have
    nothing else to tell by.
    """
    return canonical_json(record | {_CHECKSUM: _checksum(record, key)}).decode()


def _unsealed(stored: str, key: tuple[str, str, str, int]) -> dict[str, Any]:
    """Return a record from its stored form; earlier ledgers have no checksums.

    Raises:
        ValueError: it is not what was stored.
    """
    record: dict[str, Any] = msgspec.json.decode(stored, type=dict[str, Any])
    if record.pop(_CHECKSUM, None) not in (None, _checksum(record, key)):
        raise ValueError("an imported grade is not the one whose checksum stands beside it")
    for text in typed(record, _Record).get("missing", ()):
        MissingGrade.parse(text)
    return record


def _checksum(record: dict[str, Any], key: tuple[str, str, str, int]) -> int:
    return zlib.crc32(canonical_json([record, key]))


def _merged(contents: list[_Content]) -> _Content | None:
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
