"""Versions of a model, old to new: the primary metrics of each, and the trend through them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.versions import Line, Versions
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.figures.kit import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SHAPES,
    SKY,
    VERMILION,
    Datum,
    Series,
    Spec,
    across,
    labels_of,
    layer,
    mark,
    nominal,
    quantity,
    row_of,
    tooltip,
    whole,
)

__all__ = ["trend"]

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
_STEP = 90
"""Pixels from one version to the next."""
_HEIGHT = 240
_NAME = 16
"""Characters of a run's name below the chart."""


def trend(group: Group) -> Spec:
    """Draw the primary metrics of each version, versions from left to right, with the trend where there are three or more."""
    assert group.versions is not None
    versions = group.versions
    runs = labels_of([version.run for version in versions.order.versions], _NAME)
    names = labels_of([line.name for line in versions.lines])
    series = Series(
        tuple(names.values()),
        tuple(islice(cycle(_COLOURS), len(names))),
        tuple(islice(cycle(SHAPES), len(names))),
    )
    return across([_panel(group, versions, metric, list(runs.values()), names, series) for metric in PRIMARY], spacing=40)


def _panel(group: Group, versions: Versions, metric: str, runs: Sequence[str], names: dict[str, str], series: Series) -> Spec:
    rows: list[Datum] = []
    trends: list[Datum] = []
    for line in versions.lines:
        name = names[line.name]
        rows += [
            row_of(group.numbers.overall[model, metric], {model: name}, name) | {"run": run}
            for run, model in zip(runs, line.models, strict=True)
        ]
        trends += _fitted(line, metric, runs, name)
    offset: Spec = {} if len(names) == 1 else {"xOffset": nominal("series", scale={"domain": list(series.names)})}
    axis = {"labelAngle": 0, "grid": False, "labelLimit": _STEP - 6}
    x = nominal("run", sort=None, scale={"domain": list(runs), "padding": 0.35}, title=None, axis=axis)
    y = {"scale": {"domain": [0, 1]}, "title": None, "axis": {"grid": True, "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}}
    at = {"x": x, **offset}
    point = {"y": quantity("value", **y), "color": series.colour, "shape": series.shape}
    sure = {"y": quantity("low", **y), "y2": {"field": "high"}, "color": series.colour}
    fitted = {"x": x, "y": quantity("value", **y), "color": series.colour, "detail": nominal("series")}
    marks = [
        mark("line", fitted, rows=trends, strokeDash=[5, 4], strokeWidth=1.5),
        mark("rule", at | sure, where="isValid(datum.low)", strokeWidth=2, strokeCap="round"),
        mark(
            "point",
            at | point | {"tooltip": tooltip(("run", "run"))},
            where="isValid(datum.value)",
            filled=True,
            size=60,
            opacity=1,
        ),
    ]
    return layer(marks, rows, width={"step": _STEP, "for": "position"}, height=_HEIGHT) | whole(METRICS[metric].label, 8)


def _fitted(line: Line, metric: str, runs: Sequence[str], name: str) -> list[Datum]:
    """Return the trend of a model as a line through its versions, about the mean of their values; none of two versions."""
    slope = line.trends[metric].value if metric in line.trends else None
    values = [line.group.numbers.overall[model, metric].value for model in line.models]
    known = [value for value in values if value is not None]
    if slope is None or len(known) < len(values):
        return []
    middle, centre = (len(runs) - 1) / 2, sum(known) / len(known)
    return [
        {"run": run, "series": name, "value": round(centre + slope * (place - middle), 6)} for place, run in enumerate(runs)
    ]
