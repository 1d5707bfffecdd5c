"""Read the rows of a Parquet file a few at a time: however often a text is repeated, it is in memory once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.limits import RowLimit

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["parquet_rows"]

_BATCH = 1024
"""Rows that are decoded together."""
_BATCH_BYTES = 2**26
"""What a batch of them may come to as Python objects, where one row alone is not more."""
_A_VALUE = 20
"""Bytes that a value takes when it is unpacked, were it a null a million times over."""
_MOST_NAMED = 8


def parquet_rows(source: Path | IO[bytes], name: str, limit: RowLimit, column: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file.

    Args:
        source: the file, or its path.
        name: what errors call it.
        limit: what may be read; rows are counted as they are read.
        column: the only one that is read; all by default.

    Raises:
        InputError: the extra `[parquet]` is missing, the file is damaged or no Parquet, has no such column or one twice, or
            holds more than the limit.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f'{name}: Parquet needs an extra: pip install "opensafeintent[parquet]"') from error
    damage = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, NotImplementedError, ArithmeticError, MemoryError)
    try:
        with pq.ParquetFile(source) as file:
            texts, width = _texts_and_width(file.schema)
        with pq.ParquetFile(source, read_dictionary=texts, page_checksum_verification=True) as file:
            _check_columns(file.schema_arrow.names, name, column)
            if column is None:  # all rows will be read
                limit.check(name, rows=file.metadata.num_rows)
            for group in range(file.num_row_groups):
                _check_group(file.metadata.row_group(group), name, limit)
                batches = file.iter_batches(
                    max(1, min(_BATCH, _BATCH_BYTES // width)), row_groups=[group], columns=column and [column]
                )
                for batch in batches:
                    values = sum(_values(array) for array in batch.columns)
                    limit.check(name, characters=_A_VALUE * values)  # one row's list may hold millions of nulls
                    for row in _few_at_a_time(batch):
                        limit.count(name, _characters(row))
                        yield row
    except damage as error:
        raise InputError(
            f"{name}: cannot read as Parquet ({one_line(str(error), 150)}); expected an undamaged file"
        ) from error


def _texts_and_width(schema: pq.ParquetSchema) -> tuple[list[str], int]:
    """Return the paths of all columns of texts, which are read as dictionaries, and the width of the widest other value."""
    columns = [schema.column(place) for place in range(len(schema))]
    texts = [one.path for one in columns if one.physical_type == "BYTE_ARRAY" and one.logical_type.type != "DECIMAL"]
    return texts, max((one.length or 8 for one in columns), default=8)


def _check_columns(names: list[str], name: str, column: str | None) -> None:
    twice = next((field for field in names if names.count(field) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InputError(f"{name}: the column {one_line(twice, 60)!r} is there twice; expected each once")
    if column is not None and column not in names:
        found = ", ".join(one_line(field, 40) for field in names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
        raise InputError(f"{name}: has no column {column!r}; found {found or 'none'}")


def _check_group(group: Any, name: str, limit: RowLimit) -> None:
    """Refuse rows that unpack to more than may be read, before they are unpacked.

    The group is asked, not its columns: of damaged ones pyarrow's C++ raises what ends the process.
    """
    limit.check(name, characters=group.total_byte_size + _A_VALUE * group.num_rows)


def _values(array: Any) -> int:
    """Return how many values an array holds, those within lists and structures counted."""
    if hasattr(array, "values"):  # of lists and maps
        return len(array) + _values(array.values)
    if hasattr(array, "flatten") and array.type.num_fields:
        return sum(map(_values, array.flatten()))
    return len(array)


def _few_at_a_time(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield a batch's rows; each is made of Python objects only shortly before, since those repeat what the batch shares."""
    at_once = max(1, min(_BATCH, _BATCH_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, at_once):
        yield from batch.slice(start, at_once).to_pylist()


def _characters(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list | tuple) else 0
