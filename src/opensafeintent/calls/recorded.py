"""Responses that were made elsewhere: in a file, one a line, and in the ledger beside the calls."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

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
from opensafeintent.calls.reasoning_signs import REASONING_FIELDS, REASONING_ONLY, reasoned_beside
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line, short_name
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.promptsets.reading import MOST_LISTED, Problem, distinct_problems, read_records
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    MODES,
    MOST_EPOCHS,
    SCALES,
    STRATEGIES,
    Graded,
    HarmGrade,
    HelpfulnessGrade,
    KnownGrades,
    Mode,
    Strategy,
    paraphrase_variant,
)

_MISSING = re.compile(
    r"(response|grades|helpfulness|harm_severity|mode|strategy)(?:\[(.*)\])?:(.+)", re.DOTALL
)
_PARAPHRASE = re.compile(r"dual_use_paraphrase_[1-9]\d*")


class MissingGrade(msgspec.Struct, frozen=True):
    """A response, grade, mode or strategy that was requested but not obtained.

    Files hold it as `what:reason`, or `what[judge]:reason`.
    """

    what: Literal["response", "grades", "mode", "strategy"] | Graded
    """`grades` if no judge was asked."""
    reason: str
    judge: str = ""
    """The judge without a grade, if several judges grade."""

    def __str__(self) -> str:
        return (
            f"{self.what}[{self.judge}]:{self.reason}"
            if self.judge
            else f"{self.what}:{self.reason}"
        )

    @classmethod
    def parse(cls, text: str) -> MissingGrade:
        """Read one from the text in a file.

        Raises:
            ValueError: the text has another form.
        """
        if (match := _MISSING.fullmatch(text)) is None:
            raise ValueError(f"{short(text)} is not of the form what:reason")
        return cls(match[1], match[3], match[2] or "")  # type: ignore[arg-type]


WITHHELD = MissingGrade("response", "withheld")
"""An export left the text out because it is unsafe, and the grades were taken away."""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target's response to one prompt, and the grades that came with it."""

    set_id: str
    variant: str
    epoch: Annotated[int, Meta(ge=0, le=MOST_EPOCHS)] = 1
    """From 0 on in files of tools that count so."""
    response: str | None = None
    stop_reason: str = "stop"
    helpfulness: HelpfulnessGrade | None = None
    harm_severity: HarmGrade | None = None
    mode: Mode | None = None
    strategy: Strategy | None = None
    missing: tuple[MissingGrade, ...] = ()
    """Why a grade that was tried for is not there."""
    by_judge: dict[str, KnownGrades] = {}
    """The grades of each judge, if the judges are known."""


def check_recorded(source: Path, responses: Iterable[RecordedResponse]) -> None:
    """Refuse responses with a value off its scale, whichever reader they come from: what a ledger
    takes, it has to be able to read.

    Raises:
        InputError: one has such a value.
    """
    for one in responses:
        try:
            msgspec.convert(msgspec.to_builtins(one), RecordedResponse)
        except (msgspec.ValidationError, OverflowError) as error:
            raise InputError(
                f"{source}: set {one_line(one.set_id, 80)}, {one_line(one.variant, 40)}:"
                f" {_in_words(str(error))}"
            ) from error


def _in_words(message: str) -> str:
    """Return a message of the decoder with the field first: `epoch: expected `int` >= 1`."""
    what, _, place = message.partition(" - at `$")
    where = place.rstrip("`").removeprefix("[1]").removeprefix(".")
    return f"{where}: {what[:1].lower()}{what[1:]}" if where else what


def check_score(record: Record, field: str, value: Any, low: int, high: int) -> int:
    """Return a whole number within its range, or raise the Problem that it has."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        record.fail(field, f"is {short(value)}; expected a whole number from {low} to {high}")
    return value


def short(value: Any) -> str:
    """Describe a value in at most 60 characters."""
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


def is_withheld(data: Mapping[str, Any]) -> bool:
    """Whether an export of a run withheld the response of this line."""
    return str(data.get("response_hidden")).lower() in ("1", "1.0", "true")


def _only_reasoned(data: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether a line has an empty response without grades, and beside it reasoning."""
    usage = data.get("usage")
    return (
        not SCALES.keys() & given.keys()
        and given.get("response", "x").strip() == ""
        and reasoned_beside(data, usage if isinstance(usage, dict) else {})
    )


def _missing_in(record: Record, given: Collection[str]) -> tuple[MissingGrade, ...]:
    """Return the missing entries of a line, with reasons: from a list, or from a text as in
    `grades.csv.gz`.

    Args:
        record: the line.
        given: the fields that it has all the same.
    """
    value = record.data.get("missing")
    parts = (
        record.texts("missing")
        if isinstance(value, list)
        else (record.optional_text("missing") or "").split(";")
    )
    entries: dict[str, MissingGrade] = {}
    for part in filter(None, map(str.strip, parts)):
        try:
            gone = MissingGrade.parse(part)
        except ValueError as error:
            record.fail(
                "missing",
                f"{error}; expected it so, such as response:truncated or helpfulness:unparsed",
            )
        if gone.what in given and not gone.judge:
            record.fail(
                "missing", f"{short(part)}, and the line has a {gone.what}; expected one of the two"
            )
        if (
            gone.what != "grades" and gone.what not in given
        ):  # a line without grades has `grades:not_graded`
            entries.setdefault(gone.what, msgspec.structs.replace(gone, judge=""))
    # without a response there can be no grade
    return (entries["response"],) if "response" in entries else tuple(entries.values())


