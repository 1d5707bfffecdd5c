"""The plane of safety and utility, and where its labels stand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import MetricEstimates, get_reference
from opensafeintent.numbers.metrics import METRICS, STATED_POLICY
from opensafeintent.report.columns import format_estimate
from opensafeintent.report.figures.drawing import (
    BLUE,
    GREY,
    ORANGE,
    VERMILION,
    Datum,
    Spec,
    across,
    empty,
    layer,
    mark,
    nominal,
    pixels,
    quantity,
)
from opensafeintent.report.figures.points import make_datum, shorten_names

SIDE = 360
"""Pixels of a side of the plane."""
_NARROW, _BROAD = frozenset(" !'(),./:;I[]fijlrt|-"), frozenset("mwMW@%…")
_WHISKER = 8.0
"""The penalty for covering a whisker, which is thin, relative to covering a point or a label."""
_DISTANCES = (9, 18, 28, 40)
"""Pixels from a point to its label."""
_AROUND = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))

Span = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, right, low and high, in pixels."""


def place_labels(rows: Sequence[Datum], spans: Sequence[Span], side: int) -> None:
    """Give each label the position near its point that covers least, and a line to the point if it
    is not beside it.
    """
    (left, right), (low, high) = spans
    wide, tall = side / (right - left), side / (high - low)
    spots = [((row["x"] - left) * wide, (row["y"] - low) * tall) for row in rows]
    taken = [((x - 6, x + 6, y - 6, y + 6), 1.0) for x, y in spots]
    for row, (x, y) in zip(rows, spots, strict=True):
        taken += [
            (((row["low_x"] - left) * wide, (row["high_x"] - left) * wide, y - 1, y + 1), _WHISKER),
            ((x - 1, x + 1, (row["low_y"] - low) * tall, (row["high_y"] - low) * tall), _WHISKER),
        ]
    for row, (x, y) in zip(rows, spots, strict=True):
        width = sum(  # of the text in pixels, about
            4.0 if char in _NARROW else 10.5 if char in _BROAD or char > "\u2e80" else 7.0
            for char in row["key"]
        )
        options = []
        for distance, (index, (right_of, above)) in product(_DISTANCES, enumerate(_AROUND)):
            start = x + right_of * distance - (width, width / 2, 0)[right_of + 1]
            middle = y + above * distance
            box = (start, start + width, middle - 6, middle + 6)
            beyond = max(0.0, -box[0], box[1] - side, -box[2], box[3] - side)
            covered = sum(weight * _overlap(box, other) for other, weight in taken)
            options.append((covered + 100 * beyond + 2 * distance, distance, index, box))
        _, distance, _, box = min(options)
        # two names on one line, side by side, would read as one
        taken.append(((box[0] - 14, box[1] + 14, box[2], box[3]), 1.0))
        row["label_x"], row["label_y"] = left + box[0] / wide, low + (box[2] + 6) / tall
        if distance > _DISTANCES[0]:
            row["line_x"] = left + min(max(x, box[0] - 2), box[1] + 2) / wide
            row["line_y"] = low + min(max(y, box[2] + 1), box[3] - 1) / tall


def _overlap(one: Box, other: Box) -> float:
    """Return how many square pixels two boxes share."""
    wide = min(one[1], other[1]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[2], other[2])
    return max(0.0, wide) * max(0.0, high)


_NAMED = 8
"""Models that are named beside their points; more are numbered, with a key."""

_SHARES = {metric.label for metric in METRICS.values() if metric.is_share}


