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
    Answers,
    Unit,
)
from opensafeintent.ratings import Floats, Ratings, RatingsOfItem, average_items
from opensafeintent.responses import panel_grades
from opensafeintent.statistics.coefficients import RatingCounts
from opensafeintent.statistics.intervals import SEED, round_number
from opensafeintent.statistics.samples import Sample, SampleEstimate
from opensafeintent.taxonomy import (
    METRIC_GRADES,
    SCALES,
    Graded,
    KnownGrades,
)

_GREATEST_DIFFERENCE = float(max(SCALES[grade][-1] - SCALES[grade][0] for grade in METRIC_GRADES))
"""Greatest difference of two grades, on any scale."""


class QuestionAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """One question on dataset quality: a row of Table 3."""

    question: str
    yes: int
    """Answers `yes`, or `good`."""
    no: int
    unsure: int
    blank: int
    """Answers left empty in the returned forms."""
    sets_twice: int
    """Prompt-sets with the answers of two annotators or more."""
    yes_rate: SampleEstimate
    ac1: SampleEstimate
    percent_agreement: SampleEstimate
    alpha: SampleEstimate


class DatasetQuality(msgspec.Struct, frozen=True, kw_only=True):
    """How people judge a dataset (paper, Table 3)."""

    annotators: dict[str, int]
    """By annotator, how many prompt-sets came back, blank ones included."""
    sets: int
    questions: tuple[QuestionAgreement, ...]


class ScaleAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far one judge's grades on one scale are from people's: a row of Table 7."""

    judge: str
    dimension: str
    """The scale, a `Graded`; Table 7 calls it a dimension."""
    items: int
    """Responses graded by the judge and by people."""
    missing: int
    """Responses graded by people alone."""
    mae: SampleEstimate
    """Mean of |judge − mean of people|."""
    leave_one_out: SampleEstimate
    """Mean of |person − mean of the other people|, on the same responses."""
    bias: SampleEstimate
    """Mean of judge − mean of people."""


class UnsafeDetection(msgspec.Struct, frozen=True, kw_only=True):
    """How well a judge tells responses that are unsafe for people from safe ones."""

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


class OwnQuestionAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far people agree with one another on the prompt-sets' own questions, or a judge with
    them.
    """

    judge: str
    """The judge; empty for people with one another."""
    answered: int
    """Questions about responses that two people or more answered; or the judge and a person."""
    missing: int
    """Questions that people answered and the judge did not."""
    percent_agreement: SampleEstimate
    """Share of equal answers: of pairs of people; or of each person with the judge."""
    ac1: SampleEstimate


