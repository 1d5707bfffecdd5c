"""A table as CSV, complete and for programs; as Markdown and LaTeX, compact and for people.

Text in a table, a model's name above all, is hostile: it is escaped for each format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from opensafeintent.hostile import cell_safe
from opensafeintent.markdown import markdown_text
from opensafeintent.report.columns import Table
from opensafeintent.report.values import TEXTS, Style, shortened, text

_LONG = 60
"""Lines beyond which a LaTeX table may break over pages."""


_NAME = 48
"""Characters of a model's name in LaTeX, whose lines cannot grow."""


_WIDE = 60
"""Characters beyond which a column of text is set as paragraphs."""


class Compact(NamedTuple):
    """A table for people: text throughout."""

    headings: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: list[tuple[str, ...]]


def compact(table: Table) -> Compact:
    """Return a table's shown columns as text, not escaped for any format."""
    shown = table.shown
    rows = [tuple(text(column.style, row[index]) for index, column in shown) for row in table.rows]
    return Compact(
        tuple(column.heading or "" for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


def to_csv(table: Table) -> str:
    """Return every column as it is; an undefined value is an empty cell, and no cell is a
    formula.
    """
    written = io.StringIO(newline="")
    # lines end in \r\n, as RFC 4180 has it: only so is a lone \r in a cell quoted
    writer = csv.writer(written)
    writer.writerow([cell_safe(field) for field in table.fields])
    for row in table.rows:
        values = [value for cell in row for value in cell.fields]
        writer.writerow([cell_safe(value) if isinstance(value, str) else value for value in values])
    return written.getvalue()


def to_markdown(table: Table) -> str:
    """Return a GitHub-flavoured Markdown table with its title and notes."""
    content = compact(table)
    rows = (
        " | ".join(
            markdown_text(cell) if style in TEXTS else cell
            for cell, style in zip(row, content.styles, strict=True)
        )
        for row in content.rows
    )
    rules = (":---" if style in TEXTS else "---:" for style in content.styles)
    lines = [
        f"**{markdown_text(table.title)}**",
        "",
        "| " + " | ".join(markdown_text(heading) for heading in content.headings) + " |",
        "|" + "|".join(rules) + "|",
        *(f"| {row} |" for row in rows),
    ]
    notes = [line for note in table.notes for line in ("", f"*{markdown_text(note)}*")]
    return "\n".join([*lines, *notes]) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "[": "{[}",
    "]": "{]}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "−": "$-$",
    "′": "$'$",
}


_LATEX_NEEDS = (
    "% Needs \\usepackage{booktabs,longtable}; for names that are not Latin, LuaLaTeX or XeLaTeX"
    " and a font that has them.\n"
)


def to_latex(table: Table) -> str:
    """Return a booktabs table with caption, label and notes; a long one may break over pages."""
    content = compact(table)
    alignment = _latex_columns(content)
    caption = f"\\caption{{{_latex(table.title)}}}\\label{{tab:{table.name}}}"
    heading = " & ".join(_latex(text) for text in content.headings) + r" \\"
    rows = [" & ".join(_latex_cells(row, content.styles)) + r" \\" for row in content.rows]
    notes = "\\\\\n".join(_latex(note) for note in table.notes)
    notes = f"\\par\\smallskip\n{{\\footnotesize\\raggedright\n{notes}\\par}}" if notes else ""
    if len(rows) > _LONG:
        lines = [
            r"\begingroup\small",
            f"\\begin{{longtable}}{{{alignment}}}",
            caption + r" \\",
            r"\toprule",
            heading,
            r"\midrule",
            r"\endhead",
            r"\bottomrule",
            r"\endfoot",
            *rows,
            r"\end{longtable}",
            notes,
            r"\endgroup",
        ]
    else:
        lines = [
            r"\begin{table}",
            r"\centering\small",
            caption,
            f"\\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            heading,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            notes,
            r"\end{table}",
        ]
    return _LATEX_NEEDS + "\n".join(line for line in lines if line) + "\n"


def _latex_columns(content: Compact) -> str:
    """Return the alignment of each column; columns of long texts share the line's width."""
    wide = [
        style == "text" and any(len(row[index]) > _WIDE for row in content.rows)
        for index, style in enumerate(content.styles)
    ]
    paragraph = f"p{{{0.8 / max(sum(wide), 1):.2f}\\linewidth}}"
    return "".join(
        paragraph if is_wide else "l" if style in TEXTS else "r"
        for is_wide, style in zip(wide, content.styles, strict=True)
    )


def _latex_cells(row: Sequence[str], styles: Sequence[Style]) -> list[str]:
    """Escape cells.

    A row must not start with a bracket: LaTeX reads it as an argument of the line before.
    """
    return [
        (
            _latex(shortened(cell, _NAME) if style == "name" else cell)
            if style in TEXTS
            else _latex_number(cell)
        )
        for cell, style in zip(row, styles, strict=True)
    ]


def _latex_number(text: str) -> str:
    return text.replace("–", "--").replace("−", "$-$").replace("%", r"\%").replace("<", r"$<$")


@lru_cache(maxsize=4096)
def _latex(text: str) -> str:
    """Escape LaTeX's commands."""
    return "".join(_LATEX.get(char, char) for char in text)


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
"""By the file name's ending."""