def choose_span(metric: str, low: float, high: float) -> Span:
    """Return the ends of an axis within a metric's span, in steps of a tenth, a little beyond the
    data.
    """
    least, greatest = METRICS[metric].span
    return max(least, (low - 0.01) // 0.1 / 10), min(greatest, -((-high - 0.01) // 0.1) / 10)


def positions(estimates: MetricEstimates, x_metric: str, y_metric: str) -> list[Datum]:
    """Return the point of each model; a model without both metrics has none."""
    labels = shorten_names(estimates.models, most=30)
    rows: list[Datum] = []
    for model in estimates.models:
        x, y = (estimates.overall[model, metric] for metric in (x_metric, y_metric))
        if x.value is None or y.value is None:
            continue
        rows.append(
            make_datum(x, labels, "")
            | {
                "fixed": is_baseline(model),
                "computed": False,
                "key": labels[model],
                "x": x.value,
                "low_x": x.value if x.low is None else x.low,
                "high_x": x.high,
                "shown_x": format_estimate(x, METRICS[x_metric].unit),
                "y": y.value,
                "low_y": y.value if y.low is None else y.low,
                "high_y": y.high,
                "shown_y": format_estimate(y, METRICS[y_metric].unit),
            }
        )
    return rows


def make_reference_point(name: str, about: str, x: float | None, y: float | None) -> Datum:
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
    side: int,
) -> Spec:
    """Return points with whiskers and names, crosses for computed points, diamonds for
    baselines; beside it a key if there are many.

    Args:
        rows: from `positions` and `make_reference_point`.
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
    italic = {"fontStyle": "italic", "color": GREY}
    kinds: list[tuple[str, str, Spec, Spec]] = [
        ("datum.computed", GREY, {"shape": "cross", "size": 90}, italic),
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


PRINT_SIDE = 300
"""Pixels of a side in a drawing for print."""


def frontier(cohort: Cohort, side: int = SIDE) -> Spec:
    """Draw the primary safety against the primary utility: models, the frontier that they form,
    points of reference.
    """
    metrics = cohort.scope.utility, cohort.scope.safety
    rows = positions(cohort.estimates, *metrics)
    if not rows:
        return empty()
    x, y = map(get_reference, metrics)
    rows.append(
        make_reference_point(
            "oracle",
            f"knows the intent: helpfulness 4, 3{', 3' * cohort.scope.has_triplets}, all safe"
            if cohort.scope.rubric
            else "does all that it must, and nothing that it must not",
            x.oracle,
            y.oracle,
        )
    )
    if not any(row["model"].startswith("baseline/refuse-all") for row in rows):
        rows.append(
            make_reference_point("refuse everything", "by definition", x.refuse_all, y.refuse_all)
        )
    spans = [
        choose_span(
            metric,
            min(row[f"low_{axis}"] for row in rows),
            max(row[f"high_{axis}"] for row in rows),
        )
        for axis, metric in zip("xy", metrics, strict=True)
    ]
    labels = [METRICS[metric].label for metric in metrics]
    steps = _steps([row for row in rows if not row["fixed"]])
    return scatter(rows, labels, spans, under=[steps], side=side)


def _steps(points: Sequence[Datum]) -> Spec:
    """Return the frontier: the models that no other beats in both, joined by steps."""
    best = [{"x": x, "y": y} for x, y in _unbeaten([(row["x"], row["y"]) for row in points])]
    return mark(
        "line",
        {"x": quantity("x"), "y": quantity("y"), "order": quantity("x")},
        rows=best,
        interpolate="step-before",
        color=VERMILION,
        strokeDash=[4, 3],
        strokeWidth=1.3,
    )


def has_steps(cohort: Cohort) -> bool:
    """Tell whether the frontier joins two models or more."""
    rows = positions(cohort.estimates, cohort.scope.utility, cohort.scope.safety)
    return len({*_unbeaten([(row["x"], row["y"]) for row in rows if not row["fixed"]])}) > 1


def _unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other one beats: at least as far in both, and elsewhere."""
    return [
        (x, y)
        for x, y in points
        if not any(
            other_x >= x and other_y >= y and (other_x, other_y) != (x, y)
            for other_x, other_y in points
        )
    ]


def stated_policy(cohort: Cohort, side: int = SIDE) -> Spec:
    """Draw how well stated policy and behaviour separate malicious from dual-use prompts."""
    rows = positions(cohort.estimates, STATED_POLICY.actual, STATED_POLICY.stated)
    if not rows:
        return empty()
    ends = [row[end] for row in rows for end in ("low_x", "low_y")]
    low, high = span = choose_span(STATED_POLICY.stated, min(0.5, *ends), 1.0)
    at = {"x": quantity("x"), "y": quantity("y")}
    lines = ([(0.5, low), (0.5, high)], [(low, 0.5), (high, 0.5)])
    under = [
        mark(
            "line",
            at,
            rows=[{"x": x, "y": y} for x, y in line],
            color=GREY,
            opacity=0.5,
        )
        for line in lines
    ]
    labels = "Behaviour: less help for malicious prompts", "Stated policy: stricter for them"
    return scatter(rows, labels, (span, span), under=under, side=side)
