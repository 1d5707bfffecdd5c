"""Responses that were made elsewhere: one of them, and a file of them."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

import msgspec
from msgspec import Meta

from opensafeintent.calls.ledger_rows import (
    TextBudget,
    Texts,
    TextsAt,
    check_types,
    compress_with_checksum,
    connect,
    decompress_and_check,
    reason,
    report_damage,
)
from opensafeintent.calls.reasoning import REASONING_FIELDS, REASONING_ONLY, has_reasoning_beside
from opensafeintent.calls.records import stop_kind
from opensafeintent.errors import InputError, nearest
from opensafeintent.files import any_json
from opensafeintent.hostile import clean_for_display, clean_name
from opensafeintent.promptsets.fields import Record, read_each_record, short
from opensafeintent.promptsets.reading import Problem
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    FOLLOW_UPS,
    METRIC_GRADES,
    MODES,
    MOST_EPOCHS,
    SCALES,
    STRATEGIES,
    Answer,
    Graded,
    HarmGrade,
    HelpfulnessGrade,
    KnownGrades,
    Mode,
    Strategy,
    paraphrase_variant,
)

ResultPart = Literal["response", "grades", Graded, "mode", "strategy", "checklist"]
"""Parts of a result that may be missing; `grades` if no judge was asked, `checklist` for answers to
the prompt-set's own questions.
"""

_MISSING = re.compile(rf"({'|'.join(get_args(ResultPart))})(?:\[(.*)\])?:(.+)", re.DOTALL)


class MissingGrade(msgspec.Struct, frozen=True):
    """A response, grade, mode or strategy that was requested but not obtained.

    Files hold it as `what:reason`, or `what[judge]:reason`.
    """

    what: ResultPart
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
        return cls(cast(ResultPart, match[1]), match[3], match[2] or "")


WITHHELD = MissingGrade("response", "withheld")
"""An export left the text out because it is unsafe, and the grades were taken away."""


class RecordedResponse(
    KnownGrades, frozen=True, kw_only=True, omit_defaults=True, array_like=False, gc=False
):
    """A target's response to one prompt, and the grades that came with it.

    It holds no record that could hold it in turn, so no collection of garbage has to walk it.
    """

    model: str = ""
    """The target; empty in a file, whose name or caller tells it."""
    set_id: str
    variant: str
    epoch: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] = 1
    response: str | None = None
    reply_to: str | None = None
    """Of a follow-up: the first reply, after which its message was said."""
    stop_reason: str = "stop"
    mode: Mode | None = None
    strategy: Strategy | None = None
    missing: tuple[MissingGrade, ...] = ()
    """Why a grade that was tried for is not there."""
    answers: dict[str, Answer | None] | None = None
    """To the prompt-set's own questions, by id; None if it came with none."""
    answers_by_judge: dict[str, dict[str, Answer]] = msgspec.field(default_factory=dict)
    """Those of each judge, if the judges are known."""
    by_judge: dict[str, KnownGrades] = msgspec.field(default_factory=dict)
    """The grades of each judge, if the judges are known."""
    rows: tuple[int, ...] = ()
    """Ids of its rows in a ledger, that with its text first: text and grades may come from several
    files.
    """


def check_recorded(
    source: Path, responses: Iterable[RecordedResponse]
) -> Iterator[RecordedResponse]:
    """Yield responses as a ledger returns them, whichever reader they come from.

    Raises:
        InputError: one has a value off its scale: what a ledger takes, it has to be able to read.
    """
    for response in responses:
        try:
            yield msgspec.convert(msgspec.to_builtins(response), RecordedResponse)
        except (msgspec.ValidationError, OverflowError) as error:
            raise InputError(
                f"{source}: set {clean_for_display(response.set_id)},"
                f" {clean_for_display(response.variant)}: {explain_decoding(str(error))}"
            ) from error


def explain_decoding(message: str) -> str:
    """Return a message of the decoder with the field first: `epoch: expected `int` >= 1`."""
    problem, _, place = message.partition(" - at `$")
    where = place.rstrip("`").removeprefix("[1]").removeprefix(".")
    return f"{where}: {problem[:1].lower()}{problem[1:]}" if where else problem


