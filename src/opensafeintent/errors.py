"""Errors that reach a user: one clear line each, and the exit code that goes with it."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Iterable

from opensafeintent.hostile import TEXT, terminal_safe

EXIT_ORDER = (130, 70, 2, 3, 4, 5, 1, 0)
"""Exit codes of commands; the first of several counts. `--help` has their meanings."""


def first_exit_code(*codes: int) -> int:
    """Return the one of several exit codes that counts; 0 if there are none."""
    return min(codes, key=EXIT_ORDER.index, default=0)


_END = 400


class OpenSafeIntentError(Exception):
    """Base of every error that the user can fix; its text is complete by itself.

    Args:
        lines: the problems, a line each. A quotation in a line cannot forge another line, nor
            command a terminal.
    """

    exit_code = 2

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(map(_flatten_line, lines))
        super().__init__(*self.lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)


class InputError(OpenSafeIntentError):
    """Input that cannot be used: a file, a name, an option, a missing key (exit code 2)."""


class Stopped(OpenSafeIntentError):
    """A provider or a budget ended the work; finished work is kept (exit code 3)."""

    exit_code = 3


class NothingMade(Stopped):
    """A stage of a build dropped each of its first items; answered calls are kept (exit code 1)."""

    exit_code = 1


class Interrupted(Stopped):
    """A signal ended the work; calls in flight were waited for, and are kept (exit code 130)."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__(
            "interrupted; everything that was answered is kept: the same command goes on from there"
        )


class JudgeFailed(OpenSafeIntentError):
    """A judge did not pass its check, so nothing was evaluated with it (exit code 4)."""

    exit_code = 4


def _flatten_line(text: str) -> str:
    if len(text) > 2 * TEXT:  # before it is escaped: that takes its time
        text = f"{text[:TEXT]}{text[-_END:]}"
    flat = terminal_safe(" ".join(text.split("\n")))
    if len(flat) <= TEXT:
        return flat
    return f"{flat[: TEXT - _END]} … {flat[-_END:]}"


def round_count(number: int) -> str:
    """Return a number that is not exact, with two digits from 1,000 on: `18,000`."""
    digits = 10 ** max(len(str(number)) - 2, 0) if number >= 1000 else 1
    return f"{-(-number // digits) * digits:,}"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 seed`, `2 seeds`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def nearest(name: str, valid: Iterable[str], *, shown: int = 45) -> str:
    """Return a phrase that names the valid names nearest to `name`, or the first `shown` of them
    when none is near. A name that only looks the same is shown in escapes.
    """
    names = list(valid)
    if close := did_you_mean(name, names):
        return close
    return f"valid: {', '.join(names[:shown])}" + (
        f", … ({len(names) - shown} more)" if len(names) > shown else ""
    )


def find_repeated(names: Iterable[str]) -> list[str]:
    """Return the names that are there more than once, in their order."""
    return [name for name, count in Counter(names).items() if count > 1]


def install_extra(extra: str) -> str:
    """Return the command that installs an extra: no package is published, so it needs a clone."""
    return f'pip install ".[{extra}]" in a clone of opensafeintent'


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return a question that names the valid names nearest to `name`; empty if none is near."""
    names = list(valid)
    form, *forms = (unicodedata.normalize("NFC", text) for text in (name, *names))
    folded = {text.casefold(): candidate for text, candidate in zip(forms, names, strict=True)}
    close = difflib.get_close_matches(form.casefold(), list(folded), n=3, cutoff=0.5)
    quoted = map(ascii if form in forms else repr, map(folded.get, close))
    return f"did you mean {' or '.join(quoted)}?" if close else ""
