"""What came back from an annotator, in either form, before anything of it is believed: texts are
only compared.
"""

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

import msgspec

from opensafeintent.annotation.forms import (
    FIXED,
    IDENTITY,
    INSTRUCTIONS,
    ITEMS,
    NOTE,
    PAGE_FORM,
    PRACTICE,
    Column,
    cell,
    columns_of,
)
from opensafeintent.annotation.guide import SLOTS
from opensafeintent.annotation.labels import LabelKind
from opensafeintent.annotation.texts import words_hash
from opensafeintent.annotation.workbooks import WORKBOOK_STARTS, look_over
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

MOST_BYTES = 100_000_000
"""A larger file is no form of ours."""
_MOST_PAGE_BYTES = 20_000_000
"""Of what a page saves: an item takes some 200."""
_MOST_COLUMNS = 26
"""A form has fewer."""
_PART = re.compile(r"(?P<label>.+?)(?: \((?P<part>[0-9]{1,5}) of (?P<parts>[0-9]{1,5})\))?")
_UNREADABLE = (
    *(
        BadZipFile,
        ParseError,
        OSError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        NotImplementedError,
    ),
    *(EOFError, RuntimeError, ArithmeticError, zlib.error),
)
"""What openpyxl ends with on a file that is damaged, encrypted or something else, beside its own
error.
"""


class Formula(msgspec.Struct, frozen=True):
    """A cell that holds a formula, whatever that comes to."""

    text: str


Value = object
"""What a cell holds: a text, a number, a truth value, a date, a `Formula`, or nothing."""
_Cells = dict[tuple[int, int], Value]
"""By row and column, from 1."""


class ReturnedItem(msgspec.Struct, kw_only=True):
    """One item as it came back, each thing with the address at which it stands."""

    address: str
    code: str
    words: dict[str, tuple[str, str]] = {}
    """By slot: the address, and the hash of the text (`texts.words_hash`); of a page, `page_words`
    by the slot "".
    """
    answers: dict[str, tuple[str, Value]] = {}
    """By field: the address, and what stands there. A blank is not there."""
    note: tuple[str, Value] | None = None


class Returned(msgspec.Struct, kw_only=True):
    """A file as it came back."""

    file: str
    study: str
    annotator: str
    items: list[ReturnedItem] = []
    problems: list[str] = []
    """What is wrong with the file by itself, a line each, without the file's name."""


def read_return(path: Path, form: str = "auto") -> Returned:
    """Read a file that an annotator sent back.

    Args:
        path: an `.xlsx` workbook, or the `.json` that the page saves.
        form: `sheet`, `page`, or `auto` to go by the file's first bytes.

    Raises:
        InputError: the file cannot be read, or is neither form.
    """
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}") from error
    if size > MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a form of ours is never so large")
    if form == "sheet" or (form == "auto" and (raw.startswith(WORKBOOK_STARTS) or not raw)):
        return _read_sheet(path, raw)
    if form == "page" or (form == "auto" and raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")):
        return _read_page(path, raw)
    raise InputError(
        f"{path}: neither an .xlsx workbook nor the .json of a page; expected the file as the"
        " annotator saved it, not a copy in another format"
    )


def _blank(value: Value) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


# Pages
# ------------------------------------------------------------------------------


class _SavedItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    code: str
    words: str
    """`page_words` of what the page was made with."""
    answers: dict[str, object] = {}
    note: str = ""


class _Saved(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    form: str
    study: str
    annotator: str
    items: list[_SavedItem]


def _read_page(path: Path, raw: bytes) -> Returned:
    """Read the JSON that a page saved."""
    if len(raw) > _MOST_PAGE_BYTES:
        raise InputError(
            f"{path}: {len(raw):,} bytes; what a page saves has at most {_MOST_PAGE_BYTES:,}"
        )
    try:
        saved = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=_Saved)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))
        raise InputError(f"{path}: not what a page of annotate page saves: {what}") from error
    if saved.form != PAGE_FORM:
        raise InputError(
            f"{path}: form {one_line(saved.form, 60)!r}; this program reads {PAGE_FORM!r}"
        )
    return Returned(
        file=str(path),
        study=saved.study,
        annotator=saved.annotator,
        items=[_page_item(item, f"items[{index}]") for index, item in enumerate(saved.items)],
    )


