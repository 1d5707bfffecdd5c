"""A table as HTML."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Never

from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.compact import compact, explained
from opensafeintent.report.glossary import labels
from opensafeintent.report.values import DASH, TEXTS, Cell, Style, text_and_limits

_MOST_ROWS = 25_000
"""A table with more is shown in part; the whole is in its CSV file."""


_AT_ONCE = 200
"""Rows in the page itself; further ones are embedded in a compressed form, for the script."""


def data_table(table: Table, common: str = "") -> tuple[str, str]:
    """Return a table as HTML, finished, with its first rows, and the further rows; empty columns
    are left out, and `common`, with which all names of models begin.

    If a script's key for sorting and filtering differs from a cell's own text, it is in the cell's
    `data-v`.
    """
    rows = table.rows[:_MOST_ROWS]
    shown = [
        (index, column)
        for index, column in table.shown
        if not rows or any(row[index].fields[0] is not None for row in rows)
    ]
    title = html.escape(table.title)
    head = "".join(_head(column) for _, column in shown)
    names = [index for index, column in shown if column.style == "name"]
    body = []
    for row in rows:
        is_average = any(row[index].fields[0] == AVERAGE for index in names)
        cells = "".join(_cell(column.style, row[index], common) for index, column in shown)
        body.append(f"<tr{' class=average' if is_average else ''}>{cells}")
    first, further = "\n".join(body[:_AT_ONCE]), "\n".join(body[_AT_ONCE:])
    note = (
        f"The first {_AT_ONCE} of {len(table.rows):,} lines; all of them are in"
        f" {html.escape(table.name)}.csv."
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{title}">'
        f'<table aria-label="{title}" data-name="{html.escape(table.name)}"'
        f' data-of="{len(table.rows)}">\n'
        f"<thead><tr>{head}</thead>\n<tbody>\n{first}\n</tbody></table></div>"
        f"{f'<noscript><p class=note>{note}</p></noscript>' if further else ''}"
    ), further


def html_table(table: Table) -> str:
    """Return a table with its title and notes, for a notebook."""
    notes = (f"<p>{html.escape(note)}</p>" for note in explained(table, compact(table)))
    return "\n".join((f"<p>{html.escape(table.title)}</p>", data_table(table)[0], *notes))


def _head(column: Column[Never]) -> str:
    number = "" if column.style in TEXTS else " class=number"
    return (
        f"<th scope=col{number}"
        f' data-source="{html.escape(column.name)}">{html.escape(column.heading or "")}'
    )


def _cell(style: Style, cell: Cell, common: str) -> str:
    """Return one cell as HTML; a text from outside is text, and must not turn the line's
    direction.
    """
    value = cell.fields[0]
    text, limits = text_and_limits(style, cell)
    if style not in TEXTS:
        number = value.replace(",", "") if isinstance(value, str) else value
        behind = "" if number is None or style == "count" else f" data-v={round(float(number), 6)}"
        interval = f"<span class=interval> {limits}</span>" if limits else ""
        return f"<td class=number{behind}>{html.escape(text)}{interval}"
    raw = value if isinstance(value, str) else text
    label = raw.removeprefix(common) if style == "name" else labels().get(raw, raw)
    # with the line ends and the NUL that a parser of HTML would make of it
    parsed = raw.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    behind = (
        f' data-v="{html.escape(parsed)}"'
        if label != raw or not raw.isprintable() or value == DASH
        else ""
    )
    if style == "name":
        parts = "<wbr>".join(map(shown_text, _BREAKS.split(label)))
        return f"<th scope=row{behind}><bdi class=name>{parts}</bdi>"
    return f"<td{behind}><bdi>{shown_text(label)}</bdi>"


_BREAKS = re.compile(r"(?<=[/_.:-])")


def shown_text(text: str) -> str:
    """Return a text as HTML; an invisible character is shown as its code point."""
    if text.isprintable():
        return html.escape(text)
    return "".join(
        (
            html.escape(char)
            if char in _WHITE or unicodedata.category(char) not in _UNSEEN
            else f'<span class="invisible" title="an invisible character">U+{ord(char):04X}</span>'
        )
        for char in text.replace("\r\n", "\n")
    )


_WHITE = "\n\t\u200c\u200d"


_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
