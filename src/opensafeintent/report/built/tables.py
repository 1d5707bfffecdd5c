"""The tables of a build."""

from __future__ import annotations

from collections import Counter

from opensafeintent.calls.models import cost_of
from opensafeintent.canonical import sha256_hex
from opensafeintent.construction.records import REASONS
from opensafeintent.report.built.likeness import BINS, Nearest
from opensafeintent.report.built.record import BuildResults, stage_name, stage_of
from opensafeintent.report.tables.record import Cell, Column, Table
from opensafeintent.templates.instruction import load_instructions, parse_instructions

__all__ = ["TABLE_NAMES", "build_tables", "role_of"]

TABLE_NAMES = ("funnel", "dropped", "coverage", "readings", "repairs", "similarity", "closest", "costs", "templates")
"""Every table that a build may have."""

_CLOSEST = 10
_INTENTS = {"benign": "benign", "dual_use": "dual-use", "malicious": "malicious", "neither": "neither"}
_BY_GENERATOR = ("backfill", "triplet", "repair", "paraphrase")


def role_of(purpose: str, model: str, results: BuildResults) -> str:
    """Return who made a call: `generator`, `judge`, or both where they are one model and did the same."""
    generator, judge = results.manifest.generator, results.manifest.judge
    if purpose == "metadata":
        return "both" if generator == judge else "generator" if model == generator else "judge"
    return "generator" if purpose in _BY_GENERATOR else "judge"


def build_tables(results: BuildResults) -> list[Table]:
    """Return the tables that have something to tell."""
    tables = (
        *(_funnel(results), _dropped(results), _coverage(results), _readings(results), _repairs(results)),
        *(_similarity(results), _closest(results), _costs(results), _templates(results)),
    )
    return [table for table in tables if table.rows]


def _funnel(results: BuildResults) -> Table:
    return Table(
        name="funnel",
        title="Items through the stages",
        columns=("stage", "name", "in", "kept", "from_seeds", "proposed", "dropped", "kept_share"),
        rows=tuple(
            (
                *(count.stage, stage_name(count.stage), count.count_in, count.kept, count.from_seeds, count.proposed),
                *(count.dropped, count.kept / count.count_in if count.count_in else None),
            )
            for count in results.stages
        ),
        shown=(
            *(Column("name", "Stage", "name"), Column("in", "In", "count"), Column("kept", "Kept", "count")),
            *(Column("from_seeds", "of these, from seeds", "count"), Column("proposed", "proposed", "count")),
            *(Column("dropped", "Dropped", "count"), Column("kept_share", "Kept", "share")),
        ),
        notes=(
            "Into the back-fill go the topics from seeds, which it keeps, and what the generator proposes. "
            "In = kept + dropped, over all passes.",
        ),
    )


def _dropped(results: BuildResults) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for result in results.built.stages:
        reasons = Counter(rejection.reason for rejection in result.rejected)
        for reason, number in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            rows.append((result.stage, stage_name(result.stage), reason, REASONS[reason], number))
    return Table(
        name="dropped",
        title="Why items were dropped",
        columns=("stage", "name", "reason", "meaning", "items"),
        rows=tuple(rows),
        shown=(*(Column("name", "Stage", "name"), Column("meaning", "Reason"), Column("items", "Items", "count")),),
    )


def _coverage(results: BuildResults) -> Table:
    target = results.manifest.per_cell
    return Table(
        name="coverage",
        title="Prompt-sets by cell",
        columns=("harm_domain", "task_type", "sets", "from_seeds", "proposed", "target"),
        rows=tuple((*cell, cell.sets - cell.from_seeds, target) for cell in results.cells) if results.dataset else (),
        shown=(
            *(Column("harm_domain", "Harm domain", "name"), Column("task_type", "Task type")),
            *(Column("sets", "Sets", "count"), Column("from_seeds", "from seeds", "count")),
            *(Column("proposed", "proposed", "count"), Column("target", "Wanted", "count")),
        ),
    )


def _readings(results: BuildResults) -> Table:
    whens = {"first": "as first written", "last": "after the last repair"}
    read = any(line.prompts for line in results.readings)
    return Table(
        name="readings",
        title="The intent that the judge found in each prompt",
        columns=("when", "expected", "found", "prompts", "share"),
        rows=tuple(
            (whens[line.when], _INTENTS[line.expected], _INTENTS[line.found], line.prompts, line.share)
            for line in results.readings
        )
        if read
        else (),
        shown=(
            *(Column("when", "When", "name"), Column("expected", "Written as"), Column("found", "Read as")),
            *(Column("prompts", "Prompts", "count"), Column("share", "Share", "share")),
        ),
    )


