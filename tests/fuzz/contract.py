"""What every reader promises, whatever it is given: a value, or one line that says what is wrong,
in bounded time and memory.

A reader of files is a line in `test_readers.READERS`; what reads more than a file draws something
damaged (`faults`), hands it to `attempt`, and is decorated with `FUZZ`.

`make test` runs a few seeded examples of each; `make fuzz` sets the number of examples and a new
seed in the environment.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from opensafeintent.errors import OpenSafeIntentError

EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
FUZZ = settings(
    deadline=None,
    database=None,
    derandomize=EXAMPLES is None,
    max_examples=int(EXAMPLES or 30),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
)
"""Seeded and few in `make test`; many, from the seed that `--hypothesis-seed` gives, in `make
fuzz`.
"""
SLOW = settings(FUZZ, max_examples=int(EXAMPLES or 10))
"""The same for what takes a tenth of a second: whole runs, whole commands."""

MOST_SECONDS = 10
MOST_BYTES = 10**9
"""By which one example may raise the most memory that this process has ever used."""
LONGEST_LINE = 2010
UNPRINTED = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")

TRIED: Counter[tuple[str, str]] = Counter()
"""Examples by (reader, `read` or `refused`)."""


class TooSlow(BaseException):
    """An example took longer than any reader may; not an Exception, so that no reader swallows
    it.
    """


def write(path: Path, content: bytes) -> Path:
    """Write a file, and return its path."""
    path.write_bytes(content)
    return path


def attempt(
    reader: str, read: Callable[[Path], object], path: Path, *, named: str | None = None
) -> bool:
    """Let a reader read; return whether it took what it found. Whatever else happens than the
    contract allows fails the test.

    Args:
        reader: what the counts call it.
        read: takes the path; its result is of no interest, except that an iterator would not have
            read anything.
        path: what is read.
        named: what an error has to name; the file's name by default.
    """
    end = "read"
    with bounded():
        try:
            read(path)
        except OpenSafeIntentError as error:
            end = "refused"
            for line in str(error).split("\n"):  # several problems are a line each
                fit_to_print(line, path.name if named is None else named)
    TRIED[reader, end] += 1
    return end == "read"


def fit_to_print(text: str, named: str = "") -> None:
    """Fail unless a text is one short line, without anything that commands a terminal, that names
    what it is about.
    """
    assert named in text, f"does not name {named}: {text[:300]!r}"
    assert len(text) < LONGEST_LINE, f"is {len(text)} characters long: {text[:300]!r}"
    assert text.strip(), "is empty"
    wrong = {char for char in text if unicodedata.category(char) in UNPRINTED}
    assert not wrong, f"holds {sorted(wrong)!r}: {text[:300]!r}"
    assert "Traceback" not in text


@contextmanager
def bounded() -> Iterator[None]:
    """Fail what takes too long or too much memory, before it takes the machine with it."""

    def too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"took {MOST_SECONDS} seconds of CPU, or ten times that by the clock")

    most = _most_memory()
    # of CPU: a busy machine is no fault of the reader's; by the clock, who waits for ever
    timers = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 10))
    handlers: list[Any] = [signal.signal(name, too_slow) for name, _, _ in timers]
    for _, timer, times in timers:
        signal.setitimer(timer, times * MOST_SECONDS)
    with _address_space():
        try:
            yield
        finally:
            for (name, timer, _), handler in zip(timers, handlers, strict=True):
                signal.setitimer(timer, 0)
                signal.signal(name, handler)
    grown = _most_memory() - most
    assert grown < MOST_BYTES, f"took {grown / 1e9:.1f} GB"


def _most_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def _address_space() -> Iterator[None]:
    """Have an allocation fail before the machine is exhausted; threads and pools reserve much that
    they never use.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # not on Linux
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + 4 * MOST_BYTES
    with suppress(ValueError, OSError):  # it may be less already
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
