"""Where more calls would narrow an interval most: judges, epochs, wordings or prompt-sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opensafeintent.calls.baselines import contenders
from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.estimates import FEWEST_AVERAGED
from opensafeintent.numbers.metrics import METRICS, Metric, one_epoch_each, split_by_epoch
from opensafeintent.statistics.components import Components, average_components, find_components
from opensafeintent.statistics.intervals import Floats
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE


class MetricComponents(NamedTuple):
    """The components of one primary metric, the mean over the models under test."""

    metric: str
    components: Components


def find_spending(cohort: Cohort) -> list[MetricComponents]:
    """Return the components of each primary metric; none with fewer than ten prompt-sets that count
    for them, if nothing but the variance between prompt-sets is known, or if nothing varies.

    With several judges they are those of the mean over judges.
    """
    judges = cohort.judges
    arrays = [judges.array_by(judge) for judge in judges.panel] or [cohort.array]
    tested = contenders(cohort.models)
    found = []
    for name in cohort.scope.primary:
        values = np.stack([_split(METRICS[name], array.sel(model=tested)) for array in arrays])
        models = [
            components
            for at in range(len(tested))
            if (components := find_components(values[:, at])) and components.sets >= FEWEST_AVERAGED
        ]
        if models:
            found.append(MetricComponents(name, average_components(models)))
    return [item for item in found if item.components.tell_more_than_sets]


def _split(metric: Metric, array: LabelledSet) -> Floats:
    """Return a metric of each set with each of its dual-use wordings, in each epoch; NaN if it does
    not count: shape (model, prompt_set, wording, epoch).
    """
    wordings = sorted(Grades(array).wordings, key=lambda name: name != DUAL_USE)
    values = []
    for wording in wordings:
        of_triplet = [wording if variant == DUAL_USE else variant for variant in CORE_VARIANTS]
        part = array.sel(variant=of_triplet)
        renamed = LabelledSet(
            {name: (part[name].dims, part[name].values) for name in part},
            {**part.labels, "variant": list(CORE_VARIANTS)},
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            grades = Grades(one_epoch_each(renamed))
            top, bottom = split_by_epoch(metric, grades, array.sizes["epoch"])
            values.append(np.where(bottom > 0, top / bottom, np.nan))
    return np.stack(values, axis=2)
