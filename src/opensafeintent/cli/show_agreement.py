"""What `agreement` prints: an interval stands beside its number, or below it where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opensafeintent.cli.printing import new_console, plain, print_notes
from opensafeintent.hostile import one_line
from opensafeintent.people.judging import Dimension, JudgeStudy, SafeCall
from opensafeintent.people.quality import Consistency, Quality
from opensafeintent.report.tables.agreement import DIMENSION_NAMES, QUESTION_NAMES
from opensafeintent.statistics.samples import SampleEstimate
from opensafeintent.workflows.agreeing import Agreement

__all__ = ["show_agreement"]

_MOST_DROPPED = 20
"""Sets to drop that are named on the screen; the file has them all."""
_EVERYONE = "all"


def show_agreement(found: Agreement) -> None:
    """Print what labels say: Table 3, Table 7, self-consistency, and what a reader should know."""
    console = new_console()
    if found.quality is not None:
        _show_quality(console, found.quality)
    if found.judges is not None:
        _show_people(console, found.judges)
        for judge in dict.fromkeys(line.judge for line in found.judges.judges):
            _show_judge(console, found.judges, judge)
    _show_consistency(console, found.consistency)
    print_notes(console, found.notes)
    if found.written:
        console.print(plain(f"Results: {', '.join(map(str, found.written))}"), soft_wrap=True)


def _grid(*headings: str) -> Table:
    """Return a table of a text and numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(headings[0], overflow="fold", vertical="top")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", vertical="top", no_wrap=True)
    return table


class _Numbers:
    """How the numbers of one table are written.

    Args:
        console: where they are printed.
        wide: columns from which on intervals stand beside their numbers.
    """

    def __init__(self, console: Console, wide: int) -> None:
        self._between = " " if console.width >= wide else "\n"

    def __call__(self, estimate: SampleEstimate, *, signed: bool = False, error: bool = False) -> Text:
        if estimate.value is None:
            return Text("–")
        mark = "+" if signed else ""
        text = Text(f"{round(estimate.value, 2) + 0.0:{mark}.2f}")
        if error and estimate.se is not None:
            text.append(f" ± {estimate.se:.2f}")
        if estimate.interval is not None:
            low, high = (round(limit, 2) + 0.0 for limit in estimate.interval)
            text.append(f"{self._between}[{low:{mark}.2f}, {high:{mark}.2f}]", style="dim")
        return text


def _returned(annotators: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name, 60)} {count:,}" for name, count in annotators.items())


def _undefined(estimates: Iterable[SampleEstimate]) -> str | None:
    """Say why there are dashes, where there are."""
    reasons = dict.fromkeys(estimate.undefined for estimate in estimates if estimate.value is None)
    return f"– is undefined: {'; '.join(reasons)}." if reasons else None


def _show_quality(console: Console, quality: Quality) -> None:
    console.print(plain(f"Dataset quality: {quality.sets:,} prompt-sets ({_returned(quality.annotators)})"), style="bold")
    number = _Numbers(console, 118)
    table = _grid("Question", "Yes rate", "AC1 ± SE", "Agreement", "α", "Unsure,\nblank")
    for line in quality.questions:
        table.add_row(
            QUESTION_NAMES[line.question],
            number(line.yes_rate),
            number(line.ac1, error=True),
            number(line.percent_agreement),
            number(line.alpha),
            f"{line.unsure}, {line.blank}",
        )
    console.print(table)
    _caption(
        console,
        "Brackets: 95 % intervals over prompt-sets. Unsure and blank are not no. α (Krippendorff's) is low wherever nearly "
        "all answers are the same, however well people agree; AC1 (Gwet's) is not.",
        _undefined(
            estimate
            for line in quality.questions
            for estimate in (line.yes_rate, line.ac1, line.percent_agreement, line.alpha)
        ),
    )
    if quality.drop:
        names = [f"{one_line(line.id, 60)} ({line.poor} of {line.annotators})" for line in quality.drop[:_MOST_DROPPED]]
        more = len(quality.drop) - len(names)
        console.print(
            plain(
                f"To drop, {len(quality.drop)}: every annotator who answered marks the set poor: {', '.join(names)}"
                f"{f' and {more} more' if more else ''}."
            )
        )
    else:
        console.print("To drop: none; no set is poor for every annotator who answered.")
    console.print()


def _caption(console: Console, *texts: str | None) -> None:
    for text in texts:
        if text:
            console.print(plain(text), style="dim")


def _show_people(console: Console, study: JudgeStudy) -> None:
    console.print(plain(f"Grades by people: {study.items:,} responses ({_returned(study.annotators)})"), style="bold")
    number = _Numbers(console, 90)
    table = _grid("", *DIMENSION_NAMES.values())
    rows = (
        ("MAE of one person against the others", "leave_one_out"),
        ("AC2 among people", "ac2"),
        ("Same grade, of two people", "percent_agreement"),
        ("Krippendorff's α (ordinal)", "alpha"),
    )
    for heading, field in rows:
        table.add_row(heading, *(number(getattr(human, field), error=field == "ac2") for human in study.humans))
    table.add_row("Unsure, blank", *(f"{human.unsure}, {human.blank}" for human in study.humans))
    console.print(table)
    _caption(console, _undefined(getattr(human, field) for human in study.humans for _, field in rows))
    console.print()
    if len(study.annotators) > 1:
        _show_annotators(console, study)


