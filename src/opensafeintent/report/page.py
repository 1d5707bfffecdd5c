"""`report.html`: every figure and table, the sentences that matter, and the responses behind the
numbers, in one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import msgspec

from opensafeintent.analysis.gates import Gates
from opensafeintent.analysis.groups import CheckedJudge, Group, Study, checked_judges
from opensafeintent.evaluation.derive import IMPORTED_JUDGE, RunTexts
from opensafeintent.hostile import json_for_html, one_line
from opensafeintent.report.browser import Browser, browse, members_of
from opensafeintent.report.browser.texts import add_texts
from opensafeintent.report.gates import headline
from opensafeintent.report.glossary import glossary_lines
from opensafeintent.report.kit import Page, Shown, vega_script
from opensafeintent.report.prose import Sentence
from opensafeintent.report.sentences import cautions, findings
from opensafeintent.report.table import Section, Table
from opensafeintent.report.tables.grouped import UNDEFINED, group_notes
from opensafeintent.report.tables.long import with_and_without
from opensafeintent.taxonomy import MAX_MISSING, MODES

if TYPE_CHECKING:
    from opensafeintent.report.figures import Figure


PAGE_BYTES = 14_000_000
"""The page is filled with texts up to here; with everything else it stays under 15 MB."""

_SCRIPTS = ("text.js", "tables.js", "figures.js", "browser.js", "page.js")
_GROUP = "group"
"""The column that tells groups apart."""


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """What the page has of one group."""

    prefix: str
    """Of its anchors."""
    heading: str
    apart: str
    facts: list[tuple[str, str]]
    findings: list[Sentence]
    cautions: list[Sentence]
    content: dict[Section, list[Shown]]


def render_page(
    groups: Sequence[Group],
    studies: Sequence[Study],
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
        groups: the models, those that may be compared together.
        studies: the runs that they come from.
        tables: of `report.tables.all_tables`, over all groups.
        figures: of `report.figures.all_figures`; with several groups each group gets drawings of
            its own.
        texts: by the study's name, where the run's responses are; a run that is not there is shown
            without texts.
        include_unsafe: whether responses that are not graded safe and prompts of malicious intent
            are put into the page.
        drawings: the folder that the figures were written into; without it, figures need a script.
        max_missing: share of missing grades or responses beyond which the page warns.
        gates: what the gates found, whose tables are among `tables`.
        places: by the study's name, the way to its run from the page's folder, for the command that
            traces a set.
    """
    bundling = Thread(
        target=vega_script
    )  # two seconds of another thread's time, the first time in a process
    bundling.start()
    page, members = Page(), members_of(groups)
    by_group = [_figures(groups, index, figures) for index in range(len(groups))]
    parts = [
        _part(
            page,
            groups,
            index,
            studies,
            tables,
            own,
            {} if index else _drawn(own, drawings),
            max_missing,
        )
        for index, own in enumerate(by_group)
    ]
    shared = page.sections([table for table in tables if _GROUP not in table.fields], ())
    browser = browse(members, include_unsafe=include_unsafe, places=places)
    data_figures = page.put(_specifications(parts, by_group))
    bundling.join()
    fixed = page.size + len(vega_script()) + len(json_for_html(browser)) + 200_000
    add_texts(browser, members, texts, max(PAGE_BYTES - fixed, 0))
    return page.render(
        "report.html",
        styles=("page.css",),
        scripts=_SCRIPTS,
        library=vega_script(),
        title=_title(groups),
        parts=parts,
        banners=list(
            dict.fromkeys(sentence for part in parts for sentence in part.cautions if sentence.loud)
        ),  # what nobody may overlook
        verdict=headline(gates) if gates else "",
        gates=shared.get("gates"),
        sampled=_sampled(browser),
        include_unsafe=include_unsafe,
        method=shared["method"],
        glossary=glossary_lines(),
        modes=MODES,
        data_figures=data_figures,
        data_sets=page.put(json_for_html(browser)),
    )


