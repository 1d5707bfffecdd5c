"""Judges against people: ties, several raters, graded labels, groups, panels, and large files."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.gold_cases import JudgeSetting
from opensafeintent.evaluation.labelled_responses import LabelledFile, LabelledResponse
from opensafeintent.numbers.label_checks import (
    CheckedSetting,
    LabelCheck,
    compare_labels,
    draw_balanced,
)
from opensafeintent.people.agreement import gather_grades
from opensafeintent.ratings import Ratings
from opensafeintent.taxonomy import KnownGrades

SETTING = CheckedSetting(
    identity="j@1",
    setting=JudgeSetting(templates={"harm": "h"}, parse="strict", sampling=Sampling()),
)


def labelled(
    votes: Sequence[Sequence[int | None]], *, prompts: int = 0, groups: str = "", **fields: Any
) -> LabelledFile:
    """Make responses from people's votes, 1 for unsafe; the k-th person is called k."""
    responses = tuple(
        LabelledResponse(
            location=f"row {index}",
            prompt=f"P{index % prompts}" if prompts else "",
            response=f"R{index}",
            group=groups[index % len(groups)] if groups else "",
        )
        for index in range(len(votes))
    )
    ratings = Ratings(
        [
            {
                str(rater): {"unsafe": float(vote)}
                for rater, vote in enumerate(given)
                if vote is not None
            }
            for given in votes
        ]
    )
    defaults: dict[str, Any] = {"name": "l.csv", "sha256": "a", "unlabelled": 0}
    return LabelledFile(**(defaults | {"responses": responses, "ratings": ratings} | fields))


def compared(file: LabelledFile, *harm: Sequence[int | None], **fields: Any) -> list[LabelCheck]:
    """Compare judges j0, j1, … that gave these harm grades."""
    judges = [f"j{index}" for index in range(len(harm))]
    drawn = fields.pop("drawn", range(len(file.responses)))
    given = [
        {judge: KnownGrades(harm_severity=grade) for judge, grade in zip(judges, item, strict=True)}
        for item in zip(*harm, strict=True)
    ]
    members = dict.fromkeys(judges, SETTING)
    return list(compare_labels(file, list(drawn), gather_grades(given, judges), members, **fields))


def test_ties_are_left_out_and_counted_both_ways() -> None:
    # 2 unsafe, 2 safe, 2 ties; the judge flags one unsafe, no safe one, and one tie
    file = labelled([(1, 1), (1, 1), (0, 0), (0, 0), (1, 0), (1, 0)])
    (check,) = compared(file, [3, 0, 0, 0, 1, 0])
    assert (check.source.yes, check.source.no, check.source.ties) == (2, 2, 2)
    assert (check.catches.count, check.catches.n) == (1, 2)
    safe, unsafe = check.sides
    assert (safe.yes, unsafe.yes) == (False, True)
    assert (safe.judge.catches.value, unsafe.judge.catches.value) == (0.5, 0.5)  # 1 of 2, 2 of 4
    assert (safe.judge.false_alarms.value, unsafe.judge.false_alarms.value) == (0.25, 0.0)
    assert safe.people is None  # no single call depends on the side
    assert [case.location for case in check.cases] == ["row 1"]
    assert (check.cases[0].say_yes, check.cases[0].people, check.cases[0].grade) == (2, 2, 0)


def refusals(labels: Sequence[tuple[float, float, float | None]], groups: str = "") -> LabelledFile:
    """Make responses with two people's calls of refusal and what they settled on."""
    said = [
        {"1": {"refused": first}, "2": {"refused": second}}
        | ({} if settled is None else {"": {"refused": settled}})
        for first, second, settled in labels
    ]
    return labelled([(0,)] * len(labels), ratings=Ratings(said), called="refused")


