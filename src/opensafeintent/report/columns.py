"""A table: its columns and rows.

A column has its values' names for programs and their style for people. Every format, the pages
among them, is a function of this record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, cast

import msgspec

from opensafeintent.report.values import Cell, Style, in_unit
from opensafeintent.statistics import Estimate

_MEASURED = ("number", "gap", "interval", "signed", "span")
"""Styles of numbers that have the unit of their metric."""


# fmt: off
Section = Literal[
    "headline", "utility", "strata", "modes", "stability", "probe", "stated_policy",
    "comparisons", "coverage", "judges", "request_swap", "judge_check", "correction", "gates",
    "numbers", "method",
]
# fmt: on
"""Sections of the page of a run."""


# fmt: off
Part = Literal[
    "n", "method", "bounds", "worst_case", "models", "pooled", "model", "rerun_se",
    "p_unadjusted", "p_adjusted", "minimum_detectable_difference", "pairs", "sets",
]
# fmt: on
"""Fields of an estimate besides its value and interval."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    """In files for programs; `fields` has the suffixes of a style."""
    heading: str | None = None
    """Its heading for people; None if they do not see it."""
    style: Style = "text"
    order: int = 0
    """People are shown columns of a lower order first."""
    part: Part | None = None
    """The field that it shows of the estimate of the last column before it that has values of its
    own; None for a column with values.
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
        if isinstance(value, Estimate):
            return value.value, value.low, value.high
        return value if isinstance(value, tuple) else (cast("Cell", value),)


class Table(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A named table."""

    name: str
    """Of its files."""
    title: str
    section: Section | None = None
    """Of the page; None if it is on none."""
    columns: tuple[Column, ...]
    rows: Sequence[object]
    """Each a tuple of values, one for each column that is no `part`, or a record that has them by
    the columns' names.
    """
    notes: tuple[str, ...] = ()
    """Notes for a reader, a line each."""
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
        cells, estimates = [], []
        value: object = None
        for column in self.columns:
            if column.part is None:
                value = next(rest)
            cells.append(column.cells(value))
            estimates.append(value)
        if "metric" in (names := [column.name for column in self.columns]):
            names = [str(cells[names.index("metric")][0])] * len(names)
        return [
            in_unit(name, own, value) if column.style in _MEASURED else own
            for name, column, own, value in zip(names, self.columns, cells, estimates, strict=True)
        ]

    @property
    def shown(self) -> list[tuple[int, Column]]:
        """The columns for people, with their index, in the order of display."""
        headed = (
            (index, column)
            for index, column in enumerate(self.columns)
            if column.heading is not None
        )
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
    "worst_case": "span",
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
    """Return the columns of an estimate: its value with the interval, and its other fields for
    files.

    Args:
        name: of the value; a part is called `NAME_PART`.
        heading: of the value.
        style: of the value.
        parts: the fields in files.
        headings: of the parts that people see.
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
