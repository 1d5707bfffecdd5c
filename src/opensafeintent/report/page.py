"""The page of a report: one HTML file with tables, figures and transcripts."""

from __future__ import annotations

import base64
import contextlib
import gzip
import importlib.metadata
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from markupsafe import Markup, escape

from opensafeintent import __version__
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import find_cache, make_private_folder, sha256_hex, write_private
from opensafeintent.hostile import TEXT, json_for_html, one_line, security_policy
from opensafeintent.markdown import page_environment, page_script
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.gates import Gates
from opensafeintent.quoting import UnsafeTexts
from opensafeintent.report.cohort_columns import cohort_notes, describe_average
from opensafeintent.report.columns import Section, Table, find_common_prefix
from opensafeintent.report.conditions import (
    describe_graders,
    describe_measurement,
    describe_sample,
    page_title,
    quote_headline,
)
from opensafeintent.report.facts import Name, Statement
from opensafeintent.report.figures import SAID_ONCE, THEMES, Figure
from opensafeintent.report.figures.drawing import read_drawing
from opensafeintent.report.findings import collect_findings, rank_or_compare_models
from opensafeintent.report.gate_tables import describe_below_verdict, describe_verdict
from opensafeintent.report.notices import select_urgent
from opensafeintent.report.page_tables import shorten_for_page
from opensafeintent.report.table_formats import data_table, glossary, to_csv
from opensafeintent.report.tables import with_and_without
from opensafeintent.report.tables_metrics import HEADLINE, headline_table
from opensafeintent.report.transcripts import Browser, add_texts, browse
from opensafeintent.taxonomy import MODES

if TYPE_CHECKING:
    from jinja2 import Environment


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """Commands for the folder of a page, each as a shell takes it."""

    evaluations: list[str]
    """Those that made the runs, in turn; files without their folders."""
    report: str
    """It makes the page from the stored responses."""
    apart: bool = False
    """Whether the page is in a folder of its own, such as a copy to share: its commands read the
    folders of the runs, which need not be there.
    """


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
    """Return Vega, Vega-Lite and vega-embed as one script, from the copy that vl-convert ships. It
    is kept in the cache, since making it takes longer than the rest of a small page.
    """
    kept: Path | None = None
    with contextlib.suppress(InputError, OSError, UnicodeDecodeError, ImportError):
        kept = find_cache() / f"vega-{importlib.metadata.version('vl-convert-python')}.js"
        mark, _, script = kept.read_text("utf-8").partition("\n")
        if mark == _mark_whole(script):
            return script
    script = _bundle_vega()
    if kept is not None:
        with contextlib.suppress(InputError):
            make_private_folder(kept.parent)
            write_private(kept, f"{_mark_whole(script)}\n{script}")
    return script


def _mark_whole(script: str) -> str:
    """Return the first line of a kept script, by which one that is damaged is made again."""
    return f"// {sha256_hex(_BUNDLE + script)}"


def _bundle_vega() -> str:
    # -P: nothing of the folder that one is in
    command = [sys.executable, "-P", "-c", _BUNDLE]
    try:
        script = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    except (OSError, TypeError, subprocess.CalledProcessError):  # no Python can be started
        import vl_convert

        script = vl_convert.javascript_bundle(_GLOBAL)
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def pack_texts(texts: Mapping[str, str]) -> bytes:
    """Return texts by key as JSON, each compressed, for the page's script."""
    files = {
        key: gzip.compress(text.encode(errors="replace"), 6, mtime=0) for key, text in texts.items()
    }
    return json_for_html({key: base64.b64encode(data).decode() for key, data in files.items()})


