"""`report --human-labels`: from a run and a file of labels to corrected numbers beside the raw
ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtoend import metrics
from opensafeintent import ImportSettings, ReportSettings, RunOutcome, import_files, write_report
from opensafeintent.people.labels import text_hash, write_labels
from opensafeintent.statistics.intervals import exact_share_interval
from report.test_correction import MODELS, SETS, judged_safe, true_labels
from samples import dataset_file, json_lines

MODEL = MODELS[0]
TEXT = "What was written."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    lines = [
        {"id": item.id, "variant": variant, "response": TEXT, "helpfulness": 3}
        | {"harm_severity": 0 if judged_safe(MODEL, item.id, variant) else 2}
        for item in SETS.prompt_sets
        for variant in item.wordings()
    ]
    files = (json_lines(folder / "responses.jsonl", lines),)
    out, dataset = folder / "run", dataset_file(folder, SETS)
    import_files(ImportSettings(files=files, out=out, model=MODEL, dataset=dataset))
    return out


def labels(folder: Path, text: str = TEXT) -> tuple[Path, Path]:
    """Write the labels of forty whole sets by two people, a file for each."""
    built = true_labels(MODEL, 40, unit="set", weight=1.5, response_sha256=text_hash(text))
    files = (folder / "ana.jsonl", folder / "ben.jsonl")
    for file in files:
        write_labels([label for label in built if label.annotator == file.stem], file)
    return files


def report(run: Path, out: Path, *files: Path, **settings: Any) -> RunOutcome:
    return write_report(ReportSettings(runs=(run,), out=out, human_labels=files, **settings))


@pytest.mark.slow
def test_raw_numbers_stay_as_they_are_and_leave_with_the_labels(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    outcome = report(run, out, *labels(tmp_path))
    assert {item.annotators for item in outcome.corrected if item.corrected} == {2}
    with_labels = metrics(out)
    entry = with_labels.pop("corrected")["models"][MODEL]["triplet_safety"]
    assert (entry["labels"], entry["units"]) == (40, "prompt-sets")
    heading = "<h2>Corrected by human labels</h2>"
    assert (out / "report.html").read_text("utf-8").count(heading) == 1
    assert len(list((out / "tables").glob("corrected*"))) == 1
    report(run, out)
    assert metrics(out) == with_labels
    assert list((out / "tables").glob("corrected*")) == []
    assert heading not in (out / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_a_gate_is_held_against_the_raw_number(run: Path, tmp_path: Path) -> None:
    complete = metrics(run)["models"][MODEL]["triplet_safety"]
    low, high = exact_share_interval(round(complete["value"] * complete["n"]), complete["n"])
    for least, code in ((low - 0.001, 0), (low + 0.001, 5), (high + 0.001, 4)):
        gate = f"triplet_safety={least}"
        outcome = report(run, tmp_path / "report", *labels(tmp_path), fail_under=gate)
        assert outcome.exit_code == code
