"""The prompt-sets' own questions beside the rubric: on which line judges agree better, and where
the two lines differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec
import numpy as np

from opensafeintent.numbers.judges import VerdictCounts, list_judge_groups, round_estimate
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.coefficients import RatingCounts
from opensafeintent.statistics.intervals import Floats
from opensafeintent.statistics.samples import FEWEST_DEVIATING, Sample
from opensafeintent.taxonomy import Answer

_UNSAFE_CATEGORIES = (0, 1)
About = Literal["must", "must_not", "any_hit"]
ABOUT: tuple[About, ...] = get_args(About)


class LineAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges, or all of a panel, on responses for which each has both: a harm severity, and the
    answers that tell whether any `must_not` is hit.
    """

    judges: tuple[str, ...]
    rubric: Estimate
    """Gwet's AC1 on whether harm severity is 0."""
    questions: Estimate
    """The same on whether any `must_not` is hit."""
    difference: Estimate
    """The second minus the first."""


class AnswerAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two judges, or all of a panel, on questions that each of them answered."""

    judges: tuple[str, ...]
    about: About
    """The answers to questions of one kind; or of each response, whether any `must_not` is hit."""
    equal: Estimate
    """Share of pairs of judges with the same answer."""
    ac1: Estimate
    """Gwet's AC1."""


def find_hit(row: GradedResponse, answers: Mapping[str, Answer | None], dataset: Dataset) -> float:
    """Return 1 if one of the answers to a response's `must_not` questions is yes, 0 if all are no;
    NaN if that is not known, or there is no such question.
    """
    own = dataset.by_id[row.set_id].questions_about(row.variant)
    given = [answers.get(question.id) for question in own.must_not] if own else []
    if "yes" in given:
        return 1.0
    return 0.0 if given and None not in given else np.nan


def rank_worst_answered(row: GradedResponse, dataset: Dataset) -> tuple[float, float, str, str]:
    """Return a sort key for responses to which judges were asked their sets' questions alone.

    The share of `must_not` with yes decides, then the share of `must` with no, then the model and
    the prompt-set's id. A response without an answer comes last.
    """
    own, answers = dataset.by_id[row.set_id].questions_about(row.variant), row.answers or {}
    if own is None or not any(answers.values()):
        return 1.0, 0.0, row.model, row.set_id
    hit, unmet = (
        sum(answers.get(question.id) == bad for question in asked) / max(len(asked), 1)
        for asked, bad in ((own.must_not, "yes"), (own.must, "no"))
    )
    return -hit, -unmet, row.model, row.set_id


def measure_line_agreement(
    rows: Sequence[GradedResponse],
    dataset: Dataset,
    judges: Sequence[str],
    unit_of: Mapping[str, str],
) -> list[LineAgreement]:
    """Return the agreement of every two judges, and of all if there are three or more; empty
    without two judges that were asked both. Refusals that took no judge are left out.

    Args:
        rows: every response with its grades.
        dataset: the prompt-sets.
        judges: of the panel.
        unit_of: by prompt-set, the name of its unit.
    """
    ordered = _list_answered(rows)
    if len(judges) < 2 or not ordered:
        return []
    lines = np.array(
        [[_read_both_lines(row, judge, dataset) for judge in judges] for row in ordered]
    )  # shape (response, judge, line)
    units = [unit_of[row.set_id] for row in ordered]
    found = (
        _measure_group(lines[:, [*map(judges.index, group)]], units, group)
        for group in list_judge_groups(judges)
    )
    return [agreement for agreement in found if agreement is not None]


def measure_answer_agreement(
    rows: Sequence[GradedResponse],
    dataset: Dataset,
    judges: Sequence[str],
    unit_of: Mapping[str, str],
) -> list[AnswerAgreement]:
    """Return how well every two judges agree on answers, and all if there are three or more; empty
    without two judges that were asked. The arguments are those of `measure_line_agreement`.
    """
    ordered = _list_answered(rows)
    found = []
    for group in list_judge_groups(judges):
        for about in ABOUT:
            given = [
                (unit_of[row.set_id], answers)
                for row in ordered
                for answers in _yield_answers(row, dataset, group, about)
                if not np.isnan(answers).any()
            ]
            if not given:
                continue
            sample = Sample([unit for unit, _ in given])
            counts = RatingCounts.of(
                np.array([answers for _, answers in given]), _UNSAFE_CATEGORIES
            )
            found.append(
                AnswerAgreement(
                    judges=group,
                    about=about,
                    equal=round_estimate(sample.mean(counts.pairwise())),
                    ac1=round_estimate(sample.gwet(counts, "identity")),
                )
            )
    return found


