"""Versions of a model, old to new: values and dates, the changes between them, the trend, the sets that newly fail or are
mended, and whether the judges still grade as they did.

Each table is empty where runs are in no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from opensafeintent.analysis.drift import Drift, SecondGrades, Shift
from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import COMPARED, Number
from opensafeintent.analysis.versions import Line, SetChange, Step, Turnover, Version, Versions
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, group_notes, numbered
from opensafeintent.report.tables.long import TESTED
from opensafeintent.statistics import Difference, Estimate

__all__ = [
    "VERSIONS_TABLES",
    "changes",
    "changes_in",
    "drift",
    "regrades",
    "sets",
    "trends",
    "turnover",
    "values",
]

ONE_REPEAT = (
    "How many to expect with nothing changed is not known: each prompt was put once. Two epochs or more (--epochs 2) would "
    "tell."
)
REPEATS = (
    "A count is of one repeat against one: a set that is safe in 2 of 3 repeats and then in 1 of 3 counts for 2/3 × 2/3 as "
    "newly failing. Expected is how often two repeats of one version disagree in one direction, Σ p(1 − p): so many would "
    "newly fail, and as many be mended, with nothing changed. Beyond is the count less that, with its 95 % interval."
)


class _Value(NamedTuple):
    """One version of a model."""

    group: int
    model: str
    version: Version
    number: Callable[[str], Number]


def _each(groups: Sequence[Group]) -> Iterator[tuple[int, Versions, Line]]:
    for index, group in enumerate(groups):
        if group.versions is not None:
            yield from ((index, group.versions, line) for line in group.versions.lines)


def values(groups: Sequence[Group]) -> Table:
    """Return each version of each model: when it was asked, and the primary metrics."""

    def number_of(metric: str) -> Callable[[_Value], Number]:
        return lambda line: line.number(metric)

    def numbers(group: int, model: str) -> Callable[[str], Number]:
        return lambda metric: groups[group].numbers.overall[model, metric]

    return Table(
        name="versions",
        title="Versions, old to new, and when the calls behind them were made",
        section="versions",
        columns=(
            numbered(groups),
            Column("run", "Run", "name", attrgetter("version.run")),
            Column("model", "Model", "name"),
            Column("first_call", "First call", get=attrgetter("version.first_call")),
            Column("last_call", "Last call", get=attrgetter("version.last_call")),
            *(
                column
                for metric in PRIMARY
                for column in estimate_columns(
                    metric,
                    METRICS[metric].label,
                    number_of(metric),
                    headings={"n": "Sets"} if metric == PRIMARY[0] else None,
                    order=1,
                )
            ),
        ),
        rows=[
            _Value(index, model, version, numbers(index, model))
            for index, found, line in _each(groups)
            for version, model in zip(found.order.versions, line.models, strict=True)
        ],
        notes=(*group_notes(groups), "Days are of the calls on record, of responses and grades, in UTC.", UNDEFINED),
    )


class _Change(NamedTuple):
    """One metric from one version to a later one."""

    group: int
    model: str
    """The newest version's name."""
    model_a: str
    model_b: str
    older: str
    newer: str
    metric: str
    difference: Difference


def changes_in(index: int, versions: Versions, line: Line, metric: str) -> list[_Change]:
    """Return the changes of a model's versions in one metric: each version and the next, and the first and the last."""

    def change(step: Step) -> _Change | None:
        if (found := line.change(metric, step)) is None:
            return None
        (model_a, older), (model_b, newer) = ((line.models[place], versions.order.versions[place].run) for place in step)
        return _Change(index, line.name, model_a, model_b, older, newer, metric, found)

    return [found for step in line.steps if (found := change(step)) is not None]


def changes(groups: Sequence[Group]) -> Table:
    """Return the change of every compared metric from each version to the next, and from the first to the last."""
    return Table(
        name="version_changes",
        title="Changes from version to version, later minus earlier",
        section="versions",
        columns=(
            numbered(groups),
            Column("model", "Model", "name"),
            Column("model_a"),
            Column("model_b"),
            Column("older", "From"),
            Column("newer", "To"),
            Column("metric", "Metric", order=-1),
            Column("difference", "Change", "signed"),
            *TESTED,
        ),
        rows=[
            change
            for index, found, line in _each(groups)
            for metric in COMPARED
            for change in changes_in(index, found, line, metric)
        ],
        notes=(
            *group_notes(groups),
            "On the prompt-sets that count for both versions. Beside p it is adjusted for all pairs of versions of "
            "a model within one metric, by step-down max-T. Detectable is the smallest change found with a power of 80 %.",
            UNDEFINED,
        ),
    )


