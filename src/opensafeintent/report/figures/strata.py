"""Figures by harm domain and task type (paper, Figures 3 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import AVERAGE, Number, Numbers, Stratum
from opensafeintent.report.figures.kit import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    Datum,
    Series,
    Spec,
    across,
    dots,
    down,
    empty,
    labels_of,
    layer,
    mark,
    names_axis,
    nominal,
    quantity,
    row_of,
    tooltip,
    types_axis,
    whole,
)
from opensafeintent.report.formats import number
from opensafeintent.statistics import FEWEST_SETS

__all__ = ["FEW", "THIN_CELL", "cells", "panels"]

FEW = 5
"""Models that are drawn one by one; of more, the average is, and points without names."""
THIN_CELL = 10
"""Prompt-sets below which a cell is no full tile."""
_WIDTH = 235
_NAMES = 185
"""Pixels for the names of domains and types."""
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
_LIGHT = 0.6
"""Value from which on a tile of the map asks for dark text."""


def panels(group: Group, metrics: Mapping[str, str]) -> Spec:
    """Draw some metrics by domain, and below by type: a panel for each of them.

    Args:
        group: the models.
        metrics: what each is called.
    """
    numbers = group.numbers
    lines: list[Spec] = []
    for heading, of in (("harm domain", _domains(numbers)), ("task type", _types(numbers))):
        charts: list[Spec] = []
        for metric, title in metrics.items():
            series, rows, faint = _rows(numbers, metric, of)
            if any(row["value"] is not None for row in (*rows, *faint)):
                step = 22 if len(series.names) == 1 else 12 * len(series.names) + 6
                names = 0 if charts else _NAMES
                panel = dots(rows, series, width=_WIDTH, step=step, names=names, faint=faint)
                charts.append(panel | whole(f"{title} by {heading}"))
        if charts:
            lines.append(across(charts))
    return down(lines) if lines else empty()


def _domains(numbers: Numbers) -> list[Stratum]:
    return _ordered(numbers, [stratum for stratum in numbers.sets if stratum[0] and not stratum[1]])


def _types(numbers: Numbers) -> list[Stratum]:
    return _ordered(numbers, [stratum for stratum in numbers.sets if stratum[1] and not stratum[0]])


def _ordered(numbers: Numbers, of: Sequence[Stratum]) -> list[Stratum]:
    """Return strata from the safest to the least safe, by Triplet Safety averaged over models."""

    def level(stratum: Stratum) -> float:
        found = [numbers.strata[model, "triplet_safety", stratum].value for model in numbers.averaged or numbers.models]
        defined = [value for value in found if value is not None]
        return -sum(defined) / len(defined) if defined else 1.0

    return sorted(of, key=lambda stratum: (level(stratum), stratum[0] or "", stratum[1] or ""))


def _rows(numbers: Numbers, metric: str, of: Sequence[Stratum]) -> tuple[Series, list[Datum], list[Datum]]:
    """Return what is drawn with whiskers, and what without: few models one by one, of many only their average."""
    labels = labels_of(numbers.models)
    shown = numbers.models if len(numbers.models) <= FEW else []
    averaged = len(numbers.averaged) > 1 or not shown
    rows: list[Datum] = []
    faint: list[Datum] = []
    for stratum in of:
        line = {"label": stratum[0] or stratum[1], "thin": numbers.sets[stratum] < FEWEST_SETS}
        found = {model: numbers.strata[model, metric, stratum] for model in numbers.models}
        rows += [_moved(found[model], row_of(found[model], labels, labels[model])) | line for model in shown]
        average = numbers.averages.get((metric, stratum))
        if averaged and average:
            rows.append(_moved(average, row_of(average, labels, AVERAGE)) | line)
        if not shown:
            faint += [row_of(item, labels, "") | line for item in found.values() if item.value is not None]
    if not shown:
        return Series((AVERAGE,), (BLUE,), ("diamond",)), rows, faint
    names = (*(labels[model] for model in shown), *([AVERAGE] if averaged else []))
    colours = (*_COLOURS[: len(shown)], *([GREY] if averaged else []))
    return Series(names, colours), rows, faint


def _moved(found: Number, row: Datum) -> Datum:
    """Return a row with the value that the stratum is shrunken to."""
    return row | {"shrunken": None if found.shrunken is None else round(found.shrunken, 3)}


def cells(group: Group, metrics: Mapping[str, str]) -> Spec:
    """Draw a map of domain by type for each of some metrics."""
    numbers = group.numbers
    charts = []
    for metric, title in metrics.items():
        tiles = [_tile(numbers, metric, stratum) for stratum in numbers.sets if stratum[0] and stratum[1]]
        if any(tile["value"] is not None for tile in tiles):
            charts.append(_map(numbers, tiles) | whole(title, 8))
    if charts:
        return down(charts, spacing=24)
    return empty("nothing to show: averages over models leave baselines aside, and there is no other model with grades")


def _tile(numbers: Numbers, metric: str, stratum: Stratum) -> Datum:
    found = numbers.averages.get((metric, stratum))
    if found is None or found.value is None:
        return {"value": None}
    return row_of(found, {}, metric) | {
        "domain": stratum[0],
        "type": stratum[1],
        "text": number(found.value),
        "span": f"{number(found.low)}–{number(found.high)}",
        "thin": numbers.sets[stratum] < THIN_CELL,
        "light": found.value >= _LIGHT,
    }


def _map(numbers: Numbers, tiles: Sequence[Datum]) -> Spec:
    columns = {"domain": [stratum[1] for stratum in _types(numbers)], "paddingInner": 0.04}
    lines = {"domain": [stratum[0] for stratum in _domains(numbers)], "paddingInner": 0.08}
    at = {
        "x": nominal("type", scale=columns, sort=None, title=None, axis=types_axis(100)),
        "y": nominal("domain", scale=lines, sort=None, title=None, axis=names_axis(_NAMES)),
        "tooltip": tooltip(("domain", "harm domain"), ("type", "task type")),
    }
    scale = {"domain": [0, 1], "scheme": "viridis"}
    legend = {"gradientLength": 160, "gradientThickness": 10, "values": [0, 0.5, 1]}
    colour = {"color": quantity("value", scale=scale, title=None, legend=legend)}
    marks = [
        mark("rect", at | colour, where="isValid(datum.value) && !datum.thin", cornerRadius=2),
        mark("square", at | colour, where="isValid(datum.value) && datum.thin", size=170, opacity=1, xOffset=-37),
    ]
    looks: dict[str, Spec] = {
        "!datum.thin && datum.light": {"color": "#111111"},
        "!datum.thin && !datum.light": {"color": "white"},
        "datum.thin": {"xOffset": 8},
    }
    for where, look in looks.items():
        there = f"isValid(datum.value) && {where}"
        text, span = at | {"text": nominal("text")}, at | {"text": nominal("span")}
        marks.append(mark("text", text, where=there, fontSize=11, fontWeight="bold", yOffset=-6, **look))
        marks.append(mark("text", span, where=there, fontSize=9, yOffset=7, **look))
    return layer(marks, tiles, width={"step": 100}, height={"step": 36})
