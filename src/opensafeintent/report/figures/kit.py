"""Parts of charts: the look, and the words of Vega-Lite.

Specifications are plain Vega-Lite. Text from outside (a model's name above all) goes into data and
axis domains only, never into an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opensafeintent.numbers.metrics import Unit

Spec = dict[str, Any]


Datum = dict[str, Any]
"""Both plain JSON."""


# Okabe and Ito, Color Universal Design (2008).
BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"


ORANGE, VERMILION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"


GREY = "#808080"
"""In the middle between white and black."""


PALE = "#CFCFCF"
"""Between BLUE and VERMILION if they are opposites."""


SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")


FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Faces of the same widths, so that a figure is laid out alike everywhere."""


LAYOUT: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 260,
        "domain": False,
        "gridColor": GREY,
        "gridOpacity": 0.3,
        "tickColor": GREY,
        "tickOpacity": 0.5,
    },
    "axisY": {"ticks": False, "labelPadding": 8, "grid": False},
    "axisX": {"tickSize": 4, "grid": True, "labelFlush": False},
    "legend": {
        "orient": "top",
        "title": None,
        "labelFontSize": 11,
        "symbolSize": 70,
        "labelLimit": 260,
        "columnPadding": 16,
    },
    "title": {"anchor": "start", "fontSize": 12, "fontWeight": "bold"},
    "header": {
        "labelFontSize": 11,
        "labelFontWeight": "bold",
        "labelAnchor": "start",
        "title": None,
        "labelLimit": 200,
    },
}
"""Configuration for every theme."""


def _theme(ink: str, quiet: str, background: str) -> Spec:
    return {
        "background": background,
        "axis": {"labelColor": ink, "titleColor": quiet},
        "legend": {"labelColor": ink},
        "title": {"color": ink, "subtitleColor": quiet},
        "header": {"labelColor": ink},
        "text": {"color": ink},
    }


THEMES = {
    "light": _theme("#1a1a1a", "#555555", "#ffffff"),
    "dark": _theme("#ececec", "#b0b0b0", "#16181c"),
}
"""Vega-Lite configurations to lay under a figure's own: the `config` of vega-embed and of
vl-convert.
"""


def data(rows: Sequence[Datum]) -> Spec:
    """Return data for a chart or a mark."""
    return {"data": {"values": list(rows)}}


def quantity(field: str, **more: object) -> Spec:
    """Return the encoding of a number."""
    return {"field": field, "type": "quantitative", **more}


def value_axis(span: tuple[float, float], unit: Unit, most: int = 6) -> Spec:
    """Return the scale and axis of a number: all of its span, with a tick at each end.

    Args:
        span: its least and greatest value, as of a metric.
        unit: of its values.
        most: parts that the ticks make, at most.
    """
    low, high = span
    step = next(step for step in (0.2, 0.5, 1.0, high - low) if (high - low) / step <= most)
    ticks = [round(low + step * index, 1) for index in range(round((high - low) / step) + 1)]
    form = "%" if unit == "share" else ".1f"
    return {"scale": {"domain": [low, high]}, "axis": {"values": ticks, "format": form}}


def nominal(field: str, **more: object) -> Spec:
    """Return the encoding of a name."""
    return {"field": field, "type": "nominal", **more}


def pixels(number: float) -> Spec:
    """Return a fixed place."""
    return {"value": number}


def mark(
    kind: str,
    encoding: Spec,
    *,
    where: str = "",
    rows: Sequence[Datum] | None = None,
    **look: object,
) -> Spec:
    """Return one mark; by default, text has the size of axis labels.

    Args:
        kind: Vega-Lite's name of it.
        encoding: the field of each channel.
        where: an expression that a datum has to fulfil.
        rows: data of its own.
        look: Vega-Lite's properties of the mark.
    """
    spec: Spec = {} if rows is None else data(rows)
    if where:
        spec["transform"] = [{"filter": where}]
    size = {"fontSize": 11} if kind == "text" else {}
    return spec | {"mark": {"type": kind, **size, **look}, "encoding": encoding}


def layer(marks: Sequence[Spec], rows: Sequence[Datum], **more: object) -> Spec:
    """Return marks on top of one another."""
    return data(rows) | {"layer": list(marks)} | more


def across(charts: Sequence[Spec], spacing: int = 14) -> Spec:
    """Return charts beside one another."""
    return {"hconcat": list(charts), "spacing": spacing}


def down(charts: Sequence[Spec], spacing: int = 22) -> Spec:
    """Return charts below one another."""
    return {"vconcat": list(charts), "spacing": spacing}


APART: Spec = {"resolve": {"scale": {"color": "independent", "shape": "independent"}}}
"""Charts side by side, each with colours and shapes of its own."""


def whole(text: str) -> Spec:
    """Return the title of a panel, over its plot."""
    return {"title": {"text": text, "frame": "group", "offset": 4}}


def empty(text: str = "nothing to show: no prompt-set has the grades that this needs") -> Spec:
    """Return a chart that says that there is none."""
    encoding = {"text": nominal("text"), "x": pixels(0)}
    return mark("text", encoding, rows=[{"text": text}], align="left") | {
        "width": 400,
        "height": 20,
    }


def finished(chart: Spec, title: str) -> Spec:
    """Return a chart as a complete specification with its look; the title is for screen readers."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **chart,
        "config": LAYOUT,
        "description": title,
    }
