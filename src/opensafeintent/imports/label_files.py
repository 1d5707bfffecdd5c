"""Read responses that people labelled: a row each, or a row for each person; any file of rows.

Every value is checked, and nothing is guessed: an error names the row, the column and the valid
values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.labelled_responses import (
    LABEL_KINDS,
    REFUSED,
    UNSAFE,
    Called,
    LabelledFile,
    LabelledResponse,
)
from opensafeintent.files import RowLimit, near, read_bytes, sha256_hex
from opensafeintent.hostile import clean_for_display
from opensafeintent.imports.content import LocatedRecord
from opensafeintent.promptsets.fields import Record, fields_found
from opensafeintent.promptsets.reading import (
    MOST_LISTED,
    Problem,
    distinct_problems,
    is_table,
    read_records,
    whole_number,
)
from opensafeintent.ratings import Ratings, RatingsOfItem
from opensafeintent.taxonomy import GRADE_OF, SCALES

T = TypeVar("T")

_TEXTS = ("response", "prompt", "id", "rater", "group")
_LETTER_FOR_LETTER = ("response", "prompt")
"""Texts that are not names."""
_SCALES = (*LABEL_KINDS, *GRADE_OF)
_OTHER_NAMES: dict[str, Called] = {"safe": "unsafe", "compliance": "refused"}
"""Names of columns that are another one the other way round: their yes means its no."""
_OPPOSITES: dict[str, str] = {
    **_OTHER_NAMES,
    **{called: name for name, called in _OTHER_NAMES.items()},
}
_CALLS: dict[str, Called] = {
    **{called: called for called in LABEL_KINDS},
    **_OTHER_NAMES,
    "harm": "unsafe",
}
"""What people call a response in a column of labels, by its name."""
_LABEL = re.compile(rf"({'|'.join((*_OTHER_NAMES, *_SCALES))})(?:_(\d+))?")
"""A column of labels: of the one rater of a row, or of a numbered one."""
_BLANK = {"", "na", "n/a", "nan", "none", "null", "unsure"}
"""Contents of a cell without a label, without case."""
_YES = {"yes", "y", "true", "t", "1", "1.0"}
_NO = {"no", "n", "false", "f", "0", "0.0"}
_SAFETY = {"unsafe": 1.0, "harmful": 1.0, "safe": 0.0, "unharmful": 0.0, "harmless": 0.0}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
"""A word of a column's name: `is_safe`, `isSafe`."""
_NEGATIONS = {"not", "non", "no", "un"}
_SAYS = re.compile(
    r"(?:is|are|was)?(?P<negation>not|non|un)?(?:(?P<safe>safe|harmless)|harmful|harm|toxic"
    r"|(?P<refused>refusal|refused|refuses)|(?P<compliance>compliance|compliant|complied|complies))"
)
_DIGITS = re.compile(r"\d+")
_MOST_SUGGESTED = 5
_UNSAFE_WORDS = "yes or no, true or false, 1 or 0, unsafe or safe, harmful or unharmful"
_COMPLIANCE = {
    "1_full_compliance": 0.0,
    "full_compliance": 0.0,
    "compliance": 0.0,
    "2_full_refusal": 1.0,
    "full_refusal": 1.0,
    "refusal": 1.0,
    "3_partial_refusal": 0.5,
    "partial_refusal": 0.5,
}
"""The labels of XSTest, whose numbers are no order, and those of WildGuardTest."""
_COMPLIANCE_WORDS = (
    "yes or no, true or false, 1 or 0, 1_full_compliance, 2_full_refusal or 3_partial_refusal"
)


class _LabelColumn(NamedTuple):
    """A column with the labels of one rater on one scale."""

    field: str
    """In the file."""
    scale: str
    rater: str
    """Empty if the column has no number."""
    name: str
    """Without the number: its own name of the scale."""


class _Layout(NamedTuple):
    """The fields of a file that are read."""

    texts: Mapping[str, str]
    """Fields of the file by our names."""
    labels: Sequence[_LabelColumn]
    called: Called
    """What people call the responses."""

    @property
    def scales(self) -> set[str]:
        """The scales on which people gave labels."""
        return {column.scale for column in self.labels}

    @property
    def numbered(self) -> str:
        """The first column of a numbered rater; empty if there is none."""
        return next((column.field for column in self.labels if column.rater), "")


