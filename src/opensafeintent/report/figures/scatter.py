"""A plane between two metrics, with a point for each model."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.estimates import MetricEstimates
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.metrics import METRICS
from opensafeintent.report.figures.kit import (
    BLUE,
    GREY,
    ORANGE,
    Datum,
    Spec,
    across,
    layer,
    mark,
    nominal,
    pixels,
    quantity,
)
from opensafeintent.report.figures.label_places import SIDE, Span, place_labels
from opensafeintent.report.figures.points import labels_of, row_of
from opensafeintent.report.values import estimate_text

_NAMED = 8
"""Models that are named beside their points; more are numbered, with a key."""

_SHARES = {metric.label for metric in METRICS.values() if metric.is_share}


def span_of(metric: str, low: float, high: float) -> Span:
    """Return the ends of an axis within a metric's span, in steps of a tenth, a little beyond the
    data.
    """
    least, greatest = METRICS[metric].span
    return max(least, (low - 0.01) // 0.1 / 10), min(greatest, -((-high - 0.01) // 0.1) / 10)


def positions(estimates: MetricEstimates, x_metric: str, y_metric: str) -> list[Datum]:
    """Return the point of each model; a model without both metrics has none."""
    labels = labels_of(estimates.models, most=30)
    rows: list[Datum] = []
    for model in estimates.models:
        x, y = (estimates.overall[model, metric] for metric in (x_metric, y_metric))
        if x.value is None or y.value is None:
            continue
        rows.append(
            row_of(x, labels, "")
            | {
                "fixed": is_baseline(model),
                "computed": False,
                "key": labels[model],
                "x": x.value,
                "low_x": x.value if x.low is None else x.low,
                "high_x": x.high,
                "shown_x": estimate_text(x, METRICS[x_metric].unit),
                "y": y.value,
                "low_y": y.value if y.low is None else y.low,
                "high_y": y.high,
                "shown_y": estimate_text(y, METRICS[y_metric].unit),
            }
        )
    return rows


def computed(name: str, about: str, x: float | None, y: float | None) -> Datum:
    """Return a point of reference without responses behind it."""
    assert x is not None
    assert y is not None
    return {
        "model": f"{name} ({about})",
        "key": name,
        "n": "–",
        "fixed": True,
        "computed": True,
        "x": x,
        "low_x": x,
        "high_x": x,
        "shown_x": f"{x:.2f}",
        "y": y,
        "low_y": y,
        "high_y": y,
        "shown_y": f"{100 * y:.0f} %",
    }


def scatter(
    rows: Sequence[Datum],
    labels: Sequence[str],
    spans: Sequence[Span],
    *,
    under: Sequence[Spec],
    side: int = SIDE,
) -> Spec:
    """Return points with whiskers and names, crosses for computed points, diamonds for
    baselines; beside it a key if there are many.

    Args:
        rows: from `positions` and `computed`.
        labels: of the x and the y axis.
        spans: the ends of these axes.
        under: marks to lie below, on the same axes.
        side: of the plane, pixels.
    """
    points = [row for row in rows if not row["fixed"]]
    numbered = len(points) > _NAMED
    for index, row in enumerate(points, 1):
        row["key"] = str(index) if numbered else row["label"]
    place_labels(rows, spans, side)
    x, y = (_axis(label, span) for label, span in zip(labels, spans, strict=True))
    at = {"x": quantity("x", **x), "y": quantity("y", **y)}
    line = at | {"x2": {"field": "line_x"}, "y2": {"field": "line_y"}}
    marks = [
        *({**lower, "encoding": lower["encoding"] | at} for lower in under),
        mark("rule", line, where="isValid(datum.line_x)", color=GREY, strokeWidth=0.9),
        *_points(x, y, labels),
    ]
    chart = layer(marks, rows, width=side, height=side)
    return across([chart, _key(points)], spacing=24) if numbered else chart


def _axis(label: str, span: Span) -> Spec:
    return {
        "scale": {"domain": list(span), "nice": False, "zero": False},
        "title": f"{label} →",
        "axis": {
            "grid": True,
            "values": [tenth / 10 for tenth in range(round(10 * span[0]), round(10 * span[1]) + 1)],
            "format": "%" if label in _SHARES else ".1f",
        },
    }


def _points(x: Spec, y: Spec, labels: Sequence[str]) -> list[Spec]:
    """Return points of every kind, with whiskers, names and tooltips.

    Args:
        x, y: the axes.
        labels: of the axes.
    """
    at = {"x": quantity("x", **x), "y": quantity("y", **y)}
    wide = {"x": quantity("low_x", **x), "x2": {"field": "high_x"}, "y": quantity("y", **y)}
    high = {"x": quantity("x", **x), "y": quantity("low_y", **y), "y2": {"field": "high_y"}}
    name = {"x": quantity("label_x", **x), "y": quantity("label_y", **y), "text": nominal("key")}
    headings = (f"{label} [95 %]" for label in labels)
    shown = (
        ("model", "model"),
        *zip(("shown_x", "shown_y"), headings, strict=True),
        ("n", "prompt-sets"),
    )
    tips = {"tooltip": [nominal(field, title=title) for field, title in shown]}
    marks: list[Spec] = []
    kinds: list[tuple[str, str, Spec, Spec]] = [
        ("datum.computed", GREY, {"shape": "cross", "size": 90}, {"fontStyle": "italic"}),
        ("datum.fixed && !datum.computed", ORANGE, {"shape": "diamond", "size": 90}, {}),
        ("!datum.fixed", BLUE, {"shape": "circle", "size": 60}, {}),
    ]
    for where, colour, shape, font in kinds:
        marks += [
            *(
                mark("rule", span, where=where, color=colour, opacity=0.65, strokeWidth=1.4)
                for span in (wide, high)
            ),
            mark("point", at | tips, where=where, color=colour, filled=True, opacity=1, **shape),
            mark("text", name, where=where, align="left", baseline="middle", **font),
        ]
    return marks


def _key(points: Sequence[Datum]) -> Spec:
    """Return the names behind the numbers."""
    rows = [
        {"place": index, "key": row["key"], "label": row["label"]}
        for index, row in enumerate(points)
    ]
    y = {"field": "place", "type": "ordinal", "axis": None}
    marks = [
        mark(
            "text",
            {"y": y, "x": pixels(16), "text": nominal("key")},
            align="right",
            fontWeight="bold",
        ),
        mark("text", {"y": y, "x": pixels(24), "text": nominal("label")}, align="left"),
    ]
    return layer(marks, rows, width=200, height={"step": 18})
