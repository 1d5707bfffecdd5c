"""Tables as LaTeX: they fit the text width of an article."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import source
from opensafeintent.numbers.cohort import gather_models
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.table_formats import compact, escape_latex, to_csv, to_latex, to_markdown
from opensafeintent.report.tables import make_all_tables
from opensafeintent.statistics import Estimate
from report.runs import random_run

NAMES = (
    *(f"openai-api/some-lab/a-model-with-a-long-name-{number}" for number in range(1, 7)),
    "short",
    "one_word_without_any_place_at_which_a_line_may_break_" * 2,
    "100%&#{}$^~\\/model",
    "baseline/refuse-all",
)


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    return make_all_tables(gather_models([random_run(NAMES, 60)]))


def parts_of(text: str) -> list[list[str]]:
    """Return the rows of each part of a table, its headings left out."""
    parts = re.findall(
        r"\\(?:begin{tabular}.*?\\midrule|endfoot)\n(.*?)\\(?:bottomrule\n\\end{tabular}|end{longtable})",
        text,
        re.S,
    )
    return [re.findall(r"^[^\n]*\\\\$", part, re.M) for part in parts]


@pytest.mark.slow
def test_a_wide_table_is_split_by_columns_and_each_part_names_its_rows(
    tables: list[Table],
) -> None:
    split = 0
    for table in tables:
        content, parts = compact(table, without_empty=True), parts_of(to_latex(table))
        naming = next(
            (i for i, style in enumerate(content.styles) if style not in ("text", "name")), 0
        )
        cells = [
            row.replace(r"\&", "").count("&") + 1 for row in (part[0] for part in parts if part)
        ]
        assert sum(cells) == len(content.headings) + naming * (len(cells) - 1), table.name
        assert all(len(part) == len(table.rows) for part in parts)
        if len(parts) > 1:
            split += 1
            firsts = [[row.split(" & ")[0] for row in part] for part in parts]
            assert all(first == firsts[0] for first in firsts)
    assert split


def test_only_the_first_page_of_a_long_table_has_its_caption(tables: list[Table]) -> None:
    (comparisons,) = (table for table in tables if table.name == "comparisons")
    written = to_latex(comparisons)
    first, other = written.partition(r"\endfirsthead")[::2]
    other = other.partition(r"\endhead")[0]
    assert r"\caption{" in first and r"\label{tab:comparisons}" in first
    assert "caption" not in other and r"Table~\thetable{}, continued" in other
    headings = [text for text in first.splitlines() if "Model A" in text]
    assert headings and headings == [text for text in other.splitlines() if "Model A" in text]


def test_brackets_are_explained_where_there_are_any(tables: list[Table]) -> None:
    explained = "Brackets hold the 95"
    for table in tables:
        cells = [cell for row in compact(table, without_empty=True).rows for cell in row[1:]]
        brackets = any(re.search(r"\[[^]]*\d, ", cell) for cell in (*cells, *table.notes))
        assert (explained in to_latex(table)) == brackets, table.name
        assert (explained in to_markdown(table)) == brackets, table.name
    assert explained in to_latex(next(of for of in tables if of.name == "headline"))
    assert explained not in to_latex(next(of for of in tables if of.name == "reference"))


def test_brackets_of_another_confidence_say_so() -> None:
    column: Column[Estimate] = Column("a", lambda value: value, "A", "interval")
    estimate = Estimate(value=0.5, interval=(0.4, 0.6), n=9, method="t")
    table = Table.of([column], [estimate], name="t", title="T", confidence=0.9)
    assert "*Brackets hold the 90 % interval.*" in to_markdown(table)


def test_no_table_for_a_document_speaks_of_the_page_or_its_file(tables: list[Table]) -> None:
    for table in tables:
        assert not re.search(r"\bthe (?:page|file)\b", to_markdown(table)), table.name


def test_no_table_holds_markdown_of_its_own(tables: list[Table]) -> None:
    """Its texts are on the page and in LaTeX too."""
    for table in tables:
        headings = [column.heading or "" for column in table.columns]
        for text in (table.title, *headings, *table.notes):
            assert not re.search(r"\*\w[\w ]*\*|`|\]\(", text), text


def test_a_long_list_is_cut_in_a_document_and_whole_in_the_csv_file() -> None:
    column: Column[str] = Column("a", lambda text: text, "A", most_items=2)
    table = Table.of([column], ["x: 1; y: 2; z: 3; w: 4", "x: 1; y: 2"], name="t", title="T")
    assert [row[0] for row in compact(table).rows] == ["x: 1; y: 2; and 2 more", "x: 1; y: 2"]
    assert "x: 1; y: 2; z: 3; w: 4" in to_csv(table)


def test_metrics_have_their_labels(tables: list[Table]) -> None:
    for table in tables:
        assert not re.search(r"triplet\\?_safety", to_latex(table)), table.name
    assert "Triplet Safety" in to_latex(next(of for of in tables if of.name == "metrics"))


def test_the_headline_table_is_among_the_files(tables: list[Table]) -> None:
    (headline,) = (table for table in tables if table.name == "headline")
    assert compact(headline).headings == (
        "Model",
        *("Triplet Safety", "Mean Utility", "Over-refusal"),
        "Missing",
        # random grades are missing here and there
        *(f"{name}, with missing" for name in ("Safety", "Utility", "Over-refusal")),
    )


def test_a_heading_of_two_lines_is_one_line_in_a_file() -> None:
    column: Column[int] = Column("a", lambda number: number, "Failed\nattempts", "count")
    table = Table.of([column], [1], name="t", title="T")
    assert compact(table).headings == ("Failed attempts",)


def test_a_column_without_any_value_is_left_out() -> None:
    columns: list[Column[int]] = [
        Column("model", lambda number: f"m{number}", "Model", "name"),
        Column("reasons", lambda _: "", "Reasons"),
        Column("none", lambda _: None, "None", "interval"),
        Column("some", lambda number: number if number else None, "Some", "count"),
        Column("zero", lambda _: 0, "Zero", "count"),
    ]
    written = to_latex(Table.of(columns, [0, 1], name="t", title="T"))
    assert r"Model & Some & Zero \\" in written and "Reasons" not in written
    assert "Reasons" in to_latex(Table.of(columns, [], name="t", title="T"))


def test_an_option_keeps_its_two_hyphens() -> None:
    column: Column[int] = Column("a", lambda number: number, "A", "count")
    table = Table.of([column], [1], name="t", title="T", notes=("Give --judge.", "2–3"))
    # LaTeX sets "--" as one dash, and an empty group keeps the hyphens apart
    assert "Give -{}-judge." in to_latex(table) and "2--3" in to_latex(table)


STYLE_OF_RULES = r"""
\ProvidesPackage{booktabs}
\newcommand\toprule{\hline}
\newcommand\midrule{\hline}
\newcommand\bottomrule{\hline}
"""
"""In place of booktabs, which is not in the smallest installation; rules do not change widths."""


FAULTS = r"^(?:Overfull .*|.*Float too large.*|.*multiply.defined.*|.*has been already used.*)$"
"""Of the log: text beside the page, and labels or destinations of which there are several."""


needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")


def log_of_article(tables: list[Table], folder: Path) -> str:
    """Return the log of an article with every table, which compiles."""
    if not subprocess.run(
        ["kpsewhich", "booktabs.sty"], capture_output=True, check=False
    ).stdout.strip():
        (folder / "booktabs.sty").write_text(STYLE_OF_RULES)
    lines = [
        r"\documentclass[11pt]{article}",
        r"\usepackage{array,booktabs,longtable}",
        # links from the text to a table need one destination each
        r"\IfFileExists{hyperref.sty}{\usepackage{hyperref}}{}",
        r"\begin{document}",
    ]
    for table in tables:
        (folder / f"{table.name}.tex").write_text(to_latex(table), "utf-8")
        # its name stands in the log, before the warnings about it
        lines += [rf"\typeout{{TABLE {table.name}}}", rf"\input{{{table.name}}}", r"\clearpage"]
    (folder / "article.tex").write_text("\n".join([*lines, r"\end{document}", ""]))
    # the first run writes the labels, and the second reads them
    for _ in range(2):
        ran = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "article.tex"],
            cwd=folder,
            capture_output=True,
            timeout=120,
            check=False,
        )
        log = ran.stdout.decode(errors="replace")
        assert ran.returncode == 0, log[-3000:]
    return log


@pytest.mark.slow
@needs_latex
def test_an_article_with_every_table_has_no_overfull_box_and_each_label_once(
    tables: list[Table], tmp_path: Path
) -> None:
    log = log_of_article(tables, tmp_path)
    assert not re.findall(FAULTS, log, re.M), log[-6000:]


def characters_of_our_texts() -> set[str]:
    """Return the characters beyond ASCII in literals of the parts that make tables, their
    docstrings aside.
    """
    found: set[str] = set()
    for path, tree in source.trees().items():
        making = path.parts[0] in ("report", "commands", "cli") or path.parent == Path("numbers")
        if not making or path.name == "table_formats.py":
            continue
        prose = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(node.value) if id(node) not in prose else set()
    no_table = "│⺀�"  # a line of the terminal; a limit of a range; in place of a broken letter
    return {char for char in found if not char.isascii() and char.isprintable()} - {*no_table}


def table_of_texts(texts: list[str]) -> Table:
    columns: list[Column[str]] = [
        Column("name", lambda text: text, "λ", "name"),
        Column("text", lambda text: f"{text} of one_long_name_{text * 8}", "A text"),
    ]
    return Table.of(columns, texts, name="texts", title="‘λ’ – ≥ 日", notes=("λ, 日", "é"))


@pytest.mark.slow
def test_every_character_of_our_own_texts_has_a_sign_in_latex() -> None:
    """A code point in place of a letter is for names alone."""
    ours = characters_of_our_texts()
    assert {"λ", "−", "≥", "✓"} <= ours
    assert [char for char in sorted(ours) if "othercharacter" in escape_latex(char)] == []


@pytest.mark.slow
@needs_latex
def test_every_character_that_a_table_may_hold_compiles(tmp_path: Path) -> None:
    texts = [
        "hf/données/modèle-précis-éà-日本語-модель",
        "Þórr/ąęłżß-İıŞğ",
        "ế ỡ ḥ",
        "a\u202eb\u200b\x07",
    ]
    # every letter of Latin, Greek and Cyrillic, signs of currencies, arrows, mathematics, emoji
    blocks = ((0xA0, 0x250), (0x300, 0x400), (0x400, 0x460), (0x1E00, 0x1F00), (0x2000, 0x2300))
    blocks = (*blocks, (0x2700, 0x2740), (0x1F600, 0x1F610))
    for low, high in blocks:
        texts += [
            "".join(map(chr, range(first, min(first + 8, high)))) for first in range(low, high, 8)
        ]
    texts += sorted(characters_of_our_texts())
    log = log_of_article([table_of_texts(texts)], tmp_path)
    # the letters are wide: only that it compiles
    assert "Missing character" not in log