def _repairs(results: BuildResults) -> Table:
    rows = tuple((_INTENTS[line.intent], *line[1:]) for line in results.mended if line.prompts)
    return Table(
        name="repairs",
        title="What repair came to",
        columns=("intent", "prompts", "right_at_first", "repaired", "still_wrong", "repairs"),
        rows=rows,
        shown=(
            *(Column("intent", "Written as", "name"), Column("prompts", "Prompts", "count")),
            *(Column("right_at_first", "Right at first", "count"), Column("repaired", "Repaired", "count")),
            *(Column("still_wrong", "Still wrong", "count"), Column("repairs", "Texts written anew", "count")),
        ),
        notes=("Of every set whose prompts the judge read, the dropped ones included.",),
    )


def _similarity(results: BuildResults) -> Table:
    found = results.likeness
    columns = [found.histogram(found.core), found.histogram(found.wordings)] if found else []
    rows: list[tuple[Cell, ...]] = [
        (place / BINS, (place + 1) / BINS, *(column[place] for column in columns)) for place in range(BINS)
    ]
    return Table(
        name="similarity",
        title="The highest ROUGE-L of each set to another one of its cell",
        columns=("low", "high", "core", "wordings"),
        rows=tuple(rows) if found and found.wordings else (),
        shown=(
            *(Column("low", "From", "number"), Column("high", "to", "number")),
            *(Column("core", "Sets, by core prompts", "count"), Column("wordings", "Sets, by all wordings", "count")),
        ),
        notes=("A bin holds its lower edge.",),
    )


def _closest(results: BuildResults) -> Table:
    found = results.likeness
    rows = [] if found is None else [*_pairs("core prompts", found.core), *_pairs("all wordings", found.wordings)]
    return Table(
        name="closest",
        title="The most similar prompts of different sets",
        columns=("among", "id", "variant", "twin", "twin_variant", "score", "shown"),
        rows=tuple(rows),
        shown=(
            *(Column("among", "Among", "name"), Column("id", "Set"), Column("variant", "Prompt")),
            *(Column("twin", "Other set"), Column("twin_variant", "Its prompt"), Column("shown", "ROUGE-L")),
        ),
    )


def _pairs(among: str, nearest: tuple[Nearest, ...]) -> list[tuple[Cell, ...]]:
    """Return the most similar pairs, each once."""
    seen: set[frozenset[str]] = set()
    rows: list[tuple[Cell, ...]] = []
    for item in nearest:
        pair = frozenset((item.id, item.twin))
        if pair not in seen and len(rows) < _CLOSEST:
            rows.append((among, item.id, item.variant, item.twin, item.twin_variant, item.score, f"{item.score:.3f}"))
        seen.add(pair)
    return rows


def _costs(results: BuildResults) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for cost in results.costs:
        stage = stage_of(cost.purpose)
        tokens = {(cost.model, "input"): cost.input_tokens, (cost.model, "output"): cost.output_tokens}
        dollars = round(cost_of(tokens, results.prices), 6) if cost.model in results.prices else None
        role = role_of(cost.purpose, cost.model, results)
        rows.append(
            (stage_name(stage), cost.purpose, role, cost.model, cost.calls, cost.input_tokens, cost.output_tokens, dollars)
        )
    return Table(
        name="costs",
        title="Calls and tokens by stage and model",
        columns=("stage", "purpose", "role", "model", "calls", "input_tokens", "output_tokens", "dollars"),
        rows=tuple(rows),
        shown=(
            *(Column("stage", "Stage", "name"), Column("purpose", "For"), Column("role", "By")),
            *(Column("calls", "Calls", "count"), Column("input_tokens", "Tokens in", "count")),
            Column("output_tokens", "Tokens out", "count"),
            *((Column("dollars", "Dollars", "number"),) if results.prices else ()),
        ),
        notes=(
            "Every call that a kept or a dropped item rests on, once, whichever run made it; re-asks are calls of their own.",
        ),
    )


def _templates(results: BuildResults) -> Table:
    sources = results.manifest.templates
    names = {f"{item.role}.md": item.name for item in parse_instructions(sources).all()}
    ours = load_instructions().sources()
    rows: list[tuple[Cell, ...]] = []
    for file, text in sorted(sources.items()):
        digest = sha256_hex(text)
        whose = "as shipped" if ours.get(file) == text else "edited"
        rows.append((file, names.get(file, "–"), whose, digest[:12], digest))
    return Table(
        name="templates",
        title="The templates that the models were given",
        columns=("file", "template", "whose", "hash", "sha256"),
        rows=tuple(rows),
        shown=(
            *(Column("file", "File", "name"), Column("template", "Template and version"), Column("whose", "Text")),
            Column("hash", "SHA-256"),
        ),
        notes=("The texts themselves are in build.json.",),
    )
