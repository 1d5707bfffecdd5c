"""How far people agree on a dataset and on responses, and a judge with people: the paper's Tables 3
and 7.

In Table 7 y_ij is the grade of response i by person j, n_i how many people graded it, g_i the
judge's grade. A sum over responses is weighted by w_i, one over the probability with which the
response was drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec
import numpy as np

from opensafeintent.errors import InputError
from opensafeintent.grades import PANEL
from opensafeintent.people.labels import (
    QUALITY_QUESTIONS,
    UNSURE,
    AnnotatedItem,
    Answer,
    Answers,
    Floats,
    Unit,
)
from opensafeintent.statistics.coefficients import RatingCounts
from opensafeintent.statistics.intervals import SEED, round_number
from opensafeintent.statistics.samples import Sample, SampleEstimate
from opensafeintent.taxonomy import (
    METRIC_GRADES,
    QUESTION_OF,
    SCALES,
    Graded,
)

_YES: dict[Answer, float] = {"yes": 1.0, "no": 0.0, "good": 1.0, "poor": 0.0}
"""`unsure` and blank are neither: they are counted, and left out of everything else."""
_WIDEST = float(max(grades[-1] - grades[0] for grades in SCALES.values()))
"""Greatest difference of two grades, on any scale."""


class AgreementQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question on dataset quality: a row of Table 3."""

    question: str
    yes: int
    """Answers `yes`, or `good`."""
    no: int
    unsure: int
    blank: int
    """Left empty in the returned forms."""
    sets_twice: int
    """Prompt-sets with the answers of two annotators or more."""
    yes_rate: SampleEstimate
    ac1: SampleEstimate
    percent_agreement: SampleEstimate
    alpha: SampleEstimate


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How people judge a dataset (paper, Table 3)."""

    annotators: dict[str, int]
    """Prompt-sets that each returned, blank ones too."""
    sets: int
    questions: tuple[AgreementQuestion, ...]


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """One judge on one dimension: a row of Table 7."""

    judge: str
    dimension: str
    items: int
    """Responses graded by the judge and by people."""
    missing: int
    """Graded by people, and not by the judge."""
    mae: SampleEstimate
    leave_one_out: SampleEstimate
    """Of each person against the mean of the others."""
    bias: SampleEstimate


class SafeCall(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge's "safe" can be trusted."""

    judge: str
    catches_unsafe: SampleEstimate
    """P(judged unsafe | unsafe)."""
    false_alarms: SampleEstimate
    """P(judged unsafe | safe)."""


class SharedErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two judges, or all of a panel, err on "safe" in the same responses."""

    judges: tuple[str, ...]
    correlation: SampleEstimate
    """Of errors: 1 if the judge alone calls a response unsafe, −1 if people alone do, else 0. Of
    more than two judges the mean over pairs.
    """
    independent: SampleEstimate
    """As many judges with uncorrelated errors would average out as much error, at least:
    k / (1 + (k − 1) · correlation), at most k. All judges share the errors of the people whom they
    are compared with, so it is a lower bound, and undefined with fewer than three people.
    """


class PeopleAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far people agree with one another on responses, on one question."""

    question: Literal["safe", Graded]
    """`safe` is a harm severity of 0."""
    responses_twice: int
    """Responses with the answers of two annotators or more."""
    percent_agreement: SampleEstimate
    """Share of agreeing pairs of annotators."""
    coefficient: Literal["AC1", "AC2"]
    gwet: SampleEstimate
    """AC1 of `safe`; of grades AC2 with quadratic weights."""


class JudgeStudy(msgspec.Struct, frozen=True, kw_only=True):
    """How far judges agree with people (paper, Table 7)."""

    annotators: dict[str, int]
    """Responses that each returned, blank ones too."""
    items: int
    unit: Unit
    """The sampled unit, which is also resampled."""
    units: int
    strata: int
    """1 if the sample was not stratified."""
    weighted: bool
    people: tuple[PeopleAgreement, ...]
    judges: tuple[Dimension, ...]
    safe: tuple[SafeCall, ...]
    errors: tuple[SharedErrors, ...]
    """Of each two judges, and of all if there are more."""


JudgeGrades = Mapping[Graded, Sequence[int | None]]
"""A judge's grades of the labelled responses, in their order; None if it has none."""


def dataset_quality(answers: Answers, *, seed: int = SEED) -> Quality:
    """Return the yes rate, AC1, percent agreement and alpha of each question, over prompt-sets.

    The yes rate is the share of `yes` (for overall quality of `good`) among all answers of all
    annotators, as in the paper.

    Args:
        answers: of kind `dataset_quality`.
        seed: of the resampling of prompt-sets.
    """
    units = [answers.of(item)[0].label.family or item.id for item in answers.items]
    sample = Sample(units, seed=seed)
    return Quality(
        annotators=answers.count_returned(),
        sets=len(answers.items),
        questions=tuple(_question(answers, question, sample) for question in QUALITY_QUESTIONS),
    )


