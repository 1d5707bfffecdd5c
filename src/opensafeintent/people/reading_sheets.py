"""Reading an annotator's workbook: ids, answers and notes are read, texts only compared."""

from __future__ import annotations

import io
import re
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

import openpyxl
from openpyxl.utils import coordinate_to_tuple, get_column_letter
from openpyxl.utils.exceptions import InvalidFileException

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.people.guide import SLOTS, guide_of
from opensafeintent.people.labels import LabelKind
from opensafeintent.people.returns import Formula, Returned, ReturnedItem, Value
from opensafeintent.people.sheets import FIXED, IDENTITY, ITEMS, NOTE, PRACTICE, Column, columns_of
from opensafeintent.people.texts import words_hash
from opensafeintent.people.workbooks import look_over

__all__ = ["read_sheet"]

_Cells = dict[tuple[int, int], Value]
"""By row and column, from 1."""
_MOST_COLUMNS = 26
"""A form has fewer."""
_PART = re.compile(r"(?P<label>.+?)(?: \((?P<part>[0-9]{1,5}) of (?P<parts>[0-9]{1,5})\))?")
_UNREADABLE = (
    *(BadZipFile, InvalidFileException, ParseError, OSError, KeyError, ValueError, TypeError, AttributeError, IndexError),
    *(NotImplementedError, EOFError, RuntimeError, ArithmeticError, zlib.error),
)
"""What openpyxl ends with on a file that is damaged, encrypted or something else."""


def read_sheet(path: Path, raw: bytes) -> Returned:
    """Read a workbook that `sheets.render_sheet` made and an annotator filled in.

    Rows may stand in another order: each names its item and part. Everything that is wrong is kept with its cell.

    Raises:
        InputError: it is not such a workbook.
    """
    merged = look_over(path, raw).merged
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what openpyxl leaves out (extensions, styles) is nothing that is read here
            # read row by row: a range of merged cells, or a cell far away, is not made a million cells
            book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, keep_links=False)
            missing = [name for name in ("Instructions", PRACTICE, ITEMS) if name not in book.sheetnames]
            cells = {} if missing else {name: _cells(book[name]) for name in ("Instructions", PRACTICE, ITEMS)}
    except _UNREADABLE as error:
        raise InputError(f"{path}: not a workbook that can be read ({one_line(str(error), 100)})") from error
    if missing:
        raise InputError(f"{path}: has no sheet {missing[0]!r}; expected the workbook as annotate export wrote it")
    identity = {what: cells["Instructions"].get(coordinate_to_tuple(address)) for what, address in IDENTITY.items()}
    returned = Returned(
        file=str(path), study=str(identity["study"] or "").strip(), annotator=str(identity["annotator"] or "").strip()
    )
    for sheet, place in sorted(merged):
        if sheet not in book.sheetnames or sheet in (PRACTICE, ITEMS):
            returned.problems.append(f"{sheet}!{place}: merged cells; expected one answer a cell: unmerge them")
    kind = _kind(cells[ITEMS])
    if kind is None:
        returned.problems.append(f"{ITEMS}!1:1: the headings are not those of a form; expected them as they were")
        return returned
    for name in (PRACTICE, ITEMS):
        _Table(name, cells[name], kind, returned).read()
    return returned


def _cells(sheet: Any) -> _Cells:
    """Return what the cells of a sheet hold, those that hold anything, in the columns that a form can have."""
    sheet.reset_dimensions()  # what the file says of them need not be so
    found: _Cells = {}
    for row in sheet.iter_rows(max_col=_MOST_COLUMNS):
        for cell in row:
            if cell.value is not None:
                value = cell.value
                found[cell.row, cell.column] = Formula(str(getattr(value, "text", value))) if cell.data_type == "f" else value
    return found


def _kind(cells: _Cells) -> LabelKind | None:
    """Tell the task by the heading of the first column of answers."""
    found = _words(cells.get((1, len(FIXED) + 1)))
    kinds: tuple[LabelKind, ...] = ("dataset_quality", "judge_validation")
    return next((kind for kind in kinds if _words(columns_of(kind, guide_of(kind))[0].head) == found), None)


def _words(value: Value) -> str:
    return "".join(str(value or "").split())


