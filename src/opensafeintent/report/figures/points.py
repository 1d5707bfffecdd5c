"""Lines of points with whiskers: names that fit, rows of data, series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opensafeintent.analysis.estimates import AVERAGE, MetricEstimate, MetricEstimates
from opensafeintent.hostile import terminal_safe
from opensafeintent.metrics import METRICS
from opensafeintent.report.figures.kit import (
    GREY,
    SHAPES,
    Datum,
    Spec,
    layer,
    mark,
    nominal,
    pixels,
    quantity,
    value_axis,
)
from opensafeintent.report.values import common_beginning, estimate_text, shortened

WIDTH = 400
"""Pixels of a chart that fills the page's width, its names and counts aside."""
_NAME = 34
"""Characters of a model's name beside a chart; all of it is in the tooltip."""


def labels_of(models: Sequence[str], most: int = _NAME) -> dict[str, str]:
    """Return a short name for each model, on one line, none twice; their common beginning goes, and
    then the beginning of a name that is too long.
    """
    labels: dict[str, str] = {}
    common = common_beginning(models)
    flats = {model: terminal_safe(" ".join(model.removeprefix(common).split())) for model in models}
    ends = {model: _end_of(flat, most) for model, flat in flats.items()}
    counts = Counter(ends.values())
    for model, flat in flats.items():
        label, number = ends[model], 1
        if counts[label] > 1:  # it takes the middle out: two may differ at their beginning
            label = shortened(flat, most)
        while label in (*labels.values(), AVERAGE):
            number += 1
            label = f"{shortened(flat, most - len(f' ({number})'))} ({number})"
        labels[model] = label
    return labels


def _end_of(name: str, most: int) -> str:
    """Return as many of the last parts of a name as there is room for; one that is too long by
    itself without its middle.
    """
    parts = name.split("/")
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if end and len(end) <= most), shortened(name, most))


def row_of(number: MetricEstimate, labels: Mapping[str, str], series: str) -> Datum:
    """Return a number as a chart takes it, and as a tooltip shows it."""
    average = number.models is not None
    return {
        "model": f"{AVERAGE} ({number.models} models)" if average else terminal_safe(number.model),
        "label": AVERAGE if average else labels[number.model],
        "series": series,
        "value": None if number.value is None else round(number.value, 6),
        "low": number.low,
        "high": number.high,
        "shown": estimate_text(number, METRICS[number.metric].unit),
        "n": number.n,
        "thin": False,
    }


def lines_of(estimates: MetricEstimates, metric: str) -> list[MetricEstimate]:
    """Return a metric of every model in order, then its average if there are two models or more to
    average.
    """
    lines = estimates.in_lines(metric)
    return (
        lines
        if len(estimates.averaged) > 1
        else [number for number in lines if number.models is None]
    )


def any_value(rows: Sequence[Datum]) -> bool:
    """Tell whether any row has a value."""
    return any(row["value"] is not None for row in rows)


def tooltip(*more: tuple[str, str]) -> list[Spec]:
    """Return the fields of every tooltip: the model's whole name, the value with its interval, the
    prompt-sets behind it.
    """
    fields = (("model", "model"), *more, ("shown", "value [95 %]"), ("n", "prompt-sets"))
    return [nominal(field, title=title) for field, title in fields]


class Series(NamedTuple):
    """A dimension shown by colour and shape."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...] = SHAPES

    @property
    def colour(self) -> Spec:
        """The colour encoding; one series alone needs no legend."""
        return self._encoding(self.colours)

    @property
    def shape(self) -> Spec:
        """The shape encoding; its legend is merged with the colours'."""
        return self._encoding(self.shapes)

    @property
    def offset(self) -> Spec:
        """Several series side by side on the y axis."""
        if len(self.names) == 1:
            return {}
        return {"yOffset": nominal("series", scale={"domain": list(self.names)})}

    def _encoding(self, values: Sequence[str]) -> Spec:
        scale = {"domain": list(self.names), "range": list(values[: len(self.names)])}
        legend = {} if len(self.names) > 1 else {"legend": None}
        return nominal("series", scale=scale, title=None, **legend)