class JudgeStudy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far judges agree with people (paper, Table 7)."""

    annotators: dict[str, int]
    """By annotator, how many responses came back, blank ones included."""
    items: int
    unit: Unit
    """What was sampled, and what the bootstrap resamples."""
    units: int
    """How many units were sampled."""
    strata: int
    """1 if the sample was not stratified."""
    weighted: bool
    """Whether units had unequal chances of being drawn."""
    people: tuple[PeopleAgreement, ...]
    judges: tuple[ScaleAgreement, ...]
    safe: tuple[UnsafeDetection, ...]
    errors: tuple[SharedErrors, ...]
    """Of every two judges, and of all together if there are three or more."""
    questions: tuple[OwnQuestionAgreement, ...] = ()
    """On the prompt-sets' own questions: of people, if there are several, and of each judge that
    answered them. Empty if nobody did.
    """


def measure_dataset_quality(answers: Answers, *, seed: int = SEED) -> DatasetQuality:
    """Return the yes rate, AC1, percent agreement and alpha of each question, over prompt-sets.

    The yes rate is the share of `yes` (for overall quality of `good`) among all answers of all
    annotators, as in the paper.

    Args:
        answers: of kind `dataset_quality`.
        seed: of the resampling of prompt-sets.
    """
    units = [answers.labels_of(item)[0].label.family or item.id for item in answers.items]
    sample = Sample(units, seed=seed)
    return DatasetQuality(
        annotators=answers.count_returned(),
        sets=len(answers.items),
        questions=tuple(
            _measure_question(answers, question, sample) for question in QUALITY_QUESTIONS
        ),
    )


def _measure_question(answers: Answers, question: str, sample: Sample) -> QuestionAgreement:
    counts = RatingCounts.of(answers.ratings.select_scale(question), (0.0, 1.0))
    undefined = answers.explain_undefined()
    no, yes = counts.counts.T
    return QuestionAgreement(
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


def measure_judge_study(
    answers: Answers,
    judges: Ratings,
    own_answers: Sequence[RatingsOfItem] = (),
    *,
    seed: int = SEED,
) -> JudgeStudy:
    """Return the agreement of human annotators with one another on each question and on "safe",
    and each judge's agreement with them.

    Args:
        answers: of kind `judge_validation`.
        judges: grades of `answers.items`, in their order.
        own_answers: the judges' answers to the prompt-sets' own questions about each item, in the
            order of `answers.items`: by judge and question, 1 for yes and 0 for no. A panel has an
            entry like a judge. Empty if no judge was asked.
        seed: of the resampling of responses, or of whole sets.

    Raises:
        InputError: labels of two responses disagree on the sampled unit.
    """
    sample, unit = _make_sample(answers, seed)
    people = answers.ratings
    undefined = answers.explain_undefined()
    harm = {judge: judges.select_rater(judge, "harm_severity") for judge in judges.raters}
    people_harm = people.median("harm_severity")
    return JudgeStudy(
        annotators=answers.count_returned(),
        items=len(answers.items),
        unit=unit,
        units=sample.units,
        strata=sample.strata,
        weighted=sample.weighted,
        people=_measure_people(people, sample, undefined),
        judges=tuple(
            compare_grades(
                judge,
                scale,
                judges.select_rater(judge, scale),
                people.select_scale(scale),
                sample,
                undefined,
            )
            for judge in judges.raters
            for scale in METRIC_GRADES
        ),
        safe=tuple(
            _measure_unsafe_detection(judge, harm[judge], people_harm, sample) for judge in harm
        ),
        errors=_correlate_errors(
            {judge: harm[judge] for judge in harm if judge != PANEL}, people, sample
        ),
        questions=_measure_own_questions(answers, own_answers, seed),
    )


def gather_grades(by_judge: Sequence[Mapping[str, KnownGrades]], judges: Sequence[str]) -> Ratings:
    """Return the grades of judges, and with several judges those of their panel.

    Args:
        by_judge: the grades of each item.
        judges: in their order.
    """
    said = [{judge: grades.list_given() for judge, grades in item.items()} for item in by_judge]
    if len(judges) > 1:
        nothing = KnownGrades()
        for numbers, item in zip(said, by_judge, strict=True):
            everyone = {judge: item.get(judge, nothing) for judge in judges}
            numbers[PANEL] = panel_grades(everyone).list_given()
    return Ratings(said, [*judges, PANEL] if len(judges) > 1 else judges)


def _measure_people(people: Ratings, sample: Sample, undefined: str) -> tuple[PeopleAgreement, ...]:
    """Return how far people agree with one another, by question.

    Args:
        people: their grades.
        sample: how the items were drawn.
        undefined: a possible reason for undefined agreement.
    """
    harm = people.select_scale("harm_severity")
    safe = np.where(np.isnan(harm), np.nan, harm == 0)

    def measure_question(
        question: Literal["safe", Graded], given: Floats, categories: Sequence[float]
    ) -> PeopleAgreement:
        counts = RatingCounts.of(given, categories)
        return PeopleAgreement(
            question=question,
            responses_twice=int(counts.twice.sum()),
            percent_agreement=sample.mean(counts.pairwise(), undefined=undefined),
            coefficient="AC1" if question == "safe" else "AC2",
            gwet=sample.gwet(counts, "identity" if question == "safe" else "quadratic", undefined),
        )

    return (
        measure_question("safe", safe, (0.0, 1.0)),
        *(
            measure_question(scale, people.select_scale(scale), SCALES[scale])
            for scale in METRIC_GRADES
        ),
    )


_TOO_FEW_PEOPLE = "fewer than three people, whose errors all judges share"
_FEWEST_PEOPLE = 3
"""For each response, of a majority that can outvote one of them."""


def _measure_own_questions(
    answers: Answers, own_answers: Sequence[RatingsOfItem], seed: int
) -> tuple[OwnQuestionAgreement, ...]:
    """Return the agreement on the prompt-sets' own questions, of people and then of each judge with
    people. Questions are sampled with their items.
    """
    given = [
        {entry.label.annotator: entry.label.own_ratings for entry in answers.labels_of(item)}
        for item in answers.items
    ]
    # an item about which nobody answered a question stays in the sample, with a row of nothing
    rows = [
        (at, name)
        for at, by_person in enumerate(given)
        for name in sorted({name for said in by_person.values() for name in said} or {""})
    ]

    def tabulate(said: Sequence[RatingsOfItem], raters: Sequence[str]) -> Floats:
        numbers = [
            said[at].get(rater, {}).get(name, np.nan) for at, name in rows for rater in raters
        ]
        return np.array(numbers).reshape(len(rows), len(raters))

    people = tabulate(given, answers.annotators)
    if np.isnan(people).all():
        return ()
    found = []
    if len(answers.annotators) > 1:
        counts, undefined = RatingCounts.of(people, _NO_YES), answers.explain_undefined()
        sample, _ = _make_sample(answers, seed, [at for at, _ in rows])
        found.append(
            OwnQuestionAgreement(
                judge="",
                answered=int(counts.twice.sum()),
                missing=0,
                percent_agreement=sample.mean(counts.pairwise(), undefined=undefined),
                ac1=sample.gwet(counts, "identity", undefined),
            )
        )
    for judge in dict.fromkeys(judge for said in own_answers for judge in said):
        by_judge = tabulate(own_answers, [judge])
        found.append(
            _compare_own_answers(judge, by_judge, people, answers, [at for at, _ in rows], seed)
        )
    return tuple(found)


_NO_YES = (0.0, 1.0)


def _compare_own_answers(
    judge: str,
    by_judge: Floats,
    people: Floats,
    answers: Answers,
    item_of_row: Sequence[int],
    seed: int,
) -> OwnQuestionAgreement:
    """Return the agreement of a judge with each person who answered the same question; every
    question counts once, however many people answered it.

    Args:
        judge: its name.
        by_judge: its answers, shape (question, 1).
        people: theirs, shape (question, person).
        answers: of the items.
        item_of_row: the item of each question.
        seed: of the resampling.
    """
    by_people = ~np.isnan(people).all(axis=1)
    pairs = ~np.isnan(people) & ~np.isnan(by_judge)
    both = np.asarray(pairs.any(axis=1))
    equal = average_items(np.where(pairs, people == by_judge, np.nan))
    nothing = "no question was answered by the judge and by people"
    sample, _ = _make_sample(answers, seed, item_of_row)
    # AC1 counts ratings, so each pair is a row; a question without one stays, as a row of nothing
    at, person = np.nonzero(pairs | (~both[:, None] & (np.arange(people.shape[1]) == 0)))
    ratings = np.stack([by_judge[at, 0], people[at, person]], axis=1)
    counts = RatingCounts.of(np.where(both[at, None], ratings, np.nan), _NO_YES)
    shares = 1 / np.maximum(pairs.sum(axis=1), 1)[at]
    of_pairs, _ = _make_sample(
        answers, seed, [item_of_row[row] for row in at.tolist()], shares.tolist()
    )
    ac1 = of_pairs.gwet(counts, "identity", nothing)
    return OwnQuestionAgreement(
        judge=judge,
        answered=int(both.sum()),
        missing=int((by_people & ~both).sum()),
        percent_agreement=sample.mean(equal, undefined=nothing),
        ac1=msgspec.structs.replace(ac1, n=int(both.sum()), se=None),
    )


def _make_sample(
    answers: Answers,
    seed: int,
    rows: Sequence[int] | None = None,
    shares: Sequence[float] | None = None,
) -> tuple[Sample, Unit]:
    """Return the sample of responses, and its unit: single responses or whole sets.

    Args:
        answers: about the responses.
        seed: of the resampling.
        rows: the items that the sample's rows are about, by their places; by default each has one.
        shares: what each row counts, as a share of its item's weight; by default all of it.
    """
    drawn = [answers.labels_of(item)[0].label for item in answers.items]
    unit = drawn[0].unit
    if any(label.unit != unit for label in drawn):
        raise InputError(
            "labels: some are of a sample of responses, others of whole sets; give labels of one"
            " export"
        )
    units = [
        _name_sampled_unit(item, label.family, unit)
        for item, label in zip(answers.items, drawn, strict=True)
    ]
    places = list(range(len(drawn)) if rows is None else rows)
    weights = answers.ratings.weights[places] * (1.0 if shares is None else np.array(shares))
    return Sample(
        [units[at] for at in places],
        [drawn[at].stratum for at in places],
        weights.tolist(),
        seed=seed,
    ), unit


def _name_sampled_unit(item: AnnotatedItem, family: str, unit: Unit) -> Hashable:
    """Name what a response was drawn with: the set, of one model and epoch, or the family."""
    if family:
        return (item.model, family, *((item.variant, item.epoch) if unit == "response" else ()))
    return (item.model, item.id, item.epoch) if unit == "set" else item


def compare_grades(
    judge: str, dimension: Graded, grades: Floats, people: Floats, sample: Sample, undefined: str
) -> ScaleAgreement:
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
    alone = average_items(np.abs(people - _average_others(people)))
    errors = grades - average_items(people)
    nothing = "no item was graded by the judge and by people"
    return ScaleAgreement(
        judge=judge,
        dimension=dimension,
        items=int(both.sum()),
        missing=int((by_people & ~both).sum()),
        mae=sample.mean_grade(np.abs(errors), (0.0, _GREATEST_DIFFERENCE), nothing),
        leave_one_out=sample.mean_grade(alone, (0.0, _GREATEST_DIFFERENCE), undefined),
        bias=sample.mean_grade(errors, (-_GREATEST_DIFFERENCE, _GREATEST_DIFFERENCE), nothing),
    )


def _measure_unsafe_detection(
    judge: str, harm: Floats, people_harm: Floats, sample: Sample
) -> UnsafeDetection:
    graded = ~np.isnan(people_harm) & ~np.isnan(harm)
    caught = np.where(graded & (people_harm > 0), harm > 0, np.nan)
    alarmed = np.where(graded & (people_harm == 0), harm > 0, np.nan)
    return UnsafeDetection(
        judge=judge,
        catches_unsafe=sample.mean(caught, undefined="no item is unsafe for people"),
        false_alarms=sample.mean(alarmed, undefined="no item is safe for people"),
    )


def are_enough_people(people: Floats) -> bool:
    """Tell whether so many people labelled the median item that their own errors can be told from
    those of judges.

    Args:
        people: labels, NaN without one: shape (item, person).
    """
    by_item = (~np.isnan(people)).sum(axis=1)
    return bool(by_item.any() and np.median(by_item[by_item > 0]) >= _FEWEST_PEOPLE)


def estimate_effective_judges(
    correlation: SampleEstimate, judges: int, *, people: Floats
) -> SampleEstimate:
    """Return how many independent judges some judges are worth, at least, if people share no errors
    with one another or with a judge: k / (1 + (k − 1) max(r, 0)). Undefined if fewer than three
    people labelled the median item: their own errors would count as errors that all judges share.

    Args:
        correlation: mean Pearson correlation r of the errors of two judges.
        judges: their number k.
        people: labels, NaN without one: shape (item, person).
    """
    if not are_enough_people(people):
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
    harm: Mapping[str, Floats], people: Ratings, sample: Sample
) -> tuple[SharedErrors, ...]:
    """Return how the errors of judges go together.

    Args:
        harm: harm grades by judge, each of shape (item,).
        people: their grades.
        sample: how the items were drawn.
    """
    people_harm = people.median("harm_severity")
    panels = [*combinations(harm, 2), *([tuple(harm)] if len(harm) > 2 else [])]
    results = []
    for panel in panels:
        k = len(panel)
        grades = np.stack([harm[judge] for judge in panel], axis=1)
        graded = ~np.isnan(grades) & ~np.isnan(people_harm)[:, None]
        errors = (grades > 0) * 1.0 - (people_harm > 0)[:, None]
        correlation = sample.correlation(
            np.where(graded, errors, np.nan), "a judge makes no error that another does not"
        )
        independent = estimate_effective_judges(
            correlation, k, people=people.select_scale("harm_severity")
        )
        results.append(SharedErrors(judges=panel, correlation=correlation, independent=independent))
    return tuple(results)


def _average_others(ratings: Floats) -> Floats:
    """Return m_ij = Σ_{k≠j} y_ik / (n_i − 1), NaN if j did not grade the item or nobody else did:
    shape (item, person).
    """
    graded = ~np.isnan(ratings)
    number = graded.sum(axis=1, keepdims=True)
    total = np.where(graded, ratings, 0.0).sum(axis=1, keepdims=True)
    return np.where(graded & (number > 1), (total - ratings) / np.maximum(number - 1, 1), np.nan)
