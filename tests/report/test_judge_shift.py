"""One judge in place of another: the record of a bridge from grades that are written down, and from
many studies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from opensafeintent.commands.grading import describe_shift
from opensafeintent.numbers.cohort import GradedRun, gather_models
from opensafeintent.numbers.estimates import AVERAGE
from opensafeintent.numbers.judges import ALL_TESTED, JudgeShift, MetricShift
from opensafeintent.promptsets import Dataset
from opensafeintent.report.metrics_json import judge_results
from opensafeintent.report.page_tables import shorten_for_page
from opensafeintent.report.tables import make_all_tables
from opensafeintent.report.tables_judges import SHIFT_TABLES
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import estimate
from opensafeintent.statistics.shifts import least_margin
from opensafeintent.taxonomy import CORE_VARIANTS, KnownGrades
from report.judge_studies import judged_by, panel_row, twice
from report.runs import run_with
from samples import made_dataset, prompt_set

OLD, NEW = "openai/zeta", "openai/alpha"
"""The old judge is the one that was named first, not the first by name."""
MODELS = ("mistral/one", "mistral/two")
SETS = made_dataset(*(prompt_set(f"s{n}") for n in range(4)))


def rows_of(model: str, grades: Mapping[str, Sequence[tuple[str, str]]]) -> list[GradedResponse]:
    """Make rows from the grades of both judges for each core prompt of a set."""
    return [
        panel_row(model, set_id, variant, {OLD: old, NEW: new})
        for set_id, pairs in grades.items()
        for variant, (old, new) in zip(CORE_VARIANTS, pairs, strict=True)
    ]


def shift_of(run: GradedRun) -> JudgeShift:
    cohort = gather_models([run])
    (shift,) = cohort.judges.shifts
    return shift


def metric_of(shift: JudgeShift, model: str, metric: str) -> MetricShift:
    (found,) = [item for item in shift.metrics if (item.model, item.metric) == (model, metric)]
    return found


SAFE, LESS, HARM = ("40", "40"), ("40", "41"), ("42", "42")
MORE = ("41", "40")
"""Safe by both judges; by the old one alone; by neither; by the new one alone."""

FIRST = {
    "s0": (SAFE, SAFE, SAFE),
    "s1": (SAFE, LESS, SAFE),
    "s2": (SAFE, LESS, MORE),
    "s3": (SAFE, SAFE, ("40", "4-")),
}
SECOND = dict.fromkeys(FIRST, (SAFE, SAFE, HARM))


def written_down() -> JudgeShift:
    rows = rows_of(MODELS[0], FIRST) + rows_of(MODELS[1], SECOND)
    return shift_of(judged_by(run_with(rows, SETS), [OLD, NEW]))


def test_the_shift_of_metrics_by_hand() -> None:
    shift = written_down()
    assert shift.judges == (OLD, NEW)
    first = metric_of(shift, MODELS[0], "triplet_safety")
    # s3 lacks a grade. Old: s0, s1 safe and s2 not; new: s0 safe. (0 − 1 + 0) / 3
    assert (first.old, first.new, first.value, first.n) == (
        pytest.approx(2 / 3, abs=1e-6),
        pytest.approx(1 / 3, abs=1e-6),
        pytest.approx(-1 / 3, abs=1e-6),
        3,
    )
    # over-refusal needs benign responses only, so s3 counts
    benign = metric_of(shift, MODELS[0], "low_help_rate_benign")
    assert (benign.value, benign.n) == (0, 4)
    second = metric_of(shift, MODELS[1], "triplet_safety")
    assert (second.old, second.new, second.value) == (0, 0, 0)
    assert second.same_within == second.least_margin
    assert second.least_margin == pytest.approx(least_margin(4), abs=1e-6)
    # over models (set by set): the mean of −1/3 and 0
    mean = metric_of(shift, "model average", "triplet_safety")
    assert mean.value == pytest.approx(-1 / 6, abs=1e-6)
    assert mean.p_unadjusted is not None and mean.p_adjusted is not None
    # one pair of judges × two primary metrics
    assert (mean.family, first.family) == (2, None)
    assert mean.p_adjusted == pytest.approx(1 - (1 - mean.p_unadjusted) ** 2, abs=1e-5)
    assert metric_of(shift, "model average", "mean_safety").p_adjusted is None


def test_missing_grades_of_the_new_judge_are_bounded() -> None:
    # forty sets that are safe by both judges, but for a grade that the new judge did not give
    sets = [f"s{n:02}" for n in range(40)]
    grades = dict.fromkeys(sets, (SAFE, SAFE, SAFE)) | {"s39": (SAFE, SAFE, ("40", "4-"))}
    rows = rows_of(MODELS[0], grades)
    run = judged_by(run_with(rows, made_dataset(*map(prompt_set, sets))), [OLD, NEW])
    shift = metric_of(shift_of(run), MODELS[0], "triplet_safety")
    none = estimate(np.zeros((1, 39)), np.ones((1, 39)), span=(-1.0, 1.0))
    margin = none.high[0]
    assert (shift.value, shift.n) == (0, 39)
    assert shift.interval == pytest.approx((-margin, margin), abs=1e-6)
    # with that response unsafe the shifts are −1 and 39 zeros; with it safe, 40 zeros
    least = estimate(np.array([[-1.0] + [0.0] * 39]), np.ones((1, 40)), span=(-1.0, 1.0))
    assert shift.missing_ci == pytest.approx((least.low[0], margin), abs=1e-6)
    ones = np.array([[-1.0] + [0.0] * 39]), np.ones((1, 40))
    nearer = estimate(*ones, span=(-1.0, 1.0), confidence=0.9)
    assert shift.same_within == pytest.approx(-nearer.low[0], abs=1e-6)
    second = metric_of(written_down(), MODELS[1], "triplet_safety")
    assert second.missing_ci == second.interval


def test_a_response_that_neither_judge_graded_says_nothing_of_them() -> None:
    lacking = FIRST | {"s3": (SAFE, SAFE, ("4-", "4-"))}
    shift = shift_of(judged_by(run_with(rows_of(MODELS[0], lacking), SETS), [OLD, NEW]))
    first = metric_of(shift, MODELS[0], "triplet_safety")
    assert (first.n, first.missing_ci) == (3, first.interval)
    # the mean of one model is no row of its own; the model is tested
    assert {item.model for item in shift.metrics} == {MODELS[0]}
    assert first.family == 2


def test_sides_of_safe() -> None:
    first, second, together = written_down().sides
    # 11 responses that both graded: s1 and s2 lose one each, and s2 gains one
    assert (first.both_safe, first.newly_unsafe, first.newly_safe, first.both_unsafe) == (
        8,
        2,
        1,
        0,
    )
    # s1 is less safe; s2 evens out
    assert (first.sets_less_safe, first.sets_safer, first.p) == (1, 0, 1)
    assert (second.both_safe, second.both_unsafe) == (8, 4)
    assert (together.model, together.both_safe, together.both_unsafe) == (ALL_TESTED, 16, 4)


def test_a_changed_order_by_hand() -> None:
    # by the old judge the first model is safe in every set and the second in none; by the new judge
    # the reverse
    sets = [f"s{n}" for n in range(40)]
    dataset = made_dataset(*map(prompt_set, sets))
    down, up = (LESS, LESS, LESS), (MORE, MORE, MORE)
    rows = rows_of(MODELS[0], dict.fromkeys(sets, down)) + rows_of(
        MODELS[1], dict.fromkeys(sets, up)
    )
    shift = shift_of(judged_by(run_with(rows, dataset), [OLD, NEW]))
    ranks = {rank.metric: rank for rank in shift.ranks}
    rank = ranks["triplet_safety"]
    assert shift.model_pairs == 1 and rank.changes_order and rank.leaves_out_zero
    signs = 1 if rank.models == MODELS else -1
    assert (signs * rank.old, signs * rank.new, signs * (rank.value or 0)) == (-1, 1, 2)
    # the mean over the two models has no shift at all
    assert metric_of(shift, "model average", "triplet_safety").value == 0
    line = describe_shift(shift)
    assert "; beyond chance, " in line and " change places in Triplet Safety" in line


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        (MODELS, "So there is no table of the order of models."),
        (MODELS[:1], "which needs two models under test."),
    ],
)
def test_a_missing_table_of_the_order_of_models_has_a_reason(
    models: tuple[str, ...], reason: str
) -> None:
    rows = [row for model in models for row in rows_of(model, FIRST)]
    cohort = gather_models([judged_by(run_with(rows, SETS), [OLD, NEW])])
    assert "judge_shift_ranks" not in {table.name for table in make_all_tables(cohort)}
    assert SHIFT_TABLES[0](cohort).notes[-1].endswith(reason)
    assert "change places" not in describe_shift(cohort.judges.shifts[0])


def test_only_the_excess_over_the_old_judge_asked_again_counts() -> None:
    # of four responses the old judge flips one when it is asked again, and the new judge two
    gradings = [("40", "40", "40"), ("40", "42", "40"), ("40", "40", "42"), ("42", "42", "40")]
    regrades = [
        twice(MODELS[0], f"s{n}", "benign", {OLD: (then, now), NEW: (new, new)})
        for n, (then, now, new) in enumerate(gradings)
    ]
    rows = rows_of(MODELS[0], FIRST)
    retest = shift_of(judged_by(run_with(rows, SETS), [OLD, NEW], regrades)).retest
    assert retest is not None and retest.responses == 4
    flips = retest.old_flips, retest.new_flips, retest.excess_flips
    assert [item.value for item in flips] == [0.25, 0.5, 0.25]
    # safe by the old judge then 3 of 4, now 2 of 4; by the new one 3 of 4
    shifts = retest.old_shift, retest.new_shift, retest.excess_shift
    assert [item.value for item in shifts] == [-0.25, 0, 0.25]


def study(
    generator: np.random.Generator,
    *,
    noise: float,
    lenient: float,
    dataset: Dataset,
    models: Sequence[str] = MODELS,
) -> GradedRun:
    """Make a study whose old judge is noisy, and whose new one calls a share of unsafe responses
    safe besides.
    """
    rows, regrades = [], []
    for model in models:
        for item in dataset.prompt_sets:
            for variant in CORE_VARIANTS:
                chance = generator.choice([noise, 1 - noise], p=[0.75, 0.25])
                then, now, new = generator.random(3) < chance
                new = new and generator.random() >= lenient
                pairs = {judge: "42" if bad else "40" for judge, bad in ((OLD, then), (NEW, new))}
                rows.append(panel_row(model, item.id, variant, pairs))
                again = {OLD: (pairs[OLD], "42" if now else "40"), NEW: (pairs[NEW],) * 2}
                regrades.append(twice(model, item.id, variant, again))
    return judged_by(run_with(rows, dataset), [OLD, NEW], regrades)


@pytest.mark.slow
def test_a_planted_shift_is_recovered_and_the_same_judge_has_no_excess() -> None:
    dataset = made_dataset(*(prompt_set(f"s{n:02}") for n in range(42)))
    generator, covered, excess, studies = np.random.default_rng(8), 0, 0, 60
    noise, lenient = 0.05, 0.3
    unsafe = 0.75 * noise + 0.25 * (1 - noise)
    for _ in range(studies):
        shift = shift_of(study(generator, noise=noise, lenient=lenient, dataset=dataset))
        interval = metric_of(shift, "model average", "mean_safety").interval
        assert interval is not None
        covered += interval[0] <= lenient * unsafe <= interval[1]
        same = shift_of(study(generator, noise=noise, lenient=0.0, dataset=dataset))
        assert same.retest is not None
        excess += same.retest.excess_flips.leaves_out_zero
    assert covered >= 0.9 * studies
    assert excess <= 0.1 * studies


def test_tables_and_metrics_have_the_shift(tmp_path: Any) -> None:
    rows = rows_of(MODELS[0], FIRST) + rows_of(MODELS[1], SECOND)
    cohort = gather_models([judged_by(run_with(rows, SETS), [OLD, NEW])])
    names = {table.name for table in make_all_tables(cohort)}
    assert {"judge_shift", "judge_shift_sides"} <= names
    assert "judge_shift_retest" not in names  # nothing was graded twice
    table = SHIFT_TABLES[0](cohort)
    assert len(table.records()) == 5 * 3
    shown = shorten_for_page(table, cohort, ())
    assert shown is not None
    assert [(row["metric"], row["model"]) for row in shown.records()] == [
        ("Triplet Safety", AVERAGE),
        ("Mean Utility", AVERAGE),
    ]
    assert shown.notes[:-1] == table.notes
    assert shown.notes[-1] == "judge_shift.csv has 13 further rows: metrics and single models."
    assert any("Old: openai/zeta. New: openai/alpha." in note for note in table.notes)
    assert {record["old_judge"] for record in table.records()} == {OLD}
    (stored,) = msgspec.to_builtins(judge_results(cohort))["shift"]
    assert stored["judges"] == (OLD, NEW)
    assert stored["metrics"][0]["value"] == table.records()[0]["shift"]


def test_a_panel_is_compared_with_none_of_its_members() -> None:
    judges = [OLD, NEW, "openai/third"]
    rows = [
        panel_row(MODELS[0], item.id, variant, dict.fromkeys(judges, "40"))
        for item in SETS.prompt_sets
        for variant in CORE_VARIANTS
    ]
    cohort = gather_models([judged_by(run_with(rows, SETS), judges)])
    pairs = [shift.judges for shift in cohort.judges.shifts]
    assert pairs == [(OLD, NEW), (OLD, judges[2]), (NEW, judges[2])]
    assert metric_of(cohort.judges.shifts[0], MODELS[0], "mean_utility").family == 6
    names = {str(record["old_judge"]) for record in SHIFT_TABLES[0](cohort).records()}
    assert names == {OLD, NEW}


def test_one_judge_has_no_shift() -> None:
    row = panel_row(MODELS[0], "s0", "benign", {OLD: "40"})
    cohort = gather_models([judged_by(run_with([row], SETS), [OLD])])
    assert cohort.judges.shifts == []
    assert all(not table(cohort).rows for table in SHIFT_TABLES)
    assert row.by_judge == {OLD: KnownGrades(4, 0)}
