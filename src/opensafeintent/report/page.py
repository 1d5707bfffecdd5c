"""The page of a report: one HTML file with tables, figures and transcripts."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from opensafeintent import __version__
from opensafeintent.errors import counted
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.hostile import json_for_html, one_line, page_script, security_policy
from opensafeintent.numbers.cohort import Cohort, GradedRun
from opensafeintent.numbers.gates import Gates
from opensafeintent.quoting import UnsafeTexts
from opensafeintent.report.cohort_columns import cohort_notes
from opensafeintent.report.columns import Section, Table, common_beginning
from opensafeintent.report.conditions import (
    differences_from,
    facts_of,
    graded,
    measured,
    measurement,
    page_title,
)
from opensafeintent.report.figures import THEMES, Figure, all_figures
from opensafeintent.report.figures.drawing import drawing
from opensafeintent.report.findings import Sentence, answers, environment, findings
from opensafeintent.report.gate_tables import below_headline, headline
from opensafeintent.report.limitations import cautions
from opensafeintent.report.table_formats import data_table, glossary, glossary_lines, to_csv
from opensafeintent.report.tables import with_and_without
from opensafeintent.report.tables_comparisons import without_unlike
from opensafeintent.report.tables_metrics import HEADLINE, headline_table
from opensafeintent.report.transcripts import Browser, add_texts, browse, members_of
from opensafeintent.taxonomy import MAX_MISSING, MODES


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


PAGE_BYTES = 14_000_000
"""The page is filled with texts up to here; with everything else it stays under 15 MB."""


_SCRIPTS = ("text.js", "tables.js", "figures.js", "browser.js", "page.js")


_GROUP = "group"
"""The column that distinguishes groups."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """The page's part for one cohort."""

    prefix: str
    """Of its anchors."""
    heading: str
    apart: str
    facts: list[tuple[str, str]]
    measurement: str
    """A description for a paper."""
    answers: list[Sentence]
    """Before its table and its figure."""
    findings: list[Sentence]
    cautions: list[Sentence]
    content: dict[Section, list[Figure | Table]]
    stated: list[str]
    """Notes that are not repeated below each of them."""
    folded: frozenset[str]
    """The sections that wait to be opened."""


_OPEN = ("utility", "comparisons", "correction")
"""Sections that a reader need not open."""


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of a report besides its tables and figures."""

    include_unsafe: bool
    """Whether responses that are not graded safe and prompts of malicious intent are put in."""
    drawings: Path | None = None
    """The folder that the figures were written into; without it, figures need a script."""
    max_missing: float = MAX_MISSING
    """Share of missing grades or responses beyond which the page warns."""
    gates: Gates | None = None
    """Results of the gates, whose tables are among the tables."""
    places: Mapping[str, str] | None = None
    """By the run's name, its path from the page's folder, for the command that traces a set."""
    reproduction: Reproduction | None = None
    """The commands that make the runs and the page again."""
    judges_asked: bool = False
    """Whether `judges.md` is beside the page."""


class RenderedPage(NamedTuple):
    """A page as one HTML file."""

    content: bytes
    unsafe: UnsafeTexts
    """Of the texts in it."""


def render_page(
    cohorts: Sequence[Cohort],
    runs: Sequence[GradedRun],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    texts: Mapping[str, RunTexts],
    options: PageOptions,
) -> RenderedPage:
    """Return the page as one HTML file; the same input gives the same bytes.

    Args:
        cohorts: the models, those that may be compared together.
        runs: the runs that they come from.
        tables: of `report.tables.all_tables`, over all cohorts.
        figures: of `report.figures.all_figures`; with several cohorts each gets drawings of its
            own.
        texts: by the run's name, the source of its responses; a run without one is shown without
            texts.
        options: of the page.
    """
    # two seconds of another thread's time, the first time in a process
    bundling = Thread(target=vega_script)
    bundling.start()
    page = Page(common_beginning([model for cohort in cohorts for model in cohort.models]))
    # of several groups, the figures have all in one drawing
    by_cohort = [figures if len(cohorts) == 1 else all_figures([cohort]) for cohort in cohorts]
    parts = [
        _part(page, cohorts, index, runs, tables, own, options)
        for index, own in enumerate(by_cohort)
    ]
    alike = [table for table in tables if _GROUP not in table.fields]
    shared = page.put(alike, ())
    data_figures = page.finished(json_for_html(_figure_data(parts, by_cohort)))
    bundling.join()
    browser = _browser(page, cohorts, texts, options)
    content = page.render(
        "report.html",
        styles=("page.css",),
        scripts=_SCRIPTS,
        library=vega_script(),
        data_figures=data_figures,
        data_sets=page.finished(json_for_html(browser)),
        **_values(cohorts, parts, shared, browser, options),
    )
    return RenderedPage(content, browser.unsafe_texts())


def _values(
    cohorts: Sequence[Cohort],
    parts: Sequence[_Part],
    shared: Mapping[Section, Sequence[Figure | Table]],
    browser: Browser,
    options: PageOptions,
) -> dict[str, object]:
    """Return the template's values, all but embedded data.

    Args:
        cohorts: the models.
        parts: one for each cohort.
        shared: tables that are of no cohort, by section.
        browser: of prompt-sets and responses.
        options: of the page.
    """
    loud = [sentence for part in parts for sentence in part.cautions if sentence.loud]
    return {
        "title": page_title(cohorts),
        "parts": parts,
        "banners": list(dict.fromkeys(loud)),  # nobody may overlook them
        "verdict": headline(options.gates) if options.gates else "",
        "below_verdict": below_headline(options.gates) if options.gates else [],
        "gates": shared.get("gates", ()),
        "sampled": _sampled(browser),
        "measured": measured(cohorts[0]) if len(parts) == 1 else "",
        "reproduction": options.reproduction,
        "judges_asked": options.judges_asked,
        "include_unsafe": options.include_unsafe,
        "method": shared["method"],
        "glossary": glossary_lines(second_turn=any(cohort.second_turn for cohort in cohorts)),
        "modes": MODES,
    }


def _figure_data(
    parts: Sequence[_Part], by_cohort: Sequence[Sequence[Figure]]
) -> dict[str, object]:
    """Return the figures' specifications by their anchors, for the script."""
    specifications = {
        f"{part.prefix}figure-{figure.name}": figure.spec
        for part, figures in zip(parts, by_cohort, strict=True)
        for figure in figures
    }
    return {"theme": THEMES["light"], "figures": specifications}


