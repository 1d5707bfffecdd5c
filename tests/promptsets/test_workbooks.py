"""Excel workbooks: read as CSV would be, or refused in one line."""

from __future__ import annotations

import datetime
import gzip
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent.errors import InputError
from opensafeintent.files import RowLimit
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.reading import Problem, read_records
from promptsets.test_tables import ROW, table

openpyxl = pytest.importorskip("openpyxl")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
SHARED = (
    '<Override PartName="/xl/sharedStrings.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/>'
)
HEADING = '<row r="1"><c r="A1" t="inlineStr"><is><t>prompt</t></is></c></row>'

NOTE = '<c r="B1" t="inlineStr"><is><t>note</t></is></c></row>'


def workbook(path: Path, *rows: Sequence[Any], change: Callable[[Any], None] | None = None) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(list(row))
    if change is not None:
        change(book)
    book.save(path)
    return path


def raw(path: Path, rows: str, *, before: str = "", after: str = "", texts: str = "") -> Path:
    """Write a workbook with a sheet of this XML, and a table of shared texts."""
    plain = workbook(path.with_name("plain.xlsx"), ["a text"])
    sheet = f'{before}<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData>{after}</worksheet>'
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name).decode()
            if name == "xl/worksheets/sheet1.xml":
                content = sheet
            elif name == "[Content_Types].xml":
                content = content.replace("</Types>", f"{SHARED}</Types>")
            new.writestr(name, content)
        new.writestr("xl/sharedStrings.xml", f'<sst xmlns="{MAIN}">{texts}</sst>')
    return path


def records(path: Path, limit: RowLimit | None = None) -> list[Any]:
    return [record for _, record in read_records(path, limit=limit)]


def refused(path: Path, limit: RowLimit | None = None) -> str:
    with pytest.raises((InputError, Problem)) as error:
        records(path, limit)
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message.removeprefix(str(path))


def test_a_dataset_in_a_workbook_is_that_of_the_same_csv(tmp_path: Path) -> None:
    rows = [list(ROW), *([*ROW.values()],)]
    path = workbook(tmp_path / "sets.xlsx", *rows)
    in_csv = table(tmp_path / "sets.csv", ROW)
    assert load_dataset(str(path)).hash == load_dataset(str(in_csv)).hash
    assert osi("dataset", "check", path).code == 0
    wrong = workbook(tmp_path / "wrong.xlsx", *rows, [*ROW.values()])
    assert "wrong.xlsx, row 3: is identical to" in osi("dataset", "check", wrong).refusal


def test_cells_are_the_texts_that_csv_would_have(tmp_path: Path) -> None:
    cells: dict[str, tuple[Any, str]] = {
        "whole": (3.0, "3"),
        "share": (0.1 + 0.2, "0.3"),
        "large": (2**53, "9007199254740992"),
        "yes": (True, "TRUE"),
        "date": (datetime.datetime(2026, 3, 1), "2026-03-01"),
        "time": (datetime.datetime(2026, 3, 1, 12, 30), "2026-03-01T12:30:00"),
        "lines": ("two\nlines ", "two\nlines "),
        "number": ("007", "007"),
        "blank": (None, None),
    }
    path = workbook(tmp_path / "t.xlsx", list(cells), [cell for cell, _ in cells.values()])
    assert records(path) == [{name: text for name, (_, text) in cells.items()}]


