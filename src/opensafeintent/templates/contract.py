"""What a reply has to look like, and how it is read: strictly, or not at all."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import msgspec

__all__ = ["Contract", "IntegerContract", "JsonContract", "ParseRule", "parse_reply"]

ParseRule = Literal["strict", "paper"]
"""`strict` reads a bare integer or the one JSON object; `paper` also reads the first integer of a longer reply."""


class IntegerContract(msgspec.Struct, frozen=True, tag_field="kind", tag="integer"):
    """One bare integer."""

    low: int
    high: int
    text: str

    @property
    def phrase(self) -> str:
        """What the closing lines of a request always hold."""
        return f"one integer from {self.low} to {self.high}"


class JsonContract(msgspec.Struct, frozen=True, tag_field="kind", tag="json"):
    """One JSON object with a key whose value is one of a few."""

    key: str
    values: tuple[str, ...]
    text: str

    @property
    def phrase(self) -> str:
        """What the closing lines of a request always hold."""
        return f'"{self.key}"'


Contract = IntegerContract | JsonContract

_FENCED = re.compile(r"```[A-Za-z]*\s*\n?(.*?)\s*```", re.DOTALL)
_INTEGER = re.compile(r"-?\d+", re.ASCII)


def parse_reply(contract: Contract, reply: str, rule: ParseRule = "strict") -> int | str | None:
    """Return the grade that a reply gives, or None when it does not keep to the contract.

    White space and one code fence around the reply are allowed. `paper` takes the first integer of a reply, as the authors'
    scripts do; a first integer out of range is none.
    """
    text = reply.strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1].strip()
    if isinstance(contract, JsonContract):
        return _value(contract, text)
    match = _INTEGER.search(text) if rule == "paper" else re.fullmatch(r"\d", text, re.ASCII)
    if match is None or not contract.low <= int(match[0]) <= contract.high:
        return None
    return int(match[0])


def _value(contract: JsonContract, text: str) -> str | None:
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError:
        return None
    found = value.get(contract.key) if isinstance(value, dict) else None
    return found if isinstance(found, str) and found in contract.values else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError("a key stands twice")
    return dict(pairs)
