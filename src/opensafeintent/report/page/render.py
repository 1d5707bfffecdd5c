"""Putting the page together: one file that shows everything, loads nothing and hides nothing that matters."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent import __version__
from opensafeintent.analysis.groups import Group, Study
from opensafeintent.analysis.sensitivity import changes
from opensafeintent.analysis.texts import TextSource
from opensafeintent.report.browser import Browser, browse, members_of
from opensafeintent.report.browser.texts import add_texts
from opensafeintent.report.page.embed import asset, json_for_html, security_policy, vega_script
from opensafeintent.report.page.facts import apart_because, facts_of, heading_of, title_of
from opensafeintent.report.page.glossary import glossary, glossary_lines
from opensafeintent.report.page.sections import Section, Shown, arrange
from opensafeintent.report.page.tables import GROUP, PageTable, of_group, page_table
from opensafeintent.report.sentences import Name, Sentence, cautions, findings
from opensafeintent.taxonomy import MODES

if TYPE_CHECKING:
    from opensafeintent.report.figures import Figure
    from opensafeintent.report.tables import Table

__all__ = ["PAGE_BYTES", "render_page"]

PAGE_BYTES = 14_000_000
"""The page is filled with texts up to here; with everything else it stays under 15 MB."""

_SCRIPTS = ("text.js", "tables.js", "figures.js", "browser.js", "page.js")


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """What the page has of one group."""

    anchor: str
    heading: str
    apart: str
    facts: list[tuple[str, str]]
    findings: list[Sentence]
    cautions: list[Sentence]
    sections: list[Section]


def render_page(
    groups: Sequence[Group],
    studies: Sequence[Study],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    texts: Mapping[str, TextSource],
    *,
    include_unsafe: bool,
) -> bytes:
    """Return the page as one HTML file; the same input gives the same bytes.

    Args:
        groups: the models, those that may be compared together.
        studies: the runs that they come from.
        tables: of `report.tables.all_tables`, over all groups.
        figures: of `report.figures.all_figures`; with several groups each group gets drawings of its own.
        texts: by the study's name, where the run's responses are; a run that is not there is shown without texts.
        include_unsafe: whether responses that are not graded safe and prompts of malicious intent are put into the page.
    """
    from opensafeintent.report.figures import THEMES

    bundling = Thread(target=vega_script)  # two seconds of another thread's time, the first time in a process
    bundling.start()
    contents = [_Contents(group, number, groups, tables, figures) for number, group in enumerate(groups, start=1)]
    shared = [table for table in tables if GROUP not in table.fields]
    page_tables = {key: data for content in contents for key, data in content.page_tables().items()}
    page_tables |= {f"table-{table.name}": page_table(table) for table in shared}
    specs = {key: spec for content in contents for key, spec in content.specs().items()}
    parts = [content.part(studies) for content in contents]
    members = members_of(groups)
    browser = browse(members, include_unsafe=include_unsafe)
    data = {
        "data_tables": json_for_html({"tables": page_tables, "glossary": glossary()}),
        "data_figures": json_for_html({"theme": THEMES["light"], "figures": specs}),
    }
    bundling.join()
    fixed = sum(map(len, data.values())) + len(vega_script()) + len(json_for_html(browser)) + 200_000
    add_texts(browser, members, texts, max(PAGE_BYTES - fixed, 0))
    data["data_sets"] = json_for_html(browser)
    return _render(
        data,
        title=title_of(groups),
        parts=parts,
        banners=_banners(parts),
        sampled=_sampled(browser),
        include_unsafe=include_unsafe,
        taxonomy=[
            Shown(key=f"table-{table.name}", name=table.name, title=table.title, notes=table.notes) for table in shared
        ],
    )


class _Contents:
    """The tables and figures of one group."""

    def __init__(
        self, group: Group, number: int, groups: Sequence[Group], tables: Sequence[Table], figures: Sequence[Figure]
    ) -> None:
        from opensafeintent.report.figures import all_figures
        from opensafeintent.report.tables.long import with_and_without

        alone = len(groups) == 1
        self.group = group
        self.number = number
        self.groups = groups
        self.prefix = "" if alone else f"part-{number}-"
        self.figures = figures if alone else all_figures([group])  # theirs have all groups in one drawing
        self.sensitivity = changes(group)
        own = [table if alone else of_group(table, number) for table in tables if GROUP in table.fields]
        drawn = {figure.name for figure in self.figures}  # the numbers of a figure are below it
        found = (*own, with_and_without(self.sensitivity))
        self.tables = [table for table in found if table.rows and table.name not in drawn]

    def page_tables(self) -> dict[str, PageTable]:
        """Return the tables, and the numbers of the figures, by key."""
        found = {f"{self.prefix}table-{table.name}": page_table(table) for table in self.tables}
        return found | {f"{self.prefix}numbers-{figure.name}": page_table(figure.table) for figure in self.figures}

    def specs(self) -> dict[str, Any]:
        """Return the figures' specifications, by key."""
        return {f"{self.prefix}figure-{figure.name}": figure.spec for figure in self.figures}

    def _corrected(self) -> bool:
        """Tell whether human labels have corrected any of the numbers."""
        tables = [table for table in self.tables if table.name == "corrected"]
        return any(record["corrected"] is not None for table in tables for record in table.records())

    def part(self, studies: Sequence[Study]) -> _Part:
        """Return what the page says of the group."""
        from opensafeintent.report.tables.grouped import UNDEFINED, group_notes

        said = {*group_notes(self.groups), *group_notes([self.group]), UNDEFINED}
        return _Part(
            anchor=self.prefix.removesuffix("-") or "results",
            heading=heading_of(self.group),
            apart=apart_because(self.groups, self.number),
            facts=facts_of(self.group, studies),
            findings=findings(self.group),
            cautions=cautions(self.group, self.sensitivity, corrected=self._corrected()),
            sections=arrange(self.tables, self.figures, self.prefix, sorted(said)),
        )


