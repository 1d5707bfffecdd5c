"""How far the values of prompt-sets spread in a run: by set, epoch and judge, and between two models."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group
from opensafeintent.grades import GradeRow, to_array
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, Grades

__all__ = ["difference_by_set", "values_by_judge"]

Floats = NDArray[np.float64]


def difference_by_set(group: Group, metric: str, model: str, against: str) -> Floats:
    """Return a metric of one model minus another's, by the grades that count. Shape (prompt_set,), NaN where missing."""
    values = _values(group.array, metric)
    first, second = (values[group.models.index(name)] for name in (model, against))
    return np.asarray(first - second)


def values_by_judge(group: Group, metric: str, model: str) -> Floats:
    """Return a metric of one model by each judge. Shape (prompt_set, epoch, judge), NaN where it is missing."""
    panel = group.judges.panel
    if not panel:
        return _by_epoch(group.array.sel(model=[model]), metric)[:, :, None]
    arrays = (to_array(_graded_by(judge, group.rows[model]), group.dataset.sorted, [model]) for judge in panel)
    return np.stack([_by_epoch(array, metric) for array in arrays], axis=-1)


def _graded_by(judge: str, rows: Sequence[GradeRow]) -> list[GradeRow]:
    return [
        msgspec.structs.replace(row, helpfulness=grades[0], harm_severity=grades[1])
        for row in rows
        for grades in (row.by_judge.get(judge, (None, None)),)
    ]


def _by_epoch(array: LabelledSet, metric: str) -> Floats:
    """Return a metric of the one model of an array. Shape (prompt_set, epoch)."""
    epochs = range(array.sizes["epoch"])
    return np.stack([_values(array.isel(epoch=[epoch]), metric)[0] for epoch in epochs], axis=-1)


def _values(array: LabelledSet, metric: str) -> Floats:
    """Return a metric of each set. Shape (model, prompt_set)."""
    return METRICS[metric].ratio(Grades(array)).by_set.values
