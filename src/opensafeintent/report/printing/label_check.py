"""The results of `judge-check --labelled`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from opensafeintent.analysis.label_checks import LabelCheck, LabelledCase
from opensafeintent.errors import counted
from opensafeintent.hostile import one_line
from opensafeintent.report.columns import Table
from opensafeintent.report.printing.console import print_table
from opensafeintent.report.printing.tables import plain
from opensafeintent.report.tables_people import WEIGHTED, label_tables, rate_text
from opensafeintent.report.values import estimate_text, interval, percent

_MOST_CASES = 10
_MOST_GROUPS = 10
_IN_DETAILS = ("judge_labels_majority", "judge_labels_pairs")
"""Tables whose numbers are lines of each judge in the terminal."""
_MOST_VERDICTS = 8
"""Judges in the verdict, which has ten lines at most."""


def show_label_checks(
    console: Console, checks: Sequence[LabelCheck], *, verbose: bool = False
) -> None:
    """Print the tables, cases in which judges and people disagree, further results, and last the
    verdict: a line for the labels and one for each judge.

    Args:
        console: the output.
        checks: of each judge, and of the panel.
        verbose: whether all groups and cases are printed, not ten at most.
    """
    for table in label_tables({0: checks}):
        if table.name in _IN_DETAILS:
            continue
        console.print()
        console.print(plain(table.title), style="bold")
        print_table(console, table if verbose else _shortened(table))
        if table.name == "judge_labels" and any(check.source.sampled for check in checks):
            console.print(plain(WEIGHTED), style="dim")
    for check in checks:
        _show_cases(console, check, verbose=verbose)
    for check in checks:
        if lines := [*_details(check)]:
            console.print(plain(f"\n{one_line(check.judge, 100)}"), style="bold")
            for line in lines:
                console.print(plain(line))
    source = checks[0].source
    drawn = f" of {source.labelled:,}" if source.sampled else ""
    to_prompts = "" if source.prompts is None else f" to {counted(source.prompts, 'prompt')}"
    console.print()
    console.print(
        plain(
            f"{one_line(source.name, 80)}: {source.responses:,}{drawn} labelled responses"
            f"{to_prompts} by {counted(source.raters, 'rater')}:"
            f" {source.unsafe:,} unsafe, {source.safe:,} safe, {counted(source.ties, 'tie')}"
        ),
        style="bold",
    )
    for check in checks[:_MOST_VERDICTS]:
        console.print(plain(_verdict(check)))
    if (more := len(checks) - _MOST_VERDICTS) > 0:
        console.print(plain(f"and {more:,} more judges, in the table"))


def _shortened(table: Table) -> Table:
    """Return a table with ten groups at most, and all people together."""
    if table.name == "judge_labels_people":
        return table.only(lambda record: record["rater"] == "all").hiding("rater")
    if table.name == "judge_labels_groups":
        shown = list(dict.fromkeys(record["label_group"] for record in table.records()))
        return table.only(lambda record: record["label_group"] in shown[:_MOST_GROUPS])
    return table


def _show_cases(console: Console, check: LabelCheck, *, verbose: bool) -> None:
    if not check.cases:
        return
    cases = check.cases if verbose else check.cases[:_MOST_CASES]
    more = len(check.cases) - len(cases)
    title = f"{check.judge} and most people disagree: {len(check.cases):,}"
    console.print(
        plain(f"\n{one_line(title, 300)}{f' ({len(cases)} shown; --verbose: all)' * bool(more)}"),
        style="bold",
    )
    for case in cases:
        console.print(plain(f"✗ {_case_line(case)}"))
        for name, text in (("prompt", case.prompt), ("response", case.response)):
            if text is not None:
                console.print(plain(f"  {name}: {one_line(text, 1000)}"), style="dim")


def _case_line(case: LabelledCase) -> str:
    group = f" ({one_line(case.group, 60)})" if case.group else ""
    return (
        f"{case.location}{group}: harm {case.harm}, and {case.say_unsafe} of {case.people} call it"
        " unsafe"
    )


def _verdict(check: LabelCheck) -> str:
    """Return the verdict on a judge, in a line."""
    if check.ungraded:
        return (
            f"{one_line(check.judge, 100)}: no grade of any response; its replies are shown by"
            " judge-check without --labelled"
        )
    return (
        f"{one_line(check.judge, 100)}: catches {rate_text(check.catches_unsafe)};"
        f" false alarms {rate_text(check.false_alarms)};"
        f" AC1 {estimate_text(check.ac1)}"
    )


def _details(check: LabelCheck) -> Iterator[str]:
    """Yield further results of a judge, a line each."""
    ties = [
        f"{name} {percent(rate.ties[0])} to {percent(rate.ties[1])}"
        for name, rate in (
            ("catches", check.catches_unsafe),
            ("false alarms", check.false_alarms),
        )
        if rate.ties
    ]
    if ties:
        yield f"  with ties counted as safe, or as unsafe: {', '.join(ties)}"
    if missing := check.missing_unsafe + check.missing_safe + check.missing_ties:
        yield (
            f"  {counted(missing, 'grade')} missing, {check.missing_unsafe:,} of them of unsafe"
            " responses, and left out"
        )
    for error in check.errors:
        if error.mae.undefined:
            yield f"  {error.name}: no mean error, {error.mae.undefined}"
    if check.people:
        person, judge = check.people[0].person, check.people[0].judge
        yield (
            "  against the majority of the others, one person catches"
            f" {rate_text(person.catches_unsafe)}, and the judge {rate_text(judge.catches_unsafe)}"
        )
    if (errors := check.if_people_err) is not None:
        yield (
            f"  if the majority erred as often as one person ({percent(errors.missed)} missed,"
            f" {percent(errors.false_alarms)} false alarms): catches"
            f" {percent(errors.judge_catches_unsafe)}, false alarms"
            f" {percent(errors.judge_false_alarms)}"
        )
    if check.independent is not None and check.independent.value is not None:
        yield (
            f"  its judges are worth {estimate_text(check.independent)} independent ones, at least,"
            " by the correlation of their errors"
        )
    for pair in check.pairs:
        difference = pair.difference
        yield (
            f"  against {one_line(pair.other, 80)}: right alone {pair.only_this:,} times, wrong"
            f" alone {pair.only_other:,}; agreement"
            f" {interval(difference.value, difference.low, difference.high, 'share', signed=True)}"
        )