def merge_responses(first: RecordedResponse, second: RecordedResponse) -> RecordedResponse:
    """Merge two files' records of one response.

    The authors' scripts write grades, modes and strategies into files of their own. A response
    takes the place of one that was missing: its call may have been made again.

    Raises:
        ValueError: they contradict one another.
    """
    fields: dict[str, Any] = {}
    ended = _has_ended(first) or _has_ended(second)
    if not _has_ended(first):
        first = msgspec.structs.replace(first, stop_reason=second.stop_reason)
    elif not _has_ended(second):
        second = msgspec.structs.replace(second, stop_reason=first.stop_reason)
    for field in RecordedResponse.__struct_fields__:
        first_value, second_value = getattr(first, field), getattr(second, field)
        if (
            field not in ("missing", "rows")
            and first_value not in (None, {})
            and second_value not in (None, {}, first_value)
        ):
            raise ValueError(f"two responses to one prompt differ in {field}")
        fields[field] = second_value if first_value in (None, {}) else first_value
    reasons = {
        entry
        for entry in (*first.missing, *second.missing)
        if entry.judge
        or (not ended if entry.what == "response" else fields.get(entry.what) is None)
    }
    return RecordedResponse(**(fields | {"missing": tuple(sorted(reasons, key=str))}))


def _has_ended(record: RecordedResponse) -> bool:
    """Tell whether a record has a response, or a refusal whose text was not kept: another states no
    stop reason.
    """
    if any(entry.what == "response" for entry in record.missing):
        return False
    return record.response is not None or stop_kind(record.stop_reason) == "refusal"


_VARIANT = re.compile(rf"{'|'.join((*CORE_VARIANTS, *FOLLOW_UPS))}|dual_use_paraphrase_[1-9]\d*")


def is_true_cell(data: Mapping[str, Any], field: str) -> bool:
    """Whether an export of a run wrote that this is so, in the form of any of its formats."""
    return str(data.get(field)).lower() in ("1", "1.0", "true")


def _only_reasoned(data: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Tell whether a line has an empty response without grades, and beside it reasoning."""
    if fields.get("response", "x").strip() or SCALES.keys() & fields.keys():
        return False
    usage = data.get("usage")
    return has_reasoning_beside(data, usage if isinstance(usage, dict) else {})


def _list_missing(record: Record, fields: Collection[str]) -> tuple[MissingGrade, ...]:
    """Return the missing entries of a line, with reasons: from a list, or from a text as in
    `grades.csv.gz`.

    Args:
        record: the line.
        fields: the fields that it has all the same.
    """
    value = record.data.get("missing")
    if value is None:
        return ()
    texts = (
        record.texts("missing")
        if isinstance(value, list)
        else (record.optional_text("missing") or "").split(";")
    )
    entries: dict[str, MissingGrade] = {}
    for text in filter(None, map(str.strip, texts)):
        try:
            entry = MissingGrade.parse(text)
        except ValueError as error:
            record.fail(
                "missing",
                f"{error}; expected it so, such as response:truncated or helpfulness:unparsed",
            )
        if entry.what in fields and not entry.judge:
            record.fail(
                "missing",
                f"{short(text)}, and the line has a {entry.what}; expected one of the two",
            )
        if (
            entry.what != "grades" and entry.what not in fields
        ):  # a line without grades has `grades:not_graded`
            entries.setdefault(entry.what, msgspec.structs.replace(entry, judge=""))
    # without a response there can be no grade
    return (entries["response"],) if "response" in entries else tuple(entries.values())


_NOT_RECORDED = MissingGrade("response", "not_recorded")

RESPONSE_FIELDS = frozenset(("id", *RecordedResponse.__struct_fields__)) - {"model"}
"""Fields of a line for which a slip in the name is told."""
_TEXT_FIELDS = ("completion", "response")
"""Names of the field with the text; if both are there, they have to agree."""

OUTCOME_FIELDS = (
    *_TEXT_FIELDS,
    *SCALES,
    "answers",
    "mode",
    "strategy",
    "missing",
    "response_hidden",
)
"""Fields by one of which a line says what came of a prompt."""
FIELDS_READ = {
    *RESPONSE_FIELDS,
    *OUTCOME_FIELDS,
    "model",
    "prompt",
    "usage",
    "quotes_hidden",
    *REASONING_FIELDS,
}
"""Fields that a line of a file of responses may have; others are not read."""


class _PlainLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line as most are: a response, maybe both grades of metrics, and nothing that takes a closer
    look, as any other field does.
    """

    id: Annotated[str, Meta(pattern=r"\A[\w-]{1,99}\Z")]
    variant: Annotated[str, Meta(pattern=rf"\A(?:{_VARIANT.pattern})\Z")]
    response: str
    epoch: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)] = 1
    helpfulness: HelpfulnessGrade | None = None
    harm_severity: HarmGrade | None = None
    model: object = None


