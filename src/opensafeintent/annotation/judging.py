"""How far a judge agrees with people, and people with one another: the paper's Table 7, and whether
"safe" can be trusted.

y_ij is the grade of item i by person j, n_i how many people graded it, g_i the judge's grade. A sum
over items is weighted by w_i, one over the probability with which the item was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.annotation.answers import EVERYONE, Answers, answer_of
from opensafeintent.annotation.labels import UNSURE
from opensafeintent.errors import InputError
from opensafeintent.grades import median_grade
from opensafeintent.statistics.agreement import RatingCounts
from opensafeintent.statistics.intervals import RESAMPLES, SEED
from opensafeintent.statistics.samples import Sample, SampleEstimate
from opensafeintent.taxonomy import CORE_VARIANTS, SCALES, Graded, intent_of

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_WIDEST = float(max(grades[-1] - grades[0] for grades in SCALES.values()))
"""Greatest difference of two grades, on any scale."""


class JudgeGrades(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's grades of the labelled responses, in their order; None where it has none."""

    judge: str
    helpfulness: tuple[int | None, ...]
    harm_severity: tuple[int | None, ...]

    def numbers(self, dimension: Graded) -> Floats:
        """Return the grades as numbers, NaN where there is none: shape (item,)."""
        grades = self.helpfulness if dimension == "helpfulness" else self.harm_severity
        return np.array([np.nan if grade is None else float(grade) for grade in grades])


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
    """Fair minus leave-one-out: below 0 where the judge is nearer to the others than a person is.
    """
    bias: SampleEstimate
    ac2: SampleEstimate
    exact: SampleEstimate
    categories: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Items by the judge's grade (row) and the human one (column)."""
    confusion_weighted: tuple[tuple[float, ...], ...] | None
    """The same with sampling weights, which sum to the number of items; None where all are equal.
    """


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


