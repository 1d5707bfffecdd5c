"""The results of `build`."""

from __future__ import annotations

from pathlib import Path

from opensafeintent.cli.options import say_next
from opensafeintent.report.printing.console import new_console, print_notes, print_stopped, print_table
from opensafeintent.report.printing.forecast import show_forecast
from opensafeintent.cli.output.outcome import show_calls
from opensafeintent.report.printing.tables import plain
from opensafeintent.errors import counted
from opensafeintent.files import near
from opensafeintent.report.dataset_findings import share_with_interval
from opensafeintent.report.datasets import funnel_table
from opensafeintent.workflows.build import BuildOutcome


def show_build(outcome: BuildOutcome, prices: Path | None, taxonomy: Path | None = None) -> int:
    """Print the results of a build, or its forecast by the user's prices; return its exit code. The
    next command reads the dataset with the same file of a taxonomy.
    """
    console = new_console()
    if outcome.forecast is not None:
        total = sum(line.calls for line in outcome.forecast.lines)
        show_forecast(
            console,
            outcome.forecast,
            prices,
            outcome.notes,
            f"{counted(total, 'call')} to make, if every unknown item passes every stage without"
            " repairs; ",
        )
        return outcome.exit_code
    assert outcome.built is not None
    print_table(console, funnel_table(outcome.built))
    print_stopped(outcome.stopped)
    print_notes(console, outcome.notes)
    show_calls(console, outcome.tally, outcome.costs)
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
