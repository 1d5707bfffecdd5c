"""What `dataset check` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from opensafeintent.cli.printing import new_console, print_table
from opensafeintent.construction.controls.records import Artefacts, DatasetCheck, TellingWord
from opensafeintent.hostile import one_line
from opensafeintent.report.tables.checks import check_tables
from opensafeintent.report.terminal import grid, plain
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_LABELS

_WIDEST = 100
"""Columns beyond which lines of text are hard to read."""


def show_check(found: DatasetCheck, out: Path | None) -> None:
    """Print the tables of a check, then what they say, and where it was written."""
    console = new_console()
    console.print(
        plain(
            one_line(
                f"{found.dataset}: {found.sets:,} prompt-sets, {found.prompts:,} prompts", 1000
            )
        )
    )
    console.print(f"sha256 {found.hash}")
    tables = {table.name: table for table in check_tables(found)}
    for name in ("balance", "lengths", "differences", "classifier"):
        if tables[name].rows:
            console.print(f"\n{tables[name].title}", style="italic")
            print_table(console, tables[name])
        if name == "balance" and (empty := _empty(found)):
            console.print(plain(empty), style="dim")
    if found.artefacts:
        _show_words(console, found.artefacts)
    console.print("\nFindings", style="bold")
    for finding in found.findings:
        _show_point(console, finding)
    for reason in found.left_out:
        _show_point(console, f"left out: {reason}", style="yellow")
    if out is not None:
        console.print(plain(f"\nWritten to {out}: check.md, check.json, tables/"), soft_wrap=True)


def _show_point(console: Console, text: str, style: str = "") -> None:
    """Print a paragraph that starts with a dash, its further lines set in."""
    width = min(console.width, _WIDEST)
    for line in wrap(
        text, width, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    ):
        console.print(plain(line), style=style)


def _empty(found: DatasetCheck) -> str:
    empty = [
        f"{count.harm_domain} × {count.task_type}"
        for count in found.balance.counts
        if not count.sets
    ]
    return one_line(f"Empty: {'; '.join(empty)}", 600) if empty else ""


def _show_words(console: Console, artefacts: Artefacts) -> None:
    by_intent = [
        [word for word in artefacts.words if word.intent == intent] for intent in CORE_VARIANTS
    ]
    if not any(by_intent):
        return
    console.print()
    words = grid()
    for name in INTENT_LABELS.values():
        words.add_column(f"Speaks for\n{name.lower()}", no_wrap=True)
        words.add_column("sets\nb/d/m", justify="right", style="dim", no_wrap=True)
    for row in range(max(map(len, by_intent))):
        words.add_row(*(cell for listed in by_intent for cell in _word_cells(listed, row)))
    console.print(words)


def _word_cells(listed: Sequence[TellingWord], row: int) -> tuple[Text, str]:
    if row >= len(listed):
        return Text(""), ""
    word = listed[row]
    return plain(one_line(word.word, 14)), f"{word.benign}/{word.dual_use}/{word.malicious}"