def _specifications(parts: Sequence[_Part], by_group: Sequence[Sequence[Figure]]) -> bytes:
    """Return the figures' specifications, by the id of their place on the page."""
    from opensafeintent.report.figures import THEMES

    specs = {
        f"{part.prefix}figure-{one.name}": one.spec
        for part, own in zip(parts, by_group, strict=True)
        for one in own
    }
    return json_for_html({"theme": THEMES["light"], "figures": specs})


def _figures(groups: Sequence[Group], index: int, figures: Sequence[Figure]) -> Sequence[Figure]:
    """Return the figures of one group: those of several have all groups in one drawing."""
    from opensafeintent.report.figures import all_figures

    return figures if len(groups) == 1 else all_figures([groups[index]])


def _drawn(figures: Sequence[Figure], folder: Path | None) -> dict[str, str]:
    from opensafeintent.report.figures.writing import drawing

    return {
        figure.name: drawing(figure.name, folder)
        for figure in figures
        if folder and (folder / f"{figure.name}.svg").is_file()
    }


def _part(
    page: Page,
    groups: Sequence[Group],
    index: int,
    studies: Sequence[Study],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    drawings: Mapping[str, str],
    max_missing: float,
) -> _Part:
    """Return what the page says of one group."""
    group, alone = groups[index], len(groups) == 1
    sensitivity = group.changes
    drawn = {figure.name for figure in figures}  # the numbers of a figure are below it
    own = [
        table if alone else _of_group(table, index) for table in tables if _GROUP in table.fields
    ]
    shown = [
        table
        for table in (*own, with_and_without(sensitivity))
        if table.rows and table.name not in drawn
    ]
    said = sorted({*group_notes(groups), *group_notes([group]), UNDEFINED})
    prefix = "" if alone else f"part-{index + 1}-"
    return _Part(
        prefix=prefix,
        heading=_heading(group),
        apart=_apart_because(groups[0], group) if index else "",
        facts=_facts(group, studies),
        findings=findings(group),
        cautions=cautions(group, sensitivity, corrected=_corrected(own), max_missing=max_missing),
        content=page.sections(shown, figures, prefix=prefix, said=said, drawings=drawings),
    )


def _of_group(table: Table, index: int) -> Table:
    """Return a table's rows of one group, without the column that tells groups apart."""
    at = [column.name for column in table.columns].index(_GROUP)
    rows = [
        row for row, cells in zip(table.rows, table.cells, strict=True) if cells[at] == (index + 1,)
    ]
    return msgspec.structs.replace(table.hiding(_GROUP), rows=rows)


def _corrected(tables: Sequence[Table]) -> bool:
    """Tell whether human labels have corrected any of the numbers."""
    records = (table.records() for table in tables if table.name == "corrected")
    return any(record["corrected"] is not None for of_table in records for record in of_table)


def _sampled(browser: Browser) -> str:
    sets = (
        f"{browser.units:,} prompt-sets"
        if len(browser.models) == 1
        else f"{browser.units:,} pairs of model and prompt-set"
    )
    if browser.complete:
        return f"All {sets}, with their prompts and responses."
    listed = sum(len(dataset.sets) for dataset in browser.datasets)
    of = sum(dataset.of for dataset in browser.datasets)
    some = "" if listed == of else f" ({listed:,} of the {of:,} prompt-sets)"
    return (
        f"The grades of all {sets}{some} are here; to keep the page small, the texts of"
        f" {browser.with_texts:,} of them: the most telling failures of each model first, then a"
        " sample spread evenly over harm domains and task types, the same for every model. All"
        " grades are in grades.csv.gz beside this file, and all texts in the runs’ ledgers."
    )


# The head of a part
# ------------------------------------------------------------------------------


def _title(groups: Sequence[Group]) -> str:
    """Return the page's title."""
    models = [model for group in groups for model in group.models]
    what = one_line(models[0], 60) if len(models) == 1 else f"{len(models)} models"
    return f"Intent calibration of {what}"


def _heading(group: Group) -> str:
    """Return what one group is called: its dataset, and who graded it."""
    judges = group.conditions.judges
    graded = (
        "grades as imported"
        if judges == (IMPORTED_JUDGE,)
        else f"graded by {_named(judges)}"
        if judges
        else "not graded"
    )
    return f"{one_line(group.dataset.name, 60)}, {graded}"


