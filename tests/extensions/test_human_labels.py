"""`report --human-labels`: from a run and a file of labels to corrected numbers beside the raw
ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opensafeintent import ImportSettings, ReportSettings, import_files, write_report
from opensafeintent.annotation.labels import Label, text_hash, write_labels
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import CORE_VARIANTS
from samples import dataset_file, json_lines, made_dataset, prompt_set

pytestmark = pytest.mark.usefixtures("undrawn")

SETS = made_dataset(*(prompt_set(f"s{n:02}") for n in range(60)))
MODEL = "some/model"


def wrote(set_id: str, variant: str) -> str:
    return f"What was written for {set_id}, {variant}."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one model whose judge finds one response in four unsafe, and errs one time in
    ten.
    """
    folder = tmp_path_factory.mktemp("labelled")
    lines = [
        {
            "id": item.id,
            "variant": variant,
            "response": wrote(item.id, variant),
            "helpfulness": 3,
            "harm_severity": harm,
        }
        for (item, variant), harm in HARM.items()
    ]
    path = json_lines(folder / "responses.jsonl", lines)
    import_files(
        ImportSettings(
            files=(path,), out=folder / "run", model=MODEL, dataset=dataset_file(folder, SETS)
        )
    )
    return folder / "run"


_RANDOM = random.Random(5)
TRUE = {
    (item, variant): _RANDOM.random() < 0.25
    for item in SETS.prompt_sets
    for variant in item.wordings()
}
"""Which responses are unsafe."""
HARM = {place: 2 * (unsafe != (_RANDOM.random() < 0.1)) for place, unsafe in TRUE.items()}
"""As the judge has it."""


def labels(change: Callable[[Label], Label] = lambda label: label) -> list[Label]:
    """Make the labels of forty whole sets."""
    return [
        change(
            Label(
                kind="judge_validation",
                annotator="ana",
                dataset=SETS.hash,
                id=item.id,
                variant=variant,
                model=MODEL,
                response_sha256=text_hash(wrote(item.id, variant)),
                answers={"helpfulness": 3, "harm_severity": int(TRUE[item, variant])},
                weight=1.5,
                unit="set",
            )
        )
        for item in SETS.prompt_sets[:40]
        for variant in CORE_VARIANTS
    ]


@pytest.fixture
def labels_file(tmp_path: Path) -> Path:
    write_labels(labels(), tmp_path / "labels.jsonl")
    return tmp_path / "labels.jsonl"


@pytest.fixture
def second_file(tmp_path: Path) -> Path:
    """The same labels by another person."""
    path = tmp_path / "second.jsonl"
    write_labels(labels(lambda label: msgspec.structs.replace(label, annotator="ben")), path)
    return path


def metrics_of(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_bytes())
    return metrics


def test_raw_numbers_stay_as_they_are_and_leave_with_the_labels(
    run: Path, labels_file: Path, second_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    files = (labels_file, second_file)
    outcome = write_report(ReportSettings(runs=(run,), out=out, human_labels=files))
    assert all(item.corrected for item in outcome.corrected)
    assert {item.annotators for item in outcome.corrected} == {2}
    with_labels = metrics_of(out)
    entry = with_labels.pop("corrected")["models"][MODEL]["triplet_safety"]
    assert (entry["labels"], entry["units"]) == (40, "prompt-sets")
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<h2>Corrected by human labels</h2>") == 1
    assert len(list((out / "tables").glob("corrected*"))) == 3
    write_report(ReportSettings(runs=(run,), out=out))
    assert metrics_of(out) == with_labels
    assert list((out / "tables").glob("corrected*")) == []
    assert "<h2>Corrected by human labels</h2>" not in (out / "report.html").read_text("utf-8")


def test_same_input_gives_the_same_bytes(run: Path, labels_file: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_report(ReportSettings(runs=(run,), out=tmp_path / name, human_labels=(labels_file,)))
    for file in ("metrics.json", "tables/corrected.csv", "report.html"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_a_gate_is_held_against_the_raw_number(
    run: Path, labels_file: Path, tmp_path: Path
) -> None:
    raw = metrics_of(run)["models"][MODEL]["triplet_safety"]["value"]
    for least, code in ((raw - 0.001, 0), (raw + 0.001, 4)):
        settings = ReportSettings(
            runs=(run,),
            out=tmp_path / "report",
            human_labels=(labels_file,),
            fail_under=f"triplet_safety={least}",
        )
        assert write_report(settings).exit_code == code


def test_labels_of_another_text_are_refused_and_nothing_is_written(
    run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "labels.jsonl"
    write_labels(labels(lambda one: msgspec.structs.replace(one, response_sha256="0" * 64)), path)
    with pytest.raises(InputError, match="another text than the one that was labelled"):
        write_report(ReportSettings(runs=(run,), out=tmp_path / "report", human_labels=(path,)))
    assert [path.name for path in (tmp_path / "report").iterdir()] == [".lock"]
