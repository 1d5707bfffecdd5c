"""Contracts: the forms of a judge's reply, and reading one strictly."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import msgspec

from opensafeintent.files import any_json
from opensafeintent.taxonomy import Answer, ParseRule


class IntegerContract(msgspec.Struct, frozen=True, tag_field="kind", tag="integer"):
    """One integer: bare, or behind its reason as `{"reason": "…", "grade": n}`."""

    low: int
    high: int
    text: str
    reason: bool = False

    @property
    def phrase(self) -> str:
        """Text that the closing lines of a request always contain."""
        return f"one integer from {self.low} to {self.high}"

    @property
    def form(self) -> str:
        """The form in a few words, for an error."""
        return "a JSON object" if self.reason else "one integer"


class JsonContract(msgspec.Struct, frozen=True, tag_field="kind", tag="json"):
    """One JSON object with a key whose value is one of a few."""

    key: str
    values: tuple[str, ...]
    text: str

    @property
    def phrase(self) -> str:
        """Text that the closing lines of a request always contain."""
        return f'"{self.key}"'

    @property
    def form(self) -> str:
        """The form in a few words, for an error."""
        return f'a JSON object such as {{"{self.key}": "{self.values[0]}"}}'


class AnswersContract(msgspec.Struct, frozen=True, tag_field="kind", tag="answers"):
    """One JSON object, `{"answers": {id: "yes" or "no"}}`, for ids that differ by request."""

    text: str

    @property
    def phrase(self) -> str:
        """Text that the closing lines of a request always contain."""
        return '"answers"'

    @property
    def form(self) -> str:
        """The form in a few words, for an error."""
        return 'a JSON object such as {"answers": {"q1": "no"}}'


Contract = IntegerContract | JsonContract | AnswersContract

_FENCE = "```"
_LANGUAGE = re.compile(r"\A\s*(?:json|text|txt|plaintext|markdown|md)\b(?=\s*\S)", re.IGNORECASE)
"""The name of a language on one line with what is in the fence."""


@lru_cache(maxsize=256)  # most replies are one of few digits
def parse_reply(contract: Contract, reply: str, rule: ParseRule = "strict") -> int | str | None:
    """Return the grade that a reply gives, or None when it does not keep to the contract.

    White space and one code fence around the reply are allowed. `paper` takes the first integer of
    a reply, as the authors' scripts do; a first integer out of range is none.
    """
    text = cut_fence(reply.strip())
    assert not isinstance(contract, AnswersContract)  # `parse_answers` reads it
    if isinstance(contract, JsonContract):
        value = _parse_object(text).get(contract.key)
        return value if isinstance(value, str) and value in contract.values else None
    if contract.reason:
        return _parse_reasoned(contract, text)
    match = (
        re.search(r"-?\d+", text, re.ASCII)
        if rule == "paper"
        else re.fullmatch(r"\d", text, re.ASCII)
    )
    grades = {str(grade): grade for grade in range(contract.low, contract.high + 1)}
    if match is None:
        return None
    return grades.get(match[0] if rule == "strict" else match[0].lstrip("0") or "0")


def cut_fence(text: str) -> str:
    """Take off one code fence around a text, if there is one."""
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inside = text[len(_FENCE) : -len(_FENCE)]
    language, newline, text_below = inside.partition("\n")
    if newline and language.strip().isalpha():
        return text_below.strip()
    return _LANGUAGE.sub("", inside).strip()


def _parse_reasoned(contract: IntegerContract, text: str) -> int | None:
    value = _parse_object(text)
    grade, reason = value.get("grade"), value.get("reason")
    # a bool is no grade
    if type(grade) is not int or not contract.low <= grade <= contract.high:
        return None
    return grade if isinstance(reason, str) and reason.strip() else None


def _parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a text; an empty one if the text is none."""
    try:
        value = any_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


_ANSWERS: dict[str, Answer] = {"yes": "yes", "no": "no"}


def has_answers(reply: str) -> bool:
    """Tell whether a reply has the form of answers to questions, whichever of them it answers."""
    return _read_answers(reply) is not None


def parse_answers(reply: str, ids: Collection[str]) -> dict[str, Answer]:
    """Return the answers that a reply gives to questions with these ids. An id that is not there,
    is there twice, or has neither `yes` nor `no` has none; other ids are not read.
    `Yes` is `yes`.

    White space and one code fence around the reply are allowed.
    """
    answers = _read_answers(reply) or _Pairs()
    times = Counter(name for name, _ in answers)
    return {
        name: _ANSWERS[answer.casefold()]
        for name, answer in answers
        if name in ids and times[name] == 1
        if isinstance(answer, str) and answer.casefold() in _ANSWERS
    }


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of a JSON object, in which a key may be there twice."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs)


def _read_answers(reply: str) -> _Pairs | None:
    """Return the object under the key `answers` of a JSON object; None if there is none, or two."""
    try:
        value = _DECODER.decode(cut_fence(reply.strip()))
    except (ValueError, RecursionError):
        return None
    found = (
        [inner for name, inner in value if name == "answers"] if isinstance(value, _Pairs) else []
    )
    return found[0] if len(found) == 1 and isinstance(found[0], _Pairs) else None
