"""Figures with a line of points for each model (paper, Figures 2 and 6)."""

from __future__ import annotations

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.metrics import METRICS
from opensafeintent.report.figures.kit import (
    APART,
    BLUE,
    SKY,
    VERMILION,
    Spec,
    across,
    empty,
    whole,
)
from opensafeintent.report.figures.points import (
    WIDTH,
    Series,
    any_value,
    dots,
    labels_of,
    lines_of,
    row_of,
)


def safety(cohort: Cohort) -> Spec:
    """Draw Mean Safety above Triplet Safety."""
    estimates = cohort.estimates
    headings = {metric: METRICS[metric].label for metric in ("mean_safety", "triplet_safety")}
    labels = labels_of(estimates.models)
    pairs = zip(*(lines_of(estimates, metric) for metric in headings), strict=True)
    rows = [row_of(number, labels, headings[number.metric]) for pair in pairs for number in pair]
    series = Series(tuple(headings.values()), (SKY, BLUE), ("circle", "diamond"))
    return (
        dots(rows, series, "mean_safety", width=WIDTH, step=26, title="share safe")
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
    labels = labels_of(estimates.models)
    rates = {
        heading: [
            row_of(number, labels, heading) for number in lines_of(estimates, f"unsafe_rate_{mode}")
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
