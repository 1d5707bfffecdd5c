"""`report.html`: every figure and table, the sentences that matter, and the responses behind the
numbers, in one file.

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
from pathlib import Path
from threading import Thread
from typing import Literal

import msgspec
from markupsafe import Markup

from opensafeintent import __version__
from opensafeintent.analysis.cohort import Cohort, GradedRun, graders
from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.analysis.gates import Gates
from opensafeintent.analysis.judge_checks import CheckedJudge, checked_judges
from opensafeintent.calls.providers import is_in_process
from opensafeintent.errors import counted
from opensafeintent.evaluation.run import IMPORTED_JUDGE, RunTexts
from opensafeintent.hostile import json_for_html, one_line, page_script, security_policy
from opensafeintent.report.figures import THEMES, Figure, all_figures
from opensafeintent.report.figures.kit import drawing
from opensafeintent.report.formats import (
    DASH,
    TEXTS,
    Cell,
    Column,
    Section,
    Table,
    common_beginning,
    share_of,
    shortened,
    text,
    to_csv,
)
from opensafeintent.report.gates import headline
from opensafeintent.report.metrics_json import UNDEFINED, cohort_notes
from opensafeintent.report.sentences import (
    Sentence,
    cautions,
    environment,
    findings,
    glossary,
    glossary_lines,
)
from opensafeintent.report.tables import headline_table, with_and_without, without_unlike
from opensafeintent.report.transcripts import Browser, add_texts, browse, members_of
from opensafeintent.taxonomy import INTENT_WORDS, MAX_MISSING, MODES

_MOST_ROWS = 25_000
"""A table with more is shown in part; the whole is in its CSV file."""
_AT_ONCE = 200
"""Rows in the page itself; further ones are embedded in a compressed form, for the script."""


# Assets
# ------------------------------------------------------------------------------


def asset(name: str) -> str:
    """Return one of the pages' own files."""
    return resources.files("opensafeintent.report").joinpath(f"assets/{name}").read_text("utf-8")


_BUNDLE = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode())
"""
"""Runs in a process of its own: the bundler takes 100 MB, and keeps them."""


@lru_cache(maxsize=1)
def vega_script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from the copy that vl-convert ships."""
    command = [sys.executable, "-P", "-c", _BUNDLE]  # -P: nothing of the folder that one is in
    bundled = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return bundled.stdout.decode().replace("</script", "<\\/script").replace("<!--", "<\\!--")


# Tables
# ------------------------------------------------------------------------------


def data_table(table: Table, common: str = "") -> tuple[str, str]:
    """Return a table as HTML, finished, with its first rows, and the further rows; empty columns
    are left out, and `common`, with which all names of models begin.

    If a script's key for sorting and filtering differs from a cell's own text, it is in the cell's
    `data-v`.
    """
    rows = table.cells[:_MOST_ROWS]
    shown = [
        (index, column)
        for index, column in table.shown
        if not rows or any(cell is not None for row in rows for cell in row[index][:1])
    ]
    title = html.escape(table.title)
    head = "".join(_head(column) for _, column in shown)
    names = [index for index, column in shown if column.style == "name"]
    body = [
        f"<tr{' class=average' * any(row[index][0] == AVERAGE for index in names)}>"
        + "".join(_cell(column, row[index], common) for index, column in shown)
        for row in rows
    ]
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
    notes = (f"<p>{html.escape(note)}</p>" for note in table.notes)
    return "\n".join((f"<p>{html.escape(table.title)}</p>", data_table(table)[0], *notes))


def _head(column: Column) -> str:
    number = "" if column.style in TEXTS else " class=number"
    return (
        f"<th scope=col{number}"
        f' data-source="{html.escape(column.name)}">{html.escape(column.heading or "")}'
    )


def _cell(column: Column, cells: tuple[Cell, ...], common: str) -> str:
    """Return one cell as HTML; a text from outside is text, and must not turn the line's
    direction.
    """
    value, seen = cells[0], text(column.style, cells)
    if column.style not in TEXTS:
        behind = (
            "" if value is None or column.style == "count" else f" data-v={round(float(value), 6)}"
        )
        number, space, limits = seen.partition(" [")
        interval = f"<span class=interval> [{limits}</span>" if space else ""
        return f"<td class=number{behind}>{html.escape(number)}{interval}"
    raw = value if isinstance(value, str) else seen
    label = raw.removeprefix(common) if column.style == "name" else _labels().get(raw, raw)
    # with the line ends and the NUL that a parser of HTML would make of it
    parsed = raw.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    behind = (
        f' data-v="{html.escape(parsed)}"'
        if label != raw or not raw.isprintable() or value == DASH
        else ""
    )
    if column.style == "name":
        parts = "<wbr>".join(map(shown_text, _BREAKS.split(label)))
        return f"<th scope=row{behind}><bdi class=name>{parts}</bdi>"
    return f"<td{behind}><bdi>{shown_text(label)}</bdi>"


