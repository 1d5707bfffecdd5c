"""Bodies that hold several objects: a stream of events although none was asked for, a reply with an
event behind it, several objects one after another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_NOT_DATA = (":", "event:", "id:", "retry:")
"""Starts of the lines of a stream that hold no data: comments keep a connection alive."""
_DATA = ("data:", "error:")
_DONE = "[DONE]"


class NoStream(ValueError):
    """A body that is no such stream."""


class Stream(NamedTuple):
    """What a body holds."""

    parts: list[dict[str, Any]]
    """At least one."""
    ended: bool
    """Whether a line says `[DONE]`."""


def read_stream(body: bytes) -> Stream:
    """Return the objects in a body.

    Raises:
        NoStream: it is something else, or ends in the middle of an object.
        RecursionError: it is nested too deeply.
    """
    try:
        lines = [line.strip() for line in body.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise NoStream(str(error)) from error
    parts = list(_objects(_data(lines)))
    if not parts:
        raise NoStream("it is empty")
    return Stream(parts, any(line.endswith(_DONE) for line in lines))


def _data(lines: Iterable[str]) -> str:
    """Return the data of a stream's lines; a line of another body is as it was."""
    kept = []
    for line in lines:
        field = next((field for field in _DATA if line.startswith(field)), "")
        value = line.removeprefix(field).strip()
        if value and value != _DONE and not line.startswith(_NOT_DATA):
            kept.append(value)
    return "\n".join(kept)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    place = 0
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except ValueError as error:
            raise NoStream(str(error)) from error
        if not isinstance(value, dict):
            raise NoStream(f"it holds a {type(value).__name__}")
        yield value
        while place < len(text) and text[place].isspace():
            place += 1
