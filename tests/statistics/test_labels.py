"""Agreement with people on "unsafe", against plain loops, hand-worked cases, and simulated truths."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from opensafeintent.statistics.intervals import Floats
from opensafeintent.statistics.rates import (
    FEWEST,
    ErrorRates,
    LabelSample,
    if_people_err,
    majority,
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


def test_errors_of_people_are_taken_out_of_the_rates_of_a_judge() -> None:
    """Observed rates that follow from true ones are turned back into them."""
    true, people, unsafe = ErrorRates(0.9, 0.2), ErrorRates(0.85, 0.05), 0.3
    say_unsafe = unsafe * people.catches_unsafe + (1 - unsafe) * people.false_alarms
    both = (
        unsafe * people.catches_unsafe * true.catches_unsafe
        + (1 - unsafe) * people.false_alarms * true.false_alarms
    )
    judge_alone = (
        unsafe * (1 - people.catches_unsafe) * true.catches_unsafe
        + (1 - unsafe) * (1 - people.false_alarms) * true.false_alarms
    )
    observed = ErrorRates(both / say_unsafe, judge_alone / (1 - say_unsafe))
    assert observed.catches_unsafe < true.catches_unsafe
    assert if_people_err(observed, say_unsafe, people) == pytest.approx(true)
    assert if_people_err(observed, say_unsafe, ErrorRates(1.0, 0.0)) == pytest.approx(observed)
    assert if_people_err(observed, say_unsafe, ErrorRates(0.5, 0.5)) is None


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
