"""Figures with a line or a panel for each model, stratum or judge (paper, Figures 2 to 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import AVERAGE, MetricEstimate, MetricEstimates, Stratum
from opensafeintent.analysis.judges import JUDGE_AVERAGE
from opensafeintent.grades import PANEL
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.figures.kit import (
    APART,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PURPLE,
    SHAPES,
    SKY,
    VERMILION,
    Datum,
    Spec,
    across,
    down,
    empty,
    layer,
    mark,
    nominal,
    pixels,
    quantity,
    whole,
)
from opensafeintent.report.figures.points import (
    Series,
    band,
    counts,
    dots,
    labels_of,
    line_axis,
    row_of,
    tooltip,
)
from opensafeintent.statistics import FEWEST_SETS

_WIDTH = 400
_ROOM = 0.1
"""Share of a bar's length that a number takes."""


def _lines(estimates: MetricEstimates, metric: str) -> list[MetricEstimate]:
    """Return a metric of every model in order, then its average if there are two models or more to
    average.
    """
    lines = estimates.lines(metric)
    return (
        lines
        if len(estimates.averaged) > 1
        else [number for number in lines if number.models is None]
    )


def _any(rows: Sequence[Datum]) -> bool:
    return any(row["value"] is not None for row in rows)


def safety(cohort: Cohort) -> Spec:
    """Draw Mean Safety above Triplet Safety."""
    estimates = cohort.estimates
    headings = {metric: METRICS[metric].label for metric in ("mean_safety", "triplet_safety")}
    labels = labels_of(estimates.models)
    pairs = zip(*(_lines(estimates, metric) for metric in headings), strict=True)
    rows = [row_of(number, labels, headings[number.metric]) for pair in pairs for number in pair]
    series = Series(tuple(headings.values()), (SKY, BLUE), ("circle", "diamond"))
    return dots(rows, series, width=_WIDTH, step=26, title="share safe") if _any(rows) else empty()


def unsafe_by_mode(cohort: Cohort) -> Spec:
    """Draw the unsafe rate of each assistance mode in a panel of its own."""
    panels = {
        "refusal": "Refusal (A0, A1)",
        "A2": "A2 abstract",
        "A3": "A3 safer reframing",
        "A4": "A4 direct answer",
    }
    estimates = cohort.estimates
    labels = labels_of(estimates.models)
    rates = {
        heading: [
            row_of(number, labels, heading) for number in _lines(estimates, f"unsafe_rate_{mode}")
        ]
        for mode, heading in panels.items()
    }
    if not any(_any(rows) for rows in rates.values()):
        return empty("nothing to show: no dual-use response has both a mode and its grades")
    charts = [
        dots(
            rows,
            Series((heading,), (VERMILION,)),
            width=120,
            ticks=(0, 0.5, 1),
            names=0 if index else None,
        )
        | whole(heading)
        for index, (heading, rows) in enumerate(rates.items())
    ]
    return across(charts) | APART


def failures(cohort: Cohort) -> Spec:
    """Draw the shares of detection and execution failures; the whisker is that of the border
    between them.
    """
    names = {
        "detection_failure": "Detection failure: full help seemed due",
        "execution_failure": "Execution failure: limits were said to be due",
    }
    otherwise = "nothing to show: no unsafe dual-use response was probed"
    return _bars(cohort, names, (ORANGE, SKY), otherwise)


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


