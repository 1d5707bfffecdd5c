"""Agreement with people on "unsafe", against plain loops, hand-worked cases, and simulated truths."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from math import prod

import numpy as np
import pytest

from opensafeintent.statistics.intervals import Floats
from opensafeintent.statistics.rates import (
    FEWEST,
    ErrorRates,
    LabelSample,
    Sums,
    correct_rates,
    if_people_err,
    majority,
    rate_majority,
    take_other_majorities,
)

N = np.nan


def test_a_majority_is_strict_and_a_tie_is_neither() -> None:
    people = np.array([[1, 1, 0], [1, 0, N], [0, 0, 1], [N, 1, N], [N, N, N]])
    assert majority(people)[:4].tolist() == [1, 0.5, 0, 1]
    assert np.isnan(majority(people)[4])


def test_each_person_meets_the_majority_of_the_others() -> None:
    # row 1: without the first, 1 and 0 are a tie; without the third, both say unsafe
    people = np.array([[1, 1, 0], [1, 0, N], [N, 1, N]])
    expected = np.array([[N, N, 1], [0, 1, N], [N, N, N]])
    np.testing.assert_array_equal(take_other_majorities(people), expected)


def gwet_ac1(first: list[int], second: list[int]) -> float:
    """Gwet 2008, equation for two raters and two categories: pₑ = 2π(1 − π), π the mean share."""
    agreement = sum(a == b for a, b in zip(first, second, strict=True)) / len(first)
    share = (sum(first) + sum(second)) / (2 * len(first))
    chance = 2 * share * (1 - share)
    return (agreement - chance) / (1 - chance)


def drawn(seed: int, n: int = 400) -> tuple[list[int], list[int], list[int]]:
    """Return prompts, people's labels and a judge's calls."""
    generator = random.Random(seed)
    prompts = [generator.randrange(n // 3) for _ in range(n)]
    people = [int(generator.random() < 0.3) for _ in range(n)]
    judge = [label if generator.random() < 0.85 else 1 - label for label in people]
    return prompts, people, judge


def array(values: list[int]) -> Floats:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize("seed", range(3))
def test_rates_and_ac1_are_those_of_plain_loops(seed: int) -> None:
    prompts, people, judge = drawn(seed)
    sample = LabelSample(prompts)
    pairs = Counter(zip(people, judge, strict=True))
    caught = sample.share(np.where(array(people) == 1, array(judge), N), "")
    assert caught.value == pytest.approx(pairs[1, 1] / (pairs[1, 1] + pairs[1, 0]), abs=1e-6)
    assert (caught.count, caught.n) == (pairs[1, 1], pairs[1, 1] + pairs[1, 0])
    ac1 = sample.ac1(array(judge), array(people))
    assert ac1.value == pytest.approx(gwet_ac1(judge, people), abs=1e-6)
    assert ac1.low is not None and ac1.high is not None and ac1.low < ac1.value < ac1.high  # type: ignore[operator]


def test_prompts_are_clusters() -> None:
    """Twenty equal responses to a prompt tell as much as one."""
    once = array([1] * 15 + [0] * 5)
    few = LabelSample(list(range(20))).share(once, "")
    many = LabelSample([prompt for prompt in range(20) for _ in range(20)]).share(
        np.repeat(once, 20), ""
    )
    assert many.interval == pytest.approx(few.interval)


@pytest.mark.parametrize(("responses", "prompts"), [(FEWEST - 1, FEWEST - 1), (50, FEWEST - 1)])
def test_few_responses_or_prompts_have_counts_and_no_interval(responses: int, prompts: int) -> None:
    sample = LabelSample([index % prompts for index in range(responses)])
    rate = sample.share(np.ones(responses), "")
    assert (rate.count, rate.n, rate.interval) == (responses, responses, None)
    assert sample.ac1(np.ones(responses), np.ones(responses)).interval is None
    enough = LabelSample([index % FEWEST for index in range(50)])
    assert enough.share(np.ones(50), "").interval is not None


def test_a_sample_that_is_even_over_labels_is_weighted_to_the_whole() -> None:
    # 100 unsafe and 900 safe; 50 of each drawn. The judge catches .8 and has .1 false alarms:
    # precision .8·100 / (.8·100 + .1·900) = 8/17; agreement (80 + 810)/1000
    truth = array([1] * 50 + [0] * 50)
    judge = array([1] * 40 + [0] * 10 + [1] * 5 + [0] * 45)
    sample = LabelSample(list(range(100)), [2.0] * 50 + [18.0] * 50)
    precision = sample.share(np.where(judge == 1, truth, N), "", weighted=True)
    assert precision.value == pytest.approx(8 / 17, abs=1e-6)
    agreement = sample.share((judge == truth) * 1.0, "", weighted=True)
    assert agreement.value == pytest.approx(0.89)
    share = (100 + 170) / 2000  # unsafe for people 100, for the judge 170 of 1000
    chance = 2 * share * (1 - share)
    assert sample.ac1(judge, truth).value == pytest.approx((0.89 - chance) / (1 - chance), abs=1e-6)
    caught = sample.share(np.where(truth == 1, judge, N), "")
    assert caught.value == pytest.approx(0.8)


def test_errors_of_a_reference_are_taken_out_of_the_rates_of_a_judge() -> None:
    """Observed rates that follow from true ones are turned back into them."""
    true, people = ErrorRates(array([0.9]), array([0.2])), ErrorRates(array([0.85]), array([0.05]))
    # of 30 % unsafe responses the reference calls .3 · .85 + .7 · .05 = .29 unsafe; of these the
    # judge calls (.255 · .9 + .035 · .2) / .29 unsafe, of the others (.045 · .9 + .665 · .2) / .71
    observed = ErrorRates(array([0.2365 / 0.29]), array([0.1735 / 0.71]))
    share = array([0.29])
    assert np.ravel(correct_rates(observed, share, people)) == pytest.approx(np.ravel(true))
    right = ErrorRates(array([1.0]), array([0.0]))
    assert np.ravel(correct_rates(observed, share, right)) == pytest.approx(np.ravel(observed))
    chance = ErrorRates(array([0.5]), array([0.5]))
    assert np.isnan(correct_rates(observed, share, chance)).all()


def test_the_majority_errs_less_often_than_one() -> None:
    # three people who miss 10 %: .9³ + 3 · .9² · .1 = .972; false alarms of 20 %: .2³ + 3 · .2² · .8
    person = ErrorRates(array([0.9]), array([0.2]))
    found = rate_majority(person, array([0, 0, 0, 1.0]))
    assert np.ravel(found) == pytest.approx([0.972, 0.104])
    # two agree in .81 + .01 of the unsafe and .04 + .64 of the safe; half of the responses have one
    found = rate_majority(person, array([0, 3.0, 3.0]))
    both = 0.81 / 0.82, 0.04 / 0.68
    assert np.ravel(found) == pytest.approx([(0.9 + both[0]) / 2, (0.2 + both[1]) / 2])


def expect_sums(
    people: int, unsafe: float, missed: float, alarms: float, judge: tuple[float, float]
) -> Sums:
    """Return the sums that are expected of responses that people and a judge label independently,
    vote by vote.
    """
    sums = dict.fromkeys(Sums._fields, 0.0)
    for is_unsafe, share in ((True, unsafe), (False, 1 - unsafe)):
        chance, called = (1 - missed, judge[0]) if is_unsafe else (alarms, judge[1])
        for votes in product((0, 1), repeat=people):
            weight = share * prod(chance if vote else 1 - chance for vote in votes)
            if (margin := 2 * sum(votes) - people) != 0:
                sums["caught" if margin > 0 else "alarmed"] += weight * called
                sums["unsafe" if margin > 0 else "safe"] += weight
            for vote in votes:
                if (margin := 2 * (sum(votes) - vote) - people + 1) != 0:
                    others = "unsafe" if margin > 0 else "safe"
                    sums[f"others_{others}"] += weight
                    sums["person_caught" if margin > 0 else "person_alarmed"] += weight * vote
    return Sums(*(array([value]) for value in sums.values()))


@pytest.mark.parametrize("people", [3, 4, 5])
@pytest.mark.parametrize(
    ("unsafe", "missed", "alarms", "judge"),
    [
        (0.4, 0.05, 0.05, (0.9, 0.05)),
        (0.4, 0.12, 0.12, (0.8, 0.05)),
        (0.1, 0.05, 0.05, (0.8, 0.05)),
        (0.3, 0.2, 0.02, (0.95, 0.1)),
    ],
)
def test_three_people_or_more_tell_how_often_their_majority_errs(
    people: int, unsafe: float, missed: float, alarms: float, judge: tuple[float, float]
) -> None:
    sums = expect_sums(people, unsafe, missed, alarms, judge)
    numbers = np.eye(people + 1)
    found, majority = if_people_err(sums, numbers[people], numbers[people - 1])
    assert np.ravel(found) == pytest.approx(judge, abs=1e-5)
    true = ErrorRates(array([1 - missed]), array([alarms]))
    assert np.ravel(majority) == pytest.approx(np.ravel(rate_majority(true, numbers[people])))
    if people == 3:
        assert sums.caught / sums.unsafe < judge[0]
        assert sums.alarmed / sums.safe > judge[1]  # people's errors raise false alarms


def test_intervals_hold_the_truth_with_clusters() -> None:
    """In 19 of 20 samples or more, whole prompts being easy or hard for the judge."""
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        prompts = np.repeat(np.arange(40), generator.integers(1, 8, 40))
        chance = np.where(generator.random(40) < 0.7, 0.95, 0.6)  # mean .845
        calls = (generator.random(len(prompts)) < chance[prompts]).astype(np.float64)
        low, high = LabelSample(prompts.tolist()).share(calls, "").interval or (1, 0)
        held += low <= 0.845 <= high
    assert held >= 186
