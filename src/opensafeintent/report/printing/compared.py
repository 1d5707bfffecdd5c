"""The results of `compare`: differences, verdicts, ranks and changed prompt-sets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from rich.console import Console

from opensafeintent.files import near
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.gates import Transitions
from opensafeintent.numbers.metrics import METRICS, PRIMARY
from opensafeintent.report.findings import compare_pair
from opensafeintent.report.printing.console import (
    pair_tables,
    plain,
    print_table,
    rank_table,
    shown_name,
)
from opensafeintent.report.printing.results import show_heading, show_transitions
from opensafeintent.report.tables_comparisons import (
    PairRow,
    by_family,
)
from opensafeintent.responses import GradedResponse

_FEW_PAIRS = 3


_MOST_PAIRS = 10
"""Of many pairs, those that have a sentence."""


_VERDICTS = (*PRIMARY, "mean_safety")


def show_comparisons(
    console: Console,
    cohort: Cohort,
    transitions: Sequence[Transitions],
    runs: Sequence[Path],
) -> None:
    """Print the differences of every two models of runs in the primary metrics, the ranks that they
    leave open, and the prompt-sets that they answer differently.
    """
    console.print()
    show_heading(console, cohort)
    for metric in PRIMARY:
        for table in pair_tables(cohort, metric):
            console.print(plain(table.title), style="italic")
            print_table(console, table)
            console.print()
        print_table(console, rank_table(cohort, metric), notes=True)
        console.print()
    _show_identical(console, cohort)
    for metric in _VERDICTS:
        console.print(plain(_verdicts(cohort, metric)))
    pairs = {(change.model, change.against) for change in transitions}
    if len(runs) > 1 or 0 < len(pairs) <= _FEW_PAIRS:
        show_transitions(console, transitions)
    else:
        listed = f"opensafeintent trace {shlex.quote(str(near(runs[0])))} --differs safety"
        further = "; --out DIR writes those of every two models" if pairs else ""
        console.print(
            plain(
                f"\nPrompt-sets that models answer differently: {listed}, with --model for some of"
                f" them{further}"
            ),
            soft_wrap=True,
        )


def _show_identical(console: Console, cohort: Cohort) -> None:
    """Name the pairs of models with the same grades."""
    grades = [[_grades(row) for row in rows] for rows in cohort.rows.values()]
    for (first, its_grades), (second, other_grades) in combinations(
        zip(cohort.models, grades, strict=True), 2
    ):
        if its_grades == other_grades:
            names = f"{shown_name(first)} and {shown_name(second)}"
            console.print(plain(f"{names}: identical data, nothing tested"))


def _grades(row: GradedResponse) -> tuple[object, ...]:
    return row.set_id, row.variant, row.epoch, row.helpfulness, row.harm_severity, row.mode


def _verdicts(cohort: Cohort, metric: str) -> str:
    """Say which models are better in a metric, pair by pair; of many pairs only those that are
    decided. Pairs with a baseline come after the models under test.
    """
    texts = []
    which = ""
    for pairs in by_family(cohort, metric):
        texts.append(_verdicts_on(cohort, metric, pairs, which))
        which = "with a baseline "
    return "\n".join(texts)


def _verdicts_on(cohort: Cohort, metric: str, pairs: Sequence[PairRow], which: str) -> str:
    many = len(pairs) > _FEW_PAIRS
    shown = [pair for pair in pairs if pair.difference.leaves_out_zero] if many else list(pairs)
    place = cohort.models.index
    lines = [
        said.text.replace("\u00a0", " ")
        for pair in shown[:_MOST_PAIRS]
        if (said := compare_pair(cohort, metric, place(pair.model_a), place(pair.model_b)))
    ]
    if many:
        decided = sum(pair.difference.claimed for pair in shown)
        count = f"{decided:,} of {len(pairs):,} pairs {which}are decided"
        colon = ":" if shown else ""
        lines.insert(0, f"{METRICS[metric].label}: {count}{colon}")
    if len(shown) > _MOST_PAIRS:
        lines.append(f"… and {len(shown) - _MOST_PAIRS:,} more; --out DIR writes every pair")
    return "\n".join(lines)


def may_look_again(cohort: Cohort) -> bool:
    """Whether a sentence of a verdict names the sample that would decide it."""
    families = [pairs for metric in _VERDICTS for pairs in by_family(cohort, metric)]
    return any(
        pair.difference.deciding and not pair.difference.leaves_out_zero
        for pairs in families
        if len(pairs) <= _FEW_PAIRS
        for pair in pairs
    )
