"""The workbook that an annotator gets: what it shows, what it hides, and what can be edited in
it.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import openpyxl
import pytest

from annotation.forms import (
    Sheet,
    everything_in,
    expected_labels,
    filled,
    found_labels,
    imported,
    judge_study,
    quality_study,
)
from opensafeintent.annotation.forms import render_sheet
from opensafeintent.annotation.guide import SLOTS, guide_of
from opensafeintent.annotation.labels import LabelKind
from opensafeintent.annotation.texts import lines_of, readable, split_text, text_hash, words_hash
from opensafeintent.promptsets import load_dataset
from samples import made_dataset, prompt_set

STARTER = load_dataset("starter")
HOSTILE = (
    "=1+1",
    "=cmd|' /C calc'!A0",
    "+1 and more",
    "-2",
    "@SUM(A1)",
    '=HYPERLINK("https://example.invalid","x")',
    "https://example.invalid/ is no link",
    (
        "bell \x07, escape \x1b[31m, null \x00, bidi \u202e, zero width \u200b, private \ue000, no"
        " character \uffff"
    ),
    "lone \ud800 surrogate",
    "👩\u200d🔬 emoji, العربية, שלום, 漢字, e\u0301, 𝒳",
    "_x0041_ and _x005F_ and x005F_ <b>&amp;</b> ]]>",
    " leading, tab\there,\r\nnew\u2028line, trailing \n\n",
    "'quoted",
    "1",
    "TRUE",
    "2026-01-01",
)
SOFFICE = shutil.which("soffice")


def test_nothing_gives_the_answer_away() -> None:
    key, packets = quality_study(STARTER)
    for packet in packets:
        shown = everything_in(render_sheet(packet))
        for item in STARTER.prompt_sets:
            assert item.id not in shown
            assert item.dual_use_misuse_risk is None or item.dual_use_misuse_risk not in shown
            assert all(
                item.prompts.of(variant) in shown for variant in ("benign", "dual_use", "malicious")
            )
    orders = [showing.order for showing in key.annotators["ana"] if not showing.calibration]
    assert len(set(orders)) == 6  # every order of the three occurs: the place says nothing


def test_of_a_response_neither_model_nor_grade_nor_intent_is_shown() -> None:
    key, packets = judge_study([f"Response number {n}." for n in range(30)])
    shown = everything_in(render_sheet(packets[0]))
    assert "some/model" not in shown and "f" * 8 + "f" not in shown.replace("(ffffffff)", "")
    assert not re.search(r"\bbenign\b|dual|malicious", shown)
    assert not any(f"\ns{n}\n" in shown for n in range(30))
    assert key.items[0].model == "some/model"  # the key has it


def test_every_annotator_has_an_order_and_codes_of_their_own() -> None:
    key, packets = quality_study(STARTER)
    orders = {
        tuple(showing.item for showing in showings if not showing.calibration)
        for showings in key.annotators.values()
    }
    assert len(orders) == 4
    codes = [showing.code for showings in key.annotators.values() for showing in showings]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch("[BCDFGHJKMNPQRTVWXZ]{6}", code) for code in codes)
    for packet in packets:
        assert [shown.number for shown in packet.items] == list(range(1, len(packet.items) + 1))


def test_a_study_is_the_same_whoever_takes_part() -> None:
    few, _ = quality_study(STARTER, ["cleo"])
    many, _ = quality_study(STARTER)
    assert few.study == many.study and few.annotators["cleo"] == many.annotators["cleo"]
    assert quality_study(STARTER, seed=1)[0].study != many.study


def test_the_same_study_gives_the_same_bytes() -> None:
    packets = [judge_study(HOSTILE)[1][0] for _ in range(2)]
    assert render_sheet(packets[0]) == render_sheet(packets[1])


@pytest.mark.parametrize("kind", ["dataset_quality", "judge_validation"])
def test_only_answers_and_notes_can_be_edited(kind: LabelKind) -> None:
    key, packets = (
        quality_study(STARTER) if kind == "dataset_quality" else judge_study(["A response."] * 9)
    )
    sheet = Sheet(render_sheet(packets[0]), kind)
    assert all(one.protection.sheet for one in sheet.book)
    open_cells = {
        cell.coordinate
        for row in sheet.items.iter_rows()
        for cell in row
        if not cell.protection.locked
    }
    asked = {
        sheet.cell(showing.code, ask.field).coordinate
        for showing in key.annotators["ana"]
        if not showing.calibration
        for slot in SLOTS[kind]
        for ask in slot.asks
    }
    notes = {sheet.note(code).coordinate for code in sheet.codes()}
    assert open_cells == asked | notes
    lists = {str(one.sqref): one.formula1 for one in sheet.items.data_validations.dataValidation}
    listed = {cell for area in lists for cell in area.split()}
    assert listed == asked
    assert all("unsure" in formula for formula in lists.values())
    assert sheet.items.freeze_panes == "D2"


def test_it_has_instructions_examples_and_practice() -> None:
    for kind, study in (
        ("dataset_quality", quality_study(STARTER)),
        ("judge_validation", judge_study(["x"] * 5)),
    ):
        guide = guide_of(kind)  # type: ignore[arg-type]
        book = openpyxl.load_workbook(io.BytesIO(render_sheet(study[1][0])))
        assert book.sheetnames == ["Instructions", "Practice", "Practice answers", "Items"]
        told = "\n".join(
            str(cell.value) for row in book["Instructions"].iter_rows() for cell in row
        )
        assert all(
            text in told
            for text in (guide.warning, *guide.intro, *(example.why for example in guide.examples))
        )
        practice = "\n".join(
            str(cell.value) for row in book["Practice"].iter_rows() for cell in row
        )
        assert 2 <= len(guide.calibration) <= 5
        assert all(text in practice for example in guide.calibration for text in example.texts)
        assert not any(example.why in practice for example in guide.calibration)


def test_guides_answer_every_question_with_a_valid_choice() -> None:
    for kind in SLOTS:
        guide = guide_of(kind)
        for example in (*guide.examples, *guide.calibration):
            assert len(example.texts) == len(SLOTS[kind])
            asks = [ask for slot in SLOTS[kind] for ask in slot.asks]
            assert set(example.answers) == {ask.field for ask in asks}
            for ask in asks:
                values = {choice.value for choice in guide.question(ask.question).choices}
                assert set(example.answers[ask.field]) <= values
        for question in guide.questions:
            keys = [choice.key for choice in question.choices]
            assert len(set(keys)) == len(keys)
            assert not set(keys) & {"c", "z", ".", "?"}  # taken on the page


# Texts
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x07\x1b[31m", "[U+0007][U+001B][31m"),
        ("a\u202eb\u200bc\ufeff", "a[U+202E]b[U+200B]c[U+FEFF]"),
        ("\ud800\ue000\uffff\U0001fffe\ufdd0", "[U+D800][U+E000][U+FFFF][U+1FFFE][U+FDD0]"),
        ("a\r\nb\rc\x0bd\u2028e", "a\nb\nc\nd\ne"),
        ("\tx", "    x"),
        ("👩\u200d🔬 שלום e\u0301", "👩\u200d🔬 שלום e\u0301"),
    ],
)
def test_what_cannot_be_seen_is_made_visible(text: str, seen: str) -> None:
    assert readable(text) == seen


def test_a_lone_surrogate_has_a_hash() -> None:
    assert (
        text_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )  # FIPS 180-2, B.1
    assert len(text_hash("\ud800")) == 64


def test_lines_are_counted_as_they_are_wrapped() -> None:
    assert lines_of("one two three", 7) == 2  # "one two", "three"
    assert lines_of("one two three", 6) == 3
    assert lines_of("", 10) == 1
    assert lines_of("a\n\nb", 10) == 3
    assert lines_of("x" * 25, 10) == 3
    assert lines_of("漢字漢字漢字", 4) == 3  # each takes two columns


@pytest.mark.parametrize(
    "text",
    [
        "word " * 5000,
        "x" * 40_000,
        "漢字" * 9000,
        "line\n" * 3000,
        "a\n\n" * 50 + "b c d " * 900,
        "👩\u200d🔬" * 3000,
        "",
        "\n\n",
    ],
)
def test_a_long_text_is_split_and_never_cut(text: str) -> None:
    parts = split_text(text, 92, 18)
    assert "".join(parts) == text
    assert max(lines_of(part.strip("\n"), 92) for part in parts) <= 18
    assert not any(part.startswith("\u200d") or part.endswith("\u200d") for part in parts)


def test_a_long_response_goes_over_rows_of_a_readable_height() -> None:
    text = "\n\n".join(
        f"{n}. " + "The Varo scanner's lamp turns green when a parcel is known. " * 6
        for n in range(100)
    )
    assert len(text) > 32_767
    _, packets = judge_study([text])
    sheet = Sheet(render_sheet(packets[0]), "judge_validation")
    (code,) = sheet.codes()
    rows = sheet.rows(code, "Response")
    assert len(rows) > 10
    assert words_hash("".join(str(sheet.items.cell(row, 4).value) for row in rows)) == words_hash(
        text
    )
    assert sheet.items.cell(rows[0], 3).value == f"Response (1 of {len(rows)})"
    assert all(30 < sheet.items.row_dimensions[row].height < 320 for row in rows)
    assert sheet.cell(code, "harm_severity").row == rows[-1]  # where the reader ends


def test_hostile_texts_are_texts_and_come_out_readable(tmp_path: Path) -> None:
    key, packets = judge_study(HOSTILE, repeat=0)
    sheet = Sheet(render_sheet(packets[0]), "judge_validation")
    seen = {}
    for showing in key.annotators["ana"]:
        if not showing.calibration:
            (row,) = sheet.rows(showing.code, "Response")
            cell = sheet.items.cell(row, 4)
            assert cell.data_type == "s" and cell.hyperlink is None
            seen[HOSTILE[showing.item]] = str(cell.value)
    assert seen["=1+1"] == "=1+1" and seen["-2"] == "-2" and seen["TRUE"] == "TRUE"
    assert seen["lone \ud800 surrogate"] == "lone [U+D800] surrogate"
    assert "👩\u200d🔬 emoji, العربية, שלום, 漢字, e\u0301, 𝒳" in seen.values()
    path = filled(key, packets[0], tmp_path / "ana.xlsx")
    assert found_labels(imported([path], key).labels, "ana") == expected_labels(key, "ana")


# LibreOffice
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(SOFFICE is None, reason="no LibreOffice here (libreoffice-calc)")
@pytest.mark.parametrize("kind", ["dataset_quality", "judge_validation"])
def test_a_sheet_saved_again_by_libreoffice_imports_unchanged(
    kind: LabelKind, tmp_path: Path
) -> None:
    long = "\n".join(
        f"Line {n} of a long response about the Varo scanner, = + - @ and so on."
        for n in range(200)
    )
    key, packets = (
        quality_study(STARTER) if kind == "dataset_quality" else judge_study([*HOSTILE, long])
    )
    before = filled(key, packets[0], tmp_path / "ana.xlsx")
    out = tmp_path / "saved"
    command = [
        str(SOFFICE),
        "--headless",
        f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}",
        "--convert-to",
        "xlsx",
    ]
    subprocess.run(
        [*command, "--outdir", str(out), str(before)], check=True, capture_output=True, timeout=180
    )
    after = out / "ana.xlsx"
    assert after.read_bytes() != before.read_bytes()
    assert imported([after], key).labels == imported([before], key).labels
    assert found_labels(imported([after], key).labels, "ana") == expected_labels(key, "ana")


def test_a_small_set_is_not_met_twice() -> None:
    key, _ = quality_study(made_dataset(prompt_set("one"), prompt_set("two")))
    assert not any(showing.repeat for showing in key.annotators["ana"])
