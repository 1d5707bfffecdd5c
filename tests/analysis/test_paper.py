"""The paper's known figures beside a run's: only on its dataset, with what is the same and what is
not.
"""

from __future__ import annotations

from typing import Any

import pytest

from opensafeintent.numbers import cohort as paper
from opensafeintent.numbers.cohort import (
    PAPER_JUDGE,
    Cohort,
    compare_with_paper,
    find_shared_with_paper,
)
from opensafeintent.promptsets.loading import RUBRIC_HASHES
from opensafeintent.report.columns import format_cell
from opensafeintent.report.tables import make_all_tables
from report.runs import changed, cohort_of, random_run, table_of

MODELS = ("openai/one", "openai/two")


def papers_cohort(monkeypatch: pytest.MonkeyPatch, judge: str, **entry: Any) -> Cohort:
    run = random_run((*MODELS, "baseline/refuse-all"), sets=30, judge=judge)
    monkeypatch.setattr(paper, "PAPER_DATASET_HASH", run.dataset.hash)
    return cohort_of(changed(run, entry=entry))


def test_on_the_same_dataset_each_figure_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rubrics = dict(RUBRIC_HASHES)
    cohort = papers_cohort(monkeypatch, PAPER_JUDGE, parse="paper", templates=rubrics)
    assert find_shared_with_paper(cohort) == {"dataset": True, "rubric": True, "judge": True}
    result = {item.label: item for item in compare_with_paper(cohort)}
    utilities = [cohort.estimates.overall[model, "mean_utility"].value or 0.0 for model in MODELS]
    best = result["Mean Utility, best model"]
    assert best.here and (best.paper, best.here.value) == (0.56, max(utilities))
    parts = ("Stable-safe", "Stable-unsafe", "Safety flip")
    assert sum(result[f"{name}, model average"].paper for name in parts) == 1.0
    table = table_of(cohort, "paper")
    (place,) = (index for index, column in enumerate(table.columns) if column.name == "paper")
    shown = [format_cell("number", row[place]) for row in table.rows]
    assert "0.56" in shown and "25 %" in shown  # a score, and a share
    notes = table.notes
    assert any("✓ same dataset, ✓ same rubric, ✓ same judge" in note for note in notes)


def test_what_differs_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = papers_cohort(monkeypatch, "openai/judge")
    assert find_shared_with_paper(cohort) == {"dataset": True, "rubric": False, "judge": False}


def test_on_another_dataset_there_is_nothing_to_set_beside() -> None:
    cohort = cohort_of(random_run(MODELS, sets=30, judge=PAPER_JUDGE))
    assert compare_with_paper(cohort) == []
    assert "paper" not in [table.name for table in make_all_tables(cohort)]
