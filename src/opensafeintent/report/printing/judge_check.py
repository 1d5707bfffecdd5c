"""The results of `judge-check` on the gold cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console

from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck
from opensafeintent.hostile import one_line
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.printing.console import print_table
from opensafeintent.report.printing.tables import plain
from opensafeintent.report.values import DASH, share_of

_MOST_CASES = 10


def show_judge_check(console: Console, check: JudgeCheck, *, verbose: bool = False) -> None:
    """Print the cases that a judge failed, and last the verdict on it.

    Args:
        console: the output.
        check: the results of the judge.
        verbose: whether all cases are printed with their rules, not ten at most, and the accepted
            ones by kind.
    """
    name = f"Judge {check.judge} on {check.cases} gold cases"
    console.print(plain(one_line(name, 1000)), style="bold")
    if verbose:
        print_table(console, _kinds_table(check))
    _show_cases(console, "Failed cases", "✗", check.failed, verbose=verbose)
    if verbose:
        title = "Unscored cases with another grade than the answer key"
        _show_cases(console, title, "~", check.unscored_failed, verbose=True)
    for line in _details(check):
        console.print(plain(line))
    share = share_of(check.accepted, check.cases)
    count = f"{check.accepted} of {check.cases} accepted, {share}"
    needed = f"{100 * check.min_accuracy:g} % needed"
    console.print(
        plain(f"{'PASSED' if check.passed else 'FAILED'}: {count}; {needed}"),
        style="green" if check.passed else "bold red",
    )
    for reason in check.reasons:
        console.print(plain(f"  {reason}"))


def _details(check: JudgeCheck) -> Iterator[str]:
    """Yield further results, a line each."""
    by_grade = ", ".join(
        f"{name.removesuffix('_severity')} {count}" for name, count in check.by_grade.items()
    )
    yield f"Acceptable grades, of {check.cases} each: {by_grade}."
    if check.missing:
        yield f"Cases with a missing grade: {check.missing}."
    if check.borderline:
        yield check.borderline.effect_text
    if check.unscored.cases:
        yield (
            f"Unscored cases: {check.unscored.accepted} of {check.unscored.cases} agree with the"
            " answer key."
        )


class _KindLine(NamedTuple):
    kind: str
    accepted: int
    cases: int
    has_share: bool = True


def _kinds_table(check: JudgeCheck) -> Table:
    rows = [
        _KindLine(kind.title, kind.accepted, kind.cases, kind.has_interval) for kind in check.kinds
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


def _show_cases(
    console: Console, title: str, mark: str, cases: Sequence[FailedCase], *, verbose: bool
) -> None:
    shown = cases if verbose else cases[:_MOST_CASES]
    more = f" ({len(shown)} shown; --verbose: all)" if len(shown) < len(cases) else ""
    if cases:
        console.print(plain(f"{title}: {len(cases)}{more}"), style="bold")
    for case in shown:
        console.print(plain(f"{mark} {case.id}: {case.explanation}"))
        if verbose:
            console.print(plain(f"  {case.why}"), style="dim")
