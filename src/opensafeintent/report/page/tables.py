"""Tables as the page's script reads them: column by column, a repeated text once, a group's rows apart from another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from opensafeintent.analysis.sensitivity import SENSITIVE, Change

if TYPE_CHECKING:
    from opensafeintent.report.tables import Cell, Table

__all__ = ["PageTable", "of_group", "page_table", "with_and_without"]

_MOST_CELLS = 400_000
"""A table with more is shown in part; the whole is in the folder `tables`."""
_GROUP = "group"


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


def of_group(table: Table, number: int, *, groups: int) -> Table:
    """Return a table's rows of one group, numbered from 1, without the column that tells groups apart."""
    if _GROUP not in table.columns:
        return table
    at = table.columns.index(_GROUP)
    if groups == 1:
        return table
    return msgspec.structs.replace(
        table,
        rows=tuple(row for row in table.rows if row[at] == number),
        shown=tuple(column for column in table.shown if column.source != _GROUP),
    )


def page_table(table: Table) -> PageTable:
    """Return a table in the form that the page's script reads."""
    kept = table.rows[: max(1, _MOST_CELLS // max(1, len(table.columns)))]
    return PageTable(
        name=table.name,
        title=table.title,
        shown=[(column.source, column.heading, column.style) for column in table.shown]
        or [(name, name, "text") for name in table.columns],
        columns=[_column(name, [row[at] for row in kept]) for at, name in enumerate(table.columns)],
        rows=len(kept),
        of=len(table.rows),
    )


def _column(name: str, values: list[Cell]) -> PageColumn:
    if not any(isinstance(value, str) for value in values):
        return PageColumn(name, [round(value, 6) if isinstance(value, float) else value for value in values])
    words: dict[str, int] = {}
    places: list[Cell] = [None if value is None else words.setdefault(str(value), len(words)) for value in values]
    return PageColumn(name, places, list(words))


def with_and_without(found: Sequence[Change]) -> Table:
    """Return the headline metrics with and without filtered and truncated responses, a line for each model."""
    from opensafeintent.report.tables import Column, Table

    by_line: dict[tuple[str, str, int], dict[str, Change]] = {}
    for change in found:
        by_line.setdefault((change.model, change.left_out, change.responses), {})[change.metric] = change
    rows: list[tuple[Cell, ...]] = []
    for (model, left_out, responses), changes in by_line.items():
        ordered = [changes[metric] for metric in SENSITIVE]
        cells = [cell for change in ordered for cell in (change.before, change.value, change.low, change.high)]
        rows.append((model, left_out, responses, *cells, ordered[0].n))
    parts = ("", "_without", "_without_low", "_without_high")
    headings = ("Triplet Safety", "Mean Utility", "Mean Safety", "Worst-Case Utility")
    return Table(
        name="with_and_without",
        title="Results with and without filtered and truncated responses",
        columns=("model", "left_out", "responses", *(f"{metric}{part}" for metric in SENSITIVE for part in parts), "n"),
        rows=tuple(rows),
        shown=(
            Column("model", "Model", "name"),
            Column("left_out", "Left out"),
            Column("responses", "Core responses", "count"),
            *(
                column
                for metric, heading in zip(SENSITIVE, headings, strict=True)
                for column in (Column(metric, heading, "number"), Column(f"{metric}_without", "without", "interval"))
            ),
            Column("n", "Sets left", "count"),
        ),
        notes=(
            "A response taken by the provider's filter counts as a refusal, one cut by the token limit is graded as it "
            "stands. Without them a metric is over the sets in which there is none.",
        ),
    )
