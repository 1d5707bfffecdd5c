"""What is said of a build: `build.html`, which shows no prompt of malicious intent, and the dataset card, `README.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

import msgspec

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.construction.records import REASONS, Draft
from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.writing import (
    Plain,
    canary_in,
    canary_of,
    markdown_text,
    render_card,
    size_category,
    yaml_text,
)
from opensafeintent.report.built.record import BuildResults, name_of_seeds, stage_name
from opensafeintent.report.built.tables import build_tables
from opensafeintent.report.figures.writing import Figure, drawing
from opensafeintent.report.formats import to_markdown
from opensafeintent.report.kit import Page, asset
from opensafeintent.report.prose import Sentence, counted, precision_in_points, say
from opensafeintent.report.table import Table
from opensafeintent.taxonomy import DUAL_USE, INTENT_WORDS, default_taxonomy

__all__ = ["MOST_SETS", "build_cautions", "build_findings", "canary_of", "card", "marked_source", "render_build_page"]

# What is said ----------------------------------------------------------------------------------------------------------

_say = partial(say, "build_sentences.jinja")

_TOPICS = (
    ("Are malicious prompts longer, in words", "Length"),
    ("Are malicious prompts longer, in characters", "Characters"),
    ("Are malicious prompts harder", "Readability"),
    ("From its words", "Telling words"),
    ("Near-duplicates", "Near-duplicates"),
    ("Core prompts of one set", "Within sets"),
    ("Dual-use wordings of one set", "Paraphrases"),
    ("Identical within one set", "Identical"),
    ("A full answer to the benign", "Content"),
)
"""What the findings of a check are about, by how they begin; what begins otherwise is about coverage."""


def build_findings(results: BuildResults) -> list[Sentence]:
    """Return what was found, most important first."""
    found = [_funnel(results), *_intents(results)]
    if results.reviewed and results.stage("people"):
        found.append(_say("reviewed", topic="People", results=results))
    for text in results.check.findings if results.check else ():
        topic = next((topic for start, topic in _TOPICS if text.startswith(start)), "Coverage")
        found.append(Sentence((terminal_safe(text),), topic=topic))
    if calls := sum(cost.calls for cost in results.costs):
        tokens = sum(cost.input_tokens + cost.output_tokens for cost in results.costs)
        found.append(_say("costs", topic="Cost", calls=calls, tokens=tokens, sets=results.dataset))
    return found


def _funnel(results: BuildResults) -> Sentence:
    """Say what came of the seeds, and why most was dropped, over all stages."""
    reasons = Counter((rejection.reason, result.stage) for result in results.built.stages for rejection in result.rejected)
    most = None
    if reasons:
        (reason, stage), count = min(reasons.items(), key=lambda item: (-item[1], item[0]))
        most = {"count": count, "of": reasons.total(), "stage": stage_name(stage), "meaning": REASONS[reason]}
    reached = stage_name(results.stages[-1].stage) if results.stages else ""
    return _say("funnel", topic="Funnel", results=results, reached=reached, most=most)


def _intents(results: BuildResults) -> Iterator[Sentence]:
    prompts, right, repaired, wrong, repairs = (
        sum(getattr(line, name) for line in results.repaired)
        for name in ("prompts", "right_at_first", "repaired", "still_wrong", "repairs")
    )
    if prompts:
        worst = min(results.repaired, key=lambda line: line.right_at_first / max(line.prompts, 1))
        dual_use = next(line for line in results.repaired if line.intent == DUAL_USE)
        facts = {"prompts": prompts, "right": right, "repaired": repaired, "wrong": wrong, "repairs": repairs}
        intent = INTENT_WORDS[worst.intent]
        yield _say("intents", topic="Intent check", worst=worst, intent=intent, dual_use=dual_use, **facts)


def build_cautions(results: BuildResults) -> Iterator[Sentence]:
    """Yield what to distrust; the loud ones come first, and stand at the top of the page."""
    manifest, dataset = results.manifest, results.dataset
    if scripted := [model for model in results.models if is_baseline(model)]:
        yield _say("scripted", "warning", loud=True, models=scripted)
    if dataset is None:
        yield _say("unfinished", "warning", loud=True, last=manifest.stages[1])
    for remark in results.remarks:
        yield _say("remark", "warning", text=terminal_safe(" ".join(remark.split())))
    if dataset is None:
        return
    if results.reviewed is None:
        yield _say("not_reviewed", "warning")
    elif results.stage("people") and results.reviewed.sets < len(results.built.drafts[-2].kept):
        yield _say("reviewed_in_part", "caution")
    yield _say("judge", "caution", model=manifest.judge)
    if len(dataset) < 100:
        yield _say("few", "caution", sets=len(dataset), points=precision_in_points(len(dataset)))
    if results.likeness is None:
        yield _say("likeness_left_out", "caution")
    for reason in results.check.left_out if results.check else ():
        yield _say("not_checked", "caution", reason=reason)
    if manifest.seeds:
        yield _say("seeds", "caution", name=name_of_seeds(manifest.seeds))


# The page --------------------------------------------------------------------------------------------------------------

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
    cautions = list(build_cautions(results))
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


# The card -------------------------------------------------------------------------------------------------------------

_LONGEST_NAME = 160
_PKU = "PKU-SafeRLHF"


def marked_source(source: str, dataset_hash: str) -> str:
    """Return the `source` of every record: where it comes from, what it is not for, and the canary.

    Args:
        source: where the records come from.
        dataset_hash: of the same records with that source alone.
    """
    return f"{source}; benchmark data, not for training corpora; canary {canary_of(dataset_hash)}"


def card(results: BuildResults, dataset: Dataset) -> str:
    """Return the dataset card as Markdown, with the hub's front matter; text from outside is no markup in it."""
    values = {**_front_matter(dataset), **_head(results, dataset), **_made(results), **_checked(results)}
    return render_card(asset("card.md"), values)