def _browser(
    page: Page, cohorts: Sequence[Cohort], texts: Mapping[str, RunTexts], options: PageOptions
) -> Browser:
    """Return the prompt-sets, with as many texts as the page has room for."""
    members = members_of(cohorts)
    browser = browse(members, include_unsafe=options.include_unsafe, places=options.places)
    fixed = page.size + len(vega_script()) + len(json_for_html(browser)) + 200_000
    add_texts(browser, members, texts, max(PAGE_BYTES - fixed, 0))
    return browser


def _part(
    page: Page,
    cohorts: Sequence[Cohort],
    index: int,
    runs: Sequence[GradedRun],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    options: PageOptions,
) -> _Part:
    """Return the page's part for one cohort."""
    cohort, alone = cohorts[index], len(cohorts) == 1
    drawn = {figure.name for figure in figures}  # the numbers of a figure are below it
    own = [
        without_unlike(table if alone else _of_cohort(table, index), cohort)
        for table in tables
        if _GROUP in table.fields and table.name != HEADLINE
    ]
    shown = [
        table
        for table in (headline_table(cohort), *own, with_and_without(cohort.changes))
        if table.rows and table.name not in drawn
    ]
    prefix = "" if alone else f"part-{index + 1}-"
    # of several groups, only the first has drawings for people without a script
    drawings = {} if index else _drawings(figures, options.drawings)
    content = page.put(shown, figures, prefix=prefix, drawings=drawings)
    return _Part(
        prefix=prefix,
        heading=f"{one_line(cohort.dataset.name, 60)}, {graded(cohort)}",
        apart=differences_from(cohorts[0], cohort) if index else "",
        facts=facts_of(cohort, runs),
        measurement=measurement(
            cohort, next((table for table in own if table.name == "corrected"), None)
        ),
        answers=answers(cohort),
        findings=findings(cohort),
        cautions=cautions(
            cohort,
            corrected=_corrected(own),
            compared=_compared(own),
            max_missing=options.max_missing,
        ),
        content=content,
        stated=sorted({*cohort_notes(cohorts), *cohort_notes([cohort])}),
        folded=frozenset(content) - set(_OPEN),
    )


def _drawings(figures: Sequence[Figure], folder: Path | None) -> dict[str, str]:
    """Return the drawings that a folder holds, by the figure's name."""
    return {
        figure.name: drawing(figure.name, folder)
        for figure in figures
        if folder and (folder / f"{figure.name}.svg").is_file()
    }


def _of_cohort(table: Table, index: int) -> Table:
    """Return a table's rows of one group, without the column that distinguishes groups."""
    return table.hiding(_GROUP).only(lambda record: record[_GROUP] == index + 1)


def _corrected(tables: Sequence[Table]) -> bool:
    """Tell whether human labels have corrected any of the numbers."""
    return any(
        record["corrected"] is not None
        for table in tables
        if table.name == "corrected"
        for record in table.records()
    )


def _compared(tables: Sequence[Table]) -> set[str]:
    """Return the judges that were compared with people on labelled responses."""
    return {
        str(record["judge"])
        for table in tables
        if table.name == "judge_labels"
        for record in table.records()
    }


def _sampled(browser: Browser) -> str:
    repeated = any(unit.epoch > 1 for model in browser.models for unit in model.units)
    several = len(browser.models) > 1
    each = ["model"] * several + ["epoch"] * repeated
    sets = (
        f"{browser.units:,} entries (a prompt-set for each {' and '.join(each)})"
        if each
        else counted(browser.units, "prompt-set")
    )
    if browser.complete:
        return f"All {sets}."
    listed = sum(len(dataset.sets) for dataset in browser.datasets)
    of = sum(dataset.of for dataset in browser.datasets)
    some = "" if listed == of else f" ({listed:,} of the {of:,} prompt-sets)"
    return (
        f"The grades of all {sets}{some} are here. To keep the page small, it has the texts of"
        f" {browser.with_texts:,} of them. The worst failures{' of each model' * several} come"
        " first, then a sample spread evenly over harm domains and task types"
        f"{', the same for every model' * several}. All grades are in grades.csv.gz beside this"
        " file, and all texts in the runs’ ledgers."
    )
