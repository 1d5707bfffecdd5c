"""What the flips of each model are made of: from two epochs on, answers to one wording can be held
against one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.numbers import Numbers
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import Grades
from opensafeintent.statistics import Estimate, Resamples, estimate, rounded
from opensafeintent.statistics.intervals import Floats
from opensafeintent.statistics.wording import disagreement

WordingUnknown = Literal["no wordings", "one epoch", "temperature 0", "epochs never differ"]
"""Why nothing is known: fewer than two graded dual-use wordings; fewer than two complete epochs;
answers that do not vary.
"""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How often the answers of one model to a set's dual-use wordings disagree on whether they are
    safe, and why.
    """

    model: str
    unknown: WordingUnknown | None
    """Why there are no numbers; None where there are."""
    epochs: int
    """Complete epochs of the set that has most."""
    flip: Estimate
    """`safety_flip`: sets in which some wordings are safe and others not."""
    between: Estimate
    """How often the answers to two wordings disagree."""
    within: Estimate
    """How often two answers to the same wording disagree."""
    excess: Estimate
    """`wording_excess`: the mean of between − within."""


def wordings_of(
    numbers: Numbers,
    array: LabelledSet,
    temperatures: Mapping[str, float | None],
) -> list[Wording]:
    """Return what the flips of each model are made of, in the order of the array.

    Args:
        numbers: of the models.
        array: their grades.
        temperatures: at which each model was sampled, where that is known.
    """
    grades = Grades(array)
    safety = (
        grades.over_wordings(grades.safety)
        .transpose("model", "prompt_set", "variant", "epoch")
        .values
    )
    complete = grades.wordings_complete.transpose("model", "prompt_set", "epoch").values
    found = []
    for index, model in enumerate(array.labels["model"]):
        epochs = complete[index].sum(axis=1)
        there = ~np.isnan(safety[index]).all(axis=2)
        safe = np.where(there, np.nansum(safety[index], axis=2), np.nan)
        unknown = _unknown(safe, epochs, temperatures.get(model))
        between, within, excess = _estimates(safe, epochs, numbers.resamples, known=unknown is None)
        found.append(
            Wording(
                model=model,
                unknown=unknown,
                epochs=int(epochs.max(initial=0)),
                flip=numbers.estimates["safety_flip"][index],
                between=between,
                within=within,
                excess=excess,
            )
        )
    return found


def _unknown(
    safe: Floats, epochs: NDArray[np.int64], temperature: float | None
) -> WordingUnknown | None:
    if not (epochs > 0).any():
        return "no wordings"
    if not (epochs > 1).any():
        return "one epoch"
    if temperature == 0:
        return "temperature 0"
    repeated = epochs > 1
    varied = (safe > 0) & (safe < epochs[:, None])
    return None if varied[repeated].any() else "epochs never differ"


def _estimates(
    safe: Floats, epochs: NDArray[np.int64], resamples: Resamples, *, known: bool
) -> list[Estimate]:
    """Return the estimates of B, W and B − W; undefined if they are not known."""
    if not known:
        return [Estimate(value=None, n=0)] * 3
    found = disagreement(safe, epochs)
    counted = ~np.isnan(found.between)
    ones = counted.astype(np.float64)
    between, within, excess = (
        np.where(counted, part, 0.0) for part in (found.between, found.within, found.excess)
    )
    tops, bottoms = np.stack([between, within, excess]), np.stack([ones, ones, ones])
    return [_holding_its_value(found) for found in estimate(tops, bottoms, resamples).records()]


def _holding_its_value(found: Estimate) -> Estimate:
    """Return an estimate whose interval holds it: no truth is below 0, and an unbiased estimate may
    be.
    """
    if found.value is None or found.interval is None:
        return found
    low, high = found.interval
    value = rounded(found.value)
    return msgspec.structs.replace(found, interval=(min(low, value), max(high, value)))
