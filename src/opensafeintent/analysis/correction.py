"""A report's numbers corrected by what people said of its responses (docs/correction.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group, TextSource
from opensafeintent.analysis.labels import HumanLabels, Truth, match
from opensafeintent.hostile import one_line
from opensafeintent.metrics import Grades
from opensafeintent.statistics.correction import (
    Corrected,
    LabelledUnits,
    Refused,
    prediction_powered,
)
from opensafeintent.statistics.intervals import Floats
from opensafeintent.taxonomy import CORE_VARIANTS

CORRECTED = ("triplet_safety", "mean_utility")
"""The metrics that are corrected."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one model, corrected or not."""

    model: str
    metric: str
    result: Corrected | Refused
    annotators: int = 0
    """People who labelled them."""


class CorrectedGroup(NamedTuple):
    """What the labels make of one group of the report."""

    group: Group
    corrections: list[Correction]
    """Of each model, in the group's order, each of `CORRECTED`."""
    ungraded: int
    """Labelled responses that lack the judge's grades."""


def correct(
    labels: HumanLabels, groups: Sequence[Group], texts: Mapping[str, TextSource]
) -> tuple[list[CorrectedGroup], list[str]]:
    """Correct the metrics of every model of a report; returned beside are notes on what came of it
    and was left aside.

    Raises:
        InputError: labels do not belong to the report; see `matching.match`.
    """
    matched = match(labels, groups, texts)
    corrected = [_correct_group(group, matched.found) for group in groups]
    results = [item.result for found in corrected for item in found.corrections]
    count = sum(isinstance(result, Corrected) for result in results)
    notes = [
        f"human labels: {count} of {len(results)} numbers corrected, beside the judge's, in the"
        " table corrected"
    ]
    if matched.aside:
        aside, models = (
            sum(matched.aside.values()),
            ", ".join(one_line(model, 60) for model in matched.aside),
        )
        notes.append(
            f"human labels: {aside:,} labelled responses are of models that are not in this report:"
            f" {models}"
        )
    if labels.undecided:
        notes.append(
            f"human labels: {labels.undecided:,} responses are left aside: nobody said for sure how"
            " harmful they are"
        )
    if ungraded := sum(found.ungraded for found in corrected):
        notes.append(
            f"human labels: {ungraded:,} labelled responses have no grades by the judge and are of"
            " no use here"
        )
    return corrected, notes


def _correct_group(group: Group, found: Mapping[str, Sequence[Truth]]) -> CorrectedGroup:
    safety = Grades(group.array).safety.transpose("model", "prompt_set", "variant", "epoch").values
    places = [
        {name: place for place, name in enumerate(group.array[dim].values.tolist())}
        for dim in ("prompt_set", "variant", "epoch")
    ]
    labelled: list[Labelled] = []
    ungraded = 0
    for number, model in enumerate(group.models):
        for truth in found.get(model, ()):
            item = truth.item
            at = (places[0][item.id], places[1][item.variant], places[2][item.epoch])
            judged = safety[(number, *at)]
            ungraded += bool(np.isnan(judged))
            if not np.isnan(judged):
                labelled.append(Labelled(model, at, truth))
    corrections = [
        Correction(
            model=model, metric=metric, result=chosen.result, annotators=_people(chosen.labels)
        )
        for model in group.models
        for metric, chosen in _of_model(
            group, model, [item for item in labelled if item.model == model]
        ).items()
    ]
    return CorrectedGroup(group, corrections, ungraded)


def _of_model(group: Group, model: str, labelled: Sequence[Labelled]) -> dict[str, Chosen]:
    """Correct Triplet Safety by whole prompt-sets, and Mean Utility by responses, of one model."""
    triplets = _Triplets(group, model, labelled)
    return {
        "triplet_safety": _triplet_by_own(triplets),
        "mean_utility": _mean_by_own(triplets, triplets.utility, lambda truth: truth.utility),
    }


def _people(labelled: Sequence[Labelled]) -> int:
    return len({name for item in labelled for name in item.truth.annotators})