_FIELDS = ("id", *RecordedResponse.__struct_fields__[1:])
ANSWERS = ("response", "completion", *SCALES, "mode", "strategy", "missing", "response_hidden")
"""Fields by one of which a line says what came of a prompt."""
READ = {*_FIELDS, *ANSWERS, "model", "prompt", "usage", "quotes_hidden", *REASONING_FIELDS}
"""Fields that a line of a file of responses may have; others are not read."""


def parse_recorded(record: Record) -> RecordedResponse:
    """Turn one line into a recorded response, or raise the Problem that it has."""
    record.check_names(_FIELDS)
    given: dict[str, Any] = {
        field: check_score(record, field, record.data[field], grades[0], grades[-1])
        for field, grades in SCALES.items()
        if field in record
    }
    for field, valid in (("mode", MODES), ("strategy", STRATEGIES)):
        if field in record:
            given[field] = record.choice(field, valid)
    if "response" in record:
        given["response"] = check_response(record, "response", record.data["response"])
    variant = record.text("variant")
    if variant not in CORE_VARIANTS and not _PARAPHRASE.fullmatch(variant):
        names = [*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5))]
        record.fail("variant", f"unknown variant {variant!r}; {nearest(variant, names)}")
    missing = _missing_in(record, given)
    if _only_reasoned(record.data, given):
        del given["response"]
        missing = (MissingGrade("response", REASONING_ONLY),)
    if not missing and is_withheld(record.data) and not {"response", *SCALES} & given.keys():
        missing = (WITHHELD,)
    without_response = any(gone.what == "response" for gone in missing)
    graded = [field in given for field in SCALES]
    known = [field in given or any(gone.what == field for gone in missing) for field in SCALES]
    if "response" not in given and not without_response and not all(known):
        record.fail(
            "response",
            "missing; a line has a response, or both grades, or all, or in `missing` why there is"
            " none",
        )
    if without_response and any(graded):
        record.fail(
            "missing",
            "says that there is no response, and the line has grades; expected one of the two",
        )
    return RecordedResponse(
        set_id=record.text("id"),
        variant=variant,
        epoch=check_score(record, "epoch", record.data.get("epoch", 1), 0, MOST_EPOCHS),
        stop_reason=short_name(record.optional_text("stop_reason") or "stop", 60),
        missing=missing,
        **given,
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
    problems: list[Problem] = []
    try:
        for location, data in records:
            try:
                response = parse_recorded(Record(data, location))
                key = (response.set_id, response.variant, response.epoch)
                if key in seen:
                    raise Problem(
                        f"{location}: {response.set_id}, {response.variant}, epoch"
                        f" {response.epoch} is there already, at {seen[key]}",
                        location,
                    )
            except Problem as problem:
                problems.append(problem)
            else:
                seen[key] = location
                responses.append(response)
    except Problem as problem:  # a line that is not JSON: later lines cannot be trusted
        problems.append(problem)
    if problems:
        raise InputError(*distinct_problems(problems, MOST_LISTED))
    if not responses:
        raise InputError(f"{path}: no responses in it")
    return responses


# In the ledger
# ------------------------------------------------------------------------------

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
        named = {"dataset": dataset, "model": model, "set_id": set_id}
        given = {column: value for column, value in named.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in given) or "true"
        yield from self._read(self._reader, where, tuple(given.values()))

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
            for place, same in by_place.items():
                try:
                    contents = [_content(texts, *row[1:]) for row in same]
                except msgspec.ValidationError as error:
                    self.unreadable[place] = _in_words(str(error))
                    continue
                yield ImportedResponse(
                    place[0],
                    reduce(merged, contents),
                    tuple(identity for identity, *_ in same),
                    next((row[0] for row in same if row[-1] is not None), same[0][0]),
                )

    def _insert(
        self, connection: sqlite3.Connection, dataset: str, row: ImportedRow, source: int
    ) -> None:
        recorded = row.recorded
        key = (dataset, row.model, recorded.set_id, recorded.variant, recorded.epoch)
        known = next(self._read(connection, _OF_ONE, key), None)
        try:
            if known is not None and merged(known.recorded, recorded) == known.recorded:
                return
        except ValueError as error:
            raise InputError(
                f"{row.source}: {row.model} has another response or grade for set"
                f" {recorded.set_id}, {recorded.variant}, epoch {recorded.epoch} in this run"
                " already; import into a new --out, or name the model apart with --model"
            ) from error
        text = recorded.response
        response = None if text is None else self._texts.id_of(connection, text)
        kept = msgspec.structs.replace(recorded, response=None)
        connection.execute(
            "INSERT INTO imported (source, dataset, model, set_id, variant, epoch, response,"
            " record) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (source, *key, response, pack(msgspec.json.encode((row.model, kept)))),
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


def merged(first: RecordedResponse, second: RecordedResponse) -> RecordedResponse:
    """Merge two files' records of one response.

    The authors' scripts write grades, modes and strategies into files of their own.

    Raises:
        ValueError: they contradict one another.
    """
    fields: dict[str, Any] = {}
    for field in RecordedResponse.__struct_fields__:
        one, other = getattr(first, field), getattr(second, field)
        if field != "missing" and one not in (None, {}) and other not in (None, {}, one):
            raise ValueError(f"two responses to one prompt differ in {field}")
        fields[field] = other if one in (None, {}) else one
    reasons = {
        gone
        for gone in (*first.missing, *second.missing)
        if gone.judge or gone.what == "response" or fields.get(gone.what) is None
    }
    return RecordedResponse(**(fields | {"missing": tuple(sorted(reasons, key=str))}))