def _bars(
    cohort: Cohort,
    names: dict[str, str],
    colours: tuple[str, ...],
    otherwise: str,
) -> Spec:
    """Return shares that add up to 1 as stacked bars, with the intervals of the borders between
    them.

    Args:
        cohort: of the models, which have a bar each, as has their average.
        names: the name of each share, by its metric.
        colours: of the shares.
        otherwise: the text for a missing bar.
    """
    series = Series(tuple(names.values()), colours)
    labels = labels_of(cohort.estimates.models)
    bars: list[Datum] = []
    lower: list[Datum] = []
    upper: list[Datum] = []
    texts: dict[str, list[Datum]] = {name: [] for name in series.names}
    firsts: list[Datum] = []
    for parts in zip(*(_lines(cohort.estimates, metric) for metric in names), strict=True):
        rows = [row_of(number, labels, names[number.metric]) for number in parts]
        firsts.append(rows[0])
        if rows[0]["value"] is None or rows[-1]["value"] is None:
            continue
        start = 0.0
        for row in rows:
            row["start"], start = start, min(start + row["value"], 1.0)
            row["end"] = start
        bars += rows
        if rows[0]["low"] is None or rows[-1]["low"] is None:
            continue
        first, last = (
            {"label": row["label"], "low": row["low"], "high": row["high"]}
            for row in (rows[0], rows[-1])
        )
        lower.append(first)
        if len(rows) > 2:
            upper.append(last | {"low": 1 - last["high"], "high": 1 - last["low"]})
        _write(rows, texts)
    if not bars:
        return empty(otherwise)
    y = line_axis(firsts)
    bar = _from_to(y, "start", "end") | {
        "color": series.colour,
        "tooltip": tooltip(("series", "what")),
    }
    shift = 4 if upper else 0
    marks = [
        band(firsts, y),
        mark("bar", bar, height=17),
        *(
            mark(
                "rule",
                _from_to(y, "low", "high"),
                rows=borders,
                color=colour,
                strokeWidth=width,
                yOffset=offset,
            )
            for borders, offset in ((lower, -shift), (upper, shift))
            for colour, width in (("white", 3.6), ("#222222", 1.6))
        ),
        *_written(texts, series, y),
        *counts(firsts, y, _WIDTH),
    ]
    return layer(marks, bars, width=_WIDTH, height={"step": 23})