def _front_matter(dataset: Dataset) -> dict[str, object]:
    """Return what the YAML needs."""
    languages = sorted({item.language for item in dataset.prompt_sets if item.language}) or ["en"]
    return {
        "pretty_name": yaml_text(f"Prompt-sets on intent {dataset.hash[:8]}"),
        "languages": [yaml_text(language, 20) for language in languages],
        "size": size_category(len(dataset)),
    }


def _head(results: BuildResults, dataset: Dataset) -> dict[str, object]:
    filled = sum(cell.sets > 0 for cell in results.cells)
    scripted = [markdown_text(model, _LONGEST_NAME) for model in results.models if is_baseline(model)]
    ship = "is a script that ships" if len(scripted) == 1 else "are scripts that ship"
    return {
        "sets": Plain(counted(len(dataset), "prompt-set")),
        "prompts": Plain(counted(sum(len(item.wordings()) for item in dataset.prompt_sets), "prompt")),
        "cells": Plain(f"They are in {filled:,} of {counted(len(results.cells), 'cell')}"),
        "hash": Plain(dataset.hash),
        "scripted": Plain(f"{' and '.join(scripted)} {ship}") if scripted else "",
        "same_model": len(results.models) == 1,
        "canary": Plain(canary_in(dataset) or ""),
        "canary_field": Plain("source"),
    }


def _made(results: BuildResults) -> dict[str, object]:
    manifest = results.manifest
    tables = {table.name: table for table in build_tables(results)}
    seeds = (draft.topic.seed for draft in results.built.finished)
    return {
        "taxonomy_option": Plain("" if manifest.taxonomy == default_taxonomy() else " --taxonomy FILE"),
        "generator": markdown_text(manifest.generator, _LONGEST_NAME),
        "judge": markdown_text(manifest.judge, _LONGEST_NAME),
        "seeds": name_of_seeds(manifest.seeds) if manifest.seeds else "",
        "taxonomy": markdown_text(manifest.taxonomy.name, _LONGEST_NAME),
        "target": f"{manifest.per_cell:,} prompt-sets of each cell" if manifest.per_cell else "what the seeds give",
        "version": Plain(manifest.version),
        "stages": Plain("{} to {}".format(*manifest.stages)),
        "tables": [Plain(to_markdown(tables[name])) for name in ("funnel", "dropped") if name in tables],
        "pku": any(_PKU in seed.source for seed in seeds if seed),
    }


def _checked(results: BuildResults) -> dict[str, object]:
    told = Plain("**People have not checked it** (stage 7).")
    if results.reviewed and results.stage("people"):
        told = Plain(_say("reviewed_in_card", results=results).text)
    return {
        "findings": results.check.findings if results.check else (),
        "left_out": results.check.left_out if results.check else (),
        "people": told,
    }
