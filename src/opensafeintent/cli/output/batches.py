"""The batches of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opensafeintent.cli.options import say
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.printing.console import new_console, print_table

if TYPE_CHECKING:
    from opensafeintent.extensions.batches.overview import BatchLine


def show_batches(lines: Sequence[BatchLine]) -> None:
    """Print a line about each batch, the oldest first."""
    if not lines:
        say("No batches.")
        return
    columns: tuple[Column[BatchLine], ...] = (
        Column("model", lambda line: line.model, "Model", "name"),
        Column("batch", lambda line: line.batch, "Batch"),
        Column("state", lambda line: line.state, "State"),
        Column("calls", lambda line: line.calls, "Calls", "count"),
        Column("done", lambda line: line.done, "Done", "count"),
        Column("hours", lambda line: line.age, "Age"),
        Column("note", lambda line: line.note, "Note"),
    )
    print_table(new_console(), Table.of(columns, lines, name="batches", title="Batches"))
