"""Files of samples of lm-evaluation-harness."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from opensafeintent.errors import InputError
from opensafeintent.files import any_json, read_text
from opensafeintent.imports.content import (
    FileContent,
    LocatedRecord,
    prompt_text,
    read_each_model,
    read_named_place,
    response_fields,
)
from opensafeintent.promptsets.fields import Record, read_each_record
from opensafeintent.taxonomy import Taxonomy

_SAMPLES = re.compile(r"samples_.+_(\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl(?:\.gz)?")


def recognises(records: Sequence[LocatedRecord]) -> bool:
    """Tell whether records are samples of the harness."""
    first = records[0][1]
    return isinstance(first, dict) and "resps" in first and "arguments" in first


def read(records: Sequence[LocatedRecord], path: Path, _: Taxonomy) -> list[FileContent]:
    """Read a file of samples; each repeat of a sample is an epoch.

    Raises:
        InputError: records are not of the harness's form, or the results beside the file cannot be
            read.
    """
    model = _read_model(path)
    first_filters: dict[tuple[str | None, ...], object] = {}

    def read_row(row: Record) -> list[LocatedRecord]:
        prompt, responses = _read_sample(row)
        # each filter repeats the same responses
        used_filter = row.data.get("filter")
        if first_filters.setdefault((prompt, *responses), used_filter) != used_filter:
            return []
        named = {"model": model, "prompt": prompt, **read_named_place(row.data.get("doc"))}
        return [(row.location, named | response_fields(text)) for text in responses]

    lines = chain.from_iterable(read_each_record(records, read_row))
    return read_each_model(lines, path, headings={"prompt": "arguments"})


def _read_sample(row: Record) -> tuple[str, list[str | None]]:
    """Return the prompt of one sample, and its response in each repeat; None if it has none."""
    arguments = row.record("arguments").record("gen_args_0").data.get("arg_0")
    if isinstance(arguments, list) and len(arguments) == 1:
        (arguments,) = arguments
    prompt = prompt_text(row.check_text("arguments", arguments))
    if "resps" not in row:
        row.fail_absent("resps", "texts")
    responses = row.data["resps"]
    while isinstance(responses, list) and responses and isinstance(responses[0], list):
        responses = list(chain.from_iterable(responses))
    if not isinstance(responses, list) or not all(
        isinstance(text, str | None) for text in responses
    ):
        row.fail("resps", "expected texts, as tasks of the type generate_until have them")
    return prompt, responses


def _read_model(path: Path) -> str:
    """Return the model that the results beside a file of samples name; empty if there are none."""
    match = _SAMPLES.fullmatch(path.name)
    results = path.with_name(f"results_{match[1]}.json") if match else None
    if results is None or not results.is_file():
        return ""
    try:
        data = any_json(read_text(results, str(results)))
    except ValueError as error:
        raise InputError(f"{results}: not valid JSON: {error}") from error
    name = data.get("model_name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else ""
