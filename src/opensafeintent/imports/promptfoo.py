"""Result files of promptfoo."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from opensafeintent.imports.content import (
    FileContent,
    LocatedRecord,
    make_missing_fields,
    prompt_text,
    read_each_model,
    read_named_place,
    response_fields,
)
from opensafeintent.promptsets.fields import Record, read_each_record
from opensafeintent.taxonomy import Taxonomy


def recognises(records: Sequence[LocatedRecord]) -> bool:
    """Tell whether records are of promptfoo: whole result files, or one result a line."""
    first = records[0][1]
    return isinstance(first, dict) and (
        isinstance(first.get("results"), dict) or "promptIdx" in first
    )


def read(records: Sequence[LocatedRecord], path: Path, _: Taxonomy) -> list[FileContent]:
    """Read the results; later results of one prompt are later epochs.

    Raises:
        InputError: records are not of promptfoo's form.
    """
    rows = [*chain.from_iterable(read_each_record(records, _list_results))]
    # of version 2 with one provider, no row names one
    named = any(isinstance(row, dict) and row.get("provider") is not None for _, row in rows)

    def read_row(row: Record) -> LocatedRecord:
        return row.location, _result(row, _provider(row) if named else "")

    lines = read_each_record(rows, read_row)
    return read_each_model(lines, path, headings={"model": "provider"})


def _list_results(record: Record) -> list[LocatedRecord]:
    """Return the results of a result file, or the one that a line is."""
    if not isinstance(record.data.get("results"), dict):
        return [(record.location, record.data)]
    return record.record("results").located("results", ", as promptfoo 0.100 or later writes it")


def _provider(row: Record) -> str:
    provider = row.data.get("provider")
    named = Record(provider if isinstance(provider, dict) else {"id": provider}, row.location)
    return named.optional_text("label") or named.text("id")


def _result(row: Record, model: str) -> dict[str, Any]:
    response = Record(row.data.get("response") or {}, f"{row.location}, field response")
    prompt = prompt_text(row.record("prompt").text("raw"))
    sent = _read_sent(row.data, response.data)
    record = {"model": model, "prompt": prompt, **read_named_place(row.data.get("vars"))}
    if sent not in ("", prompt):
        record["sent"] = sent
    stop = response.optional_text("finishReason") or ""
    if row.data.get("failureReason") == 2 or "error" in response:
        return record | make_missing_fields("failed")
    output = response.data.get("output")
    reasoned = bool(response.data.get("reasoning")) or _counts_reasoning(response.data)
    if isinstance(output, str):
        try:
            output, thought = _cut_thought(output)
        except ValueError:
            return record | make_missing_fields("reasoning_mixed")
        reasoned = reasoned or thought
    return record | response_fields(output, provider_stop=stop, reasoned=reasoned)


def _read_sent(row: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    """Return the text that a strategy of a red team sent in place of the prompt; "" if none is
    reported.
    """
    holders = (response.get("metadata"), row.get("metadata"))
    finals = (holder.get("redteamFinalPrompt") for holder in holders if isinstance(holder, Mapping))
    sent = next(filter(None, (response.get("prompt"), *finals)), "")
    return prompt_text(sent if isinstance(sent, str) else json.dumps(sent))


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


def _cut_thought(output: str) -> tuple[str, bool]:
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
