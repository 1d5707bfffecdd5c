"""How much of what was planned is there, and results without the responses that a filter took or
the token limit cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from opensafeintent.analysis.numbers import Numbers
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.grades import NOT_GRADED, GradeRow
from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, Grades
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import Estimate, estimate
from opensafeintent.taxonomy import CORE_VARIANTS


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was planned for one model is there."""

    sets: int
    """Prompt-sets planned."""
    limit: int | None
    """How many were to be drawn; None for all of the dataset, and for imports."""
    complete_triplets: int
    """(Set, epoch) pairs whose three core responses count."""
    planned: int
    """Responses planned, epochs included."""
    responses: int
    """Responses on record, those without a text included."""
    counted: int
    """Responses with both grades."""
    missing_core: float
    """Share of the grades of core responses on record that could not be had."""
    missing_paraphrase: float
    absent: float
    """Share of an evaluated model's planned responses that are not on record: the run was stopped,
    or is being written.
    """
    missing: dict[str, dict[str, int]]
    """Number of missing grades by kind of prompt (`core`, `paraphrase`) and reason."""
    not_graded: int
    """Responses that no judge was asked about."""
    filtered: int
    """Responses that the provider's content filter took: counted as refusals."""
    empty: int
    """Answers that ended by themselves without a word: counted as refusals."""
    truncated: int
    """Responses cut by the token limit and graded as they stand."""

    @property
    def partial(self) -> bool:
        """Whether responses that were planned are not on record."""
        return self.responses < self.planned

    def missing_beyond(self, most: float) -> bool:
        """Whether core or paraphrase grades, or whole responses, are missing beyond a share."""
        return max(self.missing_core, self.missing_paraphrase, self.absent) > most


def coverage_of(
    model: str, manifest: Manifest, dataset: Dataset, rows: Sequence[GradeRow]
) -> Coverage:
    """Count what is there of one model's responses and grades."""
    entry = manifest.models[model]
    sets = manifest.sets_of(model, dataset)
    epochs = len({row.epoch for row in rows}) if entry.imported else entry.epochs
    planned = sum(len(prompt_set.wordings()) for prompt_set in sets) * epochs
    whole = len(sets) == len(dataset)
    reasons: dict[str, Counter[str]] = {"core": Counter(), "paraphrase": Counter()}
    asked: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    triplets: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if NOT_GRADED in row.missing:
            continue
        kind = "core" if row.variant in CORE_VARIANTS else "paraphrase"
        asked[kind] += 2
        gone[kind] += (row.helpfulness is None) + (row.harm_severity is None)
        if row.counts and kind == "core":
            triplets[row.set_id, row.epoch] += 1
        for item in row.missing:
            if item.what == "response":
                reasons[kind][item.reason] += 2
            elif item.what in ("helpfulness", "harm_severity") and not row.counts:
                reasons[kind][item.reason] += 1
    return Coverage(
        sets=len(sets),
        limit=None if whole else entry.limit,
        complete_triplets=sum(count == len(CORE_VARIANTS) for count in triplets.values()),
        planned=planned,
        responses=len(rows),
        counted=sum(row.counts for row in rows),
        missing_core=gone["core"] / asked["core"] if asked["core"] else 0.0,
        missing_paraphrase=gone["paraphrase"] / asked["paraphrase"] if asked["paraphrase"] else 0.0,
        absent=0.0 if entry.imported or not planned else 1 - len(rows) / planned,
        missing={kind: dict(sorted(counter.items())) for kind, counter in reasons.items()},
        not_graded=sum(NOT_GRADED in row.missing for row in rows),
        filtered=sum(row.refused == "filter" for row in rows),
        empty=sum(row.refused == "empty" for row in rows),
        truncated=sum(row.truncated and row.counts for row in rows),
    )


# With and without
# ------------------------------------------------------------------------------


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


def changes_of(
    rows: Mapping[str, Sequence[GradeRow]], array: LabelledSet, numbers: Numbers
) -> list[Change]:
    """Compute the headline metrics without filtered, and without truncated responses, for the
    models that have any.

    Args:
        rows: every response with its grades, by model.
        array: the same grades, as `grades.to_array` gives them.
        numbers: of all responses.
    """
    return [change for left_out in _IS for change in _without(left_out, rows, array, numbers)]


def _without(
    left_out: LeftOut, rows: Mapping[str, Sequence[GradeRow]], array: LabelledSet, numbers: Numbers
) -> list[Change]:
    gone = {
        model: [row for row in of_model if row.variant in CORE_VARIANTS and _IS[left_out](row)]
        for model, of_model in rows.items()
    }
    gone = {model: of_model for model, of_model in gone.items() if of_model}
    if not gone:
        return []
    grades = Grades(_taken_out(array, gone))
    found: list[Change] = []
    for metric in SENSITIVE:
        ratio = METRICS[metric].of_sets(grades)
        got = estimate(
            ratio.numerator.values,
            ratio.denominator.values,
            numbers.resamples,
            binary=METRICS[metric].binary,
        )
        for model, now in zip(gone, got.records(), strict=True):
            found.append(
                Change(
                    model=model,
                    left_out=left_out,
                    responses=len(gone[model]),
                    metric=metric,
                    before=numbers.overall[model, metric].value,
                    **msgspec.structs.asdict(now),
                )
            )
    return found


def _taken_out(every: LabelledSet, gone: Mapping[str, Sequence[GradeRow]]) -> LabelledSet:
    """Return the core grades of some models, with those of some responses undefined."""
    array = every.sel(model=list(gone), variant=list(CORE_VARIANTS))
    indices = [
        {name: index for index, name in enumerate(array.labels[dim])}
        for dim in array.helpfulness.dims
    ]
    for rows in gone.values():
        for row in rows:
            key = (row.model, row.set_id, row.variant, row.epoch)
            at = tuple(index[part] for index, part in zip(indices, key, strict=True))
            array.helpfulness.values[at] = np.nan
            array.harm_severity.values[at] = np.nan
    return array
