"""Where more calls would narrow an interval most: judges, epochs, wordings or prompt-sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opensafeintent.calls.baselines import contenders
from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.estimates import FEWEST_SETS_AVERAGED
from opensafeintent.numbers.metrics import METRICS, Metric, split_by_epoch, split_epochs_into_models
from opensafeintent.statistics.components import Components, average_components, find_components
from opensafeintent.statistics.intervals import Floats, number_units
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE


class MetricComponents(NamedTuple):
    """The components of one primary metric, the mean over the models under test."""

    metric: str
    components: Components


def find_spending(cohort: Cohort) -> list[MetricComponents]:
    """Return the components of each primary metric; none with fewer than ten prompt-sets, or
    families of them, that count for them, if nothing but the variance between these is known, or if
    nothing varies.

    With several judges they are those of the mean over judges.
    """
    judges = cohort.judges
    arrays = [judges.build_array(judge) for judge in judges.panel] or [cohort.array]
    tested = contenders(cohort.models)
    unit_of, found = cohort.estimates.unit_of, []
    units = number_units([unit_of[set_id] for set_id in arrays[0].labels["prompt_set"]])
    for name in cohort.scope.primary:
        values = np.stack(
            [_split_variance(METRICS[name], array.sel(model=tested)) for array in arrays]
        )
        models = [
            components
            for at in range(len(tested))
            if (components := find_components(values[:, at], units))
            and components.units >= FEWEST_SETS_AVERAGED
        ]
        if models:
            found.append(MetricComponents(name, average_components(models)))
    return [item for item in found if item.components.tell_more_than_sets]


def _split_variance(metric: Metric, array: LabelledSet) -> Floats:
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
            grades = Grades(split_epochs_into_models(renamed))
            top, bottom = split_by_epoch(metric, grades, array.sizes["epoch"])
            values.append(np.where(bottom > 0, top / bottom, np.nan))
    return np.stack(values, axis=2)
