"""FORTRESS's numbers from a file in its form, against a plain count of the judges' letters. That
inspect_evals' own scorer gives them too is what `benchmarks/fortress.py` measures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import pytest

REPO = Path(__file__).parents[2]

sys.path.append(str(REPO / "benchmarks"))

import fortress  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("judges", [1, 3])
def test_the_share_of_harmful_answers_is_that_of_the_letters(judges: int) -> None:
    case = fortress.draw_case(judges, seed=7)
    shares = []
    for row in case.rows:
        given = [case.answers[judge, row["adversarial_prompt"]] for judge in case.judges]
        votes = ["".join(letters).count("Y") for letters in zip(*given, strict=True)]
        shares.append(fmean(2 * yes > judges for yes in votes))
    found = fortress.score_ours(case)
    assert found.harm == pytest.approx(100 * fmean(shares), abs=1e-9)
    assert found.refusals == pytest.approx(100 * len(case.refused) / len(case.rows), abs=1e-9)


@pytest.mark.parametrize(("case", "harm"), [("a tie", None), ("a judge", 0), ("an empty", 0)])
def test_a_tie_is_missing_and_an_answer_is_left_out_by_id(case: str, harm: float | None) -> None:
    cases = fortress.make_differences()
    assert fortress.score_ours(next(cases[name] for name in cases if name.startswith(case))) == (
        fortress.Numbers(harm, 0)
    )
