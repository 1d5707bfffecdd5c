"""Keys are taken out of whatever a server sends back, however they are written there."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["SHORTEST_KEY", "Secrets"]

SHORTEST_KEY = 8
"""Shorter ones ("none", "x") are no secrets, and would be found in ordinary words."""

_MASK = "***"
_SHORT = '/"\\'
"""Characters that JSON escapes by a backslash alone."""


class Secrets:
    """Values that must not be quoted: as they are, and as JSON may write them, each character escaped or not."""

    def __init__(self, values: Iterable[str]) -> None:
        found = sorted({value for value in values if len(value) >= SHORTEST_KEY}, key=len, reverse=True)
        self._texts = found
        self._raw = [value.encode("utf-8", "surrogateescape") for value in found]
        self._begun = re.compile(_any_escape(set("".join(found))).encode("utf-8", "surrogateescape"))
        """Whether any of their characters is there in escapes: this is looked for in every reply, and hardly ever found."""
        pattern = "|".join("".join(map(_in_json, value)) for value in found)
        self._escaped = re.compile(pattern)
        self._escaped_raw = re.compile(pattern.encode("utf-8", "surrogateescape"))

    def scrub(self, text: str) -> str:
        """Return a text without them."""
        if self._texts and "\\" in text:
            text = self._escaped.sub(_MASK, text)
        for value in self._texts:
            text = text.replace(value, _MASK)
        return text

    def scrub_bytes(self, body: bytes) -> bytes:
        """Return a body without them."""
        if self._raw and self._begun.search(body):
            body = self._escaped_raw.sub(_MASK.encode(), body)
        for value in self._raw:
            body = body.replace(value, _MASK.encode())
        return body


def _any_escape(chars: set[str]) -> str:
    """Return a pattern for any of these characters in escapes."""
    codes = sorted({"".join(map(_digit, digits)) for char in chars for digits in _codes(char)})
    short = [re.escape(char) for char in sorted(chars) if char in _SHORT]
    return rf"\\(?:u(?:{'|'.join(codes)}){''.join(f'|{char}' for char in short)})"


def _in_json(char: str) -> str:
    """Return a pattern for a character as it stands in JSON, also in JSON that a string of JSON holds."""
    code = "".join(r"\\+u" + "".join(map(_digit, digits)) for digits in _codes(char))
    plain = (r"\\*" if char in _SHORT else "") + re.escape(char)
    return f"(?:{code}|{plain})"


def _codes(char: str) -> list[str]:
    units = char.encode("utf-16-be", "surrogatepass")
    return [units[at : at + 2].hex() for at in range(0, len(units), 2)]


def _digit(digit: str) -> str:
    return digit if digit.isdigit() else f"[{digit}{digit.upper()}]"
