"""Prompt-sets as a table: CSV with the columns benign, dual_use, malicious."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent import check_dataset, dataset_template
from opensafeintent.errors import InputError
from opensafeintent.promptsets import load_dataset, read_dataset
from promptsets.samples import FLAT, LABELS, OURS
from samples import json_lines

NAMES = {
    "prompt_dual_use_2": "dual_use_paraphrase_1",
    "prompt_dual_use_3": "dual_use_paraphrase_2",
    "dual_use_prompt_plausible_benign_use": "dual_use_benign_use",
    "dual_use_prompt_meaningful_misuse_risk": "dual_use_misuse_risk",
}
ROW = {NAMES.get(name, name.removeprefix("prompt_")): text for name, text in FLAT.items()}


def table(path: Path, *rows: dict[str, Any], separator: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)
    return path


def problems(path: Path) -> list[str]:
    dataset, problems = read_dataset(str(path))
    assert dataset is None
    return problems


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_is_the_same_dataset_as_any_other_format(tmp_path: Path, separator: str) -> None:
    (nested,) = load_dataset(str(table(tmp_path / "t.csv", ROW, separator=separator))).prompt_sets
    assert nested.dual_use_paraphrases == tuple(OURS["dual_use_paraphrases"])
    (flat,) = load_dataset(str(table(tmp_path / "f.csv", FLAT))).prompt_sets
    assert nested == flat


EVERY_FIELD = {
    "id": "knife",
    "family": "blades",
    "content_shift": "partial",
    "language": "en",
    "source": "by hand",
}
"""The optional fields of a prompt-set that have one name in every format."""


@pytest.mark.parametrize("row", [ROW, FLAT, OURS])
def test_a_table_has_every_field_of_a_prompt_set(tmp_path: Path, row: dict[str, Any]) -> None:
    """None is silently left out, whatever fields a later version adds."""
    filled = row | EVERY_FIELD
    if row is OURS:
        asked = {"questions": {"benign": {"must": ["Does it help?"]}}}
        path = json_lines(tmp_path / "t.jsonl", [filled | asked])
    else:
        path = table(tmp_path / "t.csv", filled | {"benign_must_1": "Does it help?"})
    dataset = load_dataset(str(path))
    (item,) = dataset.prompt_sets
    unfilled = [name for name in item.__struct_fields__ if not getattr(item, name)]
    assert (unfilled, dataset.unread) == ([], ())
    assert {name: getattr(item, name) for name in EVERY_FIELD} == EVERY_FIELD


def test_an_overlap_of_a_table_is_checked_and_counts_for_its_hash(tmp_path: Path) -> None:
    paths = {
        shift: table(tmp_path / f"t-{shift}.csv", ROW | {"content_shift": shift})
        for shift in ("none", "full", "some", "")
    }
    (line,) = problems(paths["some"])
    assert "field content_shift: unknown content shift 'some'" in line
    hashes = [load_dataset(str(paths[shift])).hash for shift in ("none", "full", "")]
    assert len({*hashes}) == 3
    assert hashes[2] == load_dataset(str(table(tmp_path / "without.csv", ROW))).hash


def test_all_missing_columns_are_named_once(tmp_path: Path) -> None:
    lacking = {name: ROW[name] for name in ("dual_use", "harm_domain")}
    (line,) = problems(table(tmp_path / "t.csv", *[lacking] * 40))
    assert "t.csv:2: lacks benign, malicious; its fields: dual_use, harm_domain" in line
    assert "(and in 39 more records)" in line
    (line,) = problems(table(tmp_path / "foo.csv", *[{"foo": "1", "bar": "2"}] * 40))
    assert "benign, malicious (a table)" in line and "its fields: foo, bar" in line


def test_a_column_that_is_there_is_empty_and_not_missing(tmp_path: Path) -> None:
    (line,) = problems(table(tmp_path / "one.csv", ROW | {"malicious": ""}))
    assert line.endswith("one.csv:2, field malicious: is empty; expected a text")
    two = dict.fromkeys(("benign", "malicious"), "")
    (line,) = problems(table(tmp_path / "two.csv", ROW | two))
    assert line.endswith("two.csv:2: without a text: benign, malicious")
    some = {name: cell for name, cell in ROW.items() if name != "benign"}
    (line,) = problems(table(tmp_path / "both.csv", some | {"malicious": ""}))
    assert "lacks benign; its fields: " in line and line.endswith("; without a text: malicious")
    (line,) = problems(json_lines(tmp_path / "d.jsonl", [{**OURS, "prompts": None}]))
    assert line.endswith("field prompts: is empty; expected an object")


def test_different_faults_are_named_each(tmp_path: Path) -> None:
    rows = [ROW | {"task_type": name} for name in ("Explaining", "Explaining", "Poetry")]
    first, second = problems(table(tmp_path / "t.csv", *rows))
    assert "'Explaining'; did you mean" in first
    assert "1 more record" in first
    assert ":4" in second


def test_paraphrases_are_numbered_without_a_gap(tmp_path: Path) -> None:
    row = ROW | {"dual_use_paraphrase_4": "One more."}
    (line,) = problems(table(tmp_path / "t.csv", row))
    assert "there is no dual_use_paraphrase_3" in line


def test_a_template_is_a_dataset_and_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    ran = osi("dataset", "template", path)
    assert (ran.code, ran.err) == (0, "")
    (example,) = load_dataset(str(path)).prompt_sets
    assert (example.harm_domain, example.task_type) == tuple(LABELS.values())
    before = path.read_text()
    for taken_path in (path, tmp_path / "my.jsonl"):
        with pytest.raises(InputError):
            dataset_template(taken_path)
    assert path.read_text() == before


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", ROW | {"reviewer": "Ann", "score": ""})
    ran = osi("dataset", "check", path)
    assert ran.code == 0
    assert "not read: reviewer, score" in ran.out + ran.err
    path = json_lines(tmp_path / "t.jsonl", [OURS | {"reviewer": "Ann"}])
    remarks = check_dataset(str(path)).notes
    assert "not read: reviewer" in remarks
    remarks = check_dataset(str(table(tmp_path / "f.csv", FLAT | {"reviewer": "Ann"}))).notes
    assert not any("not read" in remark for remark in remarks)


@pytest.mark.parametrize("rows", ["sep=;\n{}", '"sep=;"\r\n{}', ";;;\n\n{}\n;;\n", "\ufeff{};\n"])
def test_what_spreadsheet_programs_leave_is_passed_over(tmp_path: Path, rows: str) -> None:
    body = table(tmp_path / "t.csv", ROW, separator=";").read_text().strip()
    if rows.endswith("{};\n"):
        body = body.replace("\n", ";\n", 1)
    path = tmp_path / "u.csv"
    path.write_text(rows.format(body), "utf-8")
    (item,) = load_dataset(str(path)).prompt_sets
    assert item == load_dataset(str(tmp_path / "t.csv")).prompt_sets[0]


def test_blanks_around_a_name_do_not_count(tmp_path: Path) -> None:
    row = ROW | EVERY_FIELD
    names = (*EVERY_FIELD, "harm_domain", "task_type")
    blanks = row | {name: f" {row[name]}\u00a0" for name in names} | {"benign": " To the letter. "}
    (item,) = load_dataset(str(table(tmp_path / "t.csv", blanks))).prompt_sets
    (as_it_is,) = load_dataset(str(table(tmp_path / "u.csv", row))).prompt_sets
    assert item.prompts.benign == " To the letter. "
    assert all(getattr(item, name) == getattr(as_it_is, name) for name in names)
    (item,) = load_dataset(
        str(table(tmp_path / "v.csv", row | dict.fromkeys(EVERY_FIELD, " ")))
    ).prompt_sets
    assert (
        item
        == load_dataset(
            str(table(tmp_path / "w.csv", row | dict.fromkeys(EVERY_FIELD, "")))
        ).prompt_sets[0]
    )


def test_an_error_names_the_headings_of_the_file(tmp_path: Path) -> None:
    headings = {"ID": "a", "Harm Domain": "Unknown", "Task Type": "Explanation", "Good": "x"}
    slip, prompts = problems(table(tmp_path / "t.csv", headings))
    assert "Harm Domain (did you mean 'harm_domain'?)" in slip
    assert prompts.endswith("; its fields: ID, Harm Domain, Task Type, Good")
    renamed = {"Harm Domain" if name == "harm_domain" else name: cell for name, cell in ROW.items()}
    _, unknown = problems(table(tmp_path / "u.csv", renamed | {"Harm Domain": "Poetry"}))
    assert "field Harm Domain: unknown harm domain 'Poetry'" in unknown


@pytest.mark.parametrize("title", ["Our prompts\n", "Our prompts,,,,,\n"])
def test_a_title_above_the_header_is_named(tmp_path: Path, title: str) -> None:
    path = table(tmp_path / "t.csv", ROW)
    path.write_text(title + path.read_text())
    (line,) = problems(path)
    assert line.startswith(
        f"{path}:2: has {len(ROW)} cells, and the header names 1 (line 1: 'Our prompts'); expected"
        " a heading over each cell, in the first row that is not blank, and a text with commas"
    )