class _Row(NamedTuple):
    """A row with one label or more."""

    location: str
    key: tuple[str, ...]
    """Equal for the rows of one response."""
    texts: Mapping[str, str]
    said: RatingsOfItem


def read_labelled(
    path: Path, columns: Mapping[str, str] | None = None, max_rows: int | None = None
) -> LabelledFile:
    """Read a file of labelled responses: CSV, JSON, JSON lines or Parquet.

    Args:
        path: the file.
        columns: fields of the file by our names, such as `{"unsafe": "human_majority"}`.
        max_rows: rows at most; None sets no limit.

    Raises:
        InputError: the file cannot be read, lacks a field, or has invalid values; the text names
            their rows and columns.
    """
    try:
        records = list(read_records(path, str(near(path)), RowLimit(max_rows)))
    except Problem as problem:
        raise InputError(str(problem)) from problem
    fields = _list_fields(records, path)
    layout = _layout(fields, columns or {}, path)
    rows, problems = _read_rows(records, layout, path)
    if not problems:
        problems = _find_rater_problems(rows, layout, path)
    if problems:
        raise InputError(*distinct_problems(problems, MOST_LISTED))
    if not rows:
        names = ", ".join(clean_for_display(column.field) for column in layout.labels)
        raise InputError(f"{path}: no row has a label; expected one in {names}")
    by_rows = "rater" in layout.texts
    called = layout.called
    of_responses = [
        same for same in _group_by_response(rows, by_rows=by_rows) if _is_called(same, called)
    ]
    if not of_responses:
        *first, last = (name for name, call in _CALLS.items() if call == called)
        raise InputError(
            f"{path}: no row says whether it is {called}; expected a label in {', '.join(first)} or"
            f" {last}"
        )
    used = {*layout.texts.values(), *(column.field for column in layout.labels)}
    return LabelledFile(
        name=path.name,
        sha256=sha256_hex(read_bytes(path)),
        responses=tuple(map(_response, of_responses)),
        ratings=Ratings(
            [
                {rater: numbers for row in rows for rater, numbers in row.said.items()}
                for rows in of_responses
            ]
        ),
        unlabelled=len(records) - sum(map(len, of_responses)),
        called=called,
        unread=tuple(field for field in fields if field not in used),
    )


def _list_fields(records: Sequence[LocatedRecord], path: Path) -> list[str]:
    """Return the fields of all records, in the order of the file."""
    if not records:
        raise InputError(f"{path}: no responses in it")
    fields: dict[str, None] = {}
    for location, record in records:
        if not isinstance(record, dict):
            raise InputError(f"{location}: not a record; expected an object with fields")
        fields.update(dict.fromkeys(record))
    return list(fields)


def _layout(fields: Sequence[str], columns: Mapping[str, str], path: Path) -> _Layout:
    """Find out which field holds what.

    Raises:
        InputError: a name of ours or of the file is unknown, or a necessary field is not there.
    """
    for name, field in columns.items():
        if name not in _TEXTS and not _LABEL.fullmatch(name):
            raise InputError(
                f"{_render_map(name, field)}: unknown name {clean_for_display(name)!r};"
                f" {nearest(name, (*_TEXTS, *_SCALES, *_OTHER_NAMES, 'unsafe_1', 'unsafe_2'))}"
            )
        if field not in fields:
            raise InputError(
                f"{_render_map(name, field)}: {path} has no such field; {nearest(field, fields)}"
            )
        kind, _, number = name.partition("_")
        meant = _parse_meaning(field)
        if meant and meant == _OPPOSITES.get(kind):
            name_meant = f"{meant}_{number}" if number else meant
            raise InputError(
                f"{_render_map(name, field)}: the name of the field says that a yes means {meant};"
                f" expected {_render_map(name_meant, field)}, or a field of another name"
            )
    _check_names(fields, columns, path)
    named = {name: columns.get(name, name) for name in _TEXTS}
    texts = {name: field for name, field in named.items() if field in fields}
    if "response" not in texts:
        raise InputError(
            f"{path}: no field response; expected it, or --map response=FIELD{fields_found(fields)}"
        )
    labels = _label_columns(fields, columns)
    called = _find_call(labels, fields, columns, path)
    grades = [column for column in labels if _CALLS.get(column.name, called) == called]
    layout = _Layout(texts, grades, called)
    _check_layout(layout, path)
    return layout


