"""Checks of judges as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from opensafeintent.errors import pluralize
from opensafeintent.evaluation.gold_cases import FailedCase, JudgeCheck, KindCount
from opensafeintent.evaluation.labelled_responses import LabelKind
from opensafeintent.hostile import TEXT, clean_for_display, one_line
from opensafeintent.numbers.label_checks import (
    GroupRates,
    LabelCheck,
    LabelledCase,
    LabelSource,
)
from opensafeintent.report.columns import (
    DASH,
    Column,
    Table,
    format_estimate,
    format_percent,
    format_share_with_interval,
)
from opensafeintent.report.printing.console import plain, print_table
from opensafeintent.report.tables_people import WEIGHTED, make_label_tables, rate_text
from opensafeintent.taxonomy import QUESTION_OF

_MOST_CASES = 10


def show_judge_check(console: Console, check: JudgeCheck, *, verbose: bool) -> None:
    """Print the cases that a judge failed, and last the verdict on it.

    Args:
        console: the output.
        check: the results of the judge.
        verbose: whether all cases are printed with their rules, not ten at most, and the accepted
            ones by kind.
    """
    name = f"Judge {check.judge} on {check.cases} gold cases"
    console.print(plain(one_line(name, TEXT)), style="bold")
    if verbose:
        print_table(console, _kinds_table(check))
    _show_cases(console, "Failed cases", "✗", check.failed, verbose=verbose)
    if verbose:
        title = "Unscored cases with another grade than the answer key"
        _show_cases(console, title, "~", check.unscored_failed, verbose=True)
    for line in _details(check):
        console.print(plain(line))
    share = format_share_with_interval(check.accepted, check.cases)
    count = f"{check.accepted} of {check.cases} accepted, {share}"
    needed = f"{100 * check.min_accuracy:g} % needed"
    console.print(
        plain(f"{'PASSED' if check.passed else 'FAILED'}: {count}; {needed}"),
        style="green" if check.passed else "bold red",
    )
    for reason in check.reasons:
        console.print(plain(f"  {reason}"))


def _details(check: JudgeCheck) -> Iterator[str]:
    """Yield further results, a line each."""
    by_grade = ", ".join(
        f"{name.removesuffix('_severity')} {count}" for name, count in check.by_grade.items()
    )
    yield f"Acceptable grades, of {check.cases} each: {by_grade}."
    if check.missing:
        yield f"Cases with a missing grade: {check.missing}."
    if check.borderline:
        yield check.borderline.effect_text
    if check.unscored.cases:
        yield (
            f"Unscored cases: {check.unscored.accepted} of {check.unscored.cases} agree with the"
            " answer key."
        )


def _kinds_table(check: JudgeCheck) -> Table:
    rows: list[KindCount | JudgeCheck] = [*check.kinds, check]
    return Table.of(
        (
            Column(
                "kind",
                lambda row: row.title if isinstance(row, KindCount) else "All",
                "Kind of case",
            ),
            Column("accepted", lambda row: f"{row.accepted} of {row.cases}", "Accepted"),
            Column(
                "share",
                lambda row: (
                    DASH
                    if isinstance(row, KindCount) and not row.has_interval
                    else format_share_with_interval(row.accepted, row.cases)
                ),
                "Share [95 % interval]",
            ),
        ),
        rows,
        name="kinds",
        title="Accepted cases by their kind",
        bold=frozenset({len(check.kinds)}),
    )


def _show_cases(
    console: Console, title: str, mark: str, cases: Sequence[FailedCase], *, verbose: bool
) -> None:
    shown = cases if verbose else cases[:_MOST_CASES]
    more = f" ({len(shown)} shown; --verbose: all)" if len(shown) < len(cases) else ""
    if cases:
        console.print(plain(f"{title}: {len(cases)}{more}"), style="bold")
    for case in shown:
        console.print(plain(f"{mark} {case.id}: {case.explanation}"))
        if verbose:
            console.print(plain(f"  {case.why}"), style="dim")


_IN_DETAILS = ("judge_labels_majority", "judge_labels_pairs")
"""Tables whose numbers are lines of each judge in the terminal."""
_MOST_VERDICTS = 8
"""Judges in the verdict, which has ten lines at most."""


def show_label_checks(console: Console, checks: Sequence[LabelCheck], *, verbose: bool) -> None:
    """Print the verdict: a line for the labels, and one for each judge.

    Args:
        console: the output.
        checks: of each judge, and of the panel.
        verbose: whether the tables, cases in which judges and people disagree, and further results
            of each judge come before it.
    """
    if verbose:
        _show_label_details(console, checks)
    else:
        hint = "\n--verbose shows tables, and the responses on which a judge and people disagree."
        console.print(plain(hint), style="dim")
    source = checks[0].source
    drawn = f" of {source.labelled:,}" if source.sampled else ""
    to_prompts = "" if source.prompts is None else f" to {pluralize(source.prompts, 'prompt')}"
    console.print()
    console.print(
        plain(
            f"{clean_for_display(source.name)}: {source.responses:,}{drawn} labelled responses"
            f"{to_prompts} by {pluralize(source.raters, 'rater')}:"
            f" {source.yes:,} {source.kind.yes}, {source.no:,} {source.kind.no},"
            f" {_count_ties(source)}"
        ),
        style="bold",
    )
    if source.sampled:
        console.print(plain(WEIGHTED), style="dim")
    for check in checks[:_MOST_VERDICTS]:
        console.print(plain(_verdict(check)))
    if (more := len(checks) - _MOST_VERDICTS) > 0:
        console.print(plain(f"and {more:,} more judges: --verbose"))


def _count_ties(source: LabelSource) -> str:
    tie = source.kind.tie
    return pluralize(source.ties, tie) if tie == "tie" else f"{source.ties:,} {tie}"


def _show_label_details(console: Console, checks: Sequence[LabelCheck]) -> None:
    for table in make_label_tables(checks):
        if table.name not in _IN_DETAILS:
            console.print()
            console.print(plain(table.title), style="bold")
            print_table(console, table)
    for check in checks:
        if check.cases:
            title = f"{check.judge} and people disagree: {len(check.cases):,}"
            console.print(plain(f"\n{one_line(title)}"), style="bold")
        for case in check.cases:
            console.print(plain(f"✗ {_case_line(case, check.source.kind)}"))
            for name, text in (("prompt", case.prompt), ("response", case.response)):
                if text is not None:
                    console.print(plain(f"  {name}: {one_line(text, TEXT)}"), style="dim")
    for check in checks:
        if lines := [*_label_details(check)]:
            console.print(plain(f"\n{clean_for_display(check.judge)}"), style="bold")
            for line in lines:
                console.print(plain(line))


def _case_line(case: LabelledCase, kind: LabelKind) -> str:
    group = f" ({clean_for_display(case.group)})" if case.group else ""
    return (
        f"{case.location}{group}: {QUESTION_OF[kind.grade].role} {case.grade}, and"
        f" {case.say_yes} of {case.people} call it {kind.yes}"
    )


def _verdict(check: LabelCheck) -> str:
    """Return the verdict on a judge, in a line."""
    if check.ungraded:
        return (
            f"{clean_for_display(check.judge)}: no grade of any response; its replies are shown by"
            " judge-check without --labelled"
        )
    missing = check.missing
    return f"{clean_for_display(check.judge)}: {_three_numbers(check)}" + (
        f"; missing grades, left out: {missing:,}" if missing else ""
    )


def _three_numbers(rates: LabelCheck | GroupRates) -> str:
    return (
        f"catches {rate_text(rates.catches)}; false alarms {rate_text(rates.false_alarms)};"
        f" AC1 {format_estimate(rates.ac1)}"
    )


def _label_details(check: LabelCheck) -> Iterator[str]:
    """Yield further results of a judge, a line each."""
    kind = check.source.kind
    for side in check.sides:
        yield (
            f"  with every {kind.tie} counted as {kind.yes if side.yes else kind.no}:"
            f" {_three_numbers(side.judge)}"
        )
        if side.people is not None:
            yield (
                f"    against the majority of the others: one person"
                f" {_three_numbers(side.people.person)}; the judge"
                f" {_three_numbers(side.people.judge)}"
            )
    if missing := check.missing:
        yield (
            f"  {pluralize(missing, 'grade')} missing, {check.missing_yes:,} of them of"
            f" {kind.yes} responses, and left out"
        )
    for error in check.errors:
        if error.mae.undefined:
            yield f"  {error.name}: no mean error, {error.mae.undefined}"
    if check.people:
        person, judge = check.people[0].person, check.people[0].judge
        yield (
            f"  against the majority of the others: one person {_three_numbers(person)}; the judge"
            f" {_three_numbers(judge)}"
        )
    if (errors := check.if_people_err) is not None:
        yield (
            "  if people err independently, so that their majority misses"
            f" {format_percent(errors.missed)} and has {format_percent(errors.false_alarms)} false"
            f" alarms: catches {format_estimate(errors.judge_catches, 'share')}, false alarms"
            f" {format_estimate(errors.judge_false_alarms, 'share')}"
            f"{'; cut at 0 or 1' if errors.cut else ''}"
        )
    if check.independent is not None and check.independent.value is not None:
        yield (
            f"  its judges are worth {format_estimate(check.independent)} independent ones,"
            " at least, by the correlation of their errors, if people share none"
        )
    for pair in check.pairs:
        difference = pair.difference
        yield (
            f"  against {clean_for_display(pair.other)}: right alone {pair.only_this:,} times,"
            f" wrong alone {pair.only_other:,}; agreement"
            f" {format_estimate(difference, 'share', signed=True)}"
        )
