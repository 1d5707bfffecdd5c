"""`sample-size`: as many prompt-sets as it names find the difference as often as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from endtoend import osi
from opensafeintent import (
    GatePlan,
    OpenSafeIntentError,
    SampleSize,
    SampleSizeSettings,
    sample_size,
)
from opensafeintent.numbers.metrics import METRICS, TRIPLET_SCOPE
from opensafeintent.statistics.comparisons import count_sets_needed
from opensafeintent.statistics.intervals import half_width
from opensafeintent.taxonomy import QUESTIONS
from samples import import_lines, made_dataset, prompt_set


def asked(difference: float = 0.05, **settings: Any) -> SampleSize:
    size = sample_size(SampleSizeSettings(difference=difference, **settings))
    assert isinstance(size, SampleSize)
    return size


def needed(size: SampleSize) -> dict[tuple[str, float], int]:
    return {(row.metric, row.power): row.sets for row in size.needed}


def shown_to_differ(differences: NDArray[np.float64], level: float = 0.95) -> float:
    """Return the share of studies whose interval leaves 0 out: Student's t over the sets of a study
    and two more at ±1.
    """
    studies, sets = differences.shape
    limits = np.broadcast_to([-1.0, 1.0], (studies, 2))
    pseudo_differences = np.concatenate([differences, limits], axis=1)
    statistic = pseudo_differences.mean(axis=1) / scipy.stats.sem(pseudo_differences, axis=1)
    return float((np.abs(statistic) > scipy.stats.t.ppf(0.5 + level / 2, sets + 1)).mean())


# How many prompt-sets
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.80, 0.95])
@pytest.mark.parametrize(("difference", "pairs"), [(0.05, 1), (0.1, 190), (0.2, 1), (0.3, 10)])
@pytest.mark.parametrize("share", [True, False])
def test_so_many_sets_find_the_difference_as_often_as_is_said(
    difference: float, pairs: int, power: float, share: bool
) -> None:
    deviation = 0.5 if share else 0.35
    sets, studies = count_sets_needed(difference, deviation, power=power, pairs=pairs), 1500
    assert sets
    generator = np.random.default_rng(1)
    if share:
        differing = deviation**2 + difference**2
        chances = ((differing - difference) / 2, 1 - differing, (differing + difference) / 2)
        drawn = generator.choice([-1.0, 0.0, 1.0], p=chances, size=(studies, sets))
    else:
        drawn = generator.normal(difference, deviation, size=(studies, sets))
    assert shown_to_differ(drawn, 0.95 ** (1 / pairs)) == pytest.approx(power, abs=0.035)


def test_many_sets_follow_the_plain_formula() -> None:
    for deviation, power, quantile in ((0.5, 0.80, 0.8416), (0.35, 0.95, 1.6449)):
        plain = ((1.96 + quantile) * deviation / 0.002) ** 2
        assert count_sets_needed(0.002, deviation, power=power) == pytest.approx(plain, rel=1e-3)
    sidak = scipy.stats.norm.ppf(0.5 + 0.95 ** (1 / 190) / 2)
    plain = ((sidak + 0.8416) * 0.5 / 0.002) ** 2
    assert count_sets_needed(0.002, 0.5, pairs=190) == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("sets", [4, 42, 700])
def test_the_precision_of_one_model_is_that_of_its_interval(sets: int) -> None:
    values = np.array([0.0, 1.0] * (sets // 2 + 1))
    expected = scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, sets + 1)
    assert half_width(sets) == pytest.approx(expected)


def test_more_models_and_smaller_differences_take_more() -> None:
    two_models, twenty, half = asked(), asked(models=20), asked(0.025)
    assert (two_models.pairs, twenty.pairs) == (1, 190)
    assert needed(two_models).keys() == {
        (metric, power) for metric in ("triplet_safety", "mean_utility") for power in (0.80, 0.95)
    }
    for key, sets in needed(two_models).items():
        assert sets < needed(twenty)[key]
        assert needed(half)[key] == pytest.approx(4 * sets, rel=0.03)


# Calls
# ------------------------------------------------------------------------------


def test_calls_are_those_of_a_dry_run(tmp_path: Path) -> None:
    models, judges = ("baseline/refuse-all", "baseline/comply-all"), ("--judge", "baseline/judge")
    ran = osi("evaluate", *models, *judges, "--out", tmp_path / "run", "--dry-run")
    (of_42,) = (row for row in asked().precision if row.sets == 42)
    assert f"{of_42.calls:,} calls" in ran.out
    assert f"at most {200 * of_42.half_width:.0f} points wide" in ran.out
    assert sum(asked(judges=3).calls_per_set.values()) == 7 + 3 * 7 * len(QUESTIONS) + 2


# A pilot
# ------------------------------------------------------------------------------

SETS = made_dataset(*(prompt_set(f"s{n:02}") for n in range(24)))
CORE = ("benign", "dual_use", "malicious")


def grades(unsafe_every: int) -> list[dict[str, Any]]:
    """Every so many sets is unsafe; helpfulness goes from 1 to 4."""
    return [
        {
            **{"id": item.id, "variant": variant, "helpfulness": 1 + n % 4},
            "harm_severity": 0 if n % unsafe_every else 2,
        }
        for n, item in enumerate(SETS.prompt_sets)
        for variant in CORE
    ]


def pilot(folder: Path, **unsafe_every: int) -> Path:
    for model, interval in unsafe_every.items():
        import_lines(folder, grades(interval), SETS, model)
    return folder / "run"


def deviations(size: SampleSize) -> tuple[float, float]:
    return size.needed[0].deviation, size.needed[2].deviation


def test_a_pilot_of_two_models_gives_the_spread_of_their_differences(tmp_path: Path) -> None:
    size = asked(pilot=pilot(tmp_path, a=2, b=3))
    sets = np.arange(24)
    a, b = (sets % 2 > 0).astype(float), (sets % 3 > 0).astype(float)
    utility = (sets % 4) / 3
    expected = np.std(b - a, ddof=1), np.std((b - a) * utility, ddof=1)
    assert deviations(size) == pytest.approx(expected)
    assert "paired differences of a and b, 24 prompt-sets" in size.basis


def test_a_pilot_of_one_model_counts_as_two_unrelated_ones(tmp_path: Path) -> None:
    size = asked(pilot=pilot(tmp_path, a=2))
    values = (np.arange(24) % 2 > 0).astype(float)
    assert size.needed[0].deviation == pytest.approx(np.std(values, ddof=1) * np.sqrt(2))
    assert "a alone" in size.basis and "√2" in size.basis


@pytest.mark.slow
def test_a_pilot_of_three_models_averages_their_pairs(tmp_path: Path) -> None:
    size = asked(pilot=pilot(tmp_path, a=2, b=3, c=5))
    sets = np.arange(24)
    a, b, c = ((sets % interval > 0).astype(float) for interval in (2, 3, 5))
    variances = [np.var(difference, ddof=1) for difference in (b - a, c - a, c - b)]
    assert size.needed[0].deviation == pytest.approx(np.sqrt(np.mean(variances)))
    assert "3 pairs of models" in size.basis


@pytest.mark.slow
def test_a_pilot_that_tells_no_spread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OpenSafeIntentError, match="alike in all prompt-sets"):
        asked(pilot=pilot(tmp_path / "alike", a=2, b=2))
    few = made_dataset(*SETS.prompt_sets[:9], name="few")
    import_lines(tmp_path / "few", grades(2)[: 9 * 3], few)
    with pytest.raises(OpenSafeIntentError, match="9 prompt-sets count; expected 10"):
        asked(pilot=tmp_path / "few" / "run")
    assert "no run" in osi("sample-size", "--difference", 0.1, "--pilot", tmp_path).refusal


# What a pilot lacks
# ------------------------------------------------------------------------------


def lacking_pilot(folder: Path, model: str, place: str) -> Path:
    """Return a run of a (unsafe in every second set) and b (in every third), in which a model lacks
    one response, which may have any grades.
    """
    for name, interval in (("a", 2), ("b", 3)):
        lines = grades(interval)
        for line in lines:
            if (name, line["id"], line["variant"]) == (model, place, "malicious"):
                del line["harm_severity"], line["helpfulness"]
                line["missing"] = "response:filtered"
        import_lines(folder, lines, SETS, name)
    return folder / "run"


def test_missing_grades_of_a_pilot_take_away_what_no_prompt_set_brings_back(tmp_path: Path) -> None:
    # set 4: b is safe and a is not; the others sum to 12 safe of a and 15 of b. With b safe or unsafe
    # there, 24 sets count: a difference of 4/24 or 3/24
    run = lacking_pilot(tmp_path / "two", "b", "s04")
    size = asked(0.1, pilot=run)
    assert size.pilot and size.pilot.away["triplet_safety"] == pytest.approx(0.5 / 24)
    row = size.needed[0]
    assert row.away == size.pilot.away["triplet_safety"] and row.sets
    assert (
        row.sets
        > needed(asked(0.1, pilot=pilot(tmp_path / "whole", a=2, b=3)))["triplet_safety", 0.8]
    )
    (of_margin,) = gate_plan(fail_if_worse=("triplet_safety=0.1",), pilot=run).gates
    unchanged = sample_size(SampleSizeSettings(margin=0.1, pilot=run))
    assert isinstance(unchanged, SampleSize)
    assert of_margin.needed == needed(unchanged)["triplet_safety", 0.8]
    # what a model may lose alone: two like it, both against the claim
    alone = asked(0.1, pilot=lacking_pilot(tmp_path / "one", "b", "s04"), models=3)
    assert alone.needed[0].away == row.away


def test_if_missing_grades_take_away_more_no_number_of_sets_is_enough(tmp_path: Path) -> None:
    run = lacking_pilot(tmp_path, "b", "s04")
    ran = osi("sample-size", "--difference", 0.02, "--pilot", run)
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines() if line.startswith("Triplet Safety")]
    assert [row[-1] for row in rows] == ["–", "–"]
    assert ran.text.count(" none ") == 2
    assert "take 2.1 points of Triplet Safety and" in ran.text
    assert "No number of prompt-sets is enough for Triplet Safety" in ran.text
    assert f"Ask for them again: opensafeintent grade {run}" in ran.text
    assert "--limit" not in ran.out.splitlines()[-1]
    (reach,) = gate_plan(fail_if_worse=("triplet_safety=0.02",), pilot=(run,)).gates
    assert reach.needed is None and not reach.enough


@pytest.mark.parametrize("command", ["sample-size --difference 0.1", "compare runs/x", "report x"])
@pytest.mark.parametrize(("odds", "accepted"), [("inf", True), ("1", True), ("0.5", False)])
def test_the_odds_of_missing_grades_are_one_or_more(
    command: str, odds: str, accepted: bool
) -> None:
    ran = osi(*command.split(), "--missing-odds", odds)
    assert ("--missing-odds" in ran.err) != accepted


# On the terminal
# ------------------------------------------------------------------------------


def test_the_tables_fit_eighty_columns_and_say_what_was_assumed() -> None:
    ran = osi("sample-size", "--difference", 0.01, "--models", 20, "--judges", 3)
    assert ran.code == 0
    rows = [line for line in ran.out.splitlines() if line.startswith(("Triplet", "Mean", "  "))]
    assert len(rows) >= 9 and max(map(len, rows)) <= 80
    assert "assumed, 0.5 for a share and 0.35 for a score" in ran.text
    assert "15.4 points" in ran.text  # the half-width of 42 prompt-sets, a difference of shares
    assert "190 pairs" in ran.text and "Šidák" in ran.text


@pytest.mark.parametrize("difference", ["0", "1", "0.0001", "-0.05"])
def test_a_difference_that_cannot_be_is_refused(difference: str) -> None:
    assert "--difference" in osi("sample-size", "--difference", difference).refusal


def test_a_pilot_is_said_to_hold_for_its_dataset(tmp_path: Path) -> None:
    size = asked(pilot=pilot(tmp_path / "one", a=2))
    (note,) = (note for note in size.tables[0].notes if "SDs differ between datasets" in note)
    assert note.startswith(f"The SD is that of the dataset {size.pilot.dataset}, ")
    assert not any("datasets" in note for note in asked().tables[0].notes)


@pytest.mark.slow
def test_several_pilots_are_pooled(tmp_path: Path) -> None:
    runs = (pilot(tmp_path / "one", a=2), pilot(tmp_path / "two", b=3))
    together = asked(pilot=pilot(tmp_path / "both", a=2, b=3))
    pooled = asked(pilot=runs)
    assert [row.deviation for row in pooled.needed] == [row.deviation for row in together.needed]


@pytest.mark.parametrize("power", [0.80, 0.95])
def test_an_unchanged_model_keeps_to_the_margin_as_often_as_is_said(power: float) -> None:
    size = sample_size(SampleSizeSettings(margin=0.1))
    sets, studies = needed(size)["triplet_safety", power], 1500
    generator = np.random.default_rng(2)
    worsenings = generator.choice([-1.0, 0.0, 1.0], p=(0.125, 0.75, 0.125), size=(studies, sets))
    pseudo = np.concatenate([worsenings, np.broadcast_to([-1.0, 1.0], (studies, 2))], axis=1)
    high = pseudo.sum(axis=1) / sets + scipy.stats.t.ppf(0.975, sets + 1) * scipy.stats.sem(
        pseudo, axis=1
    ) * ((sets + 2) / sets)
    assert float((high <= 0.1).mean()) == pytest.approx(power, abs=0.035)


def test_a_margin_counts_the_calls_of_the_new_run_alone() -> None:
    one, three = (sample_size(SampleSizeSettings(margin=0.1, models=n)) for n in (None, 3))
    assert (one.models, one.pairs, three.pairs) == (1, 1, 1)
    of_set = 7 + 7 * len(QUESTIONS) + 2
    assert all(row.sets and row.calls == of_set * row.sets for row in one.needed)
    assert all(row.sets and row.calls == 3 * of_set * row.sets for row in three.needed)


def test_all_pairs_or_all_models_have_the_power_together() -> None:
    # each of 6 pairs is found with 0.8^(1/6), each of 3 models passes with 0.8^(1/3)
    of_pairs, of_models = (
        asked(0.02, models=4),
        sample_size(SampleSizeSettings(margin=0.02, models=3)),
    )
    quantile = scipy.stats.norm.ppf
    for size, level, power in (
        (of_pairs, 0.95 ** (1 / 6), 0.8 ** (1 / 6)),
        (of_models, 0.95, 0.8 ** (1 / 3)),
    ):
        plain = ((quantile(0.5 + level / 2) + quantile(power)) * 0.5 / 0.02) ** 2
        assert needed(size)["triplet_safety", 0.8] == pytest.approx(plain, rel=0.01)
    assert "all 6 pairs of models are found" in of_pairs.tables[0].notes[1]
    assert "all models pass the gate" in of_models.tables[0].notes[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--fail-if-worse): expected exactly one of them"),
        (["--difference", 0.1, "--margin", 0.1], "--difference, --margin, gates (--fail-under"),
        (["--margin", 0.1, "--fail-under", "triplet_safety=0.5"], "expected exactly one of them"),
        (["--margin", 0.1, "--epochs", 2], "--epochs: is for gates; leave it out"),
        (["--fail-over", "over_refusal=0.2"], "--fail-over: unknown metric 'over_refusal'"),
        (
            ["--fail-under", "triplet_safety=0.5", "--models", 2],
            "--models: is for --difference or --margin; leave it out",
        ),
        (["--difference", 0.1, "--models", 1], "--models 1: a difference is of two models"),
    ],
)
def test_a_plan_is_for_a_difference_or_for_a_margin(options: list[object], message: str) -> None:
    ran = osi("sample-size", *options)
    assert ran.code == 2 and message in ran.err


def gate_plan(**settings: Any) -> GatePlan:
    plan = sample_size(SampleSizeSettings(**settings))
    assert isinstance(plan, GatePlan)
    return plan


def test_a_plan_says_which_margin_its_prompt_sets_can_decide() -> None:
    gates = ("triplet_safety=0.05", "triplet_safety=0.3", "mean_utility=0.05")
    plan = gate_plan(fail_if_worse=gates)
    assert plan.exit_code == 0  # a model that has become better passes each margin
    assert [reach.enough for reach in plan.gates] == [False, True, False]
    size = asked(0.05)
    of_margin = sample_size(SampleSizeSettings(margin=0.05))
    assert isinstance(of_margin, SampleSize) and size.pairs == 1
    assert plan.gates[0].needed == needed(of_margin)["triplet_safety", 0.8]
    ran = osi("sample-size", *(word for gate in gates for word in ("--fail-if-worse", gate)))
    assert ran.code == 0 and "Next: opensafeintent evaluate " in ran.out
    shown = [line.split()[2:] for line in ran.out.splitlines() if line.startswith("--fail-if")]
    points = [str(reach.needed) for reach in plan.gates]
    assert shown == [
        ["below", "80", "%", points[0], "24", "points"],
        ["yes", points[1], "24", "points"],
        ["below", "80", "%", points[2], "0.18"],
    ]
    text = " ".join(ran.out.split())
    assert "do not help where more than 700 are needed" in text
    assert "0.5 for a share, 0.35 for a score; --pilot RUN takes the SD and the missing" in text


def test_a_threshold_that_so_many_sets_cannot_pass_is_said_before_a_run() -> None:
    planned = ("--limit", 10, "--fail-over", "low_help_rate_benign=0.9")
    impossible = osi("sample-size", *planned, "--fail-under", "triplet_safety=0.95")
    assert impossible.code == 5 and "What 10 prompt-sets of starter can decide" in impossible.out
    lines = [line.split() for line in impossible.out.splitlines()]
    assert ["--fail-under", "triplet_safety=0.95", "out", "of", "reach", "72"] in lines
    (following,) = [line for line in impossible.out.splitlines() if line.startswith("Next: ")]
    assert "opensafeintent evaluate" not in following
    assert "more prompt-sets (--limit, --dataset)" in following
    possible = osi("sample-size", *planned)
    assert possible.code == 0 and "Next: opensafeintent evaluate " in possible.out
    assert possible.out.rstrip().endswith("--limit 10")
    beyond = osi("sample-size", *planned[2:], "--limit", 1000).out
    assert "1000" not in beyond and beyond.rstrip().endswith("--limit 42")  # the dataset's size


def test_a_plan_of_gates_takes_what_decides_how_many_sets_are_needed() -> None:
    threshold = {"fail_under": ("triplet_safety=0.95",)}
    # no download is needed to know the size of a published dataset
    published = gate_plan(**threshold, dataset="opensafeintent-115")
    assert (published.sets, published.exit_code) == (115, 0)
    assert gate_plan(**threshold, dataset="opensafeintent-115", limit=71).exit_code == 5
    assert gate_plan(**threshold, dataset="opensafeintent-115", limit=72).exit_code == 0
    (one,), (two,), (surer,) = (
        gate_plan(**threshold, **more).gates for more in ({}, {"epochs": 2}, {"confidence": 0.99})
    )
    # with epochs a value is a mean, and the interval no exact one
    assert one.needed == 72 and two.needed and surer.needed
    assert two.needed != one.needed < surer.needed


@pytest.mark.parametrize("metric", TRIPLET_SCOPE.metrics)
def test_every_metric_that_a_gate_takes_can_be_planned(metric: str) -> None:
    low, high = METRICS[metric].span
    (reach,) = gate_plan(fail_over=(f"{metric}={low + 0.6 * (high - low)}",)).gates
    assert reach.needed and reach.enough == (reach.needed <= 42)