@cache
def _labels() -> dict[str, str]:
    return {
        **{name: entry.label for name, entry in glossary().items()},
        **INTENT_WORDS,
        "harm_severity": "harm severity",
    }


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

    def __init__(self, common: str = "") -> None:
        self._common = common  # the common beginning of models' names
        self._tables: dict[str, Table] = {}  # by the anchor that they are below
        self._further: dict[str, str] = {}
        self._mark = secrets.token_hex(16)  # no text can guess it
        self._parts: list[bytes] = []

    def put(self, data: bytes | str) -> Markup:
        """Return the placeholder of some bytes in a template."""
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
        prefix: str,
        said: Iterable[str],
        drawings: Mapping[str, str],
    ) -> dict[Section, list[Shown]]:
        """Put figures and tables into their sections; a table without a section is not on the page.

        Args:
            tables, figures: those that are not empty.
            prefix: of their anchors.
            said: notes that need not be repeated under each of them; a note comes after those that
                it contains.
            drawings: of the figures, by name.
        """
        parts: dict[Section, list[Shown]] = {}
        for figure in figures:
            caption = figure.caption
            for note in said:
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
                    drawing=self.put(drawn) if drawn else None,
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
                        notes=tuple(note for note in table.notes if note not in said),
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
        return self.put(first)

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
        filled = (
            environment()
            .get_template(template)
            .render(
                **context,
                common=self._common,
                version=__version__,
                policy=security_policy(scripts=(library, script), styles=(style,)),
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


# `report.html`: figures, tables, cautions and responses in one file
# ------------------------------------------------------------------------------

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
    findings: list[Sentence]
    cautions: list[Sentence]
    content: dict[Section, list[Shown]]
    folded: frozenset[str]
    """The sections that wait to be opened."""


_OPEN = ("utility", "comparisons", "correction")
"""Sections that a reader need not open."""


def render_page(
    cohorts: Sequence[Cohort],
    runs: Sequence[GradedRun],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    texts: Mapping[str, RunTexts],
    *,
    include_unsafe: bool,
    drawings: Path | None = None,
    max_missing: float = MAX_MISSING,
    gates: Gates | None = None,
    places: Mapping[str, str] | None = None,
) -> bytes:
    """Return the page as one HTML file; the same input gives the same bytes.

    Args:
        cohorts: the models, those that may be compared together.
        runs: the runs that they come from.
        tables: of `report.tables.all_tables`, over all cohorts.
        figures: of `report.figures.all_figures`; with several cohorts each gets drawings of its
            own.
        texts: by the run's name, the source of its responses; a run without one is shown without
            texts.
        include_unsafe: whether responses that are not graded safe and prompts of malicious intent
            are put into the page.
        drawings: the folder that the figures were written into; without it, figures need a script.
        max_missing: share of missing grades or responses beyond which the page warns.
        gates: results of the gates, whose tables are among `tables`.
        places: by the run's name, its path from the page's folder, for the command that traces a
            set.
    """
    # two seconds of another thread's time, the first time in a process
    bundling = Thread(target=vega_script)
    bundling.start()
    common = common_beginning([model for cohort in cohorts for model in cohort.models])
    page, members = Page(common), members_of(cohorts)
    # of several groups, the figures have all in one drawing
    by_cohort = [figures if len(cohorts) == 1 else all_figures([cohort]) for cohort in cohorts]
    drawn = {
        figure.name: drawing(figure.name, drawings)
        for figure in by_cohort[0]
        if drawings and (drawings / f"{figure.name}.svg").is_file()
    }
    parts = [
        _part(page, cohorts, index, runs, tables, own, {} if index else drawn, max_missing)
        for index, own in enumerate(by_cohort)
    ]
    alike = [table for table in tables if _GROUP not in table.fields]
    shared = page.sections(alike, (), prefix="", said=(), drawings={})
    specifications = {
        f"{part.prefix}figure-{one.name}": one.spec
        for part, own in zip(parts, by_cohort, strict=True)
        for one in own
    }
    browser = browse(members, include_unsafe=include_unsafe, places=places)
    data_figures = page.put(json_for_html({"theme": THEMES["light"], "figures": specifications}))
    bundling.join()
    fixed = page.size + len(vega_script()) + len(json_for_html(browser)) + 200_000
    add_texts(browser, members, texts, max(PAGE_BYTES - fixed, 0))
    return page.render(
        "report.html",
        styles=("page.css",),
        scripts=_SCRIPTS,
        library=vega_script(),
        title=_title(cohorts),
        parts=parts,
        banners=list(
            dict.fromkeys(sentence for part in parts for sentence in part.cautions if sentence.loud)
        ),  # nobody may overlook it
        verdict=headline(gates) if gates else "",
        gates=shared.get("gates"),
        sampled=_sampled(browser),
        measured=_measured(cohorts[0]) if len(parts) == 1 else "",
        runs=[(run.manifest, (places or {}).get(run.name, run.name)) for run in runs],
        include_unsafe=include_unsafe,
        method=shared["method"],
        glossary=glossary_lines(),
        modes=MODES,
        data_figures=data_figures,
        data_sets=page.put(json_for_html(browser)),
    )


def _part(
    page: Page,
    cohorts: Sequence[Cohort],
    index: int,
    runs: Sequence[GradedRun],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    drawings: Mapping[str, str],
    max_missing: float,
) -> _Part:
    """Return the page's part for one cohort."""
    cohort, alone = cohorts[index], len(cohorts) == 1
    drawn = {figure.name for figure in figures}  # the numbers of a figure are below it
    own = [
        without_unlike(table if alone else _of_cohort(table, index), cohort)
        for table in tables
        if _GROUP in table.fields
    ]
    shown = [
        table
        for table in (headline_table(cohort), *own, with_and_without(cohort.changes))
        if table.rows and table.name not in drawn
    ]
    notes = sorted({*cohort_notes(cohorts), *cohort_notes([cohort]), UNDEFINED})
    prefix = "" if alone else f"part-{index + 1}-"
    content = page.sections(shown, figures, prefix=prefix, said=notes, drawings=drawings)
    return _Part(
        prefix=prefix,
        heading=f"{one_line(cohort.dataset.name, 60)}, {_graded(cohort)}",
        apart=_apart_because(cohorts[0], cohort) if index else "",
        facts=facts_of(cohort, runs),
        findings=findings(cohort),
        cautions=cautions(cohort, corrected=_corrected(own), max_missing=max_missing),
        content=content,
        folded=frozenset(content) - set(_OPEN),
    )


def _of_cohort(table: Table, index: int) -> Table:
    """Return a table's rows of one group, without the column that distinguishes groups."""
    at = [column.name for column in table.columns].index(_GROUP)
    rows = [
        row for row, cells in zip(table.rows, table.cells, strict=True) if cells[at] == (index + 1,)
    ]
    return msgspec.structs.replace(table.hiding(_GROUP), rows=rows)


def _corrected(tables: Sequence[Table]) -> bool:
    """Tell whether human labels have corrected any of the numbers."""
    return any(
        record["corrected"] is not None
        for table in tables
        if table.name == "corrected"
        for record in table.records()
    )


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


# The head of a part
# ------------------------------------------------------------------------------


def _measured(cohort: Cohort) -> str:
    """Return the sample of a cohort, in one line."""
    return f"{one_line(cohort.dataset.name, 60)}: {cohort.extent}, {_graded(cohort)}."


def _title(cohorts: Sequence[Cohort]) -> str:
    """Return the page's title."""
    models = [model for cohort in cohorts for model in cohort.models]
    what = shortened(one_line(models[0], 200), 100) if len(models) == 1 else f"{len(models)} models"
    return f"Intent calibration of {what}"


def _graded(cohort: Cohort) -> str:
    judges = cohort.conditions.judges
    if judges == (IMPORTED_JUDGE,):
        return "grades as imported"
    return f"graded by {_named(judges)}" if judges else "not graded"


def _apart_because(cohort: Cohort, other: Cohort) -> str:
    """Return the conditions in which another cohort differs from the first one, so that the two are
    not mixed.
    """
    first, own = cohort.conditions, other.conditions
    reasons = []
    if own.dataset != first.dataset:
        reasons.append(f"other prompt-sets ({own.dataset[:8]}, not {first.dataset[:8]})")
    if own.judges != first.judges:
        reasons.append(f"other judges ({_named(own.judges)}, not {_named(first.judges)})")
    elif own.mode_judge != first.mode_judge:
        reasons.append(
            f"another judge of modes ({_named([own.mode_judge])}, not {_named([first.mode_judge])})"
        )
    if own.parse != first.parse:
        reasons.append(f"grades read in another way ({own.parse}, not {first.parse})")
    if own.arguments != first.arguments and own.judges == first.judges:
        reasons.append(
            f"other arguments of the judges ({_given(own.arguments)}, not"
            f" {_given(first.arguments)})"
        )
    if own.templates and first.templates and own.templates != first.templates:
        roles = sorted(role for role, _ in set(own.templates) - set(first.templates))
        reasons.append(f"other judge templates ({', '.join(roles)})")
    elif bool(own.templates) != bool(first.templates):
        reasons.append("judge templates that are not stored")
    return "; ".join(reasons)


def _named(judges: Sequence[str]) -> str:
    return one_line(graders(judges), 80) or "none"


def _given(arguments: Sequence[tuple[str, str]]) -> str:
    return one_line("; ".join(f"{judge} {fields}" for judge, fields in arguments), 300) or "none"


def facts_of(cohort: Cohort, runs: Sequence[GradedRun]) -> list[tuple[str, str]]:
    """Return the conditions of a cohort, as (term, text)."""
    dataset, conditions = cohort.dataset, cohort.conditions
    domains = {item.harm_domain for item in dataset.prompt_sets}
    types = {item.task_type for item in dataset.prompt_sets}
    responses = sum(coverage.responses for coverage in cohort.coverage.values())
    counted = sum(coverage.counted for coverage in cohort.coverage.values())
    facts = [
        ("Dataset", f"{one_line(dataset.name, 60)} · sha256 {dataset.hash}"),
        ("Size", f"{cohort.extent}; {len(domains)} harm domains, {len(types)} task types"),
        ("Models", f"{len(cohort.models)}"),
        ("Responses", f"{responses:,}, of which {counted:,} have both grades"),
        ("Judge" if len(conditions.judges) == 1 else "Judges", _named(conditions.judges)),
    ]
    if conditions.mode_judge and conditions.mode_judge not in conditions.judges:
        facts.append(("Judge of modes", one_line(conditions.mode_judge, 80)))
    if checked := checked_judges(cohort):
        facts.append(("Judge check", _checks(checked)))
    if conditions.templates:
        facts.append(("Judge templates", _templates(conditions.templates, runs)))
    if conditions.arguments:
        facts.append(("Judge arguments", _given(conditions.arguments)))
    if conditions.parse != "strict":
        facts.append(("Grades read as", conditions.parse))
    if cohort.array.sizes["epoch"] > 1:
        facts.append(("Repeats", f"{cohort.array.sizes['epoch']} of each prompt"))
    return [*facts, *_sampling(cohort, runs)]


def _checks(checked: Sequence[CheckedJudge]) -> str:
    """Return each judge's result on the gold cases; a judge is named if there are several."""
    texts = []
    for item in checked:
        text = {"unchecked": "not checked", "stale": "not with these templates and settings"}.get(
            item.state, item.state
        )
        if item.check is not None and item.state != "stale":
            accepted, cases = item.check.accepted, item.check.cases
            text += f", {accepted} of {cases} gold cases, {share_of(accepted, cases)}"
        texts.append(f"{one_line(item.judge, 80)}: {text}" if len(checked) > 1 else text)
    return "; ".join(texts)


def _templates(templates: Sequence[tuple[str, str]], runs: Sequence[GradedRun]) -> str:
    names = {
        digest: f"{item.id} v{item.version}"
        for run in runs
        for digest, item in run.manifest.templates.items()
    }
    texts = (f"{names.get(digest, role)} ({digest})" for role, digest in templates)
    return one_line(", ".join(texts), 2000)


def _sampling(cohort: Cohort, runs: Sequence[GradedRun]) -> list[tuple[str, str]]:
    """Return the sampling of the targets, if all runs of the cohort agree on it."""
    names = {origin.run for origin in cohort.origins.values()}
    settings = {
        (
            sampling.temperature,
            sampling.max_tokens,
            run.manifest.system is not None,
            run.manifest.preset,
        )
        for run in runs
        if run.name in names and (sampling := run.manifest.target_sampling) is not None
    }
    if len(settings) != 1:
        return [("Sampling", "differs between runs")] if settings else []
    temperature, tokens, system, preset = settings.pop()
    facts = (
        ""
        if all(map(is_in_process, cohort.models))
        else "provider’s temperature"
        if temperature is None
        else f"temperature {temperature:g}",
        f"at most {tokens:,} tokens" if tokens else "",
        "with a system prompt" if system else "",
        f"preset {preset}" if preset else "",
    )
    return [("Sampling", ", ".join(filter(None, facts)))]
