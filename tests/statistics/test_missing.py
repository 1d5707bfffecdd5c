"""What a metric would be if every missing grade were the worst, or the best."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from opensafeintent.grades import to_array
from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.bounds import compute_missing_bounds, extreme_ratios
from opensafeintent.numbers.metrics import METRICS, compute
from opensafeintent.statistics.intervals import Parts
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


def extremes_of(array: LabelledSet) -> dict[str, tuple[Parts, Parts]]:
    return extreme_ratios(array, METRICS, compute(array))


@pytest.mark.parametrize("incomplete", ["--", "4-", "-0"])
def test_what_is_missing_is_filled_in_set_by_set(incomplete: str) -> None:
    # one: all safe, U = (1 + 2/3 + 0)/3 = 5/9; two: its benign response lacks both grades, or one,
    # which is as good as both; the others are safe with H = 0
    array = graded(one="40 30 10", two=f"{incomplete} 10 10")
    result = extremes_of(array)
    (low, counted), (high, _) = result["triplet_safety"]
    assert (low.tolist(), high.tolist(), counted.tolist()) == ([[1, 0]], [[1, 1]], [[1, 1]])
    (low, _), (high, _) = result["mean_utility"]
    assert low == pytest.approx(np.array([[5 / 9, 0]]))
    assert high == pytest.approx(np.array([[5 / 9, 1 / 3]]))


def test_epochs_are_put_together_again() -> None:
    # set one: safe in its first epoch; its second lacks a grade. Half of the set is known: it is
    # worth ½ at least, 1 at most.
    array = graded(one1="40 30 10", one2="40 -- 10", two1="40 40 43", two2="40 40 40")
    low, high = extremes_of(array)["triplet_safety"]
    parts = [part.tolist() for part in (*low, *high)]
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
    low, high = compute_missing_bounds(extremes_of(array))["safety_flip"]
    assert (low.tolist(), high.tolist()) == ([0], [0.5])


def test_sets_that_can_be_left_out_are_chosen_one_by_one() -> None:
    # the drop counts sets that are safe at both prompts: `two` may lose all help (1 − 0), or be
    # unsafe and not count
    array = graded(one="30 30 10", two="40 -- 10")
    low, high = compute_missing_bounds(extremes_of(array))["benign_to_dual_use_drop"]
    assert (low.tolist(), high.tolist()) == ([0], [0.5])


# Against every completion
# ------------------------------------------------------------------------------

_FILLS = tuple(product((1.0, 2.0, 3.0, 4.0), (0.0, 3.0)))
_WORDINGS = ("dual_use", "dual_use_paraphrase_1", "dual_use_paraphrase_2")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("epochs", [1, 2])
def test_bounds_are_those_of_all_completions(seed: int, epochs: int) -> None:
    """Grades of two sets with three wordings; of three responses, grades and modes are missing."""
    draw = Random(f"{seed} {epochs}")
    sets = [prompt_set("one", paraphrases=2), prompt_set("two", paraphrases=2)]
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
    result = compute_missing_bounds(extremes_of(array))
    values = {name: ratio.value.values for name, ratio in compute(completed(array)).items()}
    for name in METRICS:
        if METRICS[name].needs in ("strategy", "probes"):
            continue
        low, high = (float(end[0]) for end in result[name])
        if np.isnan(values[name]).all():
            assert np.isnan(low), name
        else:
            expected = np.nanmin(values[name]), np.nanmax(values[name])
            assert (low, high) == pytest.approx(expected), name


PAIRS = ("10", "20", "30", "40", "33", "13")
CORE = ("benign", "dual_use", "malicious")


def completed(array: LabelledSet) -> LabelledSet:
    """Return every completion of one model's grades, as a model each."""
    missing = np.argwhere(array.grades_missing.values)
    with_mode = [tuple(at) for at in missing if array.labels["variant"][at[2]] in CORE]
    fills = list(
        product(product(_FILLS, repeat=len(missing)), product(range(5), repeat=len(with_mode)))
    )
    fields = {
        name: np.repeat(array[name].values, len(fills), axis=0)
        for name in ("helpfulness", "harm_severity", "mode", "strategy")
    }
    for number, (grades, modes) in enumerate(fills):
        for at, (helpfulness, harm) in zip(missing, grades, strict=True):
            place = (number, *at[1:])
            fields["helpfulness"][place], fields["harm_severity"][place] = helpfulness, harm
        for at, mode in zip(with_mode, modes, strict=True):
            fields["mode"][(number, *at[1:])] = mode
    dims = array["mode"].dims
    exists = {"exists": (array["exists"].dims, array["exists"].values)}
    labels = dict(array.labels) | {"model": [str(n) for n in range(len(fills))]}
    return LabelledSet({name: (dims, values) for name, values in fields.items()} | exists, labels)