class _Trend(NamedTuple):
    """How a metric moves from one version to the next, on the whole."""

    group: int
    model: str
    metric: str
    versions: int
    slope: Estimate


def trends(groups: Sequence[Group]) -> Table:
    """Return the slope per version of each primary metric."""
    return Table(
        name="version_trends",
        title="Trend: the change per version",
        section="versions",
        columns=(
            numbered(groups),
            Column("model", "Model", "name"),
            Column("metric", "Metric", order=-1),
            Column("versions", "Versions", "count"),
            *estimate_columns("slope", "Change per version", style="signed", parts=("n", "method"), headings={"n": "Sets"}),
        ),
        rows=[
            _Trend(index, line.name, metric, len(line.models), slope)
            for index, _, line in _each(groups)
            for metric, slope in line.trends.items()
        ],
        notes=(
            *group_notes(groups),
            "The slope of the least-squares line through versions taken as equally far apart, on the prompt-sets that count "
            "in every version. Its interval is about other prompt-sets, not about the next version.",
            UNDEFINED,
        ),
    )


class _Turnover(NamedTuple):
    """What newly fails, or is mended, from one version to the next."""

    group: int
    model: str
    older: str
    newer: str
    found: Turnover


def turnover(groups: Sequence[Group]) -> Table:
    """Return how many prompt-sets newly fail and are mended, beside how many to expect with nothing changed."""
    lines = [
        _Turnover(index, line.name, older.run, newer.run, found)
        for index, versions, line in _each(groups)
        for older, newer, found in versions.turned(line)
    ]
    told = any(line.found.expected is not None for line in lines)
    return Table(
        name="version_turnover",
        title="Prompt-sets that newly fail, and that are mended",
        section="versions",
        columns=(
            numbered(groups),
            Column("model", "Model", "name"),
            Column("older", "From"),
            Column("newer", "To"),
            Column("n", "Sets", "count", attrgetter("found.n")),
            Column("failing", "Newly fail", "number", attrgetter("found.failing")),
            Column("mended", "Mended", "number", attrgetter("found.mended")),
            Column("expected", "Expected", "number", attrgetter("found.expected")),
            *(
                Column(f"{what}_excess", heading, "signed", attrgetter(f"found.{what}_excess"))
                for what, heading in (("failing", "Newly fail, beyond"), ("mended", "Mended, beyond"))
            ),
        ),
        rows=lines,
        notes=(
            *group_notes(groups),
            "Failing is unsafe at one intent or more of the task. " + (REPEATS if told else ONE_REPEAT),
            UNDEFINED,
        ),
    )


class _Set(NamedTuple):
    """A prompt-set that newly fails or is mended."""

    group: int
    model: str
    model_a: str
    what: str
    older: str
    newer: str
    change: SetChange
    harm_domain: str
    task_type: str


def sets(groups: Sequence[Group]) -> Table:
    """Return the prompt-sets that newly fail and those that are mended, the largest change first."""

    def lines(index: int, versions: Versions, line: Line) -> Iterator[_Set]:
        for (older, newer, found), (model_a, model) in zip(versions.turned(line), pairwise(line.models), strict=True):
            for what, listed in (("newly fails", found.newly_failing), ("mended", found.newly_mended)):
                for change in listed:
                    item = groups[index].dataset.by_id[change.set_id]
                    yield _Set(index, model, model_a, what, older.run, newer.run, change, item.harm_domain, item.task_type)

    return Table(
        name="version_sets",
        title="Which prompt-sets newly fail, and which are mended",
        section="versions",
        columns=(
            numbered(groups),
            Column("model", "Model", "name"),
            Column("model_a"),
            Column("older", "From"),
            Column("newer", "To"),
            Column("what", "Now"),
            Column("set_id", "Prompt-set", get=attrgetter("change.set_id")),
            Column("before", "Safe before", "share", attrgetter("change.before")),
            Column("after", "Safe now", "share", attrgetter("change.after")),
            Column("harm_domain", "Harm domain"),
            Column("task_type", "Task type"),
        ),
        rows=[found for index, versions, line in _each(groups) for found in lines(index, versions, line)],
        notes=(
            *group_notes(groups),
            "Safe is the share of repeats in which the set was safe across intents. A set's id leads to its responses in the "
            "newer version; the same set in the older one is a step from there.",
        ),
    )


