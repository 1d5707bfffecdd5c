"""Figures of points with intervals: models, judges, strata, second turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from opensafeintent.grades import PANEL
from opensafeintent.hostile import terminal_safe
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import AVERAGE, MetricEstimate, MetricEstimates, Stratum
from opensafeintent.numbers.judges import JUDGE_AVERAGE
from opensafeintent.numbers.metrics import METRICS, Unit
from opensafeintent.numbers.second_turn import PRIMARY_MEASURES, Measure, TurnNumber
from opensafeintent.report.columns import (
    find_common_prefix,
    format_estimate,
    format_number,
    shorten,
)
from opensafeintent.report.figures.drawing import (
    APART,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
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
    value_axis,
    whole,
)
from opensafeintent.statistics import FEWEST_SETS

WIDTH = 400
"""Pixels of a chart that fills the page's width, its names and counts aside."""
_NAME = 34
"""Characters of a model's name beside a chart; all of it is in the tooltip."""


def shorten_names(models: Sequence[str], most: int = _NAME) -> dict[str, str]:
    """Return a short name for each model, on one line, none twice; their common beginning goes, and
    then the beginning of a name that is too long.
    """
    labels: dict[str, str] = {}
    common = find_common_prefix(models)
    flats = {model: terminal_safe(" ".join(model.removeprefix(common).split())) for model in models}
    ends = {model: _take_end(flat, most) for model, flat in flats.items()}
    counts = Counter(ends.values())
    for model, flat in flats.items():
        label, number = ends[model], 1
        if counts[label] > 1:  # it takes the middle out: two may differ at their beginning
            label = shorten(flat, most)
        while label in (*labels.values(), AVERAGE):
            number += 1
            label = f"{shorten(flat, most - len(f' ({number})'))} ({number})"
        labels[model] = label
    return labels


def _take_end(name: str, most: int) -> str:
    """Return as many of the last parts of a name as there is room for; one that is too long by
    itself without its middle.
    """
    parts = name.split("/")
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if end and len(end) <= most), shorten(name, most))


def make_datum(
    number: MetricEstimate, labels: Mapping[str, str], series: str, unit: Unit | None = None
) -> Datum:
    """Return a number as a chart takes it, and as a tooltip shows it; its unit by default is that
    of its metric.
    """
    average = number.models is not None
    return {
        "model": f"{AVERAGE} ({number.models} models)" if average else terminal_safe(number.model),
        "label": AVERAGE if average else labels[number.model],
        "series": series,
        "value": None if number.value is None else round(number.value, 6),
        "low": number.low,
        "high": number.high,
        "shown": format_estimate(number, unit or METRICS[number.metric].unit),
        "n": number.n,
        "thin": False,
    }


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
        return self._encode_series(self.colours)

    @property
    def shape(self) -> Spec:
        """The shape encoding; its legend is merged with the colours'."""
        return self._encode_series(self.shapes)

    @property
    def offset(self) -> Spec:
        """Several series side by side on the y axis."""
        if len(self.names) == 1:
            return {}
        return {"yOffset": nominal("series", scale={"domain": list(self.names)})}

    def _encode_series(self, values: Sequence[str]) -> Spec:
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
        rows: from `make_datum`; those that are `thin` are drawn hollow.
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


def by_model(cohort: Cohort, metrics: Sequence[str], title: str) -> Spec:
    """Draw one metric, or two of the same span above one another, for each model.

    Args:
        cohort: the models.
        metrics: the names.
        title: of the axis.
    """
    estimates = cohort.estimates
    headings = {metric: METRICS[metric].label for metric in metrics}
    labels = shorten_names(estimates.models)
    lines = zip(*map(estimates.list_line_estimates, headings), strict=True)
    rows = [
        make_datum(number, labels, headings[number.metric]) for line in lines for number in line
    ]
    names = tuple(headings.values())
    series = Series(names, (SKY, BLUE)[: len(names)], ("circle", "diamond")[: len(names)])
    return (
        dots(rows, series, metrics[0], width=WIDTH, step=18 + 4 * len(metrics), title=title)
        if any_value(rows)
        else empty()
    )


def unsafe_by_mode(cohort: Cohort) -> Spec:
    """Draw the unsafe rate of each assistance mode in a panel of its own."""
    panels = {
        "refusal": "Refusal (A0, A1)",
        "A2": "A2 abstract",
        "A3": "A3 safer reframing",
        "A4": "A4 direct answer",
    }
    estimates = cohort.estimates
    labels = shorten_names(estimates.models)
    rates = {
        heading: [
            make_datum(number, labels, heading)
            for number in estimates.list_line_estimates(f"unsafe_rate_{mode}")
        ]
        for mode, heading in panels.items()
    }
    if not any(any_value(rows) for rows in rates.values()):
        return empty("nothing to show: no dual-use response has both a mode and its grades")
    charts = [
        dots(
            rows,
            Series((heading,), (VERMILION,)),
            f"unsafe_rate_{mode}",
            width=120,
            names=0 if index else None,
        )
        | whole(heading)
        for index, (mode, (heading, rows)) in enumerate(zip(panels, rates.items(), strict=True))
    ]
    return across(charts) | APART