# The choice
# ------------------------------------------------------------------------------


class Labelled(NamedTuple):
    """A label at its place in the group's arrays, where the judge has graded the response too."""

    model: str
    at: tuple[int, int, int]
    """Prompt-set, variant, epoch."""
    truth: Truth


class Chosen(NamedTuple):
    """What came out, and the labels that it rests on."""

    result: Corrected | Refused
    labels: Sequence[Labelled] = ()


class _Triplets:
    """One model's triplets by set and epoch, with the labels that there are of them.

    Attributes:
        safety, utility: by the judge; shape (prompt_set, intent, epoch).
        share: what a triplet weighs in its metrics: a set's complete epochs share it; shape
            (prompt_set, epoch).
        own: those of what counts.
    """

    def __init__(self, group: Group, model: str, labelled: Sequence[Labelled]) -> None:
        grades = Grades(group.array.sel(model=model))
        dims = ("prompt_set", "variant", "epoch")
        self.resamples = group.numbers.resamples
        self.safety: Floats = grades.core(grades.safety).transpose(*dims).values
        self.utility: Floats = grades.core(grades.utility).transpose(*dims).values
        complete: NDArray[np.bool_] = np.logical_not(np.isnan(self.safety).any(axis=1))
        self.share: Floats = complete / np.maximum(complete.sum(axis=1, keepdims=True), 1)
        names: list[str] = group.array.variant.values.tolist()
        self._place = {names.index(variant): place for place, variant in enumerate(CORE_VARIANTS)}
        self.own = [
            item
            for item in labelled
            if item.at[1] in self._place and complete[item.at[0], item.at[2]]
        ]

    def of(
        self, labels: Sequence[Labelled], value_of: Callable[[Truth], float | None]
    ) -> tuple[Floats, Floats, list[Labelled]]:
        """Return people's values, their weights, both of shape (prompt_set, intent, epoch), and the
        labels that have one.
        """
        truth, weight = np.full(self.safety.shape, np.nan), np.ones(self.safety.shape)
        used = []
        for item in labels:
            value = value_of(item.truth)
            if value is not None:
                at = (item.at[0], self._place[item.at[1]], item.at[2])
                truth[at], weight[at] = value, item.truth.weight
                used.append(item)
        return truth, weight, used


def _safe(truth: Truth) -> float:
    return float(truth.safe)


def _triplet_by_own(triplets: _Triplets) -> Chosen:
    """Correct Triplet Safety by the whole sets of this model that people labelled."""
    truth, weight, used = triplets.of(
        [item for item in triplets.own if item.truth.unit == "set"], _safe
    )
    whole: NDArray[np.bool_] = np.logical_not(np.isnan(truth).any(axis=1))
    sample = LabelledUnits(
        judged=triplets.safety.prod(axis=1),
        truth=truth.prod(axis=1),
        weight=weight.mean(axis=1),
        share=triplets.share,
    )
    result = prediction_powered(sample, triplets.resamples, units="prompt-sets")
    return Chosen(result, [item for item in used if whole[item.at[0], item.at[2]]])


def _mean_by_own(
    triplets: _Triplets, judged: Floats, value_of: Callable[[Truth], float | None]
) -> Chosen:
    """Correct a mean over responses by this model's own labels.

    Where some were drawn one by one and others by whole sets, the larger sample counts: their
    weights belong to two designs.
    """
    samples = [
        [item for item in triplets.own if item.truth.unit == unit] for unit in ("response", "set")
    ]
    truth, weight, used = triplets.of(max(samples, key=len), value_of)
    complete: NDArray[np.bool_] = triplets.share > 0
    flat = (len(judged), -1)
    sample = LabelledUnits(
        judged=np.where(complete[:, None], judged, np.nan).reshape(flat),
        truth=truth.reshape(flat),
        weight=weight.reshape(flat),
        share=np.repeat(
            triplets.share[:, None] / len(CORE_VARIANTS), len(CORE_VARIANTS), axis=1
        ).reshape(flat),
    )
    return Chosen(prediction_powered(sample, triplets.resamples), used)
