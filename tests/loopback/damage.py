"""Damage to files of results on their way, as providers, gateways and connections do it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

HTML = b"<!doctype html>\n<html><body>Back soon.</body></html>\n"
ERROR = b'{"error": {"message": "the file store is not ready", "type": "server_error"}}'
DEEP = b"[" * 2_000 + b"]" * 2_000


class Sent(NamedTuple):
    """A reply to the request for a file."""

    content: bytes
    length: int | None = None
    """That its header says; None for a reply that ends with the connection."""
    gzipped: bool = False
    status: int = 200


def _half(lines: Sequence[bytes]) -> list[bytes]:
    return list(lines[: len(lines) // 2])


def _text(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _in_line(lines: Sequence[bytes]) -> bytes:
    return _text(_half(lines)) + lines[-1][:40]


def _packed(lines: Sequence[bytes]) -> bytes:
    return gzip.compress(_text(lines))


@cache
def _bomb(byte: bytes, count: int) -> bytes:
    return gzip.compress(byte * count)


def _with_length(content: bytes, *, gzipped: bool = False, status: int = 200) -> Sent:
    return Sent(content, len(content), gzipped, status)


def _deep(lines: Sequence[bytes]) -> bytes:
    """Return lines of which every second one is nested beyond what a reader can take."""
    nested = [b'{"deep": %s, %s' % (DEEP, line[1:]) for line in lines]
    return _text([nested[number] if number % 2 else line for number, line in enumerate(lines)])


DAMAGE: Mapping[str, Callable[[Sequence[bytes]], Sent]] = {
    "cut at a line's end": lambda lines: Sent(_text(_half(lines))),
    "cut within a line": lambda lines: Sent(_in_line(lines)),
    "cut before its length": lambda lines: Sent(_in_line(lines), len(_text(lines))),
    "gzip, cut": lambda lines: Sent(_packed(lines)[: len(_packed(lines)) // 2], gzipped=True),
    "gzip, cut, with a length": lambda lines: _with_length(
        _packed(lines)[: len(_packed(lines)) // 2], gzipped=True
    ),
    "gzip without its trailer": lambda lines: _with_length(_packed(lines)[:-8], gzipped=True),
    "gzip with a wrong sum": lambda lines: _with_length(
        _packed(lines)[:-8] + bytes(8), gzipped=True
    ),
    "HTML": lambda _: _with_length(HTML),
    "empty": lambda _: _with_length(b""),
    "an error with 200": lambda _: _with_length(ERROR),
    "nested lines": lambda lines: _with_length(_deep(lines)),
    "blank lines without end": lambda _: _with_length(_bomb(b"\n", 10**8), gzipped=True),
    "one line without end": lambda _: _with_length(_bomb(b" ", 10**8), gzipped=True),
    "other answers, cut": lambda lines: Sent(_in_line(lines).replace(b"Note ", b"Nota ")),
    "400": lambda _: _with_length(ERROR, status=400),
    "404": lambda _: _with_length(ERROR, status=404),
    "410": lambda _: _with_length(ERROR, status=410),
    "503": lambda _: _with_length(ERROR, status=503),
}
"""What is sent in place of a file, by its name."""

GONE = ("404", "410")
"""Those after which a file is not asked for again."""
HALF = ("cut at a line's end", "cut within a line", "cut before its length")
"""Those that leave the first half of the lines."""
