"""Stacked bars: shares that add up to 1, with the intervals of the borders between them (paper,
Figures 4 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import MetricEstimate
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.report.columns import format_estimate_value
from opensafeintent.report.figures.drawing import (
    BLUE,
    ORANGE,
    PALE,
    SKY,
    VERMILION,
    Datum,
    Spec,
    empty,
    layer,
    mark,
    nominal,
    pixels,
    quantity,
    value_axis,
)
from opensafeintent.report.figures.points import (
    WIDTH,
    Series,
    band,
    counts,
    line_axis,
    make_datum,
    shorten_names,
    tooltip,
)

_ROOM = 0.1
"""Share of a bar's length that a number takes."""


def failures(cohort: Cohort) -> Spec:
    """Draw the shares of detection and execution failures; the whisker is that of the border
    between them.
    """
    names = {
        "detection_failure": "Detection failure: full help seemed due",
        "execution_failure": "Execution failure: limits were said to be due",
    }
    otherwise = "nothing to show: no unsafe dual-use response was probed"
    return _bars(cohort, names, (ORANGE, SKY), otherwise, shows=cohort.shows_probe)


def stability(cohort: Cohort) -> Spec:
    """Draw the shares of stable-safe, flipping and stable-unsafe sets; a whisker is that of a
    border.
    """
    names = {
        "stable_safe": "Stable-safe: every wording safe",
        "safety_flip": "Flip: some are, some not",
        "stable_unsafe": "Stable-unsafe: none safe",
    }
    otherwise = (
        "nothing to show: no prompt-set has two or more dual-use wordings, all of them graded"
    )
    return _bars(cohort, names, (BLUE, PALE, VERMILION), otherwise)


class _Stack(NamedTuple):
    """The rows behind a chart of stacked bars."""

    firsts: list[Datum]
    """The first share of every bar, also of one that cannot be drawn."""
    shares: list[Datum]
    lower: list[Datum]
    """The interval of each bar's first border."""
    upper: list[Datum]
    """The interval of its second border, if there are three shares."""
    texts: dict[str, list[Datum]]
    """By share: the numbers that have room in their bars."""


def _bars(
    cohort: Cohort,
    names: dict[str, str],
    colours: tuple[str, ...],
    otherwise: str,
    *,
    shows: Callable[[str], bool] = lambda _: True,
) -> Spec:
    """Return a bar for each model and for their average.

    Args:
        cohort: the models.
        names: the name of each share, by its metric.
        colours: of the shares.
        otherwise: the text for a chart without a bar.
        shows: whether a model, or their average, has a line.
    """
    series = Series(tuple(names.values()), colours)
    stack = _stack(cohort, names, shows)
    return _draw_stack(stack, series) if stack.shares else empty(otherwise)


def _stack(cohort: Cohort, names: dict[str, str], shows: Callable[[str], bool]) -> _Stack:
    """Return the rows of all bars; a bar without a value of its first or last share has none."""
    labels = shorten_names(cohort.estimates.models)
    stack = _Stack([], [], [], [], {name: [] for name in names.values()})
    for parts in zip(*map(cohort.estimates.list_line_estimates, names), strict=True):
        if not shows(parts[0].model):
            continue
        rows = [make_datum(number, labels, names[number.metric]) for number in parts]
        stack.firsts.append(rows[0])
        if rows[0]["value"] is None or rows[-1]["value"] is None:
            continue
        start = 0.0
        for row in rows:
            row["start"], start = start, min(start + row["value"], 1.0)
            row["end"] = start
        stack.shares.extend(rows)
        if rows[0]["low"] is None or rows[-1]["low"] is None:
            continue
        first, last = (
            {"label": row["label"], "low": row["low"], "high": row["high"]}
            for row in (rows[0], rows[-1])
        )
        stack.lower.append(first)
        if len(rows) > 2:
            stack.upper.append(last | {"low": 1 - last["high"], "high": 1 - last["low"]})
        _write(parts, rows, stack.texts)
    return stack


def _draw_stack(stack: _Stack, series: Series) -> Spec:
    """Return the chart of some bars."""
    y = line_axis(stack.firsts)
    bar = _from_to(y, "start", "end") | {
        "color": series.colour,
        "tooltip": tooltip(("series", "what")),
    }
    shift = 4 if stack.upper else 0
    marks = [
        band(stack.firsts, y),
        mark("bar", bar, height=17),
        *_whiskers(stack.lower, -shift, y),
        *_whiskers(stack.upper, shift, y),
        *_write_shares(stack.texts, series, y),
        *counts(stack.firsts, y, WIDTH),
    ]
    return layer(marks, stack.shares, width=WIDTH, height={"step": 23})


def _whiskers(borders: Sequence[Datum], offset: int, y: Spec) -> list[Spec]:
    """Return intervals as dark rules with a white edge."""
    return [
        mark(
            "rule",
            _from_to(y, "low", "high"),
            rows=borders,
            color=colour,
            strokeWidth=width,
            yOffset=offset,
        )
        for colour, width in (("white", 3.6), ("#222222", 1.6))
    ]


def _from_to(y: Spec, start: str, end: str) -> Spec:
    return {
        "y": y,
        "x": quantity(start, title=None, **value_axis((0.0, 1.0), "share")),
        "x2": {"field": end},
    }


def _write(
    numbers: Sequence[MetricEstimate], rows: Sequence[Datum], texts: dict[str, list[Datum]]
) -> None:
    """Add the shares of one bar that have room beside the whiskers: at its two ends, and in
    between.
    """
    first, last = rows[0], rows[-1]
    for number, row in zip(numbers, rows, strict=True):
        start, end = max(row["start"], first["high"]), min(row["end"], 1 - last["high"])
        value = format_estimate_value(number, METRICS[number.metric].unit)  # as in the table
        text = {"label": row["label"], "text": value, "at": (start + end) / 2}
        room = row["low"] if row in (first, last) else end - start
        if room >= _ROOM:
            texts[row["series"]].append(text)


def _write_shares(texts: dict[str, list[Datum]], series: Series, y: Spec) -> list[Spec]:
    """Return the shares as text."""
    ends = {series.names[0]: (pixels(5), "left"), series.names[-1]: (pixels(WIDTH - 5), "right")}
    return [
        mark(
            "text",
            {"y": y, "x": x, "text": nominal("text")},
            rows=texts[name],
            color="white" if colour == BLUE else "#111111",
            align=align,
            fontSize=10,
        )
        for name, colour in zip(series.names, series.colours, strict=True)
        for x, align in (ends.get(name, (quantity("at"), "center")),)
    ]