def _page_item(item: _SavedItem, address: str) -> ReturnedItem:
    return ReturnedItem(
        address=address,
        code=item.code,
        words={"": (address, item.words)},
        answers={
            field: (f"{address}.answers.{field}", value)
            for field, value in item.answers.items()
            if not _blank(value)
        },
        note=None if _blank(item.note) else (f"{address}.note", item.note),
    )


# Workbooks
# ------------------------------------------------------------------------------


def _read_sheet(path: Path, raw: bytes) -> Returned:
    """Read a workbook that `forms.render_sheet` made and an annotator filled in.

    Rows may stand in another order: each names its item and part. Everything that is wrong is kept
    with its cell.
    """
    merged = look_over(path, raw).merged
    sheets, titles = _load(path, raw)
    first = sheets[INSTRUCTIONS]
    returned = Returned(
        file=str(path),
        study=str(first.get(IDENTITY["study"]) or "").strip(),
        annotator=str(first.get(IDENTITY["annotator"]) or "").strip(),
    )
    for title, area in sorted(merged):
        if title not in titles or title in (PRACTICE, ITEMS):
            returned.problems.append(
                f"{title}!{area}: merged cells; expected one answer a cell: unmerge them"
            )
    kind = _kind(sheets[ITEMS])
    if kind is None:
        returned.problems.append(
            f"{ITEMS}!1:1: the headings are not those of a form; expected them as they were"
        )
        return returned
    for title in (PRACTICE, ITEMS):
        _Table(title, sheets[title], kind, returned).read()
    return returned


def _load(path: Path, raw: bytes) -> tuple[dict[str, _Cells], list[str]]:
    """Return the cells of the sheets that are read, and the titles of all."""
    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    wanted = (INSTRUCTIONS, PRACTICE, ITEMS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # what openpyxl leaves out (extensions, styles) is nothing that is read here
            # read row by row: a range of merged cells, or a cell far away, is not made a million
            # cells
            book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, keep_links=False)
            missing = [title for title in wanted if title not in book.sheetnames]
            sheets = {} if missing else {title: _cells(book[title]) for title in wanted}
    except (InvalidFileException, *_UNREADABLE) as error:
        raise InputError(
            f"{path}: not a workbook that can be read ({one_line(str(error), 100)})"
        ) from error
    if missing:
        raise InputError(
            f"{path}: has no sheet {missing[0]!r}; expected the workbook as annotate export"
            " wrote it"
        )
    return sheets, book.sheetnames


def _cells(sheet: Any) -> _Cells:
    """Return what the cells of a sheet hold, those that hold anything, in the columns that a form
    can have.
    """
    sheet.reset_dimensions()  # what the file says of them need not be so
    cells: _Cells = {}
    for row in sheet.iter_rows(max_col=_MOST_COLUMNS):
        for one in row:
            value = one.value
            if value is not None:
                cells[one.row, one.column] = (
                    Formula(str(getattr(value, "text", value))) if one.data_type == "f" else value
                )
    return cells


def _kind(cells: _Cells) -> LabelKind | None:
    """Tell the task by the heading of the first column of answers."""
    heading = _without_spaces(cells.get((1, len(FIXED) + 1)))
    kinds: tuple[LabelKind, ...] = ("dataset_quality", "judge_validation")
    return next(
        (kind for kind in kinds if _without_spaces(columns_of(kind)[0].head) == heading), None
    )


def _without_spaces(value: Value) -> str:
    return "".join(str(value or "").split())


