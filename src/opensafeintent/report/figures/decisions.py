"""The figure of decisions: each path between its boundaries, look by look."""

from __future__ import annotations

from opensafeintent.analysis.decisions import Course
from opensafeintent.analysis.groups import Group
from opensafeintent.hostile import terminal_safe
from opensafeintent.report.decisions import boundaries_text, shown_estimate, verdict_word
from opensafeintent.report.figures.kit import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    Datum,
    Spec,
    across,
    down,
    labels_of,
    layer,
    mark,
    nominal,
    quantity,
    whole,
)
from opensafeintent.statistics.decisions import boundaries_ahead

__all__ = ["paths"]

_WIDTH, _HEIGHT = 290, 150
_NAME = 30
_BESIDE = 2


def paths(group: Group) -> Spec:
    """Draw a panel for each decision, two beside one another."""
    courses = [course for _, course in group.decisions]
    named = [name for course in courses for name in course.match.models]
    labels = labels_of(list(dict.fromkeys(named)), _NAME)
    panels = [_panel(course, " − ".join(labels[name] for name in course.match.models)) for course in courses]
    lines = [across(panels[start : start + _BESIDE], spacing=34) for start in range(0, len(panels), _BESIDE)]
    return lines[0] if len(lines) == 1 else down(lines, spacing=26)


def _panel(course: Course, name: str) -> Spec:
    design, paired = course.design, course.question.paired
    rows = [_row(course, number) for number in range(len(course.looks))]
    ahead = [ahead._asdict() | {"sets": ahead.planned} for ahead in boundaries_ahead(design, course.looks)]
    joined = [*rows[-1:], *ahead]
    upper, lower = ("no", "yes") if design.less_is_better else ("yes", "no")
    colours = {"yes": GREEN, "no": VERMILION}
    scale: Spec = {"zero": False} if paired else {"domain": [0, 1]}
    title = "standardised difference" if paired else course.question.metric
    y = {"title": title, "scale": scale}
    at = {"x": quantity("sets", title="prompt-sets", scale={"domain": [0, design.sets]}), "tooltip": _TOOLTIP}
    tested = 0.0 if paired else design.tested
    marks = [
        mark("rule", {"y": quantity("tested", **y)}, rows=[{"tested": tested}], strokeDash=[4, 3], color=GREY),
        *(
            mark(kind, at | {"y": quantity(end, **y)}, where=f"isValid(datum.{end})", color=colours[answer], **look)
            for end, answer in (("upper", upper), ("lower", lower))
            for kind, look in (("line", {"strokeWidth": 1.5}), ("tick", {"thickness": 2, "size": 9, "orient": "horizontal"}))
        ),
        *(
            mark(
                "line",
                {"x": at["x"], "y": quantity(end, **y)},
                rows=joined,
                where=f"isValid(datum.{end})",
                color=colours[answer],
                strokeWidth=1.2,
                opacity=0.45,
            )
            for end, answer in (("upper", upper), ("lower", lower))
        ),
        mark("line", at | {"y": quantity("statistic", **y)}, where="isValid(datum.statistic)", color=BLUE, strokeWidth=2),
        mark(
            "circle", at | {"y": quantity("statistic", **y)}, where="isValid(datum.statistic)", color=BLUE, size=36, opacity=1
        ),
    ]
    return layer(marks, rows, width=_WIDTH, height=_HEIGHT) | whole(f"{name}: {_told(course)}")


_TOOLTIP = [
    *(nominal("look", title="look"), nominal("sets", title="prompt-sets"), nominal("n", title="counted")),
    *(
        nominal("shown", title="value [repeated interval]"),
        nominal("decides", title="decides"),
        nominal("verdict", title="verdict"),
    ),
]


def _row(course: Course, number: int) -> Datum:
    look = course.looks[number]
    return {
        "look": f"{number + 1} of {len(course.design.looks)}",
        "sets": look.planned,
        "n": look.n,
        "statistic": look.statistic,
        "lower": look.lower,
        "upper": look.upper,
        "shown": terminal_safe(shown_estimate(course, look)),
        "decides": terminal_safe(boundaries_text(course, look)),
        "verdict": look.verdict or "–",
    }


def _told(course: Course) -> str:
    exploratory = ", exploratory" if course.frozen.exploratory else ""
    return f"{verdict_word(course)} at {course.seen:,} of {course.design.sets:,}{exploratory}"