def _show_annotators(console: Console, study: JudgeStudy) -> None:
    number = _Numbers(console, 112)
    table = _grid("Against the mean of the others")
    for human in study.humans:
        name = DIMENSION_NAMES[human.dimension].split(" (")[0]
        table.add_column(f"{name},\nMAE", justify="right", no_wrap=True)
        table.add_column("\nbias", justify="right", no_wrap=True)
    for lines in zip(*(human.annotators for human in study.humans), strict=True):
        cells = [cell for line in lines for cell in (number(line.mae), number(line.bias, signed=True))]
        table.add_row(plain(one_line(lines[0].annotator, 60)), *cells)
    console.print(table)
    console.print()


def _show_judge(console: Console, study: JudgeStudy, judge: str) -> None:
    lines = [line for line in study.judges if line.judge == judge]
    console.print(plain(f"Judge {one_line(judge, 300)} against people"), style="bold")
    number = _Numbers(console, 90)
    table = _grid("", *(DIMENSION_NAMES[line.dimension] for line in lines))
    rows = (
        ("MAE of the judge against the mean of all", "mae", False),
        ("MAE of one person against the others", "leave_one_out", False),
        ("MAE of the judge against the same others", "fair", False),
        ("Judge minus person, of the last two", "excess", True),
        ("Signed bias: judge minus mean of all", "bias", True),
        ("AC2 with the human median", "ac2", False),
        ("Same grade as the human median", "exact", False),
    )
    for heading, field, signed in rows:
        table.add_row(heading, *(number(getattr(line, field), signed=signed) for line in lines))
    table.add_row("Responses", *(f"{line.items:,}" for line in lines))
    console.print(table)
    _caption(console, _undefined(getattr(line, field) for line in lines for _, field, _ in rows))
    console.print()
    _show_confusion(console, lines)
    _show_safe_calls(console, [call for call in study.safe if call.judge == judge])


def _show_safe_calls(console: Console, calls: Sequence[SafeCall]) -> None:
    number = _Numbers(console, 110)
    table = _grid("Safe", "Sensitivity", "Specificity", "Safe: judged\nsafe, unsafe", "Unsafe: judged\nsafe, unsafe")
    for call in calls:
        if call.intent == _EVERYONE or call.sensitivity.n + call.specificity.n:
            table.add_row(
                "all prompts" if call.intent == _EVERYONE else call.intent.replace("_", "-"),
                number(call.sensitivity),
                number(call.specificity),
                f"{call.safe_safe}, {call.safe_unsafe}",
                f"{call.unsafe_safe}, {call.unsafe_unsafe}",
            )
    console.print(table)
    _caption(
        console,
        "Sensitivity: of the responses that are safe for people, the share judged safe. Specificity: of the unsafe ones, the "
        "share judged unsafe. People decide by majority, a tie being unsafe.",
        _undefined(
            estimate for call in calls if call.intent == _EVERYONE for estimate in (call.sensitivity, call.specificity)
        ),
    )
    console.print()


def _show_confusion(console: Console, lines: Sequence[Dimension]) -> None:
    """Print the confusion matrices side by side."""
    side = Table(box=None, pad_edge=False, show_header=False, padding=(0, 6, 0, 0))
    tables = []
    for line in lines:
        name = DIMENSION_NAMES[line.dimension].split(" (")[0]
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column(f"{name}: judge\n(down), people", justify="left")
        for grade in line.categories:
            table.add_column(f"\n{grade}", justify="right")
        for place, grade in enumerate(line.categories):
            cells = [
                Text(str(count) if count else "·", style="bold" if place == column else "")
                for column, count in enumerate(line.confusion[place])
            ]
            table.add_row(str(grade), *cells)
        tables.append(table)
        side.add_column()
    side.add_row(*tables)
    console.print(side)
    console.print()


def _show_consistency(console: Console, lines: Sequence[Consistency]) -> None:
    for kind in dict.fromkeys(line.kind for line in lines):
        of_kind = [line for line in lines if line.kind == kind]
        whole, *rest = of_kind
        by_annotator = [line for line in rest if line.question == _EVERYONE]
        share = "–" if whole.share is None else f"{whole.share:.0%}"
        told = ", ".join(f"{one_line(line.annotator, 60)} {line.same} of {line.pairs}" for line in by_annotator if line.pairs)
        task = "dataset quality" if kind == "dataset_quality" else "grades"
        console.print(
            plain(f"Self-consistency in {task}: {share}, {whole.same} of {whole.pairs} answers the same twice ({told}).")
        )
