"""Result files of other evaluation tools, as the records of prompts and responses that `import`
reads: promptfoo's, and the samples of lm-evaluation-harness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opensafeintent.errors import InputError
from opensafeintent.files import any_json, read_text
from opensafeintent.promptsets.loading import Record

Located = tuple[str, Any]
"""A record with its location."""

_SAMPLES = re.compile(r"samples_.+_(\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")


def records_of_tool(records: Sequence[Located], path: Path) -> list[Located] | None:
    """Return a file's records as those of `import`: `model`, `prompt`, `response`, `stop_reason`,
    `missing`; and `id` and `variant` if the user's own variables name both. None if it is no file
    of such a tool.

    A response without text is missing: `failed` if the tool reports an error, else `no_answer`.

    Raises:
        Problem: a record is not of the tool's form.
    """
    first = records[0][1] if records and isinstance(records[0][1], dict) else {}
    if isinstance(first.get("results"), dict):
        inner = Record(first["results"], f"{path}, field results")
        rows = inner.data.get("results")
        if not isinstance(rows, list):
            inner.fail("results", "expected a list, as promptfoo 0.100 or later writes it")
        return [
            _promptfoo(Record(row, f"{path}, result {n}")) for n, row in enumerate(rows, start=1)
        ]
    if "promptIdx" in first:  # one result a line
        return [_promptfoo(Record(row, location)) for location, row in records]
    if "resps" in first and "arguments" in first:
        model = _lm_eval_model(path)
        filters = {row.get("filter") for _, row in records[:1]}  # each repeats the same responses
        return [
            record
            for location, row in records
            if not isinstance(row, dict) or row.get("filter") in filters
            for record in _lm_eval(Record(row, location), model)
        ]
    return None


def _promptfoo(row: Record) -> Located:
    provider = row.data.get("provider")
    named = Record(provider if isinstance(provider, dict) else {"id": provider}, row.location)
    response = row.data.get("response") or {}
    given = Record(response, f"{row.location}, field response")
    record = {
        "model": named.optional_text("label") or named.text("id"),
        "prompt": _prompt(row.record("prompt").text("raw")),
        **_place(row.data.get("vars")),
    }
    stop = given.optional_text("finishReason") or ""
    failed = row.data.get("failureReason") == 2 or "error" in given
    return row.location, record | _answer(given.data.get("output"), stop, failed=failed)


def _lm_eval(row: Record, model: str) -> Iterator[Located]:
    """Yield a record for each repeat of one sample."""
    arguments = row.record("arguments").record("gen_args_0").data.get("arg_0")
    if isinstance(arguments, list) and len(arguments) == 1:
        (arguments,) = arguments
    prompt = _prompt(row.check_text("arguments", arguments))
    responses = row.data["resps"]
    while isinstance(responses, list) and responses and isinstance(responses[0], list):
        responses = [each for some in responses for each in some]
    if not isinstance(responses, list) or not all(isinstance(text, str) for text in responses):
        row.fail("resps", "expected texts, as tasks of the type generate_until have them")
    for text in responses:
        record = {"model": model, "prompt": prompt, **_place(row.data.get("doc"))}
        yield row.location, record | _answer(text, "", failed=False)


def _lm_eval_model(path: Path) -> str:
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


def _prompt(text: str) -> str:
    """Return the prompt of a request; of a chat with one message, which both tools keep as JSON,
    its text.
    """
    try:
        chat = json.loads(text)
    except (ValueError, RecursionError):
        return text
    match chat:
        case [{"role": "user", "content": str(content)}]:
            return content
    return text


def _place(variables: object) -> dict[str, str]:
    """Return set and variant, if a user's own variables name both."""
    match variables:
        case {"id": str(set_id), "variant": str(variant)}:
            return {"id": set_id, "variant": variant}
    return {}


def _answer(output: object, stop: str, *, failed: bool) -> dict[str, Any]:
    if isinstance(output, str) and (output.strip() or stop) and not failed:
        return {"response": output, "stop_reason": stop or "stop"}
    return {"missing": ["response:failed" if failed else "response:no_answer"]}
