"""Rows of an Excel workbook, as texts. Nothing in it is computed or followed: a formula is the
value that was stored with it; macros, links and pictures are not read.
"""

from __future__ import annotations

import datetime
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from opensafeintent.errors import InputError, find_repeated, install_extra
from opensafeintent.files import RowLimit, os_errors, whole_if_it_is
from opensafeintent.hostile import clean_for_display, one_line

_MOST_BYTES = 200_000_000
"""Of all parts, unpacked."""
_MOST_ELEMENTS = 5_000_000
"""Of XML; a cell with a text has four. Each takes up to a kilobyte while it is read."""
_MOST_CHILDREN = 65_536
"""Elements in one, rows of a sheet and texts of a workbook aside. A row has 16,384 at most."""
_MOST_DEPTH = 100
_MOST_ROWS = 2**20
"""Of a sheet, as Excel has it."""
_A_CELL = 100
"""Bytes that a cell takes, were it empty."""
_LONGEST_CELL = 32_767
"""Characters that Excel keeps of a text; it cuts off the others in silence."""
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_ROWS_OF = re.compile(r"[A-Z]+(\d+):[A-Z]+(\d+)")
_OLD = b"\xd0\xcf\x11\xe0"
"""First bytes of a workbook of Excel 97, and of one with a password."""


def workbook_rows(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, list[str]]]:
    """Yield (location, cells) for each row of the one visible sheet that holds anything. A row may
    have fewer cells than another.

    Args:
        path: the file.
        name: its name in errors.
        limit: on rows and characters; its rows are counted by the caller.

    Raises:
        InputError: the extra `[xlsx]` is missing; the file is damaged, no workbook or too large;
            several sheets hold something, or none; a formula has no stored value, a cell an error;
            cells are merged over several rows; or a text was cut off by Excel.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise InputError(f"{name}: a workbook needs an extra: {install_extra('xlsx')}") from error
    with os_errors(f"{name}: cannot read"), path.open("rb") as file:
        if file.read(len(_OLD)) == _OLD:
            raise InputError(
                f"{name}: is a workbook of Excel 97, or one with a password; expected .xlsx without"
            )
        try:
            complaints = _check(file, name)
            with warnings.catch_warnings():  # about styles and charts, which are not read
                warnings.simplefilter("ignore")
                workbook = openpyxl.load_workbook(
                    file, read_only=True, data_only=True, keep_links=False
                )
                complaint, rows = _choose_sheet(workbook, complaints, name, limit)
        except InputError:
            raise
        except Exception as error:  # openpyxl raises any
            shown = one_line(str(error) or type(error).__name__)
            raise InputError(
                f"{name}: cannot read as an Excel workbook ({shown}); expected an undamaged .xlsx"
                " file"
            ) from error
    if complaint:
        raise InputError(f"{name}: {complaint}")
    for number, cells in rows:
        yield f"{name}, row {number}", cells


def _choose_sheet(
    workbook: Any, complaints: Mapping[str, str], name: str, limit: RowLimit
) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return the sheet that holds anything: its first fault, and its rows.

    Raises:
        InputError: there is none, or there are several.
    """
    read = [
        (sheet.title, complaints[sheet._worksheet_path], _read_rows(sheet, name, limit))
        for sheet in workbook.worksheets
        if sheet.sheet_state == "visible"
    ]
    # of a sheet with a fault, openpyxl may pass over all rows
    filled = [(title, complaint, rows) for title, complaint, rows in read if complaint or rows]
    if len(filled) == 1:
        return filled[0][1:]
    if filled:
        named = ", ".join(repr(clean_for_display(title)) for title, *_ in filled[:8])
        raise InputError(
            f"{name}: several sheets hold something ({named}); expected one: save the sheet as a"
            " file of its own"
        )
    hidden = any(sheet.sheet_state != "visible" for sheet in workbook.worksheets)
    raise InputError(
        f"{name}: no sheet holds anything{', hidden ones aside' if hidden else ''}; expected a"
        " table"
    )


def _read_rows(sheet: Any, name: str, limit: RowLimit) -> list[tuple[int, list[str]]]:
    sheet.reset_dimensions()  # some programs write wrong ones
    rows: list[tuple[int, list[str]]] = []
    size = 0
    for number, row in enumerate(sheet.iter_rows(), start=1):
        cells = [_text(cell, number, name) for cell in row]
        size += _A_CELL * len(cells) + sum(map(len, cells))
        limit.check(name, characters=size)  # cells share one text, and few hold any
        if any(cells):
            rows.append((number, cells))
            limit.check(name, rows=len(rows) - 1)  # one is the header
    return rows


