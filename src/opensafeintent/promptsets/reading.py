"""Read the records of a file: a JSON list, JSON lines, CSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opensafeintent.errors import InputError
from opensafeintent.files import any_json, read_text
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.promptsets.parquet import parquet_rows

__all__ = ["SUFFIXES", "Problem", "read_csv", "read_records"]

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""What files of records end in."""


_CSV_FORM = "expected UTF-8, a text with commas or line breaks between double quotes, and quotes within it doubled"


class Problem(Exception):
    """One thing wrong in one record: its place and what would be valid."""


def read_records(path: Path, shown: str | None = None, limit: RowLimit | None = None) -> Iterator[tuple[str, Any]]:
    """Yield (place, record) for each record of a `.json` list, a `.jsonl`, a `.csv` or a `.parquet` file.

    Args:
        path: the file.
        shown: what places and errors call it; its path by default.
        limit: what may be read; by default as much as `RowLimit()` allows, of this file.

    Raises:
        InputError: the file cannot be read, is not UTF-8, is not what its suffix says, or holds more than the limit.
        Problem: one line of a JSONL file is not JSON, or one row of a CSV file has not as many cells as the header names.
    """
    name, limit = shown or str(path), limit or RowLimit()
    match path.suffix.lower():
        case ".parquet":
            rows = parquet_rows(path, name, limit)
            yield from ((f"{name}, row {number}", row) for number, row in enumerate(rows, start=1))
            return
        case ".csv":
            cells = read_csv(path, name, limit)
            yield from ((place, {field: cell for field, cell in row.items() if cell}) for place, row in cells)
            return
        case suffix:
            for record in _json_records(_read_text(path, name, limit), name, lines=suffix == ".jsonl"):
                limit.count(name)
                yield record


def _json_records(text: str, name: str, *, lines: bool) -> Iterator[tuple[str, Any]]:
    if text.strip() and (not lines or text.lstrip().startswith("[")):
        try:
            value = _json(text)
        except Problem as problem:
            if not _looks_like_lines(text):
                raise InputError(f"{name}: {problem}") from problem
        else:
            listed = isinstance(value, list)
            yield from (((f"{name}, item {n}", item) for n, item in enumerate(value, start=1)) if listed else [(name, value)])
            return
    for number, line in enumerate(_lines(text), start=1):
        if line.strip():
            try:
                yield f"{name}:{number}", _json(line)
            except Problem as problem:
                raise Problem(f"{name}:{number}: {problem}") from problem


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, one at a time: a large file is not held twice."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def read_csv(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, cells by column) for each row of a CSV file. Line ends are LF, CRLF or CR, and nothing else is one.

    Raises:
        InputError: it cannot be read, is not UTF-8, has a column twice or a quote out of place, or holds more than the limit.
        Problem: a row has not as many cells as the header.
    """
    text = _read_text(path, name, limit)
    if "\0" in text:
        raise InputError(f"{name}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: holds a NUL character; {_CSV_FORM}")
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1  # on which a row begins
    try:
        header = next(rows, [])
        twice = next((field for field in header if header.count(field) > 1), None) if len(set(header)) < len(header) else None
        if twice is not None:
            raise InputError(f"{name}: the column {one_line(twice, 60)!r} stands twice in the header")
        line = rows.line_num + 1
        for row in rows:
            if len(row) != len(header) and "".join(row).strip():
                cells = f"{len(row)} cell{'s' * (len(row) != 1)}"
                raise Problem(f"{name}:{line}: has {cells}, and the header names {len(header)}; {_CSV_FORM}")
            if len(row) == len(header):
                limit.count(name)
                yield f"{name}:{line}", dict(zip(header, row, strict=True))
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{name}:{line}: cannot read as CSV from here ({error}); {_CSV_FORM}") from error


def _looks_like_lines(text: str) -> bool:
    first, *rest = text.strip().split("\n", 1)
    try:
        return bool(rest) and isinstance(_json(first), dict | list)
    except Problem:
        return False


def _json(text: str) -> Any:
    """Read JSON, or raise the Problem that it has."""
    try:
        return any_json(text)
    except ValueError as error:
        raise Problem(_json_complaint(error)) from error


def _json_complaint(error: ValueError) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return f"not valid JSON ({error})"
    where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
    cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    return f"not valid JSON ({error.msg}, {where})" + ("; it looks cut off" if cut else "")


def _read_text(path: Path, name: str, limit: RowLimit) -> str:
    with contextlib.suppress(OSError):  # what cannot be looked at cannot be read either, and that is told below
        limit.check(name, characters=path.stat().st_size)
    return read_text(path, name)
