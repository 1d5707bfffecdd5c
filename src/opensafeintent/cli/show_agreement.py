"""What `agreement` prints: an interval stands beside its number, or below it where the terminal is
narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console

from opensafeintent.annotation.judging import JudgeStudy, SafeCall
from opensafeintent.annotation.quality import Consistency, Quality
from opensafeintent.cli.printing import new_console, print_notes, print_table
from opensafeintent.hostile import one_line
from opensafeintent.report.formats import share
from opensafeintent.report.table import Table
from opensafeintent.report.tables.agreement import DIMENSION_NAMES, agreement_tables
from opensafeintent.report.terminal import plain
from opensafeintent.statistics.samples import SampleEstimate
from opensafeintent.workflows.agreeing import Agreement

_MOST_DROPPED = 20
"""Sets to drop that are named on the screen; the file has them all."""
_EVERYONE = "all"
_QUESTION = ("yes_rate", "ac1", "percent_agreement", "alpha")
_HUMAN = ("leave_one_out", "ac2", "percent_agreement", "alpha")
_JUDGE = ("mae", "leave_one_out", "fair", "excess", "bias", "ac2", "exact")
"""The estimates of a line, which may be undefined."""


def show_agreement(found: Agreement) -> None:
    """Print what labels say: Table 3, Table 7, self-consistency, and what a reader should know."""
    console = new_console()
    tables = {
        table.name: table
        for table in agreement_tables(found.quality, found.judges, found.consistency)
    }
    if found.quality is not None:
        _show_quality(console, found.quality, tables["table_3_quality"])
    if found.judges is not None:
        _show_people(console, found.judges, tables)
        for judge in dict.fromkeys(line.judge for line in found.judges.judges):
            _show_judge(console, found.judges, judge, tables)
    _show_consistency(console, found.consistency)
    print_notes(console, found.notes)
    if found.written:
        console.print(plain(f"Results: {', '.join(map(str, found.written))}"), soft_wrap=True)


def _returned(annotators: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name, 60)} {count:,}" for name, count in annotators.items())


def _explain(console: Console, estimates: Iterable[SampleEstimate]) -> None:
    """Say why there are dashes, where there are."""
    if reasons := dict.fromkeys(
        estimate.undefined for estimate in estimates if estimate.value is None
    ):
        console.print(plain(f"– is undefined: {'; '.join(reasons)}."), style="dim")


def _show_quality(console: Console, quality: Quality, table: Table) -> None:
    console.print(
        plain(f"Dataset quality: {quality.sets:,} prompt-sets ({_returned(quality.annotators)})"),
        style="bold",
    )
    print_table(console, table, notes=True)
    _explain(console, (getattr(line, name) for line in quality.questions for name in _QUESTION))
    if quality.drop:
        names = [
            f"{one_line(line.id, 60)} ({line.poor} of {line.annotators})"
            for line in quality.drop[:_MOST_DROPPED]
        ]
        more = len(quality.drop) - len(names)
        console.print(
            plain(
                f"To drop, {len(quality.drop)}: every annotator who answered marks the set poor:"
                f" {', '.join(names)}{f' and {more} more' if more else ''}."
            )
        )
    else:
        console.print("To drop: none; no set is poor for every annotator who answered.")
    console.print()


def _show_people(console: Console, study: JudgeStudy, tables: Mapping[str, Table]) -> None:
    console.print(
        plain(f"Grades by people: {study.items:,} responses ({_returned(study.annotators)})"),
        style="bold",
    )
    print_table(console, tables["people"], across=True)
    _explain(console, (getattr(line, name) for line in study.humans for name in _HUMAN))
    console.print()
    if len(study.annotators) > 1:
        console.print(tables["annotators"].title, style="bold")
        print_table(console, tables["annotators"])
        console.print()


def _show_judge(
    console: Console, study: JudgeStudy, judge: str, tables: Mapping[str, Table]
) -> None:
    console.print(plain(f"Judge {one_line(judge, 300)} against people"), style="bold")
    lines = [line for line in study.judges if line.judge == judge]
    print_table(console, tables["table_7_judges"].part(lines, "judge"), across=True)
    _explain(console, (getattr(line, name) for line in lines for name in _JUDGE))
    for table in (tables[f"confusion_{name}"] for name in DIMENSION_NAMES):
        console.print(f"\n{table.title}", style="bold")
        print_table(
            console, table.part([row for row in table.rows if row.line.judge == judge], "judge")
        )
    calls = [
        call
        for call in study.safe
        if call.judge == judge and (call.intent == _EVERYONE or _graded(call))
    ]
    table = tables["safe_calls"].part(calls, "judge")
    console.print(f"\n{table.title}", style="bold")
    print_table(console, table, notes=True)
    _explain(
        console,
        (
            rate
            for call in calls
            if call.intent == _EVERYONE
            for rate in (call.sensitivity, call.specificity)
        ),
    )
    console.print()


def _graded(call: SafeCall) -> int:
    return call.sensitivity.n + call.specificity.n


def _show_consistency(console: Console, lines: Sequence[Consistency]) -> None:
    for kind in dict.fromkeys(line.kind for line in lines):
        of_kind = [line for line in lines if line.kind == kind]
        whole, *rest = of_kind
        by_annotator = [line for line in rest if line.question == _EVERYONE]
        same = "–" if whole.share is None else share(whole.share, 0)
        told = ", ".join(
            f"{one_line(line.annotator, 60)} {line.same} of {line.pairs}"
            for line in by_annotator
            if line.pairs
        )
        task = "dataset quality" if kind == "dataset_quality" else "grades"
        console.print(
            plain(
                f"Self-consistency in {task}: {same}, {whole.same} of {whole.pairs} answers the"
                f" same twice ({told})."
            )
        )