def _apart_because(group: Group, other: Group) -> str:
    """Say in what another group differs from the first one: why the two are not mixed."""
    first, own = group.conditions, other.conditions
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
    if own.templates and first.templates and own.templates != first.templates:
        theirs = dict(first.templates)
        roles = sorted(role for role, digest in own.templates if theirs.get(role) != digest)
        reasons.append(f"other judge templates ({', '.join(roles)})")
    elif bool(own.templates) != bool(first.templates):
        reasons.append("judge templates that are not on record")
    return "; ".join(reasons)


def _named(judges: Sequence[str]) -> str:
    return one_line(" + ".join(filter(None, judges)), 80) or "none"


def _facts(group: Group, studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Return what was measured on what, as (term, text)."""
    dataset, conditions = group.dataset, group.conditions
    domains = {item.harm_domain for item in dataset.prompt_sets}
    types = {item.task_type for item in dataset.prompt_sets}
    responses = sum(coverage.responses for coverage in group.coverage.values())
    counted = sum(coverage.counted for coverage in group.coverage.values())
    facts = [
        ("Dataset", f"{one_line(dataset.name, 60)} · sha256 {dataset.hash[:16]}"),
        ("Extent", f"{group.extent}; {len(domains)} harm domains, {len(types)} task types"),
        ("Models", f"{len(group.models)}"),
        ("Responses", f"{responses:,}, of which {counted:,} have both grades"),
        ("Judge" if len(conditions.judges) == 1 else "Judges", _named(conditions.judges)),
    ]
    if conditions.mode_judge and conditions.mode_judge not in conditions.judges:
        facts.append(("Judge of modes", one_line(conditions.mode_judge, 80)))
    if checked := checked_judges(group):
        facts.append(("Judge check", _checks(checked)))
    if conditions.templates:
        facts.append(("Judge templates", _templates(conditions.templates, studies)))
    if conditions.parse != "strict":
        facts.append(("Grades read as", conditions.parse))
    if group.array.sizes["epoch"] > 1:
        facts.append(("Repeats", f"{group.array.sizes['epoch']} of each prompt"))
    facts += _sampling(group, studies)
    return facts


def _checks(checked: Sequence[CheckedJudge]) -> str:
    """Say how each judge did on the anchor cases; a judge is named where there are several."""
    texts = []
    for item in checked:
        text = {"unchecked": "not checked", "stale": "not with these templates and settings"}.get(
            item.state, item.state
        )
        if item.check is not None and item.state != "stale":
            low, high = item.interval
            text += (
                f", {item.check.accepted} of {item.check.cases} anchor cases ({100 * low:.0f} to"
                f" {100 * high:.0f} %)"
            )
        texts.append(f"{one_line(item.judge, 80)}: {text}" if len(checked) > 1 else text)
    return "; ".join(texts)


def _templates(templates: Sequence[tuple[str, str]], studies: Sequence[Study]) -> str:
    stored = {
        digest: item for study in studies for digest, item in study.manifest.templates.items()
    }
    texts = []
    for role, digest in templates:
        item = stored.get(digest)
        texts.append(
            f"{item.id} v{item.version} ({digest[:8]})" if item else f"{role} ({digest[:8]})"
        )
    return one_line(", ".join(texts), 400)


def _sampling(group: Group, studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Return how the targets were sampled, where all of the group's runs agree on it."""
    runs = {origin.run for origin in group.origins.values()}
    found = {
        (
            sampling.temperature,
            sampling.max_tokens,
            study.manifest.system is not None,
            study.manifest.preset,
        )
        for study in studies
        if study.name in runs and (sampling := study.manifest.target_sampling) is not None
    }
    if len(found) != 1:
        return [("Sampling", "differs between runs")] if found else []
    temperature, tokens, system, preset = found.pop()
    text = "provider’s temperature" if temperature is None else f"temperature {temperature:g}"
    text += f", at most {tokens:,} tokens" if tokens else ""
    text += ", with a system prompt" if system else ""
    return [("Sampling", f"{text}, preset {preset}" if preset else text)]
