"""Two figures of our own: how help and safety change with intent, and how safety and utility go together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from opensafeintent.analysis.numbers import Numbers
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.report.figures.models import lines
from opensafeintent.report.figures.parts import (
    Datum,
    Series,
    Spec,
    across,
    data,
    empty,
    labels_of,
    layer,
    mark,
    nominal,
    pixels,
    quantity,
    row_of,
    tooltip,
)
from opensafeintent.report.figures.theme import BLUE, GREY, ORANGE, VERMILION
from opensafeintent.report.formats import interval
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["frontier", "ladder"]

_COLUMNS = 4
_SHIFT = 0.035
"""Half the distance between safety and helpfulness, where intents are 1 apart."""


def ladder(numbers: Numbers) -> Spec:
    """Draw safety and helpfulness from benign to malicious, a panel for each model over the model average."""
    labels = labels_of(numbers.models, most=26)
    series = Series(("Safety", "Helpfulness, safe or not"), (BLUE, ORANGE))
    rows: list[Datum] = []
    for side, name, what in zip((-_SHIFT, _SHIFT), series.names, ("safety", "helpfulness"), strict=True):
        for place, intent in enumerate(CORE_VARIANTS):
            found = lines(numbers, f"{intent}_{what}")
            averages = [number.value for number in found if number.models is not None]
            more = {"at": place + side, "intent": intent, "average": averages[0] if averages else None}
            rows += [row_of(number, labels, name) | more for number in found if number.models is None]
    if not any(row["value"] is not None for row in rows):
        return empty()
    order = list(labels.values())
    facet = nominal("label", sort=order, title=None, header={"labelPadding": 4})
    panel = layer(_rungs(series), [], width=150, height=96)
    del panel["data"]
    return data(rows) | {
        "facet": facet,
        "columns": _COLUMNS,
        "spacing": {"row": 24, "column": 18},
        "spec": panel,
        "resolve": {"axis": {"x": "independent"}},
    }


def _rungs(series: Series) -> list[Spec]:
    """Return the marks of one panel."""
    names = "['benign', 'dual-use', 'malicious'][datum.value]"
    axis = {"values": [0, 1, 2], "labelExpr": names, "grid": False, "labelFlush": False}
    x = quantity("at", scale={"domain": [-0.3, 2.3], "nice": False}, title=None, axis=axis)
    y = {"scale": {"domain": [0, 1]}, "title": None, "axis": {"grid": True, "values": [0, 0.5, 1]}}
    value = {"x": x, "y": quantity("value", **y), "color": series.colour}
    sure = {"x": x, "y": quantity("low", **y), "y2": {"field": "high"}, "color": series.colour}
    average = {"x": x, "y": quantity("average", **y), "color": series.colour}
    point = value | {"shape": series.shape, "tooltip": tooltip(("series", "what"), ("intent", "intent"))}
    there = "isValid(datum.value)"
    return [
        mark("line", average, where="isValid(datum.average)", strokeDash=[2, 3], strokeWidth=1.4, opacity=0.9),
        mark("line", value, where=there, strokeWidth=1.8),
        mark("rule", sure, where="isValid(datum.low)", strokeWidth=1.6),
        mark("point", point, where=there, filled=True, size=32, opacity=1),
    ]


# Safety against utility ------------------------------------------------------------------------------------------------

_SIDE = 440
_NAMED = 8
"""Models that are named where they stand; more are numbered, with a key."""
_NARROW, _BROAD = frozenset(" !'(),./:;I[]fijlrt|-"), frozenset("mwMW@%…")
_WHISKER = 0.5
"""How bad it is to cover a whisker, where covering a point or a label is 1."""
_DISTANCES = (9, 18, 28, 40)
"""Pixels from a point to its label."""
_REFUSAL = "refuse everything"
_AROUND = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))


def frontier(numbers: Numbers) -> Spec:
    """Draw Triplet Safety against Mean Utility: models, the frontier that they form, baselines as points of reference."""
    rows = _positions(numbers)
    if not rows:
        return empty()
    points = [row for row in rows if not row["fixed"]]
    numbered = len(points) > _NAMED
    for place, row in enumerate(points, 1):
        row["key"] = str(place) if numbered else row["label"]
    spans = [_span(min(row[f"low_{axis}"] for row in rows), max(row[f"high_{axis}"] for row in rows)) for axis in ("x", "y")]
    _place_labels(rows, spans)
    chart = _plane(rows, points, spans)
    return across([chart, _key(points)], spacing=24) if numbered else chart


def _span(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis between 0 and 1, in steps of a tenth, a little beyond the data."""
    return max(0.0, (low - 0.01) // 0.1 / 10), min(1.0, -((-high - 0.01) // 0.1) / 10)


def _positions(numbers: Numbers) -> list[Datum]:
    """Return where each model stands; a model without both metrics has no place."""
    labels = labels_of(numbers.models, most=30)
    rows: list[Datum] = []
    for model in numbers.models:
        x, y = numbers.overall[model, "mean_utility"], numbers.overall[model, "triplet_safety"]
        if x.value is None or y.value is None:
            continue
        fixed = is_baseline(model)
        row = row_of(x, labels, "") | {"x": x.value, "y": y.value, "fixed": fixed, "key": labels[model]}
        row |= {"low_x": x.low or 0.0, "high_x": x.high, "low_y": y.low or 0.0, "high_y": y.high}
        rows.append(row | {"utility": row["shown"], "safety": interval(y.value, y.low, y.high)})
    if rows and not any(row["model"].startswith("baseline/refuse-all") for row in rows):
        corner = {"x": 0.0, "y": 1.0, "low_x": 0.0, "high_x": 0.0, "low_y": 1.0, "high_y": 1.0}
        texts = {"model": f"{_REFUSAL} (by definition)", "key": _REFUSAL, "utility": "0.00", "safety": "1.00", "n": "–"}
        rows.append(corner | texts | {"fixed": True})
    return rows


def _place_labels(rows: Sequence[Datum], spans: Sequence[tuple[float, float]]) -> None:
    """Give each label the place near its point where it covers least, and a line to it where it is not beside the point."""
    (left, right), (low, high) = spans
    wide, tall = _SIDE / (right - left), _SIDE / (high - low)
    spots = [((row["x"] - left) * wide, (row["y"] - low) * tall) for row in rows]
    taken = [((x - 6, x + 6, y - 6, y + 6), 1.0) for x, y in spots]
    for row, (x, y) in zip(rows, spots, strict=True):
        taken.append((((row["low_x"] - left) * wide, (row["high_x"] - left) * wide, y - 1, y + 1), _WHISKER))
        taken.append(((x - 1, x + 1, (row["low_y"] - low) * tall, (row["high_y"] - low) * tall), _WHISKER))
    for row, (x, y) in zip(rows, spots, strict=True):
        width = _width(row["key"])
        found = []
        for distance, (place, (right_of, above)) in product(_DISTANCES, enumerate(_AROUND)):
            start = x + right_of * distance - (width, width / 2, 0)[right_of + 1]
            middle = y + above * distance
            box = (start, start + width, middle - 6, middle + 6)
            beyond = max(0.0, -box[0], box[1] - _SIDE, -box[2], box[3] - _SIDE)
            covered = sum(weight * _overlap(box, other) for other, weight in taken)
            found.append((covered + 100 * beyond + 2 * distance, distance, place, box))
        _, distance, _, box = min(found)
        taken.append((box, 1.0))
        row["label_x"], row["label_y"] = left + box[0] / wide, low + (box[2] + 6) / tall
        if distance > _DISTANCES[0]:
            row["line_x"] = left + min(max(x, box[0] - 2), box[1] + 2) / wide
            row["line_y"] = low + min(max(y, box[2] + 1), box[3] - 1) / tall


def _width(text: str) -> float:
    """Return the pixels that a text takes, about."""
    return sum(3.2 if char in _NARROW else 9.5 if char in _BROAD or char > "\u2e80" else 6.2 for char in text)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> float:
    wide = min(one[1], other[1]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[2], other[2])
    return max(0.0, wide) * max(0.0, high)


def _plane(rows: Sequence[Datum], points: Sequence[Datum], spans: Sequence[tuple[float, float]]) -> Spec:
    x, y = (
        {
            "scale": {"domain": list(span), "nice": False, "zero": False},
            "title": title,
            "axis": {"grid": True, "values": [tenth / 10 for tenth in range(11)], "format": ".1f"},
        }
        for title, span in zip(("Mean Utility →", "Triplet Safety →"), spans, strict=True)
    )
    at = {"x": quantity("x", **x), "y": quantity("y", **y)}
    wide = {"x": quantity("low_x", **x), "x2": {"field": "high_x"}, "y": quantity("y", **y)}
    high = {"x": quantity("x", **x), "y": quantity("low_y", **y), "y2": {"field": "high_y"}}
    name = {"x": quantity("label_x", **x), "y": quantity("label_y", **y), "text": nominal("key")}
    shown = (
        ("model", "model"),
        ("utility", "Mean Utility [95 %]"),
        ("safety", "Triplet Safety [95 %]"),
        ("n", "prompt-sets"),
    )
    tips = {"tooltip": [nominal(field, title=title) for field, title in shown]}
    line = at | {"x2": {"field": "line_x"}, "y2": {"field": "line_y"}}
    marks = [
        _steps(points, at),
        mark("rule", line, where="isValid(datum.line_x)", color=GREY, strokeWidth=0.9),
    ]
    kinds: list[tuple[str, str, Spec, Spec]] = [
        ("datum.fixed", GREY, {"shape": "cross", "size": 90}, {"fontStyle": "italic"}),
        ("!datum.fixed", BLUE, {"shape": "circle", "size": 60}, {}),
    ]
    for where, colour, shape, font in kinds:
        marks += [
            *(mark("rule", span, where=where, color=colour, opacity=0.65, strokeWidth=1.4) for span in (wide, high)),
            mark("point", at | tips, where=where, color=colour, filled=True, opacity=1, **shape),
            mark("text", name, where=where, align="left", baseline="middle", **font),
        ]
    return layer(marks, rows, width=_SIDE, height=_SIDE)


def _steps(points: Sequence[Datum], at: Spec) -> Spec:
    """Return the frontier: the models that no other beats in both, joined by steps."""
    best = [
        {"x": point["x"], "y": point["y"]}
        for point in points
        if not any(
            other["x"] >= point["x"] and other["y"] >= point["y"] and (other["x"], other["y"]) != (point["x"], point["y"])
            for other in points
        )
    ]
    look: Spec = {"interpolate": "step-before", "color": VERMILION, "strokeDash": [4, 3], "strokeWidth": 1.3}
    return mark("line", at | {"order": quantity("x")}, rows=best, **look)


def _key(points: Sequence[Datum]) -> Spec:
    """Return the names behind the numbers."""
    rows = [{"place": place, "key": row["key"], "label": row["label"]} for place, row in enumerate(points)]
    y = {"field": "place", "type": "ordinal", "axis": None}
    marks = [
        mark("text", {"y": y, "x": pixels(16), "text": nominal("key")}, align="right", fontWeight="bold"),
        mark("text", {"y": y, "x": pixels(24), "text": nominal("label")}, align="left"),
    ]
    return layer(marks, rows, width=200, height={"step": 18})
