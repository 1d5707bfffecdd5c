"""A page in the making: everything that it shows and runs, in one file."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec
from markupsafe import Markup

from opensafeintent import __version__
from opensafeintent.hostile import json_for_html, page_script, security_policy
from opensafeintent.report.columns import Section, Table
from opensafeintent.report.figures import Figure
from opensafeintent.report.formats import to_csv
from opensafeintent.report.glossary import glossary
from opensafeintent.report.html_tables import data_table
from opensafeintent.report.sentences import environment


def asset(name: str) -> str:
    """Return one of the pages' own files."""
    return resources.files("opensafeintent.report").joinpath(f"assets/{name}").read_text("utf-8")


_GLOBAL = "window.vegaEmbed = vegaEmbed;"
_BUNDLE = f"""
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle({_GLOBAL!r}).encode())
"""
"""Runs in a process of its own: the bundler takes 100 MB, and keeps them."""


@lru_cache(maxsize=1)
def vega_script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from the copy that vl-convert ships."""
    # -P: nothing of the folder that one is in
    command = [sys.executable, "-P", "-c", _BUNDLE]
    try:
        script = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except (OSError, TypeError, subprocess.CalledProcessError):  # no Python can be started
        import vl_convert

        script = vl_convert.javascript_bundle(_GLOBAL)
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def packed(texts: Mapping[str, str]) -> bytes:
    """Return texts by key as JSON, each compressed, for the page's script."""
    files = {
        key: gzip.compress(text.encode(errors="replace"), 6, mtime=0) for key, text in texts.items()
    }
    return json_for_html({key: base64.b64encode(data).decode() for key, data in files.items()})


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
    """A page in the making."""

    def __init__(self, common: str = "") -> None:
        self._common = common  # the common beginning of models' names
        self._tables: dict[str, Table] = {}  # by the anchor that they are below
        self._further: dict[str, str] = {}
        self.size = 0
        """Bytes of everything finished so far."""

    def finished(self, data: bytes | str) -> Markup:
        """Return markup that a template takes as it is."""
        raw = data if isinstance(data, bytes) else data.encode(errors="replace")
        self.size += len(raw)
        return Markup(raw.decode())

    def sections(
        self,
        tables: Iterable[Table],
        figures: Iterable[Figure],
        *,
        prefix: str,
        shown_notes: Iterable[str],
        drawings: Mapping[str, str],
    ) -> dict[Section, list[Shown]]:
        """Put figures and tables into their sections; a table without a section is not on the page.

        Args:
            tables, figures: those that are not empty.
            prefix: of their anchors.
            shown_notes: those that need not be repeated under each of them; a note comes after
                those that it contains.
            drawings: of the figures, by name.
        """
        parts: dict[Section, list[Shown]] = {}
        for figure in figures:
            caption = figure.caption
            for note in shown_notes:
                caption = caption.replace(note, "")
            drawn = drawings.get(figure.name)
            parts.setdefault(figure.section, []).append(
                Shown(
                    kind="figure",
                    key=f"{prefix}figure-{figure.name}",
                    name=figure.name,
                    title=figure.title,
                    notes=(caption.strip(),),
                    table=self._put_table(f"{prefix}numbers-{figure.name}", figure.table),
                    drawing=self.finished(drawn) if drawn else None,
                )
            )
        for table in tables:
            if table.section:
                key = f"{prefix}table-{table.name}"
                parts.setdefault(table.section, []).append(
                    Shown(
                        kind="table",
                        key=key,
                        name=table.name,
                        title=table.title,
                        notes=tuple(note for note in table.notes if note not in shown_notes),
                        table=self._put_table(key, table),
                    )
                )
        return parts

    def _put_table(self, key: str, table: Table) -> Markup:
        """Put in a table whose rows lie below an anchor."""
        self._tables[key] = table
        first, further = data_table(table, self._common)
        if further:
            self._further[key] = further
        return self.finished(first)

    def render(
        self,
        template: str,
        *,
        styles: Sequence[str],
        scripts: Sequence[str],
        library: str,
        **context: object,
    ) -> bytes:
        """Return the page as one HTML file.

        Args:
            template: its name.
            styles, scripts: assets.
            library: a script of others, to come before ours.
            context: the template's values.
        """
        style = "".join(map(asset, styles))
        script = page_script(map(asset, scripts))
        csv_files = {key: to_csv(table) for key, table in self._tables.items()}
        # piece by piece: the page as one text would be in memory beside its bytes
        pieces = (
            environment()
            .get_template(template)
            .generate(
                **context,
                common=self._common,
                version=__version__,
                policy=security_policy(scripts=(library, script), styles=(style,)),
                style=self.finished(style),
                script=self.finished(script),
                library=self.finished(library),
                data_csv=self.finished(packed(csv_files)),
                data_rows=self.finished(packed(self._further)),
                data_glossary=self.finished(json_for_html(glossary())),
            )
        )
        return b"".join(piece.encode(errors="replace") for piece in pieces)