def _text(cell: Any, number: int, name: str) -> str:
    """Return the text of a cell, as CSV would have it.

    Raises:
        InputError: it holds an error, or a text that is as long as Excel allows.
    """
    value = cell.value
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case float():
            whole = whole_if_it_is(value)
            return str(whole) if isinstance(whole, int) else f"{value:.15g}"
        case datetime.datetime() if value.time() == datetime.time():
            return value.date().isoformat()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
    place = f"{name}, cell {cell.column_letter}{number}"
    if cell.data_type == "e":
        raise InputError(
            f"{place}: holds {clean_for_display(str(value))} in place of a value; expected one"
        )
    text = str(value)
    if len(text) == _LONGEST_CELL:
        raise InputError(
            f"{place}: has {_LONGEST_CELL:,} characters, after which Excel cuts a text off;"
            " expected a shorter one, or a .csv or .jsonl file that has all of it"
        )
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def _check(file: IO[bytes], name: str) -> Mapping[str, str]:
    """Refuse a workbook that would take endless time or memory to read: few bytes can unpack to
    more than a machine holds.

    Returns:
        The first fault of each sheet by its part: openpyxl passes over it.
    """
    complaints: dict[str, str] = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if (size := sum(member.file_size for member in members)) > _MOST_BYTES:
            raise InputError(
                f"{name}: {size:,} bytes when unpacked; expected at most {_MOST_BYTES:,}, or a .csv"
                " file"
            )
        if twice := find_repeated(archive.namelist()):
            raise ValueError(f"{clean_for_display(twice[0])} is there twice")
        elements = 0
        for member in members:
            if member.filename.lower().endswith((".xml", ".rels")):
                check = _PartCheck(name, elements)
                with archive.open(member) as content:
                    check.parser.ParseFile(content)
                elements = check.elements
                complaints[member.filename] = check.complaint
    file.seek(0)
    return complaints


class _PartCheck:
    """Checks one part of a workbook while it is parsed.

    Attributes:
        elements: of this part and of those before.
        complaint: its first fault; empty if it has none.
    """

    def __init__(self, name: str, elements: int) -> None:
        self._name = name
        self.elements = elements
        self.complaint = ""
        self._children = [0]
        self._row = 0
        self._column = (0, "")
        self._place = ""
        self._cell: set[str] = set()
        """What the cell has in it."""
        self._within = ""
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse_types

    def _refuse_types(self, *_: object) -> None:
        raise ValueError("declares types of its own")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        self._children[-1] += 1
        self._within = kind = tag.rpartition(":")[2]
        many = kind in ("row", "si")
        if self.elements > _MOST_ELEMENTS or (self._children[-1] > _MOST_CHILDREN and not many):
            raise InputError(
                f"{self._name}: has more cells, or parts of a cell, than can be read; expected a"
                " .csv file"
            )
        if len(self._children) > _MOST_DEPTH:
            raise ValueError("nested too deeply")
        self._children.append(0)
        if kind == "row":
            row = int(attributes.get("r", self._row + 1))
            if row > _MOST_ROWS:
                raise ValueError(f"more than {_MOST_ROWS:,} rows")
            if row <= self._row:
                self._complain(f"row {row} stands behind a later one; save the workbook again")
            self._row, self._column = row, (0, "")
        elif kind == "c":
            self._place = attributes.get("r", f"of row {self._row}")
            letters = re.sub(r"\d", "", attributes.get("r", ""))
            if letters and (len(letters), letters) <= self._column:
                self._complain(
                    f"the cells of row {self._row} are not in order; save the workbook again"
                )
            self._column = (len(letters), letters) if letters else self._column
            self._cell = {"text"} if attributes.get("t") == "str" else set()
        elif kind == "f":
            self._cell.add("formula")
        elif kind == "mergeCell":
            merged = _ROWS_OF.fullmatch(attributes.get("ref", ""))
            if merged and merged[1] != merged[2]:
                self._complain(
                    f"the cells {merged[0]} are merged over several rows; expected a value in each"
                    " row"
                )

    def _text(self, _: str) -> None:
        if self._within == "v":
            self._cell.add("text")

    def _end(self, tag: str) -> None:
        self._children.pop()
        self._within = ""
        if tag.rpartition(":")[2] == "c" and self._cell == {"formula"}:
            self._complain(
                f"cell {clean_for_display(self._place)} has a formula without a stored value; open"
                " the workbook in a spreadsheet program and save it, or write values"
            )

    def _complain(self, text: str) -> None:
        self.complaint = self.complaint or text
