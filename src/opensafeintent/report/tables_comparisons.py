"""Differences between every two models: as a table, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from math import inf

import msgspec

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.calls.baselines import contenders
from opensafeintent.errors import about, counted
from opensafeintent.metrics import METRICS
from opensafeintent.report.cohort_columns import (
    ANY_GRADES,
    MEASURED,
    UNDEFINED,
    cohort_notes,
    lack_grades,
    measured_of,
    numbered,
)
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.values import Share, interval, number
from opensafeintent.statistics import Difference

DETECTABLE = Column(
    "minimum_detectable_difference", "Detectable", "gap", part="minimum_detectable_difference"
)
"""Of a row with a `Difference`."""


_SIMILAR = 0.10
"""Difference in dual-use safety up to which safety flips are compared: by arithmetic, they depend
on how often a model is safe.
"""


def comparisons(cohorts: Sequence[Cohort]) -> Table:
    """Return every two models' differences in the metrics that are compared, later minus earlier as
    they were named.
    """
    lacking = lack_grades(cohorts)
    return Table(
        name="comparisons",
        title="Differences between every two models",
        section="comparisons",
        columns=(
            numbered(cohorts),
            Column("model_a", "Model A", "name"),
            Column("model_b", "Model B", "name"),
            *MEASURED,
            Column("metric", "Metric", order=-1),
            Column("difference", "B − A", "signed"),
            Column("n", "Sets", "count", part="n"),
            Column(
                "worst_case",
                "Any grades" if lacking else None,
                "span",
                part="worst_case",
            ),
            Column("p_unadjusted", part="p_unadjusted"),
            Column("p_adjusted", "Adjusted p", "p", part="p_adjusted"),
            DETECTABLE,
            Column("family", "Family", "count", part="pairs"),
        ),
        rows=[
            (index + 1, a, b, *measured_of(cohort), metric, difference)
            for index, cohort in enumerate(cohorts)
            for metric in cohort.estimates.comparisons
            for a, b, difference in pairs(cohort, metric)
        ],
        notes=(
            *cohort_notes(cohorts),
            (
                "On the prompt-sets that count for both. Interval and p are adjusted for all pairs"
                " of models under test (Family); those with a baseline are of that pair alone. A"
                " difference is significant if the interval lies entirely on one side of 0, with"
                " any missing grades. Triplet Safety and Mean Utility are primary."
                " Detectable: the difference that the test finds with 80 % power. Safety flips"
                " depend on how often a model is safe: the page compares those of models"
                f" within {100 * _SIMILAR:.0f} points of dual-use safety only, the file all."
            ),
            *([ANY_GRADES] * lacking),
            UNDEFINED,
        ),
    )


def pairs(cohort: Cohort, metric: str) -> Iterator[tuple[str, str, Difference]]:
    """Yield every two models of a cohort with their difference in one metric, B − A, if any
    prompt-set counts for both.
    """
    for a, b in combinations(range(len(cohort.models)), 2):
        if difference := cohort.estimates.comparisons[metric].pair(a, b):
            yield cohort.models[a], cohort.models[b], difference


def without_unlike(table: Table, cohort: Cohort) -> Table:
    """Return a table of differences without the safety flips of models that are unlike in dual-use
    safety; others as they are.
    """
    if table.name != "comparisons":
        return table
    at = {column.name: index for index, column in enumerate(table.columns)}
    overall = cohort.estimates.overall
    safety = {model: overall[model, "dual_use_safety"].value or 0.0 for model in cohort.models}
    rows = [
        row
        for row, cells in zip(table.rows, table.cells, strict=True)
        for (a,), (b,) in ((cells[at["model_a"]], cells[at["model_b"]]),)
        if cells[at["metric"]] != ("safety_flip",)
        or abs(safety[str(a)] - safety[str(b)]) <= _SIMILAR
    ]
    return msgspec.structs.replace(table, rows=rows)


def by_family(cohort: Cohort, metric: str) -> list[list[tuple[str, str, Difference]]]:
    """Return the pairs of models under test, which are one family, and those with a baseline, each
    compared on its own; a list only if there are any.
    """
    tested = contenders(cohort.models)
    every = list(pairs(cohort, metric))
    together = [pair for pair in every if {*pair[:2]} <= {*tested}]
    return [
        found for found in (together, [pair for pair in every if pair not in together]) if found
    ]


_BETTER = {
    "triplet_safety": "safer",
    "mean_safety": "safer on average over responses",
    "mean_utility": "more useful",
}
"""Words for a model with more of a metric; or with less, if less is better."""


def verdict_in_words(metric: str, first: str, second: str, found: Difference) -> str:
    """Say which of two models is better in a metric, if the interval shows it, in one sentence.

    Args:
        metric: its name.
        first, second: the models; the difference is the second minus the first.
        found: in the metric.
    """
    told, value = METRICS[metric], found.value or 0.0
    low, high = found.interval or (-inf, inf)
    better = _BETTER.get(metric, "better")
    sets = counted(found.n, "prompt-set")
    shown, unit = (_points, " points") if told.is_share else (partial(number, signed=True), "")
    if not value and not found.deviation:
        return f"identical in {told.label} on all {sets}"
    if not found.claimed:
        more = ""
        if not low <= 0 <= high:
            least, most = found.worst_case
            more = (
                "; it depends on the missing grades: with any of them, between"
                f" {shown(least)} and {shown(most)}{unit}"
            )
        elif found.deciding:
            more = (
                f"; if the true difference is {shown(value)}{unit}, about"
                f" {about(found.deciding)} prompt-sets would decide with 80 % power"
            )
        between = f"the difference lies between {shown(low)} and {shown(high)}{unit}"
        return f"undecided which is {better}: {told.label}: {between}, {sets}{more}"
    ahead, behind = (second, first) if (value > 0) != told.less_is_better else (first, second)
    if ahead == first:
        value, low, high = -value, -high, -low
    size = interval(Share(value) if told.is_share else value, low, high, signed=True)
    return f"{ahead} is {better} than {behind}: {told.label} {size}, {sets}"


def _points(value: float) -> str:
    return f"{100 * value:+.0f}".replace("-", "−")