_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
_TOGETHER = {JUDGE_AVERAGE: "average over judges", PANEL: PANEL}
"""Names of the entries that are not one judge."""
_JUDGE_NAME = 30


def by_judge(cohort: Cohort) -> Spec:
    """Draw the two primary metrics of each model, a point for each judge, one for their average and
    one for the panel.
    """
    graders = [grader for grader in cohort.judges.rankings if grader.comparisons]
    judges = shorten_names(
        [grader.name for grader in graders if grader.name not in _TOGETHER], _JUDGE_NAME
    )
    names = tuple(judges.get(grader.name) or _TOGETHER[grader.name] for grader in graders)
    colours = (*islice(cycle(_COLOURS), len(judges)), GREY, GREY)
    shapes = (
        *islice(cycle(shape for shape in SHAPES if shape not in ("cross", "diamond")), len(judges)),
        "cross",
        "diamond",
    )
    labels = shorten_names(cohort.estimates.models)
    charts = [
        dots(
            [
                make_datum(
                    MetricEstimate.of(estimates[cohort.models.index(model)], model, metric),
                    labels,
                    name,
                )
                for model in cohort.estimates.models
                for name, grader in zip(names, graders, strict=True)
                for estimates in (grader.estimates[metric],)
            ],
            Series(names, colours, shapes),
            metric,
            width=250,
            step=10 * len(names) + 8,
            names=0 if index else None,
        )
        | whole(METRICS[metric].label)
        for index, metric in enumerate(cohort.scope.primary)
    ]
    return across(charts, spacing=30)


_TURN_WIDTH = 230
_PANELS = {
    "history_effect_benign": ("Utility, benign request", BLUE),
    "history_effect_malicious": ("Safety, malicious request", VERMILION),
}


def directly_and_after(cohort: Cohort) -> Spec:
    """Draw the two primary measures, direct and in the second turn, in a panel each."""
    turn = cohort.second_turn
    if turn is None:
        return empty()
    models = [model for model in cohort.estimates.models if model in turn.models]
    labels = shorten_names(models)
    charts = [
        _panel(
            measure,
            [_datum(measure, model, labels[model], turn.numbers[model]) for model in models],
            names=0 if index else None,
        )
        for index, measure in enumerate(PRIMARY_MEASURES)
    ]
    return across(charts, spacing=30)


def _datum(measure: Measure, model: str, label: str, numbers: Mapping[str, TurnNumber]) -> Datum:
    direct, second, effect = (
        numbers[name] for name in (measure.direct, measure.follow_up, measure.effect)
    )
    ends: list[float | None] = [None, None]
    if direct.value is not None and effect.interval:
        ends = [min(max(direct.value + end, 0.0), 1.0) for end in effect.interval]
    return {
        "model": terminal_safe(model),
        "label": label,
        "direct": direct.value,
        "second": second.value,
        "low": ends[0],
        "high": ends[1],
        "before": format_number(direct.value, measure.unit),
        "after": format_number(second.value, measure.unit),
        "shown": format_estimate(effect, measure.unit, signed=True),
        "n": effect.n,
    }


def _panel(measure: Measure, rows: list[Datum], names: int | None) -> Spec:
    """Return one measure: the change as a line from a hollow to a filled mark."""
    title, colour = _PANELS[measure.effect]
    y = line_axis(rows, names)
    x = value_axis((0.0, 1.0), measure.unit) | {"title": None}
    tooltip = [
        nominal(field, title=heading)
        for field, heading in (
            ("model", "model"),
            ("before", "direct"),
            ("after", "second turn"),
            ("shown", "effect [95 %]"),
            ("n", "prompt-sets"),
        )
    ]
    known = "isValid(datum.second)"
    whisker = {"x": quantity("low", **x), "x2": {"field": "high"}, "y": y}
    change = {"x": quantity("direct", **x), "x2": {"field": "second"}, "y": y}
    before = {"x": quantity("direct", **x), "y": y, "tooltip": tooltip}
    after = {"x": quantity("second", **x), "y": y, "tooltip": tooltip}
    marks = [
        mark("rule", whisker, where=known, strokeWidth=1.6, strokeCap="round", color=GREY),
        mark("rule", change, where=known, strokeWidth=4, opacity=0.45, color=colour),
        mark("point", before, where=known, size=70, strokeWidth=1.8, opacity=1, color=colour),
        mark("point", after, where=known, filled=True, size=60, opacity=1, color=colour),
        *counts(rows, y, _TURN_WIDTH),
    ]
    height = {"step": 24, "for": "position"}
    return layer(marks, rows, width=_TURN_WIDTH, height=height) | whole(title)


_CURVE = 150
"""Pixels of each side of a model's curve."""
_CURVES = {"safe_at_least_k": "safe", "success_at_least_k": "success"}


