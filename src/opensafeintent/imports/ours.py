"""Reads responses in this project's own fields, from lines of JSON and from tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from opensafeintent.calls.recorded import FIELDS_READ, OUTCOME_FIELDS, RESPONSE_FIELDS, is_true_cell
from opensafeintent.errors import InputError
from opensafeintent.grades import COLUMNS
from opensafeintent.hostile import restore_cell
from opensafeintent.imports.content import (
    FileContent,
    LocatedRecord,
    lacks_variant,
    read_each_model,
)
from opensafeintent.promptsets.fields import Record, fields_found, read_each_record
from opensafeintent.promptsets.reading import (
    SPREADSHEET_SUFFIXES,
    get_suffix,
    is_table,
    whole_number,
)
from opensafeintent.taxonomy import METRIC_GRADES, SCALES, Taxonomy

_BLANK_NUMBERS = {"", "na", "n/a", "nan", "none", "null"}
"""What programs write for a missing number, in lower case."""

_FIELD_NAMES = RESPONSE_FIELDS | {"model", "prompt"}
"""Fields whose misspelt names are refused, in a record with a prompt or a variant."""
_FIELD_NAMES_WITH_VARIANT = _FIELD_NAMES - {"prompt"}
"""Those of a record that names its variant."""
_FIELD_NAMES_WITH_PROMPT = _FIELD_NAMES - {"id", "variant", "epoch"}
"""Those of a record that has its prompt in place of set, variant and epoch."""
_EXPORT_COLUMN = "quotes_hidden"
"""A column that no other program writes than our `export`."""
_GRADES_FILE_COLUMNS = {*COLUMNS[1:]}
"""Columns of our `grades.csv.gz`, without `run`, which is there for several runs alone."""
_PARTIAL_COLUMN = "partial"
"""A column of `export`: whether planned responses of the model are missing."""
_GRADELESS_COLUMNS = (*COLUMNS, "ledger_row", "prompt_hidden", _PARTIAL_COLUMN)
"""Columns of `export` that are not read, and hold no grade. A note names every further column that
is not read, such as a guard's verdicts and the grades of each judge.
"""


def recognises(records: Sequence[LocatedRecord]) -> bool:
    """Tell whether records are ours, by the fields of the first. One that is no object counts as
    ours: `read` refuses it and names its place.
    """
    first = records[0][1]
    if not isinstance(first, dict):
        return True
    return bool(
        {"variant", "prompt"} & Record(first, "").with_names_corrected(_FIELD_NAMES).data.keys()
    )


def read(records: Sequence[LocatedRecord], path: Path, _: Taxonomy) -> list[FileContent]:
    """Read our records, one content for each model.

    Raises:
        InputError: a record is not one of a response.
    """
    from_table = is_table(path)
    _check_names(records, from_table=from_table)
    objects = (data for _, data in records if isinstance(data, dict))
    fields = dict.fromkeys(chain.from_iterable(objects))
    if fields and not fields.keys() & set(OUTCOME_FIELDS):
        raise InputError(
            f"{path}: no response in it; expected a field 'response', or both grades (fields"
            f" {' and '.join(map(repr, METRIC_GRADES))}), or a field 'missing' with the"
            f" reason{fields_found(fields)}"
        )
    if get_suffix(path) in SPREADSHEET_SUFFIXES and (
        _EXPORT_COLUMN in fields or fields.keys() >= _GRADES_FILE_COLUMNS
    ):
        records = [(location, _restore_texts(row)) for location, row in records]
    if "rater" in fields:
        _refuse_raters(records)
    if from_table:
        records = [(location, _parse_numbers(row)) for location, row in records]
    contents = read_each_model(records, path, from_table=from_table)
    known_fields = FIELDS_READ.union(_GRADELESS_COLUMNS)
    contents[0].unread = tuple(field for field in fields if field not in known_fields)
    if _EXPORT_COLUMN in fields:
        rows = (row for _, row in records if isinstance(row, dict))
        incomplete = {
            str(row.get("model", "")) for row in rows if is_true_cell(row, _PARTIAL_COLUMN)
        }
        for content in contents:
            content.is_incomplete_export = content.stated_model in incomplete
    return contents


def _check_names(records: Iterable[LocatedRecord], *, from_table: bool) -> None:
    """Refuse misspelt fields in the records of all models together.

    Raises:
        InputError: a name is nearly that of a field which the record lacks.
    """
    accepted: set[tuple[object, ...]] = set()
    """(whether the variant is lacking, *fields) of records that were accepted."""

    def find_form(data: Any) -> tuple[object, ...]:
        return lacks_variant(data, from_table=from_table), *data

    def check(record: Record) -> None:
        form = without_variant, *_ = find_form(record.data)
        names = _FIELD_NAMES_WITH_VARIANT
        if without_variant:
            by_prompt = "prompt" in record.with_names_corrected({"prompt"}).data
            names = _FIELD_NAMES_WITH_PROMPT if by_prompt else _FIELD_NAMES
        record.check_names(names)
        accepted.add(form)

    objects = (item for item in records if isinstance(item[1], dict))
    read_each_record((item for item in objects if find_form(item[1]) not in accepted), check)


def _refuse_raters(records: Iterable[LocatedRecord]) -> None:
    """Refuse rows of people who rate one response.

    Raises:
        InputError: two rows of raters have the same response.
    """
    first: dict[tuple[str, ...], str] = {}
    for location, data in records:
        if isinstance(data, dict) and "rater" in data:
            same = ("model", "id", "variant", "prompt", "response", "epoch")
            response = tuple(str(data.get(name)) for name in same)
            earlier = first.setdefault(response, location)
            if earlier != location:
                raise InputError(
                    f"{location}: has the response of {earlier}, and a field rater; expected a row"
                    " for each response (--labelled of judge-check takes one for each rater)"
                )


def _restore_texts(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of our own CSV without the marks that protect a spreadsheet from formulas
    (`hostile.restore_cell`).
    """
    return {
        name: restore_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()
    }


def _parse_numbers(row: Any) -> dict[str, object]:
    """Return a row of a table with its epoch and grades as numbers, and without empty ones."""
    numbers = {"epoch", *SCALES}
    cells = {name: cell for name, cell in row.items() if cell is not None or name not in numbers}
    for name in cells.keys() & numbers:
        if (number := whole_number(cells[name])) is not None:
            cells[name] = number
        elif str(cells[name]).strip().lower() in _BLANK_NUMBERS:
            del cells[name]
    return cells
