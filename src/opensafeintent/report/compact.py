"""A table for people, as text: numbers in their unit, metrics under their labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opensafeintent.report.columns import Table
from opensafeintent.report.glossary import labels
from opensafeintent.report.values import Cell, Style, text


class Compact(NamedTuple):
    """A table for people: text throughout, each on one line."""

    headings: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: list[tuple[str, ...]]


def compact(table: Table, *, without_empty: bool = False) -> Compact:
    """Return a table's shown columns as text, not escaped for any format; all of them, or those
    with a value.
    """
    shown = [
        (index, column)
        for index, column in table.shown
        if not (without_empty and table.rows and all(map(_is_empty, _cells(table, index))))
    ]
    rows = [tuple(_text(column.style, row[index]) for index, column in shown) for row in table.rows]
    return Compact(
        tuple(" ".join((column.heading or "").split()) for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


def _cells(table: Table, index: int) -> Iterator[Cell]:
    return (row[index] for row in table.rows)


def _is_empty(cell: Cell) -> bool:
    return all(value is None or value == "" for value in cell.fields)


def _text(style: Style, cell: Cell) -> str:
    """Return a cell as people see it; the name of a metric or an intent is its label."""
    shown = text(style, cell)
    return labels().get(shown, shown) if style == "text" else shown
