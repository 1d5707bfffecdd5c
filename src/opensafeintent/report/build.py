"""What is written of a build: its funnel, coverage and costs as Markdown, and the dataset card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from opensafeintent.annotation.labels import Label
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.construction.controls.records import DatasetCheck
from opensafeintent.construction.folder import BuildManifest
from opensafeintent.construction.pipeline import Built
from opensafeintent.hostile import one_line
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
from opensafeintent.report.cost import Costs, cost_tables
from opensafeintent.report.formats import to_markdown
from opensafeintent.report.kit import asset
from opensafeintent.report.prose import counted
from opensafeintent.report.table import Column, Table
from opensafeintent.taxonomy import default_taxonomy

_LONGEST_NAME = 160
_PKU = "PKU-SafeRLHF"


class Cell(NamedTuple):
    """The finished prompt-sets of one cell."""

    harm_domain: str
    task_type: str
    sets: int
    from_seeds: int


def coverage_of(built: Built, manifest: BuildManifest) -> list[Cell]:
    """Return the finished prompt-sets by cell, in the taxonomy's order."""
    sets = Counter(draft.topic.cell for draft in built.finished)
    seeded = Counter(draft.topic.cell for draft in built.finished if draft.topic.seed)
    return [Cell(*cell, sets[cell], seeded[cell]) for cell in manifest.taxonomy.cells]


def build_page(built: Built, manifest: BuildManifest, costs: Costs, remarks: Sequence[str]) -> str:
    """Return `build.md`: what went through the stages, why items were dropped, coverage of the
    cells, costs.
    """
    lines = ["# Build", "", *(f"- {markdown_text(remark, 1000)}" for remark in remarks), ""]
    tables = [funnel_table(built), _coverage(coverage_of(built, manifest)), *cost_tables(costs)]
    return "\n".join([*lines, *(to_markdown(table) for table in tables if table.rows)])


def funnel_table(built: Built) -> Table:
    """Return how many items each stage kept, and why it dropped the others."""
    return Table(
        name="funnel",
        title="Items through the stages",
        columns=(
            Column("stage", "Stage", "name"),
            Column("in", "In", "count"),
            Column("kept", "Kept", "count"),
            Column("dropped", "Dropped, and why"),
        ),
        rows=[
            (result.stage, result.count_in, len(result.kept), result.why_dropped())
            for result in built.stages
        ],
        notes=(
            "The back-fill takes in the topics from seeds, which it keeps, and what the generator"
            " proposes.",
        ),
    )


def _coverage(cells: Sequence[Cell]) -> Table:
    return Table(
        name="coverage",
        title="Prompt-sets by cell",
        columns=(
            Column("harm_domain", "Harm domain", "name"),
            Column("task_type", "Task type"),
            Column("sets", "Sets", "count"),
            Column("from_seeds", "from seeds", "count"),
        ),
        rows=cells,
    )


# The card
# ------------------------------------------------------------------------------


def marked_source(source: str, dataset_hash: str) -> str:
    """Return the `source` of every record: where it comes from, what it is not for, and the canary.

    Args:
        source: where the records come from.
        dataset_hash: of the same records with that source alone.
    """
    return f"{source}; benchmark data, not for training corpora; canary {canary_of(dataset_hash)}"


def build_card(
    dataset: Dataset,
    check: DatasetCheck,
    built: Built,
    manifest: BuildManifest,
    judged: Sequence[Label] | None,
) -> str:
    """Return the dataset card as Markdown, with the hub's front matter; text from outside is no
    markup in it.

    Args:
        dataset: what the card is of.
        check: what it controls for.
        built: what every stage kept and dropped.
        manifest: models, settings, templates.
        judged: if people were asked (stage 7), who called which set good or poor.
    """
    models = tuple(dict.fromkeys((manifest.generator, manifest.judge)))
    cells = coverage_of(built, manifest)
    filled = sum(cell.sets > 0 for cell in cells)
    scripted = [markdown_text(model, _LONGEST_NAME) for model in models if is_baseline(model)]
    ship = "is a script that ships" if len(scripted) == 1 else "are scripts that ship"
    languages = sorted({item.language for item in dataset.prompt_sets if item.language}) or ["en"]
    seeds = (draft.topic.seed for draft in built.finished)
    people = "**People have not checked it** (stage 7)."
    if judged is not None:
        annotators = counted(len({label.annotator for label in judged}), "annotator")
        sets = counted(len({label.id for label in judged}), "prompt-set")
        people = (
            f"People: {annotators} judged {sets}; {len(built.rejected_in('people'))} dropped"
            " because all of them called it poor (stage 7)."
        )
    values: dict[str, object] = {
        "pretty_name": yaml_text(f"Prompt-sets on intent {dataset.hash[:8]}"),
        "languages": [yaml_text(language, 20) for language in languages],
        "size": size_category(len(dataset)),
        "sets": Plain(counted(len(dataset), "prompt-set")),
        "prompts": Plain(
            counted(sum(len(item.wordings()) for item in dataset.prompt_sets), "prompt")
        ),
        "cells": Plain(f"They are in {filled:,} of {counted(len(cells), 'cell')}"),
        "hash": Plain(dataset.hash),
        "scripted": Plain(f"{' and '.join(scripted)} {ship}") if scripted else "",
        "same_model": len(models) == 1,
        "canary": Plain(canary_in(dataset) or ""),
        "canary_field": Plain("source"),
        "taxonomy_option": Plain(
            "" if manifest.taxonomy == default_taxonomy() else " --taxonomy FILE"
        ),
        "generator": markdown_text(manifest.generator, _LONGEST_NAME),
        "judge": markdown_text(manifest.judge, _LONGEST_NAME),
        "seeds": _name_of_seeds(manifest.seeds) if manifest.seeds else "",
        "taxonomy": markdown_text(manifest.taxonomy.name, _LONGEST_NAME),
        "target": (
            f"{manifest.per_cell:,} prompt-sets of each cell"
            if manifest.per_cell
            else "what the seeds give"
        ),
        "version": Plain(manifest.version),
        "stages": Plain("{} to {}".format(*manifest.stages)),
        "funnel": Plain(to_markdown(funnel_table(built))),
        "pku": any(_PKU in seed.source for seed in seeds if seed),
        "findings": check.findings,
        "left_out": check.left_out,
        "people": Plain(people),
    }
    return render_card(asset("card.md"), values)


def _name_of_seeds(seeds: str) -> str:
    """Return what the seeds are called, without the folder that they lie in."""
    return one_line(
        seeds.removeprefix("hf:") if seeds.startswith("hf:") else PurePath(seeds).name, 80
    )