def _read_plain_line(data: dict[str, Any]) -> RecordedResponse | None:
    """Return the response of a plain line, its types checked all at once; None if a line may hold
    more, or a fault.
    """
    try:
        line = msgspec.convert(data, _PlainLine)
        line.response.encode()  # no half of a surrogate pair
    except (msgspec.ValidationError, OverflowError, UnicodeEncodeError):
        return None
    return RecordedResponse(
        set_id=line.id,
        variant=line.variant,
        epoch=line.epoch,
        response=line.response,
        helpfulness=line.helpfulness,
        harm_severity=line.harm_severity,
    )


def parse_recorded(record: Record, *, from_table: bool = False) -> RecordedResponse:
    """Turn one line into a recorded response, or raise the Problem that it has.

    Args:
        record: the line.
        from_table: a line that states nothing is one of a response that is missing: a table has a
            row for each prompt.
    """
    record.check_names(RESPONSE_FIELDS)
    data = record.data
    fields: dict[str, Any] = {
        field: record.whole_number(field, scale[0], scale[-1])
        for field, scale in SCALES.items()
        if field in record
    }
    for field, valid in (("mode", MODES), ("strategy", STRATEGIES)):
        if data.get(field) is not None and record.optional_name(field):
            fields[field] = record.choice(field, valid)
    fields |= _read_answers(record)
    texts = [field for field in _TEXT_FIELDS if field in record]
    if texts:
        fields["response"] = record.text_or_empty(texts[0])
        if data[texts[-1]] != data[texts[0]]:
            record.fail("response", f"differs from {texts[0]}; expected one of the two")
    variant = _read_variant(record)
    if "reply_to" in record:
        fields["reply_to"] = record.text_or_empty("reply_to")
        if variant not in FOLLOW_UPS:
            record.fail("reply_to", f"is for {', '.join(FOLLOW_UPS)}, and the line is {variant}")
    missing = _list_missing(record, fields)
    if _only_reasoned(data, fields):
        del fields["response"]
        missing = (MissingGrade("response", REASONING_ONLY),)
    if not missing and fields.keys().isdisjoint(("response", "answers", *SCALES)):
        if is_true_cell(data, "response_hidden"):
            missing = (WITHHELD,)
        elif from_table:
            missing = (_NOT_RECORDED,)
    without_response = "response" in [entry.what for entry in missing]
    if not (
        without_response
        or not fields.keys().isdisjoint(("response", "answers"))
        or {*fields, *(entry.what for entry in missing)}.issuperset(METRIC_GRADES)
    ):
        fault = "missing" if data.keys().isdisjoint(_TEXT_FIELDS) else "is empty"
        expected = "a response, or both grades, or all, or a field 'missing' with the reason"
        record.fail("response", f"{fault}; expected {expected}")
    if without_response and SCALES.keys() & fields.keys():
        record.fail(
            "missing",
            "says that there is no response, and the line has grades; expected one of the two",
        )
    return RecordedResponse(
        set_id=record.name("id"),
        variant=variant,
        epoch=record.whole_number("epoch", 1, MOST_EPOCHS) if "epoch" in data else 1,
        stop_reason=clean_name(record.optional_name("stop_reason") or "stop"),
        missing=missing,
        **fields,
    )


def _read_variant(record: Record) -> str:
    """Return the variant that a line is about, or raise the Problem that it has."""
    variant = record.name("variant")
    if not _VARIANT.fullmatch(variant):
        names = [*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5)), *FOLLOW_UPS]
        record.fail("variant", f"unknown variant {variant!r}; {nearest(variant, names)}")
    return variant


