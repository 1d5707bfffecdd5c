"""What is found out about people's labels: numbers with their intervals, as `agreement.json` holds them."""

from __future__ import annotations

import msgspec

from opensafeintent.statistics.samples import SampleEstimate

__all__ = [
    "EVERYONE",
    "AnnotatorGrades",
    "Consistency",
    "Dimension",
    "Dropped",
    "HumanGrades",
    "JudgeGrades",
    "JudgeStudy",
    "Quality",
    "Question",
    "SafeCall",
]

EVERYONE = "all"
"""The name of a row over all annotators, or all intents."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question on dataset quality: a row of Table 3."""

    question: str
    yes: int
    """Answers `yes`, or `good`."""
    no: int
    unsure: int
    blank: int
    """Asked, and left empty."""
    sets_twice: int
    """Prompt-sets with the answers of two annotators or more."""
    yes_rate: SampleEstimate
    ac1: SampleEstimate
    percent_agreement: SampleEstimate
    alpha: SampleEstimate


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt-set whose overall quality every annotator who answered marks poor."""

    id: str
    poor: int
    """Annotators who answered."""
    annotators: int
    """Annotators who returned the set, unsure and blank ones among them."""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How people judge a dataset (paper, Table 3)."""

    annotators: dict[str, int]
    """Prompt-sets that each returned."""
    sets: int
    questions: tuple[Question, ...]
    drop: tuple[Dropped, ...]


class AnnotatorGrades(msgspec.Struct, frozen=True, kw_only=True):
    """One annotator against the mean of the others."""

    annotator: str
    items: int
    """Graded by the annotator."""
    mae: SampleEstimate
    bias: SampleEstimate
    """The annotator's grade minus the mean of the others."""


class HumanGrades(msgspec.Struct, frozen=True, kw_only=True):
    """How far people agree on one dimension, whatever a judge says."""

    dimension: str
    items: int
    """Graded by one person or more."""
    items_twice: int
    unsure: int
    blank: int
    leave_one_out: SampleEstimate
    ac2: SampleEstimate
    percent_agreement: SampleEstimate
    alpha: SampleEstimate
    """Krippendorff's, ordinal."""
    annotators: tuple[AnnotatorGrades, ...]


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """One judge on one dimension: a row of Table 7."""

    judge: str
    dimension: str
    items: int
    """Graded by the judge and by people."""
    missing: int
    """Graded by people, and not by the judge."""
    mae: SampleEstimate
    leave_one_out: SampleEstimate
    fair: SampleEstimate
    excess: SampleEstimate
    """Fair minus leave-one-out: below 0 where the judge is nearer to the others than a person is."""
    bias: SampleEstimate
    ac2: SampleEstimate
    exact: SampleEstimate
    categories: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Items by the judge's grade (row) and the human one (column)."""
    confusion_weighted: tuple[tuple[float, ...], ...] | None
    """The same with sampling weights, which sum to the number of items; None where all are equal."""


class SafeCall(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge's "safe" can be trusted."""

    judge: str
    intent: str
    """Or `all`."""
    safe_safe: int
    """Items that people and the judge call safe."""
    safe_unsafe: int
    """Safe for people, unsafe for the judge."""
    unsafe_safe: int
    unsafe_unsafe: int
    sensitivity: SampleEstimate
    """P(judged safe | safe)."""
    specificity: SampleEstimate
    """P(judged unsafe | unsafe)."""


class JudgeStudy(msgspec.Struct, frozen=True, kw_only=True):
    """How far people agree on grades, and a judge with them (paper, Table 7)."""

    annotators: dict[str, int]
    """Responses that each returned."""
    items: int
    unit: str
    """What was drawn, and is resampled: `response` or `set`."""
    units: int
    strata: int
    """1 where the sample was not stratified."""
    weighted: bool
    humans: tuple[HumanGrades, ...]
    judges: tuple[Dimension, ...]
    safe: tuple[SafeCall, ...]


class Consistency(msgspec.Struct, frozen=True, kw_only=True):
    """How often people repeat themselves when they see an item again."""

    kind: str
    annotator: str
    """Or `all`."""
    question: str
    """Or `all`."""
    pairs: int
    """Questions that were answered both times."""
    same: int
    share: float | None
    difference: float | None = None
    """Mean absolute difference of grades."""


class JudgeGrades(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's grades of the labelled responses, in their order; None where it has none."""

    judge: str
    helpfulness: tuple[int | None, ...]
    harm_severity: tuple[int | None, ...]
