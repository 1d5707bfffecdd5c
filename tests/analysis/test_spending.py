"""Components of variance of a run: which it identifies, and what the sentence promises."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from opensafeintent.numbers.cohort import Cohort
from opensafeintent.report.tables import make_all_tables
from opensafeintent.report.tables_repeats import find_spending
from opensafeintent.taxonomy import CORE_VARIANTS
from report.judge_studies import panel_row, panel_run
from report.runs import cohort_of, cohort_with, many_sets, table_of
from samples import grade_line

A, B = "lab/judge-a", "lab/judge-b"


def by_two_judges(unsafe_for_a: int, unsafe_for_b: int) -> Cohort:
    """Return one model on 40 sets; each judge finds the malicious response of the first so many
    unsafe.
    """
    sets = many_sets(40, 0)
    rows = [
        panel_row(
            "m",
            item.id,
            variant,
            {
                judge: "42" if variant == "malicious" and at < unsafe else "40"
                for judge, unsafe in ((A, unsafe_for_a), (B, unsafe_for_b))
            },
        )
        for at, item in enumerate(sets.prompt_sets)
        for variant in CORE_VARIANTS
    ]
    return cohort_of(panel_run(rows, sets))


def test_two_judges_who_differ_are_worth_more_than_sets() -> None:
    # Triplet Safety .9 by A and .5 by B: S² = .08. Beyond set and judge the 16 sets on which they
    # differ have ± ½ · (1 − .4), the others ± ½ · .4: mean square (16 · 2 · .09 + 24 · 2 · .04) / 39
    cohort = by_two_judges(4, 20)
    triplet_safety, mean_utility = find_spending(cohort)
    found = triplet_safety.components
    together = (16 * 2 * 0.3**2 + 24 * 2 * 0.2**2) / 39
    assert (found.sets, found.judges, found.epochs) == (40, 2, 1)
    assert found.judge_by_set == pytest.approx(together)
    assert found.judge == pytest.approx(0.08 - together / 40)
    # means over judges: 0 in 4 sets, ½ in 16, 1 in 20
    observed = np.var([0.0] * 4 + [0.5] * 16 + [1.0] * 20, ddof=1)
    assert found.by_set == pytest.approx(observed - together / 2)
    assert isnan(found.wording) and isnan(found.repeat)
    assert mean_utility.metric == "mean_utility"
    assert table_of(cohort, "variance_components").notes[0] == (
        "One more judge would narrow the interval of Triplet Safety more than any number of further"
        " prompt-sets."
    )


def test_judges_who_agree_are_worth_nothing() -> None:
    cohort = by_two_judges(10, 10)
    table = table_of(cohort, "variance_components")
    assert not any("would narrow" in note for note in table.notes)
    rows = table.records()
    assert rows[1]["worth"] == "0"
    assert [(row["component"], row["draws"]) for row in rows[:3]] == [
        ("prompt-sets", 40),
        ("judges", 2),
        ("judges, from set to set", 80),
    ]
    # ten of 40 sets are unsafe: the variance .25 · .75 · 40 / 39, all of it between sets
    assert rows[0]["sd"] == pytest.approx((0.1875 * 40 / 39) ** 0.5, abs=1e-6)
    assert (rows[0]["share"], rows[1]["share"]) == (pytest.approx(1.0), 0.0)


def test_wordings_and_epochs_of_one_judge() -> None:
    # Of 20 sets five have an unsafe dual-use response in the second epoch, and five an unsafe
    # paraphrase in both.
    sets = many_sets(20, 1)

    def is_unsafe(at: int, variant: str, epoch: int) -> bool:
        return (10 <= at < 15 and variant == "dual_use" and epoch == 2) or (
            at >= 15 and variant[-1] == "1"
        )

    rows = [
        grade_line(
            "m", item.id, variant, "42" if is_unsafe(at, variant, epoch) else "40", epoch=epoch
        )
        for at, item in enumerate(sets.prompt_sets)
        for epoch in (1, 2)
        for variant in item.wordings()
    ]
    cohort = cohort_with(sets, rows)
    triplet_safety, _ = find_spending(cohort)
    found = triplet_safety.components
    # repeats 1 and 0 in a quarter of the sets; wordings ½ and 1 (variance ⅛), and 1 and 0 (½), in a
    # quarter each; beyond wording and epoch ± ¼ in four cells of a quarter, half of it in a mean
    assert found.repeat == pytest.approx(0.5 / 4)
    between = (0.125 + 0.5) / 4
    assert found.wording == pytest.approx(between - 0.25 / 4 / 2)
    assert found.saved_by_wordings == pytest.approx(between / 2)
    assert found.by_set == 0.0  # the values vary less than that
    # twice the epochs: V falls from (.125 + .0625) / 20 to (.125 + .03125) / 20, as 24 sets have it
    assert found.variance == pytest.approx(0.1875 / 20)
    assert found.count_sets(found.with_twice_the_epochs) == pytest.approx(4)
    # the mean over wordings saves .078125 of .1875, as 14.3 sets more
    rows_of = {
        row["component"]: row
        for row in table_of(cohort, "variance_components").records()
        if row["metric"] == "Triplet Safety"
    }
    assert rows_of["repeats of a set"]["worth"] == "4"
    assert rows_of["wordings of a set"]["worth"] == "14"
    assert rows_of["prompt-sets"]["worth"] is None


@pytest.mark.parametrize("paraphrases", [0, 4])
def test_a_run_that_tells_nothing_but_sets_has_no_table(paraphrases: int) -> None:
    sets = many_sets(20, paraphrases)
    rows = [
        grade_line("m", item.id, variant, "40")
        for item in sets.prompt_sets
        for variant in item.wordings()
    ]
    cohort = cohort_with(sets, rows)  # nothing varies
    assert find_spending(cohort) == []
    assert "variance_components" not in {table.name for table in make_all_tables(cohort)}
