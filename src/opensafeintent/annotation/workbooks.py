"""What a workbook unpacks to, looked at before a library loads it: a small file can hold more than
a machine.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import IO
from xml.parsers import expat

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

_MOST_ENTRIES = 1_000
_MOST_BYTES = 100_000_000
"""Unpacked. A form with 10,000 rows of text comes to some 20 million."""
_MOST_CELLS = 1_000_000
"""Rows, cells, texts and runs of text, in all sheets."""
_MOST_OTHERS = 100_000
"""Elements of every other kind, of which a library makes large objects: styles, validations, merged
cells.
"""
_MOST_DEPTH = 100
_MOST_TEXT = 1_000_000
"""Characters of one text; a spreadsheet program keeps 32,767 in a cell."""
_MOST_ROWS = 1_048_576
_CHUNK = 2**16
_CELLS = frozenset(("row", "c", "v", "f", "is", "si", "t", "r", "rPr"))
_XML_STARTS = (b"<", b"\x00<", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_WORKBOOK, _RELATIONS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
_OLD = b"\xd0\xcf\x11\xe0"
WORKBOOK_STARTS = (b"PK", _OLD)
"""First bytes of workbooks, those included that are not read: old ones, and those with a password.
"""
_NOT_XLSX = {
    _OLD: "is an old .xls workbook, or one with a password; expected .xlsx without a password",
    b"": "is empty; expected the .xlsx workbook as the annotator saved it",
}


class Extent(msgspec.Struct):
    """What was seen of a workbook."""

    merged: list[tuple[str, str]]
    """(sheet, range) of merged cells; the sheet's title, or its file within the workbook where that
    has none.
    """


def look_over(path: Path, raw: bytes) -> Extent:
    """Unpack a workbook, a little at a time, and refuse one that is damaged or larger than a form
    can be.

    Counted is what is there, not what the file says is there.

    Raises:
        InputError: it is no .xlsx, is damaged, protected by a password, or too large; the text
            names the part.
    """
    for start, what in _NOT_XLSX.items():
        if raw[:4] == start:
            raise InputError(f"{path}: {what}")
    seen = _Seen(path)
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            entries = archive.infolist()
            _check_entries(path, entries, archive)
            for entry in entries:
                with archive.open(entry) as file:
                    seen.part(entry.filename, file)
    except expat.ExpatError as error:
        raise InputError(
            f"{path}: {seen.name}: not a workbook that can be read ({error})"
        ) from error
    except (
        *(
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            ValueError,
            RuntimeError,
            NotImplementedError,
        ),
        LookupError,  # an encoding that is none
    ) as error:
        raise InputError(
            f"{path}: not a workbook that can be read ({one_line(str(error), 100)})"
        ) from error
    return seen.extent()


def _check_entries(path: Path, entries: list[zipfile.ZipInfo], archive: zipfile.ZipFile) -> None:
    if len(entries) > _MOST_ENTRIES:
        raise InputError(
            f"{path}: {len(entries):,} files in the workbook; a form has no more than"
            f" {_MOST_ENTRIES:,}"
        )
    names = {entry.filename for entry in entries}
    if len(names) < len(entries):
        raise InputError(
            f"{path}: a file is there twice in the workbook; expected the workbook as a program"
            " saved it"
        )
    for entry in entries:
        if entry.flag_bits & 1:
            raise InputError(f"{path}: is protected by a password; expected .xlsx without one")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(
                f"{path}: is packed in a way that no .xlsx is; expected the workbook as a program"
                " saved it"
            )
    if "mimetype" in names and archive.getinfo("mimetype").file_size < _CHUNK:
        kind = archive.read("mimetype").decode("ascii", "replace")
        if "opendocument" in kind:
            raise InputError(
                f"{path}: is an OpenDocument file (.ods); expected .xlsx: save it in that format"
            )


class _Seen:
    """Counts over all parts of a workbook."""

    def __init__(self, path: Path) -> None:
        self.name = ""
        self._path = path
        self._bytes = self._cells = self._others = 0
        self._depth = self._text = self._row = 0
        self._merged: list[tuple[str, str]] = []
        self._titles: dict[str, str] = {}
        """By the id of its relation."""
        self._targets: defaultdict[str, list[str]] = defaultdict(list)
        """Ids of relations, by the part that they lead to."""

    def extent(self) -> Extent:
        """Return what was seen, the sheets by their titles."""
        titles = {
            part: self._titles[one]
            for part, ids in self._targets.items()
            for one in ids
            if one in self._titles
        }
        return Extent(merged=[(titles.get(part, part), area) for part, area in self._merged])

    def part(self, name: str, file: IO[bytes]) -> None:
        """Unpack a part, and read it where it is XML."""
        self.name = one_line(name, 60)
        self._depth = self._text = self._row = 0
        parser = None
        first = True
        while chunk := file.read(_CHUNK):
            self._bytes += len(chunk)
            if self._bytes > _MOST_BYTES:
                self._refuse(
                    f"unpacks to more than {_MOST_BYTES:,} bytes; a form of ours is never so large"
                )
            if first and chunk.lstrip(b" \t\r\n").startswith(_XML_STARTS):
                parser = self._parser(name)
            first = False
            if parser is not None:
                parser.Parse(chunk, False)
        if parser is not None:
            parser.Parse(b"", True)

    def _refuse(self, what: str) -> None:
        raise InputError(f"{self._path}: {self.name}: {what}")

    def _parser(self, name: str) -> expat.XMLParserType:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True

        def start(tag: str, attributes: dict[str, str]) -> None:
            self._start(name, tag.rpartition(" ")[2], attributes)

        def doctype(*_: object) -> None:
            self._refuse(
                "declares a document type, which no workbook does; expected the workbook as a"
                " program saved it"
            )

        parser.StartElementHandler = start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = doctype
        return parser

    def _start(self, part: str, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._text = 0
        if self._depth > _MOST_DEPTH:
            self._refuse(
                f"elements within elements, {_MOST_DEPTH} deep; expected the workbook as a program"
                " saved it"
            )
        if tag in _CELLS:
            self._cells += 1
        else:
            self._others += 1
        if self._cells > _MOST_CELLS or self._others > _MOST_OTHERS:
            self._refuse(
                f"more than {_MOST_CELLS:,} cells, or {_MOST_OTHERS:,} other things; a form is"
                " never so large"
            )
        if tag == "row" and "r" in attributes:
            self._check_row(attributes["r"])
        elif tag == "mergeCell":
            self._merged.append((part, one_line(attributes.get("ref", "?"), 40)))
        elif tag == "sheet" and part == _WORKBOOK:
            related = next(
                (value for name, value in attributes.items() if name.endswith(" id")), ""
            )
            self._titles[related] = attributes.get("name", "")
        elif tag == "Relationship" and part == _RELATIONS:
            target = attributes.get("Target", "")
            self._targets[target[1:] if target.startswith("/") else f"xl/{target}"].append(
                attributes.get("Id", "")
            )

    def _check_row(self, number: str) -> None:
        if not re.fullmatch(r"[0-9]{1,7}", number) or not self._row < int(number) <= _MOST_ROWS:
            self._refuse(
                f"row {one_line(number, 20)!r}; expected rows in order, up to {_MOST_ROWS:,}"
            )
        self._row = int(number)

    def _end(self, _tag: str) -> None:
        self._depth -= 1
        self._text = 0

    def _characters(self, text: str) -> None:
        self._text += len(text)
        if self._text > _MOST_TEXT:
            self._refuse(
                f"a text of more than {_MOST_TEXT:,} characters; expected the form's texts and"
                " answers"
            )
