"""What a page is put together from: assets, tables in HTML, sections, the one file.

A page is whole without its scripts: they sort and filter tables, draw figures again so that these
answer the pointer, and list prompt-sets.
"""

from __future__ import annotations

import base64
import gzip
import html
import re
import secrets
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec

from opensafeintent import __version__
from opensafeintent.analysis.numbers import AVERAGE
from opensafeintent.hostile import json_for_html, page_script, security_policy
from opensafeintent.report.formats import DASH, text, to_csv
from opensafeintent.report.glossary import glossary
from opensafeintent.report.prose import environment
from opensafeintent.report.table import TEXTS, Cell, Column, Section, Table

if TYPE_CHECKING:
    from markupsafe import Markup

    from opensafeintent.report.figures.writing import Figure


_MOST_ROWS = 25_000
"""A table with more is shown in part; the whole is in its CSV file."""
_AT_ONCE = 200
"""Rows that stand in the page; further ones are carried in a compressed form, for the script."""


# Assets
# ------------------------------------------------------------------------------


def asset(name: str) -> str:
    """Return one of the pages' own files."""
    return resources.files("opensafeintent.report").joinpath(f"assets/{name}").read_text("utf-8")


_BUNDLE = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1]).encode())
"""


@lru_cache(maxsize=1)
def vega_script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from the copy that vl-convert ships."""
    script = "window.vegaEmbed = vegaEmbed;"
    if sys.executable:  # a process of its own: the bundler takes 100 MB, and keeps them
        bundled = subprocess.run(
            [sys.executable, "-c", _BUNDLE, script], stdout=subprocess.PIPE, check=True
        )
        bundle = bundled.stdout.decode()
    else:
        import vl_convert

        bundle = vl_convert.javascript_bundle(script)
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


# Tables
# ------------------------------------------------------------------------------


def data_table(table: Table) -> tuple[str, str]:
    """Return a table as the page has it, finished, with its first rows, and the further rows; empty
    columns are left out.

    What a script sorts and filters by stands in a cell's `data-v` where it is not the cell's own
    text.
    """
    rows = table.cells[:_MOST_ROWS]
    shown = [
        (index, column)
        for index, column in table.shown
        if not rows or any(cell is not None for row in rows for cell in row[index][:1])
    ]
    title = html.escape(table.title)
    head = "".join(map(_head, (column for _, column in shown)))
    lines = ["".join(_cell(column, row[index]) for index, column in shown) for row in rows]
    averages = [
        any(row[index][0] == AVERAGE for index, column in shown if column.style == "name")
        for row in rows
    ]
    body = [
        f"<tr{' class=average' * average}>{line}"
        for line, average in zip(lines, averages, strict=True)
    ]
    first, further = "\n".join(body[:_AT_ONCE]), "\n".join(body[_AT_ONCE:])
    told = (
        f"The first {_AT_ONCE} of {len(table.rows):,} lines; all of them are in"
        f" {html.escape(table.name)}.csv."
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<table aria-label="{title}" data-name="{html.escape(table.name)}"'
        f' data-of="{len(table.rows)}">\n'
        f"<thead><tr>{head}</thead>\n<tbody>\n{first}\n</tbody></table></div>"
        f"{f'<noscript><p class=note>{told}</p></noscript>' if further else ''}"
    ), further


def html_table(table: Table) -> str:
    """Return a table with its title and notes, for a notebook."""
    notes = (f"<p>{html.escape(note)}</p>" for note in table.notes)
    return "\n".join((f"<p>{html.escape(table.title)}</p>", data_table(table)[0], *notes))


def _head(column: Column) -> str:
    number = "" if column.style in TEXTS else " class=number"
    return (
        f"<th scope=col{number}"
        f' data-source="{html.escape(column.name)}">{html.escape(column.heading or "")}'
    )


def _cell(column: Column, cells: tuple[Cell, ...]) -> str:
    """Return one cell as HTML; a text from outside is text, and must not turn the line's
    direction.
    """
    value, seen = cells[0], text(column.style, cells)
    if column.style not in TEXTS:
        behind = (
            "" if value is None or column.style == "count" else f" data-v={round(float(value), 6)}"
        )
        number, space, limits = seen.partition(" [")
        interval = f" <span class=interval>[{limits}</span>" if space else ""
        return f"<td class=number{behind}>{html.escape(number)}{interval}"
    raw = value if isinstance(value, str) else seen
    label = _labels().get(raw, raw)
    behind = (
        f' data-v="{html.escape(_attribute(raw))}"'
        if label != raw or not raw.isprintable() or value == DASH
        else ""
    )
    if column.style == "name":
        parts = "<wbr>".join(map(shown_text, _BREAKS.split(label)))
        return f"<th scope=row{behind}><bdi class=name>{parts}</bdi>"
    return f"<td{behind}><bdi>{shown_text(label)}</bdi>"


@cache
def _labels() -> dict[str, str]:
    return {name: entry.label for name, entry in glossary().items()}


