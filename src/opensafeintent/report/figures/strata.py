"""Figures by harm domain and task type (paper, Figures 3 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import AVERAGE, Numbers, Stratum
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
    row_of,
    whole,
)
from opensafeintent.statistics import FEWEST_SETS

FEW = 5
"""Models that are drawn one by one; of more, the average is, and points without names."""
_WIDTH = 235
_NAMES = 185
"""Pixels for the names of domains and types."""
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


def panels(group: Group, metrics: Mapping[str, str]) -> Spec:
    """Draw some metrics by domain, and below by type: a panel for each of them.

    Args:
        group: the models.
        metrics: what each is called.
    """
    numbers = group.numbers
    lines: list[Spec] = []
    for heading, of in (("harm domain", _ordered(numbers, 0)), ("task type", _ordered(numbers, 1))):
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


def _ordered(numbers: Numbers, kind: int) -> list[Stratum]:
    """Return harm domains (kind 0) or task types (1) from the safest to the least safe, by Triplet
    Safety averaged over models.
    """

    def level(stratum: Stratum) -> float:
        found = [
            numbers.strata[model, "triplet_safety", stratum].value
            for model in numbers.averaged or numbers.models
        ]
        defined = [value for value in found if value is not None]
        return -sum(defined) / len(defined) if defined else 1.0

    return sorted(
        (stratum for stratum in numbers.sets if stratum[kind] and not stratum[1 - kind]),
        key=lambda stratum: (level(stratum), stratum[kind]),
    )


def _rows(
    numbers: Numbers, metric: str, of: Sequence[Stratum]
) -> tuple[Series, list[Datum], list[Datum]]:
    """Return what is drawn with whiskers, and what without: few models one by one, of many only
    their average.
    """
    labels = labels_of(numbers.models)
    shown = numbers.models if len(numbers.models) <= FEW else []
    averaged = len(numbers.averaged) > 1 or not shown
    rows: list[Datum] = []
    faint: list[Datum] = []
    for stratum in of:
        line = {"label": stratum[0] or stratum[1], "thin": numbers.sets[stratum] < FEWEST_SETS}
        found = {model: numbers.strata[model, metric, stratum] for model in numbers.models}
        rows += [row_of(found[model], labels, labels[model]) | line for model in shown]
        average = numbers.averages.get((metric, stratum))
        if averaged and average:
            rows.append(row_of(average, labels, AVERAGE) | line)
        if not shown:
            faint += [
                row_of(item, labels, "") | line for item in found.values() if item.value is not None
            ]
    if not shown:
        return Series((AVERAGE,), (BLUE,), ("diamond",)), rows, faint
    names = (*(labels[model] for model in shown), *([AVERAGE] if averaged else []))
    colours = (*_COLOURS[: len(shown)], *([GREY] if averaged else []))
    return Series(names, colours), rows, faint
