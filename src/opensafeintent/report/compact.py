"""A table for people, as text: numbers in their unit, metrics under their labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Never

from opensafeintent.report.columns import Column, Table
from opensafeintent.report.glossary import labels
from opensafeintent.report.values import DASH, Cell, Style, text

_INTERVAL = re.compile(r"\[[+−]?\d[\d.,]*, [+−]?\d[\d.,]*\]")
"""The limits of an interval as people see them, as in `[0.52, 0.60]`."""


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
    rows = [tuple(_text(column, row[index]) for index, column in shown) for row in table.rows]
    return Compact(
        tuple(" ".join((column.heading or "").split()) for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


def explained(table: Table, content: Compact) -> tuple[str, ...]:
    """Return the notes of a table and, last, what the signs that occur in it mean: a dash, and the
    brackets of an interval.

    Args:
        table: the table.
        content: its text, as people see it.
    """
    signs = []
    if any(DASH in row for row in content.rows):
        signs.append(f"{DASH} is undefined or does not apply.")
    if _has_interval(table, content):
        signs.append(f"Brackets hold the {100 * table.confidence:g} % interval.")
    return (*table.notes, " ".join(signs)) if signs else table.notes


def _has_interval(table: Table, content: Compact) -> bool:
    """Tell whether any cell or note has an interval in brackets; a name has none."""
    cells = (
        cell
        for row in content.rows
        for cell, style in zip(row, content.styles, strict=True)
        if style != "name"
    )
    return any(map(_INTERVAL.search, (*table.notes, *cells)))


def _cells(table: Table, index: int) -> Iterator[Cell]:
    return (row[index] for row in table.rows)


def _is_empty(cell: Cell) -> bool:
    return all(value is None or value == "" for value in cell.fields)


def _text(column: Column[Never], cell: Cell) -> str:
    """Return a cell as people see it; the name of a metric or an intent is its label."""
    shown = text(column.style, cell)
    if column.style != "text":
        return shown
    return labels().get(shown, _first_items(shown, column.most_items))


def _first_items(items: str, most: int | None) -> str:
    """Return at most some of the items of a text, and how many there are more."""
    first = items.split("; ")
    if most is None or len(first) <= most:
        return items
    return "; ".join((*first[:most], f"and {len(first) - most} more"))
