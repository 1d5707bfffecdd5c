"""What is in a dataset, and what its check found."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from opensafeintent.construction.controls import DatasetCheck
from opensafeintent.errors import counted
from opensafeintent.hostile import one_line
from opensafeintent.report.datasets import check_tables
from opensafeintent.report.printing.console import WIDEST, new_console, print_table
from opensafeintent.report.printing.tables import length_table, plain, taxonomy_table
from opensafeintent.workflows.datasets import DatasetInfo

_LONG = "words"
"""The table that is only in files: the findings name its first words."""


def show_dataset_info(info: DatasetInfo) -> None:
    """Print a dataset's counts per cell, lengths and hash."""
    console, dataset = new_console(), info.dataset
    sets, prompts = counted(len(dataset), "prompt-set"), counted(info.prompts, "prompt")
    console.print(plain(f"{dataset.name}: {sets}, {prompts}, {counted(len(info.cells), 'cell')}"))
    console.print(f"sha256 {dataset.hash}\n")
    print_table(console, taxonomy_table(dataset.taxonomy, info.cells))
    console.print()
    print_table(console, length_table(info.words))
    languages = ", ".join(
        f"{language} ({count})" for language, count in sorted(info.languages.items())
    )
    paraphrases = ", ".join(
        f"{number} ({counted(count, 'set')})" for number, count in sorted(info.paraphrases.items())
    )
    console.print(plain(f"\nLanguages: {languages}. Paraphrases: {paraphrases}."))


def show_check(checked: DatasetCheck, out: Path | None) -> None:
    """Print the tables of a check, then its findings, and the folder of its files."""
    console = new_console()
    name = one_line(checked.dataset, 1000)
    console.print(
        plain(
            f"{name}: {counted(checked.sets, 'prompt-set')}, {counted(checked.prompts, 'prompt')}"
        )
    )
    console.print(f"sha256 {checked.hash}")
    for table in check_tables(checked):
        if table.rows and table.name != _LONG:
            console.print(f"\n{table.title}", style="italic")
            print_table(console, table)
    console.print("\nFindings", style="bold")
    width = min(console.width, WIDEST)
    for finding in (*checked.findings, *(f"left out: {reason}" for reason in checked.left_out)):
        console.print(plain("- " + "\n  ".join(wrap(finding, width - 2, break_on_hyphens=False))))
    if out is not None:
        console.print(plain(f"\nWritten to {out}: check.md, check.json, tables/"), soft_wrap=True)
