"""What comes back from annotators may be damaged, or made to harm: one line, and no exhausted
machine.
"""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from annotation.forms import Sheet, judge_study
from opensafeintent.annotation.forms import PAGE_FORM, page_words, render_sheet
from opensafeintent.annotation.importing import import_returns
from opensafeintent.annotation.labels import write_key
from opensafeintent.annotation.returns import read_return
from opensafeintent.errors import InputError
from peaks import run

KEY, PACKETS = judge_study([f"Response number {n} about the Varo scanner." for n in range(12)])
FORM = render_sheet(PACKETS[0])
with zipfile.ZipFile(io.BytesIO(FORM)) as _archive:
    PARTS = {entry.filename: _archive.read(entry) for entry in _archive.infolist()}
ITEMS_PART = "xl/worksheets/sheet4.xml"
"""Instructions, practice, its answers, items."""
GIGABYTE = 2**30


def packed(parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def changed(part: str, old: bytes, new: bytes) -> bytes:
    assert PARTS[part].count(old)
    return packed(PARTS | {part: PARTS[part].replace(old, new, 1)})


def refused(path: Path, raw: bytes) -> list[str]:
    path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        import_returns([path], KEY)
    lines = str(caught.value).split("\n")
    assert all(line.startswith(f"{path}: ") and len(line) < len(str(path)) + 400 for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


END = b"</sheetData>"


def merged(place: str) -> bytes:
    return changed(
        ITEMS_PART,
        END,
        END + b'<mergeCells count="1"><mergeCell ref="%s"/></mergeCells>' % place.encode(),
    )


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "merged": (
        lambda: merged("A1:XFD1048576"),
        "Items!A1:XFD1048576: merged cells; expected one answer a cell",
    ),
    "unpacks": (
        lambda: packed(PARTS | {"xl/media/image1.png": b"\x89PNG" + bytes(300_000_000)}),
        (
            "xl/media/image1.png: unpacks to more than 100,000,000 bytes; a form of ours is never"
            " so large"
        ),
    ),
    "text": (
        lambda: changed(
            ITEMS_PART,
            END,
            b'<row r="9999"><c r="A9999" t="inlineStr"><is><t>'
            + b"x" * 50_000_000
            + b"</t></is></c></row>"
            + END,
        ),
        f"{ITEMS_PART}: a text of more than 1,000,000 characters",
    ),
    "cells": (
        lambda: changed(
            ITEMS_PART, END, b'<row r="9999">' + b"<c/>" * 10_000_000 + b"</row>" + END
        ),
        f"{ITEMS_PART}: more than 1,000,000 cells",
    ),
    "styles": (
        lambda: changed(
            "xl/styles.xml", b"<fonts", b"<fonts>" + b"<font/>" * 5_000_000 + b"</fonts><fonts"
        ),
        "xl/styles.xml: more than",
    ),
    "entities": (
        lambda: packed(
            PARTS
            | {
                ITEMS_PART: (
                    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
                    + b"".join(
                        b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9)
                    )
                    + b"]><x>&j;</x>"
                )
            }
        ),
        f"{ITEMS_PART}: declares a document type, which no workbook does",
    ),
    "deep": (
        lambda: packed(PARTS | {ITEMS_PART: b"<x>" * 1_000_000}),
        f"{ITEMS_PART}: elements within elements, 100 deep",
    ),
    "far away": (
        lambda: changed(
            ITEMS_PART, END, b'<row r="999999999"><c r="A999999999"><v>1</v></c></row>' + END
        ),
        f"{ITEMS_PART}: row '999999999'; expected rows in order, up to 1,048,576",
    ),
    "parts": (
        lambda: changed(
            "xl/sharedStrings.xml", b"<t>Response</t>", b"<t>Response (1 of 999999999)</t>"
        ),
        "part 'Response (1 of 999999999)'; expected the parts as they were",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["merged", "unpacks", "cells", "styles"])
def test_a_small_workbook_that_fills_a_machine_does_not(tmp_path: Path, name: str) -> None:
    made, said = BOMBS[name]
    (tmp_path / "ana.xlsx").write_bytes(made())
    assert (tmp_path / "ana.xlsx").stat().st_size < 1_000_000
    write_key(KEY, tmp_path / "key.json")
    ran = run(
        *(
            "annotate",
            "import",
            tmp_path / "ana.xlsx",
            "--key",
            tmp_path / "key.json",
            "--out",
            tmp_path / "labels.jsonl",
        )
    )
    assert ran.code == 2
    assert said in ran.said
    assert ran.peak < GIGABYTE / 2
    assert not (tmp_path / "labels.jsonl").exists()


@pytest.mark.parametrize("name", sorted(set(BOMBS) - {"merged", "unpacks", "cells", "styles"}))
def test_what_no_form_holds_is_refused_where_it_stands(tmp_path: Path, name: str) -> None:
    made, said = BOMBS[name]
    assert any(said in line for line in refused(tmp_path / "ana.xlsx", made()))


def _flagged(raw: bytes) -> bytes:
    """Set the flag of every entry that says it is encrypted, in its own header and in the
    directory.
    """
    found = bytearray(raw)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = found.find(mark)
        while at >= 0:
            found[at + place] |= 1
            at = found.find(mark, at + 1)
    return bytes(found)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty; expected the .xlsx workbook as the annotator saved it"),
        (b"PRIMARY", "neither an .xlsx workbook nor the .json of a page"),
        (b"PK", "not a workbook that can be read (File is not a zip file)"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500),
            "is an old .xls workbook, or one with a password; expected .xlsx",
        ),
        (packed({}), "not a workbook that can be read ("),
        (packed({"../../etc/passwd": b"x"}), "not a workbook that can be read ("),
        (
            packed({"mimetype": b"application/vnd.oasis.opendocument.spreadsheet"}),
            "is an OpenDocument file (.ods); expected",
        ),
        (packed(PARTS, zipfile.ZIP_LZMA), "is packed in a way that no .xlsx is"),
        (
            packed({f"{n}": b"" for n in range(1_001)}),
            "1,001 files in the workbook; a form has no more than 1,000",
        ),
        (
            packed({name: part for name, part in PARTS.items() if name != ITEMS_PART}),
            "has no sheet 'Items'; expected the workbook",
        ),
        (packed(PARTS | {"[Content_Types].xml": b"<Types/>"}), "not a workbook that can be read ("),
        (packed(PARTS | {"xl/workbook.xml": b"\x00\x01"}), "not a workbook that can be read ("),
        (
            packed(PARTS | {ITEMS_PART: b"<worksheet>"}),
            f"{ITEMS_PART}: not a workbook that can be read (no element found",
        ),
        (_flagged(FORM), "is protected by a password; expected .xlsx without one"),
    ],
)
def test_what_is_no_workbook_of_ours_is_refused_in_one_line(
    tmp_path: Path, raw: bytes, said: str
) -> None:
    (line,) = refused(tmp_path / "ana.xlsx", raw)
    assert said in line


