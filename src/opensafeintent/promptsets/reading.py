"""Files of records: JSON, JSON lines, CSV, Parquet and workbooks."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from opensafeintent.errors import InputError, install_extra, pluralize
from opensafeintent.files import (
    RowLimit,
    any_json,
    as_text,
    read_bytes,
    refuse_repeated,
    whole_if_it_is,
)
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.promptsets.workbooks import workbook_rows

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_BATCH = 1024
"""Rows that are decoded together."""
_BATCH_BYTES = 2**26
"""Greatest size of a batch as Python objects, unless one row alone is larger."""
_A_VALUE = 20
"""Bytes that a value takes when it is unpacked, were it a null a million times over."""
_MOST_NAMED = 8


def parquet_rows(
    source: Path | IO[bytes], name: str, limit: RowLimit, column: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file. A `ClassLabel` of Hugging Face datasets is its own name.

    Args:
        source: the file, or its path.
        name: its name in errors.
        limit: on rows and characters; rows are counted as they are read.
        column: the only one that is read; all by default.

    Raises:
        InputError: the extra `[parquet]` is missing, the file is damaged or no Parquet, has no such
            column or one twice, or exceeds the limit.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"{name}: Parquet needs an extra: {install_extra('parquet')}") from error
    try:
        with pq.ParquetFile(source) as file:
            texts, width = _find_texts_and_width(file.schema)
        with pq.ParquetFile(source, read_dictionary=texts, page_checksum_verification=True) as file:
            _check_columns(file.schema_arrow.names, name, column)
            features = _read_features(file.schema_arrow.metadata)
            # all rows will be read
            if column is None:
                limit.check(name, rows=file.metadata.num_rows)
            for group in range(file.num_row_groups):
                # before rows are unpacked; the group is asked, not its columns: for damaged columns
                # pyarrow's C++ raises an exception that ends the process
                size = file.metadata.row_group(group)
                limit.check(name, characters=size.total_byte_size + _A_VALUE * size.num_rows)
                batches = file.iter_batches(
                    max(1, min(_BATCH, _BATCH_BYTES // width)),
                    row_groups=[group],
                    columns=column and [column],
                )
                for batch in batches:
                    limit.check(
                        name,
                        characters=_A_VALUE * sum(_count_values(array) for array in batch.columns),
                    )  # one row's list may hold millions of nulls
                    for row in _yield_rows(batch, features):
                        limit.count(name, _count_characters(row))
                        yield row
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        NotImplementedError,
        ArithmeticError,
        MemoryError,
    ) as error:
        raise InputError(
            f"{name}: cannot read as Parquet ({one_line(str(error))}); expected an undamaged file"
        ) from error


def _find_texts_and_width(schema: pq.ParquetSchema) -> tuple[list[str], int]:
    """Return the paths of all columns of texts, which are read as dictionaries, and the width of
    the widest other value.
    """
    columns = [schema.column(index) for index in range(len(schema))]
    texts = [
        column.path
        for column in columns
        if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
    ]
    return texts, max((column.length or 8 for column in columns), default=8)


def _read_features(metadata: Mapping[bytes, bytes] | None) -> Any:
    """Return how Hugging Face datasets describe the columns; None if they name no classes."""
    described = (metadata or {}).get(b"huggingface", b"")
    if b'"ClassLabel"' not in described:
        return None
    try:
        return json.loads(described)["info"]["features"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _name_classes(value: Any, feature: Any) -> Any:
    """Return a value with the names of its classes in place of their numbers; -1 is no class."""
    match feature:
        case {"_type": "ClassLabel", "names": [*names]} if isinstance(value, int):
            if not -1 <= value < len(names):
                raise ValueError(f"class {value} of a ClassLabel with {len(names)} names")
            return names[value] if value >= 0 else None
        case {"_type": "ClassLabel"} if isinstance(value, list):
            return [_name_classes(item, feature) for item in value]
        case {"feature": element} if isinstance(value, list):
            return [_name_classes(item, element) for item in value]
        case [element] if isinstance(value, list):
            return [_name_classes(item, element) for item in value]
        case {"feature": {**columns}, "_type": str()} if isinstance(value, dict):
            return _name_classes(
                value, columns
            )  # a list of structures is stored as a structure of lists
        case {**fields} if isinstance(value, dict):
            return {name: _name_classes(item, fields.get(name)) for name, item in value.items()}
    return value


def _check_columns(names: list[str], name: str, column: str | None) -> None:
    refuse_repeated(names, name)
    if column is not None and column not in names:
        columns = ", ".join(clean_for_display(field) for field in names[:_MOST_NAMED])
        ellipsis = ", …" if len(names) > _MOST_NAMED else ""
        raise InputError(f"{name}: has no column {column!r}; found {columns or 'none'}{ellipsis}")


def _count_values(array: Any) -> int:
    """Return how many values an array holds, those within lists and structures counted."""
    # of lists and maps
    if hasattr(array, "values"):
        return len(array) + _count_values(array.values)
    if hasattr(array, "flatten") and array.type.num_fields:
        return sum(map(_count_values, array.flatten()))
    return len(array)


def _yield_rows(batch: Any, features: Any) -> Iterator[dict[str, Any]]:
    """Yield a batch's rows with the names of their classes; each becomes Python objects only
    shortly before, since these repeat values that the batch shares.
    """
    at_once = max(1, min(_BATCH, _BATCH_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, at_once):
        for row in map(_make_plain, batch.slice(start, at_once).to_pylist()):
            yield _name_classes(row, features) if features else row


def _make_plain(value: Any) -> Any:
    """Return a value as JSON would have it: data frames write NaN for null, and 3.0 for 3."""
    if isinstance(value, float):
        return None if value != value else whole_if_it_is(value)  # noqa: PLR0124
    if isinstance(value, dict):
        return {name: _make_plain(inner) for name, inner in value.items()}
    return [_make_plain(inner) for inner in value] if isinstance(value, list) else value


def _count_characters(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_count_characters, value.values()))
    return sum(map(_count_characters, value)) if isinstance(value, list | tuple) else 0


_JSON_STARTS = ("{", "[")
_LINE = re.compile("^.*$", re.MULTILINE)
"""Matched one at a time: a large file is not held twice."""

_QUOTES = "a text with commas or line breaks between double quotes, and quotes within it doubled"
_CSV_FORM = f"expected UTF-8, {_QUOTES}"
_HEADED = "expected a heading over each cell, in the first row that is not blank"


MOST_LISTED = 20
"""Different faults of one file that an error lists."""


class Problem(Exception):
    """One problem in one record: its location, and the valid values.

    Args:
        text: both.
        location: the text's beginning that is another in each record.
    """

    further: Sequence[Problem] = ()
    """The other problems of the record."""

    def __init__(self, text: str, location: str = "") -> None:
        super().__init__(text)
        self.complaint = text.removeprefix(location)


def read_each(
    readers: Mapping[str, Callable[[], Any]], problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Return what each function reads, by name.

    Raises:
        Problem: some failed, or there are `problems` already: the first one has the others.
    """
    values: dict[str, Any] = {}
    found = [*problems]
    for name, read in readers.items():
        try:
            values[name] = read()
        except Problem as problem:
            found += (problem, *problem.further)
    if found:
        found[0].further = found[1:]
        raise found[0]
    return values