def _from_to(y: Spec, start: str, end: str) -> Spec:
    axis = {"format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]}
    return {
        "y": y,
        "x": quantity(start, scale={"domain": [0, 1]}, title=None, axis=axis),
        "x2": {"field": end},
    }


def _write(rows: Sequence[Datum], texts: dict[str, list[Datum]]) -> None:
    """Add the shares of one bar that have room beside the whiskers: at its two ends, and in
    between.
    """
    first, last = rows[0], rows[-1]
    for row in rows:
        start, end = max(row["start"], first["high"]), min(row["end"], 1 - last["high"])
        value, _, _ = row["shown"].partition(" [")  # as in the table
        text = {"label": row["label"], "text": value, "at": (start + end) / 2}
        room = row["low"] if row in (first, last) else end - start
        if room >= _ROOM:
            texts[row["series"]].append(text)


def _written(texts: dict[str, list[Datum]], series: Series, y: Spec) -> list[Spec]:
    """Return the shares as text."""
    ends = {series.names[0]: (pixels(5), "left"), series.names[-1]: (pixels(_WIDTH - 5), "right")}
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


# Figures by harm domain and task type (paper, Figures 3 and 7)
# ------------------------------------------------------------------------------

FEW = 5
"""Models that are drawn one by one; of more, the average is, and points without names."""
_STRATA_WIDTH = 235
_NAMES = 185
"""Pixels for the names of domains and types."""
_STRATA_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


def panels(cohort: Cohort, metrics: Mapping[str, str]) -> Spec:
    """Draw some metrics by domain, and below by type: a panel for each of them.

    Args:
        cohort: the models.
        metrics: the name of each.
    """
    estimates = cohort.estimates
    lines: list[Spec] = []
    for heading, of in (
        ("harm domain", _ordered(estimates, 0)),
        ("task type", _ordered(estimates, 1)),
    ):
        charts: list[Spec] = []
        for metric, title in metrics.items():
            series, rows, faint = _rows(estimates, metric, of)
            if _any((*rows, *faint)):
                step = 22 if len(series.names) == 1 else 12 * len(series.names) + 6
                names = 0 if charts else _NAMES
                panel = dots(rows, series, width=_STRATA_WIDTH, step=step, names=names, faint=faint)
                charts.append(panel | whole(f"{title} by {heading}"))
        if charts:
            lines.append(across(charts))
    return down(lines) if lines else empty()


def _ordered(estimates: MetricEstimates, kind: int) -> list[Stratum]:
    """Return harm domains (kind 0) or task types (1) from the safest to the least safe, by Triplet
    Safety averaged over models.
    """

    def level(stratum: Stratum) -> float:
        values = [
            estimates.strata[model, "triplet_safety", stratum].value
            for model in estimates.averaged or estimates.models
        ]
        defined = [value for value in values if value is not None]
        return -sum(defined) / len(defined) if defined else 1.0

    return sorted(
        (stratum for stratum in estimates.sets if stratum[kind] and not stratum[1 - kind]),
        key=lambda stratum: (level(stratum), stratum[kind]),
    )


def _rows(
    estimates: MetricEstimates, metric: str, of: Sequence[Stratum]
) -> tuple[Series, list[Datum], list[Datum]]:
    """Return the rows with whiskers, and those without: few models one by one, of many only their
    average.
    """
    labels = labels_of(estimates.models)
    shown = estimates.models if len(estimates.models) <= FEW else []
    averaged = len(estimates.averaged) > 1 or not shown
    rows: list[Datum] = []
    faint: list[Datum] = []
    for stratum in of:
        line = {"label": stratum[0] or stratum[1], "thin": estimates.sets[stratum] < FEWEST_SETS}
        estimate_of = {
            model: estimates.strata[model, metric, stratum] for model in estimates.models
        }
        rows += [row_of(estimate_of[model], labels, labels[model]) | line for model in shown]
        average = estimates.averages.get((metric, stratum))
        if averaged and average:
            rows.append(row_of(average, labels, AVERAGE) | line)
        if not shown:
            faint += [
                row_of(item, labels, "") | line
                for item in estimate_of.values()
                if item.value is not None
            ]
    if not shown:
        return Series((AVERAGE,), (BLUE,), ("diamond",)), rows, faint
    names = (*(labels[model] for model in shown), *([AVERAGE] if averaged else []))
    colours = (*_STRATA_COLOURS[: len(shown)], *([GREY] if averaged else []))
    return Series(names, colours), rows, faint


# Figures of several judges
# ------------------------------------------------------------------------------

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
_TOGETHER = {JUDGE_AVERAGE: "average over judges", PANEL: PANEL}
"""Names of the entries that are not one judge."""
_NAME = 30


def by_judge(cohort: Cohort) -> Spec:
    """Draw the two primary metrics of each model, a point for each judge, one for their average and
    one for the panel.
    """
    graders = cohort.judges.graders
    judges = labels_of([grader.name for grader in graders if grader.name not in _TOGETHER], _NAME)
    names = tuple(judges.get(grader.name) or _TOGETHER[grader.name] for grader in graders)
    colours = (*islice(cycle(_COLOURS), len(judges)), GREY, GREY)
    shapes = (
        *islice(cycle(shape for shape in SHAPES if shape not in ("cross", "diamond")), len(judges)),
        "cross",
        "diamond",
    )
    labels = labels_of(cohort.estimates.models)
    charts = [
        dots(
            [
                row_of(
                    MetricEstimate.of(estimates[cohort.models.index(model)], model, metric),
                    labels,
                    name,
                )
                for model in cohort.estimates.models
                for name, grader in zip(names, graders, strict=True)
                for estimates in (grader.estimates[metric],)
            ],
            Series(names, colours, shapes),
            width=250,
            step=10 * len(names) + 8,
            names=0 if index else None,
        )
        | whole(METRICS[metric].label)
        for index, metric in enumerate(PRIMARY)
    ]
    return across(charts, spacing=30)