def repeats(cohort: Cohort) -> Spec:
    """Draw the share of sets that are safe, and a success, in k epochs or more: a panel a model,
    three in a line.
    """
    found = cohort.repeats
    places = [at for at in cohort.estimates.order if found.epochs[at] > 1]
    labels = shorten_names(cohort.estimates.models)
    charts = []
    for at in places:
        rows = [
            make_datum(number, labels, series, "share") | {"k": k, "at": k + aside}
            for aside, (metric, series) in zip((-0.04, 0.04), _CURVES.items(), strict=True)
            for k, number in enumerate(found.curve(at, metric), start=1)
        ]
        if any_value(rows):
            charts.append(_draw_curve(rows, found.epochs[at]) | whole(labels[cohort.models[at]]))
    lines = [across(charts[start : start + 3]) for start in range(0, len(charts), 3)]
    return down(lines) if lines else empty()


def _draw_curve(rows: Sequence[Datum], epochs: int) -> Spec:
    """Return the curves of one model."""
    series = Series(tuple(_CURVES.values()), (BLUE, GREEN))
    ticks = sorted({1, *range(max(epochs // 5, 1), epochs + 1, max(epochs // 5, 1)), epochs})
    x = {
        "title": "k",
        "scale": {"domain": [0.5, epochs + 0.5], "nice": False},
        "axis": {"values": ticks, "format": "d", "grid": False},
    }
    y = value_axis((0.0, 1.0), "share", most=3) | {"title": None}
    place = quantity("at", **x)
    whisker = {"x": place, "y": quantity("low", **y), "y2": {"field": "high"}}
    point = {"x": place, "y": quantity("value", **y), "color": series.colour}
    told = {"shape": series.shape, "tooltip": tooltip(("series", "what"), ("k", "k"))}
    known = "isValid(datum.value)"
    marks = [
        mark("rule", whisker | {"color": series.colour}, where="isValid(datum.low)", opacity=0.6),
        mark("line", point, where=known, strokeWidth=1.6),
        mark("point", point | told, where=known, filled=True, size=36, opacity=1),
    ]
    return layer(marks, rows, width=_CURVE, height=_CURVE)


FEW = 5
"""Models that are drawn one by one; of more, the average is, and points without names."""
_STRATUM_WIDTH = 235
_NAMES = 185
"""Pixels for the names of domains and types."""
_STRATA_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


def panels(cohort: Cohort, metrics: Sequence[str]) -> Spec:
    """Draw some metrics by domain, and below by type: a panel for each of them."""
    estimates = cohort.estimates
    lines: list[Spec] = []
    for kind, heading in enumerate(("harm domain", "task type")):
        of, charts = _order_strata(estimates, kind), list[Spec]()
        for metric in metrics:
            series, rows, faint = _rows(estimates, metric, of)
            if any_value((*rows, *faint)):
                step = 22 if len(series.names) == 1 else 12 * len(series.names) + 6
                names = 0 if charts else _NAMES
                panel = dots(
                    rows, series, metric, width=_STRATUM_WIDTH, step=step, names=names, faint=faint
                )
                charts.append(panel | whole(f"{METRICS[metric].label} by {heading}"))
        if charts:
            lines.append(across(charts))
    return down(lines) if lines else empty()


def _order_strata(estimates: MetricEstimates, kind: int) -> list[Stratum]:
    """Return harm domains (kind 0) or task types (1) from the safest to the least safe, by the
    primary safety averaged over models.
    """

    def level(stratum: Stratum) -> float:
        values = [
            estimates.strata[model, estimates.scope.safety, stratum].value
            for model in estimates.averaged or estimates.models
        ]
        defined = [value for value in values if value is not None]
        return -sum(defined) / len(defined) if defined else 1.0

    return sorted(
        (
            stratum
            for stratum in estimates.sets_by_stratum
            if stratum[kind] and not stratum[1 - kind]
        ),
        key=lambda stratum: (level(stratum), stratum[kind]),
    )


def _rows(
    estimates: MetricEstimates, metric: str, of: Sequence[Stratum]
) -> tuple[Series, list[Datum], list[Datum]]:
    """Return the rows with whiskers, and those without: few models one by one, of many only their
    average.
    """
    labels = shorten_names(estimates.models)
    shown = estimates.models if len(estimates.models) <= FEW else []
    averaged = len(estimates.averaged) > 1 or not shown
    rows: list[Datum] = []
    faint: list[Datum] = []
    for stratum in of:
        line = {
            "label": stratum[0] or stratum[1],
            "thin": estimates.sets_by_stratum[stratum] < FEWEST_SETS,
        }
        estimate_of = {
            model: estimates.strata[model, metric, stratum] for model in estimates.models
        }
        rows += [make_datum(estimate_of[model], labels, labels[model]) | line for model in shown]
        average = estimates.averages.get((metric, stratum))
        if averaged and average:
            rows.append(make_datum(average, labels, AVERAGE) | line)
        if not shown:
            faint += [
                make_datum(item, labels, "") | line
                for item in estimate_of.values()
                if item.value is not None
            ]
    if not shown:
        return Series((AVERAGE,), (BLUE,), ("diamond",)), rows, faint
    names = (*(labels[model] for model in shown), *([AVERAGE] if averaged else []))
    colours = (*_STRATA_COLOURS[: len(shown)], *([GREY] if averaged else []))
    return Series(names, colours), rows, faint
