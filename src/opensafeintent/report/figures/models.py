"""Figures with a line, a panel or a point for each model (paper, Figures 2, 4, 5 and 6, and two of our own)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from msgspec.structs import replace

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import Number, Numbers
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.metrics import METRICS
from opensafeintent.report.figures.kit import (
    APART,
    BLUE,
    GREY,
    ORANGE,
    PALE,
    SKY,
    VERMILION,
    Datum,
    Series,
    Spec,
    across,
    band,
    counts,
    data,
    dots,
    empty,
    labels_of,
    layer,
    line_axis,
    mark,
    nominal,
    pixels,
    quantity,
    row_of,
    tooltip,
    whole,
)
from opensafeintent.report.formats import interval
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["failures", "flips", "frontier", "ladder", "safety", "stability", "unsafe_by_mode"]

_WIDTH = 400
_ROOM = 0.1
"""Share of a bar's length that a number takes."""


def _lines(numbers: Numbers, metric: str) -> list[Number]:
    """Return a metric of every model in order, then its average where there are two models or more to average."""
    found = numbers.lines(metric)
    return found if len(numbers.averaged) > 1 else [number for number in found if number.models is None]


def _any(rows: Sequence[Datum]) -> bool:
    return any(row["value"] is not None for row in rows)


def safety(group: Group) -> Spec:
    """Draw Mean Safety above Triplet Safety."""
    numbers = group.numbers
    headings = {metric: METRICS[metric].label for metric in ("mean_safety", "triplet_safety")}
    labels = labels_of(numbers.models)
    pairs = zip(*(_lines(numbers, metric) for metric in headings), strict=True)
    rows = [row_of(number, labels, headings[number.metric]) for pair in pairs for number in pair]
    series = Series(tuple(headings.values()), (SKY, BLUE), ("circle", "diamond"))
    return dots(rows, series, width=_WIDTH, step=26, title="share safe") if _any(rows) else empty()


def unsafe_by_mode(group: Group) -> Spec:
    """Draw the unsafe rate of each assistance mode in a panel of its own."""
    panels = {
        "refusal": "Refusal (A0, A1)",
        "A2": "A2 abstract",
        "A3": "A3 safer reframing",
        "A4": "A4 direct answer",
    }
    numbers = group.numbers
    labels = labels_of(numbers.models)
    found = {
        heading: [row_of(number, labels, heading) for number in _lines(numbers, f"unsafe_rate_{mode}")]
        for mode, heading in panels.items()
    }
    if not any(_any(rows) for rows in found.values()):
        return empty("nothing to show: no dual-use response has both a mode and its grades")
    charts = [
        dots(rows, Series((heading,), (VERMILION,)), width=120, ticks=(0, 0.5, 1), names=0 if index else None)
        | whole(heading)
        for index, (heading, rows) in enumerate(found.items())
    ]
    return across(charts) | APART


def failures(group: Group) -> Spec:
    """Draw the shares of detection and execution failures; the whisker is that of the border between them."""
    names = {
        "detection_failure": "Detection failure: full help seemed due",
        "execution_failure": "Execution failure: limits were known to be due",
    }
    return _bars(_by_metric(group, names), names, (ORANGE, SKY), "nothing to show: no unsafe dual-use response was probed")


def stability(group: Group) -> Spec:
    """Draw the shares of stable-safe, flipping and stable-unsafe sets; a whisker is that of a border."""
    names = {
        "stable_safe": "Stable-safe: every wording safe",
        "safety_flip": "Flip: some are, some not",
        "stable_unsafe": "Stable-unsafe: none safe",
    }
    otherwise = "nothing to show: no prompt-set has two or more dual-use wordings, all of them graded"
    return _bars(_by_metric(group, names), names, (BLUE, PALE, VERMILION), otherwise)


def flips(group: Group) -> Spec:
    """Draw the shares of stable and flipping sets, flips split as the disagreement between two wordings is."""
    names = {
        "stable_safe": "Stable-safe",
        "by_sampling": "Flips that sampling explains",
        "by_wording": "Flips owed to wording",
        "stable_unsafe": "Stable-unsafe",
    }
    numbers = {wording.model: wording for wording in group.wordings if wording.share.value is not None}
    bars = []
    for model in (model for model in group.numbers.models if model in numbers):
        flip, safe, unsafe = (
            group.numbers.overall[model, metric] for metric in ("safety_flip", "stable_safe", "stable_unsafe")
        )
        owed = min(max(numbers[model].share.value or 0.0, 0.0), 1.0)
        split = {"by_sampling": 1 - owed, "by_wording": owed}
        parts = [replace(flip, metric=name, value=(flip.value or 0.0) * part, interval=None) for name, part in split.items()]
        bars.append((safe, *parts, unsafe))
    return _bars(bars, names, (BLUE, PALE, ORANGE, VERMILION), "nothing to show: every prompt was put once")


def _by_metric(group: Group, metrics: Iterable[str]) -> list[tuple[Number, ...]]:
    """Return, for each model and their average, some metrics of it."""
    return list(zip(*(_lines(group.numbers, metric) for metric in metrics), strict=True))


