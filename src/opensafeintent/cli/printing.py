"""What every printed answer starts from: a console of the terminal's width, tables that fit it,
harmless text.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

from rich.console import Console

from opensafeintent.hostile import one_line
from opensafeintent.report.table import Table
from opensafeintent.report.terminal import plain, to_terminal


def new_console() -> Console:
    """Return a console: as wide as the terminal, or 120 columns where the output goes elsewhere."""
    width = shutil.get_terminal_size((120, 40)).columns if sys.stdout.isatty() else 120
    return Console(width=width, highlight=False)


def print_table(
    console: Console,
    table: Table,
    *,
    across: bool = False,
    notes: bool = False,
) -> None:
    """Print a table; where the terminal is too narrow for it, intervals stand below their values.

    Args:
        console: where it is printed.
        table: what is printed.
        across: whether its columns are printed as lines.
        notes: whether its notes are printed as well.
    """
    lines = to_terminal(table, across=across)
    if console.measure(lines).maximum > console.width:
        lines = to_terminal(table, across=across, beside=False)
    console.print(lines)
    for note in table.notes if notes else ():
        console.print(plain(note), style="dim")


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what a reader should know of a result, a note a line: a name in one of them cannot
    forge another.
    """
    for note in notes:
        console.print(plain(f"note: {one_line(note, 2000)}"))