class Page:
    """A page in the making.

    Attributes:
        tables: what was put in so far as HTML, by anchor.
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
        self._data: dict[str, bytes] = {}

    def finish(self, data: bytes | str) -> Markup:
        """Return markup that a template takes as it is: of bytes a mark, whose place they take when
        the page is rendered, for as text they would need several times the memory.
        """
        raw = data if isinstance(data, bytes) else data.encode(errors="replace")
        self.size += len(raw)
        if isinstance(data, str):
            return Markup(raw.decode())
        mark = Markup(f"\0{len(self._data)}\0")
        self._data[mark] = data
        return mark

    def put(
        self,
        tables: Iterable[Table],
        figures: Iterable[Figure],
        *,
        drawings: Mapping[str, str] | None = None,
    ) -> dict[Section, list[Figure | Table]]:
        """Put in figures and tables, and return them by section; what has no section is not on the
        page.

        Args:
            tables, figures: those that are not empty.
            drawings: of the figures, by name.
        """
        by_section: dict[Section, list[Figure | Table]] = {}
        for figure in figures:
            if not figure.section:
                continue
            if drawings and figure.name in drawings:
                drawn = self.finish(drawings[figure.name])
                self.drawings[f"figure-{figure.name}"] = drawn
            by_section.setdefault(figure.section, []).append(figure)
        for table in tables:
            if table.section:
                self._put_table(f"table-{table.name}", table)
                by_section.setdefault(table.section, []).append(table)
        return by_section

    def _put_table(self, anchor: str, table: Table) -> None:
        first, further = data_table(table, self._common)
        if further:  # the script makes the CSV of its rows: nothing long is on the page twice
            self._further[anchor] = further
        else:
            self._of_csv[anchor] = table
        self.tables[anchor] = self.finish(first)

    def render(
        self,
        template: str,
        *,
        styles: Sequence[str],
        scripts: Sequence[str],
        library: str,
        **context: object,
    ) -> list[bytes]:
        """Return the page as one HTML file, in pieces: as one text it would be in memory beside its
        data.

        Args:
            template: its name.
            styles, scripts: assets.
            library: a script of others, to come before ours.
            context: the template's values.
        """
        style = "".join(map(asset, styles))
        script = page_script(map(asset, scripts))
        csv_files = {anchor: to_csv(table) for anchor, table in self._of_csv.items()}
        pieces = (
            _environment()
            .get_template(template)
            .generate(
                **context,
                page=self,
                common=self._common,
                version=__version__,
                policy=security_policy(scripts=(library, script), styles=(style,)),
                style=self.finish(style),
                script=self.finish(script),
                library=self.finish(library),
                data_csv=self.finish(pack_texts(csv_files)),
                data_rows=self.finish(pack_texts(self._further)),
            )
        )
        return [self._data.get(piece) or piece.encode(errors="replace") for piece in pieces]


PAGE_BYTES = 14_000_000
"""The page is filled with texts up to here; with everything else it stays under 15 MB."""


_SCRIPTS = ("text.js", "tables.js", "figures.js", "browser.js", "page.js")


_OPEN = ("utility", "comparisons", "correction")
"""Sections that a reader need not open."""


@cache
def _environment() -> Environment:
    """Return the environment of the page's templates, in which every text is escaped."""
    environment = page_environment("opensafeintent.report", "assets")
    environment.filters |= {
        "without": _cut_parts,
        "quoted": lambda text: shlex.quote(one_line(text, TEXT)),
        "options": lambda text: Markup(
            re.sub(r"(--[\w-]+)", r"<code>\1</code>", str(escape(text)))
        ),
    }
    environment.tests["name"] = lambda part: isinstance(part, Name)
    return environment