_NARROW = 200
"""Pixels of a chart that has room for a few ticks alone."""
_COUNTS = 40
"""Pixels for the numbers of prompt-sets beside a chart."""


def line_axis(rows: Sequence[Datum], names: int | None = None) -> Spec:
    """Return the y axis: a line for each label, in the order of the rows.

    Args:
        rows: with their `label`.
        names: pixels for the labels: as many as they need if None, none at all if 0.
    """
    axis: Spec | None = {}
    if names is not None:
        axis = {"minExtent": names, "maxExtent": names, "labelLimit": names} if names else None
    order = list(dict.fromkeys(row["label"] for row in rows))
    apart = {"domain": order, "paddingInner": 0.25 if len(rows) > len(order) else 0}
    return nominal("label", scale=apart, sort=None, title=None, axis=axis)


def dots(
    rows: Sequence[Datum],
    series: Series,
    metric: str,
    *,
    width: int,
    title: str | None = None,
    step: int = 22,
    names: int | None = None,
    faint: Sequence[Datum] = (),
) -> Spec:
    """Return points with whiskers, a line for each label in the order of the rows.

    Args:
        rows: from `row_of`; those that are `thin` are drawn hollow.
        series: the dimension of the points of one line.
        metric: of the points, whose span the x axis has.
        width: in pixels, the column of counts aside.
        title: of the x axis.
        step: pixels a line.
        names: pixels for the lines' names, as in `line_axis`.
        faint: points without whiskers behind the others.
    """
    y = line_axis(rows, names)
    of = METRICS[metric]
    x = value_axis(of.span, of.unit, most=6 if width > _NARROW else 3) | {"title": title}
    what = {"tooltip": tooltip(("series", "what")), "color": series.colour, "shape": series.shape}
    at = {"y": y, **series.offset}
    behind = {"x": quantity("value", **x), "y": y, "tooltip": tooltip()}
    sure = {"x": quantity("low", **x), "x2": {"field": "high"}, "color": series.colour}
    point = {"x": quantity("value", **x), **at, **what}
    marks = [
        band(rows, y),
        mark("circle", behind, rows=faint, size=26, opacity=0.5, color=GREY),
        mark("rule", sure | at, where="isValid(datum.low)", strokeWidth=2, strokeCap="round"),
        mark(
            "point",
            point,
            where="isValid(datum.value) && !datum.thin",
            filled=True,
            size=60,
            opacity=1,
        ),
        mark(
            "point",
            point,
            where="isValid(datum.value) && datum.thin",
            size=46,
            strokeWidth=1.8,
            opacity=1,
        ),
        *counts(rows, y, width),
    ]
    return layer(marks, rows, width=width, height={"step": step, "for": "position"})


def band(rows: Sequence[Datum], y: Spec) -> Spec:
    """Return a shade behind the line of the model average."""
    average = [{"label": AVERAGE}] if any(row["label"] == AVERAGE for row in rows) else []
    return mark("rect", {"y": y}, rows=average, color=GREY, opacity=0.15)


def counts(rows: Sequence[Datum], y: Spec, width: int) -> list[Spec]:
    """Return a column with the number of prompt-sets of each line, right of the chart."""
    once = {row["label"]: {"label": row["label"], "count": f"{row['n']:,}"} for row in rows}
    numbers = {"y": y, "x": pixels(width + _COUNTS), "text": nominal("count")}
    head = {"y": pixels(-8), "x": pixels(width + _COUNTS), "text": nominal("text")}
    return [
        mark("text", numbers, rows=list(once.values()), opacity=0.75, align="right"),
        mark("text", head, rows=[{"text": "n"}], fontStyle="italic", align="right"),
    ]
