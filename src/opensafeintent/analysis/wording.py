"""What the flips of each model are made of: from two epochs on, answers to one wording can be held against one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.agreement import noise_of, noise_that_counts
from opensafeintent.analysis.numbers import Numbers
from opensafeintent.evaluation.run import Regrade
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import Grades
from opensafeintent.statistics import Estimate, Resamples, estimate, rounded
from opensafeintent.statistics.intervals import Floats
from opensafeintent.statistics.wording import disagreement, permutation_p
from opensafeintent.taxonomy import is_dual_use

__all__ = ["Wording", "WordingUnknown", "epochs_that_tell", "wordings_of"]

WordingUnknown = Literal["no wordings", "one epoch", "temperature 0", "epochs never differ"]
"""Why nothing is known: fewer than two graded dual-use wordings; fewer than two complete epochs; answers that do not vary."""

_NEEDED = ((260, 2), (110, 3), (90, 4), (70, 6), (50, 10))
"""Prompt-sets, and the epochs that give the share to about ±.10 there (benchmarks/wording.py)."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How often the answers of one model to a set's dual-use wordings disagree on whether they are safe, and why."""

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
    share: Estimate
    """`wording_share`: what part of the disagreement between wordings the excess is."""
    p: float | None
    """Of "the wording makes no difference", one-sided, by permutation."""
    judge_flips_dual_use: Estimate | None = None
    """How often the panel, or the only judge, changed its verdict on "safe" when it was asked again about an answer of this
    model to a dual-use wording, which is part of `within`; None where nothing was graded again. `Noise.safe_flips` is the
    same of all models and variants."""


def epochs_that_tell(sets: int) -> int | None:
    """Return how many epochs give the share to about ±.10 on so many prompt-sets; None where no number of them would."""
    return next((epochs for least, epochs in _NEEDED if sets >= least), None)


def wordings_of(
    numbers: Numbers,
    array: LabelledSet,
    temperatures: Mapping[str, float | None],
    regrades: Mapping[str, Sequence[Regrade]],
) -> list[Wording]:
    """Return what the flips of each model are made of, in the order of the array.

    Args:
        numbers: of the models.
        array: their grades.
        temperatures: at which each model was sampled, where that is known.
        regrades: by model, responses that were graded twice.
    """
    grades = Grades(array)
    safety = grades.over_wordings(grades.safety).transpose("model", "prompt_set", "variant", "epoch").values
    complete = grades.wordings_complete.transpose("model", "prompt_set", "epoch").values
    found = []
    for index, model in enumerate(array.labels["model"]):
        epochs = complete[index].sum(axis=1)
        there = ~np.isnan(safety[index]).all(axis=2)
        safe = np.where(there, np.nansum(safety[index], axis=2), np.nan)
        unknown = _unknown(safe, epochs, temperatures.get(model))
        between, within, excess, share = _estimates(safe, epochs, numbers.resamples, known=unknown is None)
        p = permutation_p(safe, epochs) if unknown is None else None
        found.append(
            Wording(
                model=model,
                unknown=unknown,
                epochs=int(epochs.max(initial=0)),
                flip=numbers.estimates["safety_flip"][index],
                between=between,
                within=within,
                excess=excess,
                share=share,
                p=None if p is None else rounded(p),
                judge_flips_dual_use=_judge_flips(regrades.get(model, ())),
            )
        )
    return found


def _unknown(safe: Floats, epochs: NDArray[np.int64], temperature: float | None) -> WordingUnknown | None:
    if not (epochs > 0).any():
        return "no wordings"
    if not (epochs > 1).any():
        return "one epoch"
    if temperature == 0:
        return "temperature 0"
    repeated = epochs > 1
    varied = (safe > 0) & (safe < epochs[:, None])
    return None if varied[repeated].any() else "epochs never differ"


def _estimates(safe: Floats, epochs: NDArray[np.int64], resamples: Resamples, *, known: bool) -> list[Estimate]:
    """Return the estimates of B, W, B − W, and ΣX / ΣB; undefined where they are not known."""
    if not known:
        return [Estimate(value=None, n=0)] * 4
    found = disagreement(safe, epochs)
    counted = ~np.isnan(found.between)
    ones = counted.astype(np.float64)
    between, within, excess = (np.where(counted, part, 0.0) for part in (found.between, found.within, found.excess))
    tops, bottoms = np.stack([between, within, excess, excess]), np.stack([ones, ones, ones, between])
    return [_holding_its_value(found) for found in estimate(tops, bottoms, resamples).records()]


def _holding_its_value(found: Estimate) -> Estimate:
    """Return an estimate whose interval holds it: no truth is below 0, and an unbiased estimate may be."""
    if found.value is None or found.interval is None:
        return found
    low, high = found.interval
    value = rounded(found.value)
    return msgspec.structs.replace(found, interval=(min(low, value), max(high, value)))


def _judge_flips(regrades: Sequence[Regrade]) -> Estimate | None:
    noise = noise_of(item for item in regrades if is_dual_use(item.variant))
    return noise_that_counts(noise).safe_flips if noise else None