class _Table:
    """One sheet of items, read into `returned`."""

    def __init__(self, title: str, cells: _Cells, kind: LabelKind, returned: Returned) -> None:
        self._title = title
        self._cells = cells
        self._returned = returned
        self._slots = {slot.label: slot for slot in SLOTS[kind]}
        self._columns = columns_of(kind)
        self._note = len(FIXED) + len(self._columns) + 1

    def _address(self, row: int, column: int) -> str:
        return f"{self._title}!{cell(row, column)}"

    def _problem(self, row: int, column: int, what: str) -> None:
        self._returned.problems.append(f"{self._address(row, column)}: {what}")

    def read(self) -> None:
        if not self._headings_as_they_were():
            return
        rows: defaultdict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        counts: dict[tuple[str, str], int] = {}
        for row in sorted({row for row, _ in self._cells} - {1}):
            key = self._key(row)
            if key is None:
                continue
            code, label, part, count = key
            if (label, part) in rows[code]:
                twice = self._address(rows[code][label, part], 2)
                self._problem(
                    row,
                    2,
                    f"item {one_line(code, 20)}, {label}: is there twice, here and at {twice}",
                )
                continue
            rows[code][label, part] = row
            counts[code, label] = max(count, counts.get((code, label), 1))
        for code, of_item in rows.items():
            self._returned.items.append(self._item(code, of_item, counts))

    def _headings_as_they_were(self) -> bool:
        good = True
        for column, head in enumerate(
            [*FIXED, *(column.head for column in self._columns), NOTE], start=1
        ):
            value = self._cells.get((1, column))
            if _without_spaces(value) != _without_spaces(head):
                self._problem(
                    1,
                    column,
                    f"heading {one_line(str(value or ''), 40)!r}; expected {one_line(head, 60)!r}",
                )
                good = False
        return good

    def _key(self, row: int) -> tuple[str, str, int, int] | None:
        """Return a row's item, slot, part of its text and number of parts; None where it names none
        of them.
        """
        code, label = (_written(self._cells.get((row, column))).strip() for column in (2, 3))
        if not code:
            filled = [
                column
                for column in range(1, self._note + 1)
                if not _blank(self._cells.get((row, column)))
            ]
            if filled:
                self._problem(
                    row,
                    filled[0],
                    "a row without an item in column B; expected the rows as they were",
                )
            return None
        match = _PART.fullmatch(label)
        if match is None or match["label"] not in self._slots:
            valid = ", ".join(self._slots)
            self._problem(
                row, 3, f"part {one_line(label, 40)!r}; expected the parts as they were: {valid}"
            )
            return None
        return code, match["label"], int(match["part"] or 1), int(match["parts"] or 1)

    def _item(
        self, code: str, rows: dict[tuple[str, int], int], counts: dict[tuple[str, str], int]
    ) -> ReturnedItem:
        item = ReturnedItem(address=self._address(min(rows.values()), 2), code=code)
        last_slot = list(self._slots)[-1]
        for label in self._slots:
            count = counts.get((code, label), 1)
            parts = {part: row for (name, part), row in sorted(rows.items()) if name == label}
            if list(parts) != list(range(1, count + 1)):
                continue  # not whole: the import says so of the item
            item.words[label] = self._text(list(parts.values()))
            for part, row in parts.items():
                self._read_answers(item, row, label if part == count else None)
                note = self._cells.get((row, self._note))
                if _blank(note):
                    continue
                if label == last_slot and part == count:
                    item.note = (self._address(row, self._note), note)
                else:
                    self._problem(
                        row, self._note, "a note beside a text; notes go into the item's last row"
                    )
        return item

    def _read_answers(self, item: ReturnedItem, row: int, label: str | None) -> None:
        """Take in a row's answers, to what is asked of the slot `label`; where that is None,
        nothing is.
        """
        asked = {ask.question: ask.field for ask in self._slots[label].asks} if label else {}
        for at, column, value in self._answers(row):
            if column.question in asked:
                item.answers[asked[column.question]] = (self._address(row, at), value)
            else:
                self._problem(
                    row,
                    at,
                    f"{_shown(value)} in a cell that asks nothing; answers go into the open cells",
                )

    def _answers(self, row: int) -> Iterator[tuple[int, Column, Value]]:
        for at, column in enumerate(self._columns, start=len(FIXED) + 1):
            value = self._cells.get((row, at))
            if not _blank(value):
                yield at, column, value

    def _text(self, rows: list[int]) -> tuple[str, str]:
        """Return where a text stands, and its hash.

        A formula in its place is not evaluated; it is another text.
        """
        text = "".join(_written(self._cells.get((row, 4))) for row in rows)
        address = self._address(rows[0], 4)
        return address if len(rows) == 1 else f"{address}:{cell(rows[-1], 4)}", words_hash(text)


def _written(value: Value) -> str:
    return value.text if isinstance(value, Formula) else "" if value is None else str(value)


def _shown(value: Value) -> str:
    return (
        f"formula {one_line(value.text, 40)!r}"
        if isinstance(value, Formula)
        else repr(one_line(str(value), 40))
    )
