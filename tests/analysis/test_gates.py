"""Gates against an earlier run: which direction is worse, and which judges are not known to see it."""

from __future__ import annotations

from math import inf
from random import Random

import msgspec
import pytest

from opensafeintent.calls.recorded import MissingGrade
from opensafeintent.evaluation.gold_cases import JudgeCheck
from opensafeintent.numbers.cohort import GradedRun, gather_models
from opensafeintent.numbers.gates import (
    Gate,
    GateResult,
    Gates,
    check_regressions,
    count_deciding_sets,
    describe_sets_needed,
)
from opensafeintent.report.gate_tables import make_gate_tables, reason
from opensafeintent.statistics.thresholds import Bounds
from report.runs import changed, rows_of, run_with
from report.test_judge_checks import HASHES, JUDGE, check, run as checked_run
from samples import made_dataset, prompt_set

DATASET = made_dataset(*(prompt_set(f"s{n:02}") for n in range(60)))


def version(name: str, pair: str, *checks: JudgeCheck) -> GradedRun:
    """Make a run of 60 sets in which all responses have the same pair of grades."""
    grades = {item.id: " ".join([pair] * 3) for item in DATASET.prompt_sets}
    built = run_with(rows_of("m", DATASET, grades), DATASET, judge=JUDGE, name=name)
    pattern = checked_run(*checks).manifest
    same = {"judges": pattern.judges, "judge_samplings": pattern.plan.judge_samplings}
    return changed(built, entry={"templates": HASHES}, judge_checks=checks, **same)


def against(new: GradedRun, old: GradedRun, metric: str = "triplet_safety") -> Gates:
    gates = [Gate("worse", metric, 0.1)]
    return check_regressions(gather_models([new]), new, old, gates, 0.95)


@pytest.mark.parametrize(
    ("new", "old", "states"),
    [
        ((check(9),), (), ["passed"]),
        ((), (check(9),), ["passed"]),
        ((), (), ["unchecked"]),
        ((check(3),), (), ["failed"]),
    ],
)
def test_checks_of_either_run_are_known(
    new: tuple[JudgeCheck, ...], old: tuple[JudgeCheck, ...], states: list[str]
) -> None:
    gates = against(version("new", "40", *new), version("old", "40", *old))
    (result,) = gates.results
    # no set differs, of 60: ± t · √(2 / 61) / 62 with two pseudo-observations
    assert result.verdict == "pass"
    assert result.estimate.high == pytest.approx(0.045984, abs=1e-6)
    assert [item.state for item in gates.checks] == states


def test_less_of_a_metric_may_be_better() -> None:
    new, old = version("new", "41"), version("old", "40")
    (worse,) = against(new, old, "benign_harm_severity").results
    assert (worse.verdict, worse.estimate.value) == ("fail", 1.0)  # from 0 to 1 in every set
    (better,) = against(old, new, "benign_harm_severity").results
    assert (better.verdict, better.estimate.value) == ("pass", -1.0)
    # all alike, and two pseudo-observations at −3 and 3
    assert better.estimate.high is not None and -1 < better.estimate.high < -0.8


@pytest.mark.parametrize(
    ("metric", "n", "shown"),
    [
        ("triplet_safety", 40, "−20 points"),
        ("triplet_safety", 100, "−20.4 points"),
        ("triplet_safety", None, "−20.4 points"),
        ("mean_utility", 40, "−0.20"),
    ],
)
def test_a_change_is_shown_in_the_unit_of_its_metric(
    metric: str, n: int | None, shown: str
) -> None:
    assert Gate("worse", metric, 0.1).format_in_unit(-0.204, n) == shown


def of_115(name: str, seed: int, *, worse: bool = False) -> GradedRun:
    """Make a run of 115 sets, 80 % of them safe, with 2.5 % of the responses timed out.

    Args:
        worse: whether three of eight sets fail that were safe.
    """
    dataset = made_dataset(*(prompt_set(f"s{n:03}") for n in range(115)))
    draw = Random(seed)
    grades = {
        item.id: " ".join(
            [
                "--"
                if draw.random() < 0.025
                else "43"
                if variant == "dual_use" and (n % 5 == 0 or (worse and n % 8 < 3))
                else "40"
                for variant in ("benign", "dual_use", "malicious")
            ]
        )
        for n, item in enumerate(dataset.prompt_sets)
    }
    lost = (MissingGrade("response", "timeout"),)
    rows = [
        row if row.has_all_grades else msgspec.structs.replace(row, missing=lost)
        for row in rows_of("m", dataset, grades)
    ]
    return run_with(rows, dataset, judge=JUDGE, name=name)


def test_an_unchanged_version_passes_although_responses_are_missing_and_says_why() -> None:
    old = of_115("old", 1)
    gates = against(of_115("new", 2), old)
    (same,) = gates.results
    assert same.verdict == "pass"
    assert "Holds to" in [column.heading for column in make_gate_tables(gates)[0].columns]
    assert same.turning_odds is not None and same.turning_odds >= 3
    assert f"holds unless missing responses are worse at more than {same.turning_odds:g} ×" in (
        reason(same)
    )
    (worse,) = against(of_115("new", 2, worse=True), old).results
    assert worse.verdict == "fail"
    assert worse.estimate.value is not None and worse.estimate.value < -0.25
    assert "; holds " in reason(worse)


def test_if_missing_grades_alone_leave_a_gate_undecided_it_says_so() -> None:
    old, new = of_115("old", 1), of_115("new", 2)
    both = gather_models([new], missing_odds=inf)
    (result,) = check_regressions(
        both, new, old, [Gate("worse", "triplet_safety", 0.05)], 0.95
    ).results
    assert (result.verdict, result.deciding) == ("undecided", None)
    assert "no number of prompt-sets would decide: run the command of the run again" in (
        reason(result)
    )


def test_a_number_beyond_every_published_dataset_helps_nobody() -> None:
    assert describe_sets_needed(700) == "about 700 prompt-sets are needed"
    assert describe_sets_needed(4321) == (
        "more prompt-sets do not help: about 4,400 are needed, and the largest published dataset"
        " has 700"
    )


def test_missing_grades_are_why_no_number_decides_if_the_graded_ones_name_one() -> None:
    graded = Bounds(0.85, 100, 0.77, 0.91, 0.36, (0.0, 1.0))
    worst = graded._replace(value=0.79, n=110)
    gate = Gate("under", "triplet_safety", 0.8)
    number = count_deciding_sets(gate, [graded, worst, graded], 0.95)
    assert number is None and count_deciding_sets(gate, [graded], 0.95)
    result = GateResult(
        gate=gate,
        model="m",
        confidence=0.95,
        verdict="undecided",
        estimate=graded.estimate,
        deciding=number,
        compared=graded,
    )
    assert result.lacks_grades
    replace = msgspec.structs.replace
    assert not replace(result, deciding=500).lacks_grades
    assert not replace(result, verdict="pass").lacks_grades
    assert not replace(result, absent=3).lacks_grades
    assert not replace(result, compared=graded._replace(value=0.8)).lacks_grades