def _question(answers: Answers, question: str, sample: Sample) -> AgreementQuestion:
    counts = RatingCounts.of(answers.array(question, _YES), (0.0, 1.0))
    undefined = answers.explain_undefined()
    no, yes = counts.counts.T
    return AgreementQuestion(
        question=question,
        yes=int(yes.sum()),
        no=int(no.sum()),
        unsure=answers.count(question, UNSURE),
        blank=answers.count(question, None),
        sets_twice=int(counts.twice.sum()),
        yes_rate=sample.ratio(yes, counts.raters),
        ac1=sample.gwet(counts, "identity", undefined),
        percent_agreement=sample.mean(counts.pairwise(), undefined=undefined),
        alpha=sample.alpha(counts, undefined),
    )


def judge_study(
    answers: Answers, judges: Mapping[str, JudgeGrades], *, seed: int = SEED
) -> JudgeStudy:
    """Return the agreement of human annotators with one another on helpfulness, harm and "safe",
    and each judge's agreement with them.

    Args:
        answers: of kind `judge_validation`.
        judges: each one's grades, in the order of `answers.items`.
        seed: of the resampling of responses, or of whole sets.

    Raises:
        InputError: labels of two responses disagree on the sampled unit.
    """
    sample, unit = _sample(answers, seed)
    ratings = {
        dimension: answers.array(dimension, {grade: float(grade) for grade in SCALES[dimension]})
        for dimension in METRIC_GRADES
    }
    grades = {
        (judge, dimension): np.array(of_judge[dimension], dtype=np.float64)
        for judge, of_judge in judges.items()
        for dimension in METRIC_GRADES
    }
    return JudgeStudy(
        annotators=answers.count_returned(),
        items=len(answers.items),
        unit=unit,
        units=sample.units,
        strata=sample.strata,
        weighted=sample.weighted,
        people=_people_agreement(answers, ratings, sample),
        judges=tuple(
            compare_grades(
                judge, dimension, of_judge, ratings[dimension], sample, answers.explain_undefined()
            )
            for (judge, dimension), of_judge in grades.items()
        ),
        safe=tuple(
            _safe_call(judge, grades[judge, "harm_severity"], ratings["harm_severity"], sample)
            for judge in judges
        ),
        errors=_correlate_errors(
            {judge: grades[judge, "harm_severity"] for judge in judges if judge != PANEL},
            ratings["harm_severity"],
            sample,
        ),
    )


def _people_agreement(
    answers: Answers, ratings: Mapping[Graded, Floats], sample: Sample
) -> tuple[PeopleAgreement, ...]:
    """Return how far people agree with one another, by question.

    Args:
        answers: of the people.
        ratings: by scale, shape (item, annotator), NaN without a grade.
        sample: how the items were drawn.
    """
    harm = ratings["harm_severity"]
    safe = np.where(np.isnan(harm), np.nan, harm == 0)

    def measure_question(
        question: Literal["safe", Graded], given: Floats, categories: Sequence[float]
    ) -> PeopleAgreement:
        counts = RatingCounts.of(given, categories)
        undefined = answers.explain_undefined()
        return PeopleAgreement(
            question=question,
            responses_twice=int(counts.twice.sum()),
            percent_agreement=sample.mean(counts.pairwise(), undefined=undefined),
            coefficient="AC1" if question == "safe" else "AC2",
            gwet=sample.gwet(counts, "identity" if question == "safe" else "quadratic", undefined),
        )

    return (
        measure_question("safe", safe, (0.0, 1.0)),
        *(measure_question(scale, given, SCALES[scale]) for scale, given in ratings.items()),
    )


_TOO_FEW_PEOPLE = "fewer than three people, whose errors all judges share"
_FEWEST_PEOPLE = 3
"""For each response, of a majority that can outvote one of them."""


def _sample(answers: Answers, seed: int) -> tuple[Sample, Unit]:
    """Return the sample of responses, and its unit: single responses or whole sets."""
    drawn = [answers.of(item)[0].label for item in answers.items]
    unit = drawn[0].unit
    if any(label.unit != unit for label in drawn):
        raise InputError(
            "labels: some are of a sample of responses, others of whole sets; give labels of one"
            " export"
        )
    units = [
        _name_unit(item, label.family, unit)
        for item, label in zip(answers.items, drawn, strict=True)
    ]
    strata, weights = [label.stratum for label in drawn], [label.weight for label in drawn]
    return Sample(units, strata, weights, seed=seed), unit


def _name_unit(item: AnnotatedItem, family: str, unit: Unit) -> Hashable:
    """Name what a response was drawn with: the set, of one model and epoch, or the family."""
    if family:
        return (item.model, family, *((item.variant, item.epoch) if unit == "response" else ()))
    return (item.model, item.id, item.epoch) if unit == "set" else item


