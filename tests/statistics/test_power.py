"""What a decision is expected to cost, and what precision calls buy."""

from __future__ import annotations

import numpy as np
import pytest

from opensafeintent.metrics import METRICS
from opensafeintent.statistics.decisions import Design, Question, design_of, take_look
from opensafeintent.statistics.power import (
    Components,
    Differences,
    affordable,
    assumed_components,
    assumed_differences,
    components_of,
    differences_of,
    expected,
    power_rows,
    precision_rows,
    usual_truths,
)


def threshold(sets: int, at: float = 0.8, kind: str = "at_least") -> Design:
    question = Question(metric="triplet_safety", kind=kind, threshold=at)  # type: ignore[arg-type]
    return design_of(question, sets, confidence=0.95, families=1, binary=True, span=(0.0, 1.0))


def pair(sets: int, metric: str, margin: float | None = None) -> Design:
    kind = "better" if margin is None else "not_worse"
    question = Question(metric=metric, kind=kind, model="a", against="b", margin=margin)  # type: ignore[arg-type]
    found = METRICS[metric]
    return design_of(question, sets, confidence=0.95, families=1, binary=found.binary, span=found.span)


@pytest.mark.slow
def test_what_is_expected_of_a_threshold_is_what_looks_show() -> None:
    design = threshold(42)
    generator = np.random.default_rng(2)
    verdicts, used = [], []
    for _ in range(300):
        values = (generator.random(42) < 0.6).astype(float)
        looks, before = [], 0
        for planned in design.looks:
            looks.append(take_look(design, looks, values[before:planned]))
            before = planned
            if looks[-1].verdict:
                break
        verdicts.append(looks[-1].verdict)
        used.append(looks[-1].planned)
    row = expected(design, 0.6, calls_per_set=9)
    assert row.no == pytest.approx(verdicts.count("no") / 300, abs=0.06)
    assert row.sets == pytest.approx(np.mean(used), abs=2)
    assert row.calls == pytest.approx(9 * row.sets)
    assert row.yes + row.no + row.undecided == pytest.approx(1, abs=1e-5)


def test_at_the_threshold_each_verdict_errs_within_alpha_and_far_away_a_decision_is_cheap() -> None:
    for sets in (42, 115, 700):
        at, far = expected(threshold(sets), 0.8), expected(threshold(sets), 0.4)
        assert at.yes <= 0.05 and at.no <= 0.05
        assert far.no > 0.99 and far.share < at.share
    assert expected(threshold(700), 0.6).share <= 0.15
    assert expected(threshold(700), 0.9).share <= 0.3


def test_at_most_mirrors_at_least() -> None:
    up, down = expected(threshold(115, 0.8), 0.9), expected(threshold(115, 0.2, "at_most"), 0.1)
    assert up.yes == pytest.approx(down.yes) and up.sets == pytest.approx(down.sets)


def test_a_pair_of_equals_is_rarely_decided_and_a_clear_one_early() -> None:
    design = pair(700, "mean_utility")
    equal, clear = expected(design, 0.0), expected(design, 0.1)
    assert equal.undecided > 0.85 and equal.yes < 0.07 and equal.no < 0.07
    assert clear.yes > 0.99 and clear.share < 0.3
    assert expected(pair(115, "safety_flip"), -0.3).yes > 0.9  # fewer flips are better
    assert expected(pair(700, "triplet_safety", 0.1), 0.0).yes > 0.9


def test_differences_of_a_run_are_moved_to_the_truth_that_is_asked_for() -> None:
    run = differences_of(np.array([0.0] * 80 + [1 / 3] * 10 + [-1 / 3] * 8 + [np.nan] * 5), width=1.0, source="run a")
    assert run is not None and run.source == "run a"
    assert run.values == (-1.0, -0.333333, 0.0, 0.333333, 1.0)
    assert run.shares == pytest.approx((0, 8 / 98, 80 / 98, 10 / 98, 0))
    narrow, wide = (
        expected(pair(115, "mean_utility"), 0.05, differences=each) for each in (run, assumed_differences(binary=False))
    )
    assert narrow.yes > wide.yes
    # two models that never differed: any other truth needs values that were not seen
    same = differences_of(np.zeros(50), width=1.0, source="run b")
    assert same is not None
    assert expected(pair(115, "mean_utility"), 0.2, differences=same).yes > 0.5
    assert differences_of(np.full(3, np.nan), width=1.0, source="") is None


