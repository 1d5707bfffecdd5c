"""Tables as LaTeX: they fit the text width of an article."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from opensafeintent.analysis.cohort import into_cohorts
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.compact import compact
from opensafeintent.report.latex import to_latex
from opensafeintent.report.tables import all_tables
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
    return all_tables(into_cohorts([random_run(NAMES, 60)]))


def parts_of(text: str) -> list[list[str]]:
    """Return the rows of each part of a table, its headings left out."""
    parts = re.findall(
        r"\\midrule\n(.*?)\\(?:bottomrule\n\\end{tabular}|end{longtable})", text, re.S
    )
    return [re.findall(r"^[^\n]*\\\\$", part, re.M) for part in parts]


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
        *(f"{name}, any grades" for name in ("Safety", "Utility", "Over-refusal")),
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


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_an_article_with_every_table_has_no_overfull_box(
    tables: list[Table], tmp_path: Path
) -> None:
    if not subprocess.run(
        ["kpsewhich", "booktabs.sty"], capture_output=True, check=False
    ).stdout.strip():
        (tmp_path / "booktabs.sty").write_text(STYLE_OF_RULES)
    lines = [
        r"\documentclass[11pt]{article}",
        r"\usepackage{array,booktabs,longtable}",
        r"\begin{document}",
    ]
    for table in tables:
        (tmp_path / f"{table.name}.tex").write_text(to_latex(table), "utf-8")
        # its name stands in the log, before the warnings about it
        lines += [rf"\typeout{{TABLE {table.name}}}", rf"\input{{{table.name}}}", r"\clearpage"]
    (tmp_path / "article.tex").write_text("\n".join([*lines, r"\end{document}", ""]))
    ran = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "article.tex"],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    log = ran.stdout.decode(errors="replace")
    assert ran.returncode == 0, log[-3000:]
    assert not re.findall(r"^(?:Overfull .*|.*Float too large.*)$", log, re.M), log[-6000:]