def helped(file: LabelledFile, *grades: Sequence[int | None]) -> list[LabelCheck]:
    """Compare judges j0, j1, … that gave these grades of helpfulness."""
    judges = [f"j{index}" for index in range(len(grades))]
    given = [
        {judge: KnownGrades(helpfulness=grade) for judge, grade in zip(judges, item, strict=True)}
        for item in zip(*grades, strict=True)
    ]
    drawn = list(range(len(given)))
    members = dict.fromkeys(judges, SETTING)
    return list(compare_labels(file, drawn, gather_grades(given, judges), members))


def test_little_help_is_held_against_refusal_and_what_people_settled_on_counts() -> None:
    # settled: refused, refused, partial, answered, answered; without: a tie
    labels = [(1, 1, 1), (0, 1, 1), (0.5, 1, 0.5), (0, 0, 0), (0.5, 0, 0), (0, 1, None)]
    (check,) = helped(refusals(labels), [1, 3, 2, 4, 2, 2])
    source = check.source
    assert (source.called, source.raters) == ("refused", 2)
    assert (source.yes, source.no, source.ties) == (2, 2, 2)
    assert (check.catches.count, check.catches.n) == (1, 2)
    assert (check.false_alarms.count, check.false_alarms.n) == (1, 2)
    found = [(case.location, case.grade, case.say_yes, case.people) for case in check.cases]
    assert found == [("row 1", 3, 1, 2), ("row 4", 2, 0, 2)]
    assert check.if_people_err is None


def test_a_partial_refusal_counts_once_on_each_side_for_judge_and_person() -> None:
    labels = [(1, 1, 1), (0.5, 1, 0.5), (0, 0, 0), (0, 0.5, 0)]
    (check,) = helped(refusals(labels), [1, 2, 3, 2])
    (together, first, _) = check.people
    # a pair with a partial call is left out
    assert (together.person.agreement.count, together.person.agreement.n) == (4, 4)
    assert (first.judge.catches.count, first.judge.false_alarms.n) == (1, 1)
    assert (together.person.ac1.value, together.judge.ac1.value) == (1.0, 1.0)
    answered, refused = check.sides
    assert [side.judge.catches.n for side in check.sides] == [1, 2]
    assert [side.judge.false_alarms.count for side in check.sides] == [2, 1]
    assert answered.people is not None and refused.people is not None
    # as answered: pairs 1-1, 0-1, 0-0, 0-0, each both ways; as refused: 1-1, 1-1, 0-0, 0-1
    for people in (answered.people, refused.people):
        assert (people.person.agreement.count, people.person.agreement.n) == (6, 8)
    assert (answered.people.judge.agreement.count, refused.people.judge.agreement.count) == (5, 7)


def test_agreement_beyond_chance_of_all_pairs_is_that_of_the_two_people() -> None:
    # p_a = 3/4; π = 3/8; p_e = 2 π (1 − π) = 15/32; AC1 = (3/4 − 15/32) / (17/32) = 9/17
    (check,) = helped(refusals([(1, 1, 1), (0, 1, 1), (0, 0, 0), (0, 0, 0)]), [1, 1, 4, 4])
    together, first, second = check.people
    for rates in (together, first, second):
        assert rates.person.ac1.value == pytest.approx(9 / 17)


def test_a_person_and_the_judge_meet_the_same_majorities() -> None:
    """By construction, a person is part of the majority of all; the judge is not."""
    # the three differ once each, the judge never from the majority
    votes = [(1, 1, 1), (0, 0, 0), (0, 1, 1), (0, 1, 0), (1, 1, 0)]
    (check,) = compared(labelled(votes), [1, 0, 1, 0, 1])
    assert check.agreement.value == 1.0
    together, *each = check.people
    # others of person 0: rows 0, 1, 2 have a majority; rows 3 and 4 are ties without them
    first = each[0]
    assert (first.person.agreement.count, first.person.agreement.n) == (2, 3)
    assert (first.judge.agreement.count, first.judge.agreement.n) == (3, 3)
    assert (
        together.person.agreement.n
        == together.judge.agreement.n
        == sum(item.person.agreement.n for item in each)
    )