_ALIKE = 5
"""Complaints that differ in a quoted value alone have a line each up to here."""


def distinct_problems(problems: Iterable[Problem], most: int | None = None) -> list[str]:
    """Return a line for each complaint: the first record that has it, and the number of others. Of
    complaints that differ in a quoted value alone, five have a line, and the others are counted.

    Args:
        problems: the problems, in the order of the records.
        most: lines at most; a last one counts the complaints that are left out.
    """
    same: dict[str, dict[str, None]] = {}
    for problem in problems:  # one record may have it several times
        same.setdefault(problem.complaint, {})[str(problem)] = None
    kinds: dict[str, list[list[str]]] = {}
    for complaint, found in same.items():
        kinds.setdefault(re.sub("'[^']*'", "", complaint), []).append([*found])
    lines = []
    for alike in kinds.values():
        for first, *repeats in alike[:_ALIKE]:
            more = f" (and in {pluralize(len(repeats), 'more record')})" if repeats else ""
            lines.append(f"{first}{more}")
        if further := sum(map(len, alike[_ALIKE:])):
            lines.append(f"and {pluralize(further, 'more record')} with a fault of this kind")
    left_out = len(lines) - (most or len(lines))
    return lines[:most] + ([f"and {left_out:,} other faults"] if left_out > 0 else [])


