"""How far a judge agrees with people, and people with one another: the paper's Table 7, and whether "safe" can be trusted.

y_ij is the grade of item i by person j, n_i how many people graded it, g_i the judge's grade. A sum over items is weighted by
w_i, one over the probability with which the item was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.errors import InputError
from opensafeintent.people.agreement.gathering import GRADES, Answers, Item, answer_of
from opensafeintent.people.agreement.records import (
    EVERYONE,
    AnnotatorGrades,
    Dimension,
    HumanGrades,
    JudgeGrades,
    JudgeStudy,
    SafeCall,
)
from opensafeintent.people.labels import UNSURE
from opensafeintent.statistics.agreement import RatingCounts
from opensafeintent.statistics.intervals import RESAMPLES, SEED
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import CORE_VARIANTS, is_dual_use

__all__ = ["consensus", "judge_study"]

Floats = NDArray[np.float64]

_WIDEST = 3.0
"""Greatest difference of two grades, on either scale."""


def judge_study(
    answers: Answers, judges: Sequence[JudgeGrades] = (), *, count: int = RESAMPLES, seed: int = SEED
) -> JudgeStudy:
    """Return how far people agree on helpfulness and harm, and how far each judge agrees with them.

    Args:
        answers: of kind `judge_validation`.
        judges: each one's grades, in the order of `answers.items`; without any, people alone are described.
        count: number of resamples.
        seed: of the resampling.

    Raises:
        InputError: labels of one item disagree on how it was sampled.
    """
    sample, unit = _sample(answers, count, seed)
    ratings = {dimension: _ratings(answers, dimension) for dimension in GRADES}
    return JudgeStudy(
        annotators=answers.returned(),
        items=len(answers.items),
        unit=unit,
        units=sample.units,
        strata=sample.strata,
        weighted=sample.weighted,
        humans=tuple(_humans(answers, dimension, ratings[dimension], sample) for dimension in GRADES),
        judges=tuple(
            _dimension(judge.judge, dimension, _numbers(getattr(judge, dimension)), ratings[dimension], sample, answers)
            for judge in judges
            for dimension in GRADES
        ),
        safe=tuple(
            _safe_call(judge.judge, intent, _numbers(judge.harm_severity), ratings["harm_severity"], answers.items, sample)
            for judge in judges
            for intent in (EVERYONE, *CORE_VARIANTS)
        ),
    )


def _sample(answers: Answers, count: int, seed: int) -> tuple[Sample, str]:
    """Return how the items were drawn, and what: single responses or whole sets."""
    drawn = []
    for item in answers.items:
        labels = answers.of(item)
        ways = {(label.unit, label.weight, label.stratum) for label in labels}
        if len(ways) > 1:
            names = ", ".join(label.annotator for label in labels)
            raise InputError(
                f"{item}: the labels of {names} disagree on how it was sampled (unit, weight or stratum): they are of two "
                "exports; give labels of one export"
            )
        drawn.append(ways.pop())
    kinds = {unit for unit, _, _ in drawn}
    if len(kinds) > 1:
        raise InputError("some labels are of a sample of responses, others of whole sets; give labels of one export")
    unit = kinds.pop()
    # a set is drawn for one model and epoch: its responses stay together
    units = [(item.model, item.id, item.epoch) if unit == "set" else item for item in answers.items]
    strata: dict[object, set[str]] = {}
    for name, (_, _, stratum) in zip(units, drawn, strict=True):
        strata.setdefault(name, set()).add(stratum)
    # a set whose responses name different strata was not drawn from one of them
    mixed = any(len(names) > 1 for names in strata.values())
    weights = [weight for _, weight, _ in drawn]
    return Sample(units, None if mixed else [stratum for _, _, stratum in drawn], weights, count=count, seed=seed), unit


def _ratings(answers: Answers, dimension: str) -> Floats:
    return answers.array(answer_of({grade: float(grade) for grade in GRADES[dimension]}, dimension))


def _numbers(grades: Sequence[int | None]) -> Floats:
    return np.array([np.nan if grade is None else float(grade) for grade in grades])


def consensus(ratings: Floats, dimension: str) -> Floats:
    """Return the human grade of each item: the lower median of helpfulness, the upper median of harm severity.

    So an item is safe exactly when a majority of those who graded it says so, a tie being unsafe, as in a panel of judges.

    Args:
        ratings: shape (item, person), NaN where there is none.
        dimension: `helpfulness` or `harm_severity`.

    Returns:
        Shape (item,), NaN where nobody graded it.
    """
    ordered = np.sort(ratings, axis=1)  # NaN goes last
    graded = (~np.isnan(ratings)).sum(axis=1)
    place = (graded - 1) // 2 if dimension == "helpfulness" else graded // 2
    last = ratings.shape[1] - 1
    found = ordered[np.arange(len(ordered)), np.clip(place, 0, last)]
    return np.where(graded > 0, found, np.nan)


class _Others(NamedTuple):
    """Each person against the mean of the others: shape (item, person), NaN where there are no others."""

    means: Floats
    """m_ij = Σ_{k≠j} y_ik / (n_i − 1), whether or not j is compared with it, NaN where j did not grade the item."""
    errors: Floats
    """y_ij − m_ij."""


def _others(ratings: Floats) -> _Others:
    graded = ~np.isnan(ratings)
    number = graded.sum(axis=1, keepdims=True)
    total = np.where(graded, ratings, 0.0).sum(axis=1, keepdims=True)
    means = np.where(graded & (number > 1), (total - ratings) / np.maximum(number - 1, 1), np.nan)
    return _Others(means, ratings - means)


def _mean_of_each(values: Floats) -> Floats:
    """Return the mean over people for each item, NaN where there is none: shape (item,)."""
    there = ~np.isnan(values)
    number = there.sum(axis=1)
    return np.where(number > 0, np.where(there, values, 0.0).sum(axis=1) / np.maximum(number, 1), np.nan)


def _humans(answers: Answers, dimension: str, ratings: Floats, sample: Sample) -> HumanGrades:
    counts = RatingCounts.of(ratings, GRADES[dimension])
    others = _others(ratings)
    undefined = answers.undefined()
    return HumanGrades(
        dimension=dimension,
        items=int((counts.raters >= 1).sum()),
        items_twice=int((counts.twice).sum()),
        unsure=answers.count(dimension, UNSURE),
        blank=answers.count(dimension, None),
        leave_one_out=sample.mean(_mean_of_each(np.abs(others.errors)), "score", _WIDEST, undefined),
        ac2=sample.gwet(counts, "quadratic", undefined),
        percent_agreement=sample.mean(counts.pairwise(), "share", undefined=undefined),
        alpha=sample.alpha(counts, "ordinal", undefined),
        annotators=tuple(
            AnnotatorGrades(
                annotator=name,
                items=int((~np.isnan(ratings[:, column])).sum()),
                mae=sample.mean(np.abs(others.errors[:, column]), "score", _WIDEST, undefined),
                bias=sample.mean(others.errors[:, column], "difference", _WIDEST, undefined),
            )
            for column, name in enumerate(answers.annotators)
        ),
    )


def _dimension(judge: str, dimension: str, grades: Floats, ratings: Floats, sample: Sample, answers: Answers) -> Dimension:
    """Return a row of Table 7; every comparison is on the items that the judge and people graded.

    The fair comparison gives the judge no better reference than a person has: both are held against the mean of the same
    n_i − 1 people, so that their difference is of the graders alone.
    """
    ratings = np.where(np.isnan(grades)[:, None], np.nan, ratings)
    human = ~np.isnan(ratings).all(axis=1)
    mean, others = _mean_of_each(ratings), _others(ratings)
    alone = _mean_of_each(np.abs(others.errors))
    fair = _mean_of_each(np.abs(grades[:, None] - others.means))
    agreed = consensus(ratings, dimension)
    both = RatingCounts.of(np.column_stack([np.where(human, grades, np.nan), agreed]), GRADES[dimension])
    undefined, nothing = answers.undefined(), "no item was graded by the judge and by people"
    confusion, weighted = _confusion(grades, agreed, GRADES[dimension], sample)
    return Dimension(
        judge=judge,
        dimension=dimension,
        items=int(human.sum()),
        missing=int((np.isnan(grades) & ~np.isnan(_ratings(answers, dimension)).all(axis=1)).sum()),
        mae=sample.mean(np.abs(grades - mean), "score", _WIDEST, nothing),
        leave_one_out=sample.mean(alone, "score", _WIDEST, undefined),
        fair=sample.mean(fair, "score", _WIDEST, undefined),
        excess=sample.mean(fair - alone, "difference", _WIDEST, undefined),
        bias=sample.mean(grades - mean, "difference", _WIDEST, nothing),
        ac2=sample.gwet(both, "quadratic", nothing),
        exact=sample.mean(np.where(human, (grades == agreed).astype(np.float64), np.nan), "share", undefined=nothing),
        categories=GRADES[dimension],
        confusion=confusion,
        confusion_weighted=weighted if sample.weighted else None,
    )


def _confusion(
    grades: Floats, agreed: Floats, categories: Sequence[int], sample: Sample
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[float, ...], ...]]:
    """Return items and their weights by the judge's grade (row) and the human one (column)."""
    within = [[(grades == row) & (agreed == column) for column in categories] for row in categories]
    return (
        tuple(tuple(int(cell.sum()) for cell in row) for row in within),
        tuple(tuple(float(sample.weights[cell].sum()) for cell in row) for row in within),
    )


def _safe_call(judge: str, intent: str, harm: Floats, ratings: Floats, items: Sequence[Item], sample: Sample) -> SafeCall:
    within = np.array([intent in (EVERYONE, "dual_use" if is_dual_use(item.variant) else item.variant) for item in items])
    agreed = np.where(within, consensus(ratings, "harm_severity"), np.nan)
    graded = ~np.isnan(agreed) & ~np.isnan(harm)
    safe, judged_safe = agreed == 0, harm == 0
    unsafe = graded & ~safe
    safe = graded & safe
    return SafeCall(
        judge=judge,
        intent=intent,
        safe_safe=int((safe & judged_safe).sum()),
        safe_unsafe=int((safe & ~judged_safe).sum()),
        unsafe_safe=int((unsafe & judged_safe).sum()),
        unsafe_unsafe=int((unsafe & ~judged_safe).sum()),
        sensitivity=sample.mean(
            np.where(safe, judged_safe.astype(np.float64), np.nan), "share", undefined="no item is safe for people"
        ),
        specificity=sample.mean(
            np.where(unsafe, (~judged_safe).astype(np.float64), np.nan), "share", undefined="no item is unsafe for people"
        ),
    )
