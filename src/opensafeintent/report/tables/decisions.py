"""What was decided with fewer calls, and the looks on the way. Both tables are empty where nothing was to be decided."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from opensafeintent.analysis.decisions import Course, KeptLook
from opensafeintent.analysis.groups import Group
from opensafeintent.report.decisions import INTERVAL_NOTE, verdict_word
from opensafeintent.report.table import Column, Table
from opensafeintent.report.tables.grouped import group_notes, lead

__all__ = ["decisions", "looks"]


class _Value(NamedTuple):
    """A value with its repeated interval."""

    value: float
    low: float
    high: float


class _Decided(NamedTuple):
    """One decision about one model or pair."""

    group: int
    model: str
    course: Course

    @property
    def value(self) -> _Value | None:
        return _value(self.course.looks[-1]) if self.course.looks else None


class _Looked(NamedTuple):
    """One look of a decision."""

    group: int
    model: str
    course: Course
    number: int
    look: KeptLook


def _value(look: KeptLook) -> _Value | None:
    return None if look.estimate is None or look.interval is None else _Value(look.estimate, *look.interval)


def _lines(groups: Sequence[Group]) -> list[_Decided]:
    return [
        _Decided(index, course.match.model, course) for index, group in enumerate(groups) for _, course in group.decisions
    ]


def decisions(groups: Sequence[Group]) -> Table:
    """Return what was decided of each model or pair, after how many prompt-sets."""
    rows = _lines(groups)
    paired = any(line.course.match.against is not None for line in rows)
    several = len({(line.course.frozen.question, line.course.frozen.confidence) for line in rows}) > 1
    late = any(line.course.frozen.exploratory for line in rows)
    return Table(
        name="decisions",
        title="Decided with fewer calls",
        section="decisions",
        columns=(
            *lead(groups),
            Column("against", "Against" if paired else None, "name", lambda line: line.course.match.against),
            Column("question", "Question", get=attrgetter("course.frozen.question")),
            Column("verdict", "Verdict", get=lambda line: verdict_word(line.course)),
            Column("sets", "Sets", "count", attrgetter("course.seen")),
            Column("most", "of sets", "count", attrgetter("course.design.sets")),
            Column("looks", "Looks", "count", lambda line: len(line.course.looks)),
            Column("planned_looks", "of looks", "count", lambda line: len(line.course.design.looks)),
            Column("value", "Difference" if paired else "Value", "interval"),
            Column("confidence", "Confidence" if several else None, "number", attrgetter("course.frozen.confidence")),
            Column("alpha", get=attrgetter("course.design.alpha")),
            Column(
                "exploratory",
                "Exploratory, since" if late else None,
                get=lambda line: "; ".join(line.course.frozen.exploratory),
            ),
        ),
        rows=rows,
        notes=(INTERVAL_NOTE, *group_notes(groups)),
    )


def looks(groups: Sequence[Group]) -> Table:
    """Return every look, with what would have decided it."""
    rows = [
        _Looked(line.group, line.model, line.course, number, look)
        for line in _lines(groups)
        for number, look in enumerate(line.course.looks, start=1)
    ]
    return Table(
        name="looks",
        title="The looks on the way to each decision",
        columns=(
            *lead(groups),
            Column("against", None, "name", lambda line: line.course.match.against),
            Column("question", "Question", get=attrgetter("course.frozen.question")),
            Column("number", "Look", "count"),
            Column("sets", "Sets", "count", attrgetter("look.planned")),
            Column("n", "Counted", "count", attrgetter("look.n")),
            Column("value", "Value", "interval", lambda line: _value(line.look)),
            Column("statistic", "Held", "number", attrgetter("look.statistic")),
            Column("lower", "against, below", "number", attrgetter("look.lower")),
            Column("upper", "above", "number", attrgetter("look.upper")),
            Column("spent_low", None, "number", attrgetter("look.spent_low")),
            Column("spent_high", None, "number", attrgetter("look.spent_high")),
            Column("verdict", "Verdict", get=attrgetter("look.verdict")),
        ),
        rows=rows,
        notes=(INTERVAL_NOTE, *group_notes(groups)),
    )
