"""The `build` command, and what it prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opensafeintent.cli.options import (
    DATA,
    MAX_CONNECTIONS,
    NAME,
    PATH,
    judge_max_tokens,
    ledger_and_limits,
)
from opensafeintent.errors import InputError

if TYPE_CHECKING:
    from opensafeintent.workflows.building import BuildOutcome


@click.command("build")
@click.argument("seeds", type=NAME, required=False, metavar="[SEEDS]")
@click.option(
    "--generator", required=True, metavar="MODEL", help="Writes summaries, prompts and paraphrases."
)
@click.option(
    "--judge",
    required=True,
    metavar="MODEL",
    help="Checks what the generator writes; best of another maker.",
)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Folder of the build.")
@click.option(
    "--per-cell",
    type=int,
    metavar="N",
    help="Fill every cell up to N prompt-sets.  [default: seeds alone]",
)
@click.option(
    "--stages",
    default="1-6",
    show_default=True,
    metavar="A-B",
    help="Stages to run; stage 7 needs --labels.",
)
@click.option("--limit", type=int, metavar="N", help="Read N seeds at most.")
@DATA
@click.option(
    "--templates",
    type=PATH,
    metavar="DIR",
    help="Templates in place of ours, by the same file names.",
)
@click.option(
    "--labels",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="Labels of the sets by `annotate import`; repeat.",
)
@click.option(
    "--temperature",
    type=float,
    help="Sampling temperature of the generator.  [default: its provider's]",
)
@click.option(
    "--max-tokens",
    type=int,
    default=4096,
    show_default=True,
    help="Token limit of the generator's reply.",
)
@judge_max_tokens("the")
@click.option(
    "--structured-output/--no-structured-output",
    default=True,
    show_default=True,
    help="Ask providers to keep replies to the JSON schema, where they can.",
)
@MAX_CONNECTIONS
@ledger_and_limits("builds")
@click.option(
    "--dry-run", is_flag=True, help="Print the calls, tokens and dollars to expect, and make none."
)
def build_command(stages: str, **options: Any) -> int:
    """Build prompt-sets from unsafe seed prompts, in seven stages.

    SEEDS is a JSONL or CSV file with a column named prompt, or hf:owner/name; without it cells are
    filled from nothing (--per-cell). Run the same command again to go on where it stopped.
    """
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.workflows.building import BuildSettings, build

    settings = BuildSettings(stages=_stages(stages), **options)
    return _show(
        build(settings, None if settings.dry_run else terminal_or_plain()), settings.prices
    )


def _stages(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d)(?:-(\d))?", text.strip())
    if match is None:
        raise InputError(f"--stages {text}: expected FIRST-LAST, such as 1-4")
    return int(match[1]), int(match[2] or match[1])


def _show(outcome: BuildOutcome, prices: Path | None) -> int:
    from opensafeintent.cli.printing import new_console, print_notes, print_table
    from opensafeintent.cli.show import show_costs, show_forecast
    from opensafeintent.report.build import funnel_table
    from opensafeintent.report.terminal import plain

    console = new_console()
    if outcome.forecast is not None:
        total = sum(line.calls for line in outcome.forecast.lines)
        lead = (
            f"{total:,} calls to make, if what is not known yet passes every stage without"
            " repairs; "
        )
        show_forecast(console, outcome.forecast, prices, lead)
        print_notes(console, outcome.notes)
        return outcome.exit_code
    assert outcome.built is not None
    print_table(console, funnel_table(outcome.built))
    print_notes(console, outcome.notes)
    tally = outcome.tally
    if tally is not None:
        made = tally.made.total()
        console.print(
            plain(
                f"{made:,} calls made, {tally.retries:,} retries, {tally.reused_calls:,} taken from"
                " the ledger."
            )
        )
    show_costs(console, outcome.costs)
    if outcome.dataset is None:
        console.print(
            plain(f"No dataset yet. What each stage kept and dropped: {outcome.out}/stages"),
            soft_wrap=True,
        )
    else:
        count = len(outcome.dataset)
        found = (
            f"{count:,} prompt-set{'' if count == 1 else 's'} (sha256 {outcome.dataset.hash[:12]})"
        )
        console.print(plain(f"{outcome.out}/dataset.jsonl: {found}"), soft_wrap=True)
    if outcome.check and outcome.check.give_away:
        from opensafeintent.construction.controls.findings import share_with_interval

        share = share_with_interval(outcome.check.give_away)
        console.print(
            plain(f"Give-away: words alone tell benign from malicious in {share}; chance is 50 %."),
            soft_wrap=True,
        )
    console.print(plain(f"Funnel, coverage and costs: {outcome.out}/build.md"), soft_wrap=True)
    return outcome.exit_code