def _banners(parts: Sequence[_Part]) -> list[Sentence]:
    """Return what nobody may overlook: a demonstration judge, and responses that are still to come."""
    return list(dict.fromkeys(sentence for part in parts for sentence in part.cautions if sentence.loud))


def _sampled(browser: Browser) -> str:
    sets = (
        f"{browser.units:,} prompt-sets" if len(browser.models) == 1 else f"{browser.units:,} pairs of model and prompt-set"
    )
    if browser.complete:
        return f"All {sets}, with their prompts and responses."
    listed = sum(len(dataset.sets) for dataset in browser.datasets)
    of = sum(dataset.of for dataset in browser.datasets)
    some = "" if listed == of else f" ({listed:,} of the {of:,} prompt-sets)"
    return (
        f"The grades of all {sets}{some} are here; to keep the page small, the texts of {browser.with_texts:,} of them: the "
        "most telling failures of each model first, then a sample spread evenly over harm domains and task types, the same "
        "for every model. All grades are in grades.csv.gz beside this file, and all texts in the runs’ ledgers."
    )


def _render(data: Mapping[str, bytes], **context: Any) -> bytes:
    """Fill the template; megabytes of data are put in afterwards, as bytes: as text they would be held several times over."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    mark = secrets.token_hex(16)  # what no text can guess
    large = {**data, "vega": vega_script().encode(errors="replace")}
    style = asset("page.css")
    script = '"use strict";\n' + "\n".join(asset(name) for name in _SCRIPTS)
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.tests["name"] = lambda part: isinstance(part, Name)
    html: str = environment.get_template("template.html").render(
        **context,
        **{name: f"{mark}{name}{mark}" for name in large},
        version=__version__,
        policy=security_policy(scripts=(vega_script(), script), styles=(style,)),
        style=style,
        script=script,
        method=asset("method.html"),
        glossary=glossary_lines(),
        modes=MODES,
    )
    pieces = html.encode(errors="replace").split(mark.encode())
    return b"".join(piece if place % 2 == 0 else large[piece.decode()] for place, piece in enumerate(pieces))
