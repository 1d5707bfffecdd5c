"""Responses that were made elsewhere: our JSONL of responses, one a line, with or without grades."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.promptsets.limits import RowLimit
from opensafeintent.promptsets.loading import Problem, Record, read_records
from opensafeintent.taxonomy import CORE_VARIANTS, MODES, STRATEGIES, Mode, Strategy, paraphrase_variant

__all__ = ["RecordedResponse", "parse_recorded", "read_recorded", "recorded_responses"]

_PARAPHRASE = re.compile(r"dual_use_paraphrase_[1-9]\d*")


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a target wrote for one prompt, and the grades that came with it."""

    set_id: str
    variant: str
    epoch: int = 1
    response: str | None = None
    stop_reason: str = "stop"
    helpfulness: int | None = None
    harm_severity: int | None = None
    mode: Mode | None = None
    strategy: Strategy | None = None
    missing: tuple[str, ...] = ()
    """Why a grade that was tried for is not there, as `what:reason`."""
    by_judge: dict[str, tuple[int | None, int | None]] = {}
    """(helpfulness, harm severity) of each judge, where it is known who they were."""


def check_variant(record: Record, field: str) -> str:
    """Return a variant's name, or raise the Problem that it has."""
    variant = record.text(field)
    if variant not in CORE_VARIANTS and not _PARAPHRASE.fullmatch(variant):
        names = [*CORE_VARIANTS, *(paraphrase_variant(n) for n in range(1, 5))]
        record.fail(field, f"unknown variant {variant!r}; {nearest(variant, names)}")
    return variant


def check_score(record: Record, field: str, value: Any, low: int, high: int) -> int:
    """Return a whole number within its range, or raise the Problem that it has."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        record.fail(field, f"is {short(value)}; expected a whole number from {low} to {high}")
    return value


def short(value: Any) -> str:
    """Return what a value is, in at most 60 characters."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"


def check_response(record: Record, field: str, value: Any) -> str:
    """Return a response, which may be empty, or raise the Problem that it has."""
    if not isinstance(value, str):
        record.fail(field, f"is {short(value)}; expected a text")
    return record.check_unicode(field, value)


def parse_recorded(record: Record) -> RecordedResponse:
    """Turn one line into a recorded response, or raise the Problem that it has."""
    score = {
        field: check_score(record, field, record.data[field], low, high) if field in record else None
        for field, low, high in (("helpfulness", 1, 4), ("harm_severity", 0, 3))
    }
    response = record.data.get("response")
    if response is not None:
        check_response(record, "response", response)
    if response is None and None in score.values():
        record.fail("response", "missing; a line has a response, or both grades, or all")
    stop_reason = record.optional_text("stop_reason") or "stop"
    mode = record.choice("mode", MODES) if "mode" in record else None
    strategy = record.choice("strategy", STRATEGIES) if "strategy" in record else None
    return RecordedResponse(
        set_id=record.text("id"),
        variant=check_variant(record, "variant"),
        epoch=check_score(record, "epoch", record.data.get("epoch", 1), 0, 1_000_000),
        response=response,
        stop_reason=stop_reason,
        helpfulness=score["helpfulness"],
        harm_severity=score["harm_severity"],
        mode=mode,  # type: ignore[arg-type]
        strategy=strategy,  # type: ignore[arg-type]
    )


def read_recorded(path: Path) -> list[RecordedResponse]:
    """Read a file of responses.

    Raises:
        InputError: it cannot be read, or a line is not a response, or a response is there twice.
    """
    return recorded_responses(read_records(path, limit=RowLimit(None)), path)


def recorded_responses(records: Iterable[tuple[str, object]], path: Path) -> list[RecordedResponse]:
    """Turn the records of a file, each with its place, into responses.

    Raises:
        InputError: a record is not a response, or a response is there twice.
    """
    responses: list[RecordedResponse] = []
    seen: dict[tuple[str, str, int], str] = {}
    try:
        for place, data in records:
            response = parse_recorded(Record(data, place))
            key = (response.set_id, response.variant, response.epoch)
            if key in seen:
                raise InputError(
                    f"{place}: {response.set_id}, {response.variant}, epoch {response.epoch} is there already, at {seen[key]}"
                )
            seen[key] = place
            responses.append(response)
    except Problem as problem:
        raise InputError(str(problem)) from problem
    if not responses:
        raise InputError(f"{path}: no responses in it")
    return responses
