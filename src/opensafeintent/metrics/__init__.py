"""Every metric of the benchmark: `paper` and `beyond` it have an equation a function,
`records` what a metric is.

Each metric is a sum over prompt-sets of a numerator over a sum of a denominator: a `Ratio` of two
arrays of shape (model, prompt_set). With epochs, both are computed per (set, epoch) and averaged
over the set's complete epochs.
"""

from __future__ import annotations

import numpy as np

from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics.paper import BEYOND_METRICS, KNOWING, PAPER_METRICS
from opensafeintent.metrics.records import Grades, Metric, Needs, Ratio

__all__ = [
    "KNOWING",
    "METRICS",
    "PRIMARY",
    "Grades",
    "Metric",
    "Needs",
    "Ratio",
    "compute",
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in (*PAPER_METRICS, *BEYOND_METRICS)}
"""Every metric by its name in `metrics.json`."""

PRIMARY = tuple(metric.name for metric in METRICS.values() if metric.primary)
"""The two that comparisons are declared on."""


def compute(array: LabelledSet) -> dict[str, Ratio]:
    """Return every metric of a labelled array of grades (see `grades.to_array`)."""
    grades = Grades(array)
    with np.errstate(invalid="ignore"):
        return {name: metric.of_sets(grades) for name, metric in METRICS.items()}
