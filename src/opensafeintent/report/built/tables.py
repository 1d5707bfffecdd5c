"""The tables of a build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from opensafeintent.canonical import sha256_hex
from opensafeintent.construction.records import REASONS, Reason, Stage
from opensafeintent.report.built.record import BINS, READING_WORDS, BuildResults, Nearest, stage_name, stage_of
from opensafeintent.report.cost import cost_notes, dollars_text
from opensafeintent.report.table import Column, Table
from opensafeintent.taxonomy import INTENT_WORDS
from opensafeintent.templates.instruction import load_instructions, parse_instructions

__all__ = ["TABLE_NAMES", "build_tables", "role_of"]

TABLE_NAMES = ("funnel", "dropped", "coverage", "readings", "repairs", "similarity", "closest", "costs", "templates")
"""Every table that a build may have."""

_CLOSEST = 10
_BY_GENERATOR = ("backfill", "triplet", "repair", "wording", "paraphrase")


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
        columns=(
            Column("stage"),
            Column("name", "Stage", "name", lambda count: stage_name(count.stage)),
            Column("in", "In", "count", attrgetter("count_in")),
            Column("kept", "Kept", "count"),
            Column("from_seeds", "of these, from seeds", "count"),
            Column("proposed", "proposed", "count"),
            Column("dropped", "Dropped", "count"),
            Column("kept_share", "Kept", "share", lambda count: count.kept / count.count_in if count.count_in else None),
        ),
        rows=results.stages,
        notes=(
            "Into the back-fill go the topics from seeds, which it keeps, and what the generator proposes. "
            "In = kept + dropped, over all passes.",
        ),
    )


class _Dropped(NamedTuple):
    """Items that one stage dropped for one reason."""

    stage: Stage
    reason: Reason
    items: int


def _dropped(results: BuildResults) -> Table:
    rows = []
    for result in results.built.stages:
        reasons = Counter(rejection.reason for rejection in result.rejected)
        ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        rows += [_Dropped(result.stage, reason, number) for reason, number in ordered]
    return Table(
        name="dropped",
        title="Why items were dropped",
        columns=(
            Column("stage"),
            Column("name", "Stage", "name", lambda line: stage_name(line.stage)),
            Column("reason"),
            Column("meaning", "Reason", get=lambda line: REASONS[line.reason]),
            Column("items", "Items", "count"),
        ),
        rows=rows,
    )


def _coverage(results: BuildResults) -> Table:
    return Table(
        name="coverage",
        title="Prompt-sets by cell",
        columns=(
            Column("harm_domain", "Harm domain", "name"),
            Column("task_type", "Task type"),
            Column("sets", "Sets", "count"),
            Column("from_seeds", "from seeds", "count"),
            Column("proposed", "proposed", "count", lambda cell: cell.sets - cell.from_seeds),
            Column("target", "Wanted", "count", lambda _: results.manifest.per_cell),
        ),
        rows=results.cells if results.dataset else (),
    )


def _readings(results: BuildResults) -> Table:
    whens = {"first": "as first written", "last": "after the last repair"}
    return Table(
        name="readings",
        title="The intent that the judge found in each prompt",
        columns=(
            Column("when", "When", "name", lambda line: whens[line.when]),
            Column("expected", "Written as", get=lambda line: INTENT_WORDS[line.expected]),
            Column("found", "Read as", get=lambda line: READING_WORDS[line.found]),
            Column("prompts", "Prompts", "count"),
            Column("share", "Share", "share"),
        ),
        rows=results.readings if any(line.prompts for line in results.readings) else (),
    )


def _repairs(results: BuildResults) -> Table:
    return Table(
        name="repairs",
        title="What repair came to",
        section="intents",
        columns=(
            Column("intent", "Written as", "name", lambda line: INTENT_WORDS[line.intent]),
            Column("prompts", "Prompts", "count"),
            Column("right_at_first", "Right at first", "count"),
            Column("repaired", "Repaired", "count"),
            Column("still_wrong", "Still wrong", "count"),
            Column("leaned_at_first", "Leaned at first", "count"),
            Column("straightened"),
            Column("still_leaning"),
            Column("repairs", "Texts rewritten", "count"),
        ),
        rows=[line for line in results.repaired if line.prompts],
        notes=(
            "Of every set whose prompts the judge read in stage 4, the dropped ones included. Whether a wording leans counts "
            "for dual-use prompts alone, and where they read as such. Texts that were reworded in stage 5 are in "
            "provenance.jsonl.",
        ),
    )


class _Bin(NamedTuple):
    """Sets whose highest likeness is in one bin."""

    low: float
    high: float
    core: int
    wordings: int


def _similarity(results: BuildResults) -> Table:
    found = results.likeness
    rows = []
    if found and found.wordings:
        counts = zip(found.histogram(found.core), found.histogram(found.wordings), strict=True)
        rows = [_Bin(index / BINS, (index + 1) / BINS, *count) for index, count in enumerate(counts)]
    return Table(
        name="similarity",
        title="The highest ROUGE-L of each set to another one of its cell",
        columns=(
            Column("low", "From", "number"),
            Column("high", "to", "number"),
            Column("core", "Sets, by core prompts", "count"),
            Column("wordings", "Sets, by all wordings", "count"),
        ),
        rows=rows,
        notes=("A bin holds its lower edge.",),
    )


class _Twins(NamedTuple):
    """The most similar prompts of two sets."""

    among: str
    found: Nearest


def _closest(results: BuildResults) -> Table:
    found = results.likeness
    return Table(
        name="closest",
        title="The most similar prompts of different sets",
        section="similarity",
        columns=(
            Column("among", "Among", "name"),
            Column("id", "Set", get=attrgetter("found.id")),
            Column("variant", "Prompt", get=attrgetter("found.variant")),
            Column("twin", "Other set", get=attrgetter("found.twin")),
            Column("twin_variant", "Its prompt", get=attrgetter("found.twin_variant")),
            Column("score", get=attrgetter("found.score")),
            Column("shown", "ROUGE-L", get=lambda line: f"{line.found.score:.3f}"),
        ),
        rows=[] if found is None else [*_twins("core prompts", found.core), *_twins("all wordings", found.wordings)],
    )


def _twins(among: str, nearest: Iterable[Nearest]) -> list[_Twins]:
    """Return the most similar pairs, each once."""
    pairs: dict[frozenset[str], Nearest] = {}
    for item in nearest:
        pairs.setdefault(frozenset((item.id, item.twin)), item)
    return [_Twins(among, item) for item in list(pairs.values())[:_CLOSEST]]


def _costs(results: BuildResults) -> Table:
    prices = results.spent.prices
    return Table(
        name="costs",
        title="Calls and tokens by stage and model",
        columns=(
            Column("stage", "Stage", "name", lambda cost: stage_name(stage_of(cost.purpose))),
            Column("purpose", "For"),
            Column("role", "By", get=lambda cost: role_of(cost.purpose, cost.model, results)),
            Column("model"),
            Column("calls", "Calls", "count"),
            Column("input_tokens", "Tokens in", "count"),
            Column("output_tokens", "Tokens out", "count"),
            Column("dollars", None, "number", lambda cost: cost.dollars(prices)),
            Column(
                "shown",
                "Dollars" if prices.tells(results.models) else None,
                "number",
                lambda cost: dollars_text(cost.dollars(prices)),
            ),
        ),
        rows=results.costs,
        notes=(
            *([f"In all ${dollars_text(total)}."] if (total := results.spent.dollars) else []),
            *cost_notes(results.spent),
        ),
    )


class _Template(NamedTuple):
    """A template that the models were given."""

    file: str
    template: str
    whose: str
    sha256: str


def _templates(results: BuildResults) -> Table:
    sources = results.manifest.templates
    names = {f"{item.role}.md": item.name for item in parse_instructions(sources).all()}
    ours = load_instructions().sources()
    return Table(
        name="templates",
        title="The templates that the models were given",
        section="method",
        columns=(
            Column("file", "File", "name"),
            Column("template", "Template and version"),
            Column("whose", "Text"),
            Column("hash", "SHA-256", get=lambda line: line.sha256[:12]),
            Column("sha256"),
        ),
        rows=[
            _Template(file, names.get(file, "–"), "as shipped" if ours.get(file) == text else "edited", sha256_hex(text))
            for file, text in sorted(sources.items())
        ],
        notes=("The texts themselves are in build.json.",),
    )
