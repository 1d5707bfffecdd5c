"""Read the records of a file: a JSON list, JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opensafeintent.errors import InputError
from opensafeintent.files import any_json, read_text
from opensafeintent.hostile import one_line

__all__ = ["SUFFIXES", "Problem", "read_records"]

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""What files of records end in."""


class Problem(Exception):
    """One thing wrong in one record: its place and what would be valid."""


def read_records(path: Path, shown: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield (place, record) for each record of a `.json` list, a `.jsonl`, a `.csv` or a `.parquet` file.

    Args:
        path: the file.
        shown: what places and errors call it; its path by default.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or is not what its suffix says.
        Problem: one line of a JSONL file is not JSON, or one row of a CSV file has too many cells.
    """
    name = shown or str(path)
    match path.suffix.lower():
        case ".parquet":
            yield from _parquet_records(path, name)
        case ".csv":
            yield from _csv_records(read_text(path, name), name)
        case suffix:
            yield from _json_records(read_text(path, name), name, lines=suffix == ".jsonl")


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
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"{name}:{number}", _json(line)
            except Problem as problem:
                raise Problem(f"{name}:{number}: {problem}") from problem


def _csv_records(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a record for each row, its cells texts; an empty cell is a field that is not there."""
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        twice = next((field for field in rows.fieldnames or () if list(rows.fieldnames or ()).count(field) > 1), None)
        if twice is not None:
            raise InputError(f"{name}: the column {one_line(twice, 60)!r} stands twice in the header")
        for number, row in enumerate(rows, start=1):
            if None in row:
                raise Problem(f"{name}, row {number}: has more cells than the header names")
            yield f"{name}, row {number}", {field: cell for field, cell in row.items() if cell}
    except csv.Error as error:
        raise InputError(f"{name}: cannot read as CSV: {error} (after line {rows.line_num})") from error


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


def _parquet_records(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f'{name}: Parquet needs an extra: pip install "opensafeintent[parquet]"') from error
    try:
        rows = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot read as Parquet: {error}") from error
    yield from ((f"{name}, row {n}", row) for n, row in enumerate(rows, start=1))
