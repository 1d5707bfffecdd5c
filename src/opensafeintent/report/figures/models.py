"""Figures with a line for each model (paper, Figures 2, 4, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.report.figures.parts import (
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
from opensafeintent.report.tables.numbers import Number, Numbers

__all__ = ["failures", "lines", "safety", "stability", "unsafe_by_mode"]

_WIDTH = 400
_WRITTEN = 0.12
"""Share of a bar's length from which on it is written in the bar."""


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
    return across(charts)


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
    borders: list[Datum] = []
    firsts: list[Datum] = []
    for parts in zip(*(lines(numbers, metric) for metric in metrics), strict=True):
        rows = [row_of(number, labels, metrics[number.metric]) for number in parts]
        firsts.append(rows[0])
        start = 0.0
        for row in rows:
            if row["value"] is not None:
                end = min(start + row["value"], 1.0)
                bars.append(row | {"start": start, "end": end, "middle": (start + end) / 2, "text": f"{row['value']:.0%}"})
                start = end
        first, last = rows[0], rows[-1]
        if first["low"] is not None:
            borders.append({"label": first["label"], "low": first["low"], "high": first["high"]})
        if last["low"] is not None and len(rows) > 2:
            borders.append({"label": last["label"], "low": 1 - last["high"], "high": 1 - last["low"]})
    if not bars:
        return empty(otherwise)
    y = place_of(firsts)
    marks = [
        band(firsts, y),
        mark(
            "bar", _from_to(y, "start", "end") | {"color": series.colour, "tooltip": tooltip(("series", "what"))}, height=16
        ),
        mark("rule", _from_to(y, "low", "high"), rows=borders, color="white", strokeWidth=4),
        mark("rule", _from_to(y, "low", "high"), rows=borders, color="#222222", strokeWidth=1.6),
        *_written(bars, series, y),
        *counts(firsts, y, _WIDTH),
    ]
    return layer(marks, bars, width=_WIDTH, height={"step": 22})


def _from_to(y: Spec, start: str, end: str) -> Spec:
    axis = {"format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
    return {"y": y, "x": quantity(start, scale={"domain": [0, 1]}, title=None, axis=axis), "x2": {"field": end}}


def _written(bars: Sequence[Datum], series: Series, y: Spec) -> list[Spec]:
    """Return the shares as text, out of the whiskers' way: at the ends of the first and last, in the middle of others."""
    found: list[Spec] = []
    for place, name in enumerate(series.names):
        first, last = place == 0, place == len(series.names) - 1
        least = _WRITTEN if first or last else 2.5 * _WRITTEN
        rows = [bar for bar in bars if bar["series"] == name and bar["end"] - bar["start"] >= least]
        x = pixels(5) if first else pixels(_WIDTH - 5) if last else quantity("middle")
        look: Spec = {"align": "left" if first else "right" if last else "center", "fontSize": 10}
        ink = "white" if series.colours[place] == BLUE else "#111111"
        found.append(mark("text", {"y": y, "x": x, "text": nominal("text")}, rows=rows, color=ink, **look))
    return found