_BREAKS = re.compile(r"(?<=[/_.:-])")


def _attribute(text: str) -> str:
    """Return a text with the line ends and the NUL that a parser of HTML would make of it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def shown_text(text: str) -> str:
    """Return a text as HTML; what cannot be seen is shown as its code point."""
    if text.isprintable():
        return html.escape(text)
    return "".join(
        (
            html.escape(char)
            if char in _WHITE or unicodedata.category(char) not in _UNSEEN
            else _invisible(char)
        )
        for char in text.replace("\r\n", "\n")
    )


_WHITE = "\n\t\u200c\u200d"
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _invisible(char: str) -> str:
    return f'<span class="invisible" title="an invisible character">U+{ord(char):04X}</span>'


def _packed(texts: Mapping[str, str]) -> bytes:
    """Return texts by key as JSON, each compressed, for the page's script."""
    files = {
        key: gzip.compress(text.encode(errors="replace"), 6, mtime=0) for key, text in texts.items()
    }
    return json_for_html({key: base64.b64encode(data).decode() for key, data in files.items()})


# Sections
# ------------------------------------------------------------------------------


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A figure or a table in its place."""

    kind: Literal["figure", "table"]
    key: str
    """Its anchor."""
    name: str
    """Of its files."""
    title: str
    notes: tuple[str, ...]
    table: Markup
    """Of a figure, the one of its numbers."""
    drawing: Markup | None = None
    """Of a figure: its SVG."""


class Page:
    """A page in the making; tables and drawings are put in last, as bytes: as text they would be
    held several times over.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}  # by the anchor that they are below
        self._further: dict[str, str] = {}
        self._mark = secrets.token_hex(16)  # what no text can guess
        self._parts: list[bytes] = []

    def put(self, data: bytes | str) -> Markup:
        """Return what stands for some bytes in a template."""
        from markupsafe import Markup

        self._parts.append(data if isinstance(data, bytes) else data.encode(errors="replace"))
        return Markup(f"{self._mark}{len(self._parts) - 1}{self._mark}")

    @property
    def size(self) -> int:
        """Bytes put in so far."""
        return sum(map(len, self._parts))

    def sections(
        self,
        tables: Iterable[Table],
        figures: Iterable[Figure],
        *,
        prefix: str = "",
        said: Iterable[str] = (),
        drawings: Mapping[str, str] | None = None,
    ) -> dict[Section, list[Shown]]:
        """Put figures and tables into their sections; a table that names none has no place on the
        page.

        Args:
            tables, figures: those that have something to show.
            prefix: what their anchors begin with.
            said: notes that need not be repeated under each of them, the longest after those that
                they hold.
            drawings: of the figures, by name.
        """
        found: dict[Section, list[Shown]] = {}
        for figure in figures:
            caption = figure.caption
            for note in said:
                caption = caption.replace(note, "")
            drawing = (drawings or {}).get(figure.name)
            found.setdefault(figure.section, []).append(
                Shown(
                    kind="figure",
                    key=f"{prefix}figure-{figure.name}",
                    name=figure.name,
                    title=figure.title,
                    notes=(caption.strip(),),
                    table=self._put_table(f"{prefix}numbers-{figure.name}", figure.table),
                    drawing=self.put(drawing) if drawing else None,
                )
            )
        for table in tables:
            if table.section:
                key = f"{prefix}table-{table.name}"
                found.setdefault(table.section, []).append(
                    Shown(
                        kind="table",
                        key=key,
                        name=table.name,
                        title=table.title,
                        notes=tuple(note for note in table.notes if note not in said),
                        table=self._put_table(key, table),
                    )
                )
        return found

    def _put_table(self, key: str, table: Table) -> Markup:
        """Put in a table whose rows lie below an anchor."""
        self._tables[key] = table
        first, further = data_table(table)
        if further:
            self._further[key] = further
        return self.put(first)

    def render(
        self,
        template: str,
        *,
        styles: Sequence[str],
        scripts: Sequence[str],
        library: str = "",
        **context: object,
    ) -> bytes:
        """Return the page as one HTML file.

        Args:
            template: its name.
            styles, scripts: assets.
            library: a script that others wrote, to stand before ours.
            context: what the template shows.
        """
        style = "".join(map(asset, styles))
        script = page_script(map(asset, scripts))
        filled = (
            environment()
            .get_template(template)
            .render(
                **context,
                version=__version__,
                policy=security_policy(
                    scripts=(library, script) if library else (script,), styles=(style,)
                ),
                style=self.put(style),
                script=self.put(script),
                library=self.put(library),
                data_csv=self.put(
                    _packed({key: to_csv(table) for key, table in self._tables.items()})
                ),
                data_rows=self.put(_packed(self._further)),
                data_glossary=self.put(json_for_html(glossary())),
            )
        )
        pieces = filled.encode(errors="replace").split(self._mark.encode())
        return b"".join(
            self._parts[int(piece)] if index % 2 else piece for index, piece in enumerate(pieces)
        )
