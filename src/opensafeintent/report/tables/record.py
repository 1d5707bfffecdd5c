"""What a table is: complete rows for programs, and how people are shown them."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Cell", "Column", "Style", "Table"]

Cell = str | int | float | None

Style = Literal["text", "name", "count", "number", "interval", "signed", "span", "ranks", "p", "share"]
"""How people are shown a column:

- `text`; `name`, a text that stands for the row;
- `count`; `number`, with two decimals; `share`, in per cent;
- `interval`, a value and its 95 % interval from `COLUMN`, `COLUMN_low`, `COLUMN_high`; `signed`, the same with a plus sign;
- `span` and `ranks`, from `COLUMN_low` and `COLUMN_high`;
- `p`, a p-value.
"""


class Column(msgspec.Struct, frozen=True):
    """A column as people are shown it."""

    source: str
    """The column of the table, or what its companions' names start with."""
    heading: str
    style: Style = "text"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A named table; None is an undefined value."""

    name: str
    """Of its files."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: tuple[Column, ...] = ()
    """What people are shown; every column as it is where empty."""
    notes: tuple[str, ...] = ()
    """What a reader should know, a line each."""

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
