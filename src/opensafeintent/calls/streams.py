"""Bodies around one chat completion: a stream of events although none was asked for, a completion
with an event behind it, several objects one after another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_NOT_DATA = (":", "event:", "id:", "retry:")
"""Starts of the lines of a stream that hold no data: comments keep a connection alive."""
_DATA = ("data:", "error:")
_DONE = "[DONE]"


class NoStream(ValueError):
    """A body that is no such stream."""


def read_stream(body: bytes) -> dict[str, Any]:
    """Return the chat completion that a body tells in parts, or the error in it.

    Raises:
        NoStream: it is something else, or ends in the middle of a part.
        RecursionError: it is nested too deeply.
    """
    try:
        lines = [line.strip() for line in body.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise NoStream(str(error)) from error
    parts = list(_objects(_data(lines)))
    if not parts:
        raise NoStream("it is empty")
    completion = _Completion()
    for part in parts:
        completion.add(part)
    return completion.reply(ended=any(line.endswith(_DONE) for line in lines))


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


class _Completion:
    """A completion that comes in parts."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._whole = False
        """Whether a part had the whole message."""

    def add(self, part: dict[str, Any]) -> None:
        choices = part.get("choices")
        if part.get("error") or (choices is None and "usage" not in part):
            self._fields["error"] = part.get("error") or part
        self._fields |= {
            name: value
            for name, value in part.items()
            if name not in ("choices", "error") and value is not None
        }
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                self._choice |= {name: value for name, value in choice.items() if value is not None}
                self._whole = self._whole or isinstance(choice.get("message"), dict)
                delta = choice.get("message") or choice.get("delta")
                self._add_message(delta if isinstance(delta, dict) else {})

    def _add_message(self, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if isinstance(value, str) and name != "role":
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list) and isinstance(self._message.get(name), list):
                self._message[name].extend(value)
            elif value is not None:
                self._message[name] = value

    def reply(self, *, ended: bool) -> dict[str, Any]:
        """Return the completion; one that broke off says so in its finish reason."""
        if not self._choice:
            return {"choices": [], **self._fields}
        choice = {name: value for name, value in self._choice.items() if name != "delta"}
        if not (ended or self._whole or choice.get("finish_reason")):
            choice["finish_reason"] = "not_finished"
        message = self._message | {name: "".join(texts) for name, texts in self._texts.items()}
        return {**self._fields, "choices": [choice | {"message": message}]}
