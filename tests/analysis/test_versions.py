"""Versions in order: the trend, the sets that newly fail, and how many would with nothing changed, worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from opensafeintent.analysis.groups import Group, group_studies
from opensafeintent.analysis.versions import (
    Order,
    Step,
    Turnover,
    Version,
    Versions,
    order_groups,
    slope,
    slopes,
    steps_of,
    turnover,
)
from opensafeintent.statistics import Resamples
from report.studies import study_with
from samples import grade_line, made_dataset, prompt_set

IDS = [f"s{n}" for n in range(6)]


def floats(*values: float | None) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


# The trend -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "expected"),
    [(2, [-1, 1]), (3, [-1 / 2, 0, 1 / 2]), (4, [-0.3, -0.1, 0.1, 0.3])],  # (v − v̄) over Σ (v − v̄)²: 1/2, 2, 5
)
def test_what_each_version_weighs_in_a_slope(versions: int, expected: list[float]) -> None:
    assert slopes(versions).tolist() == pytest.approx(expected)


def test_a_slope_by_hand() -> None:
    # of three versions a set's slope is (last − first) / 2: here 1/2, 0, −1/2 · 0.4, 1/2 · 0.6; the fifth set is not in the
    # second version and counts nowhere. Mean: (0.5 + 0 − 0.2 + 0.3) / 4 = 0.15
    top = np.array([[0, 1, 0.9, 0.2, 1], [1, 0, 0.1, 0.3, 0], [1, 1, 0.5, 0.8, 1]], dtype=np.float64)
    bottom = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=np.float64)
    found = slope(top, bottom, (0.0, 1.0), Resamples(5))
    assert (found.value, found.n) == (pytest.approx(0.15), 4)
    assert found.low is not None
    assert found.high is not None
    assert -0.5 <= found.low < 0.15 < found.high <= 0.5  # a slope over three versions is at most ± 1/2


def test_sets_weigh_in_a_slope_as_they_do_in_the_metric() -> None:
    # slopes 1/2 and 0; the first set weighs three times as much: (3 · 1/2 + 0) / 4
    top, bottom = np.array([[0, 1], [0, 1], [3, 1]], dtype=np.float64), np.array([[3, 1]] * 3, dtype=np.float64)
    assert slope(top, bottom, (0.0, 1.0), Resamples(2)).value == pytest.approx(3 / 8)


def test_a_line_is_its_own_trend() -> None:
    values = np.array([[0.1], [0.3], [0.5], [0.7], [0.9]]) + np.zeros(40)
    assert slope(values, np.ones_like(values), (0.0, 1.0), Resamples(40)).value == pytest.approx(0.2)


def test_where_no_set_is_in_every_version_there_is_no_trend() -> None:
    bottom = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float64)
    found = slope(bottom, bottom, (0.0, 1.0), Resamples(2))
    assert (found.value, found.n, found.interval) == (None, 0, None)


# Newly failing, mended, and chance -------------------------------------------------------------------------------------


def turned(p: Sequence[float | None], e: Sequence[int], q: Sequence[float | None], f: Sequence[int]) -> Turnover:
    counts = floats(*e), floats(*f)
    return turnover((floats(*p), counts[0]), (floats(*q), counts[1]), IDS[: len(p)], Resamples(len(p)))


def test_one_repeat_counts_whole_sets_and_knows_nothing_of_chance() -> None:
    found = turned([1, 1, 1, 0, 0, None], [1] * 5 + [0], [1, 0, 0, 1, 0, 1], [1] * 6)
    assert (found.n, found.failing, found.mended) == (5, 2, 1)
    assert [change.set_id for change in found.newly_failing] == ["s1", "s2"]
    assert [change.set_id for change in found.newly_mended] == ["s3"]
    assert (found.expected, found.failing_excess, found.mended_excess) == (None, None, None)


def test_repeats_by_hand() -> None:
    # three repeats before and two after.       p   q    p(1−q)  (1−p)q
    # s0: 2 of 3, then 1 of 2                   2/3 1/2  1/3     1/6
    # s1: always, then never                    1   0    1       0
    # s2: always safe                           1   1    0       0
    found = turned([2 / 3, 1, 1], [3, 3, 3], [1 / 2, 0, 1], [2, 2, 2])
    assert found.failing == pytest.approx(4 / 3, abs=1e-6)
    assert found.mended == pytest.approx(1 / 6, abs=1e-6)
    # E/(E − 1) · p(1 − p): before 3/2 · 2/3 · 1/3 = 1/3, after 2/1 · 1/2 · 1/2 = 1/2, on average 5/12; of the others 0
    assert found.expected == pytest.approx(5 / 12, abs=1e-6)
    assert found.failing_excess is not None
    assert found.mended_excess is not None
    assert found.failing_excess.value == pytest.approx(4 / 3 - 5 / 12, abs=1e-5)
    assert found.mended_excess.value == pytest.approx(1 / 6 - 5 / 12, abs=1e-5)
    assert [(change.set_id, change.before, change.after) for change in found.newly_failing] == [
        ("s1", 1, 0),
        ("s0", pytest.approx(2 / 3, abs=1e-6), 0.5),
    ]


def test_chance_is_half_of_the_pairs_of_repeats_that_disagree() -> None:
    for safe, repeats in ((1, 2), (1, 3), (2, 4), (5, 7)):
        outcomes = [1] * safe + [0] * (repeats - safe)
        pairs = list(combinations(outcomes, 2))
        found = turned([safe / repeats], [repeats], [1], [1])
        assert found.expected == pytest.approx(sum(a != b for a, b in pairs) / len(pairs) / 2, abs=1e-6)


def test_sets_without_repeats_are_taken_to_be_like_those_that_have_them() -> None:
    # of the four sets two were repeated: chance is 1/2 and 0 there, ¼ on average, so 1 of the four
    found = turned([1 / 2, 1, 1, 0], [2, 2, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1])
    assert found.expected == pytest.approx(1)


def test_a_set_that_changed_for_good_is_no_chance() -> None:
    found = turned([1] * 6, [5] * 6, [0] * 6, [5] * 6)
    assert (found.failing, found.mended, found.expected) == (6, 0, 0)
    assert found.failing_excess is not None
    assert found.failing_excess.low is not None
    assert found.failing_excess.low > 0


def test_with_nothing_changed_as_many_newly_fail_as_were_expected() -> None:
    # 4,000 sets of any probability: Σ p(1 − p) of them, half of what repeats of one version disagree in
    generator = np.random.default_rng(5)
    p = generator.beta(0.5, 0.5, size=4000)
    truth = float((p * (1 - p)).sum())
    for before, after in ((2, 2), (3, 1), (1, 4)):
        shares = [generator.binomial(repeats, p) / repeats for repeats in (before, after)]
        counts = [np.full(4000, float(repeats)) for repeats in (before, after)]
        ids = [str(number) for number in range(4000)]
        found = turnover((shares[0], counts[0]), (shares[1], counts[1]), ids, Resamples(4000, count=400))
        assert found.expected == pytest.approx(truth, rel=0.06)
        assert found.failing == pytest.approx(truth, rel=0.12)
        assert found.mended == pytest.approx(truth, rel=0.12)


def test_nothing_in_common_is_no_number() -> None:
    found = turned([1, None], [2, 0], [None, 1], [0, 2])
    assert (found.n, found.failing, found.mended, found.expected) == (0, 0, 0, None)


# Three runs ------------------------------------------------------------------------------------------------------------

SETS = made_dataset(*(prompt_set(f"s{n}") for n in range(4)))
SAFE = {"v1": ("1111", "1111"), "v2": ("1101", "1111"), "v3": ("0101", "0011")}
"""By run, which sets are safe across intents in the first and in the second repeat."""


def three_runs() -> tuple[Group, Versions]:
    studies = []
    for run, repeats in SAFE.items():
        rows = [
            grade_line("m", f"s{n}", variant, "40" if variant != "malicious" or safe == "1" else "41", epoch=epoch)
            for epoch, sets in enumerate(repeats, start=1)
            for n, safe in enumerate(sets)
            for variant in ("benign", "dual_use", "malicious")
        ]
        studies.append(study_with(rows, SETS, ["m"], name=run))
    (group,) = group_studies(studies)
    order_groups([group], Order(versions=tuple(Version(run=run) for run in SAFE), lines=(("m", "m", "m"),)))
    assert group.versions is not None
    return group, group.versions


def test_a_line_goes_through_the_runs_in_the_order_named() -> None:
    group, versions = three_runs()
    (line,) = versions.lines
    assert (line.name, line.models) == ("m", ("m [v1]", "m [v2]", "m [v3]"))
    assert [group.models[place] for place in line.places] == list(line.models)
    assert steps_of(3) == [Step(0, 1), Step(1, 2), Step(0, 2)]
    assert steps_of(2) == [Step(0, 1)]


def test_changes_are_later_minus_earlier_and_the_trend_is_their_slope() -> None:
    _, versions = three_runs()
    (line,) = versions.lines
    # Triplet Safety: 8, 7 and 4 of the 8 repeats of sets
    changes = [line.change("triplet_safety", step) for step in line.steps]
    assert [found.value for found in changes if found] == [-1 / 8, -3 / 8, -4 / 8]
    assert line.trends["triplet_safety"].value == pytest.approx(-4 / 8 / 2)


def test_turnovers_of_the_runs_by_hand() -> None:
    _, versions = three_runs()
    first, second = versions.lines[0].turnovers
    # v1 to v2: s2 falls from 2 of 2 to 1 of 2. Chance in v1: 0; in v2: 2 · ½ · ½ = ½ of s2; the mean is ¼
    assert (first.failing, first.mended, first.expected) == (0.5, 0, 0.25)
    # v2 to v3: s0 2/2 → 0/2 fails whole, s1 2/2 → 1/2 half, s2 1/2 → 1/2 a quarter of either, s3 stays
    assert (second.failing, second.mended) == (1.75, 0.25)
    # chance: v2 has ½ of s2, v3 ½ of s1 and ½ of s2; the mean over both is (½ + 1) / 2
    assert second.expected == pytest.approx(0.75)
    assert versions.repeated


def test_a_model_that_another_group_holds_is_no_line_of_this_one() -> None:
    group, _ = three_runs()
    group.versions = None
    order_groups([group], Order(versions=(Version(run="v1"), Version(run="v9")), lines=(("m", "m"),)))
    assert group.versions is None
