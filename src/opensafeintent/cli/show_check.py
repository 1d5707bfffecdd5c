"""What `dataset check` prints."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from opensafeintent.cli.printing import new_console, print_table
from opensafeintent.construction.controls.records import DatasetCheck
from opensafeintent.hostile import one_line
from opensafeintent.report.tables.checks import check_tables
from opensafeintent.report.terminal import plain

_WIDEST = 100
"""Columns beyond which lines of text are hard to read."""
_LONG = "words"
"""The table that is only in files: the findings name its first words."""


def show_check(found: DatasetCheck, out: Path | None) -> None:
    """Print the tables of a check, then its findings, and where it was written."""
    console = new_console()
    name = one_line(found.dataset, 1000)
    console.print(plain(f"{name}: {found.sets:,} prompt-sets, {found.prompts:,} prompts"))
    console.print(f"sha256 {found.hash}")
    for table in check_tables(found):
        if table.rows and table.name != _LONG:
            console.print(f"\n{table.title}", style="italic")
            print_table(console, table)
    console.print("\nFindings", style="bold")
    width = min(console.width, _WIDEST)
    for finding in (*found.findings, *(f"left out: {reason}" for reason in found.left_out)):
        paragraph = wrap(finding, width - 2, break_on_hyphens=False)
        console.print(plain("- " + "\n  ".join(paragraph)))
    if out is not None:
        console.print(plain(f"\nWritten to {out}: check.md, check.json, tables/"), soft_wrap=True)
