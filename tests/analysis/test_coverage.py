"""A question that was asked and got no answer is missing, whatever it asked."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from opensafeintent.evaluation.regrade import Regrade, Swapped
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import KnownGrades
from report.runs import changed, cohort_of, many_sets, notices_of, run_with, table_of
from samples import grade_line

DATASET = many_sets(10, 0)
GIVEN, NONE = KnownGrades(3, 0), KnownGrades(3, None)


def rows(**dual_use: Any) -> list[GradedResponse]:
    """Return safe responses to every prompt, those to the dual-use ones with more in their row."""
    return [
        grade_line("m", item.id, variant, "30", **(dual_use if variant == "dual_use" else {}))
        for item in DATASET.prompt_sets
        for variant in item.wordings()
    ]


def counts(cohort: Cohort) -> dict[str, tuple[int, int]]:
    """Return by kind the missing answers and the questions that were asked."""
    return {kind: (of.missing, of.asked) for kind, of in cohort.coverage["m"].missing.items()}


def shown(cohort: Cohort) -> str:
    (text,) = (row["missing"] for row in table_of(cohort, "headline").records())
    return str(text)


def warned(cohort: Cohort) -> list[str]:
    return [text for text in notices_of(cohort, "warning") if "--max-missing" in text]


def test_a_kind_that_was_not_asked_is_not_missing() -> None:
    cohort = cohort_of(run_with(rows(mode="A3"), DATASET))
    # three core prompts of ten sets; modes of the dual-use ones; no probe, guard or second turn
    assert counts(cohort) == {"core": (0, 30), "mode": (0, 10)}
    assert (shown(cohort), warned(cohort)) == ("0", [])


def test_modes_and_strategies_without_an_answer_are_missing_and_warned_of() -> None:
    missing = ("mode:unparsed", "strategy:failed:timeout")
    cohort = cohort_of(run_with(rows(missing=missing), DATASET))
    assert counts(cohort) == {"core": (0, 30), "mode": (10, 10), "strategy": (10, 10)}
    assert shown(cohort) == "10 of 10 modes, 10 of 10 strategies"
    (text,) = warned(cohort)
    modes, strategies = text.split("m lacks")[1:]
    assert modes.startswith(
        " 10 of 10 modes, more than the 5 % of --max-missing. Reasons: mode:unp"
    )
    assert "use another --mode-judge" in modes and "--grade-parse" not in modes
    assert "run the same command again" in strategies
    (coverage,) = table_of(cohort, "coverage").records()
    assert (coverage["missing_core"], coverage["missing_mode"]) == (0, 1)
    assert coverage["missing_guard"] is None
    assert (
        coverage["reasons"] == "modes: mode:unparsed (10); strategies: strategy:failed:timeout (10)"
    )


def test_a_judge_of_a_panel_that_gives_no_grades_is_missing_beside_the_others() -> None:
    by_judge = {"a": (3, 0), "b": (3, 0), "c": (3, None)}
    missing = ("harm_severity[c]:filtered",)
    cohort = cohort_of(run_with(rows(by_judge=by_judge, missing=missing), DATASET))
    assert counts(cohort) == {"core": (0, 30), "panel": (10, 10)}
    (text,) = warned(cohort)
    assert text.startswith("m lacks 10 of 10 grades of single judges")


def test_a_response_that_lacks_both_grades_counts_once() -> None:
    dual_use = {"missing": ("helpfulness:unparsed", "harm_severity:filtered")}
    graded = rows(**dual_use)
    graded = [replace(row, grades=KnownGrades()) if row.missing else row for row in graded]
    cohort = cohort_of(run_with(graded, DATASET))
    assert counts(cohort) == {"core": (10, 30)}
    assert cohort.coverage["m"].missing["core"].reasons == {"helpfulness:unparsed": 10}


def test_audits_without_grades_are_missing_and_those_that_were_not_asked_are_not() -> None:
    run = changed(run_with(rows(), DATASET))
    keys = [row.key._asdict() for row in run.rows]
    cohort = cohort_of(
        run._replace(
            regrades=[
                Regrade(**keys[0], first={"j": GIVEN}, again={"j": GIVEN}),
                Regrade(**keys[1], first={"j": GIVEN}, again={"j": NONE}),
                Regrade(**keys[2], first={"j": GIVEN}, again={}),  # no text to grade
            ],
            swaps=[
                Swapped(**keys[0], grades={"benign": {"j": GIVEN}, "malicious": {"j": NONE}}),
                Swapped(**keys[1], grades={"dual_use": {"j": NONE}}),  # its own column alone
            ],
        )
    )
    assert counts(cohort) == {"core": (0, 30), "retest": (1, 2), "swap": (1, 1)}
    assert shown(cohort) == "1 of 2 retests, 1 of 1 request swaps"
