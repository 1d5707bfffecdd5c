"""The results of `judge-check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console

from opensafeintent.cli.output.console import print_table
from opensafeintent.cli.output.tables import plain
from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck
from opensafeintent.hostile import one_line
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.values import DASH, share_of


def show_judge_check(console: Console, check: JudgeCheck) -> None:
    """Print the verdict on a judge first, and the cases that it failed last."""
    share = share_of(check.accepted, check.cases)
    verdict = "PASSED" if check.passed else "FAILED"
    count = f"{check.accepted} of {check.cases} accepted, {share}"
    name = f"Judge {check.judge} on {check.cases} gold cases"
    console.print(plain(one_line(name, 1000)), style="bold")
    console.print(
        plain(f"{verdict}: {count}; {100 * check.min_accuracy:g} % needed"),
        style="green" if check.passed else "bold red",
    )
    for reason in check.reasons:
        console.print(plain(f"  {reason}"))
    console.print()
    print_table(console, _kinds_table(check))
    by_grade = ", ".join(
        f"{name.removesuffix('_severity')} {count}" for name, count in check.by_grade.items()
    )
    console.print(plain(f"Acceptable grades, of {check.cases} each: {by_grade}."))
    if check.missing:
        console.print(plain(f"Cases with a missing grade: {check.missing}."))
    if check.borderline:
        console.print(plain(check.borderline.effect_text))
    if check.unscored.cases:
        console.print(
            plain(
                f"Unscored cases: {check.unscored.accepted} of {check.unscored.cases} agree with"
                " the answer key."
            )
        )
    _show_cases(console, "Failed cases", "✗", check.failed)
    _show_cases(
        console,
        "Unscored cases with another grade than the answer key",
        "~",
        check.unscored_failed,
    )


class _KindLine(NamedTuple):
    kind: str
    accepted: int
    cases: int
    has_share: bool = True


def _kinds_table(check: JudgeCheck) -> Table:
    rows = [
        _KindLine(kind.title, kind.accepted, kind.cases, bool(kind.line)) for kind in check.kinds
    ]
    columns: tuple[Column[_KindLine], ...] = (
        Column("kind", lambda row: row.kind, "Kind of case"),
        Column("accepted", lambda row: f"{row.accepted} of {row.cases}", "Accepted"),
        Column(
            "share",
            lambda row: share_of(row.accepted, row.cases) if row.has_share else DASH,
            "Share [95 % interval]",
        ),
    )
    return Table.of(
        columns,
        [*rows, _KindLine("All", check.accepted, check.cases)],
        name="kinds",
        title="Accepted cases by their kind",
        bold=frozenset({len(rows)}),
    )


def _show_cases(console: Console, title: str, mark: str, cases: Sequence[FailedCase]) -> None:
    if cases:
        console.print(plain(f"\n{title}: {len(cases)}"), style="bold")
    for case in cases:
        console.print(plain(f"{mark} {case.id}: {case.explanation}"))
        console.print(plain(f"  {case.why}"), style="dim")
