"""Figures with a line for each model (paper, Figures 2, 4, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.numbers import Number, Numbers
from opensafeintent.report.figures.parts import (
    APART,
    Datum,
    Series,
    Spec,
    across,
    band,
    counts,
    dots,
    empty,
    labels_of,
    layer,
    mark,
    nominal,
    pixels,
    place_of,
    quantity,
    row_of,
    tooltip,
    whole,
)
from opensafeintent.report.figures.theme import BLUE, ORANGE, PALE, SKY, VERMILION

__all__ = ["failures", "lines", "safety", "stability", "unsafe_by_mode"]

_WIDTH = 400
_ROOM = 0.1
"""Share of a bar's length that a number takes."""


def lines(numbers: Numbers, metric: str) -> list[Number]:
    """Return a metric of every model in order, then its average where there are two models or more to average."""
    found = numbers.lines(metric)
    return found if len(numbers.averaged) > 1 else [number for number in found if number.models is None]


def _any(rows: Sequence[Datum]) -> bool:
    return any(row["value"] is not None for row in rows)


def safety(numbers: Numbers) -> Spec:
    """Draw Mean Safety above Triplet Safety."""
    headings = {"mean_safety": "Mean Safety", "triplet_safety": "Triplet Safety"}
    labels = labels_of(numbers.models)
    pairs = zip(*(lines(numbers, metric) for metric in headings), strict=True)
    rows = [row_of(number, labels, headings[number.metric]) for pair in pairs for number in pair]
    series = Series(tuple(headings.values()), (SKY, BLUE), ("circle", "diamond"))
    return dots(rows, series, width=_WIDTH, step=26, title="share safe") if _any(rows) else empty()


def unsafe_by_mode(numbers: Numbers) -> Spec:
    """Draw the unsafe rate of each assistance mode in a panel of its own."""
    panels = {
        "refusal": "Refusal (A0, A1)",
        "A2": "A2 abstract",
        "A3": "A3 safer reframing",
        "A4": "A4 direct answer",
    }
    labels = labels_of(numbers.models)
    found = {
        heading: [row_of(number, labels, heading) for number in lines(numbers, f"unsafe_rate_{mode}")]
        for mode, heading in panels.items()
    }
    if not any(_any(rows) for rows in found.values()):
        return empty("nothing to show: no dual-use response has both a mode and its grades")
    charts = [
        dots(rows, Series((heading,), (VERMILION,)), width=120, ticks=(0, 0.5, 1), names=0 if place else None)
        | whole(heading)
        for place, (heading, rows) in enumerate(found.items())
    ]
    return across(charts) | APART


def failures(numbers: Numbers) -> Spec:
    """Draw the shares of detection and execution failures; the whisker is that of the border between them."""
    names = ("Detection failure: full help seemed due", "Execution failure: limits were known to be due")
    return _bars(
        numbers,
        {"detection_failure": names[0], "execution_failure": names[1]},
        Series(names, (ORANGE, SKY)),
        "nothing to show: no unsafe dual-use response was probed",
    )


def stability(numbers: Numbers) -> Spec:
    """Draw the shares of stable-safe, flipping and stable-unsafe sets; a whisker is that of a border."""
    names = ("Stable-safe: every wording safe", "Flip: some are, some not", "Stable-unsafe: none safe")
    return _bars(
        numbers,
        {"stable_safe": names[0], "safety_flip": names[1], "stable_unsafe": names[2]},
        Series(names, (BLUE, PALE, VERMILION)),
        "nothing to show: no prompt-set has two or more dual-use wordings, all of them graded",
    )


def _bars(numbers: Numbers, metrics: dict[str, str], series: Series, otherwise: str) -> Spec:
    """Return shares that add up to 1 as stacked bars, with the intervals of the borders between them."""
    labels = labels_of(numbers.models)
    bars: list[Datum] = []
    lower: list[Datum] = []
    upper: list[Datum] = []
    texts: dict[str, list[Datum]] = {name: [] for name in series.names}
    firsts: list[Datum] = []
    for parts in zip(*(lines(numbers, metric) for metric in metrics), strict=True):
        rows = [row_of(number, labels, metrics[number.metric]) for number in parts]
        firsts.append(rows[0])
        if any(row["low"] is None for row in rows):
            continue
        start = 0.0
        for row in rows:
            end = min(start + row["value"], 1.0)
            bars.append(row | {"start": start, "end": end})
            start = end
        first, last = ({"label": row["label"], "low": row["low"], "high": row["high"]} for row in (rows[0], rows[-1]))
        lower.append(first)
        if len(rows) > 2:
            upper.append(last | {"low": 1 - last["high"], "high": 1 - last["low"]})
        _write(rows, texts)
    if not bars:
        return empty(otherwise)
    y = place_of(firsts)
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
    between = first["high"], 1 - last["high"]
    for row in rows:
        text = {"label": row["label"], "text": f"{row['value']:.0%}", "at": sum(between) / 2}
        room = row["low"] if row in (first, last) else between[1] - between[0]
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
