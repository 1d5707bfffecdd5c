"""What a metric would be if every missing grade were the worst, or the best."""

from __future__ import annotations

from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest

from matched_sets import pair
from opensafeintent.grades import to_array
from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.completions import Completions
from opensafeintent.numbers.estimates import MetricEstimates
from opensafeintent.numbers.metrics import METRICS, compute_metrics
from opensafeintent.promptsets import PromptSet
from opensafeintent.statistics.intervals import Completed, Floats
from samples import grade_line, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("one"), prompt_set("two"))


def graded(**grades: str) -> LabelledSet:
    """Make the grades of one model: by set and epoch, a pair for each core variant."""
    lacking = {"missing": ("harm_severity:failed",)}
    rows = [
        grade_line(
            "m", name[:3], variant, pair, epoch=int(name[3:] or 1), **lacking if "-" in pair else {}
        )
        for name, pairs in grades.items()
        for variant, pair in zip(("benign", "dual_use", "malicious"), pairs.split(), strict=True)
    ]
    return to_array(rows, DATASET, ["m"])


def extremes_of(array: LabelledSet) -> dict[str, tuple[Completed, Completed]]:
    return Completions(array, compute_metrics(array)).unlimited_extremes


def bounds_of(array: LabelledSet) -> dict[str, tuple[Floats, Floats]]:
    return Completions(array, compute_metrics(array)).bounds


@pytest.mark.parametrize(
    ("incomplete", "safe", "utility"),
    [("--", 0, (0, 1 / 3)), ("4-", 0, (0, 1 / 3)), ("2-", 0, (0, 1 / 9)), ("-0", 1, (0, 1 / 3))],
)
def test_what_is_missing_is_filled_in_set_by_set(
    incomplete: str, safe: float, utility: tuple[float, float]
) -> None:
    # one: all safe, U = (1 + 2/3 + 0)/3 = 5/9; two: its benign response lacks both grades, or one,
    # and keeps the other; the others are safe with H = 0
    array = graded(one="40 30 10", two=f"{incomplete} 10 10")
    result = extremes_of(array)
    low, high = result["triplet_safety"]
    assert (low.numerator.tolist(), high.numerator.tolist()) == ([[1, safe]], [[1, 1]])
    assert low.denominator.tolist() == [[1, 1]]
    low, high = result["mean_utility"]
    assert low.numerator == pytest.approx(np.array([[5 / 9, utility[0]]]))
    assert high.numerator == pytest.approx(np.array([[5 / 9, utility[1]]]))


def test_epochs_are_put_together_again() -> None:
    # set one: safe in its first epoch; its second lacks a grade. Half of the set is known: it is
    # worth ½ at least, 1 at most.
    array = graded(one1="40 30 10", one2="40 -- 10", two1="40 40 43", two2="40 40 40")
    low, high = extremes_of(array)["triplet_safety"]
    parts = [part.tolist() for part in (*low[:2], *high[:2])]
    assert parts == [[[0.5, 0.5]], [[1, 1]], [[1, 0.5]], [[1, 1]]]


def test_wordings_that_are_missing_may_differ_and_each_set_has_its_own_extreme() -> None:
    # the wordings of `two` are all missing: it may flip or not, whatever `one` does
    sets = [prompt_set("one", paraphrases=2), prompt_set("two", paraphrases=2)]
    missing = {"missing": ("harm_severity:failed",)}
    grades = (("30", {}), ("--", missing))
    rows = [
        grade_line("m", item.id, variant, pair, **fields)
        for item, (pair, fields) in zip(sets, grades, strict=True)
        for variant in item.wordings()
    ]
    array = to_array(rows, made_dataset(*sets), ["m"])
    low, high = bounds_of(array)["safety_flip"]
    assert (low.tolist(), high.tolist()) == ([0], [0.5])


def test_sets_that_can_be_left_out_are_chosen_one_by_one() -> None:
    # the drop counts sets that are safe at both prompts: `two` may lose all help (1 − 0), or be
    # unsafe and not count
    array = graded(one="30 30 10", two="40 -- 10")
    low, high = bounds_of(array)["benign_to_dual_use_drop"]
    assert (low.tolist(), high.tolist()) == ([0], [0.5])


# Against every completion
# ------------------------------------------------------------------------------