class _Table:
    """One sheet of items."""

    def __init__(self, title: str, cells: _Cells, kind: LabelKind, returned: Returned) -> None:
        self._title = title
        self._cells = cells
        self._returned = returned
        self._slots = {slot.label: slot for slot in SLOTS[kind]}
        self._columns: list[Column] = columns_of(kind, guide_of(kind))
        self._note = len(FIXED) + len(self._columns) + 1

    def _address(self, row: int, column: int) -> str:
        return f"{self._title}!{get_column_letter(column)}{row}"

    def _problem(self, address: str, what: str) -> None:
        self._returned.problems.append(f"{address}: {what}")

    def read(self) -> None:
        if not self._headings_as_they_were():
            return
        rows: defaultdict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        parts: dict[tuple[str, str], int] = {}
        for row in sorted({row for row, _ in self._cells} - {1}):
            place = self._place(row)
            if place is None:
                continue
            code, label, part, count = place
            if (label, part) in rows[code]:
                twice = self._address(rows[code][label, part], 2)
                self._problem(
                    self._address(row, 2), f"item {one_line(code, 20)}, {label}: is there twice, here and at {twice}"
                )
                continue
            rows[code][label, part] = row
            parts[code, label] = max(count, parts.get((code, label), 1))
        for code, found in rows.items():
            self._returned.items.append(self._item(code, found, parts))

    def _headings_as_they_were(self) -> bool:
        expected = [*FIXED, *(column.head for column in self._columns), NOTE]
        good = True
        for column, head in enumerate(expected, start=1):
            value = self._cells.get((1, column))
            if _words(value) != _words(head):
                self._problem(
                    self._address(1, column), f"heading {one_line(str(value or ''), 40)!r}; expected {one_line(head, 60)!r}"
                )
                good = False
        return good

    def _place(self, row: int) -> tuple[str, str, int, int] | None:
        """Return a row's item, text and part of it; None where there is nothing, or nothing that can be placed."""
        code, label = (_shown_text(self._cells.get((row, column))).strip() for column in (2, 3))
        if not code:
            filled = [column for column in range(1, self._note + 1) if self._value(row, column) is not None]
            if filled:
                self._problem(
                    self._address(row, filled[0]), "a row without an item in column B; expected the rows as they were"
                )
            return None
        found = _PART.fullmatch(label)
        if found is None or found["label"] not in self._slots:
            self._problem(
                self._address(row, 3),
                f"part {one_line(label, 40)!r}; expected the parts as they were: {', '.join(self._slots)}",
            )
            return None
        return code, found["label"], int(found["part"] or 1), int(found["parts"] or 1)

    def _value(self, row: int, column: int) -> Value:
        """Return what a cell holds; a text of white space alone is nothing."""
        value = self._cells.get((row, column))
        return None if isinstance(value, str) and not value.strip() else value

    def _item(self, code: str, rows: dict[tuple[str, int], int], parts: dict[tuple[str, str], int]) -> ReturnedItem:
        item = ReturnedItem(address=self._address(min(rows.values()), 2), code=code)
        last_slot = list(self._slots)[-1]
        for label, slot in self._slots.items():
            count = parts.get((code, label), 1)
            cells = [(part, row) for (name, part), row in sorted(rows.items()) if name == label]
            if len(cells) != count or [part for part, _ in cells] != list(range(1, count + 1)):
                continue  # not whole: the import says so of the item
            item.words[label] = self._text([row for _, row in cells])
            asked = {ask.question: ask.field for ask in slot.asks}
            for part, row in cells:
                for place, value in self._answers(row):
                    field = asked.get(place.question) if part == count else None
                    address = self._address(row, len(FIXED) + 1 + self._columns.index(place))
                    if field is None:
                        self._problem(address, f"{_shown(value)} in a cell that asks nothing; answers go into the open cells")
                    else:
                        item.answers[field] = (address, value)
                note = self._value(row, self._note)
                if note is not None and (label != last_slot or part != count):
                    self._problem(self._address(row, self._note), "a note beside a text; notes go into the item's last row")
                elif note is not None:
                    item.note = (self._address(row, self._note), note)
        return item

    def _answers(self, row: int) -> Iterator[tuple[Column, Value]]:
        for place, column in enumerate(self._columns, start=len(FIXED) + 1):
            value = self._value(row, place)
            if value is not None:
                yield column, value

    def _text(self, rows: list[int]) -> tuple[str, str]:
        """Return where a text stands, and its hash. A formula in its place is not evaluated; it is another text."""
        values = [self._cells.get((row, 4)) for row in rows]
        first, last = self._address(rows[0], 4), f"D{rows[-1]}"
        address = first if len(rows) == 1 else f"{first}:{last}"
        return address, words_hash("".join(map(_shown_text, values)))


def _shown_text(value: Value) -> str:
    return value.text if isinstance(value, Formula) else "" if value is None else str(value)


def _shown(value: Value) -> str:
    return f"formula {one_line(value.text, 40)!r}" if isinstance(value, Formula) else repr(one_line(str(value), 40))
