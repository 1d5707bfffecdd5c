"""How people judge a dataset: the paper's Table 3, which prompt-sets to drop, and whether people
repeat themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.annotation.answers import EVERYONE, Answers, answer_of
from opensafeintent.annotation.labels import QUALITY_QUESTIONS, UNSURE, Answer, both_times
from opensafeintent.statistics.agreement import RatingCounts
from opensafeintent.statistics.intervals import RESAMPLES, SEED
from opensafeintent.statistics.samples import Sample, SampleEstimate

_YES: dict[Answer, float] = {"yes": 1.0, "no": 0.0, "good": 1.0, "poor": 0.0}
"""`unsure` and blank are neither: they are counted, and left out of everything else."""


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


def dataset_quality(answers: Answers, *, count: int = RESAMPLES, seed: int = SEED) -> Quality:
    """Return the yes rate, AC1, percent agreement and alpha of each question, over prompt-sets.

    The yes rate is the share of `yes` (for overall quality of `good`) among all answers of all
    annotators, as in the paper.

    Args:
        answers: of kind `dataset_quality`.
        count: number of resamples of prompt-sets.
        seed: of the resampling.
    """
    sample = Sample(answers.items, count=count, seed=seed)
    return Quality(
        annotators=answers.returned(),
        sets=len(answers.items),
        questions=tuple(_question(answers, question, sample) for question in QUALITY_QUESTIONS),
        drop=_drop(answers),
    )


def _question(answers: Answers, question: str, sample: Sample) -> Question:
    ratings = answers.array(answer_of(_YES, question))
    counts = RatingCounts.of(ratings, (0.0, 1.0))
    undefined = answers.undefined()
    yes = counts.counts[:, 1]
    return Question(
        question=question,
        yes=int(yes.sum()),
        no=int(counts.counts[:, 0].sum()),
        unsure=answers.count(question, UNSURE),
        blank=answers.count(question, None),
        sets_twice=int((counts.twice).sum()),
        yes_rate=sample.ratio(yes, counts.raters, "share"),
        ac1=sample.gwet(counts, "identity", undefined),
        percent_agreement=sample.mean(counts.pairwise(), "share", undefined=undefined),
        alpha=sample.alpha(counts, "nominal", undefined),
    )


def _drop(answers: Answers) -> tuple[Dropped, ...]:
    """Return the sets that every annotator who answered marks poor (paper, stage 7); one that
    nobody answered stays.
    """
    good = answers.array(answer_of(_YES, "overall_quality"))
    return tuple(
        Dropped(id=item.id, poor=int((row == 0).sum()), annotators=len(answers.of(item)))
        for item, row in zip(answers.items, good, strict=True)
        if (row == 0).any() and not (row == 1).any()
    )


# Self-consistency
# ------------------------------------------------------------------------------


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


def self_consistency(answers: Answers) -> tuple[Consistency, ...]:
    """Return how often an annotator gave the same answer to a question twice: of all, by annotator,
    and by question.

    A question counts where it was answered both times; `unsure` is no answer. A second showing
    whose first one was not returned has nothing to be compared with. Empty where nothing was shown
    twice.
    """
    pairs = [
        (annotator, *pair)
        for (item, annotator), again in answers.repeats.items()
        for first in (answers.first.get((item, annotator)),)
        for pair in both_times(first.label if first else None, again.label)
    ]
    if not pairs:
        return ()
    questions = sorted({question for _, question, *_ in pairs})
    return (
        _consistency(answers.kind, EVERYONE, EVERYONE, pairs),
        *(
            _consistency(answers.kind, name, EVERYONE, [pair for pair in pairs if pair[0] == name])
            for name in answers.annotators
        ),
        *(
            _consistency(answers.kind, EVERYONE, name, [pair for pair in pairs if pair[1] == name])
            for name in questions
        ),
    )


def _consistency(
    kind: str, annotator: str, question: str, pairs: Sequence[tuple[str, str, Answer, Answer]]
) -> Consistency:
    same = sum(first == second for *_, first, second in pairs)
    distances = [
        abs(first - second)
        for *_, first, second in pairs
        if isinstance(first, int) and isinstance(second, int)
    ]
    return Consistency(
        kind=kind,
        annotator=annotator,
        question=question,
        pairs=len(pairs),
        same=same,
        share=same / len(pairs) if pairs else None,
        difference=sum(distances) / len(distances) if distances else None,
    )