def read_records(
    path: Path, shown: str | None = None, limit: RowLimit | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield (location, record) for each record of a file of one of `FILE_FORMATS`, or of a JSON
    file without a suffix. A blank cell of a table is None.

    Args:
        path: the file.
        shown: its name in locations and errors; its path by default.
        limit: on rows and characters; by default `RowLimit()`, for this file.

    Raises:
        InputError: the file cannot be read, is not UTF-8, does not match its suffix, or exceeds the
            limit.
        Problem: one line of a JSONL file is not JSON, or one row of a CSV file has not as many
            cells as the header names.
    """
    name, limit = shown or str(path), limit or RowLimit()
    known = FILE_FORMATS.get(get_suffix(path))
    yield from (known.read if known else _read_unknown)(path, name, limit)


def is_table(path: Path) -> bool:
    """Whether the records of a file are rows of a table: an empty cell is no value."""
    known = FILE_FORMATS.get(get_suffix(path))
    return known is not None and known.is_table


def get_suffix(path: Path) -> str:
    """Return the suffix of a file, with that of gzip: `.csv`, `.csv.gz`."""
    *_, last = ["", *path.suffixes]
    return "".join(path.suffixes[-2:] if last.lower() == ".gz" else [last]).lower()


def get_stem(path: Path) -> str:
    """Return the name of a file without its suffix."""
    return path.name[: len(path.name) - len(get_suffix(path))] or path.stem


def _read_parquet_rows(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(parquet_rows(path, name, limit), start=1):
        yield f"{name}, row {number}", row


def _read_table_rows(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, Any]]:
    for location, cells in read_table(path, name, limit):
        yield location, {field: cell or None for field, cell in cells.items()}


def _read_json_rows(
    path: Path, name: str, limit: RowLimit, *, lines: bool
) -> Iterator[tuple[str, Any]]:
    return _count_records(
        _yield_json_records(_read_text(path, name, limit), name, lines), name, limit
    )


def _read_unknown(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, Any]]:
    """Yield the records of a file with another suffix, if it holds JSON."""
    suffix = get_suffix(path)
    if suffix in _SPREADSHEETS:
        raise InputError(f"{name}: is a {suffix} file; expected {LISTED} (save it as .xlsx)")
    text = _read_text(path, name, limit)
    start = text.lstrip()[:1]
    if start and start not in _JSON_STARTS:
        what = f"a {clean_for_display(suffix)} file" if suffix else "a file without a suffix"
        raise InputError(
            f"{name}: is {what}; expected {LISTED} (save a spreadsheet as CSV in UTF-8)"
        )
    return _count_records(_yield_json_records(text, name, lines=False), name, limit)


def _count_records(
    records: Iterable[tuple[str, Any]], name: str, limit: RowLimit
) -> Iterator[tuple[str, Any]]:
    for record in records:
        limit.count(name)
        yield record


class FileFormat(NamedTuple):
    """A format of files of records."""

    read: Callable[[Path, str, RowLimit], Iterator[tuple[str, Any]]]
    """Yields (location, record) of a file with its name in messages, within a limit."""
    is_table: bool = False
    """Whether its records are rows with the same columns."""


FILE_FORMATS = {
    ".jsonl": FileFormat(partial(_read_json_rows, lines=True)),
    ".json": FileFormat(partial(_read_json_rows, lines=False)),
    ".parquet": FileFormat(_read_parquet_rows, is_table=True),
    ".csv": FileFormat(_read_table_rows, is_table=True),
    ".xlsx": FileFormat(_read_table_rows, is_table=True),
}
"""The formats by the suffix of their files."""
LISTED = f"{', '.join([*FILE_FORMATS][:-1])} or {[*FILE_FORMATS][-1]}"
"""The suffixes, for a message; without those of gzip."""
FILE_FORMATS |= {f"{suffix}.gz": FILE_FORMATS[suffix] for suffix in (".jsonl", ".json", ".csv")}
SPREADSHEET_SUFFIXES = (".csv", ".csv.gz", ".xlsx")
"""Suffixes of tables whose cells a spreadsheet program may take for formulas."""
_SPREADSHEETS = (".xls", ".xlsm", ".xlsb", ".ods", ".numbers")


def _yield_json_records(text: str, name: str, lines: bool) -> Iterator[tuple[str, Any]]:
    if text.strip() and (not lines or text.lstrip().startswith("[")):
        try:
            value = _parse_json(text)
        except Problem as problem:
            if not _looks_like_lines(text):
                raise InputError(f"{name}: {problem}") from problem
        else:
            yield from (
                ((f"{name}, item {n}", item) for n, item in enumerate(value, start=1))
                if isinstance(value, list)
                else [(name, value)]
            )
            return
    for number, line in enumerate(_LINE.finditer(text), start=1):
        if line[0].strip():
            try:
                yield f"{name}:{number}", _parse_json(line[0])
            except Problem as problem:
                raise Problem(f"{name}:{number}: {problem}") from problem


def read_table(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (location, cells by column) for each row that is not blank, of an Excel workbook or a
    CSV file. In CSV, cells are separated by commas, semicolons or tabs: by that which gives the
    header most columns, or which a first line `sep=;` names. Line ends are LF, CRLF or CR, and
    nothing else is one.

    The header is the first row that is not blank. Cells behind its last heading have to be blank. A
    column without a heading before that is left out if it is blank; otherwise its name is its
    number.

    Raises:
        InputError: it cannot be read, is not UTF-8, has a column twice or a quote out of place, or
            holds more than the limit.
        Problem: a row of CSV has not as many cells as the header.
    """
    workbook = get_suffix(path) == ".xlsx"
    form = _HEADED if workbook else f"{_HEADED}, and {_QUOTES}"
    named = ""
    rows = workbook_rows(path, name, limit) if workbook else _read_csv_rows(path, name, limit)
    header: list[str] = []
    for location, row in rows:
        if not "".join(row).strip():
            continue
        if not header:
            while not row[-1].strip():
                row.pop()
            header = [cell.strip() or f"column {number}" for number, cell in _number_cells(row)]
            place = location.removeprefix(name).replace(":", ", line ").removeprefix(", ")
            named = f"{len(header)} ({place}: {clean_for_display(', '.join(header))!r})"
            refuse_repeated(header, name)
            nameless = {number for number, cell in _number_cells(row) if not cell.strip()}
            continue
        limit.count(name, sum(map(len, row)))
        blank = [""] * (len(header) - len(row)) if workbook else []
        yield location, _name_cells(row + blank, header, nameless, location, f"{named}; {form}")


def _read_csv_rows(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, list[str]]]:
    text = _read_text(path, name, limit)
    if "\0" in text:
        raise InputError(
            f"{name}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: holds a NUL character;"
            f" {_CSV_FORM}"
        )
    csv.field_size_limit(_LONGEST_CELL)
    first, separator = _find_separator(text)
    rows = csv.reader(io.StringIO(text[first:], newline=""), strict=True, delimiter=separator)
    skipped = text[:first].count("\n") or int(first > 0)
    line = 1 + skipped  # on which a row begins
    try:
        for row in rows:
            location = f"{name}:{line}"
            line = rows.line_num + 1 + skipped
            yield location, row
    except csv.Error as error:
        raise InputError(
            f"{name}:{line}: cannot read as CSV from here ({error}); {_CSV_FORM}"
        ) from error


