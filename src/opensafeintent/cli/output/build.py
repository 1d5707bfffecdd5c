"""The results of `build`."""

from __future__ import annotations

import sys
from pathlib import Path

from opensafeintent.cli.options import say_next
from opensafeintent.cli.output.outcome import with_calls
from opensafeintent.errors import counted
from opensafeintent.files import near
from opensafeintent.report.dataset_findings import share_with_interval
from opensafeintent.report.printing.console import new_console, print_stopped
from opensafeintent.report.printing.tables import plain
from opensafeintent.workflows.build import BuildOutcome


def show_build(outcome: BuildOutcome, taxonomy: Path | None = None) -> int:
    """Print the results of a build, or its forecast; return its exit code. The next command reads
    the dataset with the same file of a taxonomy.
    """
    console = new_console()
    outcome.show(console)
    if outcome.forecast is not None:
        say_next("opensafeintent", *with_calls(sys.argv[1:]))
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