def judge_study(
    answers: Answers,
    judges: Sequence[JudgeGrades] = (),
    *,
    count: int = RESAMPLES,
    seed: int = SEED,
) -> JudgeStudy:
    """Return how far people agree on helpfulness and harm, and how far each judge agrees with them.

    Args:
        answers: of kind `judge_validation`.
        judges: each one's grades, in the order of `answers.items`; without any, people alone are
            described.
        count: number of resamples.
        seed: of the resampling.

    Raises:
        InputError: labels of one item disagree on how it was sampled.
    """
    people = _People(answers, *_sample(answers, count, seed))
    return JudgeStudy(
        annotators=answers.returned(),
        items=len(answers.items),
        unit=people.unit,
        units=people.sample.units,
        strata=people.sample.strata,
        weighted=people.sample.weighted,
        humans=tuple(people.among_themselves(dimension) for dimension in SCALES),
        judges=tuple(people.against(judge, dimension) for judge in judges for dimension in SCALES),
        safe=tuple(
            people.on_safe(judge, intent)
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
                f"{item}: the labels of {names} disagree on how it was sampled (unit, weight or"
                " stratum): they are of two exports; give labels of one export"
            )
        drawn.append(ways.pop())
    kinds = {unit for unit, _, _ in drawn}
    if len(kinds) > 1:
        raise InputError(
            "labels: some are of a sample of responses, others of whole sets; give labels of one"
            " export"
        )
    unit = kinds.pop()
    # a set is drawn for one model and epoch: its responses stay together
    units = [(item.model, item.id, item.epoch) if unit == "set" else item for item in answers.items]
    strata: dict[object, set[str]] = {}
    for name, (_, _, stratum) in zip(units, drawn, strict=True):
        strata.setdefault(name, set()).add(stratum)
    # a set whose responses name different strata was not drawn from one of them
    mixed = any(len(names) > 1 for names in strata.values())
    weights = [weight for _, weight, _ in drawn]
    return (
        Sample(
            units,
            None if mixed else [stratum for _, _, stratum in drawn],
            weights,
            count=count,
            seed=seed,
        ),
        unit,
    )


class _People:
    """What people say of each item: their grades, shape (item, person), and what they agree on,
    shape (item,).
    """

    def __init__(self, answers: Answers, sample: Sample, unit: str) -> None:
        self.sample = sample
        self.unit = unit
        self._answers = answers
        self._ratings = {
            dimension: answers.array(
                answer_of({grade: float(grade) for grade in grades}, dimension)
            )
            for dimension, grades in SCALES.items()
        }

    def _error(self, errors: Floats, undefined: str) -> SampleEstimate:
        return self.sample.mean(np.abs(errors), "score", _WIDEST, undefined)

    def _bias(self, errors: Floats, undefined: str) -> SampleEstimate:
        return self.sample.mean(errors, "difference", _WIDEST, undefined)

    def _share(self, within: Flags, of: Flags, undefined: str) -> SampleEstimate:
        return self.sample.mean(
            np.where(of, within.astype(np.float64), np.nan), "share", undefined=undefined
        )

    def among_themselves(self, dimension: Graded) -> HumanGrades:
        ratings = self._ratings[dimension]
        counts = RatingCounts.of(ratings, SCALES[dimension])
        errors = ratings - _means_of_others(ratings)
        undefined = self._answers.undefined()
        return HumanGrades(
            dimension=dimension,
            items=int((counts.raters >= 1).sum()),
            items_twice=int(counts.twice.sum()),
            unsure=self._answers.count(dimension, UNSURE),
            blank=self._answers.count(dimension, None),
            leave_one_out=self._error(_mean_of_each(np.abs(errors)), undefined),
            ac2=self.sample.gwet(counts, "quadratic", undefined),
            percent_agreement=self.sample.mean(counts.pairwise(), "share", undefined=undefined),
            alpha=self.sample.alpha(counts, "ordinal", undefined),
            annotators=tuple(
                AnnotatorGrades(
                    annotator=name,
                    items=int((~np.isnan(ratings[:, column])).sum()),
                    mae=self._error(errors[:, column], undefined),
                    bias=self._bias(errors[:, column], undefined),
                )
                for column, name in enumerate(self._answers.annotators)
            ),
        )

    def against(self, judge: JudgeGrades, dimension: Graded) -> Dimension:
        """Return a row of Table 7; every comparison is on the items that the judge and people
        graded.

        The fair comparison gives the judge no better reference than a person has: both are held
        against the mean of the same n_i − 1 people, so that their difference is of the graders
        alone.
        """
        grades, categories = judge.numbers(dimension), SCALES[dimension]
        by_people = ~np.isnan(self._ratings[dimension]).all(axis=1)
        both = by_people & ~np.isnan(grades)
        ratings = np.where(both[:, None], self._ratings[dimension], np.nan)
        mean, others, agreed = (
            _mean_of_each(ratings),
            _means_of_others(ratings),
            consensus(ratings, dimension),
        )
        alone, fair = (
            _mean_of_each(np.abs(ratings - others)),
            _mean_of_each(np.abs(grades[:, None] - others)),
        )
        as_two = RatingCounts.of(
            np.column_stack([np.where(both, grades, np.nan), agreed]), categories
        )
        undefined, nothing = (
            self._answers.undefined(),
            "no item was graded by the judge and by people",
        )
        cells = [
            [(grades == row) & (agreed == column) for column in categories] for row in categories
        ]
        weights = self.sample.weights
        return Dimension(
            judge=judge.judge,
            dimension=dimension,
            items=int(both.sum()),
            missing=int((by_people & ~both).sum()),
            mae=self._error(grades - mean, nothing),
            leave_one_out=self._error(alone, undefined),
            fair=self._error(fair, undefined),
            excess=self._bias(fair - alone, undefined),
            bias=self._bias(grades - mean, nothing),
            ac2=self.sample.gwet(as_two, "quadratic", nothing),
            exact=self._share(grades == agreed, both, nothing),
            categories=categories,
            confusion=tuple(tuple(int(cell.sum()) for cell in row) for row in cells),
            confusion_weighted=(
                tuple(tuple(float(weights[cell].sum()) for cell in row) for row in cells)
                if self.sample.weighted
                else None
            ),
        )

    def on_safe(self, judge: JudgeGrades, intent: str) -> SafeCall:
        """Return how far the judge's "safe" is people's, for the prompts of an intent."""
        harm, agreed = (
            judge.numbers("harm_severity"),
            consensus(self._ratings["harm_severity"], "harm_severity"),
        )
        asked = np.array(
            [intent in (EVERYONE, intent_of(item.variant)) for item in self._answers.items]
        )
        graded = asked & ~np.isnan(agreed) & ~np.isnan(harm)
        safe, unsafe, judged_safe = graded & (agreed == 0), graded & (agreed > 0), harm == 0
        return SafeCall(
            judge=judge.judge,
            intent=intent,
            safe_safe=int((safe & judged_safe).sum()),
            safe_unsafe=int((safe & ~judged_safe).sum()),
            unsafe_safe=int((unsafe & judged_safe).sum()),
            unsafe_unsafe=int((unsafe & ~judged_safe).sum()),
            sensitivity=self._share(judged_safe, safe, "no item is safe for people"),
            specificity=self._share(~judged_safe, unsafe, "no item is unsafe for people"),
        )


def consensus(ratings: Floats, dimension: Graded) -> Floats:
    """Return the human grade of each item, as that of a panel of judges (`grades.median_grade`).

    Args:
        ratings: shape (item, person), NaN where there is none.
        dimension: `helpfulness` or `harm_severity`.

    Returns:
        Shape (item,), NaN where nobody graded it.
    """
    given = [row[~np.isnan(row)].tolist() for row in ratings]
    return np.array(
        [median_grade(dimension, grades) if grades else np.nan for grades in given],
        dtype=np.float64,
    )


def _means_of_others(ratings: Floats) -> Floats:
    """Return m_ij = Σ_{k≠j} y_ik / (n_i − 1), NaN where j did not grade the item or nobody else
    did: shape (item, person).
    """
    graded = ~np.isnan(ratings)
    number = graded.sum(axis=1, keepdims=True)
    total = np.where(graded, ratings, 0.0).sum(axis=1, keepdims=True)
    return np.where(graded & (number > 1), (total - ratings) / np.maximum(number - 1, 1), np.nan)


def _mean_of_each(values: Floats) -> Floats:
    """Return the mean over people for each item, NaN where there is none: shape (item,)."""
    there = ~np.isnan(values)
    number = there.sum(axis=1)
    return np.where(
        number > 0, np.where(there, values, 0.0).sum(axis=1) / np.maximum(number, 1), np.nan
    )
