"""Errors that reach a user: one clear line each, and the exit code that goes with it."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

from opensafeintent.hostile import terminal_safe

EXIT_ORDER = (130, 70, 2, 3, 4, 5, 1, 0)
"""Exit codes of commands; the first of several counts. `--help` has their meanings."""


def first_exit_code(*codes: int) -> int:
    """Return the one of several exit codes that counts; 0 if there are none."""
    return min(codes, key=EXIT_ORDER.index, default=0)


_LONGEST_LINE = 1500
"""Characters of one line; its last ones name the valid values."""
_END = 400


_BEGIN, _FLAG, _FINISH, _EQUALS, _SET = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4"
"""Code points that Unicode keeps for a program's own use. `hostile` shows foreign ones as escapes.
"""
_MARK = re.compile(f"({_BEGIN}[a-z_]+{_FLAG}-{{1,2}}[A-Za-z-]+[{_FINISH}{_EQUALS}{_SET}])")

_FLAGS = {
    "columns": "--map",
    "extra": "-M",
    "judge_args": "--judge-arg",
    "judges": "--judge",
    "pairs": "--pair",
    "set_id": "--set",
}
"""Options that are not called as their settings; a test compares them with the settings."""


def option(name: str, value: object = None, *, flag: str | None = None) -> str:
    """Return a setting's name for the text of an error or a `Note`, as a mark.

    `str()` of an error shows the name as Python has it: `limit`, `limit=5`, `partial=True`. The
    command line prints the option: `--limit`, `--limit 5`, `--partial`.

    Args:
        name: of the field in a settings record.
        value: of the setting, if the text shows it.
        flag: the option, if the command calls it otherwise than most commands do.
    """
    mark = f"{_BEGIN}{name}{_FLAG}{flag or _FLAGS.get(name) or '--' + name.replace('_', '-')}"
    if value is None:
        return f"{mark}{_FINISH}"
    return f"{mark}{_SET}" if value is True else f"{mark}{_EQUALS}{value}"


def for_python(text: str) -> str:
    """Return a text with its marks of settings as Python has them: `limit=5`."""
    ends = {_FINISH: "", _EQUALS: "=", _SET: "=True"}
    return _MARK.sub(lambda mark: mark[0][1:-1].partition(_FLAG)[0] + ends[mark[0][-1]], text)


def for_command_line(text: str) -> str:
    """Return a text, which may be a `Note`, with its marks as the command line has them: `--limit
    5`.
    """
    marked = text.marked if isinstance(text, Note) else text
    ends = {_FINISH: "", _EQUALS: " ", _SET: ""}
    return _MARK.sub(lambda mark: mark[0][1:-1].partition(_FLAG)[2] + ends[mark[0][-1]], marked)


class Note(str):
    """A line of a result, as Python shows it; the command line prints it `for_command_line`.

    Args:
        marked: the line, which may name settings by `option`.
    """

    __slots__ = ("marked",)
    marked: str

    def __new__(cls, marked: str) -> Note:
        """Make the line; of a note, the same one."""
        marked = marked.marked if isinstance(marked, Note) else marked
        note = super().__new__(cls, for_python(marked))
        note.marked = marked
        return note

    def __reduce__(self) -> tuple[type[Note], tuple[str]]:
        return type(self), (self.marked,)


def as_notes(*groups: Iterable[str]) -> list[Note]:
    """Return the lines of all groups as notes, in this order."""
    return [Note(line) for lines in groups for line in lines]


class OpenSafeIntentError(Exception):
    """Base of every error that the user can fix; its text is complete by itself.

    Args:
        lines: the problems, a line each. A quotation in a line cannot forge another line, nor
            command a terminal.
    """

    exit_code = 2

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(map(_one_line, lines))
        """With the marks of `option`."""
        super().__init__(*map(for_python, self.lines))

    def __str__(self) -> str:
        return "\n".join(self.args)

    @property
    def marked(self) -> str:
        """Its text with the marks of `option`, for the text of another error or note."""
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


def _one_line(text: str) -> str:
    if len(text) > 2 * _LONGEST_LINE:  # before it is escaped: that takes its time
        text = f"{text[:_LONGEST_LINE]}{text[-_END:]}"
    flat = _safe(" ".join(text.split("\n")))
    if len(flat) <= _LONGEST_LINE:
        return flat
    return _safe(f"{flat[: _LONGEST_LINE - _END]} … {flat[-_END:]}")  # it may have cut a mark


def _safe(text: str) -> str:
    """Return a text that cannot command a terminal, with its marks."""
    parts = _MARK.split(text)
    parts[::2] = map(terminal_safe, parts[::2])
    return "".join(parts)


def about(number: int) -> str:
    """Return a number that is not exact, with two digits from 1,000 on: `18,000`."""
    digits = 10 ** max(len(str(number)) - 2, 0) if number >= 1000 else 1
    return f"{-(-number // digits) * digits:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 seed`, `2 seeds`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def nearest(name: str, valid: Iterable[str], *, most: int = 3, shown: int = 45) -> str:
    """Return a phrase that names the valid names nearest to `name`, or the first `shown` of them
    when none is near. A name that only looks the same is shown in escapes.
    """
    names = list(valid)
    if close := did_you_mean(name, names, most=most):
        return close
    return f"valid: {', '.join(names[:shown])}" + (
        f", … ({len(names) - shown} more)" if len(names) > shown else ""
    )


def install_extra(extra: str) -> str:
    """Return the command that installs an extra: no package is published, so it needs a clone."""
    return f'pip install ".[{extra}]" in a clone of opensafeintent'


def did_you_mean(name: str, valid: Iterable[str], *, most: int = 3) -> str:
    """Return a question that names the valid names nearest to `name`; empty if none is near."""
    names = list(valid)
    form, *forms = (unicodedata.normalize("NFC", text) for text in (name, *names))
    folded = {text.casefold(): candidate for text, candidate in zip(forms, names, strict=True)}
    close = difflib.get_close_matches(form.casefold(), list(folded), n=most, cutoff=0.5)
    quoted = map(ascii if form in forms else repr, map(folded.get, close))
    return f"did you mean {' or '.join(quoted)}?" if close else ""
