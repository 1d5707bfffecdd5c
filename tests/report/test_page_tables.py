"""The page without its scripts: its tables say what the files of tables say, and nothing needs a
script to be read.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from opensafeintent.analysis.cohort import group_studies
from opensafeintent.report.figures import all_figures, write_figures
from opensafeintent.report.page import render_page
from opensafeintent.report.tables import all_tables, write_tables
from report.studies import MODELS, random_study


class Cell(NamedTuple):
    text: str
    raw: str | None
    number: bool


class Tables(HTMLParser):
    """Collects the tables of a page: by the id around them, or their own, the rows of their
    cells.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[Cell]]] = {}
        self.heads: dict[str, list[str | None]] = {}
        self._key = ""
        self._open = False
        self._quiet = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("div", "details", "table") and (given.get("id") or "").strip():
            self._key = given["id"] or ""
        if tag == "table":
            self.found[self._key], self.heads[self._key] = [], []
        elif tag == "tr":
            self.found[self._key].append([])
        elif tag in ("td", "th"):
            self._open = True
            self.found[self._key][-1].append(
                Cell("", given.get("data-v"), given.get("class") in ("number", "n"))
            )
            if given.get("scope") == "col":
                self.heads[self._key].append(given.get("data-source"))
        elif tag in ("script", "style", "p", "figure"):
            self._open = False

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("table", "thead", "tbody")

    def handle_data(self, data: str) -> None:
        if self._open:
            row = self.found[self._key][-1]
            row[-1] = row[-1]._replace(text=row[-1].text + data.strip("\n"))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report: the page, and the files of tables and figures beside it."""
    out = tmp_path_factory.mktemp("report")
    studies = [random_study(MODELS[:3], 40)]
    groups = group_studies(studies)
    tables, figures = all_tables(groups), all_figures(groups)
    write_tables(tables, out / "tables")
    write_figures(figures, out / "figures", ("svg",))
    page = render_page(
        groups, studies, tables, figures, {}, include_unsafe=False, drawings=out / "figures"
    )
    (out / "report.html").write_bytes(page)
    return out


@pytest.fixture(scope="module")
def page(out: Path) -> Tables:
    text, _, data = (
        (out / "report.html").read_text("utf-8").partition('<script type="application/json"')
    )
    carried = re.search(r'id="data-rows">(.*?)</script>', data)
    assert carried
    for key, further in json.loads(carried[1]).items():  # what the script puts in
        end = text.index("</tbody>", text.index(f'id="{key}"'))
        text = text[:end] + gzip.decompress(base64.b64decode(further)).decode() + text[end:]
    return Tables(text)


def named(page: Tables, kind: str) -> Iterator[tuple[str, list[str | None], list[list[Cell]]]]:
    for key, (_, *rows) in page.found.items():
        if key.startswith(kind):
            yield key.removeprefix(kind), page.heads[key], rows


@pytest.mark.parametrize(("kind", "folder"), [("table-", "tables"), ("numbers-", "figures")])
def test_every_table_is_sorted_by_what_its_csv_file_has(
    out: Path, page: Tables, kind: str, folder: str
) -> None:
    count = 0
    for name, sources, rows in named(page, kind):
        with (out / folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        assert len(lines) == len(rows)
        for row, line in zip(rows, lines, strict=True):
            for source, cell in zip(sources, row, strict=True):
                assert source is not None
                value = line.get(source) if source in line else line[f"{source}_low"]
                raw = cell.raw or (
                    ""
                    if cell.text == "–"
                    else cell.text.replace(",", "")
                    if cell.number
                    else cell.text
                )
                if cell.number and value:
                    assert float(raw) == pytest.approx(float(value), abs=1e-6), (name, source)
                else:
                    assert raw == value, (name, source)
                count += 1
    assert count > 1_000


def test_the_page_reads_without_scripts(out: Path) -> None:
    text = (out / "report.html").read_text("utf-8")
    for part in text.split("<figure ")[1:]:
        assert "<noscript><svg " in part.partition("</figure>")[0]
    assert text.count("<noscript><svg ") == len(list((out / "figures").glob("*.svg")))
    assert "The first 200 of " in text
    assert '<section id="utility">' in text and "A model is calibrated when it helps fully" in text
