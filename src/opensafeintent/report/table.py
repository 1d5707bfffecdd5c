"""What a table is: columns, each declared once, over records.

A column says how a record gives its value, what programs call it and how people are shown it. Every
format (`report.formats`, `report.terminal`, the pages) is a function of this record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

Cell = str | int | float | None

Style = Literal[
    "text", "name", "count", "number", "interval", "signed", "span", "ranks", "p", "share"
]
"""What a column's values are, and how people are shown them:

- `text`; `name`, a text that stands for the row;
- `count`; `number`, with two decimals; `share`, in per cent; `p`, a p-value;
- `interval`, an estimate (`value`, `low`, `high`) with its 95 % interval; `signed`, the same with a
  plus sign;
- `span` of two numbers and `ranks`, both pairs of the lower and the upper end.
"""

TEXTS = ("text", "name")
"""Styles of texts; all others are of numbers."""

# fmt: off
Section = Literal[
    "utility", "strata", "modes", "stability", "probe", "knowing", "distributions",
    "comparisons", "coverage", "graders", "swap", "judges", "correction", "gates", "numbers",
    "method",
]
# fmt: on
"""Sections of the page of a run."""

Get = Callable[[Any], Any]


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    """In files for programs; what a style adds to it is in `fields`."""
    heading: str | None = None
    """What people are shown above it; None where they are not shown it."""
    style: Style = "text"
    get: Get | None = None
    """How a record gives the value: its attribute `name` where None. An undefined value is None."""
    order: int = 0
    """People are shown columns of a lower order first."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs that it fills."""
        match self.style:
            case "interval" | "signed":
                return self.name, f"{self.name}_low", f"{self.name}_high"
            case "span" | "ranks":
                return f"{self.name}_low", f"{self.name}_high"
            case _:
                return (self.name,)

    def cells(self, record: Any) -> tuple[Cell, ...]:
        """Return the cells of `fields` for a record."""
        value = getattr(record, self.name) if self.get is None else self.get(record)
        match self.style:
            case "interval" | "signed":
                return (None, None, None) if value is None else (value.value, value.low, value.high)
            case "span" | "ranks":
                return (None, None) if value is None else tuple(value)
            case _:
                return (value,)


class Table(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A named table."""

    name: str
    """Of its files."""
    title: str
    section: Section | None = None
    """Of the page; None where it is on none."""
    columns: tuple[Column, ...]
    rows: Sequence[Any]
    """The records, one a line."""
    notes: tuple[str, ...] = ()
    """What a reader should know, a line each."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs."""
        return tuple(field for column in self.columns for field in column.fields)

    @cached_property
    def cells(self) -> list[list[tuple[Cell, ...]]]:
        """Of each row, the cells of each column."""
        return [[column.cells(row) for column in self.columns] for row in self.rows]

    @property
    def shown(self) -> list[tuple[int, Column]]:
        """The columns that people are shown, with their index, in the order in which they are
        shown.
        """
        headed = [
            (index, column)
            for index, column in enumerate(self.columns)
            if column.heading is not None
        ]
        return sorted(headed, key=lambda item: item[1].order)

    def part(self, rows: Sequence[Any], *without: str) -> Table:
        """Return the table of some of its rows, without some columns."""
        columns = tuple(column for column in self.columns if column.name not in without)
        return msgspec.structs.replace(self, rows=rows, columns=columns)

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows by field."""
        fields = self.fields
        return [
            dict(zip(fields, (cell for cells in row for cell in cells), strict=True))
            for row in self.cells
        ]


Part = Literal["n", "method", "bounds", "models", "pooled"]
"""What an estimate has beside its value and interval."""

_PART_STYLES: dict[Part, Style] = {
    "n": "count",
    "method": "text",
    "bounds": "span",
    "models": "count",
    "pooled": "number",
}


def estimate_columns(
    name: str,
    heading: str | None,
    get: Get | None = None,
    *,
    style: Literal["interval", "signed"] = "interval",
    parts: Iterable[Part] = ("n",),
    headings: Mapping[Part, str] | None = None,
    order: int = 0,
) -> tuple[Column, ...]:
    """Return the columns of an estimate: its value with the interval, and what else files have of
    it.

    Args:
        name: of the value; a part is called `NAME_PART`.
        heading: of the value.
        get: how a record gives the estimate: its attribute `name` where None.
        style: of the value.
        parts: which parts files have.
        headings: of the parts that people are shown.
        order: of those parts.
    """

    def part_of(part: Part) -> Get:
        def read(record: Any) -> Any:
            estimate = getattr(record, name) if get is None else get(record)
            return None if estimate is None else getattr(estimate, part)

        return read

    return (
        Column(name, heading, style, get),
        *(
            Column(
                f"{name}_{part}",
                (headings or {}).get(part),
                _PART_STYLES[part],
                part_of(part),
                order=order,
            )
            for part in parts
        ),
    )
