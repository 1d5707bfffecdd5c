"""What `dataset check` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opensafeintent.cli.printing import new_console, plain
from opensafeintent.construction.controls.records import Artefacts, DatasetCheck, Difference, Evenness, Parity, TellingWord
from opensafeintent.hostile import one_line
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_LABELS

__all__ = ["show_check"]

_MEASURES = {"words": "Words", "characters": "Characters", "readability": "Readability"}
_DASH = "–"
_WIDEST = 100
"""Columns beyond which lines of text are hard to read."""


def show_check(found: DatasetCheck, out: Path | None) -> None:
    """Print the tables of a check, then what they say, and where it was written."""
    console = new_console()
    console.print(plain(one_line(f"{found.dataset}: {found.sets:,} prompt-sets, {found.prompts:,} prompts", 1000)))
    console.print(f"sha256 {found.hash}")
    _show_balance(console, found)
    _show_parity(console, found.parity)
    if found.artefacts:
        _show_artefacts(console, found.artefacts)
    console.print("\nFindings", style="bold")
    for finding in found.findings:
        _show_point(console, finding)
    for reason in found.left_out:
        _show_point(console, f"left out: {reason}", style="yellow")
    if out is not None:
        console.print(plain(f"\nWritten to {out}: check.md, check.json, tables/"), soft_wrap=True)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", overflow="fold")
    return table


def _show_point(console: Console, text: str, style: str = "") -> None:
    """Print a paragraph that starts with a dash, its further lines set in."""
    width = min(console.width, _WIDEST)
    for line in wrap(text, width, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False):
        console.print(plain(line), style=style)


def _show_balance(console: Console, found: DatasetCheck) -> None:
    groups = {
        "Cells": found.balance.cells,
        "Harm domains": found.balance.harm_domains,
        "Task types": found.balance.task_types,
    }
    console.print()
    table = _table("Balance", "Number", "Empty", "Fewest sets", "Most sets", "Evenness")
    for name, counts in groups.items():
        table.add_row(name, *_balance_cells(counts))
    console.print(table)
    empty = [f"{count.harm_domain} × {count.task_type}" for count in found.balance.counts if not count.sets]
    if empty:
        console.print(plain(one_line(f"Empty: {'; '.join(empty)}", 600)), style="dim")


def _balance_cells(counts: Evenness) -> tuple[str, ...]:
    numbers = (counts.groups, counts.empty, counts.least, counts.most)
    return *map(str, numbers), _DASH if counts.evenness is None else f"{counts.evenness:.3f}"


def _show_parity(console: Console, parity: Sequence[Parity]) -> None:
    console.print()
    spreads = _table("Mean (median) of", *INTENT_LABELS.values())
    for part in parity:
        cells = [_DASH if item.mean is None else f"{item.mean:.1f} ({item.median:.1f})" for item in part.intents]
        spreads.add_row(_MEASURES[part.measure], *cells)
    console.print(spreads)
    console.print()
    differences = _table("Difference within a set", "Mean", "95 % interval", "d_z", "More / less in", "p")
    for part in parity:
        differences.add_row(_MEASURES[part.measure])
        for pair in part.pairs:
            of = f"  {INTENT_LABELS[pair.first].lower()} − {INTENT_LABELS[pair.second].lower()}"
            differences.add_row(of, *_difference_cells(pair))
    console.print(differences)


def _difference_cells(pair: Difference) -> tuple[str, ...]:
    mean = _DASH if pair.mean is None else f"{pair.mean:+.1f}"
    span = _DASH if pair.low is None or pair.high is None else f"{pair.low:+.1f} to {pair.high:+.1f}"
    effect = _DASH if pair.standardised is None else f"{pair.standardised:+.2f}"
    shares = _DASH if pair.greater is None or pair.less is None else f"{pair.greater * 100:.0f} / {pair.less * 100:.0f} %"
    p = _DASH if pair.p_holm is None else "<0.001" if pair.p_holm < 0.001 else f"{pair.p_holm:.3f}"
    return mean, span, effect, shares, p


def _show_artefacts(console: Console, artefacts: Artefacts) -> None:
    console.print()
    accuracies = _table("Intent told from words alone", "Accuracy", "95 % interval", "Chance")
    for item in artefacts.accuracies:
        among = (
            " or ".join(INTENT_LABELS[intent].lower() for intent in item.intents) if len(item.intents) == 2 else "all three"
        )
        span = f"{item.low * 100:.1f} to {item.high * 100:.1f}"
        accuracies.add_row(among.capitalize(), f"{item.value * 100:.1f} %", span, f"{item.chance * 100:.1f} %")
    console.print(accuracies)
    by_intent = [[word for word in artefacts.words if word.intent == intent] for intent in CORE_VARIANTS]
    if not any(by_intent):
        return
    console.print()
    words = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
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
