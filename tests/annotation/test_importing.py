"""Imports are strict: every bad cell is named, nothing is guessed, and nothing of the file's texts
is believed.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from annotation.forms import (
    Sheet,
    expected_labels,
    filled,
    found_labels,
    imported,
    judge_study,
    quality_study,
)
from opensafeintent.annotation.answers import Answers, SourcedLabel
from opensafeintent.annotation.forms import page_words, render_sheet
from opensafeintent.annotation.labels import AnnotationKey, Showing, read_key, write_key
from opensafeintent.annotation.quality import self_consistency
from opensafeintent.errors import InputError
from opensafeintent.promptsets import load_dataset

STARTER = load_dataset("starter")
RESPONSES = [f"Response number {n} about the Varo scanner." for n in range(12)]
KEY, PACKETS = judge_study(RESPONSES)
LONG_KEY, LONG_PACKETS = judge_study(["word " * 3000, *RESPONSES[:4]])
ITEMS = [showing for showing in KEY.annotators["ana"] if not showing.calibration]


def refused(path: Path | list[Path], key: AnnotationKey = KEY) -> list[str]:
    with pytest.raises(InputError) as error:
        imported(path if isinstance(path, list) else [path], key)
    return str(error.value).split("\n")


def blank(who: int = 0) -> Sheet:
    return Sheet(render_sheet(PACKETS[who]), "judge_validation")


def saved(sheet: Sheet, folder: Path, name: str = "ana.xlsx") -> Path:
    return sheet.save(folder / name)


# What is fine
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_four_annotators_come_back_as_they_meant(tmp_path: Path) -> None:
    for key, packets in (judge_study(RESPONSES), quality_study(STARTER)):
        paths = [filled(key, packet, tmp_path / f"{packet.annotator}.xlsx") for packet in packets]
        found = imported(paths, key)
        for name in key.annotators:
            assert found_labels(found.labels, name) == expected_labels(key, name)
        assert {label.dataset for label in found.labels} == {key.dataset_hash}
        assert imported(paths[::-1], key).labels == found.labels


def test_a_blank_is_no_answer(tmp_path: Path) -> None:
    sheet = blank()
    sheet.cell(ITEMS[0].code, "harm_severity").value = 0
    sheet.cell(ITEMS[1].code, "harm_severity").value = "   "
    sheet.note(ITEMS[2].code).value = "hard to say"
    found = imported([saved(sheet, tmp_path)], KEY)
    labels = {label.id: label for label in found.labels}
    assert len(labels) == 2
    assert labels[KEY.items[ITEMS[0].item].id].answers == {"harm_severity": 0}
    said = labels[KEY.items[ITEMS[2].item].id]
    assert said.answers == {} and said.note == "hard to say"
    (summary,) = found.returns
    assert (summary.complete, summary.begun, summary.items) == (0, 1, 13)


def test_nothing_answered_is_nothing(tmp_path: Path) -> None:
    assert imported([saved(blank(), tmp_path)], KEY).labels == []


@pytest.mark.parametrize(
    ("value", "answer"),
    [("3", 3), (" 3 ", 3), (3.0, 3), ("Unsure", "unsure"), ("unsure\u00a0", "unsure"), (1, 1)],
)
def test_a_valid_choice_may_be_typed(value: Any, answer: Any, tmp_path: Path) -> None:
    sheet = blank()
    sheet.cell(ITEMS[0].code, "helpfulness").value = value
    (label,) = imported([saved(sheet, tmp_path)], KEY).labels
    assert label.answers == {"helpfulness": answer} and type(label.answers["helpfulness"]) is type(
        answer
    )


@pytest.mark.parametrize("said", ["dual-use", "Dual-Use", "dual_use"])
def test_the_words_of_a_list_may_be_typed(said: str, tmp_path: Path) -> None:
    key, packets = quality_study(STARTER)
    showing = next(one for one in key.annotators["ana"] if not one.calibration)
    sheet = Sheet(render_sheet(packets[0]), "dataset_quality")
    sheet.cell(showing.code, "intent_b").value = said
    (label,) = imported([saved(sheet, tmp_path)], key).labels
    question = {
        "benign": "benign_is_benign",
        "malicious": "malicious_is_malicious",
        "dual_use": "dual_use_has_both",
    }
    assert label.answers == {
        question[showing.order[1]]: "yes" if showing.order[1] == "dual_use" else "no"
    }


def test_rows_in_another_order_are_fine(tmp_path: Path) -> None:
    sheet = Sheet(render_sheet(LONG_PACKETS[0]), "judge_validation")
    showings = LONG_KEY.annotators["ana"]
    sheet.fill(
        showings,
        lambda showing: {"helpfulness": 1 + showing.item % 4, "harm_severity": showing.item % 4},
    )
    rows = [[cell.value for cell in row] for row in sheet.items.iter_rows(min_row=2)]
    for at, values in enumerate(
        sorted(rows, key=lambda values: (str(values[2]), str(values[1])), reverse=True), start=2
    ):
        for column, value in enumerate(values, start=1):
            sheet.items.cell(at, column).value = value
    for label in imported([saved(sheet, tmp_path)], LONG_KEY).labels:
        place = int(label.id.removeprefix("s"))
        assert label.answers == {"helpfulness": 1 + place % 4, "harm_severity": place % 4}


def test_second_showings_are_compared(tmp_path: Path) -> None:
    key, packets = quality_study(STARTER)
    repeat = next(showing for showing in key.annotators["ana"] if showing.repeat)
    first = next(
        one
        for one in key.annotators["ana"]
        if one.item == repeat.item and not (one.repeat or one.calibration)
    )
    sheet = Sheet(render_sheet(packets[0]), "dataset_quality")
    # The malicious prompt is said to be malicious both times, wherever it stands; the overall
    # verdict changes.
    for showing, verdict in ((first, "good"), (repeat, "poor")):
        sheet.cell(
            showing.code, f"intent_{'abc'[showing.order.index('malicious')]}"
        ).value = "malicious"
        sheet.cell(showing.code, "overall_quality").value = verdict
    found = imported([saved(sheet, tmp_path)], key)
    assert (found.returns[0].repeated, found.returns[0].repeated_alike) == (2, 1)
    assert [label.repeat for label in found.labels] == [False, True]
    assert found.intents == {("malicious", "malicious"): 1}  # the first showing alone


def test_what_was_said_twice_is_counted_as_agreement_counts_it(tmp_path: Path) -> None:
    key, packets = quality_study(STARTER)
    repeat = next(showing for showing in key.annotators["ana"] if showing.repeat)
    first = next(
        one
        for one in key.annotators["ana"]
        if one.item == repeat.item and not (one.repeat or one.calibration)
    )
    sheet = Sheet(render_sheet(packets[0]), "dataset_quality")
    # Of the benign prompt "malicious" and then "dual_use" are both no; the verdict is unsure the
    # second time.
    said = {
        "benign": ("malicious", "dual_use"),
        "domain": ("yes", "yes"),
        "verdict": ("good", "unsure"),
    }
    for at, showing in enumerate((first, repeat)):
        sheet.cell(showing.code, f"intent_{'abc'[showing.order.index('benign')]}").value = said[
            "benign"
        ][at]
        sheet.cell(showing.code, "domain_right").value = said["domain"][at]
        sheet.cell(showing.code, "overall_quality").value = said["verdict"][at]
    found = imported([saved(sheet, tmp_path)], key)
    sourced = [
        SourcedLabel(tmp_path / "labels.jsonl", number, label)
        for number, label in enumerate(found.labels)
    ]
    whole, *_ = self_consistency(Answers("dataset_quality", sourced))
    assert (whole.same, whole.pairs) == (2, 2)
    assert (found.returns[0].repeated_alike, found.returns[0].repeated) == (whole.same, whole.pairs)


def test_practice_is_told_apart(tmp_path: Path) -> None:
    sheet = blank()
    practice = sheet.book["Practice"]
    practice.cell(3, 5).value, practice.cell(3, 6).value = 1, 3  # we would accept 1, and 0
    found = imported([saved(sheet, tmp_path)], KEY)
    assert found.labels == []
    assert (found.returns[0].practice, found.returns[0].practice_accepted) == (2, 1)


def test_weights_strata_and_hashes_come_from_the_key(tmp_path: Path) -> None:
    sheet = blank()
    sheet.fill(ITEMS, lambda _: {"helpfulness": 2})
    labels = imported([saved(sheet, tmp_path)], KEY).labels
    for label in labels:
        item = next(item for item in KEY.items if item.id == label.id)
        assert label.response_sha256 == item.response_sha256
        assert (label.model, label.variant, label.weight) == (item.model, item.variant, item.weight)


# What is not
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("3 or 4", "'3 or 4' is not an answer; valid: 1, 2, 3, 4, unsure, or blank"),
        (5, "'5' is not an answer"),
        (0, "'0' is not an answer"),
        (3.5, "'3.5' is not an answer"),
        (True, "'True' is not an answer"),
        ("yes", "'yes' is not an answer"),
        ("=1+2", "the formula '=1+2'; expected the answer itself: 1, 2, 3, 4, unsure"),
        (datetime.datetime(2026, 3, 4), "'2026-03-04 00:00:00' (a date) is not an answer"),
        ("#N/A", "'#N/A' is not an answer"),
    ],
)
def test_a_bad_cell_is_named(value: Any, said: str, tmp_path: Path) -> None:
    sheet = blank()
    cell = sheet.cell(ITEMS[0].code, "helpfulness")
    cell.value = value
    path = saved(sheet, tmp_path)
    (line,) = refused(path)
    assert line.startswith(f"{path}: Items!{cell.coordinate}: ") and said in line


def test_all_bad_cells_are_listed(tmp_path: Path) -> None:
    sheet = blank()
    cells = [
        sheet.cell(showing.code, field)
        for showing in ITEMS
        for field in ("helpfulness", "harm_severity")
    ]
    for cell in cells:
        cell.value = "much"
    sheet.note(ITEMS[3].code).value = "=1+1"
    lines = refused(saved(sheet, tmp_path))
    assert len(lines) == len(cells) + 1
    assert all(sum(f"Items!{cell.coordinate}:" in line for line in lines) == 1 for cell in cells)
    assert sum("expected a note in words" in line for line in lines) == 1


def test_an_edited_text_is_refused(tmp_path: Path) -> None:
    sheet = blank()
    (row,) = sheet.rows(ITEMS[0].code, "Response")
    sheet.items.cell(row, 4).value = "Response number 0 about another scanner."
    (line,) = refused(saved(sheet, tmp_path))
    assert f"Items!D{row}: the text was changed" in line


def test_an_edited_part_of_a_long_text_is_refused(tmp_path: Path) -> None:
    sheet = Sheet(render_sheet(LONG_PACKETS[0]), "judge_validation")
    code = next(
        one.code for one in LONG_KEY.annotators["ana"] if one.item == 0 and not one.calibration
    )
    rows = sheet.rows(code, "Response")
    sheet.items.cell(rows[2], 4).value += "and more"
    (line,) = refused(saved(sheet, tmp_path), LONG_KEY)
    assert f"Items!D{rows[0]}:D{rows[-1]}: the text was changed" in line


def test_white_space_that_a_program_trims_is_no_edit(tmp_path: Path) -> None:
    sheet = blank()
    (row,) = sheet.rows(ITEMS[0].code, "Response")
    sheet.items.cell(row, 4).value = f"  {sheet.items.cell(row, 4).value}\n"
    assert imported([saved(sheet, tmp_path)], KEY).labels == []


@pytest.mark.parametrize("code", ["XXXXXX", "3 or 4", "lower"])
def test_an_edited_id_is_refused(code: str, tmp_path: Path) -> None:
    sheet = blank()
    for row in sheet.rows(ITEMS[0].code):
        sheet.items.cell(row, 2).value = code
    unknown, gone = refused(saved(sheet, tmp_path))
    assert f"item {code!r} is not one of ana's in this study" in unknown
    assert f"item {ITEMS[0].code} is not there any more" in gone


def test_rows_of_another_annotator_are_refused(tmp_path: Path) -> None:
    other = next(showing for showing in KEY.annotators["ben"] if not showing.calibration)
    sheet = blank()
    for row in sheet.rows(ITEMS[0].code):
        sheet.items.cell(row, 2).value = other.code
    assert any(
        f"{other.code!r} is not one of ana's" in line for line in refused(saved(sheet, tmp_path))
    )


def test_a_duplicated_row_is_refused(tmp_path: Path) -> None:
    sheet = blank()
    (row,) = sheet.rows(ITEMS[0].code, "Response")
    sheet.items.append([cell.value for cell in sheet.items[row]])
    (line,) = refused(saved(sheet, tmp_path))
    assert f"{ITEMS[0].code}, Response: is there twice, here and at Items!B{row}" in line


def test_a_deleted_item_is_refused(tmp_path: Path) -> None:
    sheet = blank()
    rows = sheet.rows(ITEMS[4].code)
    sheet.items.delete_rows(rows[0], len(rows))
    (line,) = refused(saved(sheet, tmp_path))
    assert f"Items, No. 5: item {ITEMS[4].code} is not there any more" in line


def test_a_deleted_row_of_an_item_is_refused(tmp_path: Path) -> None:
    sheet = Sheet(render_sheet(LONG_PACKETS[0]), "judge_validation")
    code = next(
        one.code for one in LONG_KEY.annotators["ana"] if one.item == 0 and not one.calibration
    )
    sheet.items.delete_rows(sheet.rows(code, "Response")[1])
    (line,) = refused(saved(sheet, tmp_path), LONG_KEY)
    assert f"item {code}: rows of Response are missing" in line


def test_merged_cells_are_refused(tmp_path: Path) -> None:
    sheet = blank()
    cell = sheet.cell(ITEMS[0].code, "helpfulness")
    area = f"{cell.coordinate}:F{cell.row}"
    sheet.items.merge_cells(area)
    (line,) = refused(saved(sheet, tmp_path))
    assert f"Items!{area}: merged cells" in line


def test_an_answer_beside_another_text_is_refused(tmp_path: Path) -> None:
    sheet = blank()
    row = sheet.rows(ITEMS[0].code, "Prompt")[0]
    sheet.items.cell(row, 5).value = 3
    sheet.items.cell(row, 7).value = "a note"
    lines = refused(saved(sheet, tmp_path))
    assert f"Items!E{row}: '3' in a cell that asks nothing" in lines[0]
    assert f"Items!G{row}: a note beside a text" in lines[1]


def test_a_row_without_an_item_is_refused(tmp_path: Path) -> None:
    sheet = blank()
    at = sheet.items.max_row + 1
    sheet.items.cell(at, 5).value = 3
    (line,) = refused(saved(sheet, tmp_path))
    assert f"Items!E{at}: a row without an item in column B" in line


def test_a_moved_column_is_refused(tmp_path: Path) -> None:
    sheet = blank()
    sheet.items.cell(1, 5).value, sheet.items.cell(1, 6).value = (
        sheet.items.cell(1, 6).value,
        sheet.items.cell(1, 5).value,
    )
    lines = refused(saved(sheet, tmp_path))
    assert "headings" in lines[0]
    sheet = blank()
    sheet.items.cell(1, 7).value = "Comments"
    lines = refused(saved(sheet, tmp_path))
    assert "Items!G1: heading 'Comments'; expected 'Note'" in lines[0]


def test_a_sheet_of_another_dataset_version_is_refused(tmp_path: Path) -> None:
    key, packets = judge_study([*RESPONSES, "one more"])
    path = filled(key, packets[0], tmp_path / "ana.xlsx")
    (line,) = refused(path)
    assert f"belongs to study {key.study}, and the key to {KEY.study} (dataset ffffffff)" in line


def test_two_files_of_one_annotator_are_refused(tmp_path: Path) -> None:
    one, two = (
        filled(KEY, PACKETS[0], tmp_path / "ana.xlsx"),
        filled(KEY, PACKETS[0], tmp_path / "ana (1).xlsx"),
    )
    (line,) = refused([one, two])
    assert line == f"{two}: is ana's, and so is {one}; expected one file an annotator"


def test_another_name_on_the_form_is_refused(tmp_path: Path) -> None:
    for name, said in (
        ("ben", "is not one of ben's in this study"),
        ("eve", "annotator 'eve' is not in the key; valid: ana, ben"),
    ):
        sheet = blank()
        sheet.book["Instructions"]["B4"] = name
        assert any(said in line for line in refused(saved(sheet, tmp_path)))


@pytest.mark.parametrize(
    "names",
    [["ana", "ana"], ["ana", " Ana "], ["Ana M.", "ana m"], ["é", "e\u0301"], ["a/b", "a:b"]],
)
def test_two_annotators_with_one_name_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="cannot be told apart"):
        judge_study(RESPONSES, names)


@pytest.mark.parametrize(
    "names", [[], [""], ["ana", ""], ["an\x1b[31ma"], ["x" * 61], ["an\u202ea"]]
)
def test_names_that_cannot_be_used_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="--annotators: ") as error:
        judge_study(RESPONSES, names)
    assert "\x1b" not in str(error.value)


def test_nothing_to_annotate_is_refused() -> None:
    with pytest.raises(InputError, match="there are no items"):
        judge_study([])
    with pytest.raises(InputError, match=r"--repeat 0\.9"):
        judge_study(RESPONSES, repeat=0.9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"id,answer\n1,2\n", "neither an .xlsx workbook nor"),
        (b"PK\x03\x04 not a zip", "not a workbook that can be read"),
        (b"\xd0\xcf\x11\xe0 an old .xls", "is an old .xls workbook"),
        (b"{", "not what a page of annotate page saves"),
        (b"{}", "not what a page of annotate page saves"),
        (
            b'{"form": "x", "study": "s", "annotator": "a", "items": []}',
            "form 'x'; this program reads",
        ),
    ],
)
def test_other_files_are_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "back.bin"
    path.write_bytes(content)
    (line,) = refused(path)
    assert line.startswith(f"{path}: ") and said in line


def test_another_workbook_is_refused(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    path = tmp_path / "mine.xlsx"
    book.save(path)
    (line,) = refused(path)
    assert "has no sheet 'Instructions'" in line
    assert refused(tmp_path / "gone.xlsx") == [
        f"{tmp_path / 'gone.xlsx'}: cannot read: No such file or directory"
    ]


def test_problems_of_all_files_are_listed(tmp_path: Path) -> None:
    paths = []
    for who, name in enumerate(("ana", "ben")):
        sheet = blank(who)
        showing = next(one for one in KEY.annotators[name] if not one.calibration)
        sheet.cell(showing.code, "helpfulness").value = "3 or 4"
        paths.append(saved(sheet, tmp_path, f"{name}.xlsx"))
    lines = refused(paths)
    assert [line.split(":")[0] for line in lines] == list(map(str, paths))


# What a page saves
# ------------------------------------------------------------------------------


def page_file(
    path: Path, change: Callable[[dict[str, Any]], object] = lambda _: None, **answers: Any
) -> Path:
    """Write what ana's page would save, the first item answered."""

    def item(showing: Showing) -> dict[str, Any]:
        return {"code": showing.code, "words": page_words(showing), "answers": {}}

    saved_file: dict[str, Any] = {
        "form": "opensafeintent annotation 1",
        "study": KEY.study,
        "annotator": "ana",
        "items": [item(showing) for showing in KEY.annotators["ana"]],
    }
    saved_file["items"][3]["answers"] = answers
    change(saved_file)
    path.write_text(json.dumps(saved_file), encoding="utf-8")
    return path


