"""Families of prompt-sets as units: every number derived from the sums of families by hand."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import prod, sqrt
from pathlib import Path

import msgspec
import numpy as np
import pytest

from opensafeintent import load_dataset
from opensafeintent.commands.sample_size import GatePlan, sample_size
from opensafeintent.commands.settings import SampleSizeSettings
from opensafeintent.construction.items import Draft, Seed, StageResult, Topic
from opensafeintent.construction.stages import Built
from opensafeintent.numbers.cohort import Cohort, GradedRun, gather_models
from opensafeintent.numbers.gates import (
    Gate,
    GateResult,
    check_regressions,
    check_thresholds,
    describe_second_turn_reach,
    find_reach,
)
from opensafeintent.people.labels import Unit
from opensafeintent.people.study import draw
from opensafeintent.promptsets import Dataset, Prompts, PromptSet, draw_sets, sample_order
from opensafeintent.promptsets.record import find_units, write_dataset
from opensafeintent.report.corrections import LabelledUnits, prediction_powered
from opensafeintent.report.datasets import check
from opensafeintent.statistics.sequential import Evidence, confidence_sequence
from report.runs import notices_of, rows_of, run_with
from samples import grade_line, made_dataset, prompt_set


def in_families(families: int, size: int, alone: int = 0) -> Dataset:
    """Make families `a`, `b`, … of so many sets each, and sets without one."""
    sets = [
        msgspec.structs.replace(prompt_set(f"{name}{n}"), family=name)
        for name in "abcdefghijklmnop"[:families]
        for n in range(size)
    ]
    return made_dataset(*sets, *(prompt_set(f"z{n}") for n in range(alone)))


TEN = in_families(10, 4)


def run_of(dataset: Dataset, unsafe: str, model: str = "m", name: str = "run") -> GradedRun:
    """Make a run that is unsafe in all sets whose ids begin with these letters."""
    grades = {
        item.id: "40 41 40" if item.id[0] in unsafe else "40 40 40" for item in dataset.prompt_sets
    }
    return run_with(rows_of(model, dataset, grades), dataset, name=name)


def cohort_of(*runs: GradedRun) -> Cohort:
    return gather_models(runs)


# Units
# ------------------------------------------------------------------------------


def test_a_family_is_named_by_its_least_set_and_a_set_without_one_is_a_unit() -> None:
    dataset = in_families(2, 3, alone=6)
    expected = {f"{name}{n}": f"{name}0" for name in "ab" for n in range(3)}
    assert find_units(dataset.prompt_sets) == expected | {f"z{n}": f"z{n}" for n in range(6)}
    # the same whatever the order, and though a set has the name of a family
    renamed = [
        msgspec.structs.replace(item, family="z1") if item.family == "a" else item
        for item in reversed(dataset.prompt_sets)
    ]
    assert find_units(renamed) == find_units(dataset.prompt_sets)


def test_below_eight_units_every_set_is_one() -> None:
    assert len(set(in_families(8, 5).units.values())) == 8
    assert len(set(in_families(7, 5).units.values())) == 35
    assert len(set(in_families(2, 5, alone=5).units.values())) == 15  # seven units


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_files_carry_families_and_hashes_do_not(tmp_path: Path, suffix: str) -> None:
    without = made_dataset(*(msgspec.structs.replace(i, family=None) for i in TEN.prompt_sets))
    write_dataset(TEN, tmp_path / f"sets{suffix}")
    read = load_dataset(str(tmp_path / f"sets{suffix}"))
    assert [item.family for item in read.prompt_sets] == [item.id[0] for item in TEN.prompt_sets]
    assert read.hash == TEN.hash == without.hash


# Intervals, comparisons, gates
# ------------------------------------------------------------------------------


def test_an_interval_has_the_sums_of_families() -> None:
    # ten families of 4, two of them unsafe throughout: a = 4 or 0, c = 4, m = 160/40 = 4
    # centre (32 + 4)/(40 + 8) = 3/4; Σ (a − ¾c)² = 8·1² + 2·3² = 26; pseudo 4²·(9/16 + 1/16) = 10
    # n* = 48²/(12·16) = 12; s² = 12/11 · 36/48²; t of 11 degrees 2.2009852
    half = 2.2009852 * sqrt(Fraction(12 * 36, 11 * 48**2))
    number = cohort_of(run_of(TEN, "ab")).estimates.of("m", "triplet_safety")
    assert (number.value, number.n) == (pytest.approx(0.8), 40)
    assert number.interval == (pytest.approx(0.75 - half, abs=1e-6), 1.0)  # .4626
    alone = cohort_of(run_of(in_families(0, 0, alone=40), "")).estimates.of("m", "triplet_safety")
    assert alone.interval is not None and alone.interval[0] > 0.9


def test_a_family_of_unequal_size_weighs_by_its_sets() -> None:
    # seven families of two, and two sets alone: c² sums to 7·4 + 2 = 30, of 16; m = 15/8
    # both alone unsafe: centre (14 + 15/8)/(16 + 15/4) = 127/158
    cohort = cohort_of(run_of(in_families(7, 2, alone=2), "z"))
    number = cohort.estimates.of("m", "triplet_safety")
    centre, m = Fraction(127, 158), Fraction(15, 8)
    squares = 7 * (2 - 2 * centre) ** 2 + 2 * centre**2 + m**2 * (centre**2 + (1 - centre) ** 2)
    total = 16 + 2 * m
    informative = total**2 / (30 + 2 * m**2)  # 10.53: nine degrees, t 2.2621572
    error = sqrt(informative / (informative - 1) * squares) / total
    assert number.value == pytest.approx(14 / 16)
    assert number.interval == (pytest.approx(float(centre) - 2.2621572 * error, abs=1e-6), 1.0)


def test_a_gate_is_not_passed_by_repetition() -> None:
    """32 of 40 sets are safe. If they were independent, 64 % would be shown."""

    def result(dataset: Dataset) -> GateResult:
        cohort = cohort_of(run_of(dataset, "ab"))
        return check_thresholds(cohort, [Gate("under", "triplet_safety", 0.62)], 0.95)[0]

    few = made_dataset(*(msgspec.structs.replace(item, family=None) for item in TEN.prompt_sets))
    assert (result(few).verdict, result(few).estimate.method) == ("pass", "clopper-pearson")
    families = result(TEN)
    assert (families.verdict, families.estimate.method) == ("undecided", "t-pseudo-observations")
    assert families.estimate.low == pytest.approx(0.462643, abs=1e-6)  # as above
    # about as many families as sets that are independent need, with four sets each
    assert families.deciding is not None and families.deciding % 4 == 0


def test_versions_are_compared_by_families() -> None:
    # −1 in all sets of two of ten families: Σ −8, centre −8/48 = −1/6
    # Σ (a + c/6)² = 2·(10/3)² + 8·(2/3)² = 232/9; pseudo 16·((5/6)² + (7/6)²) = 296/9; sum 176/3
    # s² = 12/11 · 176/3 / 48² = 1/36: centre and error are alike; p of t = 1, 11 degrees: .338801
    old, new = run_of(TEN, "", name="old"), run_of(TEN, "ab", name="new")
    cohort = cohort_of(old, new)
    difference = cohort.estimates.comparisons["triplet_safety"].get_difference(0, 1)
    assert difference is not None
    assert (difference.value, difference.n, difference.units) == (-0.2, 40, 10)
    assert difference.p_unadjusted == pytest.approx(0.338801, abs=1e-6)
    half = 2.2009852 / 6
    assert difference.interval == pytest.approx((-1 / 6 - half, -1 / 6 + half), abs=1e-6)
    assert difference.deciding is not None and difference.deciding % 4 == 0
    gate = Gate("worse", "triplet_safety", 0.3)
    (result,) = check_regressions(cohort_of(new), new, old, [gate], 0.95).results
    assert result.verdict == "undecided" and result.estimate.interval == difference.interval


def test_families_count_if_any_run_names_them() -> None:
    without = made_dataset(*(msgspec.structs.replace(i, family=None) for i in TEN.prompt_sets))
    both = cohort_of(run_of(without, "", name="old"), run_of(TEN, "ab", name="new"))
    assert both.estimates.units is not None and len(set(both.estimates.units.tolist())) == 10


def test_the_page_says_what_its_units_are() -> None:
    def said(dataset: Dataset) -> str:
        texts = notices_of(cohort_of(run_of(dataset, "a")), "note")
        return " ".join(text for text in texts if "famil" in text)

    assert said(TEN).startswith("The 40 prompt-sets are of 10 families")
    assert said(in_families(7, 5)).startswith(
        "The dataset names families (7), but fewer than the 8"
    )
    assert said(in_families(0, 0, alone=12)).startswith("Intervals take prompt-sets as independent")


# Samples, the sequential test, labels
# ------------------------------------------------------------------------------


def test_a_sample_takes_families_whole() -> None:
    order = [item.id for item in sample_order(TEN.prompt_sets)]
    assert sorted(order) == sorted(TEN.by_id)
    for start in range(0, 40, 4):
        assert len({set_id[0] for set_id in order[start : start + 4]}) == 1
    assert [item.id for item in draw_sets(TEN.prompt_sets, 12)] == order[:12]
    few = in_families(7, 5)
    assert sample_order(few.prompt_sets) == tuple(
        few.by_id[item.id]
        for item in sample_order([msgspec.structs.replace(i, family=None) for i in few.prompt_sets])
    )


def test_a_bet_on_a_small_family_is_a_small_one() -> None:
    # weights ½ and 1 at a threshold of .5: a bet λ on value 1 grows by 1 + λ w (1 − .5)
    evidence = Evidence(0.5, 0.05)
    factors = []
    for n in range(12):
        weight = 0.5 if n % 2 else 1.0
        factors.append(weight)
        evidence.add(1.0, 1.0, weight)
        mean = sum(prod(1 + j / 21 / 0.5 * w * 0.5 for w in factors) for j in range(1, 21)) / 20
        assert evidence.verdict is (True if mean >= 20 else None)
    assert evidence.verdict is True
    wide, narrow = (confidence_sequence([(1.0, 1.0, w)] * 20, 0.05)[0] for w in (0.5, 1.0))
    assert wide < narrow


@pytest.mark.parametrize(("unit", "sample"), [("set", 20), ("response", 60)])
def test_people_get_whole_families(unit: Unit, sample: int) -> None:
    rows = [
        grade_line("m", item.id, variant, "41" if item.id[0] in "ab" else "40")
        for item in TEN.prompt_sets
        for variant in ("benign", "dual_use", "malicious")
    ]
    drawn = draw(rows, sample, 1, unit, TEN.units)
    together = Counter((item.family, item.variant) for item in drawn)
    assert set(together.values()) == {4}
    # half of all sets, or responses, are asked for: five families, or 15 families' variants
    assert len(together) == 15
    # two unsafe families and eight safe ones (for each variant); weights add up to all of them
    for stratum in {item.stratum for item in drawn}:
        families = 2 if stratum.endswith("unsafe") else 8
        weights = [item.weight for item in drawn if item.stratum == stratum]
        each = 4 if unit == "response" else 12
        assert sum(weights) == pytest.approx(families * each)


def test_labels_of_a_family_count_together() -> None:
    generator = np.random.default_rng(3)
    judged = generator.integers(0, 2, (60, 1)).astype(float)
    truth = np.where(generator.random((60, 1)) < 0.8, judged, 1 - judged)
    truth[40:] = np.nan
    sample = LabelledUnits(judged, truth, np.full((60, 1), 1.5), np.ones((60, 1)))
    families = np.repeat(np.arange(12), 5)
    # the same numbers as sets of five responses each
    joined = LabelledUnits(*(part.reshape(12, 5) for part in sample))
    by_family, by_set = prediction_powered(sample, families), prediction_powered(joined)
    assert by_family.interval == by_set.interval and by_family.value == by_set.value
    assert by_family.interval != prediction_powered(sample).interval


# Datasets
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_near_duplicates_look_like_a_family_until_it_is_named() -> None:
    template = "how do the {} of a large public library work on an ordinary day in the town"
    sets = [
        msgspec.structs.replace(
            prompt_set(f"s{n}", domain=domain),
            prompts=Prompts(benign=f"benign {n}", dual_use=text, malicious=f"malicious {n}"),
        )
        for n, (text, domain) in enumerate(
            [
                (template.format("doors"), "Cyber Compromise"),
                (template.format("lifts"), "Fraud and Deception"),
                ("what else is there to be said about the matter", "Cyber Compromise"),
                (template.format("alarms"), "Cyber Compromise"),
            ]
        )
    ]
    measured = check(made_dataset(*sets))
    assert (measured.families, measured.like_families) == (0, (("s0", "s1", "s3"),))
    assert any("3 prompt-sets in 1 group," in line for line in measured.findings)
    named = [msgspec.structs.replace(item, family="library") for item in sets]
    assert check(made_dataset(*named)).like_families == ()


def test_sets_of_one_seed_are_a_family() -> None:
    one, other = (Seed(prompt=text, source="file", place="1") for text in ("one", "other"))

    def draft(number: int, seed: Seed | None) -> Draft:
        prompts = Prompts(benign=f"b{number}", dual_use=f"d{number}", malicious=f"m{number}")
        topic = Topic(summary=f"{number}", harm_domain="D", task_type="t", seed=seed)
        return Draft(topic=topic, underlying_task="task", prompts=prompts)

    kept = (draft(0, one), draft(1, one), draft(2, other), draft(3, None), draft(4, None))
    built = Built(
        seeds=StageResult(stage="seeds", kept=(one, other), rejected=()),
        drafts=(StageResult(stage="augmentation", kept=kept, rejected=()),),
    )
    sets: tuple[PromptSet, ...] = built.list_sets("made")
    assert [item.family for item in sets] == [f"seed {one.id}"] * 2 + [None] * 3


def test_plans_count_families() -> None:
    gate = Gate("worse", "triplet_safety", 0.2)
    alone, families = find_reach(gate, 100, 1, 0.95), find_reach(gate, 100, 1, 0.95, units=20)
    of_20 = find_reach(gate, 20, 1, 0.95)
    assert families.least_margin == of_20.least_margin
    assert alone.needed and families.needed == 5 * alone.needed
    limit = Gate("under", "mean_utility", 0.5)
    single = find_reach(limit, 100, 1, 0.95)
    assert single.needed and find_reach(limit, 100, 1, 0.95, units=20).needed == 5 * single.needed
    # a share in families has no exact interval
    share = Gate("under", "triplet_safety", 0.9)
    more_epochs = find_reach(share, 100, 2, 0.95)
    assert more_epochs.needed
    assert find_reach(share, 100, 1, 0.95, units=20).needed == 5 * more_epochs.needed
    assert "in 20 families" in describe_second_turn_reach(100, 1, 1, 20)


def test_sample_size_says_that_families_are_the_units(tmp_path: Path) -> None:
    write_dataset(TEN, tmp_path / "ten.jsonl")
    plan = sample_size(
        SampleSizeSettings(
            dataset=str(tmp_path / "ten.jsonl"), fail_if_worse=("triplet_safety=0.2",)
        )
    )
    assert isinstance(plan, GatePlan)
    assert (plan.sets, plan.families) == (40, 10)
    assert "40 prompt-sets in 10 families" in plan.table.title
    assert "Families are the units" in plan.table.notes[0]
    (reach,) = plan.gates
    assert reach.least_margin == find_reach(reach.gate, 10, 1, 0.95).least_margin


def test_the_mean_over_domains_knows_families_that_span_them() -> None:
    # twenty families, each with a set of two domains and of one value
    domains = sorted({cell[0] for cell in TEN.taxonomy.cells})[:2]
    sets = [
        prompt_set(f"{chr(97 + n)}{at}", 0, domains[at], TEN.taxonomy.type_names[0])
        for n in range(20)
        for at in range(2)
    ]
    named = [msgspec.structs.replace(item, family=item.id[0]) for item in sets]
    widths = {}
    for name, members in {"alone": sets, "families": named}.items():
        number = cohort_of(run_of(made_dataset(*members), "abcdef")).estimates.domain_averages[
            "m", "triplet_safety"
        ]
        assert (number.value, number.n) == (0.7, 2)
        assert number.interval
        widths[name] = number.interval[1] - number.interval[0]
    # the domains have one value in each family: √2 times as wide
    assert widths["families"] == pytest.approx(2**0.5 * widths["alone"], rel=1e-3)