def _read_answers(record: Record) -> dict[str, dict[str, Answer | None]]:
    """Return the field with the answers to questions that a line has, as an object or as its JSON;
    none if it has none.
    """
    value = record.data.get("answers")
    if isinstance(value, str):
        try:
            value = any_json(value) if value.strip() else None
        except ValueError as error:
            record.fail("answers", f"is no JSON: {error}")
    if value is None:
        return {}
    if not isinstance(value, dict) or any(
        said not in ("yes", "no", None) for said in value.values()
    ):
        record.fail("answers", 'expected an object with "yes", "no" or null by id')
    return {"answers": value}


def read_recorded_responses(
    records: Iterable[tuple[str, object]],
    path: Path,
    *,
    headings: Mapping[str, str] | None = None,
    from_table: bool = False,
) -> list[RecordedResponse]:
    """Turn the records of a file, each with its location, into responses; see `parse_recorded`.

    Args:
        records: the records.
        path: of their file.
        headings: the file's names of the fields, where they differ from those of the records.
        from_table: see `parse_recorded`.

    Raises:
        InputError: a record is not a response, or a response is there twice.
    """
    locations: dict[tuple[str, str, int], str] = {}

    def read(record: Record) -> RecordedResponse:
        plain = _read_plain_line(record.data)
        response = plain or parse_recorded(record, from_table=from_table)
        key = (response.set_id, response.variant, response.epoch)
        if key in locations:
            raise Problem(
                f"{record.location}: {response.set_id}, {response.variant}, epoch {response.epoch}"
                f" is there already, at {locations[key]}; expected a number in the field"
                f" {record.find_heading('epoch')} for each repeat, and in the field"
                f" {record.find_heading('model')} the name of each model",
                record.location,
            )
        locations[key] = record.location
        return response

    responses = read_each_record(records, read, headings)
    if not responses:
        raise InputError(f"{path}: no responses in it")
    return responses


ResponsePlace = tuple[str, str, str, int]
"""Model, set id, variant, epoch."""

