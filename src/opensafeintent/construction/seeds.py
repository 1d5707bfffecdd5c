"""Read the seeds of a build: unsafe prompts of a file or of a dataset on the hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from opensafeintent.construction.items import Rejection, Seed, StageResult
from opensafeintent.errors import InputError
from opensafeintent.files import RowLimit
from opensafeintent.hostile import clean_for_display
from opensafeintent.promptsets.fields import LONGEST_PROMPT, Record, fields_found
from opensafeintent.promptsets.reading import (
    FILE_FORMATS,
    LISTED,
    Problem,
    get_suffix,
    read_records,
)
from opensafeintent.promptsets.sources import stream_rows

_COLUMN = "prompt"


def read_seeds(name: str, limit: int | None = None) -> StageResult[Seed]:
    """Read seed prompts; empty, overlong and repeated ones are rejected, each with its location.

    Args:
        name: a path in one of `FILE_FORMATS`, or `hf:owner/name[@revision]` (extra `[hf]`).
        limit: rows to read at most.

    Raises:
        InputError: the file or dataset cannot be read, has no `prompt` column, a row breaks its
            format, its prompt is no text, or there are more than `MOST_ROWS`.
    """
    path, allowed = Path(name), RowLimit()
    if name.startswith("hf:"):
        source = name.removeprefix("hf:")
        rows = _stream_hub_rows(name, allowed)
    elif get_suffix(path) in FILE_FORMATS:
        source, rows = path.name, read_records(path, name, allowed)
    else:
        raise InputError(
            f"{name}: cannot tell the format of the seeds; expected {LISTED}, or"
            " hf:owner/name[@revision]"
        )
    try:
        result = _sort_seeds(
            _read_seed(name, source, location, row) for location, row in islice(rows, limit)
        )
    except Problem as problem:
        raise InputError(str(problem)) from problem
    if not result.count_in:
        raise InputError(
            f"{name}: holds no seeds; to build without seeds leave them out and give --per-cell"
        )
    return result


def _stream_hub_rows(name: str, limit: RowLimit) -> Iterator[tuple[str, dict[str, Any]]]:
    prompts = stream_rows(name, _COLUMN, split="train", limit=limit)
    for number, prompt in enumerate(prompts, start=1):
        yield f"{name}, row {number}", {_COLUMN: prompt}


def _read_seed(name: str, source: str, location: str, row: Any) -> Seed:
    record = Record(row, location)
    record.check_names([_COLUMN])
    if _COLUMN not in record.data:
        record.fail(_COLUMN, f"missing; expected a text{fields_found(record.data)}")
    text = record.data[_COLUMN] or ""
    if not isinstance(text, str):
        record.fail(_COLUMN, f"is {clean_for_display(str(text))}; expected a text")
    within = location.removeprefix(name)
    line = f"line {within[1:]}" if within.startswith(":") else within.removeprefix(", ")
    return Seed(prompt=record.check_unicode(_COLUMN, text.strip()), source=source, place=line)


def _sort_seeds(seeds: Iterable[Seed]) -> StageResult[Seed]:
    kept: dict[str, Seed] = {}
    rejected: list[Rejection] = []
    for seed in seeds:
        folded = " ".join(seed.prompt.split()).casefold()
        if not folded:
            rejected.append(Rejection.of(seed, "empty"))
        elif len(seed.prompt) > LONGEST_PROMPT:
            rejected.append(Rejection.of(seed, "too_long"))
        elif folded in kept:
            rejected.append(Rejection.of(seed, "repeated", duplicate=kept[folded].place))
        else:
            kept[folded] = seed
    return StageResult(stage="seeds", kept=tuple(kept.values()), rejected=tuple(rejected))