def test_a_flipped_bit_is_one_line_or_does_no_harm(tmp_path: Path) -> None:
    choose, path = random.Random(11), tmp_path / "ana.xlsx"
    for _ in range(120):
        raw = bytearray(FORM)
        raw[choose.randrange(len(raw))] ^= 1 << choose.randrange(8)
        path.write_bytes(raw)
        try:
            assert import_returns([path], KEY).labels == []
        except InputError as error:
            assert all(line.startswith(f"{path}: ") for line in str(error).split("\n"))


def test_only_what_is_filled_in_is_read_wherever_the_sheet_ends(tmp_path: Path) -> None:
    sheet = Sheet(FORM, "judge_validation")
    first = next(showing for showing in KEY.annotators["ana"] if not showing.calibration)
    sheet.cell(first.code, "helpfulness").value = 3
    sheet.note(first.code).value = "x" * 32_767  # as much as a spreadsheet program keeps in a cell
    sheet.items.cell(1_000_000, 3).value = " "
    (label,) = import_returns([sheet.save(tmp_path / "ana.xlsx")], KEY).labels
    assert label.answers == {"helpfulness": 3}
    assert label.note == "x" * 32_767


# Pages
# ------------------------------------------------------------------------------


def page(**changes: Any) -> bytes:
    items = [
        {"code": one.code, "words": page_words(one), "answers": {}, "note": ""}
        for one in KEY.annotators["ana"]
    ]
    return json.dumps(
        {"form": PAGE_FORM, "study": KEY.study, "annotator": "ana", "items": items} | changes
    ).encode()


FIRST = next(one for one in KEY.annotators["ana"] if not one.calibration)


def answering(raw: str) -> bytes:
    text = page().decode()
    at = text.index('"answers": {', text.index(FIRST.code)) + len('"answers": {')
    return (text[:at] + f'"helpfulness": {raw}' + text[at:]).encode()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            page(items=3),
            "not what a page of annotate page saves: Expected `array`, got `int` - at `$.items`",
        ),
        (
            page(annotator=None),
            "not what a page of annotate page saves: Expected `str`, got `null`",
        ),
        (page(form="x" * 100_000 + "\n"), "form '" + "x" * 59 + "…'"),
        (
            page(items=[{"code": "x", "words": "y"}]),
            "items[0]: item 'x' is not one of ana's in this study",
        ),
        (answering("[" * 100_000), "not what a page of annotate page saves: nested too deeply"),
        (answering("1" + "0" * 5_000), "not what a page of annotate page saves:"),
        (answering("1e999"), "not what a page of annotate page saves:"),
        (answering('"\\ud800"'), "not what a page of annotate page saves:"),
        (answering("999999999999999999999999"), "is not an answer; valid: 1, 2, 3, 4"),
        (answering('{"a": [1]}'), "(an object) is not an answer; valid: 1, 2, 3, 4"),
        (answering("true"), "is not an answer; valid: 1, 2, 3, 4"),
        (b'{"form": "\xff"}', "not what a page of annotate page saves:"),
        (b"{" + b" " * 20_000_000, "20,000,001 bytes; what a page saves has at most 20,000,000"),
    ],
)
def test_what_no_page_saves_is_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    assert said in refused(tmp_path / "ana.json", raw)[0]


def test_an_item_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    saved = json.loads(page())
    saved["items"].append(saved["items"][0])
    (line,) = refused(tmp_path / "ana.json", json.dumps(saved).encode())
    assert "is there twice, here and at items[0]" in line


def test_a_whole_page_is_read(tmp_path: Path) -> None:
    (tmp_path / "ana.json").write_bytes(page())
    assert len(read_return(tmp_path / "ana.json").items) == len(KEY.annotators["ana"])
