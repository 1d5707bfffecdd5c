"""Result files of other evaluation tools, as the records of prompts and responses that `import`
reads: promptfoo's, and the samples of lm-evaluation-harness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opensafeintent.errors import InputError
from opensafeintent.files import any_json, read_text
from opensafeintent.promptsets.fields import Record

Located = tuple[str, Any]
"""A record with its location."""

_SAMPLES = re.compile(r"samples_.+_(\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")


def records_of_tool(records: Sequence[Located], path: Path) -> list[Located] | None:
    """Return a file's records as those of `import`: `model`, `prompt`, `response`, `stop_reason`,
    `missing`; `id` and `variant` if the user's own variables name both; and `sent`, the text that
    the model got, if the tool reports another than the prompt. None if it is no file of such a
    tool.

    A response without text is missing: `failed` if the tool reports an error, `reasoning_only` if
    the model reasoned, else `no_answer`.

    Raises:
        Problem: a record is not of the tool's form.
    """
    first = records[0][1] if records and isinstance(records[0][1], dict) else {}
    if isinstance(first.get("results"), dict):
        inner = Record(first["results"], f"{path}, field results")
        rows = inner.data.get("results")
        if not isinstance(rows, list):
            inner.fail("results", "expected a list, as promptfoo 0.100 or later writes it")
        return _promptfoo([(f"{path}, result {n}", row) for n, row in enumerate(rows, start=1)])
    if "promptIdx" in first:  # one result a line
        return _promptfoo(records)
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


def _promptfoo(results: Sequence[Located]) -> list[Located]:
    rows = [Record(row, location) for location, row in results]
    named = any("provider" in row for row in rows)  # of version 2 with one provider, no row is
    return [(row.location, _result(row, _provider(row) if named else "")) for row in rows]


def _provider(row: Record) -> str:
    provider = row.data.get("provider")
    named = Record(provider if isinstance(provider, dict) else {"id": provider}, row.location)
    return named.optional_text("label") or named.text("id")


def _result(row: Record, model: str) -> dict[str, Any]:
    given = Record(row.data.get("response") or {}, f"{row.location}, field response")
    prompt = _prompt(row.record("prompt").text("raw"))
    sent = _sent(row.data, given.data)
    record = {"model": model, "prompt": prompt, **_place(row.data.get("vars"))}
    if sent not in ("", prompt):
        record["sent"] = sent
    stop = given.optional_text("finishReason") or ""
    if row.data.get("failureReason") == 2 or "error" in given:
        return record | _missing("failed")
    output = given.data.get("output")
    reasoned = bool(given.data.get("reasoning")) or _counts_reasoning(given.data)
    if isinstance(output, str):
        try:
            output, thought = _without_thought(output)
        except ValueError:
            return record | _missing("reasoning_mixed")
        reasoned = reasoned or thought
    return record | _answer(output, stop, reasoned=reasoned)


def _sent(row: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    """Return the text that a strategy of a red team sent in place of the prompt; "" if none is
    reported.
    """
    holders = (response.get("metadata"), row.get("metadata"))
    finals = (holder.get("redteamFinalPrompt") for holder in holders if isinstance(holder, Mapping))
    sent = next(filter(None, (response.get("prompt"), *finals)), "")
    return _prompt(sent if isinstance(sent, str) else json.dumps(sent))


def _counts_reasoning(response: Mapping[str, Any]) -> bool:
    match response:
        case {"tokenUsage": {"completionDetails": {"reasoning": int(tokens)}}}:
            return tokens > 0
    return False


_SIGNED = re.compile(
    r"(?:(?:Thinking: (?:(?!\nSignature: ).)*\nSignature: [^\s]*|Redacted Thinking: [^\s]*)"
    r"(?:\n\n|\Z))+",
    re.DOTALL,
)
"""What promptfoo writes before an answer of Anthropic's models."""
_THOUGHT = "Thinking: "
"""What it writes before the thought of others; a blank line follows it."""


def _without_thought(output: str) -> tuple[str, bool]:
    """Return an output without the thought that promptfoo writes before it, unless told
    `showThinking: false`; and whether there was one.

    Raises:
        ValueError: nothing shows where the thought ends.
    """
    if (match := _SIGNED.match(output)) is not None:
        return output[match.end() :], True
    if not output.startswith(_THOUGHT):
        return output, False
    _, *parts = output.split("\n\n")
    if len(parts) > 1:
        raise ValueError("the thought may end at any of several blank lines")
    return "".join(parts), True


def _lm_eval(row: Record, model: str) -> Iterator[Located]:
    """Yield a record for each repeat of one sample."""
    arguments = row.record("arguments").record("gen_args_0").data.get("arg_0")
    if isinstance(arguments, list) and len(arguments) == 1:
        (arguments,) = arguments
    prompt = _prompt(row.check_text("arguments", arguments))
    responses = row.data["resps"]
    while isinstance(responses, list) and responses and isinstance(responses[0], list):
        responses = [each for some in responses for each in some]
    if not isinstance(responses, list) or not all(
        isinstance(text, str | None) for text in responses
    ):
        row.fail("resps", "expected texts, as tasks of the type generate_until have them")
    for text in responses:
        record = {"model": model, "prompt": prompt, **_place(row.data.get("doc"))}
        yield row.location, record | _answer(text, "")


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
    its text; of a longer one, its JSON in one form.
    """
    try:
        chat = json.loads(text)
    except (ValueError, RecursionError):
        return text
    match chat:
        case [{"role": "user", "content": str(content)}]:
            return content
        case [{"role": _}, *_]:
            return json.dumps(chat)
    return text


def _place(variables: object) -> dict[str, str]:
    """Return set and variant, if a user's own variables name both."""
    match variables:
        case {"id": str(set_id), "variant": str(variant)}:
            return {"id": set_id, "variant": variant}
    return {}


def _answer(output: object, stop: str, *, reasoned: bool = False) -> dict[str, Any]:
    if isinstance(output, str) and (output.strip() or (stop and not reasoned)):
        return {"response": output, "stop_reason": stop or "stop"}
    return _missing("reasoning_only" if reasoned else "no_answer")


def _missing(reason: str) -> dict[str, Any]:
    return {"missing": [f"response:{reason}"]}