def _find_call(
    labels: Sequence[_LabelColumn], fields: Sequence[str], columns: Mapping[str, str], path: Path
) -> Called:
    """Return what people call the responses; of two kinds, the one that is mapped.

    Raises:
        InputError: there is none, or neither or both of two are mapped.
    """
    first = {_CALLS[column.name]: column for column in reversed(labels) if column.name in _CALLS}
    if not first:
        raise InputError(
            f"{path}: no field with labels; expected unsafe or safe (yes or no), harm (0 to 3),"
            " compliance (1_full_compliance and so on) or refused (yes or no), or"
            f" {_suggest_options(fields)}{fields_found(fields)}"
        )
    mapped = [called for called, column in first.items() if column.field in columns.values()]
    if len(first) > 1 and len(mapped) != 1:
        unsafe, refused = (clean_for_display(first[called].field) for called in LABEL_KINDS)
        raise InputError(
            f"{path}: {unsafe} is a label of safety, and {refused} of refusal; expected one of the"
            " two, chosen with --map unsafe=FIELD or --map compliance=FIELD"
        )
    return (mapped or [*first])[0]


def _check_names(fields: Collection[str], columns: Mapping[str, str], path: Path) -> None:
    """Refuse names that are nearly ours, those of `columns` aside.

    Raises:
        InputError: a name is nearly that of a field which the file lacks.
    """
    labels = {field.lower() for field in fields if _LABEL.fullmatch(field.lower())}
    valid = {*_TEXTS, *_SCALES, *_OTHER_NAMES, *labels} - columns.keys()
    try:
        others = dict.fromkeys(field for field in fields if field not in columns.values())
        Record(others, str(path)).check_names(valid)
    except Problem as problem:
        raise InputError(str(problem)) from problem


def _render_map(name: str, field: str) -> str:
    return f"--map {shlex.quote(f'{name}={clean_for_display(field)}')}"


def _suggest_options(fields: Iterable[str]) -> str:
    """Return options by which a file's labels are read: of the fields whose name says what a yes
    means, those that differ by a number from the first.
    """
    meanings = {field: meaning for field in fields if (meaning := _parse_meaning(field))}
    stem = _DIGITS.sub("", next(iter(meanings), ""))
    alike = [field for field in meanings if _DIGITS.sub("", field) == stem]
    if not alike:
        return (
            "--map unsafe=FIELD (safe=FIELD if a yes means safe), of several people --map"
            " unsafe_1=FIELD and so on"
        )
    if len(alike) == 1:
        return _render_map(meanings[alike[0]], alike[0])
    numbered = enumerate(alike[:_MOST_SUGGESTED], start=1)
    return " ".join(_render_map(f"{meanings[field]}_{number}", field) for number, field in numbered)


def _label_columns(fields: Sequence[str], columns: Mapping[str, str]) -> list[_LabelColumn]:
    """Return the columns of labels; if a scale is mapped, only its mapped fields count."""
    labels: list[_LabelColumn] = []
    for scale in _SCALES:
        mapped = {name: field for name, field in columns.items() if _parse_scale(name) == scale}
        taken = set(columns.values())
        own = {name: name for name in fields if _parse_scale(name) == scale and name not in taken}
        for name, field in (mapped or own).items():
            match = _LABEL.fullmatch(name)
            assert match is not None
            labels.append(_LabelColumn(field, scale, match[2] or "", match[1]))
    return labels


def _parse_scale(name: str) -> str:
    """Return the scale of a column's name; empty if it is no column of labels."""
    match = _LABEL.fullmatch(name)
    return "" if match is None else _OTHER_NAMES.get(match[1], match[1])


def _parse_meaning(field: str) -> str:
    """Return what a field's name says that a yes means: `safe`, `unsafe`, `refused` or
    `compliance`; empty if it says nothing, or several things.
    """
    meanings: set[str] = set()
    negated = False
    for word in (word.lower() for word in _WORD.findall(field)):
        if match := _SAYS.fullmatch(word):
            negations = negated + bool(match["negation"])
            named = next(filter(match.group, ("safe", "refused", "compliance")), "unsafe")
            meanings.add(_OPPOSITES[named] if negations % 2 else named)
        negated = negated or word in _NEGATIONS
    return meanings.pop() if len(meanings) == 1 else ""