def _cut_parts(text: str, parts: Iterable[str]) -> str:
    """Return a text without some parts of it; a part comes after those that it contains."""
    for part in parts:
        text = text.replace(part, "")
    return text.strip()


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of a report besides its tables and figures."""

    include_unsafe: bool
    """Whether responses that are not graded safe and prompts of malicious intent are put in."""
    drawings: Path | None = None
    """The folder that the figures were written into; without it, figures need a script."""
    notices: Sequence[Statement] = ()
    """What limits the results."""
    gates: Gates | None = None
    """Results of the gates, whose tables are among the tables."""
    places: Mapping[str, str] | None = None
    """By the run's name, its path from the page's folder, for the command that traces a set."""
    reproduction: Reproduction | None = None
    """The commands that make the runs and the page again."""
    days: tuple[date, date] | None = None
    """Of the first and the last call (UTC), if there was one."""
    judges_asked: bool = False
    """Whether `judges.md` is beside the page."""


class RenderedPage(NamedTuple):
    """A page as one HTML file."""

    pieces: list[bytes]
    unsafe: UnsafeTexts
    """Of the texts in it."""

    @property
    def content(self) -> bytes:
        """The whole file."""
        return b"".join(self.pieces)


def render_page(
    cohort: Cohort,
    tables: Sequence[Table],
    figures: Sequence[Figure],
    texts: Mapping[str, RunTexts],
    options: PageOptions,
) -> RenderedPage:
    """Return the page as one HTML file; the same input gives the same bytes.

    Args:
        cohort: the models.
        tables: of `report.tables.make_all_tables`.
        figures: of `report.figures.draw_all_figures`; one without a number is left out.
        texts: by the run's name, the source of its responses; a run without one is shown without
            texts.
        options: of the page.
    """
    # two seconds of another thread's time, if no earlier run kept it
    bundling = Thread(target=vega_script)
    bundling.start()
    figures = [figure for figure in figures if figure.section and figure.table.has_values]
    page = Page(find_common_prefix(cohort.models))
    content = page.put(
        _yield_tables(cohort, tables, figures),
        figures,
        drawings=_drawings(figures, options.drawings),
    )
    specifications = {f"figure-{figure.name}": figure.spec for figure in figures}
    drawn = {"theme": THEMES["light"], "figures": specifications}
    data_figures = page.finish(json_for_html(drawn))
    bundling.join()
    browser = _browser(page, cohort, texts, options)
    unsafe, sampled = browser.unsafe_texts(), _describe_sampling(browser)
    data_sets = page.finish(json_for_html(browser))
    del browser  # all texts are in the data
    html = page.render(
        "report.html",
        styles=("page.css",),
        scripts=_SCRIPTS,
        library=vega_script(),
        data_figures=data_figures,
        data_sets=data_sets,
        data_glossary=page.finish(json_for_html(glossary(cohort.scope))),
        content=content,
        **_values(cohort, tables, options),
        sampled=sampled,
        folded=frozenset(content) - set(_OPEN),
    )
    return RenderedPage(html, unsafe)


def _yield_tables(
    cohort: Cohort, tables: Sequence[Table], figures: Sequence[Figure]
) -> Iterator[Table]:
    """Yield the tables of the page; the numbers of a figure are below it."""
    drawn = {figure.name for figure in figures}
    yield headline_table(cohort)
    for table in tables:
        on_page = table.has_values and table.name not in drawn | {HEADLINE}
        if on_page and (shown := shorten_for_page(table, cohort, drawn)):
            yield shown
    if (table := with_and_without(cohort.changes)).rows:
        yield table


def _values(cohort: Cohort, tables: Sequence[Table], options: PageOptions) -> dict[str, object]:
    """Return the template's values, all but tables, figures and embedded data."""
    below_banners = [said for said in options.notices if not said.is_banner]
    urgent = select_urgent(below_banners)
    return {
        "title": page_title(cohort),
        # nobody may overlook them
        "banners": [said for said in options.notices if said.is_banner],
        "urgent": urgent,
        "limits": [said for said in below_banners if said not in urgent],
        "quoted": quote_headline(cohort, {said.code for said in options.notices}),
        "verdict": describe_verdict(options.gates) if options.gates else "",
        "below_verdict": describe_below_verdict(options.gates) if options.gates else [],
        "heading": f"{cohort.dataset.shown}, {describe_graders(cohort)}",
        "measured": describe_sample(cohort),
        "dataset_hash": cohort.dataset.hash,
        "measurement": describe_measurement(
            cohort,
            options.days,
            next((table for table in tables if table.name == "corrected"), None),
        ),
        "answers": rank_or_compare_models(cohort),
        "findings": collect_findings(cohort),
        "stated": (*cohort_notes(cohort), *describe_average(cohort), *SAID_ONCE),
        "reproduction": options.reproduction,
        "judges_asked": options.judges_asked,
        "include_unsafe": options.include_unsafe,
        "scope": cohort.scope,
        "modes": MODES,
    }


def _browser(
    page: Page, cohort: Cohort, texts: Mapping[str, RunTexts], options: PageOptions
) -> Browser:
    """Return the prompt-sets, with as many texts as the page has room for."""
    browser = browse(cohort, include_unsafe=options.include_unsafe, places=options.places)
    fixed = page.size + len(vega_script()) + len(json_for_html(browser)) + 200_000
    add_texts(browser, cohort, texts, max(PAGE_BYTES - fixed, 0))
    return browser


def _drawings(figures: Sequence[Figure], folder: Path | None) -> dict[str, str]:
    """Return the drawings that a folder holds, by the figure's name."""
    return {
        figure.name: read_drawing(figure.name, folder)
        for figure in figures
        if folder and (folder / f"{figure.name}.svg").is_file()
    }


def _describe_sampling(browser: Browser) -> str:
    repeated = any(unit.epoch > 1 for model in browser.models for unit in model.units)
    several = len(browser.models) > 1
    each = ["model"] * several + ["epoch"] * repeated
    sets = (
        f"{browser.units:,} entries (a prompt-set for each {' and '.join(each)})"
        if each
        else pluralize(browser.units, "prompt-set")
    )
    if browser.complete:
        return f"All {sets}."
    listed, of = len(browser.dataset.sets), browser.dataset.of
    some = "" if listed == of else f" ({listed:,} of the {of:,} prompt-sets)"
    return (
        f"The grades of all {sets}{some} are here. To keep the page small, it has the texts of"
        f" {browser.with_texts:,} of them. The worst failures{' of each model' * several} come"
        " first, then a sample spread evenly over harm domains and task types"
        f"{', the same for every model' * several}. All grades are in grades.csv.gz beside this"
        " file, and all texts in the runs’ ledgers."
    )
