"""Rows of a Parquet file, a few at a time: a text that is repeated is in memory once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import whole_if_it_is
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.limits import RowLimit, refuse_repeated

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
            texts, width = _texts_and_width(file.schema)
        with pq.ParquetFile(source, read_dictionary=texts, page_checksum_verification=True) as file:
            _check_columns(file.schema_arrow.names, name, column)
            features = _features(file.schema_arrow.metadata)
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
                        name, characters=_A_VALUE * sum(_values(array) for array in batch.columns)
                    )  # one row's list may hold millions of nulls
                    for row in _few_at_a_time(batch, features):
                        limit.count(name, _characters(row))
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
            f"{name}: cannot read as Parquet ({one_line(str(error), 150)}); expected an undamaged"
            " file"
        ) from error


def _texts_and_width(schema: pq.ParquetSchema) -> tuple[list[str], int]:
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


def _features(metadata: Mapping[bytes, bytes] | None) -> Any:
    """Return how Hugging Face datasets describe the columns; None if they name no classes."""
    described = (metadata or {}).get(b"huggingface", b"")
    if b'"ClassLabel"' not in described:
        return None
    try:
        return json.loads(described)["info"]["features"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _named(value: Any, feature: Any) -> Any:
    """Return a value with the names of its classes in place of their numbers; -1 is no class."""
    match feature:
        case {"_type": "ClassLabel", "names": [*names]} if isinstance(value, int):
            if not -1 <= value < len(names):
                raise ValueError(f"class {value} of a ClassLabel with {len(names)} names")
            return names[value] if value >= 0 else None
        case {"_type": "ClassLabel"} if isinstance(value, list):
            return [_named(item, feature) for item in value]
        case {"feature": element} if isinstance(value, list):
            return [_named(item, element) for item in value]
        case [element] if isinstance(value, list):
            return [_named(item, element) for item in value]
        case {"feature": {**columns}, "_type": str()} if isinstance(value, dict):
            return _named(value, columns)  # a list of structures is stored as a structure of lists
        case {**fields} if isinstance(value, dict):
            return {name: _named(item, fields.get(name)) for name, item in value.items()}
    return value


def _check_columns(names: list[str], name: str, column: str | None) -> None:
    refuse_repeated(names, name)
    if column is not None and column not in names:
        columns = ", ".join(one_line(field, 40) for field in names[:_MOST_NAMED])
        ellipsis = ", …" if len(names) > _MOST_NAMED else ""
        raise InputError(f"{name}: has no column {column!r}; found {columns or 'none'}{ellipsis}")


def _values(array: Any) -> int:
    """Return how many values an array holds, those within lists and structures counted."""
    # of lists and maps
    if hasattr(array, "values"):
        return len(array) + _values(array.values)
    if hasattr(array, "flatten") and array.type.num_fields:
        return sum(map(_values, array.flatten()))
    return len(array)


def _few_at_a_time(batch: Any, features: Any) -> Iterator[dict[str, Any]]:
    """Yield a batch's rows with the names of their classes; each becomes Python objects only
    shortly before, since these repeat values that the batch shares.
    """
    at_once = max(1, min(_BATCH, _BATCH_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, at_once):
        for row in map(_plain, batch.slice(start, at_once).to_pylist()):
            yield _named(row, features) if features else row


def _plain(value: Any) -> Any:
    """Return a value as JSON would have it: data frames write NaN for null, and 3.0 for 3."""
    if isinstance(value, float):
        return None if value != value else whole_if_it_is(value)  # noqa: PLR0124
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _characters(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list | tuple) else 0
