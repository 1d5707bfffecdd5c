"""Unsafe prompts to start from: JSONL or CSV with a `prompt` column, or the train split of a
dataset on the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from opensafeintent.construction.records import Reason, Rejection, Seed, StageResult
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.loading import LONGEST_PROMPT
from opensafeintent.promptsets.reading import MOST_ROWS, Problem, RowLimit, read_csv, read_records
from opensafeintent.promptsets.sources import stream_rows

_COLUMN = "prompt"
_SUFFIXES = (".jsonl", ".csv")
_MOST_NAMED = 8


def read_seeds(
    name: str, limit: int | None = None, max_rows: int | None = MOST_ROWS
) -> StageResult[Seed]:
    """Read seed prompts; empty, overlong and repeated ones are rejected, each with its location.

    Args:
        name: a path that ends in .jsonl or .csv, or `hf:owner/name[@revision]` (extra `[hf]`).
        limit: read so many rows at most.
        max_rows: refuse to read more; see `limits.RowLimit`. None sets no limit.

    Raises:
        InputError: the file or dataset cannot be read, has no `prompt` column, a row is not as its
            format wants it, its prompt is no text, or there are more than `max_rows`.
    """
    if name.startswith("hf:"):
        prompts = stream_rows(name, _COLUMN, split="train", limit=RowLimit(max_rows))
        source = name.removeprefix("hf:")
        rows = (
            (f"{source}, row {number}", f"row {number}", row)
            for number, row in enumerate(prompts, start=1)
        )
        return _sorted_out(source, islice(rows, limit))
    path = Path(name)
    if path.suffix not in _SUFFIXES:
        raise InputError(
            f"{name}: cannot tell the format of the seeds; valid: {', '.join(_SUFFIXES)},"
            " hf:owner/name[@revision]"
        )
    try:
        result = _sorted_out(path.name, islice(_rows(path, name, RowLimit(max_rows)), limit))
    except Problem as problem:
        raise InputError(str(problem)) from problem
    if not result.count_in:
        raise InputError(
            f"{name}: holds no seeds; to build without seeds leave them out and give --per-cell"
        )
    return result


def _rows(path: Path, name: str, limit: RowLimit) -> Iterator[tuple[str, str, Any]]:
    """Yield (location, location within the file, prompt) for each row."""
    for location, row in (
        read_csv(path, name, limit) if path.suffix == ".csv" else read_records(path, name, limit)
    ):
        if not isinstance(row, dict) or _COLUMN not in row:
            named = (
                [one_line(field, 40) for field in row][:_MOST_NAMED]
                if isinstance(row, dict)
                else []
            )
            raise InputError(
                f"{location}: has no prompt; expected the field or column prompt, found"
                f" {', '.join(named) or 'none'}"
            )
        within = location.removeprefix(name)
        yield (
            location,
            f"line {within[1:]}" if within.startswith(":") else within.lstrip(", "),
            row[_COLUMN],
        )


def _sorted_out(source: str, rows: Iterable[tuple[str, str, Any]]) -> StageResult[Seed]:
    kept: dict[str, Seed] = {}
    rejected: list[Rejection] = []
    for location, within, prompt in rows:
        seed = Seed(prompt=_text(prompt, location), source=source, place=within)
        folded = " ".join(seed.prompt.split()).casefold()
        reason: Reason | None = None
        if not folded:
            reason = "empty"
        elif len(seed.prompt) > LONGEST_PROMPT:
            reason = "too_long"
        elif folded in kept:
            reason = "repeated"
        if reason:
            twin = kept[folded].place if reason == "repeated" else ""
            rejected.append(Rejection.of(seed, reason, twin=twin))
        else:
            kept[folded] = seed
    return StageResult(stage="seeds", kept=tuple(kept.values()), rejected=tuple(rejected))


def _text(prompt: Any, location: str) -> str:
    if prompt is not None and not isinstance(prompt, str):
        raise InputError(f"{location}: prompt is {one_line(str(prompt), 60)!r}; expected a text")
    text = (prompt or "").strip()
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{location}: prompt holds half of a surrogate pair; expected valid Unicode text"
        ) from error
    return text