_WHOLE = re.compile(r"\s*(-?[0-9]{1,9})(?:\.0+)?\s*")


def whole_number(cell: object) -> int | None:
    """Return the whole number that a cell of a table holds; None if it holds none. Data frames and
    spreadsheet programs write 3 as 3.0 if another cell of its column is empty. Digits of other
    scripts make no number.
    """
    match = _WHOLE.fullmatch(str(cell))
    return int(match[1]) if match else None


def _name_cells(
    row: list[str], header: list[str], nameless: set[int], location: str, expected: str
) -> dict[str, str]:
    behind = row[len(header) :]
    if len(row) < len(header) or "".join(behind).strip():
        cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
        raise Problem(f"{location}: has {cells}, and the header names {expected}", location)
    return {
        column: cell
        for (number, cell), column in zip(_number_cells(row), header, strict=False)
        if number not in nameless or cell.strip()
    }


def _number_cells(row: list[str]) -> Iterator[tuple[int, str]]:
    return enumerate(row, start=1)


_PART = 2**20
"""Bytes that are unpacked at once."""
_LONGEST_CELL = 2**31 - 1
"""Characters; Python's own limit is 131,072, and responses are longer."""
_SEPARATORS = ",;\t"
_NAMED_SEPARATOR = re.compile(r'"?sep=(?P<mark>[^\w\s"]|\t)"?[,;\t]*(?:\r\n?|\n|$)', re.IGNORECASE)
"""The first line by which a table tells Excel its separator."""


