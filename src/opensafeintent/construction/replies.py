"""The contract of a reply: one JSON object of a type, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from opensafeintent.calls.records import (
    Purpose,
)
from opensafeintent.construction.instructions import InstructionRole
from opensafeintent.errors import nearest
from opensafeintent.hostile import one_line
from opensafeintent.promptsets.fields import LONGEST_PROMPT
from opensafeintent.templates.contracts import without_fence

R = TypeVar("R", bound="Reply")

_SUMMARY_WORDS = (5, 15)
"""Least and most words of a topic summary (paper, section 2.1)."""


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON contract; a reply may hold `declined`: the model's reason for not doing the task."""

    purpose: ClassVar[Purpose]
    """The purpose of the request."""
    instruction: ClassVar[InstructionRole | None] = None
    """The template of the request; None if it has the purpose's name."""
    asked_of: ClassVar[Literal["generator", "judge"]] = "judge"
    filled: ClassVar[tuple[str, ...]] = ()
    """Names of the fields whose texts have to hold something."""

    @property
    def refusal(self) -> str:
        """The model's reason for declining; empty if it did not decline."""
        return getattr(self, "declined", "").strip()

    def texts(self) -> dict[str, str]:
        """Return the texts that have to hold something, by a name for errors."""
        texts: dict[str, str] = {}
        for name in self.filled:
            value = getattr(self, name)
            if isinstance(value, str):
                texts[name] = value
            else:
                texts |= {f"{name}[{n}]": text for n, text in enumerate(value)}
        return texts


def read_json(text: str, kind: type[R]) -> R | str:
    """Read a reply strictly: one JSON object of this kind, white space and one code fence around it
    aside.

    Returns:
        The reply, or its problem.
    """
    inside = without_fence(text.strip())
    try:
        reply = msgspec.json.decode(inside, type=kind)
    except msgspec.ValidationError as error:
        return f"the JSON object is not of the form asked for: {one_line(str(error))}"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "it is not one JSON object and nothing else"
    if reply.refusal:
        return reply
    for name, content in reply.texts().items():
        if not content.strip():
            return f'"{name}" holds no text'
        if len(content) > LONGEST_PROMPT:
            return (
                f'"{name}" has {len(content):,} characters; at most {LONGEST_PROMPT:,} are accepted'
            )
    return reply


def complaint_of_choice(name: str, value: str, valid: tuple[str, ...]) -> str | None:
    """Describe the problem with a label that is none of the valid ones."""
    return (
        None
        if value in valid
        else f'"{name}" is {one_line(value, 60)!r}, which is none of the names;'
        f" {nearest(value, valid)}"
    )


def in_words(count: int) -> str:
    """Return a number of words with its noun."""
    return f"{count} word{'' if count == 1 else 's'}"


def complaint_of_summary(name: str, summary: str) -> str | None:
    """Describe the problem with the length of a topic summary."""
    least, most = _SUMMARY_WORDS
    count = len(summary.split())
    return (
        None
        if least <= count <= most
        else f'"{name}" has {in_words(count)}; {least} to {most} are asked for'
    )


_TYPES: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    str: {"type": "string"},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}


def json_schema(kind: type[Reply], choices: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the JSON schema of a reply in the form for structured output: every key required, no
    others.

    Args:
        kind: the reply's type.
        choices: valid texts by key, if a key has only a few.
    """
    fields = {field.name: _type_of(field.type) for field in msgspec.structs.fields(kind)}
    for name, valid in choices.items():
        fields[name]["enum"] = list(valid)
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _type_of(hint: Any) -> dict[str, Any]:
    return (
        {"type": "string", "enum": list(get_args(hint))}
        if get_origin(hint) is Literal
        else dict(_TYPES[hint])
    )
