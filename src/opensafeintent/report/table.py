"""What a table is: columns, each declared once, and rows of values.

A column says what programs call its values and how people are shown them. Every format
(`report.formats`, `report.terminal`, the pages) is a function of this record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

import msgspec

if TYPE_CHECKING:
    from opensafeintent.statistics import Estimate

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

# fmt: off
Part = Literal[
    "n", "method", "bounds", "models", "pooled", "model", "rerun_se",
    "p", "p_adjusted", "detectable", "sets",
]
# fmt: on
"""What an estimate has beside its value and interval."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    """In files for programs; what a style adds to it is in `fields`."""
    heading: str | None = None
    """What people are shown above it; None where they are not shown it."""
    style: Style = "text"
    order: int = 0
    """People are shown columns of a lower order first."""
    part: Part | None = None
    """What it shows of the estimate of the last column before it that has values of its own; None
    for a column that has.
    """

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

    def cells(self, value: object) -> tuple[Cell, ...]:
        """Return the cells of `fields` for a value: a cell, the ends of a span, or an estimate;
        None is undefined.
        """
        if value is not None and self.part is not None:
            value = getattr(value, self.part)
        if value is None:
            return (None,) * len(self.fields)
        if self.style in ("interval", "signed"):
            estimate = cast("Estimate", value)
            return estimate.value, estimate.low, estimate.high
        return value if isinstance(value, tuple) else (cast("Cell", value),)


class Table(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A named table."""

    name: str
    """Of its files."""
    title: str
    section: Section | None = None
    """Of the page; None where it is on none."""
    columns: tuple[Column, ...]
    rows: Sequence[object]
    """Each a tuple of values, one for each column that is no `part`, or a record that has them by
    the columns' names.
    """
    notes: tuple[str, ...] = ()
    """What a reader should know, a line each."""
    bold: frozenset[int] = frozenset()
    """Indices of rows that the terminal sets off from the others."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs."""
        return tuple(field for column in self.columns for field in column.fields)

    @cached_property
    def cells(self) -> list[list[tuple[Cell, ...]]]:
        """Of each row, the cells of each column."""
        return [self._cells_of(row) for row in self.rows]

    def _cells_of(self, row: object) -> list[tuple[Cell, ...]]:
        own = [column for column in self.columns if column.part is None]
        values = row if type(row) is tuple else tuple(getattr(row, column.name) for column in own)
        assert len(values) == len(own), self.name
        rest = iter(values)
        cells = []
        value: object = None
        for column in self.columns:
            if column.part is None:
                value = next(rest)
            cells.append(column.cells(value))
        return cells

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

    def hiding(self, *names: str) -> Table:
        """Return the table in which people are not shown some columns."""
        columns = tuple(
            msgspec.structs.replace(column, heading=None) if column.name in names else column
            for column in self.columns
        )
        return msgspec.structs.replace(self, columns=columns)

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows by field."""
        fields = self.fields
        return [
            dict(zip(fields, (cell for cells in row for cell in cells), strict=True))
            for row in self.cells
        ]


_PART_STYLES: dict[Part, Style] = {
    "n": "count",
    "bounds": "span",
    "models": "count",
    "pooled": "number",
}


def estimate_columns(
    name: str,
    heading: str | None,
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
        style: of the value.
        parts: which parts files have.
        headings: of the parts that people are shown.
        order: of those parts.
    """
    shown = headings or {}
    of_parts = (
        Column(
            f"{name}_{part}",
            shown.get(part),
            _PART_STYLES.get(part, "text"),
            order=order,
            part=part,
        )
        for part in parts
    )
    return Column(name, heading, style), *of_parts
