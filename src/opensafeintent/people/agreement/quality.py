"""How people judge a dataset: the paper's Table 3, and which prompt-sets to drop."""

from __future__ import annotations

from opensafeintent.people.agreement.gathering import Answers, answer_of
from opensafeintent.people.agreement.records import Dropped, Quality, Question
from opensafeintent.people.labels import QUALITY_QUESTIONS, UNSURE, Answer
from opensafeintent.statistics.agreement import RatingCounts
from opensafeintent.statistics.intervals import RESAMPLES, SEED
from opensafeintent.statistics.samples import Sample

__all__ = ["dataset_quality"]

_YES: dict[Answer, float] = {"yes": 1.0, "no": 0.0, "good": 1.0, "poor": 0.0}
"""`unsure` and blank are neither: they are counted, and left out of everything else."""


def dataset_quality(answers: Answers, *, count: int = RESAMPLES, seed: int = SEED) -> Quality:
    """Return the yes rate, AC1, percent agreement and alpha of each question, over prompt-sets.

    The yes rate is the share of `yes` (for overall quality of `good`) among all answers of all annotators, as in the paper.

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
    """Return the sets that every annotator who answered marks poor (paper, stage 7); one that nobody answered stays."""
    good = answers.array(answer_of(_YES, "overall_quality"))
    return tuple(
        Dropped(id=item.id, poor=int((row == 0).sum()), annotators=len(answers.of(item)))
        for item, row in zip(answers.items, good, strict=True)
        if (row == 0).any() and not (row == 1).any()
    )
