"""What commands print at their end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from opensafeintent.calls.models import Served
from opensafeintent.cli.options import say, say_next
from opensafeintent.commands.building import BuildOutcome
from opensafeintent.commands.outcome import Outcome
from opensafeintent.errors import Stopped, counted
from opensafeintent.files import near
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.datasets import share_with_interval
from opensafeintent.report.printing.console import (
    new_console,
    plain,
    print_stopped,
    print_table,
)

if TYPE_CHECKING:
    from opensafeintent.batch.overview import BatchLine


def show_batches(lines: Sequence[BatchLine]) -> None:
    """Print a line about each batch, the oldest first."""
    if not lines:
        say("No batches.")
        return
    columns: tuple[Column[BatchLine], ...] = (
        Column("model", lambda line: line.model, "Model", "name"),
        Column("batch", lambda line: line.batch, "Batch"),
        Column("state", lambda line: line.state, "State"),
        Column("calls", lambda line: line.calls, "Calls", "count"),
        Column("done", lambda line: line.done, "Done", "count"),
        Column("hours", lambda line: line.age, "Age"),
        Column("note", lambda line: line.note, "Note"),
    )
    print_table(new_console(), Table.of(columns, lines, name="batches", title="Batches"))


def show_models(models: Sequence[Served]) -> None:
    """Print every model that can be named: those ready first, then the others with their needs."""
    console = new_console()
    name: Column[Served] = Column("name", lambda model: model.name, "Model")
    about: Column[Served] = Column("about", lambda model: model.about, "About")
    needs: Column[Served] = Column("needs", lambda model: "\n".join(_needs(model)), "Needs")
    ready = Table.of(
        (name, about),
        [model for model in models if not model.lacking],
        name="ready",
        title="Ready: no key needed, or its key is set",
    )
    lacking = Table.of(
        (name, needs),
        [model for model in models if model.lacking],
        name="lacking",
        title="Ready once these variables are set, and these packages installed",
    )
    for table in (ready, lacking):
        console.print(table.title, style="bold")
        print_table(console, table)
        console.print()


def _needs(model: Served) -> Sequence[str]:
    if "/P/" in model.name:
        return (*model.lacking, model.about)
    return model.lacking


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
        say_next("opensafeintent", *(word for word in sys.argv[1:] if word != "--dry-run"))
    else:
        _show_written(console, outcome, run, ledgers)
    return outcome.exit_code


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
    coverages = outcome.cohort.coverage.values() if outcome.cohort else ()
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
    manifests = outcome.cohort.manifests if outcome.cohort else ()
    named = dict.fromkeys(judge for manifest in manifests for judge in manifest.judges)
    return [word for judge in named or ["MODEL"] for word in ("--judge", judge)]


def show_build(outcome: BuildOutcome, taxonomy: Path | None = None) -> int:
    """Print the results of a build, or its forecast; return its exit code. The next command reads
    the dataset with the same file of a taxonomy.
    """
    console = new_console()
    outcome.show(console)
    if outcome.forecast is not None:
        say_next("opensafeintent", *(word for word in sys.argv[1:] if word != "--dry-run"))
        return outcome.exit_code
    print_stopped(outcome.stopped)
    out = near(outcome.out)
    lines = [f"No dataset yet. Kept and dropped items of each stage: {out}/stages"]
    if outcome.dataset:
        sets = counted(len(outcome.dataset), "prompt-set")
        lines = [f"{out}/dataset.jsonl: {sets} (sha256 {outcome.dataset.hash[:12]})"]
    if outcome.check and outcome.check.lexical_leakage:
        share = share_with_interval(outcome.check.lexical_leakage)
        lines.append(
            f"Lexical leakage: words alone distinguish benign from malicious in {share};"
            " chance is 50 %."
        )
    lines.append(f"Funnel, coverage and costs: {out}/build.md")
    for line in lines:
        console.print(plain(line), soft_wrap=True)
    if outcome.dataset:
        option = [] if taxonomy is None else ["--taxonomy", taxonomy]
        say_next("opensafeintent dataset check", outcome.out / "dataset.jsonl", *option)
    else:
        say_next("opensafeintent trace", outcome.out, "--rejected")
    return outcome.exit_code
