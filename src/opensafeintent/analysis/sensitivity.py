"""How far the headline metrics move without filtered, and without cut-off responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from opensafeintent.analysis.estimates import MetricEstimates, estimates_of
from opensafeintent.equations import Grades
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate
from opensafeintent.taxonomy import CORE_VARIANTS

LeftOut = Literal["filtered", "truncated"]
LEFT_OUT: tuple[LeftOut, ...] = get_args(LeftOut)

SENSITIVE = ("triplet_safety", "mean_utility", "mean_safety", "worst_case_utility")
"""Metrics that are computed again; all of them need core responses only."""

_IS_LEFT_OUT: dict[LeftOut, Callable[[GradedResponse], bool]] = {
    "filtered": lambda row: row.refused in ("filter", "text_not_kept"),
    "truncated": lambda row: row.truncated and row.counts,
}


class Change(Estimate, frozen=True, kw_only=True):
    """One metric of one model without some of its responses."""

    model: str
    left_out: LeftOut
    responses: int
    """Core responses that were left out; the metric is over the sets in which there is none."""
    metric: str
    before: float | None

    @property
    def size(self) -> float:
        """How far the metric moves."""
        return 0.0 if self.before is None or self.value is None else abs(self.value - self.before)


def changes_without(
    left_out: LeftOut,
    rows: Mapping[str, Sequence[GradedResponse]],
    array: LabelledSet,
    estimates: MetricEstimates,
) -> list[Change]:
    """Compute the headline metrics without filtered, or without truncated responses, for the
    models that have any.

    Args:
        left_out: which responses.
        rows: every response with its grades, by model.
        array: the same grades, as `grades.to_array` gives them.
        estimates: of all responses.
    """
    removed: dict[str, list[GradedResponse]] = {}
    for model, rows_of_model in rows.items():
        core = [row for row in rows_of_model if row.variant in CORE_VARIANTS]
        if matching := [row for row in core if _IS_LEFT_OUT[left_out](row)]:
            removed[model] = matching
    if not removed:
        return []
    grades = Grades(_without(array, removed))
    ratios = {metric: METRICS[metric].of_sets(grades) for metric in SENSITIVE}
    return [
        Change(
            model=model,
            left_out=left_out,
            responses=len(removed[model]),
            metric=metric,
            before=estimates.overall[model, metric].value,
            value=now.value,
            n=now.n,
            interval=now.interval,
            method=now.method,
        )
        for metric, of_models in estimates_of(ratios).items()
        for model, now in zip(removed, of_models, strict=True)
    ]


def _without(grades: LabelledSet, removed: Mapping[str, Sequence[GradedResponse]]) -> LabelledSet:
    """Return the core grades of some models, with those of some responses undefined."""
    array = grades.sel(model=list(removed), variant=list(CORE_VARIANTS))
    indices = [
        {name: index for index, name in enumerate(array.labels[dim])}
        for dim in array.helpfulness.dims
    ]
    for rows in removed.values():
        for row in rows:
            key = (row.model, row.set_id, row.variant, row.epoch)
            at = tuple(index[part] for index, part in zip(indices, key, strict=True))
            array.helpfulness.values[at] = np.nan
            array.harm_severity.values[at] = np.nan
    return array
