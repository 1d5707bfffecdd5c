"""Components of each model's flips: from two epochs on, answers to one wording can be compared with
one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.estimates import MetricEstimates
from opensafeintent.equations import Grades
from opensafeintent.labelled import LabelledSet
from opensafeintent.statistics import Estimate, estimate
from opensafeintent.statistics.disagreement import disagreement, excess_span
from opensafeintent.statistics.intervals import Floats

WordingUnknown = Literal["no wordings", "one epoch", "temperature 0"]
"""Why nothing is known: fewer than two graded dual-use wordings; fewer than two complete epochs;
answers that were not to vary.
"""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How often the answers of one model to a set's dual-use wordings disagree on whether they are
    safe, and why.
    """

    model: str
    unknown: WordingUnknown | None
    """The reason for missing numbers; None if there are numbers."""
    epochs: int
    """Complete epochs of the set that has most."""
    flip: Estimate
    """`safety_flip`: sets in which some wordings are safe and others not."""
    between: Estimate
    """How often the answers to two wordings disagree."""
    within: Estimate
    """How often two answers to the same wording disagree."""
    excess: Estimate
    """`paraphrase_effect`: the mean of between − within."""


def wordings_of(
    estimates: MetricEstimates,
    array: LabelledSet,
    temperatures: Mapping[str, float | None],
) -> list[Wording]:
    """Return the components of each model's flips, in the order of the array.

    Args:
        estimates: of the models.
        array: their grades.
        temperatures: at which each model was sampled, if they are known.
    """
    grades = Grades(array)
    safety = (
        grades.over_wordings(grades.safety)
        .transpose("model", "prompt_set", "variant", "epoch")
        .values
    )
    complete = grades.wordings_complete.transpose("model", "prompt_set", "epoch").values
    rows = []
    for index, model in enumerate(array.labels["model"]):
        epochs = complete[index].sum(axis=1)
        graded = ~np.isnan(safety[index]).all(axis=2)
        safe = np.where(graded, np.nansum(safety[index], axis=2), np.nan)
        unknown = _unknown(epochs, temperatures.get(model))
        between = within = excess = Estimate(value=None, n=0)
        if not unknown:
            between, within, excess = _estimates(safe, epochs)
        rows.append(
            Wording(
                model=model,
                unknown=unknown,
                epochs=int(epochs.max(initial=0)),
                flip=estimates.by_metric["safety_flip"][index],
                between=between,
                within=within,
                excess=excess,
            )
        )
    return rows


def _unknown(epochs: NDArray[np.int64], temperature: float | None) -> WordingUnknown | None:
    if not (epochs > 0).any():
        return "no wordings"
    if not (epochs > 1).any():
        return "one epoch"
    return "temperature 0" if temperature == 0 else None


def _estimates(safe: Floats, epochs: NDArray[np.int64]) -> list[Estimate]:
    """Return the estimates of B, W and B − W, which is unbiased and may be negative."""
    shares = disagreement(safe, epochs)
    counted = ~np.isnan(shares.between)
    tops = np.stack(
        [np.nan_to_num(share) for share in (shares.between, shares.within, shares.excess)]
    )
    spans = np.array([(0.0, 1.0), (0.0, 1.0), excess_span(safe[counted], epochs[counted])])
    return estimate(tops, np.tile(counted.astype(np.float64), (3, 1)), span=spans).records()