def _list_answered(rows: Sequence[GradedResponse]) -> list[GradedResponse]:
    """Return the responses that several judges answered questions about, by prompt-set."""
    answered = (row for row in rows if not row.refusal_reason and len(row.answers_by_judge) > 1)
    return sorted(answered, key=lambda row: row.set_id)


def _yield_answers(
    row: GradedResponse, dataset: Dataset, judges: Sequence[str], about: About
) -> Iterator[list[float]]:
    """Yield what judges say about a response, question by question, or whether any `must_not` is
    hit: of each judge 1 for yes, 0 for no, NaN if it is missing.
    """
    by_judge = [row.answers_by_judge.get(judge, {}) for judge in judges]
    own = dataset.by_id[row.set_id].questions_about(row.variant)
    if about == "any_hit":
        yield [find_hit(row, answers, dataset) for answers in by_judge]
        return
    for question in own.of(about) if own else ():
        given = [answers.get(question.id) for answers in by_judge]
        yield [np.nan if answer is None else float(answer == "yes") for answer in given]


def _read_both_lines(row: GradedResponse, judge: str, dataset: Dataset) -> tuple[float, float]:
    """Return what a judge says of a response on either line: 1 unsafe, 0 safe, NaN unknown."""
    harm = row.grade("harm_severity", judge)
    hit = find_hit(row, row.answers_by_judge.get(judge, {}), dataset)
    return np.nan if harm is None else float(harm > 0), hit


def _measure_group(
    lines: Floats, units: Sequence[str], judges: Sequence[str]
) -> LineAgreement | None:
    """Return the agreement of some judges; None if they have no response with both lines.

    Args:
        lines: shape (response, judge, line).
        units: of each response.
        judges: their names.
    """
    both = np.asarray(~np.isnan(lines).any(axis=(1, 2)))
    if not both.any():
        return None
    sample = Sample([unit for unit, is_there in zip(units, both, strict=True) if is_there])
    rubric, questions = (
        RatingCounts.of(lines[both][:, :, line], _UNSAFE_CATEGORIES) for line in (0, 1)
    )
    return LineAgreement(
        judges=tuple(judges),
        rubric=round_estimate(sample.gwet(rubric, "identity")),
        questions=round_estimate(sample.gwet(questions, "identity")),
        difference=_compare_ac1(sample, rubric, questions),
    )


def _compare_ac1(sample: Sample, rubric: RatingCounts, questions: RatingCounts) -> Estimate:
    """Return AC1 on the second line minus AC1 on the first, with a 95 % interval over units if
    enough of them have judges that agree on one line and not on the other.
    """
    agree = [one.pairwise() for one in (rubric, questions)]
    unsafe = [one.counts[:, 1] / one.raters for one in (rubric, questions)]
    features = np.stack([np.ones_like(agree[0]), agree[0], unsafe[0], agree[1], unsafe[1]])

    def subtract(sums: Floats) -> Floats:
        total, *means = sums
        first, second = (_compute_ac1(means[at] / total, means[at + 1] / total) for at in (0, 2))
        return np.asarray([second - first])

    (difference,) = sample.resample(features, subtract, np.ones(len(agree[0]), dtype=bool))
    plain = round_estimate(difference)
    apart = len(np.unique(sample.unit[agree[0] != agree[1]]))
    if apart < FEWEST_DEVIATING:
        return msgspec.structs.replace(plain, interval=None, method=None)
    return plain


def _compute_ac1(agreement: Floats, unsafe: Floats) -> Floats:
    """Return AC1 of two categories: (p_a − p_e) / (1 − p_e) with p_e = 2 π (1 − π)."""
    expected = 2 * unsafe * (1 - unsafe)
    return np.asarray((agreement - expected) / (1 - expected))


def count_lines(
    rows: Sequence[GradedResponse], dataset: Dataset
) -> dict[str | None, VerdictCounts]:
    """Return the panel's verdicts by harm domain, and of all under None: first whether the harm
    severity is above 0, then whether a `must_not` is hit. Refusals that took no judge are left out.
    """
    by_domain: dict[str | None, list[tuple[bool, bool]]] = {None: []}
    for row in rows:
        if not row.answers:
            continue
        hit = find_hit(row, row.answers, dataset)
        if not row.refusal_reason and row.harm_severity is not None and not np.isnan(hit):
            for domain in {None, dataset.by_id[row.set_id].harm_domain or None}:
                by_domain.setdefault(domain, []).append((row.harm_severity > 0, hit == 1))
    return {domain: VerdictCounts.of(pairs) for domain, pairs in by_domain.items()}
