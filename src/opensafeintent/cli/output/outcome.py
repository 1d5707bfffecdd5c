"""The results of commands that evaluate, report or check judges."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from opensafeintent.cli.options import say_next
from opensafeintent.errors import Stopped
from opensafeintent.files import near
from opensafeintent.hostile import terminal_safe
from opensafeintent.report.printing.console import new_console, print_stopped
from opensafeintent.report.printing.tables import plain
from opensafeintent.workflows.outcome import Outcome


def show_outcome(
    outcome: Outcome,
    run: Path | None = None,
    ledgers: Sequence[object] = (),
    *,
    verbose: bool = False,
) -> int:
    """Print the results of a command, and return its exit code.

    Args:
        outcome: the results.
        run: the first of a report.
        ledgers: options that name ledgers outside the folders, for the next command.
        verbose: whether every case of a judge check is printed.
    """
    console = new_console()
    outcome.show(console, verbose=verbose)
    print_stopped(outcome.stopped)
    if outcome.forecast is not None:
        for line in outcome.cautions:
            print(terminal_safe(f"caution: {line}"), file=sys.stderr)
        if outcome.exit_code == 0:
            say_next("opensafeintent", *with_calls(sys.argv[1:]))
        else:
            say_next(_OUT_OF_REACH)
    else:
        _show_written(console, outcome, run, ledgers)
    return outcome.exit_code


_OUT_OF_REACH = (
    "repeat the dry run with more prompt-sets (--limit, --dataset), another threshold or a lower"
    " --confidence"
)


def with_calls(words: Sequence[str]) -> list[str]:
    """Return the words of a dry run without those that only a dry run has."""
    gates = ["--fail-under", "--fail-over", "--fail-if-worse", "--pair"]
    if "--stop-when" not in words:
        gates.append("--confidence")
    return [
        word
        for before, word in pairwise(["", *words])
        if word.partition("=")[0] not in ("--dry-run", "--first-run", *gates)
        and before not in gates
    ]


def _show_written(
    console: Console, outcome: Outcome, run: Path | None, ledgers: Sequence[object]
) -> None:
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
    files = ["report.html", "figures/"] if has_page else []
    files += ["judges.md"] if (outcome.out / "judges.md").exists() else []
    files += ["metrics.json", "grades.csv.gz", "tables/"]
    console.print(plain(f"Results in {out}: {', '.join(files)}"), soft_wrap=True)
    coverages = [coverage for cohort in outcome.cohorts for coverage in cohort.coverage.values()]
    if outcome.exit_code == Stopped.exit_code:
        say_next("fix the error above, then: opensafeintent", *sys.argv[1:])
    elif outcome.again:
        say_next("for the missing answers, run again: opensafeintent", *sys.argv[1:])
    elif any(coverage.not_graded for coverage in coverages):
        say_next("opensafeintent grade", out, *ledgers, *_judges_of(outcome), "--dry-run")
    elif has_page:
        traced = out if (outcome.out / "run.json").exists() else run
        say_next("opensafeintent trace", traced, *ledgers, "--worst", "5")
    else:
        say_next("opensafeintent report", out, *ledgers, "--open")


def _judges_of(outcome: Outcome) -> list[str]:
    """Return the option that names the judges of the results, or the place of one."""
    manifests = [manifest for cohort in outcome.cohorts for manifest in cohort.manifests]
    named = dict.fromkeys(judge for manifest in manifests for judge in manifest.judges)
    return [word for judge in named or ["MODEL"] for word in ("--judge", judge)]
