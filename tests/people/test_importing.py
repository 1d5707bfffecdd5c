"""Imports are strict: every bad answer is named, nothing is guessed, and nothing of the file's
texts is believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.errors import InputError
from opensafeintent.people.importing import ImportedLabels, import_returns
from opensafeintent.people.labels import (
    AnnotationKey,
    Label,
    read_key,
    read_labels,
    write_key,
    write_labels,
)
from opensafeintent.promptsets import load_dataset
from people.forms import (
    ASKED,
    Sheet,
    expected_labels,
    filled,
    found_labels,
    judge_study,
    page_file,
    quality_study,
)

STUDY = judge_study([f"Response number {n},\nof the Varo scanner's." for n in range(6)])
KEY = STUDY.key
CODE, OTHER = STUDY.codes()[:2]


def refused(*paths: Path, key: AnnotationKey = KEY) -> list[str]:
    """Import files that have to be refused; return a line for each problem."""
    with pytest.raises(InputError) as error:
        import_returns(paths, key)
    lines = str(error.value).split("\n")
    assert all(any(line.startswith(str(path)) for path in paths) for line in lines)
    assert all(len(line) < 600 and line.isprintable() for line in lines)
    return lines


def first_item(**fields: Any) -> Callable[[dict[str, Any]], object]:
    """Return a change of the first item of a saved page."""
    return lambda saved: saved["items"][0].update(fields)


def answered(imported: ImportedLabels) -> Label:
    """Return the one label that is not blank."""
    (label,) = [label for label in imported.labels if not label.blank]
    return label


# What is fine
# ------------------------------------------------------------------------------


OWN = judge_study(["One.", "Two.", "Three."], asked=ASKED)


@pytest.mark.parametrize("study", [STUDY, OWN, quality_study(load_dataset("starter"))])
def test_four_annotators_come_back_as_they_meant(study: Any, tmp_path: Path) -> None:
    key = study.key
    paths = [
        filled(key, study.sheet(name), name, tmp_path / f"{name}.csv") for name in key.annotators
    ]
    imported = import_returns(paths[::-1], key)
    for name in key.annotators:
        assert found_labels(imported.labels, name) == expected_labels(key, name)
    assert [returned.annotator for returned in imported.returns] == list(key.annotators)
    first = imported.returns[0]
    answer_counts = [len(answers) for answers in expected_labels(key, "ana").values()]
    asked = 2 if key.kind == "judge_validation" else 8
    complete = sum(
        len(expected_labels(key, "ana").get((item.id, item.variant, item.model, item.epoch), ()))
        == asked + len(item.questions)
        for item in key.items
    )
    assert (first.items, first.complete) == (len(key.items), complete)
    assert first.begun == len(answer_counts) - complete


def test_an_answer_to_a_question_that_is_not_there_is_refused(tmp_path: Path) -> None:
    showing = next(one for one in OWN.key.annotators["ana"] if one.item == 0)
    sheet = OWN.sheet()
    sheet.set(showing.code, "q3", "yes")
    (line,) = refused(sheet.save(tmp_path / "ana.csv"), key=OWN.key)
    assert line.endswith(
        "'q3' is not a question about it; valid: helpfulness, harm_severity, q1, q2"
    )
    sheet.set(showing.code, "q3", "")
    sheet.set(showing.code, "q2", "maybe")
    (line,) = refused(sheet.save(tmp_path / "ana.csv"), key=OWN.key)
    assert line.endswith("q2: 'maybe' is not an answer; valid: yes, no, unsure, or blank")
    sheet.set(showing.code, "q2", "no")
    sheet.set(showing.code, "Questions", "q1: Another?\nq2: =1+1, or not?")
    (line,) = refused(sheet.save(tmp_path / "ana.csv"), key=OWN.key)
    assert "its texts were changed" in line


def test_answers_to_own_questions_are_kept_by_their_ids(tmp_path: Path) -> None:
    showing = next(one for one in OWN.key.annotators["ana"] if one.item == 0)
    sheet = OWN.sheet()
    sheet.set(showing.code, "q1", "YES ")
    path = tmp_path / "labels.jsonl"
    write_labels(import_returns([sheet.save(tmp_path / "ana.csv")], OWN.key).labels, path)
    (label,) = [one.label for one in read_labels(path) if not one.label.blank]
    # a question that has the name of a grade is no grade, and a blank one is not there
    assert (label.answers, label.own_answers) == ({}, {"harm_severity": "yes"})
    assert label.questions == OWN.key.items[0].questions
    path.write_text(path.read_text().replace('{"harm_severity":"yes"}', '{"c":"yes"}'))
    with pytest.raises(InputError, match="'c', which is none of the label's questions; valid: har"):
        read_labels(path)


def test_a_partial_return_in_another_order_with_notes(tmp_path: Path) -> None:
    sheet = STUDY.sheet()
    for name, value in (("helpfulness", " 3 "), ("harm_severity", "UNSURE"), ("note", " hm\n")):
        sheet.set(CODE, name, value)
    for row in sheet.rows:
        row[4] = row[4].replace("\n", "  ").replace("'", "")  # as spreadsheet programs may do
    order = [*range(4, len(sheet.headings)), 0, 1, 2, 3]
    sheet.headings = [sheet.headings[at] for at in order]
    sheet.rows = [[row[at] for at in order] for row in (*sheet.rows[::-1], [""] * len(order))]
    imported = import_returns([sheet.save(tmp_path / "ana.csv")], KEY)
    label = answered(imported)
    assert (label.answers, label.note) == ({"helpfulness": 3, "harm_severity": "unsure"}, "hm")
    (back,) = imported.returns
    assert (back.items, back.complete, back.begun, back.unsure) == (6, 1, 0, 1)


def test_a_sheet_with_semicolons_and_what_programs_add_is_imported(tmp_path: Path) -> None:
    sheet = STUDY.sheet()
    assert not any("," in heading for heading in sheet.headings)
    sheet.set(CODE, "helpfulness", "3.0")
    sheet.headings.append("")
    sheet.rows = [[*row, ""] for row in sheet.rows]
    sheet.rows.append([""] * len(sheet.headings))
    path = sheet.save(tmp_path / "ana.csv", ";")
    path.write_text(f"sep=;\n{path.read_text()}", encoding="utf-8-sig")
    label = answered(import_returns([path], KEY))
    assert label.answers == {"helpfulness": 3}


def test_a_saved_page_is_imported(tmp_path: Path) -> None:
    answers = {"helpfulness": 4, "harm_severity": 0}
    change = first_item(answers=answers, note="hm")
    label = answered(import_returns([page_file(STUDY, tmp_path / "ana.json", change)], KEY))
    item = KEY.items[KEY.annotators["ana"][0].item]
    assert (label.answers, label.note) == (answers, "hm")
    for field in ("id", "model", "response_sha256"):
        assert getattr(label, field) == getattr(item, field)


# What is refused
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["5", "3 or 4", "3.5", "5.0", "TRUE", "=3", "dual use", "0\x1b[31m", "٣", "３", "x" * 5_000],
)
def test_what_is_no_answer_is_named_with_its_item(value: str, tmp_path: Path) -> None:
    sheet = STUDY.sheet()
    sheet.set(CODE, "helpfulness", value)
    (line,) = refused(sheet.save(tmp_path / "ana.csv"))
    assert line.startswith(f"{tmp_path / 'ana.csv'}, item {CODE}, helpfulness: ")
    assert line.endswith("is not an answer; valid: 1, 2, 3, 4, unsure, or blank")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sheet: sheet.set(CODE, "Response", "another"), "its texts were changed"),
        (lambda sheet: sheet.set(CODE, "item", "XXXXXX"), "is none of ana's in this study"),
        (lambda sheet: sheet.set(CODE, "item", OTHER), f"item {OTHER}: is there twice"),
        (lambda sheet: sheet.rows.pop(0), "lacks 1 item, such as"),
        (lambda sheet: sheet.set(CODE, "annotator", "ben"), "the rows of one annotator"),
        (
            lambda sheet: sheet.headings.__setitem__(5, "harm"),
            "; it lacks helpfulness; it has besides harm",
        ),
        (lambda sheet: sheet.add("helpfulness"), "two columns are called 'helpfulness'"),
        (lambda sheet: sheet.add("note"), "the column 'note' is there twice"),
        (lambda sheet: sheet.rows[1].append("more"), "has 9 cells, and the header names 8"),
        (lambda sheet: sheet.set(CODE, "note", "a\0b"), "holds a NUL character"),
    ],
)
def test_a_sheet_that_was_changed_is_refused(
    change: Callable[[Sheet], object], message: str, tmp_path: Path
) -> None:
    sheet = STUDY.sheet()
    change(sheet)
    assert any(message in line for line in refused(sheet.save(tmp_path / "ana.csv")))


def answering(raw: str) -> Callable[[dict[str, Any]], object]:
    return first_item(answers={"helpfulness": json.loads(raw)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (answering('"3 or 4"'), f"item {CODE}, helpfulness: '3 or 4' is not an answer"),
        (answering('[3, {"a": 1}]'), "is not an answer; valid: 1, 2, 3, 4"),
        (answering("3.0"), "is not an answer; valid: 1, 2, 3, 4"),
        (answering('"３"'), "is not an answer; valid: 1, 2, 3, 4"),
        (answering("99999999999999999999"), "number 99999999999999999999 is out of range"),
        (first_item(answers={"kindness": 3}), "is not a question"),
        (first_item(words="0" * 16), "its texts were changed"),
        (first_item(code="XX\x1bXX"), "is none of ana's"),
        (lambda saved: saved["items"].append(saved["items"][0]), "is there twice"),
        (lambda saved: saved["items"].pop(), "lacks 1 item"),
        (lambda saved: saved.update(study="0" * 12), "belongs to study '000000000000'"),
        (lambda saved: saved.update(annotator="eve"), "annotator 'eve' is not in the key"),
        (lambda saved: saved.update(annotator="ben"), "is none of ben's in this study"),
        (lambda saved: saved.update(more=1), "not a file saved by a page"),
        (lambda saved: saved.update(items=3), "Expected `array`, got `int` - at `$.items`"),
    ],
)
def test_a_page_that_was_edited_is_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    assert any(message in line for line in refused(page_file(STUDY, tmp_path / "ana.json", change)))


@pytest.mark.parametrize(
    ("once", "twice", "key"),
    [
        ('"helpfulness": 3', '"helpfulness": 3, "helpfulness": 1', "helpfulness"),
        ('"annotator": "ana"', '"annotator": "ben", "annotator": "ana"', "annotator"),
        ('"answers": {', '"answers": {}, "answers": {', "answers"),
    ],
)
def test_a_page_with_a_key_twice_is_refused(
    once: str, twice: str, key: str, tmp_path: Path
) -> None:
    path = page_file(STUDY, tmp_path / "ana.json", first_item(answers={"helpfulness": 3}))
    path.write_text(path.read_text().replace(once, twice, 1))
    (line,) = refused(path)
    assert f"the key '{key}' appears twice in one object" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the rows of one annotator"),
        (b"id,answer\n1,2\n", "neither a page's .json nor a sheet of this task"),
        (b"PK\x03\x04 a workbook\xff", "packed by zip"),
        (b'a,"b\nc', "cannot read as CSV"),
        (b"{", "not a file saved by a page"),
        (b'{"form": "\xff"}', "not UTF-8"),
        (b'{"items": ' + b"[" * 100_000, "not a file saved by a page"),
        (b'{"study": "\\ud800"}', "not a file saved by a page"),
        (b'{"items": 1' + b"0" * 5_000, "not a file saved by a page"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "back.bin"
    path.write_bytes(content)
    (line,) = refused(path)
    assert message in line
    assert "cannot read: No such file" in refused(tmp_path / "gone")[0]


def test_a_file_larger_than_a_form_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "ana.csv").open("wb") as file:
        file.truncate(200_000_000)
    assert "200,000,000 bytes" in refused(tmp_path / "ana.csv")[0]


def test_problems_of_all_files_are_listed(tmp_path: Path) -> None:
    paths = []
    for name in ("ana", "ben"):
        sheet = STUDY.sheet(name)
        sheet.set(STUDY.codes(name)[0], "helpfulness", "3 or 4")
        paths.append(sheet.save(tmp_path / f"{name}.csv"))
    again = STUDY.sheet().save(tmp_path / "ana (1).csv")
    lines = refused(*paths, again)
    assert [line.partition(", item")[0] for line in lines[:2]] == list(map(str, paths))
    assert lines[2] == f"{again}: is ana's, and so is {paths[0]}; expected one file an annotator"


# The key
# ------------------------------------------------------------------------------


def test_a_key_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_key(KEY, tmp_path / "key.json")
    assert read_key(tmp_path / "key.json") == KEY
    assert (tmp_path / "key.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda key: key.clear(), "not the key of a study"),
        (lambda key: key.update(schema=9), "schema 9; this program reads 1"),
        (lambda key: key.update(items=[]), "shown an item that the key does not have"),
        (lambda key: key["annotators"]["ana"][0].update(item=-1), "not the key of a study"),
        (lambda key: key["annotators"]["ana"][0].update(order=["x"]), "not the key of a study"),
    ],
)
def test_a_bad_key_is_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    write_key(KEY, tmp_path / "key.json")
    key = json.loads((tmp_path / "key.json").read_bytes())
    change(key)
    (tmp_path / "key.json").write_text(json.dumps(key))
    with pytest.raises(InputError, match=message):
        read_key(tmp_path / "key.json")
    with pytest.raises(InputError, match="cannot read"):
        read_key(tmp_path / "none.json")
