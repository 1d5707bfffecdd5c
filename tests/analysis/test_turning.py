"""The odds of missing responses at which verdicts turn: each as the same run decides it at these
odds.
"""

from __future__ import annotations

from math import inf, isnan
from typing import Any

import numpy as np
import pytest

from opensafeintent.numbers.cohort import Cohort, GradedRun, gather_models
from opensafeintent.numbers.completions import (
    TRIED_ODDS,
    compare_with_odds,
    find_turning_odds,
    read_turning_odds,
    store_turning_odds,
)
from opensafeintent.numbers.second_turn import PRIMARY_MEASURES
from opensafeintent.report.findings import collect_findings, rank_or_compare_models
from opensafeintent.report.tables import make_all_tables
from opensafeintent.statistics.comparisons import compare_models, find_rank_turning_odds
from opensafeintent.statistics.intervals import Completed, Units
from opensafeintent.taxonomy import CORE_VARIANTS, is_follow_up
from report.judge_studies import judged_by, panel_row
from report.runs import many_sets, run_with, table_of
from report.second_turns import turn_run

TRIED = (1.0, 3.0, 10.0, 100.0, 1000.0)
"""Odds at which a run is computed again."""
OLD, NEW = "lab/old", "lab/new"


def cohorts_of(run: GradedRun) -> dict[float, Cohort]:
    return {odds: gather_models([run], odds) for odds in TRIED}


def check(turning: float | None, significant: dict[float, bool]) -> None:
    """Compare the odds at which a verdict turns with whether it holds at each."""
    assert turning is not None
    for odds, holds in significant.items():
        assert holds == (odds <= turning), (turning, odds)


def test_the_greatest_odds_at_which_each_verdict_holds() -> None:
    least = np.array([inf, 5.0, 0.5, 0.5])
    found = find_turning_odds(np.array([True, True, True, False]), lambda odds: odds <= least)
    assert found[:3].tolist() == [inf, 5.0, 0.0]
    assert isnan(found[3])
    assert [read_turning_odds(store_turning_odds(odds)) for odds in (inf, 5.0, 0.0)] == [
        inf,
        5.0,
        0.0,
    ]
    assert read_turning_odds(store_turning_odds(found[3])) is None