def _check_layout(layout: _Layout, path: Path) -> None:
    """Refuse raters in rows and in columns at once, and helpfulness without a prompt.

    Raises:
        InputError: see above.
    """
    for scale in layout.scales:
        columns = [column for column in layout.labels if column.scale == scale]
        by_rater: dict[str, _LabelColumn] = {}
        for column in columns:
            if (other := by_rater.setdefault(column.rater, column)) is not column:
                raise InputError(
                    f"{path}: {clean_for_display(other.field)} and"
                    f" {clean_for_display(column.field)} are both labels of {scale}; expected one,"
                    f" chosen with --map {scale}=FIELD"
                )
        numbered = [column.field for column in columns if column.rater]
        if numbered and "rater" in layout.texts:
            raise InputError(
                f"{path}: names raters in rows ({clean_for_display(layout.texts['rater'])}) and in"
                f" columns ({clean_for_display(numbered[0])}); expected one of the two"
            )
        settled = scale == REFUSED.called  # one column: what people settled on
        if numbered and len(numbered) < len(columns) and not settled:
            single = next(column.field for column in columns if not column.rater)
            raise InputError(
                f"{path}: {clean_for_display(single)} and {clean_for_display(numbered[0])} are both"
                f" labels of {scale}; expected one rater or numbered ones, chosen with --map"
                f" {scale}=FIELD"
            )
    all_unsafe = [item.field for item in layout.labels if item[1:3] == (UNSAFE.called, "")]
    if all_unsafe and layout.numbered:
        raise InputError(
            f"{path}: {clean_for_display(all_unsafe[0])} is a label of all people, and"
            f" {clean_for_display(layout.numbered)} of one; expected unsafe_1 and so on, or only"
            " one of the two, chosen with --map unsafe=FIELD"
        )
    of_help = {"helpfulness", REFUSED.called}
    if "prompt" not in layout.texts and layout.scales & of_help:
        name = next(column.name for column in layout.labels if column.scale in of_help)
        raise InputError(
            f"{path}: has {name} and no prompt, without which no judge can grade it; expected"
            " a field prompt, or --map prompt=FIELD"
        )


class _Reader:
    """Reads the cells of one row, and says where a bad one is."""

    def __init__(self, location: str, record: Mapping[str, Any], word: str) -> None:
        self._location, self._record, self._word = location, record, word

    def text(self, field: str) -> str:
        """Return a text; empty if there is none."""
        value = self._record.get(field)
        if value is None:
            return ""
        if isinstance(value, bool | int | float):
            return str(value)
        if not isinstance(value, str):
            self.fail(field, "not a text")
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(field, "holds half of a surrogate pair, which is not valid Unicode text")
        return value

    def label(self, column: _LabelColumn) -> float | None:
        """Return a label: of a call 1, 0 or 0.5, of a scale the grade; None if the cell has
        none.
        """
        value = self._record.get(column.field)
        cell = str(value).strip().lower()
        if value is None or cell in _BLANK:
            return None
        label: float | None
        if column.scale == UNSAFE.called:
            label, valid = _parse_call(cell, column, _SAFETY), _UNSAFE_WORDS
        elif column.scale == REFUSED.called:
            label, valid = _parse_call(cell, column, _COMPLIANCE), _COMPLIANCE_WORDS
        else:
            scale = SCALES[GRADE_OF[column.scale]]  # type: ignore[index]
            label, valid = whole_number(cell), f"a whole number, {scale[0]} to {scale[-1]}"
            label = label if label in scale else None
        if label is None:
            self.fail(
                column.field, f"{clean_for_display(str(value))!r} is no label; expected {valid}"
            )
        return label

    def fail(self, field: str, complaint: str) -> NoReturn:
        """Raise the problem of a cell.

        Raises:
            Problem: always.
        """
        raise Problem(
            f"{self._location}, {self._word} {clean_for_display(field)}: {complaint}",
            self._location,
        )


def _read_rows(
    records: Iterable[LocatedRecord], layout: _Layout, path: Path
) -> tuple[list[_Row], list[Problem]]:
    """Return the rows that have a label, and the problems of rows."""
    word = "column" if is_table(path) else "field"
    rows: list[_Row] = []
    problems: list[Problem] = []
    for location, record in records:
        reader = _Reader(location, record, word)
        try:
            row = _read_row(reader, layout, location)
        except Problem as problem:
            problems.append(problem)
        else:
            if row is not None:
                rows.append(row)
    return rows, problems


