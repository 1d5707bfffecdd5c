"""A table as CSV, complete and for programs; as Markdown, compact and for people.

LaTeX has a module of its own. Text in a table, a model's name above all, is hostile: it is escaped
for each format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from opensafeintent.hostile import cell_safe
from opensafeintent.markdown import markdown_text
from opensafeintent.report.columns import Table
from opensafeintent.report.compact import compact, explained
from opensafeintent.report.latex import to_latex
from opensafeintent.report.values import TEXTS


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
    notes = [
        line for note in explained(table, content) for line in ("", f"*{markdown_text(note)}*")
    ]
    return "\n".join([*lines, *notes]) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
"""By the file name's ending."""
