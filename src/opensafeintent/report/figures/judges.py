"""Figures of several judges."""

from __future__ import annotations

from itertools import cycle, islice

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import MetricEstimate
from opensafeintent.analysis.judges import JUDGE_AVERAGE
from opensafeintent.grades import PANEL
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.figures.kit import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SHAPES,
    SKY,
    VERMILION,
    Spec,
    across,
    whole,
)
from opensafeintent.report.figures.points import Series, dots, labels_of, row_of

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
            metric,
            width=250,
            step=10 * len(names) + 8,
            names=0 if index else None,
        )
        | whole(METRICS[metric].label)
        for index, metric in enumerate(PRIMARY)
    ]
    return across(charts, spacing=30)
