"""A table: its columns and rows.

A column says where its value comes from, what it is called for programs, and its style for people.
Every format, the pages among them, is a function of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal, Never, TypeVar

import msgspec

from opensafeintent.metrics import Unit
from opensafeintent.report.values import Cell, Scalar, Style, is_fine
from opensafeintent.statistics import Estimate

# fmt: off
Section = Literal[
    "headline", "utility", "strata", "modes", "stability", "probe", "stated_policy",
    "second_turn", "comparisons", "coverage", "judges", "judge_shift", "request_swap",
    "judge_check",
    "judge_labels", "correction", "gates",
    "numbers", "method",
]
# fmt: on
"""Sections of the page of a run."""

Part = Literal["n", "method", "bounds", "worst_case", "models", "pooled"]
"""Fields of an estimate besides its value and interval."""

Value = Scalar | tuple[Scalar, ...] | Estimate
"""A scalar, the ends of a span, or an estimate; None is undefined."""

Row_contra = TypeVar("Row_contra", contravariant=True)
Row = TypeVar("Row")


class Column(msgspec.Struct, Generic[Row_contra], frozen=True):
    """A column of a table."""

    name: str
    """In files for programs; `fields` has the suffixes of a style."""
    of: Callable[[Row_contra], Value]
    """Its value in a row."""
    heading: str | None = None
    """Its heading for people; None if they do not see it."""
    style: Style = "text"
    unit: Unit | Callable[[Row_contra], Unit] = "score"
    """Of its values, or of that in a row."""
    order: int = 0
    """People are shown columns of a lower order first."""
    estimate: Callable[[Row_contra], Estimate | None] | None = None
    """The estimate that it is a part of: its interval decides on decimals."""
    most_items: int | None = None
    """Items, parted by semicolons, of which a table for a document has no more; None has all."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs that it fills."""
        match self.style:
            case "interval" | "signed":
                return self.name, f"{self.name}_low", f"{self.name}_high"
            case "span" | "signed_span" | "ranks":
                return f"{self.name}_low", f"{self.name}_high"
            case _:
                return (self.name,)

    def cell(self, row: Row_contra) -> Cell:
        """Return its cell in a row."""
        value = self.of(row)
        unit = self.unit if isinstance(self.unit, str) else self.unit(row)
        estimate = value if self.estimate is None else self.estimate(row)
        fine = (
            unit == "share"
            and isinstance(estimate, Estimate)
            and is_fine(estimate.low, estimate.high)
        )
        return Cell(self._scalars(value), unit, fine)

    def _scalars(self, value: Value) -> tuple[Scalar, ...]:
        if value is None:
            return (None,) * len(self.fields)
        if isinstance(value, Estimate):
            return value.value, value.low, value.high
        return value if isinstance(value, tuple) else (value,)


Columns = Column[Row] | Sequence[Column[Row]]
"""A column, or several together."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A named table."""

    name: str
    """Of its files."""
    title: str
    section: Section | None = None
    """Of the page; None if it is on none."""
    columns: tuple[Column[Never], ...]
    rows: Sequence[Sequence[Cell]]
    """Each with a cell for each column."""
    notes: tuple[str, ...] = ()
    """Notes for a reader, a line each."""
    bold: frozenset[int] = frozenset()
    """Indices of rows that the terminal sets off from the others."""
    confidence: float = 0.95
    """Of the intervals in its brackets."""

    @classmethod
    def of(
        cls,
        columns: Iterable[Columns[Row]],
        rows: Iterable[Row],
        *,
        name: str,
        title: str,
        section: Section | None = None,
        notes: tuple[str, ...] = (),
        bold: frozenset[int] = frozenset(),
        confidence: float = 0.95,
    ) -> Table:
        """Return the table of some records, a row for each of them."""
        single: list[Column[Row]] = []
        for item in columns:
            single += [item] if isinstance(item, Column) else item
        return cls(
            name=name,
            title=title,
            section=section,
            columns=tuple(single),
            rows=[tuple(column.cell(row) for column in single) for row in rows],
            notes=notes,
            bold=bold,
            confidence=confidence,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs."""
        return tuple(field for column in self.columns for field in column.fields)

    @property
    def shown(self) -> list[tuple[int, Column[Never]]]:
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

    def only(self, keep: Callable[[Mapping[str, Scalar]], bool]) -> Table:
        """Return the table with those of its rows that `keep` selects by their fields."""
        rows = [row for row, record in zip(self.rows, self.records(), strict=True) if keep(record)]
        return msgspec.structs.replace(self, rows=rows)

    def records(self) -> list[dict[str, Scalar]]:
        """Return the rows by field."""
        fields = self.fields
        return [
            dict(zip(fields, (value for cell in row for value in cell.fields), strict=True))
            for row in self.rows
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
    of: Callable[[Row], Estimate | None],
    heading: str | None,
    *,
    style: Literal["interval", "signed"] = "interval",
    unit: Unit | Callable[[Row], Unit] = "score",
    parts: Iterable[Part] = ("n",),
    headings: Mapping[Part, str] | None = None,
    order: int = 0,
) -> tuple[Column[Row], ...]:
    """Return the columns of an estimate: its value with the interval, and its other fields for
    files.

    Args:
        name: of the value; a part is called `NAME_PART`.
        of: the estimate of a row.
        heading: of the value.
        style: of the value.
        unit: of the value.
        parts: the fields in files.
        headings: of the parts that people see.
        order: of those parts.
    """
    shown = headings or {}
    part_columns = (
        Column(
            f"{name}_{part}",
            _part_of(of, part),
            shown.get(part),
            _part_style(part, style),
            unit,
            order,
            of,
        )
        for part in parts
    )
    return Column(name, of, heading, style, unit), *part_columns


def _part_style(part: Part, style: Style) -> Style:
    """Return the style of a part of an estimate; of a difference, its spans are differences too."""
    own = _PART_STYLES.get(part, "text")
    return "signed_span" if own == "span" and style == "signed" else own


def _part_of(
    of: Callable[[Row], Estimate | None], part: Part
) -> Callable[[Row], Scalar | tuple[Scalar, ...]]:
    def value(row: Row) -> Scalar | tuple[Scalar, ...]:
        estimate = of(row)
        part_value: Scalar | tuple[Scalar, ...] = (
            None if estimate is None else getattr(estimate, part)
        )
        return part_value

    return value
