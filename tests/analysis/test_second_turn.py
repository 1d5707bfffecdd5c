"""The second turn: models and judges made up for the purpose, their effects worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from opensafeintent.numbers.estimates import AVERAGE
from opensafeintent.numbers.gates import describe_second_turn_reach
from opensafeintent.numbers.second_turn import MEASURES, SecondTurn
from opensafeintent.statistics import estimate
from opensafeintent.statistics.comparisons import adjust_confidence
from report.judge_studies import panel_row
from report.runs import cohort_of, many_sets, run_with
from report.second_turns import (
    Model,
    calibrated,
    coin,
    complies_with_all,
    helps_second,
    refuses_all,
    regraded,
    stays_refused,
    turn_run,
)
from samples import made_dataset, prompt_set


def turn_of(models: dict[str, Model], sets: int = 42, **options: object) -> SecondTurn:
    turn = cohort_of(turn_run(models, sets, **options)).second_turn  # type: ignore[arg-type]
    assert turn is not None
    return turn


def values_of(turn: SecondTurn, model: str = "m") -> dict[str, float | None]:
    return {name: number.value for name, number in turn.numbers[model].items()}


@pytest.mark.parametrize(
    ("model", "benign", "malicious", "insist", "lock_in"),
    [
        # direct and second turn: utility, safety, safety; every set has the same grades
        (calibrated, (1, 1), (1, 1), (1, 1), 0),
        (stays_refused, (1, 0), (1, 1), (1, 1), 1),
        (helps_second, (1, 1), (1, 0), (1, 1), 0),
        (refuses_all, (0, 0), (1, 1), (1, 1), 0),
        (complies_with_all, (1, 1), (0, 0), (0, 0), 0),
    ],
)
def test_models_worked_out_by_hand(
    model: Model,
    benign: tuple[int, int],
    malicious: tuple[int, int],
    insist: tuple[int, int],
    lock_in: int,
) -> None:
    turn = turn_of({"m": model})
    values = values_of(turn)
    for measure, (before, after) in zip(MEASURES, (benign, malicious, insist), strict=False):
        assert (values[measure.direct], values[measure.follow_up]) == (before, after)
        assert values[measure.effect] == after - before
    assert (values["lock_in"], values["opened_up"]) == (lock_in, 0)
    assert values["opened_up_minus_lock_in"] == -lock_in
    assert all(number.n == 42 for number in turn.numbers["m"].values())
    assert turn.coverage["m"].counted == turn.coverage["m"].planned == 3 * 42
    assert not turn.lacks_grades


def test_what_a_first_turn_does_to_some_sets_only() -> None:
    # of 40 sets, 10 lose all help in the second turn and 4 gain it: (4 − 10) / 40
    def some(set_id: str, variant: str, epoch: int) -> str:
        number = int(set_id[1:])
        if variant == "benign":
            return "10" if number < 4 else "40"
        if variant == "follow_up_benign":
            return "10" if number >= 30 else "40"
        return calibrated(set_id, variant, epoch)

    values = values_of(turn_of({"m": some}, 40))
    assert values["history_effect_benign"] == pytest.approx(-6 / 40)
    assert values["lock_in"] == pytest.approx(10 / 40)
    assert values["opened_up"] == pytest.approx(4 / 40)
    assert values["opened_up_minus_lock_in"] == pytest.approx(-6 / 40)


def test_the_interval_is_that_of_a_difference_for_all_primary_effects_at_once() -> None:
    models = {"a": calibrated, "b": stays_refused, "baseline/refuse-all": refuses_all}
    turn = turn_of(models)
    ones = np.ones((1, 42))
    for model, tests in {"a": 4, "b": 4, "baseline/refuse-all": 1}.items():
        number = turn.numbers[model]["history_effect_malicious"]
        alone = estimate(
            0 * ones, ones, span=(-1.0, 1.0), confidence=adjust_confidence(0.95, tests)
        ).records()
        assert (number.family, number.interval) == (tests, alone[0].interval)
        assert number.p_adjusted == 1 and not number.significant
        assert turn.numbers[model]["insist_effect"].family == 1
    assert turn.numbers["b"]["history_effect_benign"].significant


def test_two_models_are_compared_set_by_set() -> None:
    turn = turn_of({"a": calibrated, "b": stays_refused})
    pair = turn.comparisons["history_effect_benign"].get_difference(0, 1)
    assert pair is not None and (pair.value, pair.n, pair.significant) == (-1, 42, True)
    same = turn.comparisons["history_effect_malicious"].get_difference(0, 1)
    assert same is not None and same.value == 0 and not same.significant


def test_a_model_that_forgets_the_first_turn_is_locked_in_and_opened_up_alike() -> None:
    # with chances from Beta(.7, .3), E p(1 − p) = .7 · .3 / 2 = .105 of the sets are each
    values = values_of(turn_of({"m": coin(3)}, 700))
    assert values["lock_in"] == pytest.approx(0.105, abs=0.04)
    assert values["opened_up"] == pytest.approx(0.105, abs=0.04)
    for measure in MEASURES:
        assert values[measure.effect] == pytest.approx(0, abs=0.06)


def test_second_replies_without_a_first_one_are_missing_with_bounds() -> None:
    def model(set_id: str, variant: str, epoch: int) -> str:
        if set_id == "s0000":
            return "no" if variant.startswith("follow_up") else "10"
        return "30" if variant == "follow_up_benign" else calibrated(set_id, variant, epoch)

    turn = turn_of({"m": model}, 4)
    numbers = turn.numbers["m"]
    # the direct reply of s0000 has no twin: 1 → 2/3 in three sets, and in s0000 0 → 0 or 1
    assert numbers["direct_benign_utility"].value == 1
    effect = numbers["history_effect_benign"]
    assert (effect.value, effect.n) == (pytest.approx(-1 / 3, abs=1e-6), 3)
    assert effect.bounds == (-0.25, 0)
    assert effect.interval and effect.missing_ci
    assert effect.missing_ci[0] <= effect.interval[0] < effect.interval[1] <= effect.missing_ci[1]
    assert numbers["follow_up_benign_utility"].bounds == (0.5, 0.75)
    assert numbers["direct_benign_utility"].bounds is not None
    # of the direct malicious replies all are safe: s0000 may become unsafe, and no safer
    assert numbers["history_effect_malicious"].bounds == (-0.25, 0)
    coverage = turn.coverage["m"]
    assert (coverage.planned, coverage.replies, coverage.counted) == (12, 9, 9)
    assert (coverage.no_first_reply, coverage.missing) == (3, {})
    assert turn.lacks_grades


def test_second_replies_that_were_not_made_are_absent() -> None:
    def model(set_id: str, variant: str, epoch: int) -> str:
        stopped = variant.startswith("follow_up") and set_id in ("s0002", "s0003")
        return "" if stopped else calibrated(set_id, variant, epoch)

    turn = turn_of({"m": model}, 4)
    effect = turn.numbers["m"]["history_effect_benign"]
    assert (effect.n, effect.bounds, effect.missing_ci) == (2, None, None)
    assert (turn.coverage["m"].planned, turn.coverage["m"].replies) == (12, 6)


def test_epochs_are_averaged_first_and_never_paired() -> None:
    # a: half of the direct and half of the second replies help, so D = 0, and a quarter of all
    # pairs is locked in, whichever epoch they are of. b: 1 → 0, and one second reply is missing
    benign = {
        "a": {"benign": ("40", "10"), "follow_up_benign": ("10", "40")},
        "b": {"benign": ("40", "40"), "follow_up_benign": ("10", "--")},
    }

    def model(set_id: str, variant: str, epoch: int) -> str:
        by_epoch = benign[set_id].get(variant)
        return by_epoch[epoch - 1] if by_epoch else calibrated(set_id, variant, epoch)

    dataset = made_dataset(prompt_set("a"), prompt_set("b"))
    turn = turn_of({"m": model}, dataset=dataset, epochs=2)
    assert turn.epochs == 2
    values = values_of(turn)
    assert values["history_effect_benign"] == -0.5
    assert values["lock_in"] == pytest.approx((0.25 + 1) / 2)
    assert values["opened_up"] == pytest.approx(0.25 / 2)
    # b's second mean is between 0 and 1/2
    assert turn.numbers["m"]["history_effect_benign"].bounds == (-0.5, -0.25)
    assert turn.numbers["m"]["lock_in"].bounds == ((0.25 + 0.5) / 2, (0.25 + 1) / 2)
    assert turn.coverage["m"].missing == {"unparsed": 1}


def test_each_judge_of_a_panel_has_its_effect_and_the_panel_counts() -> None:
    dataset = many_sets(12, 0)

    def rows(variants: tuple[str, ...]) -> list[object]:
        # the second judge calls malicious second replies harmful; a tie is unsafe
        return [
            panel_row(
                "m",
                item.id,
                variant,
                {"a": "10", "b": "13" if variant == "follow_up_malicious" else "10"},
            )
            for item in dataset.prompt_sets
            for variant in variants
        ]

    run = run_with(rows(("benign", "dual_use", "malicious")), dataset)  # type: ignore[arg-type]
    follow_ups = rows(("follow_up_benign", "follow_up_malicious", "follow_up_insist"))
    turn = cohort_of(run._replace(follow_ups=follow_ups)).second_turn  # type: ignore[arg-type]
    assert turn is not None
    effect = "history_effect_malicious"
    assert turn.numbers["m"][effect].value == -1
    assert {judge: models["m"][effect].value for judge, models in turn.by_judge.items()} == {
        "a": 0,
        "b": -1,
    }


def test_the_audit_has_the_shift_of_the_judge_alone() -> None:
    dataset = many_sets(20, 0)

    def judge(set_id: str, variant: str, shown: bool) -> str:
        if variant == "benign":
            return "30" if shown else "40"
        return "13" if shown and set_id < "s0010" else "1-" if set_id == "s0019" else "10"

    models = {"a": calibrated, "b": calibrated}
    regrades = [item for model in models for item in regraded(model, dataset, judge)]
    run = turn_run(models, dataset=dataset, in_conversation=regrades)
    turn = cohort_of(run).second_turn
    assert turn is not None and list(turn.audits) == ["a", "b", AVERAGE]
    audit = turn.audits["a"]
    assert (audit.replies, audit.left_out) == (40, 1)
    assert audit.benign_utility.value == pytest.approx(-1 / 3, abs=1e-6)
    assert audit.malicious_safety.value == pytest.approx(-10 / 19, abs=1e-6)
    assert turn.audits[AVERAGE].replies == 80
    assert turn.audits[AVERAGE].malicious_safety.n == 19
    # it is beside the effect, and in no number
    assert turn.numbers["a"]["history_effect_malicious"].value == 0


def test_a_run_without_follow_ups_has_no_second_turn() -> None:
    run = turn_run({"m": calibrated}, 4)
    assert cohort_of(run._replace(follow_ups=[])).second_turn is None


def test_models_that_were_not_asked_are_left_out() -> None:
    run = turn_run({"a": calibrated, "b": stays_refused}, 12)
    asked = [row for row in run.follow_ups if row.model == "b"]
    turn = cohort_of(run._replace(follow_ups=asked)).second_turn
    assert turn is not None and turn.models == ["b"]
    assert turn.numbers["b"]["history_effect_benign"].family == 2


@pytest.mark.parametrize(
    ("sets", "epochs", "models", "alone", "adjusted", "at_best"),
    [
        # at best σ² = 0.2, t(0.975; 43) = 2.017, z = 0.842: E² = (42 · 0.2 + 2) · 44/43 = 10.64, and
        # (2.017 · 3.262 + 0.842 · 0.447 · √42) / 42 = 0.215. With d = 0.273 turned sets,
        # σ² = 0.727 · 0.2 + 0.273 · 0.727 = 0.344: (2.017 · 4.10 + 0.842 · 0.586 · √42) / 42 = 0.273
        (42, 1, 1, 27, 31, 21),
        (42, 3, 1, 23, 26, 14),
        (115, 1, 2, 15, 18, 12),
    ],
)
def test_a_plan_says_which_effect_it_can_see(
    sets: int, epochs: int, models: int, alone: int, adjusted: int, at_best: int
) -> None:
    line = describe_second_turn_reach(sets, epochs, models)
    assert f"with 80 % power from {alone} points on" in line
    assert f"({adjusted} with {2 * models} adjusted tests)" in line
    assert line.endswith(f"at best from {at_best} points on")
