"""A console as wide as the terminal; tables, notes and names on it."""

from __future__ import annotations

import html
import io
import shutil
import sys
from collections.abc import Iterable

from rich.console import Console

from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.report.columns import Table
from opensafeintent.report.compact import compact, explained
from opensafeintent.report.printing.tables import plain, to_terminal


def new_console() -> Console:
    """Return a console as wide as `COLUMNS` or the terminal; for other outputs, 120 columns."""
    return Console(width=_width(), highlight=False)


def _width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


class Printed:
    """A result that prints as the command line shows it: `print(result)`, and in a notebook."""

    __slots__ = ()

    def show(self, console: Console) -> None:
        """Print the result."""
        raise NotImplementedError

    def __str__(self) -> str:
        kept = io.StringIO()
        self.show(Console(width=_width(), highlight=False, file=kept, force_jupyter=False))
        return "\n".join(map(str.rstrip, kept.getvalue().strip("\n").split("\n")))

    def _repr_html_(self) -> str:
        return f'<pre style="overflow-x: auto">{html.escape(str(self))}</pre>'


_UNBOUNDED = 10_000
"""Columns in which any table has room: a console measures within its own width."""


WIDEST = 100
"""Columns beyond which lines of text are hard to read."""


def print_table(console: Console, table: Table, *, notes: bool = False) -> None:
    """Print a table; if the terminal is too narrow for it, intervals are below their values, and
    names on two lines.

    Args:
        console: the output.
        table: the table.
        notes: whether its notes are printed too.
    """
    options = console.options.update_width(_UNBOUNDED)
    fitting = (
        lines
        for lines in (to_terminal(table, narrow=narrow) for narrow in (0, 1))
        if console.measure(lines, options=options).maximum <= console.width
    )
    console.print(next(fitting, None) or to_terminal(table, narrow=2))
    for note in explained(table, compact(table)) if notes else ():
        console.print(plain(note), style="dim")


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print notes on a result, a note a line: a name in one of them cannot forge another."""
    for note in notes:
        console.print(plain(f"note: {one_line(note, 2000)}"))


def print_stopped(lines: Iterable[str]) -> None:
    """Print as errors, a line each, failures after which results were written all the same."""
    for line in lines:
        print(terminal_safe(f"error: {line}"), file=sys.stderr)


def shown_name(model: str) -> str:
    """Return a model's name, on one line."""
    return one_line(model, 300)