class _Shift(NamedTuple):
    """How far a judge has shifted."""

    group: int
    found: Shift
    run: str
    kept: str


def _drifts(groups: Sequence[Group]) -> Iterator[tuple[int, Drift]]:
    for index, group in enumerate(groups):
        if group.versions is not None and group.versions.order.drift is not None:
            yield index, group.versions.order.drift


def drift(groups: Sequence[Group]) -> Table:
    """Return what judges made of old responses when they graded them once more."""
    return Table(
        name="version_judges",
        title="Old responses graded once more by the judges",
        section="versions",
        columns=(
            numbered(groups),
            Column("judge", "Judge", "name", attrgetter("found.judge")),
            Column("what", "Grade of", get=attrgetter("found.what")),
            Column("run", "Responses of"),
            Column("kept", "Second grades kept with"),
            Column("responses", "Responses", "count", attrgetter("found.responses")),
            *estimate_columns("shift", "Now − then", attrgetter("found.shift"), style="signed", headings={"n": "Sets"}),
        ),
        rows=[
            _Shift(index, found, checked.run, checked.kept) for index, checked in _drifts(groups) for found in checked.shifts
        ],
        notes=(
            *group_notes(groups),
            "helpfulness is raw, from 1 to 4; safe is the share of responses graded safe. The intervals hold together at "
            "95 %: judges that have not changed are told changed in one of twenty checks at most. Six responses or fewer "
            "that all move one way are not told from chance. Without an interval no grade moved.",
            UNDEFINED,
        ),
    )


class _SecondGrade(NamedTuple):
    """What one judge says of one old response, then and now."""

    group: int
    judge: str
    item: SecondGrades

    def grade(self, when: str, what: str) -> int | None:
        found = getattr(getattr(self.item, when)[self.judge], what)
        return found if isinstance(found, int) else None


def regrades(groups: Sequence[Group]) -> Table:
    """Return every old response that was graded once more, a line for each judge; in files alone."""

    def grade(when: str, what: str) -> Callable[[_SecondGrade], int | None]:
        return lambda line: line.grade(when, what)

    def row(place: int) -> Callable[[_SecondGrade], int | None]:
        return lambda line: line.item.rows[line.judge][place]

    whats = ("helpfulness", "harm_severity")
    labels = {"helpfulness": "Helpfulness", "harm_severity": "Harm"}
    return Table(
        name="version_regrades",
        title="Old responses graded once more, one by one",
        columns=(
            numbered(groups),
            Column("model", "Model", "name", attrgetter("item.model")),
            Column("set_id", "Prompt-set", get=attrgetter("item.set_id")),
            Column("variant", "Variant", get=attrgetter("item.variant")),
            Column("epoch", "Epoch", "count", attrgetter("item.epoch")),
            Column("judge", "Judge", "name"),
            *(
                Column(f"{what}_{name}", f"{labels[what]} {name}", "count", grade(when, what))
                for what in whats
                for when, name in (("first", "then"), ("again", "now"))
            ),
            *(Column(f"{what}_row", f"{labels[what]} now, row", "count", row(place)) for place, what in enumerate(whats)),
        ),
        rows=[
            _SecondGrade(index, judge, item)
            for index, checked in _drifts(groups)
            for item in checked.grades
            for judge in item.again
            if judge in item.first
        ],
        notes=(*group_notes(groups), "Rows are of the table calls in the ledger of the newest run."),
    )


VERSIONS_TABLES = (values, changes, trends, turnover, sets, drift, regrades)
"""What makes each of them."""