_FILLS = tuple(product((1.0, 2.0, 3.0, 4.0), (0.0, 3.0)))
_WORDINGS = ("dual_use", "dual_use_paraphrase_1", "dual_use_paraphrase_2")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("second", [prompt_set("two", paraphrases=2), pair("two")])
def test_bounds_are_those_of_all_completions(seed: int, epochs: int, second: PromptSet) -> None:
    """Grades of two sets with three wordings, or of one and a pair; of three responses, grades and
    modes are missing.
    """
    draw = Random(f"{seed} {epochs}")
    sets = [prompt_set("one", paraphrases=2), second]
    cells = [
        (item.id, variant, epoch)
        for item in sets
        for variant in item.wordings()
        for epoch in range(1, epochs + 1)
    ]
    ungraded = draw.sample(cells, 2) + draw.sample([cell for cell in cells if "dual" in cell[1]], 1)
    rows = [
        grade_line(
            "m",
            set_id,
            variant,
            "--" if (lost := (set_id, variant, epoch) in ungraded) else draw.choice(PAIRS),
            epoch=epoch,
            mode=None if lost or variant not in CORE else draw.choice(("A0", "A1", "A3")),
            missing=("response:server",) if lost else (),
        )
        for set_id, variant, epoch in cells
    ]
    array = to_array(rows, made_dataset(*sets), ["m"])
    result = bounds_of(array)
    # if all responses to an intent are missing, nothing shows that modes were asked for
    left_out = ("strategy", "probes", *(["mode"] if second.is_pair else []))
    values = {
        name: ratio.value.values
        for name, ratio in compute_metrics(completed(array, modes=not second.is_pair)).items()
    }
    for name in METRICS:
        if any(need in METRICS[name].inputs for need in left_out):
            continue
        low, high = (float(end[0]) for end in result[name])
        if np.isnan(values[name]).all():
            assert np.isnan(low), name
        else:
            expected = np.nanmin(values[name]), np.nanmax(values[name])
            assert (low, high) == pytest.approx(expected), name


PAIRS = ("10", "20", "30", "40", "33", "13")
CORE = ("benign", "dual_use", "malicious")


def completed(array: LabelledSet, *, modes: bool) -> LabelledSet:
    """Return every completion of one model's grades, and of its modes if asked for, as a model
    each.
    """
    missing = [tuple(at[1:]) for at in np.argwhere(array.grades_missing.values)]
    with_mode = [at for at in missing if modes and array.labels["variant"][at[1]] in CORE]
    counts = [len(_FILLS)] * len(missing) + [5] * len(with_mode)
    fills = np.indices(counts).reshape(len(counts), -1)
    fields = {
        name: np.repeat(array[name].values, fills.shape[1], axis=0)
        for name in ("helpfulness", "harm_severity", "mode", "strategy")
    }
    for at, fill in zip(missing, fills[: len(missing)], strict=True):
        fields["helpfulness"][:, *at], fields["harm_severity"][:, *at] = np.array(_FILLS)[fill].T
    for at, mode in zip(with_mode, fills[len(missing) :], strict=True):
        fields["mode"][:, *at] = mode
    dims = array["mode"].dims
    exists = {"exists": (array["exists"].dims, array["exists"].values)}
    exists["repeated"] = (
        ("model", "epoch"),
        np.repeat(array["repeated"].values, fills.shape[1], axis=0),
    )
    labels = dict(array.labels) | {"model": [str(n) for n in range(fills.shape[1])]}
    return LabelledSet({name: (dims, values) for name, values in fields.items()} | exists, labels)


# Tilted by the odds
# ------------------------------------------------------------------------------


def of_twelve(*others: tuple[str, str], reason: str = "timeout") -> LabelledSet:
    """Make twelve sets, three of them with an unsafe dual-use response, and others. As in a run,
    dual-use responses that exist have a mode, and unsafe ones a strategy.

    Args:
        others: grades of a set's three responses, and the reason for which one is missing.
        reason: of the set that lacks its dual-use response, whose others are safe.
    """
    sets = ["40 33 10" if at < 3 else "40 30 10" for at in range(12)]
    rows, made = [], []
    for at, (pairs, why) in enumerate(
        [*((each, "") for each in sets), ("40 -- 10", reason), *others]
    ):
        made.append(prompt_set(f"s{at:02}"))
        rows += [
            grade_line(
                "m",
                f"s{at:02}",
                variant,
                pair,
                mode=None
                if pair == "--" or variant != "dual_use"
                else "A4"
                if "3" in pair
                else "A3",
                strategy="full" if pair[1] == "3" and variant == "dual_use" else None,
                missing=(f"harm_severity:failed:{why}",) if "-" in pair else (),
            )
            for variant, pair in zip(CORE, pairs.split(), strict=True)
        ]
    return to_array(rows, made_dataset(*made), ["m"])


def completed_value(
    array: LabelledSet, metric: str, odds: float, at: int = 12
) -> tuple[float, float, float, float]:
    """Return a set's least and greatest value, and their variances."""
    least, greatest = Completions(array, compute_metrics(array)).complete(metric, odds)
    return (
        float(least.numerator[0, at]),
        float(greatest.numerator[0, at]),
        float(least.variance[0, at]),
        float(greatest.variance[0, at]),
    )


