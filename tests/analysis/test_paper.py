"""The paper's known figures beside a run's: only on its dataset, with what is the same and what is
not.
"""

from __future__ import annotations

import msgspec
import pytest

from opensafeintent.analysis import cohort as paper
from opensafeintent.analysis.cohort import (
    PAPER_JUDGE,
    Group,
    beside_paper,
    group_studies,
    same_as_paper,
)
from opensafeintent.promptsets.sources import RUBRIC_HASHES
from opensafeintent.report.tables import all_tables
from report.studies import random_study


def group_of(
    monkeypatch: pytest.MonkeyPatch,
    *,
    dataset: bool = True,
    judge: str = PAPER_JUDGE,
    rubrics: bool = True,
) -> Group:
    study = random_study(("openai/one", "openai/two", "baseline/refuse-all"), sets=30, judge=judge)
    if rubrics:
        entries = {
            name: msgspec.structs.replace(entry, parse="paper", templates=dict(RUBRIC_HASHES))
            for name, entry in study.manifest.models.items()
        }
        study = study._replace(manifest=msgspec.structs.replace(study.manifest, models=entries))
    if dataset:
        monkeypatch.setattr(paper, "PAPER_DATASET_HASH", study.dataset.hash)
    return group_studies([study])[0]


def test_on_the_same_dataset_each_figure_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch)
    assert same_as_paper(group) == {"dataset": True, "rubric": True, "judge": True}
    found = {item.label: item for item in beside_paper(group)}
    best = max(
        group.numbers.overall[model, "mean_utility"].value or 0.0
        for model in ("openai/one", "openai/two")
    )
    here = found["Mean Utility, best model"].here
    assert here is not None
    assert (found["Mean Utility, best model"].paper, here.value) == (0.56, best)
    assert (
        sum(
            found[f"{name}, model average"].paper
            for name in ("Stable-safe", "Stable-unsafe", "Safety flip")
        )
        == 1.0
    )
    table = next(table for table in all_tables([group]) if table.name == "paper")
    assert any("✓ same dataset, ✓ same rubric, ✓ same judge" in note for note in table.notes)


def test_what_differs_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, judge="openai/judge", rubrics=False)
    assert same_as_paper(group) == {"dataset": True, "rubric": False, "judge": False}


def test_on_another_dataset_there_is_nothing_to_set_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(monkeypatch, dataset=False)
    assert beside_paper(group) == []
    assert "paper" not in [table.name for table in all_tables([group])]
