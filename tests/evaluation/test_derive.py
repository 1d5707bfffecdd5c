"""The texts of a run, and the ledger's rows behind one prompt-set, without a call."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opensafeintent import (
    EvaluateSettings,
    GradeSettings,
    ImportSettings,
    evaluate,
    grade,
    import_files,
)
from opensafeintent.calls.scripted import DEMONSTRATION_JUDGE
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.run import RunTexts, TracedRow
from opensafeintent.promptsets import Dataset
from samples import dataset_file, json_lines, made_dataset, prompt_set

GRADES = {"helpfulness": 4, "harm_severity": 0}
SETS = made_dataset(prompt_set("one", 1), prompt_set("two"))


def texts_of(run: Path) -> RunTexts:
    folder = RunFolder(run)
    manifest, dataset = folder.load()
    return RunTexts(manifest, dataset, folder.ledger_path(manifest))


def traced(run: Path, set_id: str) -> list[TracedRow]:
    with texts_of(run) as texts:
        return texts.trace(set_id)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    settings = EvaluateSettings(
        models=("baseline/comply-all", "baseline/refuse-all"),
        judges=(DEMONSTRATION_JUDGE,),
        dataset=dataset_file(folder, SETS),
        out=folder / "run",
        system="Be brief.",
        epochs=2,
    )
    evaluate(settings)
    return folder / "run"


def test_every_response_is_found_with_its_row(evaluated: Path) -> None:
    with texts_of(evaluated) as texts:
        found = [
            texts.find(model, item.id, variant, epoch)
            for model in ("baseline/comply-all", "baseline/refuse-all")
            for item in SETS.prompt_sets
            for variant in item.wordings()
            for epoch in (1, 2)
        ]
        assert all(response is not None and response.text for response in found)
        assert len({response.row for response in found if response}) == 2 * (4 + 3) * 2
        assert texts.find("baseline/refuse-all", "one", "benign").text.startswith("I'm sorry")  # type: ignore[union-attr]
        assert texts.find("baseline/refuse-all", "one", "benign", 3) is None


def test_the_rows_behind_a_set(evaluated: Path) -> None:
    rows = traced(evaluated, "one")
    comply = [row for row in rows if row.subject == "baseline/comply-all" and row.epoch == 1]
    # four wordings, each generated and judged twice; the mode of the dual-use prompt; its probe if
    # it was unsafe
    purposes = Counter(row.purpose for row in comply)
    assert purposes["generate"] == purposes["helpfulness"] == purposes["harm"] == 4
    assert purposes["mode"] == 1
    assert {row.model for row in comply if row.purpose == "harm"} == {DEMONSTRATION_JUDGE}
    assert {row.status for row in rows} == {"answered"}
    with texts_of(evaluated) as texts:
        benign = texts.find("baseline/comply-all", "one", "benign")
    (generated,) = (row for row in comply if row.purpose == "generate" and row.variant == "benign")
    assert benign is not None and generated.row == benign.row
    assert {row.epoch for row in rows} == {1, 2}


def test_imported_responses_and_the_calls_that_graded_them(tmp_path: Path) -> None:
    lines = [
        {"id": "one", "variant": "benign", "response": "<think>hm</think> An answer.", **GRADES},
        {"id": "one", "variant": "dual_use", "response": "Another answer."},
        {"id": "two", "variant": "benign", **GRADES},
    ]
    run, path = tmp_path / "run", json_lines(tmp_path / "m.jsonl", lines)
    dataset = dataset_file(tmp_path, SETS)
    import_files(
        ImportSettings(files=(path,), out=run, model="m", dataset=dataset, max_missing=1.0)
    )
    grade(GradeSettings(run=run, judges=(DEMONSTRATION_JUDGE,), max_missing=1.0))
    with texts_of(run) as texts:
        benign = texts.find("m", "one", "benign")
        assert benign is not None and benign.text == "An answer."
        assert texts.find("m", "two", "benign") is None  # grades came without a text
        assert texts.find("m", "one", "malicious") is None
    rows = traced(run, "one")
    imported = [row.variant for row in rows if row.table == "imported"]
    assert imported == ["benign", "dual_use"]
    judged = {(row.variant, row.purpose) for row in rows if row.table == "calls"}
    assert judged == {("dual_use", "helpfulness"), ("dual_use", "harm"), ("dual_use", "mode")}


def test_a_model_that_was_not_asked_about_a_set_has_no_rows(tmp_path: Path) -> None:
    settings = EvaluateSettings(
        models=("baseline/refuse-all",),
        judges=(DEMONSTRATION_JUDGE,),
        dataset=dataset_file(tmp_path, Dataset("made", SETS.prompt_sets, SETS.taxonomy)),
        out=tmp_path / "run",
        limit=1,
    )
    evaluate(settings)
    counts = {item.id: len(traced(tmp_path / "run", item.id)) for item in SETS.prompt_sets}
    assert sorted(counts.values())[0] == 0 < sorted(counts.values())[1]