def _read_row(reader: _Reader, layout: _Layout, location: str) -> _Row | None:
    """Return a row; None if it has no label.

    Raises:
        Problem: a cell is invalid, or a labelled row lacks its response or its rater.
    """
    named = reader.text(layout.texts["rater"]).strip() if "rater" in layout.texts else ""
    said: dict[str, dict[str, float]] = {}
    for column in layout.labels:
        label = reader.label(column)
        if label is not None:
            scale = GRADE_OF.get(column.scale, column.scale)  # type: ignore[call-overload]
            said.setdefault(named or column.rater, {})[scale] = float(label)
    for rater, numbers in said.items():
        # a grade of all people, beside raters with numbers, is no further person's call
        if "harm_severity" in numbers and (rater or not layout.numbered):
            numbers.setdefault(UNSAFE.called, float(numbers["harm_severity"] > 0))
    if not said:
        return None
    texts = {
        name: reader.text(field) if name in _LETTER_FOR_LETTER else reader.text(field).strip()
        for name, field in layout.texts.items()
    }
    if not texts["response"].strip():
        reader.fail(layout.texts["response"], "is empty; expected the labelled text")
    if "rater" in layout.texts and not named:
        reader.fail(layout.texts["rater"], "is empty; expected the name of the rater")
    identity = (texts["id"],) if texts.get("id") else ()
    parts = identity or tuple(texts.get(name, "") for name in ("prompt", "response", "group"))
    return _Row(location, parts, texts, said)


def _parse_call(cell: str, column: _LabelColumn, words: Mapping[str, float]) -> float | None:
    """Return what a cell calls a response; None if it says nothing that is known. A word means
    itself, and a yes what the column's name says.
    """
    if cell in _YES or cell in _NO:
        return float((cell in _YES) ^ (column.name in _OTHER_NAMES))
    return words.get(re.sub("[ -]", "_", cell))


def _find_rater_problems(rows: Sequence[_Row], layout: _Layout, path: Path) -> list[Problem]:
    """Return a problem for each response that one rater labelled twice, and for rows of one id with
    unlike texts.
    """
    word = "column" if is_table(path) else "field"
    problems: list[Problem] = []
    if "rater" not in layout.texts and "id" not in layout.texts:
        return problems
    first: dict[tuple[str, ...], _Row] = {}
    labelled: dict[tuple[tuple[str, ...], str], str] = {}
    for row in rows:
        earlier = first.setdefault(row.key, row)
        where = f"{row.location}, {word}"
        if any(row.texts.get(name) != earlier.texts.get(name) for name in ("prompt", "response")):
            complaint = f"is also that of another response, at {earlier.location}"
            problems.append(
                Problem(
                    f"{where} {clean_for_display(layout.texts['id'])}: {complaint}", row.location
                )
            )
            continue
        for rater in row.said:
            place = labelled.setdefault((row.key, rater), row.location)
            if place != row.location:
                field = layout.texts.get("rater") or layout.texts["id"]
                name = f"{clean_for_display(rater)!r} labels" if rater else "labels"
                complaint = f"{name} a response twice, at {place} too; expected one row of the two"
                if "id" not in layout.texts:
                    complaint += ", or a field id for responses with equal texts"
                problems.append(
                    Problem(f"{where} {clean_for_display(field)}: {complaint}", row.location)
                )
    return problems


def _group_by_response(rows: Sequence[_Row], *, by_rows: bool) -> list[list[_Row]]:
    """Return the rows of each response; there are several if each names its rater."""
    together: dict[object, list[_Row]] = {}
    for number, row in enumerate(rows):
        together.setdefault(row.key if by_rows else number, []).append(row)
    return list(together.values())


def _is_called(rows: Sequence[_Row], called: Called) -> bool:
    """Tell whether anybody calls a response one or the other."""
    return any(called in numbers for row in rows for numbers in row.said.values())


def _response(rows: Sequence[_Row]) -> LabelledResponse:
    return LabelledResponse(
        location=rows[0].location,
        prompt=rows[0].texts.get("prompt", ""),
        response=rows[0].texts["response"],
        group=rows[0].texts.get("group", ""),
    )