def test_graded_labels_have_errors_and_any_harm_is_unsafe() -> None:
    ratings = [(0, 4), (1, 3), (3, 1)]
    responses = tuple(
        LabelledResponse(
            location=f"row {harm}",
            prompt="P",
            response=f"R{harm}",
            group="",
        )
        for harm, _ in ratings
    )
    said = [
        {"": {"unsafe": float(harm > 0), "harm_severity": harm, "helpfulness": helpfulness}}
        for harm, helpfulness in ratings
    ]
    file = labelled([], responses=responses, ratings=Ratings(said))
    given = [{"j": KnownGrades(*grades)} for grades in ((4, 0), (4, 2), (None, 1))]
    (check,) = compare_labels(file, [0, 1, 2], gather_grades(given, ["j"]), {"j": SETTING})
    assert check.source.yes == 2
    helpfulness, harm = check.errors
    assert (harm.mae.value, harm.bias.value) == pytest.approx((1.0, -1 / 3))
    assert (helpfulness.responses, helpfulness.mae.value) == (2, 0.5)


def test_one_class_alone_leaves_the_other_rate_undefined() -> None:
    (check,) = compared(labelled([(0,)] * 20), [0] * 18 + [1] * 2)
    assert check.catches.value is None
    assert check.catches.undefined == "people call no response unsafe"
    assert check.false_alarms.value == pytest.approx(0.1)
    assert check.precision.value == 0.0
    assert check.if_people_err is None and check.people == ()


def test_missing_grades_are_left_out_and_counted_by_label() -> None:
    (check,) = compared(labelled([(1,), (1,), (0,), (1, 0)]), [None, 2, None, None])
    assert (check.missing_yes, check.missing_no, check.missing_ties) == (1, 1, 1)
    assert (check.catches.count, check.catches.n) == (1, 1)


def test_a_panel_is_compared_and_judges_with_one_another() -> None:
    file = labelled([(1,), (1,), (0,), (0,)])
    first, second, third, panel = compared(file, [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0])
    assert panel.judge == "panel" and set(panel.members) == {"j0", "j1", "j2"}
    assert panel.agreement.value == 1.0  # the majority of the three is right each time
    (against_second, _) = first.pairs
    assert (against_second.other, against_second.only_this, against_second.only_other) == (
        "j1",
        1,
        1,
    )
    assert against_second.difference.value == 0.0
    assert third.pairs[0].difference.value == pytest.approx(0.25)
    assert panel.pairs == () and len(second.pairs) == 2


@pytest.mark.parametrize("people", [2, 3])
def test_a_panel_is_worth_independent_judges_with_three_people_or_more(people: int) -> None:
    # 40 unsafe, 40 safe; each judge misses four unsafe ones, two of them in common
    file = labelled([(1,) * people] * 40 + [(0,) * people] * 40)
    first = [0, 0, 0, 0] + [3] * 36 + [0] * 40
    second = [3, 3, 0, 0, 0, 0] + [3] * 34 + [0] * 40
    *single, panel = compared(file, first, second)
    assert all(check.independent is None for check in single)
    assert panel.independent is not None
    if people == 2:
        assert panel.independent.value is None and "three people" in (
            panel.independent.undefined or ""
        )
        return
    # of 80 errors 0 or -1: mean 1/20 each, variance 19/400, covariance 2/80 - 1/400 = 9/400
    r = 9 / 19
    assert panel.independent.value == pytest.approx(2 / (1 + r), abs=1e-6)


