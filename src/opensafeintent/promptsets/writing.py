"""Write prompt-sets: our JSONL, and Parquet with the extra `[parquet]`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING

from opensafeintent.errors import InputError
from opensafeintent.files import written_beside
from opensafeintent.promptsets.record import Dataset

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["prompt_set_table", "write_dataset"]


def write_dataset(dataset: Dataset, path: Path) -> None:
    """Write a dataset to `path`, whole or not at all; its suffix names the format: `.jsonl` or `.parquet`.

    Raises:
        InputError: another suffix, a missing extra, or a place that cannot be written.
    """
    writers = {".jsonl": _write_jsonl, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise InputError(f"{path}: cannot tell the format; valid suffixes: {', '.join(writers)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}") from error
    with written_beside(path) as file:
        writers[path.suffix](dataset, file)


def _write_jsonl(dataset: Dataset, file: IO[bytes]) -> None:
    for prompt_set in dataset.prompt_sets:
        file.write(json.dumps(prompt_set.to_json(), ensure_ascii=False).encode() + b"\n")


def _write_parquet(dataset: Dataset, file: IO[bytes]) -> None:
    table = prompt_set_table(dataset)
    import pyarrow.parquet as pq

    pq.write_table(table, file)


def prompt_set_table(dataset: Dataset) -> pa.Table:
    """Return a dataset as an Arrow table in our format, a row a prompt-set.

    Raises:
        InputError: the extra `[parquet]` is missing.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise InputError('Parquet needs an extra: pip install "opensafeintent[parquet]"') from error
    text = pa.string()
    schema = pa.schema(
        {
            "id": text,
            "harm_domain": text,
            "task_type": text,
            "underlying_task": text,
            "prompts": pa.struct({"benign": text, "dual_use": text, "malicious": text}),
            "dual_use_paraphrases": pa.list_(text),
            "dual_use_benign_use": text,
            "dual_use_misuse_risk": text,
            "source": text,
            "language": text,
        }
    )
    return pa.Table.from_pylist([item.to_json() for item in dataset.prompt_sets], schema=schema)
