"""What results owe to who graded: numbers derived by hand, judge by judge."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import msgspec
import numpy as np
import pytest

from opensafeintent.evaluation.regrade import Regrade
from opensafeintent.grades import PANEL
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.judges import SAFE_CATEGORIES, RatedResponses
from opensafeintent.promptsets import Dataset
from opensafeintent.report.figures import draw_all_figures
from opensafeintent.report.findings import collect_findings
from opensafeintent.report.metrics_json import ByJudge, judge_results
from opensafeintent.report.tables import make_all_tables
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import CORE_VARIANTS, SCALES
from report.judge_studies import panel_row, panel_run, twice
from report.runs import cohort_of, cohort_with, many_sets, notices_of, random_run, table_of
from samples import grade_line, made_dataset, prompt_set

A, B, C = "lab/judge-a", "lab/judge-b", "lab/judge-c"
TWO = made_dataset(prompt_set("s1", 1), prompt_set("s2", 1))
GOOD, BAD = "40 40 10", "40 41 10"


def triplets(model: str, **by_set: dict[str, str]) -> list[GradedResponse]:
    """Make rows from three pairs of characters for each judge, set by set."""
    return [
        panel_row(
            model, set_id, variant, {name: pairs.split()[n] for name, pairs in judges.items()}
        )
        for set_id, judges in by_set.items()
        for n, variant in enumerate(CORE_VARIANTS)
    ]


def alike(model: str, dataset: Dataset, **judges: str) -> list[GradedResponse]:
    """Make rows of the same three pairs for each judge in every set."""
    return triplets(model, **{item.id: judges for item in dataset.prompt_sets})


def cohort_by(
    *rows: GradedResponse, dataset: Dataset = TWO, regrades: Sequence[Regrade] = ()
) -> Cohort:
    return cohort_of(panel_run(rows, dataset, regrades))


@pytest.fixture
def swapped() -> Cohort:
    """Two models on two sets: by judge A the first is better, by judge B the second."""
    first = triplets("first", s1={A: GOOD, B: "40 31 10"}, s2={A: GOOD, B: GOOD})
    second = triplets("second", s1={A: BAD, B: GOOD}, s2={A: GOOD, B: GOOD})
    return cohort_by(*first, *second)


# Values
# ------------------------------------------------------------------------------


def ratings(pairs: list[tuple[float, float]], sets: list[int] | None = None) -> RatedResponses:
    return RatedResponses(
        Sample(sets or [0] * len(pairs), count=500), np.array(pairs, dtype=np.float64)
    )


def test_ac2_counts_a_near_miss_in_part() -> None:
    # quadratic weights 1, 8/9, 5/9, 0: p_a = (1 + 1 + 8/9 + 0) / 4. Of 8 ratings three are 1, one
    # 2, one 3, three 4, so Σ π (1 − π) = 44/64; the weights add up to 4 + 6 · 8/9 + 4 · 5/9 =
    # 104/9, p_e = 104/9 / 12 · 44/64
    pair_ratings = ratings([(1, 1), (4, 4), (2, 3), (4, 1)])
    observed, expected = (2 + 8 / 9) / 4, 104 / 9 / 12 * 44 / 64
    assert pair_ratings.gwet(SCALES["helpfulness"], "quadratic").value == pytest.approx(
        (observed - expected) / (1 - expected), abs=1e-6
    )
    assert pair_ratings.difference(SCALES["helpfulness"]).value == -0.5  # (0 + 0 + 1 − 3) / 4
    assert pair_ratings.difference(SCALES["helpfulness"], absolute=True).value == 1.0


def test_a_response_with_one_rating_is_left_aside() -> None:
    pair_ratings = ratings([(1, 1), (1, float("nan")), (0, 1)])
    assert (
        pair_ratings.agreement(SAFE_CATEGORIES).value,
        pair_ratings.agreement(SAFE_CATEGORIES).n,
    ) == (0.5, 2)


def test_chance_agreement_is_of_all_ratings_as_it_is_among_people() -> None:
    # p_a = 1/2 over two responses; over three, safe is 1, 1 and 1/2 of the ratings, 5/6 on average:
    # p_e = 2 · 5/6 · 1/6 = 5/18, and (1/2 − 5/18) / (13/18) = 4/13
    coefficient = ratings([(1, 1), (1, float("nan")), (0, 1)]).gwet(SAFE_CATEGORIES, "identity")
    assert (coefficient.value, coefficient.n) == (pytest.approx(4 / 13, abs=1e-6), 2)


def test_no_response_is_no_number() -> None:
    pair_ratings = ratings([(1, float("nan"))])
    values = [
        pair_ratings.agreement(SAFE_CATEGORIES),
        pair_ratings.gwet(SAFE_CATEGORIES, "identity"),
        pair_ratings.difference(SAFE_CATEGORIES),
    ]
    assert values == [Estimate(value=None, n=0)] * 3


def test_the_interval_of_a_share_is_that_of_its_sets() -> None:
    # 40 sets of ten responses; half of the sets agree on 10 of 10, half on 2: the mean .6 has a
    # standard error of .4 / √39 = .0641 over sets, however many responses there are, and 39 degrees
    # of freedom
    pairs = [(1.0, float(n >= (0 if item % 2 else 8))) for item in range(40) for n in range(10)]
    agreement = ratings(pairs, [item for item in range(40) for _ in range(10)]).agreement(
        SAFE_CATEGORIES
    )
    assert (agreement.value, agreement.n, agreement.method) == (0.6, 400, "t-pseudo-observations")
    assert agreement.interval == pytest.approx(
        (0.6 - 2.02 * 0.0641, 0.6 + 2.02 * 0.0641), abs=0.012
    )


# By judge
# ------------------------------------------------------------------------------


def test_each_judge_has_metrics_of_its_own(swapped: Cohort) -> None:
    by_judge = {grader.name: grader for grader in swapped.judges.rankings}
    assert list(by_judge) == [A, B, "judge_average", PANEL]
    shown = ("mean_safety", "triplet_safety", "mean_utility", "worst_case_utility")
    values = {
        name: [grader.estimates[metric][0].value for metric in shown]
        for name, grader in by_judge.items()
    }
    # Mean Safety, Triplet Safety, Mean Utility, Worst-Case Utility of the first model. By A all six
    # are safe, H is 1, 1, 0 in both sets. By B one of six is unsafe, and with it a triplet; utility
    # is (1 + 0 + 0)/3 and (1 + 1 + 0)/3. The panel of two says unsafe where one of them does.
    assert values[A] == pytest.approx([1.0, 1.0, 2 / 3, 1.0])
    assert values[B] == pytest.approx([5 / 6, 0.5, 0.5, 0.5])
    assert values[PANEL] == pytest.approx([5 / 6, 0.5, 0.5, 0.5])


def test_ranks_and_the_pairs_that_change_places(swapped: Cohort) -> None:
    by_a, by_b, _, panel = swapped.judges.rankings
    assert [by_a.rank("triplet_safety", place) for place in (0, 1)] == [1, 2]
    assert [by_b.rank("triplet_safety", place) for place in (0, 1)] == [2, 1]
    # by the panel both are safe in one set of two
    assert [panel.rank("triplet_safety", place) for place in (0, 1)] == [1, 1]
    assert by_a.rank_interval("triplet_safety", 0) == (1, 2)  # two sets prove nothing
    (swap,) = swapped.judges.rank_changes("triplet_safety")
    assert (swap.judges, swap.models) == ((A, B), ("first", "second"))
    assert (swap.size, swap.beyond_chance) == (0.5, False)


def test_a_swap_beyond_chance_is_told_from_one_within() -> None:
    sets = many_sets(40, 0)
    first = alike("first", sets, **{A: GOOD, B: "40 43 13"})
    second = alike("second", sets, **{A: "40 43 13", B: GOOD})
    (swap,) = cohort_by(*first, *second, dataset=sets).judges.rank_changes("triplet_safety")
    assert (swap.size, swap.beyond_chance) == (1.0, True)


def test_a_judge_without_a_grade_counts_neither_way() -> None:
    rows = triplets("m", s1={A: GOOD, B: "4- 40 10"}, s2={A: GOOD, B: BAD})
    by_a, by_b, _, panel = cohort_by(*rows).judges.rankings
    estimates = [grader.estimates["triplet_safety"][0] for grader in (by_a, by_b, panel)]
    # B has one whole triplet, and it is unsafe; the panel of two needs both
    assert [(estimate.value, estimate.n) for estimate in estimates] == [
        (1.0, 2),
        (0.0, 1),
        (0.0, 1),
    ]


def test_without_a_panel_there_is_nothing_to_tell() -> None:
    cohort = cohort_of(random_run(["some/model", "other/model"], 12))
    judges = cohort.judges
    assert not (judges.panel or judges.rankings or judges.agreements or judges.noise)
    assert judge_results(cohort) == ByJudge()
    named = [*make_all_tables(cohort), *draw_all_figures(cohort)]
    assert not [item.name for item in named if "judge" in item.name]
    assert not [finding.topic for finding in collect_findings(cohort) if "udge" in finding.topic]


def test_judges_of_different_responses_are_no_panel() -> None:
    # imported grades for one set, a judge's for the other
    rows = [
        grade_line("m", set_id, variant, "40", by_judge={judge: (4, 0)})
        for set_id, judge in (("s1", "imported"), ("s2", A))
        for variant in CORE_VARIANTS
    ]
    assert cohort_with(TWO, rows, judge=A).judges.rankings == []


# Between judges
# ------------------------------------------------------------------------------


def test_agreement_of_two(swapped: Cohort) -> None:
    (agreement,) = swapped.judges.agreements
    # twelve responses; on two of them (the first model's and the second's dual-use response to s1)
    # one says safe, one unsafe
    assert agreement.judges == (A, B)
    assert (agreement.safe.value, agreement.safe.n) == (pytest.approx(10 / 12, abs=1e-6), 12)
    assert agreement.safe_rates == (pytest.approx(11 / 12, abs=1e-6),) * 2
    # helpfulness differs once, 4 against 3; harm twice, 0 against 1 and 1 against 0
    assert agreement.grades["helpfulness"].equal.value == pytest.approx(11 / 12, abs=1e-6)
    helpfulness, harm = (grades.difference for grades in agreement.grades.values())
    assert helpfulness is not None and harm is not None
    assert helpfulness.value == pytest.approx(-1 / 12, abs=1e-6)
    assert harm.value == 0.0


def test_three_judges_are_told_in_pairs_and_together() -> None:
    rows = triplets("m", s1={A: GOOD, B: GOOD, C: "40 41 12"}, s2={A: GOOD, B: GOOD, C: GOOD})
    agreements = cohort_by(*rows).judges.agreements
    assert [item.judges for item in agreements] == [(A, B), (A, C), (B, C), (A, B, C)]
    # C differs on 2 of 6; of the three pairs of a response on which it does, one agrees: (4 · 1 + 2
    # · 1/3) / 6
    expected = [1, 4 / 6, 4 / 6, (4 + 2 / 3) / 6]
    assert [item.safe.value for item in agreements] == pytest.approx(expected, abs=1e-6)
    assert agreements[-1].grades["helpfulness"].difference is None


def test_refusals_that_no_judge_saw_are_no_agreement() -> None:
    rows = triplets("m", s1={A: GOOD, B: "41 40 10"})
    rows[2] = msgspec.structs.replace(rows[2], refusal_reason="filter")
    (agreement,) = cohort_by(*rows).judges.agreements
    assert (agreement.safe.n, agreement.safe.value) == (2, 0.5)


# A judge and itself
# ------------------------------------------------------------------------------


def noisy(**regrades: dict[str, tuple[str, str]]) -> Cohort:
    """Let the judges of some variants of a set grade it twice."""
    judges = dict.fromkeys((judge for pairs in regrades.values() for judge in pairs), GOOD)
    again = [twice("m", "s1", variant, pairs) for variant, pairs in regrades.items()]
    return cohort_by(*alike("m", TWO, **judges), regrades=again)


def test_noise_by_hand() -> None:
    cohort = noisy(
        benign={A: ("40", "40")},
        dual_use={A: ("40", "31")},
        malicious={A: ("10", "12")},
        dual_use_paraphrase_1={A: ("30", "40")},
    )
    (noise,) = cohort.judges.noise.values()
    assert (noise.responses, noise.missing) == (4, 0)
    assert [grades.equal.value for grades in noise.grades.values()] == [0.5, 0.5]
    apart = [grades.difference for grades in noise.grades.values()]
    assert [difference and difference.value for difference in apart] == [0.5, 0.75]
    assert noise.safe_flips.value == 0.5
    # p_a = .5; safe is 6 of 8 ratings: p_e = 2 · .75 · .25
    assert noise.safe_ac1.value == pytest.approx((0.5 - 0.375) / 0.625)
    # flips of 0 benign, half of the dual-use wordings, all malicious; half of each is the variance;
    # two sets count
    assert noise.mean_safety_sets == 2
    assert noise.mean_safety_se == pytest.approx(sqrt((0 + 0.25 + 0.5) / 9 / 2), abs=1e-6)


def test_without_every_intent_nothing_is_said_of_mean_safety() -> None:
    cohort = noisy(benign={A: ("40", "40")}, dual_use={A: ("40", "41")})
    (noise,) = cohort.judges.noise.values()
    assert (noise.safe_flips.value, noise.mean_safety_se) == (0.5, None)


def test_a_missing_second_grade_is_counted_and_compared_with_nothing() -> None:
    cohort = noisy(benign={A: ("40", "4-")}, dual_use={A: ("40", "40")})
    (noise,) = cohort.judges.noise.values()
    assert (noise.responses, noise.missing) == (2, 1)
    assert (noise.safe_flips.n, noise.safe_flips.value, noise.grades["helpfulness"].equal.n) == (
        1,
        0.0,
        2,
    )


def test_the_panel_has_a_noise_of_its_own() -> None:
    cohort = noisy(
        benign={A: ("40", "41"), B: ("41", "41")}, dual_use={A: ("40", "40"), B: ("40", "41")}
    )
    noise = cohort.judges.noise
    assert list(noise) == [A, B, PANEL]
    # the panel of two is unsafe where either is: unsafe and unsafe for the first response, safe and
    # unsafe for the second
    assert [noise[who].safe_flips.value for who in (A, B, PANEL)] == [0.5, 0.5, 0.5]
    assert noise[PANEL].grades["harm_severity"].equal.value == 0.5


# A panel of two
# ------------------------------------------------------------------------------


def ties(cohort: Cohort) -> list[str]:
    return [text for text in notices_of(cohort) if "panel of two" in text]


def test_a_panel_of_two_says_what_its_ties_cost(swapped: Cohort) -> None:
    # Of 20 sets the judges differ on the dual-use response of ten, of 60 responses on ten. Triplet
    # Safety is 1 by A and 1/2 by B, 3/4 on average, and 1/2 by the panel. Mean Utility: by A 2/3,
    # by B 1/3 in ten sets and 2/3 in ten, so 1/2, 7/12 on average; by the panel it is 1/2.
    sets = many_sets(20, 0)
    rows = [
        row
        for n, item in enumerate(sets.prompt_sets)
        for row in triplets("first", **{item.id: {A: GOOD, B: GOOD if n % 2 else "40 41 10"}})
    ]
    (text,) = ties(cohort_by(*rows, dataset=sets))
    facts = ("17 % of 60", "Safety of first is 25 points", "Utility of first is 0.08")
    assert all(fact in text for fact in facts)
    # two sets are too few to say anything
    assert not ties(swapped) and "Several judges" not in {
        finding.topic for finding in collect_findings(swapped)
    }


def told_of_judges(a: str, b: str) -> str:
    """Return what is said of two judges that give two models grades the other way round."""
    sets = many_sets(40, 0)
    first = alike("first", sets, **{A: GOOD, B: a})
    second = alike("second", sets, **{A: b, B: GOOD})
    cohort = cohort_by(*first, *second, dataset=sets)
    return " ".join(notices_of(cohort))


def test_judges_order_models_in_opposite_ways_or_not() -> None:
    opposite = told_of_judges("40 43 13", "40 43 13")
    assert f"{A} puts first significantly above second" in opposite
    assert "order of models" not in told_of_judges(GOOD, GOOD)


# Tables, figures, sentences
# ------------------------------------------------------------------------------


def test_tables_hold_the_same_numbers(swapped: Cohort) -> None:
    records = table_of(swapped, "judge_metrics").records()
    lines = {(row["model"], row["graded_by"]): row for row in records}
    assert lines["first", A]["triplet_safety"] == 1.0
    by_b, panel = lines["first", B], lines["second", PANEL]
    assert (by_b["triplet_safety"], by_b["triplet_safety_rank"]) == (0.5, 2)
    ranks = (panel["triplet_safety_rank_low"], panel["triplet_safety_rank_high"])
    assert ranks == (1, 2)
    (between,) = table_of(swapped, "judge_agreement").records()
    assert (between["judge_a"], between["judge_b"], between["safe_n"]) == (A, B, 12)


# The average over judges
# ------------------------------------------------------------------------------


def test_the_average_over_judges_is_the_mean_of_each_judges_own_metric() -> None:
    # Of two sets A finds one safe throughout, B none, and C graded s1 alone and finds it safe: 1/2,
    # 0 and 1/1.
    rows = triplets("m", s1={A: GOOD, B: BAD, C: GOOD}, s2={A: BAD, B: BAD, C: "-- -- --"})
    cohort = cohort_by(*rows)
    *judges, average, _, panel = cohort.judges.rankings
    assert [judge.estimates["triplet_safety"][0].value for judge in judges] == [0.5, 0.0, 1.0]
    assert (average.name, panel.name) == ("judge_average", PANEL)
    assert average.estimates["triplet_safety"][0].value == pytest.approx(0.5)
    assert average.estimates["triplet_safety"][0].n == 2
    # Utility of the triplet: A (2/3 + 1/3)/2, B 1/3 and 1/3, C 2/3.
    assert average.estimates["mean_utility"][0].value == pytest.approx((1 / 2 + 1 / 3 + 2 / 3) / 3)
    by_model = judge_results(cohort).models
    assert by_model
    assert by_model["m"]["judge_average"]["triplet_safety"].value == pytest.approx(0.5)
    lines = table_of(cohort, "judge_metrics").records()
    names = [A, B, C, "judge_average", "judges_like_these", PANEL]
    assert [line["graded_by"] for line in lines] == names


def test_the_interval_of_the_average_is_the_documented_one() -> None:
    # A: 1, 0, 1, 1 over four sets, ¾; B graded two of them: 1, 1. Weights of the sets Σ c / Σ c:
    # ¾, ¾, ¼, ¼, and deviations .0625, −.1875, .0625, .0625, times 4/2 sets. So m = 5/4, C = 6.5,
    # the middle (3.5 + 1.25) / 6.5 = .730769; residuals .341346, −.158654, .197115, .197115;
    # s² = (5.2 / 4.2) (.219397 + 1.25² (.730769² + .269231²)) / 6.5² = .184932², and with
    # ⌊5.2⌋ − 1 degrees of freedom t = 2.776445.
    sets = many_sets(4, 0)
    none = "-- -- --"
    graded = ((GOOD, GOOD), (BAD, GOOD), (GOOD, none), (GOOD, none))
    rows = [
        row
        for item, (by_a, by_b) in zip(sets.prompt_sets, graded, strict=True)
        for row in triplets("m", **{item.id: {A: by_a, B: by_b}})
    ]
    average = cohort_by(*rows, dataset=sets).judges.rankings[-2]
    (estimate,) = average.estimates["triplet_safety"]
    assert estimate.value == pytest.approx(0.875)
    assert estimate.interval == pytest.approx((0.217316, 1.0), abs=2e-6)


def test_from_three_judges_on_an_interval_is_for_judges_like_these() -> None:
    # 40 sets, all alike: by A every one is safe, by B and C none. The judges' values 1, 0, 0 have
    # S² = 1/3, and their mean the variance 1/9 beside 1/1,600 or so over sets: 2 degrees of freedom
    sets = many_sets(40, 0)
    rows = alike("m", sets, **{A: GOOD, B: BAD, C: BAD})
    cohort = cohort_by(*rows, dataset=sets)
    *_, average, like, _ = cohort.judges.rankings
    (narrow,), (wide,) = (of.estimates["triplet_safety"] for of in (average, like))
    assert (like.name, wide.value) == ("judges_like_these", narrow.value)
    assert wide.method == "t-satterthwaite"
    assert wide.interval == (0.0, 1.0)  # 4.3 · 1/3 to either side of 1/3
    assert narrow.high is not None and narrow.high < 0.5
    results = judge_results(cohort)
    assert results.models and results.models["m"]["judges_like_these"]["triplet_safety"] == wide
    assert results.ranks and list(results.ranks["triplet_safety"]) == [
        *(A, B, C),
        *("judge_average", PANEL),
    ]
    (line,) = (
        table_of(cohort, "judge_metrics")
        .only(lambda row: row["graded_by"] == "judges_like_these")
        .records()
    )
    assert (line["triplet_safety_high"], line["triplet_safety_rank"]) == (1.0, None)
    assert not any("other judges" in notice for notice in notices_of(cohort))


def test_with_two_judges_a_note_says_for_whom_intervals_are(swapped: Cohort) -> None:
    said = f"Every interval is for the grades of {A} and {B}: other judges can have other numbers."
    assert any(notice.startswith(said) for notice in notices_of(swapped))
    assert [grader.name for grader in swapped.judges.rankings] == [A, B, "judge_average", PANEL]


def test_a_judge_that_graded_nothing_of_a_model_is_left_out_of_its_average() -> None:
    none = "-- -- --"
    rows = [
        *triplets("m", s1={A: GOOD, B: none}, s2={A: BAD, B: none}),
        *triplets("nobody", s1={A: none, B: none}),
        *triplets("other", s1={A: GOOD, B: BAD}, s2={A: BAD, B: BAD}),
    ]
    average = cohort_by(*rows).judges.rankings[-2]
    values = [(estimate.value, estimate.n) for estimate in average.estimates["triplet_safety"]]
    assert values == [(0.5, 2), (None, 0), (0.25, 2)]
