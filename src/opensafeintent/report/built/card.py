"""`README.md`: the dataset card, as the Hugging Face hub and a careful reader want it."""

from __future__ import annotations

from opensafeintent.calls.baselines import is_baseline
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
from opensafeintent.report.built.record import BuildResults, name_of_seeds
from opensafeintent.report.built.tables import build_tables
from opensafeintent.report.formats import to_markdown
from opensafeintent.report.kit import asset
from opensafeintent.report.prose import counted
from opensafeintent.taxonomy import default_taxonomy

__all__ = ["canary_of", "card", "marked_source"]

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
    people = results.stage("people")
    told = Plain("**People have not checked it** (stage 7).")
    if results.reviewed and people:
        told = Plain(
            f"People: {counted(results.reviewed.annotators, 'annotator')} judged "
            f"{counted(results.reviewed.sets, 'prompt-set')} of {people.count_in:,}; "
            f"{counted(people.dropped, 'set')} that all of them called poor "
            f"{'was' if people.dropped == 1 else 'were'} dropped (stage 7)."
        )
    return {
        "findings": results.check.findings if results.check else (),
        "left_out": results.check.left_out if results.check else (),
        "people": told,
    }
