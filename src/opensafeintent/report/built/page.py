"""`build.html`: how a dataset was built, in one file that loads nothing and shows no prompt of malicious intent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec

from opensafeintent.construction.records import Draft
from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.report.built.record import BuildResults, name_of_seeds
from opensafeintent.report.built.sentences import build_cautions, build_findings
from opensafeintent.report.figures.writing import Figure, drawing
from opensafeintent.report.kit import Page
from opensafeintent.report.prose import counted
from opensafeintent.report.table import Table

__all__ = ["MOST_SETS", "render_build_page"]

MOST_SETS = 1_000
"""Prompt-sets on the page; of more, some of each cell."""

_SCRIPTS = ("text.js", "tables.js", "build.js", "page.js")


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt-set on the page. Its malicious prompt is not part of it."""

    id: str
    task: str
    task_type: str
    benign: str
    dual_use: str
    paraphrases: tuple[str, ...]
    benign_use: str
    misuse_risk: str
    topic: str
    origin: str
    repairs: int
    calls: int


def render_build_page(results: BuildResults, tables: Sequence[Table], figures: Sequence[Figure], drawings: Path) -> bytes:
    """Return the page as one HTML file; the same build gives the same bytes.

    Args:
        results: everything that is known of the build.
        tables: those of the build and those of the check.
        figures: of `build_figures`.
        drawings: the folder that they were written into.
    """
    page = Page()
    cautions = build_cautions(results)
    return page.render(
        "build.html",
        styles=("page.css", "build.css"),
        scripts=_SCRIPTS,
        title=_title(results),
        lede=_lede(results),
        banners=[sentence for sentence in cautions if sentence.loud],
        cautions=[sentence for sentence in cautions if not sentence.loud],
        findings=build_findings(results),
        facts=_facts(results),
        content=page.sections(
            [table for table in tables if table.rows],
            figures,
            drawings={figure.name: drawing(figure.name, drawings) for figure in figures},
        ),
        domains=_domains(results),
        listed=_listed(results),
        finished=results.dataset is not None,
    )


def _title(results: BuildResults) -> str:
    if results.dataset is None:
        return "A build on its way"
    return f"How {counted(len(results.dataset), 'prompt-set')} {'was' if len(results.dataset) == 1 else 'were'} built"


def _lede(results: BuildResults) -> str:
    manifest = results.manifest
    seeds = f"From the unsafe prompts in {name_of_seeds(manifest.seeds)}" if manifest.seeds else "From no seeds"
    cells = f", with cells filled up to {manifest.per_cell:,}" if manifest.per_cell else ""
    checks = "another checks what it wrote" if len(results.models) > 1 else "and checks what it wrote"
    return (
        f"{seeds}{cells}: one model writes each task three ways, benign, dual-use and malicious; {checks}. "
        "What was kept, what was dropped and why, and whether the result controls for what it should."
    )


def _facts(results: BuildResults) -> list[tuple[str, str]]:
    manifest, dataset = results.manifest, results.dataset
    cells = results.cells
    filled = sum(cell.sets > 0 for cell in cells)
    facts = []
    if dataset:
        prompts = sum(len(item.wordings()) for item in dataset.prompt_sets)
        facts.append(("Dataset", f"sha256 {dataset.hash[:16]}"))
        facts.append(
            ("Prompt-sets", f"{len(dataset):,}, with {prompts:,} prompts, in {filled} of {counted(len(cells), 'cell')}")
        )
    domains, types = manifest.taxonomy.harm_domains, manifest.taxonomy.task_types
    taxonomy = (
        f"{one_line(manifest.taxonomy.name, 60)}: {counted(len(domains), 'harm domain')}, {counted(len(types), 'task type')}"
    )
    limit = f", {manifest.limit:,} at most" if manifest.limit and manifest.seeds else ""
    structured = "asked for where a provider has it" if manifest.structured_output else "not asked for"
    return [
        *facts,
        ("Generator", one_line(manifest.generator, 160)),
        ("Judge", one_line(manifest.judge, 160)),
        ("Seeds", f"{name_of_seeds(manifest.seeds)}{limit}"),
        ("Target", f"{manifest.per_cell:,} of each cell" if manifest.per_cell else "what the seeds give"),
        ("Stages", "{} to {}".format(*manifest.stages)),
        ("Taxonomy", taxonomy),
        ("Generator’s sampling", _sampling(manifest.generator_sampling.temperature, manifest.generator_sampling.max_tokens)),
        ("Judge’s sampling", _sampling(manifest.judge_sampling.temperature, manifest.judge_sampling.max_tokens)),
        ("Structured output", structured),
        ("Checked by people", _people(results)),
    ]


def _sampling(temperature: float | None, tokens: int | None) -> str:
    text = "provider’s temperature" if temperature is None else f"temperature {temperature:g}"
    return f"{text}, at most {tokens:,} tokens" if tokens else text


def _people(results: BuildResults) -> str:
    if results.reviewed is None:
        return "no"
    return f"{counted(results.reviewed.sets, 'prompt-set')}, by {counted(results.reviewed.annotators, 'annotator')}"


def _domains(results: BuildResults) -> list[tuple[str, list[_Shown]]]:
    """Return prompt-sets by harm domain: all of them, or the first ones of each cell in turn."""
    if results.dataset is None:
        return []
    by_cell: dict[tuple[str, str], list[Draft]] = {}
    for draft in results.built.finished:
        by_cell.setdefault(draft.topic.cell, []).append(draft)
    in_turn = (draft for row in zip_longest(*by_cell.values()) for draft in row if draft is not None)
    kept = {draft.id for draft, _ in zip(in_turn, range(MOST_SETS), strict=False)}
    found: list[tuple[str, list[_Shown]]] = []
    for domain in results.manifest.taxonomy.domain_names:
        shown = [
            _shown(draft)
            for kind in results.manifest.taxonomy.type_names
            for draft in by_cell.get((domain, kind), ())
            if draft.id in kept
        ]
        if shown:
            found.append((terminal_safe(domain), shown))
    return found


def _shown(draft: Draft) -> _Shown:
    seed = draft.topic.seed
    return _Shown(
        id=draft.id,
        task=terminal_safe(draft.underlying_task),
        task_type=terminal_safe(draft.topic.task_type),
        benign=terminal_safe(draft.prompts.benign),
        dual_use=terminal_safe(draft.prompts.dual_use),
        paraphrases=tuple(map(terminal_safe, draft.paraphrases)),
        benign_use=terminal_safe(draft.benign_use),
        misuse_risk=terminal_safe(draft.misuse_risk),
        topic=terminal_safe(draft.topic.summary),
        origin=f"a seed ({one_line(f'{seed.source}, {seed.place}', 100)})" if seed else "the generator, to fill its cell",
        repairs=len(draft.revisions),
        calls=len(draft.calls),
    )


def _listed(results: BuildResults) -> str:
    number = len(results.dataset) if results.dataset else 0
    if number <= MOST_SETS:
        return f"All {number:,} of them." if number > 1 else "It."
    return f"{MOST_SETS:,} of {number:,}, the first ones of each cell in turn; all of them are in dataset.jsonl."
