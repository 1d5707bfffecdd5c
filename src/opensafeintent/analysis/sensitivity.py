"""Results with and without the responses that a provider's filter took or the token limit cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from opensafeintent.analysis.groups import Group
from opensafeintent.grades import GradeRow
from opensafeintent.metrics import METRICS, Grades
from opensafeintent.statistics import Estimate, estimate
from opensafeintent.taxonomy import CORE_VARIANTS

if TYPE_CHECKING:
    from opensafeintent.labelled import LabelledSet

__all__ = ["SENSITIVE", "Change", "LeftOut", "changes"]

LeftOut = Literal["filtered", "truncated"]

SENSITIVE = ("triplet_safety", "mean_utility", "mean_safety", "worst_case_utility")
"""Metrics that are computed again; all of them need core responses only."""

_IS: dict[LeftOut, Callable[[GradeRow], bool]] = {
    "filtered": lambda row: row.refused == "filter",
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


def changes(group: Group) -> list[Change]:
    """Compute the headline metrics without filtered, and without truncated responses, for the models that have any."""
    return [change for left_out in _IS for change in _without(group, left_out)]


def _without(group: Group, left_out: LeftOut) -> list[Change]:
    gone = {
        model: [row for row in rows if row.variant in CORE_VARIANTS and _IS[left_out](row)]
        for model, rows in group.rows.items()
        if getattr(group.coverage[model], left_out)
    }
    models = [model for model in gone if gone[model]]
    if not models:
        return []
    grades = Grades(_taken_out(group, {model: gone[model] for model in models}))
    found: list[Change] = []
    for metric in SENSITIVE:
        ratio = METRICS[metric].ratio(grades)
        got = estimate(ratio.numerator.values, ratio.denominator.values, group.numbers.resamples)
        for model, now in zip(models, got.records(), strict=True):
            found.append(
                Change(
                    model=model,
                    left_out=left_out,
                    responses=len(gone[model]),
                    metric=metric,
                    before=group.numbers.estimates[metric][group.models.index(model)].value,
                    **msgspec.structs.asdict(now),
                )
            )
    return found


def _taken_out(group: Group, gone: Mapping[str, Sequence[GradeRow]]) -> LabelledSet:
    """Return the core grades of some models, with those of some responses undefined."""
    array = group.array.sel(model=list(gone), variant=list(CORE_VARIANTS)).copy()
    places = [{name: at for at, name in enumerate(array.labels[dim])} for dim in array.helpfulness.dims]
    for rows in gone.values():
        for row in rows:
            key = (row.model, row.set_id, row.variant, row.epoch)
            at = tuple(place[part] for place, part in zip(places, key, strict=True))
            array.helpfulness.values[at] = np.nan
            array.harm_severity.values[at] = np.nan
    return array