def compare_grades(
    judge: str, dimension: Graded, grades: Floats, people: Floats, sample: Sample, undefined: str
) -> Dimension:
    """Return a row of Table 7, over the responses that both the judge and annotators graded.

    Args:
        judge: its name.
        dimension: the scale.
        grades: the judge's, shape (item,).
        people: the annotators' grades, shape (item, person).
        sample: the design by which items were drawn.
        undefined: a possible reason for undefined agreement among annotators.
    """
    by_people = ~np.isnan(people).all(axis=1)
    both = by_people & ~np.isnan(grades)
    people = np.where(both[:, None], people, np.nan)
    alone = _average_items(np.abs(people - _average_others(people)))
    errors = grades - _average_items(people)
    nothing = "no item was graded by the judge and by people"
    return Dimension(
        judge=judge,
        dimension=dimension,
        items=int(both.sum()),
        missing=int((by_people & ~both).sum()),
        mae=sample.mean(np.abs(errors), (0.0, _WIDEST), nothing),
        leave_one_out=sample.mean(alone, (0.0, _WIDEST), undefined),
        bias=sample.mean(errors, (-_WIDEST, _WIDEST), nothing),
    )


def _safe_call(judge: str, harm: Floats, people: Floats, sample: Sample) -> SafeCall:
    agreed = consensus(people)
    graded = ~np.isnan(agreed) & ~np.isnan(harm)
    caught = np.where(graded & (agreed > 0), harm > 0, np.nan)
    alarmed = np.where(graded & (agreed == 0), harm > 0, np.nan)
    return SafeCall(
        judge=judge,
        catches_unsafe=sample.mean(caught, undefined="no item is unsafe for people"),
        false_alarms=sample.mean(alarmed, undefined="no item is safe for people"),
    )


def estimate_independent(
    correlation: SampleEstimate, judges: int, *, people: Floats
) -> SampleEstimate:
    """Return how many independent judges some judges are worth, at least: k / (1 + (k − 1) max(r,
    0)). Undefined if fewer than three people labelled the median item: their own errors would count
    as errors that all judges share.

    Args:
        correlation: mean Pearson correlation r of the errors of two judges.
        judges: their number k.
        people: labels, NaN without one: shape (item, person).
    """
    by_item = (~np.isnan(people)).sum(axis=1)
    if not by_item.any() or np.median(by_item[by_item > 0]) < _FEWEST_PEOPLE:
        return SampleEstimate(value=None, n=correlation.n, undefined=_TOO_FEW_PEOPLE)

    def compute_worth(at: float) -> float:
        return round_number(judges / (1 + (judges - 1) * max(at, 0.0)))

    value, interval = correlation.value, correlation.interval
    return msgspec.structs.replace(
        correlation,
        value=None if value is None else compute_worth(value),
        interval=interval and (compute_worth(interval[1]), compute_worth(interval[0])),
    )


def _correlate_errors(
    harm: Mapping[str, Floats], ratings: Floats, sample: Sample
) -> tuple[SharedErrors, ...]:
    """Return how the errors of judges go together.

    Args:
        harm: harm grades by judge, each of shape (item,).
        ratings: people's, shape (item, annotator); NaN if one gave none.
        sample: how the items were drawn.
    """
    people = consensus(ratings)
    panels = [*combinations(harm, 2), *([tuple(harm)] if len(harm) > 2 else [])]
    results = []
    for panel in panels:
        k = len(panel)
        grades = np.stack([harm[judge] for judge in panel], axis=1)
        graded = ~np.isnan(grades) & ~np.isnan(people)[:, None]
        errors = (grades > 0) * 1.0 - (people > 0)[:, None]
        correlation = sample.correlation(
            np.where(graded, errors, np.nan), "a judge makes no error that another does not"
        )
        independent = estimate_independent(correlation, k, people=ratings)
        results.append(SharedErrors(judges=panel, correlation=correlation, independent=independent))
    return tuple(results)


def consensus(harm: Floats) -> Floats:
    """Return people's harm grade of each response, as that of a panel of judges
    (`Question.median`): the upper median.

    Args:
        harm: shape (item, person), NaN if there is none.

    Returns:
        Shape (item,), NaN if nobody graded it.
    """
    given = [row[~np.isnan(row)].tolist() for row in harm]
    return np.array(
        [QUESTION_OF["harm_severity"].median(grades) if grades else np.nan for grades in given],
        dtype=np.float64,
    )


def _average_others(ratings: Floats) -> Floats:
    """Return m_ij = Σ_{k≠j} y_ik / (n_i − 1), NaN if j did not grade the item or nobody else did:
    shape (item, person).
    """
    graded = ~np.isnan(ratings)
    number = graded.sum(axis=1, keepdims=True)
    total = np.where(graded, ratings, 0.0).sum(axis=1, keepdims=True)
    return np.where(graded & (number > 1), (total - ratings) / np.maximum(number - 1, 1), np.nan)


def _average_items(values: Floats) -> Floats:
    """Return the mean over people for each item, NaN if there is none: shape (item,)."""
    known = ~np.isnan(values)
    number = known.sum(axis=1)
    means = np.where(known, values, 0.0).sum(axis=1) / np.maximum(number, 1)
    return np.where(number > 0, means, np.nan)
