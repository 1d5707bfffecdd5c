"""What `compare --in-order` prints: each version, what changed from one to the next, and which prompt-sets newly fail."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from rich.console import Console

from opensafeintent.analysis.groups import Group
from opensafeintent.cli.printing import plain, print_notes, print_table
from opensafeintent.metrics import PRIMARY
from opensafeintent.report.table import Table
from opensafeintent.report.tables.versions import ONE_REPEAT, changes, drift, sets, trends, turnover, values
from opensafeintent.report.versions import version_cautions

__all__ = ["show_versions"]

_MOST_SETS = 10
"""Prompt-sets of the last step that are listed; all of them are in the table's file."""


def show_versions(console: Console, group: Group, tables: Path | None = None) -> None:
    """Print what is known of the versions of a group, where its runs are in order; `tables` says where all steps are."""
    if group.versions is None:
        return
    shown = [group]
    _show(console, values(shown))
    primary = changes(shown)
    _show(console, primary.part([row for row in primary.rows if row.metric in PRIMARY]), bold=True)
    _show(console, trends(shown))
    turned = turnover(shown)
    _show(console, turned)
    if not group.versions.repeated:
        console.print(plain(ONE_REPEAT), style="dim")
        console.print()
    listed = sets(shown)
    newest = [row for row in listed.rows if row.newer == group.versions.order.versions[-1].run][:_MOST_SETS]
    _show(console, listed.part(newest, "harm_domain", "task_type"))
    if more := len(listed.rows) - len(newest):
        where = f"in {tables / 'version_sets.csv'}" if tables else "in version_sets.csv, with --out"
        console.print(plain(f"… and {more:,} more: all steps are {where}"), style="dim", soft_wrap=True)
        console.print()
    _show(console, drift(shown))
    print_notes(console, [sentence.text for sentence in version_cautions(group)])


def _show(console: Console, table: Table, *without: str, bold: bool = False) -> None:
    if not table.rows:
        return
    console.print(plain(table.title), style="italic")
    print_table(console, table.part(table.rows, *without), bold=attrgetter("difference.beyond_chance") if bold else None)
    console.print()
