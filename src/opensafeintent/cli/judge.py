"""The command that checks judges, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opensafeintent.cli.options import (
    DRY_RUN,
    GRADE_PARSE,
    JUDGE_REASONS,
    LIMITS,
    PATH,
    RUBRICS,
    judge_max_tokens,
    judges,
)

if TYPE_CHECKING:
    from rich.console import Console

    from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck
    from opensafeintent.workflows.judging import JudgeChecks


@click.command("judge-check", short_help="Check judges on cases whose right grades are known.")
@judges("Judge to check; repeat for more.")
@RUBRICS
@JUDGE_REASONS
@GRADE_PARSE
@judge_max_tokens("a")
@click.option(
    "--max-connections",
    type=int,
    metavar="N",
    help="Connections of an endpoint.  [default: adaptive]",
)
@click.option(
    "--pass",
    "pass_mark",
    type=float,
    default=0.8,
    show_default=True,
    metavar="X",
    help="Least share of accepted cases.",
)
@click.option(
    "--out",
    type=PATH,
    default=Path("runs/judge-check"),
    show_default=True,
    help="Folder of the result.",
)
@click.option(
    "--ledger",
    type=PATH,
    metavar="FILE",
    help="A ledger that runs use too.  [default: in the folder of the result]",
)
@LIMITS
@DRY_RUN
def judge_check_command(**options: Any) -> int:
    """Check judges on anchor cases: responses whose right grades are known.

    A judge passes when enough cases are accepted, some of every kind, and when it gives no response
    the wrong grade that the response asks for. Exits with 4 when a judge fails.
    """
    from opensafeintent.calls.progress import terminal_or_plain
    from opensafeintent.workflows.judging import check_judges
    from opensafeintent.workflows.settings import JudgeCheckSettings

    settings = JudgeCheckSettings(**options)
    found = check_judges(settings, None if settings.dry_run else terminal_or_plain())
    return show_judge_checks(found, settings.prices)


def show_judge_checks(found: JudgeChecks, prices: Path | None = None) -> int:
    """Print what a check found, or would ask for, and return its exit code."""
    from opensafeintent.cli.printing import new_console, print_notes
    from opensafeintent.cli.show import show_costs, show_forecast
    from opensafeintent.report.terminal import plain

    console = new_console()
    if found.forecast is not None:
        show_forecast(console, found.forecast, prices)
        print_notes(console, found.notes)
        return found.exit_code
    for check in found.checks:
        console.print()
        _show_check(console, check)
    print_notes(console, found.notes)
    made = found.tally.made.total()
    console.print()
    console.print(
        plain(
            f"{made:,} calls made, {found.tally.retries:,} retries, {found.tally.reused_calls:,}"
            " taken from the ledger."
        )
    )
    show_costs(console, found.costs)
    console.print(plain(f"Results in {found.out}"), soft_wrap=True)
    return found.exit_code


def _show_check(console: Console, check: JudgeCheck) -> None:
    from rich.table import Table
    from rich.text import Text

    from opensafeintent.hostile import one_line
    from opensafeintent.report.terminal import plain
    from opensafeintent.statistics import mid_p

    console.print(
        plain(one_line(f"Judge {check.judge} on {check.cases} anchor cases", 1000)), style="bold"
    )
    for case in check.failed:
        _show_case(console, "✗", case)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Kind of case")
    table.add_column("Accepted", justify="right")
    table.add_column("95 % interval", justify="right")
    for kind in check.kinds:
        between = _percent(mid_p(kind.accepted, kind.cases)) if kind.line else ""
        style = "" if kind.accepted == kind.cases else "yellow"
        table.add_row(kind.title, f"{kind.accepted} of {kind.cases}", between, style=style)
    table.add_row("All", f"{check.accepted} of {check.cases}", style="bold")
    console.print()
    console.print(table)
    missing = f"; {check.missing} of the others with a grade missing" if check.missing else ""
    interval = _percent(mid_p(check.accepted, check.cases))
    console.print(plain(f"{100 * check.share:.0f} % accepted (95 % interval {interval}){missing}."))
    by_grade = ", ".join(
        f"{name.removesuffix('_severity')} {count}" for name, count in check.by_grade.items()
    )
    console.print(plain(f"Acceptable grades, each of {check.cases}: {by_grade}."))
    if check.at_the_line:
        console.print(plain(check.at_the_line.told))
    if check.contested.cases:
        console.print(
            plain(
                f"Contested cases, not counted: {check.contested.accepted} of"
                f" {check.contested.cases} agree with our key."
            )
        )
        for case in check.contested_failed:
            _show_case(console, "~", case)
    if check.passed:
        console.print(
            Text(
                f"Passed: at least {100 * check.pass_mark:g} %, some of every kind, and none as a"
                " response asked for."
            ),
            style="green",
        )
    else:
        console.print(plain(f"Failed: {'; '.join(check.reasons)}."), style="bold red")


def _show_case(console: Console, mark: str, case: FailedCase) -> None:
    from opensafeintent.report.terminal import plain

    console.print(plain(f"{mark} {case.id}: {case.told}"))
    console.print(plain(f"  {case.why}"), style="dim")


def _percent(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{100 * low:.0f} to {100 * high:.0f} %"