get_place: Callable[[RecordedResponse], ResponsePlace] = attrgetter(
    "model", "set_id", "variant", "epoch"
)
"""Returns the place of a response."""


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
_TEXT_ROWS: Any = list[tuple[str, str, int, int, int]]
_SELECT_TEXTS = (
    "SELECT set_id, variant, epoch, id, response FROM imported"
    " WHERE dataset = ?1 AND model = ?2 AND (?3 IS NULL OR set_id = ?3) AND response IS NOT NULL"
    " ORDER BY id"
)
_WITH_SOURCE = f"SELECT source, {_COLUMNS}"
_SEVERAL_RUNS = "import its models into several runs, and name them all for one report"
_PLACES = "SELECT model, set_id, variant, epoch FROM imported WHERE dataset = ?"
_INSERT = (
    "INSERT INTO imported (source, dataset, model, set_id, variant, epoch, response, record)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
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
                connection.executemany(_INSERT, self._pack_rows(connection, dataset, responses))
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

    def yield_with_files(self, dataset: str) -> Iterator[tuple[SourceFile, RecordedResponse]]:
        """Yield every row that was imported for a dataset (its hash) with its file, as `add` takes
        them.

        Raises:
            TooLong: their texts do not fit into memory together.
            InputError: the ledger is damaged.
        """
        texts = TextsAt(self._reader, TextBudget(self._path, _SEVERAL_RUNS))
        with report_damage(self._path):
            files = {
                check_types(identity, int): SourceFile(
                    Path(check_types(name, str)), check_types(digest, str)
                )
                for identity, name, digest in self._reader.execute(
                    "SELECT id, name, sha256 FROM sources"
                )
            }
            rows = self._reader.execute(f"{_WITH_SOURCE} WHERE dataset = ? ORDER BY id", (dataset,))
            for source, *row in rows:
                [(identity, *place, record, response)] = check_types([row], _ROWS)
                content = _content(texts, tuple(place), identity, record, response)
                yield files[check_types(source, int)], content

    def find(self, dataset: str, place: ResponsePlace) -> RecordedResponse | None:
        """Return an imported response, if there is one.

        Raises:
            InputError: the ledger is damaged.
        """
        return next(self._read(self._reader, _OF_ONE, (dataset, *place)), None)

    def find_texts(
        self, dataset: str, model: str, set_id: str | None = None
    ) -> dict[tuple[str, str, int], tuple[int, str]]:
        """Return the id of the row with the text of each of a model's responses, and that text, by
        set, variant and epoch.

        Args:
            dataset: hash of the dataset.
            model: the model.
            set_id: a prompt-set, whose responses alone are read; None for all.

        Raises:
            TooLong: they do not fit into memory together.
            InputError: the ledger is damaged.
        """
        texts = TextsAt(self._reader, TextBudget(self._path, _SEVERAL_RUNS))
        found: dict[tuple[str, str, int], tuple[int, str]] = {}
        with report_damage(self._path):
            rows = self._reader.execute(_SELECT_TEXTS, (dataset, model, set_id))
            while some := check_types(rows.fetchmany(_ROWS_AT_ONCE), _TEXT_ROWS):
                for *place, identity, text in some:
                    found.setdefault(tuple(place), (identity, texts[text]))
        return found

    def _read(
        self, connection: sqlite3.Connection, where: str, values: tuple[object, ...]
    ) -> Iterator[RecordedResponse]:
        texts = TextsAt(connection, TextBudget(self._path, _SEVERAL_RUNS))
        with report_damage(self._path):
            rows = connection.execute(f"{_SELECT} WHERE {where} ORDER BY id", values)
            by_place: dict[ResponsePlace, list[Any]] = {}
            while some := check_types(rows.fetchmany(_ROWS_AT_ONCE), _ROWS):
                for identity, *place_of, record, response in some:
                    by_place.setdefault(tuple(place_of), []).append((identity, record, response))
            for place, same_place in by_place.items():
                contents = [_content(texts, place, *row) for row in same_place]
                if len(contents) == 1:
                    yield contents[0]
                    continue
                text_first = sorted(same_place, key=lambda row: row[-1] is None)
                yield msgspec.structs.replace(
                    reduce(merge_responses, contents),
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
            return stored is None or merge_responses(stored, recorded) != stored
        except ValueError as error:
            raise InputError(
                f"{file.path}: {recorded.model} has another response or grade for set"
                f" {recorded.set_id}, {recorded.variant}, epoch {recorded.epoch} in this run"
                " already; import into a new --out, or name the model apart with --model"
            ) from error

    def _pack_rows(
        self,
        connection: sqlite3.Connection,
        dataset: str,
        responses: Iterable[tuple[SourceFile, RecordedResponse]],
    ) -> Iterator[tuple[object, ...]]:
        """Yield the row of each response that adds something to what is stored by then, as
        `_INSERT` takes it; files and texts are added on the way.

        Raises:
            InputError: a response is there already with another content.
        """
        sources: dict[str, int] = {}
        there = set(connection.execute(_PLACES, (dataset,)))
        for file, recorded in responses:
            if file.sha256 not in sources:
                sources[file.sha256] = _source(connection, file)
            place = get_place(recorded)
            if place in there and not self._adds(connection, dataset, place, recorded, file):
                continue
            there.add(place)
            text = recorded.response
            response = None if text is None else self._texts.find_text_id(connection, text)
            record = msgspec.structs.replace(recorded, model="", response=None, rows=())
            packed = compress_with_checksum(msgspec.json.encode((recorded.model, record)))
            yield sources[file.sha256], dataset, *place, response, packed


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
    texts: Mapping[int, str],
    place: ResponsePlace,
    identity: int,
    record: bytes,
    response: int | None,
) -> RecordedResponse:
    """Return the content of one row.

    Raises:
        ValueError, LookupError, zlib.error: it differs from the stored one.
        TooLong: see `TextsAt`.
    """
    model, recorded = _RECORD.decode(decompress_and_check(record))
    if (model, recorded.set_id, recorded.variant, recorded.epoch) != place:
        raise ValueError("an imported response is that to another prompt")
    text = None if response is None else texts[response]
    return msgspec.structs.replace(recorded, model=model, response=text, rows=(identity,))