def test_a_plan_shows_the_value_tested_and_values_around_it() -> None:
    assert usual_truths(threshold(115)) == (0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
    assert usual_truths(pair(115, "mean_utility")) == (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
    assert 0.1 in usual_truths(pair(115, "safety_flip", 0.1))  # of what should not happen, more is worse
    assert [row.truth for row in power_rows(threshold(115))] == list(usual_truths(threshold(115)))


def test_a_budget_is_a_number_of_sets() -> None:
    assert affordable(700, 9, None) == 700
    assert affordable(700, 9, 900) == 100
    assert affordable(700, 9, 10**6) == 700


def test_components_by_hand() -> None:
    # Two judges, two epochs, sets 0, .5 and 1 throughout but for one response of the last set, which one judge gives 0:
    # judges differ in 1 of 6 responses by 1: variance (1/2) / 6 once each judge's own mean is taken away: the means differ by
    # 1/6, so differences of -1/6 five times and 5/6 once: (5/36 + 25/36) / 2 / 6 = 30/432 = .069444
    values = np.array([[[0.0, 0.0]] * 2, [[0.5, 0.5]] * 2, [[1.0, 1.0], [1.0, 0.0]]])
    found = components_of(values, source="run a")
    assert found is not None and found.source == "run a"
    assert found.judges == pytest.approx(30 / 432, abs=1e-6)
    # responses: judges' means of the last set 1 and .5, variance .125, of the others 0: .125 / 3, less half of the judges'
    assert found.epochs == pytest.approx(0.125 / 3 - 30 / 864, abs=1e-6)
    # sets: 0, .5, .75: variance .145833, less half of .125 / 3
    assert found.sets == pytest.approx(0.145833 - 0.125 / 6, abs=1e-6)


def test_components_come_back_from_a_simulated_run() -> None:
    generator = np.random.default_rng(1)
    shape = (4000, 3, 2)
    values = generator.normal(0, 0.3, (4000, 1, 1)) + generator.normal(0, 0.2, (4000, 3, 1)) + generator.normal(0, 0.1, shape)
    values += np.array([0.0, 0.4])  # a judge that is stricter throughout is not noise
    values[::50, 0, 0] = np.nan
    found = components_of(values, source="")
    assert found is not None
    assert (found.sets, found.epochs, found.judges) == pytest.approx((0.09, 0.04, 0.01), rel=0.1)


def test_what_a_run_cannot_tell_is_assumed_and_said() -> None:
    values = np.random.default_rng(0).random((200, 1, 1))
    found = components_of(values, source="run a")
    assert found is not None
    assert "two epochs would tell" in found.source and "two judges would tell" in found.source
    assert found.sets + found.epochs + found.judges == pytest.approx(values.var(ddof=1), abs=1e-5)
    assert components_of(np.ones((1, 2, 2)), source="") is None
    assumed = assumed_components(binary=True)
    assert assumed.sets + assumed.epochs + assumed.judges == pytest.approx(0.25, abs=1e-5)


def test_sets_win_until_they_run_out() -> None:
    components = Components(sets=0.1, epochs=0.1, judges=0.05, source="")
    rows = precision_rows(components, 700, target_calls=3, judge_calls=6, budget_calls=1800)
    best = [row for row in rows if row.best]
    assert [(row.sets, row.epochs, row.judges) for row in best] == [(200, 1, 1)]
    # by hand: (.1 + .1 + .05) / 200 = .00125, whose root is .035355; half the width 1.96 times that
    assert best[0].se == pytest.approx(0.035355, abs=1e-6)
    assert best[0].half_width == pytest.approx(0.069295, abs=1e-6)
    assert all(row.calls <= 1800 for row in rows)
    # with 40 sets there are, the same budget goes into epochs and judges: 40 x 5 x (3 + 6) = 1800
    rows = precision_rows(components, 40, target_calls=3, judge_calls=6, budget_calls=1800)
    best = [row for row in rows if row.best]
    assert best[0].sets == 40 and best[0].epochs * best[0].judges > 1
    assert precision_rows(components, 40, target_calls=3, judge_calls=6, budget_calls=8) == ()


def test_a_plan_of_differences_names_its_source() -> None:
    assert "assumed" in assumed_differences(binary=True).source
    assert sum(assumed_differences(binary=False).shares) == pytest.approx(1)
    assert isinstance(assumed_differences(binary=True), Differences)