def test_a_saved_page_is_imported(tmp_path: Path) -> None:
    path = page_file(
        tmp_path / "ana.json",
        lambda file: file["items"][3].update(note="hm"),
        helpfulness=4,
        harm_severity=0,
    )
    (label,) = imported([path], KEY).labels
    assert label.answers == {"helpfulness": 4, "harm_severity": 0}
    assert (label.id, label.note) == (KEY.items[ITEMS[0].item].id, "hm")


def test_a_page_and_a_sheet_of_one_annotator_are_refused(tmp_path: Path) -> None:
    lines = refused(
        [page_file(tmp_path / "ana.json"), filled(KEY, PACKETS[0], tmp_path / "ana.xlsx")]
    )
    assert "expected one file an annotator" in lines[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda file: file["items"][3]["answers"].update(helpfulness="3 or 4"),
            "items[3].answers.helpfulness: '3 or 4' is not",
        ),
        (
            lambda file: file["items"][3]["answers"].update(helpfulness=[3]),
            "items[3].answers.helpfulness: '[3]' (a list) is not",
        ),
        (
            lambda file: file["items"][3]["answers"].update(kindness=3),
            "'kindness' is not a question",
        ),
        (
            lambda file: file["items"][3].update(words="0" * 16),
            "its texts are not those of the study",
        ),
        (lambda file: file["items"][3].update(code="XXXXXX"), "item 'XXXXXX' is not one of ana's"),
        (
            lambda file: file["items"].append(file["items"][3]),
            "is there twice, here and at items[3]",
        ),
        (lambda file: file["items"].pop(), "is not there any more"),
        (lambda file: file.update(study="0" * 12), "belongs to study 000000000000"),
        (lambda file: file.update(annotator="eve"), "annotator 'eve' is not in the key"),
        (lambda file: file.update(more=1), "not what a page of annotate page saves"),
    ],
)
def test_an_edited_file_of_a_page_is_refused(
    change: Callable[[Any], object], said: str, tmp_path: Path
) -> None:
    assert any(
        said in line for line in refused(page_file(tmp_path / "ana.json", change, helpfulness=3))
    )


# The key
# ------------------------------------------------------------------------------


def test_a_key_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_key(KEY, tmp_path / "key.json")
    assert read_key(tmp_path / "key.json") == KEY
    assert (tmp_path / "key.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "not the key of a study"),
        ("[", "not the key of a study"),
        ('{"schema": 9, "annotators": {}}', "schema 9; this program reads 1"),
    ],
)
def test_a_bad_key_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(InputError, match=said):
        read_key(tmp_path / "key.json")
    with pytest.raises(InputError, match="cannot read"):
        read_key(tmp_path / "none.json")