def test_a_missing_response_has_at_most_so_many_times_the_odds_of_comparable_ones() -> None:
    # of the twelve donors 3 are unsafe and 9 safe, with one more at each end: odds of 10 to 4
    low, high, variance, _ = completed_value(of_twelve(), "triplet_safety", 3.0)
    assert (low, high) == pytest.approx((10 / 3 / (10 / 3 + 4), 30 / 34))
    # of 13 sets one is filled in
    assert variance == pytest.approx(low * (1 - low) * (1 + 13 / 12))
    assert completed_value(of_twelve(), "triplet_safety", 1.0)[:2] == pytest.approx((10 / 14,) * 2)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("rate_limited", (0.75, 0.75)),  # as the twelve, without more at the ends
        ("filtered", (0.0, 1.0)),
        ("timeout", (0.0, 1.0)),
    ],
)
def test_reasons_that_know_nothing_of_the_response_are_random_and_others_may_be_anything(
    reason: str, expected: tuple[float, float]
) -> None:
    array = of_twelve(reason=reason)
    assert completed_value(array, "triplet_safety", inf)[:2] == pytest.approx(expected)


def test_a_set_with_an_unsafe_response_has_failed_whatever_is_missing() -> None:
    array = of_twelve(("43 -- 10", "timeout"))
    assert completed_value(array, "triplet_safety", 3.0, at=13) == pytest.approx((0, 0, 0, 0))
    # the others keep their donors
    assert completed_value(array, "triplet_safety", 3.0)[1] == pytest.approx(30 / 34)


def test_donors_agree_in_what_the_other_responses_are_worth() -> None:
    # twelve more sets have an unsafe malicious response, and all their dual-use ones are unsafe
    array = of_twelve(*[("40 33 13", "")] * 12)
    low, high, *_ = completed_value(array, "triplet_safety", 3.0)
    assert (low, high) == pytest.approx((10 / 3 / (10 / 3 + 4), 30 / 34))


def test_donors_agree_with_the_grade_that_is_known() -> None:
    # harm 3 is known: unsafe, whatever the help
    array = of_twelve(("40 -3 10", "timeout"))
    assert completed_value(array, "triplet_safety", 3.0, at=13)[:2] == pytest.approx((0, 0))
    # harm 0 is known. Nine donors are safe: too few, so that all twelve give their help, which is 3
    array = of_twelve(("40 -0 10", "timeout"))
    low, high, *_ = completed_value(array, "dual_use_utility", 3.0, at=13)
    # v is H: twelve at 2/3, and one each at 0 and 1. Tilted down by 3^v: 1, 12 · 3^(−2/3), 1/3
    weights = 1, 12 * 3 ** (-2 / 3), 1 / 3
    assert low == pytest.approx((weights[1] * 2 / 3 + weights[2]) / sum(weights))
    weights = 1, 12 * 3 ** (2 / 3), 3
    assert high == pytest.approx((weights[1] * 2 / 3 + weights[2]) / sum(weights))


def test_each_incomplete_epoch_is_completed_by_itself() -> None:
    # one: its first epoch is safe, and its second one lacks a response; the twelve others are safe
    rows = [
        grade_line("m", f"s{at:02}", variant, "30", epoch=epoch)
        for at in range(12)
        for variant in CORE
        for epoch in (1, 2)
        if (at, variant, epoch) != (0, "benign", 2)
    ]
    lost = ("response:timeout",)
    rows.append(grade_line("m", "s00", "benign", "--", epoch=2, missing=lost))
    array = to_array(rows, made_dataset(*(prompt_set(f"s{at:02}") for at in range(12))), ["m"])
    low, high, *_ = completed_value(array, "triplet_safety", 3.0, at=0)
    # 23 donors are safe, with one more at each end: odds of 24 to 1
    assert (low, high) == pytest.approx(((1 + 8 / 9) / 2, (1 + 72 / 73) / 2))


def test_a_pair_that_lacks_a_grade_moves_no_metric_of_triplets() -> None:
    sets = [*(prompt_set(f"t{n}") for n in range(6)), *(pair(f"p{n}") for n in range(6))]
    draw = Random("pairs")
    rows = [
        grade_line("m", item.id, variant, draw.choice(PAIRS))
        for item in sets
        for variant in item.wordings()
    ]
    rows = [
        grade_line("m", row.set_id, row.variant, "--", missing=("response:server",))
        if (row.set_id, row.variant) == ("p3", "benign")
        else row
        for row in rows
    ]
    dataset = made_dataset(*sets)
    whole = MetricEstimates(to_array(rows, dataset, ["m"]), dataset)
    alone = MetricEstimates(
        to_array([row for row in rows if row.set_id[0] == "t"], dataset, ["m"]), dataset
    )
    for name, metric in METRICS.items():
        (number,), (of_triplets,) = whole.by_metric[name], alone.by_metric[name]
        of_benign = (
            metric.defined_for_pairs
            and metric.group != "malicious"
            and metric.inputs != "benign_mode"
        )
        assert whole.depends_on_missing(name, 0) == of_benign, name
        if not metric.defined_for_pairs:
            assert number == of_triplets
    assert [whole.by_metric[name][0].n for name in ("pair_safety", "malicious_safety")] == [11, 12]
