"""The figure of the intent-swap audit: how much of each gap between intents the response makes, and how much the prompt."""

from __future__ import annotations

from opensafeintent.analysis.agreement import PANEL
from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.swap import GRADES, PAIRS, Audit, Grade, told_of
from opensafeintent.report.figures.kit import BLUE, GREY, VERMILION, Datum, Series, Spec, across, dots, labels_of, whole
from opensafeintent.report.formats import interval
from opensafeintent.statistics import Estimate
from opensafeintent.taxonomy import INTENT_LABELS

__all__ = ["splits"]

_SERIES = Series(("gap", "by the response", "by the prompt"), (GREY, BLUE, VERMILION), ("diamond", "circle", "square"))
_NAME = 24
_TICKS = (-100, -50, 0, 50, 100)


def splits(group: Group) -> Spec:
    """Draw the gap between every two intents and its two parts, a line for each judge and pair: safety, helpfulness."""
    told = told_of(group.audits)
    labels = labels_of([grader for grader in told if grader != PANEL], _NAME) | {PANEL: PANEL}
    charts = [
        dots(
            [row for grader, audit in told.items() for row in _rows(audit, grade, labels[grader])],
            _SERIES,
            width=270,
            title="points",
            step=34,
            ticks=_TICKS,
            names=0 if index else None,
            domain=(-100, 100),
        )
        | whole(grade.capitalize())
        for index, grade in enumerate(GRADES)
    ]
    return across(charts, spacing=30)


def _rows(audit: Audit, grade: Grade, label: str) -> list[Datum]:
    found = []
    for pair in PAIRS:
        split = audit.splits[grade]["_".join(pair)]
        between = " to ".join(INTENT_LABELS[intent].lower() for intent in pair)
        for series, part in zip(_SERIES.names, (split.gap, split.response, split.prompt), strict=True):
            found.append(_row(part, f"{label}: {between}", series))
    return found


def _row(part: Estimate, label: str, series: str) -> Datum:
    value, low, high = (None if end is None else round(100 * end, 6) for end in (part.value, part.low, part.high))
    return {
        **{"model": label, "label": label, "series": series, "value": value, "low": low, "high": high},
        **{"shown": interval(part.value, part.low, part.high, signed=True), "n": part.n, "thin": False},
    }