@pytest.mark.slow
@pytest.mark.parametrize("units", [None, np.arange(60) // 3], ids=["sets", "families"])
def test_differences_of_many_models_say_at_which_odds_they_turn(units: Units | None) -> None:
    generator, models = np.random.default_rng(9), 60
    values = (generator.random((models, 60)) < np.linspace(0.1, 0.9, models)[:, None]) * 1.0
    lacking = generator.random((models, 60)) < np.linspace(0, 0.15, models)[:, None]
    counted = (~lacking).astype(float)

    def find_ends(odds: float) -> list[Completed]:
        filled = [end / (1 + end) for end in (1 / odds, odds)]
        variance = np.where(lacking, 0.1, 0.0)
        return [
            Completed(np.where(lacking, fill, values), np.ones_like(values), variance)
            for fill in filled
        ]

    family = [model > 1 for model in range(models)]
    settings: dict[str, Any] = {"max_difference": 1.0, "family": family, "units": units}
    parts = values * counted, counted
    found = compare_with_odds(parts, find_ends, 3.0, lacking.any(axis=1), **settings)
    assert found.turning_odds is not None
    expected = np.where((found.low > 0) | (found.high < 0), 0.0, np.nan)
    expected[~(lacking.any(axis=1)[:, None] | lacking.any(axis=1))] = np.nan
    holds = ~np.isnan(expected)
    for odds in TRIED_ODDS:
        holds &= compare_models(*parts, extremes=find_ends(odds), **settings).significant
        expected[holds] = odds
    expected[holds] = inf
    assert np.array_equal(found.turning_odds, expected, equal_nan=True)
    assert len(set(expected[~np.isnan(expected)])) > 5


def losing_run() -> GradedRun:
    """Two models whose second replies are often worse, and sometimes without grades."""
    generator = np.random.default_rng(8)

    def reply(set_id: str, variant: str, epoch: int) -> str:
        if generator.random() < 0.1:
            return "--"
        unsafe = 0.24 if is_follow_up(variant) else 0.0
        harm = int(generator.random() < unsafe)
        return f"{generator.integers(2, 5) - is_follow_up(variant)}{harm}"

    return turn_run({"m": reply, "n": reply}, 60)


@pytest.fixture(scope="module")
def turned() -> dict[float, Cohort]:
    return cohorts_of(losing_run())


def test_effects_of_a_first_turn_say_at_which_odds_they_turn(turned: dict[float, Cohort]) -> None:
    seen = set()
    turns = {odds: cohort.second_turn for odds, cohort in turned.items()}
    for model in ("m", "n"):
        for measure in PRIMARY_MEASURES:
            numbers = {
                odds: turn.numbers[model][measure.effect] for odds, turn in turns.items() if turn
            }
            turning = read_turning_odds(numbers[3.0].turning_odds)
            if not numbers[3.0].leaves_out_zero:
                assert turning is None
                continue
            check(turning, {odds: number.significant for odds, number in numbers.items()})
            seen.add(turning)
    assert len(seen) > 1  # they do not all hold to the same odds


def test_the_table_and_the_sentences_of_a_second_turn_say_so(turned: dict[float, Cohort]) -> None:
    table = table_of(turned[3.0], "follow_ups")
    assert "Holds to" in [column.heading for column in table.columns]
    said = " ".join(
        item.text for item in collect_findings(turned[3.0]) if "Second turn" in item.topic
    )
    assert "It holds " in said or "would hold" in said


def panel_of(missing: float) -> GradedRun:
    """Three models by two judges, of which the new one is stricter and often unread."""
    generator, dataset = np.random.default_rng(4), many_sets(60, 0)
    rows = []
    for model, unsafe in (("a", 0.04), ("b", 0.12), ("c", 0.3)):
        for item in dataset.prompt_sets:
            for variant in CORE_VARIANTS:
                draw, helpfulness = generator.random(), generator.integers(2, 5)
                lacks = generator.random() < missing
                pairs = {OLD: f"{helpfulness}{int(draw < unsafe)}"}
                pairs[NEW] = (
                    f"{helpfulness}-" if lacks else f"{helpfulness}{int(draw < 2.2 * unsafe)}"
                )
                fields: dict[str, Any] = (
                    {"missing": ("harm_severity[lab/new]:unparsed",)} if lacks else {}
                )
                rows.append(panel_row(model, item.id, variant, pairs, **fields))
    return judged_by(run_with(rows, dataset), [OLD, NEW])


@pytest.fixture(scope="module")
def judged() -> dict[float, Cohort]:
    return cohorts_of(panel_of(0.05))


def test_a_shift_of_judges_says_at_which_odds_it_turns(judged: dict[float, Cohort]) -> None:
    by_odds = {
        odds: {(item.model, item.metric): item for item in cohort.judges.shifts[0].metrics}
        for odds, cohort in judged.items()
    }
    turning = []
    for key, item in by_odds[3.0].items():
        if item.leaves_out_zero and item.missing_ci != item.interval:
            found = read_turning_odds(item.turning_odds)
            ends = {odds: items[key].missing_ci or (0.0, 0.0) for odds, items in by_odds.items()}
            check(found, {odds: low > 0 or high < 0 for odds, (low, high) in ends.items()})
            turning.append(found)
        margins = dict(item.same_within_at) if isinstance(item.same_within_at, list) else {}
        for odds, items in by_odds.items():
            if margins:
                assert margins[odds] == items[key].same_within
        if margins:
            assert list(margins.values()) == sorted(margins.values())
            assert list(margins) == [*TRIED_ODDS, None]
    assert turning


def test_a_missing_grade_of_a_judge_has_its_reason(judged: dict[float, Cohort]) -> None:
    # at odds of 1 it is like the others, whichever judge it is missing of
    at_1, at_1000 = (
        next(
            item for item in judged[odds].judges.shifts[0].metrics if item.model == "model average"
        )
        for odds in (1.0, 1000.0)
    )
    assert at_1.missing_ci and at_1000.missing_ci
    assert at_1.missing_ci[1] - at_1.missing_ci[0] < at_1000.missing_ci[1] - at_1000.missing_ci[0]


def test_the_table_of_a_shift_says_where_the_same_turns(judged: dict[float, Cohort]) -> None:
    notes = " ".join(table_of(judged[3.0], "judge_shift").notes)
    assert "“The same” turns where this exceeds your margin." in notes


@pytest.mark.slow
def test_ranks_and_the_order_of_models_say_up_to_which_odds_they_hold(
    judged: dict[float, Cohort],
) -> None:
    for name in ("by_judge", "average"):
        rankings = {
            odds: (
                cohort.judges.judge_rankings[1 if OLD < NEW else 0]
                if name == "by_judge"
                else cohort.judges.rankings[2]
            )
            for odds, cohort in judged.items()
        }
        comparison = rankings[3.0].comparisons["triplet_safety"]
        turning = find_rank_turning_odds(comparison)
        significant = comparison.significant
        assert turning is not None
        for odds, ranking in rankings.items():
            still = ranking.comparisons["triplet_safety"].significant
            if odds >= 3:
                assert bool((still >= significant).all()) == (odds <= turning)
    cohort = judged[3.0]
    assert any("holds" in said.text for said in rank_or_compare_models(cohort))
    notes = [note for table in make_all_tables(cohort) for note in table.notes]
    assert any("The ranks by Triplet Safety hold" in note for note in notes)
