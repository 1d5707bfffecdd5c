"""A table for people, as text: numbers in their unit, metrics under their labels."""

from __future__ import annotations

from typing import NamedTuple

from opensafeintent.report.columns import Table
from opensafeintent.report.glossary import labels
from opensafeintent.report.values import Cell, Style, text


class Compact(NamedTuple):
    """A table for people: text throughout, each on one line."""

    headings: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: list[tuple[str, ...]]


def compact(table: Table) -> Compact:
    """Return a table's shown columns as text, not escaped for any format."""
    shown = table.shown
    rows = [tuple(_text(column.style, row[index]) for index, column in shown) for row in table.rows]
    return Compact(
        tuple(" ".join((column.heading or "").split()) for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


def _text(style: Style, cell: Cell) -> str:
    """Return a cell as people see it; the name of a metric or an intent is its label."""
    shown = text(style, cell)
    return labels().get(shown, shown) if style == "text" else shown
