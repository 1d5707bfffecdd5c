"""A table as CSV, complete and for programs; as Markdown and LaTeX, compact and for people.

For people a value stands with its interval, as in `0.56 [0.52, 0.60]`, and what is undefined is a
dash. Text in a table, a model's name above all, is hostile: it is escaped for where it goes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from opensafeintent.hostile import cell_safe, terminal_safe
from opensafeintent.report.table import TEXTS, Cell, Style, Table

DASH = "–"
_LONG = 60
"""Lines beyond which a LaTeX table may break over pages."""
_NAME = 48
"""Characters of a model's name in LaTeX, where a line cannot grow."""
_WIDE = 60
"""Characters beyond which a column of text is set as paragraphs."""


class Compact(NamedTuple):
    """A table as people are shown it: text throughout."""

    headings: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: list[tuple[str, ...]]


def compact(table: Table) -> Compact:
    """Return a table's shown columns as text, not escaped for any format."""
    shown = table.shown
    rows = [tuple(text(column.style, row[index]) for index, column in shown) for row in table.cells]
    return Compact(
        tuple(column.heading or "" for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


def text(style: Style, cells: Sequence[Cell]) -> str:
    """Return what people are shown of a column's cells; see `Style`."""
    match style:
        case "interval" | "signed":
            return interval(*cells, signed=style == "signed")
        case "span":
            return _between(number, *cells)
        case "ranks":
            return _between(str, *cells)
    (value,) = cells
    if style in TEXTS or not isinstance(value, int | float):
        return _plain(value)
    match style:
        case "p":
            return p_value(value)
        case "share":
            return share(value)
        case "number":
            return number(value)
        case _:
            return f"{value:,}" if isinstance(value, int) else _plain(value)


def number(value: Cell, *, signed: bool = False) -> str:
    """Return a number with two decimals, a dash where it is undefined."""
    if not isinstance(value, int | float):
        return DASH
    rounded = round(value, 2) + 0.0  # no -0.00
    return (f"{rounded:+,.2f}" if signed else f"{rounded:,.2f}").replace("-", "−")


def share(value: float, decimals: int = 1) -> str:
    """Return a share in per cent: `89.6 %`."""
    return f"{100 * value:.{decimals}f} %"


def p_value(value: float) -> str:
    """Return a p-value with three decimals: `0.048`, `<0.001`."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def interval(value: Cell, low: Cell, high: Cell, *, signed: bool = False) -> str:
    """Return a value with its interval: `0.56 [0.52, 0.60]`."""
    if value is None or low is None or high is None:
        return number(value, signed=signed)
    return (
        f"{number(value, signed=signed)} [{number(low, signed=signed)},"
        f" {number(high, signed=signed)}]"
    )


def _between(text: Callable[[Cell], str], low: Cell, high: Cell) -> str:
    if low is None or high is None:
        return DASH
    return text(low) if text(low) == text(high) else f"{text(low)}–{text(high)}"


def _plain(value: Cell) -> str:
    """Return a cell on one line, without control and formatting characters."""
    if value is None:
        return DASH
    return f"{value:.3f}" if isinstance(value, float) else _one_line(str(value))


@lru_cache(maxsize=4096)
def _one_line(text: str) -> str:
    return terminal_safe(" ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """Return `text` in at most `most` characters: names differ at their ends, so the middle
    goes.
    """
    if len(text) <= most:
        return text
    head = (most - 1) // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def to_csv(table: Table) -> str:
    """Return every column as it is; an undefined value is an empty cell, and no cell is a
    formula.
    """
    written = io.StringIO(newline="")
    writer = csv.writer(
        written
    )  # lines end in \r\n, as RFC 4180 has it: only so is a lone \r in a cell quoted
    writer.writerow([cell_safe(field) for field in table.fields])
    for row in table.cells:
        writer.writerow(
            [cell_safe(cell) if isinstance(cell, str) else cell for cells in row for cell in cells]
        )
    return written.getvalue()


# Markdown
# ------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&!$])|(?<=:)(?=//)|(?<=www)(?=\.)")


def to_markdown(table: Table) -> str:
    """Return a GitHub-flavoured Markdown table with its title and notes."""
    content = compact(table)
    rules = (":---" if style in TEXTS else "---:" for style in content.styles)
    lines = [
        f"**{markdown_text(table.title)}**",
        "",
        "| " + " | ".join(markdown_text(heading) for heading in content.headings) + " |",
        "|" + "|".join(rules) + "|",
        *("| " + " | ".join(_markdown_cells(row, content.styles)) + " |" for row in content.rows),
    ]
    notes = [line for note in table.notes for line in ("", f"*{markdown_text(note)}*")]
    return "\n".join([*lines, *notes]) + "\n"


def _markdown_cells(row: Sequence[str], styles: Sequence[Style]) -> list[str]:
    return [
        markdown_text(cell) if style in TEXTS else cell
        for cell, style in zip(row, styles, strict=True)
    ]


@lru_cache(maxsize=4096)
def markdown_text(text: str) -> str:
    """Escape what Markdown would read as markup, addresses included."""
    return _MARKDOWN.sub(lambda found: "\\" + found.group(), text)


# LaTeX
# ------------------------------------------------------------------------------

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
    '"': r"\textquotedbl{}",
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
        start = [
            f"\\begin{{longtable}}{{{alignment}}}",
            caption + r" \\",
            r"\toprule",
            heading,
            r"\midrule",
            r"\endhead",
        ]
        lines = [
            r"\begingroup\small",
            *start,
            r"\bottomrule",
            r"\endfoot",
            *rows,
            r"\end{longtable}",
            notes,
            r"\endgroup",
        ]
    else:
        start = [
            r"\begin{table}",
            r"\centering\small",
            caption,
            f"\\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
        ]
        lines = [
            *start,
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

    A row must not start with a bracket: LaTeX takes it for an argument of the line before.
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
    """Escape what LaTeX would read as a command."""
    return "".join(_LATEX.get(char, char) for char in text)


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
"""By the file name's ending."""