def _find_separator(text: str) -> tuple[int, str]:
    """Return where a table begins, and its separator."""
    if (named := _NAMED_SEPARATOR.match(text)) is not None:
        return named.end(), named["mark"]
    first = re.search(r"[^\s,;]", text)  # blank rows may come before the header
    begins = text.rfind("\n", 0, first.start()) + 1 if first else 0

    def columns(separator: str) -> int:
        rows = csv.reader(io.StringIO(text[begins:], newline=""), delimiter=separator)
        try:
            return len(next(rows, []))
        except csv.Error:
            return 0

    return 0, max(_SEPARATORS, key=columns)


def _looks_like_lines(text: str) -> bool:
    first, *lines_below = text.strip().split("\n", 1)
    try:
        return bool(lines_below) and isinstance(_parse_json(first), dict | list)
    except Problem:
        return False


def _parse_json(text: str) -> Any:
    """Read JSON, or raise the Problem that it has."""
    try:
        return any_json(text, of_frames=True)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        raise Problem(
            f"not valid JSON: {error.msg}, {line}column {error.colno}"
            + ("; it looks cut off" if cut else "")
        ) from error
    except ValueError as error:
        raise Problem(f"not valid JSON: {error}") from error


def _read_text(path: Path, name: str, limit: RowLimit) -> str:
    # a path that cannot be inspected cannot be read either; the error comes below
    with contextlib.suppress(OSError):
        limit.check(name, characters=path.stat().st_size)
    raw = read_bytes(path, name)
    return as_text(_unpack(raw, name, limit) if path.suffix.lower() == ".gz" else raw, name)


def _unpack(raw: bytes, name: str, limit: RowLimit) -> bytes:
    """Unpack gzip, and no more of it than may be read.

    Raises:
        InputError: it is cut off, damaged or no gzip, or holds more than the limit.
    """
    unpacked = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            while part := file.read(_PART):
                unpacked.write(part)
                limit.check(name, characters=unpacked.tell())
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(
            f"{name}: cannot unpack ({clean_for_display(str(error))}); expected a whole gzip file,"
            " or a name without .gz"
        ) from error
    return unpacked.getvalue()
