"""The `build` command, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opensafeintent.workflows.building import BuildOutcome
    from opensafeintent.workflows.settings import BuildSettings


def build_command(settings: BuildSettings) -> int:
    """Build prompt-sets from unsafe seed prompts, in seven stages.

    SEEDS is a JSONL or CSV file with a column named prompt, or hf:owner/name; without it cells are
    filled from nothing (--per-cell). Run the same command again to go on where it stopped.
    """
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.workflows.building import build

    return _show(
        build(settings, None if settings.dry_run else terminal_or_plain()), settings.prices
    )


def _show(outcome: BuildOutcome, prices: Path | None) -> int:
    from opensafeintent.cli.printing import new_console, print_notes, print_table
    from opensafeintent.cli.show import show_calls, show_forecast
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
    show_calls(console, outcome.tally, outcome.costs)
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
