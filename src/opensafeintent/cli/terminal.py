"""Standard output and error that never fail a command, in any environment."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import select
import sys
from collections.abc import Iterator
from typing import TextIO

_NEAREST = {
    **dict.fromkeys("‐‑‒–—−", "-"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    **{
        "·": ".",
        "…": "...",
        "≤": "<=",
        "≥": ">=",
        "±": "+/-",
        "×": "x",
        "→": "->",
        "│": "|",
        "✓": "+",
        "✗": "x",
    },
}
"""Substitutes for characters beyond ASCII in our own lines and tables, if an encoding lacks them.
"""


_COMMAND = re.compile(r"(?<=:)(?=:)|(?<=#)(?=#(?:\[|vso\[))")


def _is_job() -> bool:
    return any(os.environ.get(name) for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"))


class Streams:
    """Result of printing."""

    lost: OSError | None = None
    """The error of standard output; None if it took everything, or has no reader."""


@contextlib.contextmanager
def safe_streams() -> Iterator[Streams]:
    """Put streams that never raise in the place of standard output and error, while the body runs.

    If the reader has closed (`| head`), or the stream is closed (`>&-`), only the output is lost.
    Characters that an encoding lacks are written as the nearest ASCII, or as a visible escape.
    """
    codecs.register_error("opensafeintent", _escape_unencodable)
    _fill_closed()
    streams = Streams()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _safe(sys.stdout, 1, streams), _safe(sys.stderr, 2, None)
    try:
        yield streams
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    escape = codecs.lookup_error("backslashreplace")
    return "".join(
        _NEAREST.get(char)
        or str(escape(UnicodeEncodeError(error.encoding, char, 0, 1, error.reason))[0])
        for char in text
    ), error.end


def _fill_closed() -> None:
    """Open closed ones of the first three files: otherwise the next opened file, a ledger, would be
    one of them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


class _Forgiving(io.FileIO):
    """A file that accepts every write, and remembers the error if it could not keep one."""

    def __init__(self, number: int, streams: Streams | None) -> None:
        super().__init__(number, "w", closefd=False)
        self._streams = streams

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        try:
            # a terminal that does not block, and is behind
            while (written := super().write(data)) is None:
                select.select([], [self], [])
        except OSError as error:
            if self._streams and not (isinstance(error, ConnectionError) or self.isatty()):
                self._streams.lost = self._streams.lost or error
            return len(data)
        return written


def _open_buffered(number: int, streams: Streams | None) -> io.BufferedWriter:
    raw: io.RawIOBase = _Forgiving(number, streams)
    return io.BufferedWriter(raw)


class _Text(io.TextIOWrapper):
    """Text without a way around its encoding: click would write UTF-8 to the buffer of a stream
    that is ASCII.
    """

    @property
    def buffer(self) -> io.BufferedWriter:
        raise AttributeError("buffer")

    close = io.TextIOWrapper.flush
    """A function of the user's that closes it would silence us."""

    def write(self, text: str, /) -> int:
        """Write a text; in a job of a CI service, so that no line of it is a command to the service
        (`::add-mask::`, `##[…]`, `##vso[…]`): a server may have chosen how a line begins.
        """
        super().write(_COMMAND.sub(" ", text) if _is_job() else text)
        return len(text)


def _safe(stream: TextIO | None, number: int, streams: Streams | None) -> TextIO:
    """Return a stream in place of one of Python's own; None means a closed one."""
    if stream is None:
        return _Text(
            _open_buffered(number, streams), "utf-8", "opensafeintent", line_buffering=True
        )
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer between
    # a test's, or the console of Windows
    if not isinstance(stream, io.TextIOWrapper) or type(raw) is not io.FileIO:
        return stream
    stream.flush()
    return _Text(
        _open_buffered(raw.fileno(), streams),
        stream.encoding,
        "opensafeintent",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