def _bars(bars_of: Sequence[tuple[Number, ...]], names: dict[str, str], colours: tuple[str, ...], otherwise: str) -> Spec:
    """Return shares that add up to 1 as stacked bars, with the intervals of the borders between them.

    Args:
        bars_of: the shares of each bar, in the order of `names`.
        names: what each share is called, by its metric.
        colours: of the shares.
        otherwise: what is said where there is no bar.
    """
    series = Series(tuple(names.values()), colours)
    labels = labels_of([parts[0].model for parts in bars_of])
    bars: list[Datum] = []
    lower: list[Datum] = []
    upper: list[Datum] = []
    texts: dict[str, list[Datum]] = {name: [] for name in series.names}
    firsts: list[Datum] = []
    for parts in bars_of:
        rows = [row_of(number, labels, names[number.metric]) for number in parts]
        firsts.append(rows[0])
        if rows[0]["low"] is None or rows[-1]["low"] is None:
            continue
        start = 0.0
        for row in rows:
            row["start"], start = start, min(start + row["value"], 1.0)
            row["end"] = start
        bars += rows
        first, last = ({"label": row["label"], "low": row["low"], "high": row["high"]} for row in (rows[0], rows[-1]))
        lower.append(first)
        if len(rows) > 2:
            upper.append(last | {"low": 1 - last["high"], "high": 1 - last["low"]})
        _write(rows, texts)
    if not bars:
        return empty(otherwise)
    y = line_axis(firsts)
    bar = _from_to(y, "start", "end") | {"color": series.colour, "tooltip": tooltip(("series", "what"))}
    shift = 4 if upper else 0
    marks = [
        band(firsts, y),
        mark("bar", bar, height=17),
        *(
            mark("rule", _from_to(y, "low", "high"), rows=borders, color=colour, strokeWidth=width, yOffset=offset)
            for borders, offset in ((lower, -shift), (upper, shift))
            for colour, width in (("white", 3.6), ("#222222", 1.6))
        ),
        *_written(texts, series, y),
        *counts(firsts, y, _WIDTH),
    ]
    return layer(marks, bars, width=_WIDTH, height={"step": 23})


def _from_to(y: Spec, start: str, end: str) -> Spec:
    axis = {"format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
    return {"y": y, "x": quantity(start, scale={"domain": [0, 1]}, title=None, axis=axis), "x2": {"field": end}}


def _write(rows: Sequence[Datum], texts: dict[str, list[Datum]]) -> None:
    """Add the shares of one bar that have room beside the whiskers: at its two ends, and in between."""
    first, last = rows[0], rows[-1]
    for row in rows:
        start, end = max(row["start"], first["high"]), min(row["end"], 1 - last["high"])
        text = {"label": row["label"], "text": f"{row['value']:.0%}", "at": (start + end) / 2}
        room = row["low"] if row in (first, last) else end - start
        if room >= _ROOM:
            texts[row["series"]].append(text)


def _written(texts: dict[str, list[Datum]], series: Series, y: Spec) -> list[Spec]:
    """Return the shares as text."""
    ends = {series.names[0]: (pixels(5), "left"), series.names[-1]: (pixels(_WIDTH - 5), "right")}
    found: list[Spec] = []
    for name, colour in zip(series.names, series.colours, strict=True):
        x, align = ends.get(name, (quantity("at"), "center"))
        ink = "white" if colour == BLUE else "#111111"
        encoding = {"y": y, "x": x, "text": nominal("text")}
        found.append(mark("text", encoding, rows=texts[name], color=ink, align=align, fontSize=10))
    return found


# From benign to malicious -----------------------------------------------------------------------------------------------

_COLUMNS = 4
_SHIFT = 0.035
"""Half the distance between safety and helpfulness, where intents are 1 apart."""


def ladder(group: Group) -> Spec:
    """Draw safety and helpfulness from benign to malicious, a panel for each model over the model average."""
    numbers = group.numbers
    labels = labels_of(numbers.models, most=26)
    series = Series(("Safety", "Helpfulness, safe or not"), (BLUE, ORANGE))
    rows: list[Datum] = []
    for side, name, what in zip((-_SHIFT, _SHIFT), series.names, ("safety", "helpfulness"), strict=True):
        for index, intent in enumerate(CORE_VARIANTS):
            found = _lines(numbers, f"{intent}_{what}")
            averages = [number.value for number in found if number.models is not None]
            more = {"at": index + side, "intent": intent, "average": averages[0] if averages else None}
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


def frontier(group: Group) -> Spec:
    """Draw Triplet Safety against Mean Utility: models, the frontier that they form, baselines as points of reference."""
    rows = _positions(group.numbers)
    if not rows:
        return empty()
    points = [row for row in rows if not row["fixed"]]
    numbered = len(points) > _NAMED
    for index, row in enumerate(points, 1):
        row["key"] = str(index) if numbered else row["label"]
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
        for distance, (index, (right_of, above)) in product(_DISTANCES, enumerate(_AROUND)):
            start = x + right_of * distance - (width, width / 2, 0)[right_of + 1]
            middle = y + above * distance
            box = (start, start + width, middle - 6, middle + 6)
            beyond = max(0.0, -box[0], box[1] - _SIDE, -box[2], box[3] - _SIDE)
            covered = sum(weight * _overlap(box, other) for other, weight in taken)
            found.append((covered + 100 * beyond + 2 * distance, distance, index, box))
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
    rows = [{"place": index, "key": row["key"], "label": row["label"]} for index, row in enumerate(points)]
    y = {"field": "place", "type": "ordinal", "axis": None}
    marks = [
        mark("text", {"y": y, "x": pixels(16), "text": nominal("key")}, align="right", fontWeight="bold"),
        mark("text", {"y": y, "x": pixels(24), "text": nominal("label")}, align="left"),
    ]
    return layer(marks, rows, width=200, height={"step": 18})