def test_what_a_spreadsheet_program_leaves_is_passed_over(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book.create_sheet("empty")
        hidden = book.create_sheet("lists")
        hidden["A1"], hidden.sheet_state = "yes", "hidden"
        book.active["F9"].font = openpyxl.styles.Font(bold=True)  # a cell without a value
        book.active.merge_cells("A7:B7")

    rows = [[], ["", " prompt ", None, "note"], [None], [None, "p", None, "n"], [None, "q"]]
    path = workbook(tmp_path / "t.xlsx", *rows, change=change)
    found = list(read_records(path))
    assert [record for _, record in found] == [
        {"prompt": "p", "note": "n"},
        {"prompt": "q", "note": None},
    ]
    # as the spreadsheet program numbers it
    assert [location.rpartition(", ")[2] for location, _ in found] == ["row 4", "row 5"]


def test_characters_that_xml_cannot_have_are_read(tmp_path: Path) -> None:
    texts = (
        "<si><t>a_x000D_b</t></si><si><r><t>bo</t></r><r><t xml:space='preserve'>th </t></r></si>"
    )
    shared = "".join(f'<row r="{n + 2}"><c t="s"><v>{n}</v></c></row>' for n in (0, 1))
    found = records(raw(tmp_path / "t.xlsx", HEADING + shared, texts=texts))
    assert found == [{"prompt": "a\rb"}, {"prompt": "both "}]


def test_the_value_of_a_formula_is_the_stored_one(tmp_path: Path) -> None:
    stored = '<row r="2"><c r="A2" t="str"><f>UPPER("p")</f><v>P</v></c></row>'
    empty = '<row r="3"><c r="A3" t="str"><f>""</f><v></v></c><c r="B3"><v>1</v></c></row>'
    found = records(raw(tmp_path / "t.xlsx", HEADING.replace("</row>", NOTE) + stored + empty))
    assert found == [{"prompt": "P", "note": None}, {"prompt": None, "note": "1"}]
    unsaved = workbook(tmp_path / "unsaved.xlsx", ["prompt"], ["=1+1"])
    assert refused(unsaved) == (
        ": cell A2 has a formula without a stored value; open the workbook in a spreadsheet"
        " program and save it, or write values"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda book: book.create_sheet("more").append(["x"]),
            ": several sheets hold something ('Sheet', 'more'); expected one: save the sheet as a"
            " file of its own",
        ),
        (
            lambda book: book.active.merge_cells("B2:B3"),
            ": the cells B2:B3 are merged over several rows; expected a value in each row",
        ),
        (
            lambda book: book.active.append(["x" * 32_767]),
            ", cell A4: has 32,767 characters, after which Excel cuts a text off; expected a"
            " shorter one, or a .csv or .jsonl file that has all of it",
        ),
        (
            lambda book: book.active.append(["#N/A"]),
            ", cell A4: holds #N/A in place of a value; expected one",
        ),
        (
            lambda book: book.active.append(["a", "prompt", "c"]),
            ", row 4: has 3 cells, and the header names 2 (row 1: 'prompt, group'); expected a"
            " heading over each cell, in the first row that is not blank",
        ),
    ],
)
def test_what_would_be_read_wrongly_is_refused(
    tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    path = workbook(tmp_path / "t.xlsx", ["prompt", "group"], ["p", "g"], ["q", "g"], change=change)
    assert refused(path) == message


def test_hidden_sheets_and_none_are_told(tmp_path: Path) -> None:
    def hidden(book: Any) -> None:
        book.create_sheet("shown")
        book.active.sheet_state = "hidden"

    path = workbook(tmp_path / "t.xlsx", ["prompt"], change=hidden)
    assert refused(path) == ": no sheet holds anything, hidden ones aside; expected a table"


def test_other_files_are_told_from_workbooks(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600)
    assert refused(path).startswith(": is a workbook of Excel 97, or one with a password; expected")
    for content in (b"", b"prompt\np\n", b"PK\x03\x04"):
        path.write_bytes(content)
        assert refused(path).startswith(": cannot read as an Excel workbook (")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<document/>")
    assert refused(path).startswith(": cannot read as an Excel workbook (")
    (old := tmp_path / "t.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    assert refused(old).startswith(": is a .xls file; expected .jsonl, .json, .parquet, .csv or")


# Hostile workbooks
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("", {"texts": "<si/>" * 5_100_000}, ": has more cells, or parts of a cell, than can be"),
        (f"<row>{'<c/>' * 100_000}</row>", {}, ": has more cells, or parts of a cell, than can be"),
        ("", {"texts": f"<si>{'<r/>' * 100_000}</si>"}, ": has more cells, or parts of a cell,"),
        ("<row/>" * 1_100_000, {}, ": cannot read as an Excel workbook (more than 1,048,576 rows)"),
        ("<a>" * 200 + "</a>" * 200, {}, ": cannot read as an Excel workbook (nested too deeply)"),
        ("", {"before": f"<!--{'x' * 200_000_000}-->"}, " bytes when unpacked; expected at most"),
        (
            HEADING,
            {"before": '<!DOCTYPE x [<!ENTITY a "b">]>'},
            ": cannot read as an Excel workbook (declares types of its own)",
        ),
        (
            "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 700)),
            {"texts": f"<si><t>{'long ' * 200_000}</t></si>"},  # 1 MB, 700 times
            ": holds more than 500,000,000 characters",
        ),
        (
            "".join(f'<row r="{n}"><c r="XFD{n}"><v>1</v></c></row>' for n in range(1, 400)),
            {},
            ": holds more than 500,000,000 characters",
        ),
        ('<row r="2"><c r="A2"/></row><row r="1"/>', {}, ": row 1 stands behind a later one; save"),
        ('<row r="1"><c r="B1"/><c r="A1"><v>1</v></c></row>', {}, ": the cells of row 1 are not"),
        (HEADING + '<row r="2"><c t="s"><v>99</v></c></row>', {}, ": cannot read as an Excel"),
        ('<row r="1"><c r="ZZZZ1"><v>1</v></c></row>', {}, ": cannot read as an Excel workbook ("),
        ('<row r="x"/>', {}, ": cannot read as an Excel workbook ("),
    ],
)
def test_a_hostile_workbook_is_refused_soon(
    tmp_path: Path, rows: str, options: dict[str, str], message: str
) -> None:
    path = raw(tmp_path / "t.xlsx", rows, **options)
    assert path.stat().st_size < 2_000_000
    assert message in refused(path)


def test_the_limit_on_rows_holds(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", ["prompt"], *(["p"] for _ in range(5)))
    assert len(records(path, RowLimit(5))) == 5
    assert refused(path, RowLimit(4)).startswith(": has more than 4 rows")


# Packed by gzip
# ------------------------------------------------------------------------------


def test_packed_tables_are_read(tmp_path: Path) -> None:
    plain = table(tmp_path / "sets.csv", ROW)
    packed = tmp_path / "sets.csv.gz"
    packed.write_bytes(
        gzip.compress(plain.read_bytes()[:40]) + gzip.compress(plain.read_bytes()[40:])
    )
    dataset = load_dataset(str(packed))
    assert (dataset.name, dataset.hash) == ("sets", load_dataset(str(plain)).hash)
    lines = tmp_path / "SETS.JSONL.GZ"
    lines.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert load_dataset(str(lines)).hash == dataset.hash


def test_packed_files_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"prompt": "p"}\n' * 100)
    path = tmp_path / "t.jsonl.gz"
    expected = "; expected a whole gzip file, or a name without .gz"
    for damaged in (
        whole[:-1],  # of the checksum
        whole[:30],
        whole[:-8] + b"\0" * 8,
        whole[:20] + b"\xff" + whole[21:],
        whole + b"more",
        b'{"prompt": "p"}\n',
    ):
        path.write_bytes(damaged)
        message = refused(path)
        assert message.startswith(": cannot unpack (") and message.endswith(expected)


@pytest.mark.slow
def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    part = gzip.compress(b"\n" * 50_000_000)
    path.write_bytes(part * 11)
    assert refused(path).startswith(": holds more than 500,000,000 characters")
