"""Figures by harm domain and task type (paper, Figures 3 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import AVERAGE, MetricEstimates, Stratum
from opensafeintent.report.figures.kit import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    Datum,
    Spec,
    across,
    down,
    empty,
    whole,
)
from opensafeintent.report.figures.points import Series, any_value, dots, labels_of, row_of
from opensafeintent.statistics import FEWEST_SETS

FEW = 5
"""Models that are drawn one by one; of more, the average is, and points without names."""
_WIDTH = 235
_NAMES = 185
"""Pixels for the names of domains and types."""
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


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
            if any_value((*rows, *faint)):
                step = 22 if len(series.names) == 1 else 12 * len(series.names) + 6
                names = 0 if charts else _NAMES
                panel = dots(
                    rows, series, metric, width=_WIDTH, step=step, names=names, faint=faint
                )
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
    colours = (*_COLOURS[: len(shown)], *([GREY] if averaged else []))
    return Series(names, colours), rows, faint
