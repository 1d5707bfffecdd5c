"""A report's numbers corrected by what people said of its responses (docs/correction.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.labels import HumanLabels, Truth, match
from opensafeintent.evaluation.derive import RunTexts
from opensafeintent.hostile import one_line
from opensafeintent.metrics import Grades
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.correction import (
    FEWEST_LABELS,
    Corrected,
    LabelledUnits,
    prediction_powered,
)
from opensafeintent.statistics.intervals import Floats
from opensafeintent.taxonomy import CORE_VARIANTS


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one model, as the judge has it and corrected."""

    group: int
    """Index among the report's groups."""
    model: str
    metric: str
    raw: Estimate
    corrected: Corrected | None
    units: str
    """What is labelled: single responses, or whole prompt-sets."""
    annotators: int
    """People who labelled them."""
    refused: str | None = None
    """Why there is no corrected value."""


class _Label(NamedTuple):
    """A label of a response that the judge has graded too."""

    place: tuple[int, int, int]
    """Prompt-set, intent, epoch."""
    truth: Truth


class _Responses:
    """The core responses of one model that count, and labels of some of them.

    Attributes:
        safety, utility: by the judge; shape (prompt_set, intent, epoch).
        share: the weight of a triplet in its metrics: a set's complete epochs share it; shape
            (prompt_set, epoch).
        labels: those of responses in complete triplets.
        ungraded: labelled responses that lack the judge's grades.
    """

    def __init__(self, group: Group, model: str, truths: Sequence[Truth]) -> None:
        grades = Grades(group.array.sel(model=model))
        dims = ("prompt_set", "variant", "epoch")
        self.model = model
        self.safety: Floats = grades.core(grades.safety).transpose(*dims).values
        self.utility: Floats = grades.core(grades.utility).transpose(*dims).values
        complete: NDArray[np.bool_] = np.logical_not(np.isnan(self.safety).any(axis=1))
        self.share: Floats = complete / np.maximum(complete.sum(axis=1, keepdims=True), 1)
        sets, epochs = (
            {name: place for place, name in enumerate(group.array[dim].values.tolist())}
            for dim in ("prompt_set", "epoch")
        )
        labels = []
        for truth in truths:
            item = truth.item
            if item.variant in CORE_VARIANTS:
                place = sets[item.id], CORE_VARIANTS.index(item.variant), epochs[item.epoch]
                labels.append(_Label(place, truth))
        self.ungraded = sum(bool(np.isnan(self.safety[label.place])) for label in labels)
        self.labels = [label for label in labels if complete[label.place[0], label.place[2]]]

    def filled(self, labels: Sequence[_Label], values: Sequence[float]) -> tuple[Floats, Floats]:
        """Return people's values, NaN without a label, and their weights; shape (prompt_set,
        intent, epoch).
        """
        truth, weight = np.full(self.safety.shape, np.nan), np.ones(self.safety.shape)
        for label, value in zip(labels, values, strict=True):
            truth[label.place] = value
            weight[label.place] = label.truth.drawn.weight
        return truth, weight


def _triplet_safety(responses: _Responses) -> tuple[LabelledUnits, list[_Label]]:
    """Return the triplets, with the labels of whole sets."""
    labels = [label for label in responses.labels if label.truth.drawn.unit == "set"]
    truth, weight = responses.filled(labels, [float(label.truth.safe) for label in labels])
    whole: NDArray[np.bool_] = np.logical_not(np.isnan(truth).any(axis=1))
    units = LabelledUnits(
        judged=responses.safety.prod(axis=1),
        truth=truth.prod(axis=1),
        weight=weight.mean(axis=1),
        share=responses.share,
    )
    return units, [label for label in labels if whole[label.place[0], label.place[2]]]


def _mean_utility(responses: _Responses) -> tuple[LabelledUnits, list[_Label]]:
    """Return the responses with their labels.

    Where some were drawn one by one and others by whole sets, the larger sample counts: their
    weights belong to two designs.
    """
    samples = [
        [label for label in responses.labels if label.truth.drawn.unit == unit]
        for unit in ("response", "set")
    ]
    labels = max(samples, key=len)
    truth, weight = responses.filled(labels, [label.truth.utility for label in labels])
    share = np.repeat(responses.share[:, None] / len(CORE_VARIANTS), len(CORE_VARIANTS), axis=1)
    flat = (len(share), -1)
    units = LabelledUnits(
        judged=np.where(share > 0, responses.utility, np.nan).reshape(flat),
        truth=truth.reshape(flat),
        weight=weight.reshape(flat),
        share=share.reshape(flat),
    )
    return units, [label for label in labels if not isnan(label.truth.utility)]


CORRECTED = {"triplet_safety": _triplet_safety, "mean_utility": _mean_utility}
"""The metrics that are corrected."""
UNITS = {"triplet_safety": "prompt-sets", "mean_utility": "responses"}
"""What is labelled."""


def correct(
    labels: HumanLabels, groups: Sequence[Group], texts: Mapping[str, RunTexts]
) -> tuple[list[Correction], list[str]]:
    """Correct the metrics of every model of a report; returned beside are notes on what came of it
    and was left aside.

    Raises:
        InputError: labels do not belong to the report; see `labels.match`.
    """
    truths, aside = match(labels, groups, texts)
    corrections: list[Correction] = []
    ungraded = 0
    for number, group in enumerate(groups):
        for model in group.numbers.models:
            responses = _Responses(group, model, truths.get(model, ()))
            ungraded += responses.ungraded
            corrections += [_corrected(metric, responses, number, group) for metric in CORRECTED]
    count = sum(item.corrected is not None for item in corrections)
    notes = [
        f"{count} of {len(corrections)} numbers corrected, beside the judge's, in the table"
        " corrected"
    ]
    if aside:
        models = ", ".join(one_line(model, 60) for model in aside)
        notes.append(
            f"{sum(aside.values()):,} labelled responses are of models that are not in this report:"
            f" {models}"
        )
    if labels.undecided:
        notes.append(
            f"{labels.undecided:,} responses are left aside: nobody said for sure how harmful they"
            " are"
        )
    if ungraded:
        notes.append(
            f"{ungraded:,} labelled responses have no grades by the judge and are of no use here"
        )
    return corrections, [f"human labels: {note}" for note in notes]


def _corrected(metric: str, responses: _Responses, number: int, group: Group) -> Correction:
    sample, labels = CORRECTED[metric](responses)
    units, n = UNITS[metric], sample.n
    corrected, refused = None, None
    if n >= FEWEST_LABELS:
        corrected = prediction_powered(sample, group.numbers.resamples)
    else:
        refused = f"needs {FEWEST_LABELS} labelled {units} of this model, has {n or 'none'}"
    return Correction(
        group=number,
        model=responses.model,
        metric=metric,
        raw=group.numbers.overall[responses.model, metric],
        corrected=corrected,
        units=units,
        annotators=len({name for label in labels for name in label.truth.annotators}),
        refused=refused,
    )
