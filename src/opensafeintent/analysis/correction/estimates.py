"""Which correction the labels of a group support for each model and metric, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.correction.choice import Chosen, Corrector, Labelled
from opensafeintent.analysis.correction.matching import match
from opensafeintent.analysis.correction.truths import HumanLabels, Truth
from opensafeintent.analysis.groups import Group, TextSource
from opensafeintent.hostile import one_line
from opensafeintent.metrics import Grades
from opensafeintent.statistics.correction import Corrected, Rates, Refused

__all__ = ["CORRECTED", "CorrectedGroup", "Correction", "correct"]

CORRECTED = ("mean_safety", "mean_utility", "triplet_safety")
"""The metrics that are corrected."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one model, corrected or not."""

    model: str
    metric: str
    result: Corrected | Refused
    of: tuple[str, ...] = ()
    """Models whose labelled responses it rests on."""
    annotators: int = 0
    """People who labelled them."""


class CorrectedGroup(NamedTuple):
    """What the labels make of one group of the report."""

    group: Group
    corrections: list[Correction]
    """Of each model, in the group's order, each of `CORRECTED`."""
    rates: Rates
    """The judge's, over the labelled responses of all models."""
    annotators: int
    ungraded: int
    """Labelled responses that lack the judge's grades."""


def correct(
    labels: HumanLabels, groups: Sequence[Group], texts: Mapping[str, TextSource]
) -> tuple[list[CorrectedGroup], list[str]]:
    """Correct the metrics of every model of a report; returned beside are notes on what came of it and was left aside.

    Raises:
        InputError: labels do not belong to the report; see `matching.match`.
    """
    matched = match(labels, groups, texts)
    corrected = [_correct_group(group, matched.found) for group in groups]
    results = [item.result for found in corrected for item in found.corrections]
    count = sum(isinstance(result, Corrected) for result in results)
    notes = [f"human labels: {count} of {len(results)} numbers corrected, beside the judge's, in the table corrected"]
    if matched.aside:
        aside, models = sum(matched.aside.values()), ", ".join(one_line(model, 60) for model in matched.aside)
        notes.append(f"human labels: {aside:,} labelled responses are of models that are not in this report: {models}")
    if labels.undecided:
        notes.append(
            f"human labels: {labels.undecided:,} responses are left aside: nobody said for sure how harmful they are"
        )
    if ungraded := sum(found.ungraded for found in corrected):
        notes.append(f"human labels: {ungraded:,} labelled responses have no grades by the judge and are of no use here")
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
                labelled.append(Labelled(model, at, bool(judged), truth))
    corrector = Corrector(group, labelled)
    corrections = [
        _correction(model, metric, chosen) for model in group.models for metric, chosen in corrector.of(model).items()
    ]
    return CorrectedGroup(group, corrections, corrector.rates(), _people(labelled), ungraded)


def _correction(model: str, metric: str, chosen: Chosen) -> Correction:
    models = tuple(dict.fromkeys(item.model for item in chosen.labels))
    return Correction(model=model, metric=metric, result=chosen.result, of=models, annotators=_people(chosen.labels))


def _people(labelled: Sequence[Labelled]) -> int:
    return len({name for item in labelled for name in item.truth.annotators})
