"""What a further format of responses gets from the shared code, whose fields have names of their
own: a format of the test, whose records state model (`target`) and epoch (`take`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imports.support import taken_in
from opensafeintent import RunOutcome
from opensafeintent.errors import InputError
from opensafeintent.imports import known_formats
from opensafeintent.imports.content import FileContent, LocatedRecord, read_each_model
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.fields import Record, read_each_record
from opensafeintent.taxonomy import MOST_EPOCHS, Taxonomy
from samples import dataset_file, json_lines, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("boats"))


def recognises(records: Sequence[LocatedRecord]) -> bool:
    return "take" in records[0][1]


def read(records: Sequence[LocatedRecord], path: Path, _: Taxonomy) -> list[FileContent]:
    headings = {"prompt": "said", "epoch": "take", "model": "target"}
    return read_each_model(read_each_record(records, read_row), path, headings=headings)


def read_row(row: Record) -> LocatedRecord:
    return row.location, {
        "model": row.name("target"),
        "prompt": row.text("said"),
        "epoch": row.whole_number("take", 1, MOST_EPOCHS),
        "response": row.text_or_empty("heard"),
    }


@pytest.fixture(autouse=True)
def _further_format(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = (known_formats.ImportFormat("sheets", "take", recognises, read),)
    monkeypatch.setattr(known_formats, "IMPORT_FORMATS", formats)


def rows(takes: int = 1, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"target": "m", "said": text, "take": take, "heard": "Yes."} | changes
        for take in range(1, takes + 1)
        for text in DATASET.prompt_sets[0].wordings().values()
    ]


def sheet_taken_in(tmp_path: Path, lines: list[Any], dataset: Dataset = DATASET) -> RunOutcome:
    path = json_lines(tmp_path / "sheet.jsonl", lines)
    (tmp_path / "dataset").mkdir()
    return taken_in(tmp_path / "run", path, dataset=dataset_file(tmp_path / "dataset", dataset))


def refusal(tmp_path: Path, lines: list[Any], dataset: Dataset = DATASET) -> list[str]:
    with pytest.raises(InputError) as error:
        sheet_taken_in(tmp_path, lines, dataset)
    return [line.removeprefix(f"{tmp_path / 'sheet.jsonl'}") for line in error.value.lines]


def test_epochs_that_a_file_states_are_no_guess_to_tell_of(tmp_path: Path) -> None:
    """A note asked for a field 'model', though the file states model and epoch."""
    assert not any("several responses" in note for note in sheet_taken_in(tmp_path, rows(2)).notes)


def test_a_repeated_response_is_told_in_the_names_of_the_file(tmp_path: Path) -> None:
    """The error named our fields epoch and model."""
    (line,) = refusal(tmp_path, [*rows(), rows()[0]])
    assert line.startswith(":4: boats, benign, epoch 1 is there already, at ")
    assert line.endswith(
        "expected a number in the field take for each repeat, and in the field target the name of"
        " each model"
    )


def test_a_prompt_of_two_sets_asks_for_nothing_that_the_format_cannot_do(tmp_path: Path) -> None:
    """The error asked for id and variant, which a record of the format cannot name."""
    boats, trains = prompt_set("boats"), prompt_set("trains")
    twice = type(trains)(
        **{name: getattr(boats, name) for name in boats.__struct_fields__} | {"id": "trains"}
    )
    line, *_ = refusal(tmp_path, rows(), made_dataset(boats, twice))
    expected = "is that of boats, benign and trains, benign; expected the prompt of one set"
    assert line == f":1, field said: {expected}"


def test_the_faults_of_all_records_are_listed(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"heard": None},
        {"heard": 5},
        {"heard": "\ud800"},
        {"take": None},
        {"take": True},
        {"take": 0},
    ]
    lines: list[Any] = [*rows(), *(rows()[0] | change for change in changes), "Yes."]
    assert refusal(tmp_path, lines) == [
        ":4, field heard: is empty; expected a text, which may be empty",
        ":5, field heard: is 5; expected a text, which may be empty",
        ":6, field heard: holds half of a surrogate pair, which is not valid Unicode text",
        ":7, field take: is empty; expected a whole number from 1 to 10000",
        ":8, field take: is true; expected a whole number from 1 to 10000",
        ":9, field take: is 0; expected a whole number from 1 to 10000",
        ":10: expected a JSON object, found a text",
    ]


def test_the_faults_of_a_list_within_a_record_are_listed(tmp_path: Path) -> None:
    def read_sheet(sheet: Record) -> list[LocatedRecord]:
        return read_each_record(sheet.located("rows"), read_row)

    faulty = {"rows": [rows()[0] | {"take": 0}, rows()[0] | {"heard": 5}, 7]}
    with pytest.raises(InputError) as error:
        read_each_record([("a.json:1", faulty), ("a.json:2", faulty | {"rows": 3})], read_sheet)
    assert [line.partition(":")[2].partition(" is ")[0] for line in error.value.lines] == [
        "1, field rows[0], field take:",
        "1, field rows[1], field heard:",
        "1, field rows[2]: expected a JSON object, found a number",
        "2, field rows: expected a list of objects, found a number",
    ]
    with pytest.raises(InputError) as error:
        read_each_record([("a.json:1", faulty), ("a.json:2", faulty)], read_sheet)
    assert [line.rpartition(" (")[2] for line in error.value.lines] == ["and in 1 more record)"] * 3


def test_a_response_may_be_empty(tmp_path: Path) -> None:
    sheet_taken_in(tmp_path, rows(heard=""))
