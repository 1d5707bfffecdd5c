"""A table as the terminal shows it, through rich: the texts of every other format, with intervals
in the background.
"""

from __future__ import annotations

from textwrap import wrap

from rich.table import Table as RichTable
from rich.text import Text

from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.report.formats import DASH, text
from opensafeintent.report.table import TEXTS, Cell, Column, Table

_HEADING = 14
"""Characters beyond which a heading of numbers is broken."""
_NARROWEST = 12
"""Characters of a text that a narrow terminal leaves on a line."""
_NAME = 300
"""Characters of a name."""


def plain(text: str) -> Text:
    """Return a text as it is: no markup is read in it, and control characters are made visible."""
    return Text(terminal_safe(text))


def to_terminal(table: Table, *, across: bool = False, beside: bool = True) -> RichTable:
    """Return a table without its title and notes.

    Args:
        table: what is shown.
        across: whether its columns become lines; its first column heads them.
        beside: whether intervals stand beside their values, or below them.
    """
    shown = table.shown
    cells = [
        [_cell(column, row[index], beside=beside) for index, column in shown] for row in table.cells
    ]
    lines = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    if across:
        (_, first), *rest = shown
        lines.add_column(plain(first.heading or ""), overflow="fold")
        for row in cells:
            lines.add_column(row[0], justify="right", no_wrap=True)
        for number, (_, column) in enumerate(rest, start=1):
            lines.add_row(plain(column.heading or ""), *(row[number] for row in cells))
        return lines
    for number, (_, column) in enumerate(shown):
        heading = column.heading or ""
        if column.style in TEXTS:
            longest = max((row[number].cell_len for row in cells), default=0)
            lines.add_column(plain(heading), overflow="fold", min_width=min(longest, _NARROWEST))
        else:
            heading = (
                heading
                if "\n" in heading
                else "\n".join(wrap(heading, _HEADING, break_long_words=False))
            )
            lines.add_column(plain(heading), justify="right", no_wrap=True, vertical="top")
    for index, row in enumerate(cells):
        lines.add_row(*row, style="bold" if index in table.bold else None)
    return lines


def _cell(column: Column, cells: tuple[Cell, ...], *, beside: bool) -> Text:
    """Return one cell; lines of a text stay lines, a name is on one, and what is undefined is a
    dash.
    """
    if column.style == "name" and cells[0] is not None:
        return plain(one_line(str(cells[0]), _NAME))
    if column.style in TEXTS:
        return plain(DASH if cells[0] is None else str(cells[0]))
    number, space, limits = text(column.style, cells).partition(" [")
    shown = Text(number)
    if space:
        shown.append(f"{' ' if beside else chr(10)}[{limits}", style="dim")
    return shown
