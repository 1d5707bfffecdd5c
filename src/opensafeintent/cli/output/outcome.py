"""The results of commands that evaluate, report or check judges."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from opensafeintent.analysis.gate_results import Gates
from opensafeintent.calls.budget import Tally
from opensafeintent.cli.options import say_next
from opensafeintent.report.printing.cohort import show_cohort, show_transitions
from opensafeintent.report.printing.console import (
    WIDEST,
    new_console,
    print_notes,
    print_stopped,
    print_table,
)
from opensafeintent.report.printing.forecast import show_forecast
from opensafeintent.report.printing.judge_check import show_judge_check
from opensafeintent.report.printing.label_check import show_label_checks
from opensafeintent.report.printing.tables import plain
from opensafeintent.errors import Stopped, for_command_line
from opensafeintent.files import near
from opensafeintent.hostile import terminal_safe
from opensafeintent.report.cohort_columns import DEMONSTRATION_NOTE
from opensafeintent.report.costs import Costs, cost_table, other_model_notes
from opensafeintent.report.gates import gate_tables, headline
from opensafeintent.workflows.outcome import Outcome


def show_outcome(outcome: Outcome, run: Path | None = None, *, verbose: bool = False) -> int:
    """Print the results of a command, and return its exit code.

    Args:
        outcome: the results.
        run: the first of a report.
        verbose: whether every case of a judge check is printed.
    """
    console = new_console()
    if outcome.forecast is not None:
        show_forecast(
            console,
            outcome.forecast,
            outcome.prices,
            outcome.notes,
            in_reach=outcome.exit_code == 0,
        )
        for line in outcome.cautions:
            print(terminal_safe(f"caution: {for_command_line(line)}"), file=sys.stderr)
        return outcome.exit_code
    for cohort in outcome.cohorts:
        console.print()
        show_cohort(console, cohort)
    if any(cohort.demonstration for cohort in outcome.cohorts):
        console.print(Text(DEMONSTRATION_NOTE, style="bold yellow"))
    if outcome.gates is not None:
        _show_gates(console, outcome.gates)
    print_stopped(outcome.stopped)
    print_notes(console, outcome.notes)
    show_calls(console, outcome.tally, outcome.costs)
    for check in outcome.checks:
        console.print()
        show_judge_check(console, check, verbose=verbose)
    if outcome.labels:
        show_label_checks(console, outcome.labels, verbose=verbose)
    _show_written(console, outcome, run)
    return outcome.exit_code


def show_calls(console: Console, tally: Tally | None, costs: Costs | None) -> None:
    """Print the number of calls and their cost; nothing if there were none."""
    if tally is not None:
        counts = {
            f"call{'' if tally.new_calls.total() == 1 else 's'} made": tally.new_calls.total(),
            "retry" if tally.retries == 1 else "retries": tally.retries,
            "taken from the ledger": tally.reused_calls - tally.duplicates,
            f"duplicate request{'' if tally.duplicates == 1 else 's'} answered once": (
                tally.duplicates
            ),
        }
        phrases = [f"{count:,} {what}" for what, count in counts.items() if count or "made" in what]
        console.print(plain(f"{', '.join(phrases)}."))
    if costs is not None and costs.paid and costs.prices.tells(costs.models):
        console.print()
        print_table(console, cost_table(costs), notes=True)
    elif costs is not None:
        print_notes(console, other_model_notes(costs))


def _show_written(console: Console, outcome: Outcome, run: Path | None) -> None:
    assert outcome.out is not None
    out = near(outcome.out)
    if outcome.judge_files:
        names = ", ".join(path.name for path in outcome.judge_files.values())
        console.print(plain(f"Results in {out}: {names}"), soft_wrap=True)
    if outcome.labels:
        say_next("opensafeintent report RUN --checks", out)
        return
    if outcome.checks:
        ready = all(check.passed for check in outcome.checks)
        say_next(outcome.following if ready else "opensafeintent judge-check --judge MODEL")
        return
    has_page = (outcome.out / "report.html").exists()
    files = f"{'report.html, figures/, ' if has_page else ''}metrics.json, grades.csv.gz, tables/"
    console.print(plain(f"Results in {out}: {files}"), soft_wrap=True)
    coverages = [coverage for cohort in outcome.cohorts for coverage in cohort.coverage.values()]
    if outcome.exit_code == Stopped.exit_code:
        say_next("fix the error above, then: opensafeintent", *sys.argv[1:])
    elif outcome.again:
        say_next("for the missing answers, run again: opensafeintent", *sys.argv[1:])
    elif any(coverage.not_graded for coverage in coverages):
        say_next("opensafeintent grade", out, *_judges_of(outcome), "--dry-run")
    elif has_page:
        traced = out if (outcome.out / "run.json").exists() else run
        say_next("opensafeintent trace", traced, "--worst", "5")
    else:
        say_next("opensafeintent report", out, "--open")


def _judges_of(outcome: Outcome) -> list[str]:
    """Return the option that names the judges of the results, or the place of one."""
    manifests = [manifest for cohort in outcome.cohorts for manifest in cohort.manifests]
    named = dict.fromkeys(judge for manifest in manifests for judge in manifest.judges)
    return [word for judge in named or ["MODEL"] for word in ("--judge", judge)]


def _show_gates(console: Console, gates: Gates) -> None:
    """Print every gate with its verdict, and on a wide terminal the points of reference; the notes
    give the reason for a failure.
    """
    references = () if console.width >= WIDEST else ("oracle", "refuse_all")
    for table in gate_tables(gates):
        if table.name != "transitions":
            console.print()
            print_table(console, table.hiding("reason", *references))
            console.print(plain(f"{table.title}."), style="dim")
    show_transitions(console, gates.transitions)
    console.print(plain(f"Release gate {headline(gates)}."), style="bold")
