"""A page in the making: everything that it shows and runs, in one file."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources

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


class Page:
    """A page in the making.

    Attributes:
        tables: what was put in so far as HTML, by anchor: tables, and the numbers of figures.
        drawings: of figures as SVG, by anchor.
        size: bytes of everything finished so far.
    """

    def __init__(self, common: str = "") -> None:
        self.tables: dict[str, Markup] = {}
        self.drawings: dict[str, Markup] = {}
        self.size = 0
        self._common = common  # the common beginning of models' names
        self._of_csv: dict[str, Table] = {}
        self._further: dict[str, str] = {}

    def finished(self, data: bytes | str) -> Markup:
        """Return markup that a template takes as it is."""
        raw = data if isinstance(data, bytes) else data.encode(errors="replace")
        self.size += len(raw)
        return Markup(raw.decode())

    def put(
        self,
        tables: Iterable[Table],
        figures: Iterable[Figure],
        *,
        prefix: str = "",
        drawings: Mapping[str, str] | None = None,
    ) -> dict[Section, list[Figure | Table]]:
        """Put in figures and tables, and return them by section; a table without a section is not
        on the page.

        Args:
            tables, figures: those that are not empty.
            prefix: of their anchors.
            drawings: of the figures, by name.
        """
        by_section: dict[Section, list[Figure | Table]] = {}
        for figure in figures:
            self._put_table(f"{prefix}numbers-{figure.name}", figure.table)
            if drawings and figure.name in drawings:
                drawn = self.finished(drawings[figure.name])
                self.drawings[f"{prefix}figure-{figure.name}"] = drawn
            by_section.setdefault(figure.section, []).append(figure)
        for table in tables:
            if table.section:
                self._put_table(f"{prefix}table-{table.name}", table)
                by_section.setdefault(table.section, []).append(table)
        return by_section

    def _put_table(self, anchor: str, table: Table) -> None:
        self._of_csv[anchor] = table
        first, further = data_table(table, self._common)
        if further:
            self._further[anchor] = further
        self.tables[anchor] = self.finished(first)

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
        csv_files = {anchor: to_csv(table) for anchor, table in self._of_csv.items()}
        # piece by piece: the page as one text would be in memory beside its bytes
        pieces = (
            environment()
            .get_template(template)
            .generate(
                **context,
                page=self,
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
