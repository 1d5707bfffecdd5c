"""Tables as the page's script reads them: column by column, a repeated text once, a group's rows apart from another's."""

from __future__ import annotations

import msgspec

from opensafeintent.report.table import Cell, Table

__all__ = ["GROUP", "PageTable", "of_group", "page_table"]

_MOST_CELLS = 400_000
"""A table with more is shown in part; the whole is in the folder `tables`."""
GROUP = "group"
"""The column that tells groups apart."""


class PageColumn(msgspec.Struct, frozen=True, array_like=True):
    """One column: numbers as they are, texts as places in a list of words."""

    name: str
    values: list[Cell]
    words: list[str] | None = None


class PageTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table of one group."""

    name: str
    title: str
    shown: list[tuple[str, str, str]]
    """(source, heading, style) of each column as people are shown it; see `report.tables.Column`."""
    columns: list[PageColumn]
    rows: int
    of: int
    """Rows that the table has."""


def of_group(table: Table, number: int) -> Table:
    """Return a table's rows of one group, numbered from 1, without the column that tells groups apart."""
    alone = [msgspec.structs.replace(column, heading=None) if column.name == GROUP else column for column in table.columns]
    return msgspec.structs.replace(table, rows=[row for row in table.rows if row.group == number - 1], columns=tuple(alone))


def page_table(table: Table) -> PageTable:
    """Return a table in the form that the page's script reads."""
    fields = table.fields
    kept = table.cells[: max(1, _MOST_CELLS // max(1, len(fields)))]
    rows = [[cell for cells in row for cell in cells] for row in kept]
    return PageTable(
        name=table.name,
        title=table.title,
        shown=[(column.name, column.heading or "", column.style) for _, column in table.shown],
        columns=[_column(name, [row[at] for row in rows]) for at, name in enumerate(fields)],
        rows=len(kept),
        of=len(table.cells),
    )


def _column(name: str, values: list[Cell]) -> PageColumn:
    if not any(isinstance(value, str) for value in values):
        return PageColumn(name, [round(value, 6) if isinstance(value, float) else value for value in values])
    words: dict[str, int] = {}
    places: list[Cell] = [None if value is None else words.setdefault(str(value), len(words)) for value in values]
    return PageColumn(name, places, list(words))