def test_groups_have_counts_and_texts_are_hidden() -> None:
    file = labelled([(1,), (0,)] * 12, groups="ab")
    (check,) = compared(file, [0] * 24)
    rates = {item.group: item for item in check.groups}
    assert (rates["a"].catches.count, rates["a"].catches.n) == (0, 12)
    assert rates["b"].catches.n == 0 and rates["b"].false_alarms.interval is not None
    assert b"R0" not in msgspec.json.encode(check)
    (shown,) = compared(file, [0] * 24, include_unsafe=True)
    assert shown.cases[0].response == "R0"


def test_a_sample_is_even_over_labels_and_part_of_a_larger_one() -> None:
    file = labelled([(1,)] * 30 + [(0,)] * 970 + [(1, 0)] * 10)
    small, large = (draw_balanced(file, number) for number in (30, 90))
    assert len(small) == 30 and set(small) < set(large)
    truth = [len(file.ratings.by_item[index]) == 2 for index in small]
    assert sum(truth) == 10 and sum(index < 30 for index in small) == 10
    assert draw_balanced(file, 5000) == list(range(1010))
    (check,) = compared(file, [1 if index < 30 else 0 for index in large], drawn=large)
    assert check.source.sampled and check.agreement.value == 1.0


def vote(unsafe: int, generator: random.Random, errs: float) -> list[int]:
    """Return the votes of three people who err independently."""
    return [unsafe ^ (generator.random() < errs) for _ in range(3)]


def test_a_rate_that_people_make_too_high_is_cut_and_marked() -> None:
    # the judge is right where people are: it agrees with every majority, and so catches more than
    # all if some majorities are wrong by chance
    generator = random.Random(3)
    votes = [vote(index % 2, generator, 0.15) for index in range(200)]
    (check,) = compared(labelled(votes), [int(sum(each) > 1) for each in votes])
    found = check.if_people_err
    assert found is not None and found.cut
    rate = found.judge_catches
    assert (rate.value, rate.interval, rate.method) == (1.0, None, None)
    # two people cannot tell whose error it was
    (two,) = compared(labelled([each[:2] for each in votes]), [each[0] for each in votes])
    assert two.people and two.if_people_err is None


@pytest.mark.slow
def test_intervals_hold_the_rates_of_a_judge_whose_people_err() -> None:
    generator, held, studies = random.Random(11), 0, 80
    for _ in range(studies):
        truth = [int(generator.random() < 0.3) for _ in range(300)]
        votes = [vote(unsafe, generator, 0.12) for unsafe in truth]
        harm = [int(generator.random() < (0.8 if unsafe else 0.05)) for unsafe in truth]
        (check,) = compared(labelled(votes), harm)
        found = check.if_people_err
        assert found is not None and found.judge_catches.interval
        low, high = found.judge_catches.interval
        held += low <= 0.8 <= high
    assert held >= 0.9 * studies


@pytest.mark.slow
def test_twenty_thousand_responses_by_three_people_take_seconds() -> None:
    generator = random.Random(5)
    truth = [int(generator.random() < 0.2) for _ in range(20_000)]
    votes = [[vote ^ (generator.random() < 0.1) for _ in range(3)] for vote in truth]
    file = labelled(votes, prompts=7000, groups="abc")
    harm = [vote ^ (generator.random() < 0.05) for vote in truth]
    began = time.process_time()
    (check,) = compared(file, harm)
    assert time.process_time() - began < 20
    # the majority errs in 3·.1²·.9 + .1³ = 2.8 % of the responses, independently of the judge
    assert check.agreement.value == pytest.approx(0.95 * 0.972 + 0.05 * 0.028, abs=0.006)
    found = check.if_people_err
    assert found is not None and not found.cut
    assert (found.missed, found.false_alarms) == pytest.approx((0.028, 0.028), abs=0.003)
    for rate, true in ((found.judge_catches, 0.95), (found.judge_false_alarms, 0.05)):
        assert rate.low is not None and rate.high is not None
        assert rate.low <= true <= rate.high and rate.high - rate.low < 0.04
    assert check.catches.low is not None and check.catches.high is not None
    assert check.catches.high - check.catches.low < 0.03
