"""The figure of the second turn: from the direct reply to the second one, a line for each model."""

from __future__ import annotations

from collections.abc import Mapping

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.second_turn import PRIMARY_MEASURES, Measure, TurnNumber
from opensafeintent.hostile import terminal_safe
from opensafeintent.report.figures.kit import (
    BLUE,
    GREY,
    VERMILION,
    Datum,
    Spec,
    across,
    empty,
    layer,
    mark,
    nominal,
    quantity,
    value_axis,
    whole,
)
from opensafeintent.report.figures.points import counts, labels_of, line_axis
from opensafeintent.report.values import interval, number

_WIDTH = 230
_PANELS = {
    "history_effect_benign": ("Utility, benign request", BLUE),
    "history_effect_malicious": ("Safety, malicious request", VERMILION),
}


def directly_and_after(cohort: Cohort) -> Spec:
    """Draw the two primary measures, direct and in the second turn, in a panel each."""
    turn = cohort.second_turn
    if turn is None:
        return empty()
    models = [model for model in cohort.estimates.models if model in turn.models]
    labels = labels_of(models)
    charts = [
        _panel(
            measure,
            [_datum(measure, model, labels[model], turn.numbers[model]) for model in models],
            names=0 if index else None,
        )
        for index, measure in enumerate(PRIMARY_MEASURES)
    ]
    return across(charts, spacing=30)


def _datum(measure: Measure, model: str, label: str, numbers: Mapping[str, TurnNumber]) -> Datum:
    direct, second, effect = (
        numbers[name] for name in (measure.direct, measure.follow_up, measure.effect)
    )
    ends: list[float | None] = [None, None]
    if direct.value is not None and effect.interval:
        ends = [min(max(direct.value + end, 0.0), 1.0) for end in effect.interval]
    return {
        "model": terminal_safe(model),
        "label": label,
        "direct": direct.value,
        "second": second.value,
        "low": ends[0],
        "high": ends[1],
        "before": number(direct.value, measure.unit),
        "after": number(second.value, measure.unit),
        "shown": interval(effect.value, effect.low, effect.high, measure.unit, signed=True),
        "n": effect.n,
    }


def _panel(measure: Measure, rows: list[Datum], names: int | None) -> Spec:
    """Return one measure: the change as a line from a hollow to a filled mark."""
    title, colour = _PANELS[measure.effect]
    y = line_axis(rows, names)
    x = value_axis((0.0, 1.0), measure.unit) | {"title": None}
    tooltip = [
        nominal(field, title=heading)
        for field, heading in (
            ("model", "model"),
            ("before", "direct"),
            ("after", "second turn"),
            ("shown", "effect [95 %]"),
            ("n", "prompt-sets"),
        )
    ]
    known = "isValid(datum.second)"
    whisker = {"x": quantity("low", **x), "x2": {"field": "high"}, "y": y}
    change = {"x": quantity("direct", **x), "x2": {"field": "second"}, "y": y}
    before = {"x": quantity("direct", **x), "y": y, "tooltip": tooltip}
    after = {"x": quantity("second", **x), "y": y, "tooltip": tooltip}
    marks = [
        mark("rule", whisker, where=known, strokeWidth=1.6, strokeCap="round", color=GREY),
        mark("rule", change, where=known, strokeWidth=4, opacity=0.45, color=colour),
        mark("point", before, where=known, size=70, strokeWidth=1.8, opacity=1, color=colour),
        mark("point", after, where=known, filled=True, size=60, opacity=1, color=colour),
        *counts(rows, y, _WIDTH),
    ]
    height = {"step": 24, "for": "position"}
    return layer(marks, rows, width=_WIDTH, height=height) | whole(title)
