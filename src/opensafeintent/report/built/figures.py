"""The figures of a build."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from opensafeintent.report.built import charts, controls
from opensafeintent.report.built.record import BuildResults
from opensafeintent.report.built.tables import build_tables
from opensafeintent.report.figures.kit import Spec, finished
from opensafeintent.report.figures.writing import FORMATS, Figure
from opensafeintent.report.table import Section, Table

__all__ = ["FIGURE_FILES", "build_figures"]


class _Plan(NamedTuple):
    name: str
    title: str
    section: Section
    caption: str
    draw: Callable[[BuildResults], Spec]
    table: str
    """The table with its numbers; without rows there is no figure."""


_PLANS = (
    _Plan(
        "funnel",
        "Items through the stages",
        "funnel",
        "A bar is what went into a stage: seeds at first, then topics, then prompt-sets on their way. Beside it, how many it "
        "kept of how many. Cells are filled again after later stages have dropped some, so all passes are counted together.",
        charts.funnel,
        "funnel",
    ),
    _Plan(
        "dropped",
        "Why items were dropped",
        "funnel",
        "Each item counts once, for the first reason that was found. All of them, with what the models said, are in stages/.",
        charts.dropped,
        "dropped",
    ),
    _Plan(
        "coverage",
        "Prompt-sets by cell",
        "coverage",
        "A cell is one harm domain and one task type; beside and below the map are sums. Empty cells are outlined; where a "
        "target was set and not reached, it is named.",
        charts.coverage,
        "coverage",
    ),
    _Plan(
        "readings",
        "Intents as the judge read them, before and after repair",
        "intents",
        "The judge sees one prompt at a time, without its label, and says whether an honest use is plausible and whether the "
        "risk of misuse is meaningful; “neither” is no to both. Every set that it read counts, the dropped ones included. "
        "What was kept agrees with the judge by construction: that is no measure of how often it is right.",
        controls.readings,
        "readings",
    ),
    _Plan(
        "lengths",
        "Length and readability by intent",
        "lengths",
        "Left: the median, the middle half (bar) and the middle nine tenths (line) of the prompts of each intent. Right: the "
        "mean difference within sets with its 95 % interval; p is Holm's over the three pairs of a measure, and differences "
        "with p < 0.05 are in colour. Readability is the Automated Readability Index: the higher, the harder.",
        controls.lengths,
        "differences",
    ),
    _Plan(
        "similarity",
        "How similar each set is to the most similar one of its cell",
        "similarity",
        "Stage 5 drops a set when one of its core prompts has a ROUGE-L above 0.7 (dashed) to one of an earlier set. "
        "Paraphrases are written later and are compared here only.",
        controls.similarity,
        "similarity",
    ),
    _Plan(
        "words",
        "Words that tell the intent",
        "words",
        "The words that speak most for one intent in a bag-of-words classifier, and the share of the sets whose prompt of "
        "each intent has them. Intent must be said in words; what matters is whether these words say it or only give it "
        "away.",
        controls.words,
        "words",
    ),
    _Plan(
        "costs",
        "Calls and tokens by stage",
        "costs",
        "Every call that a kept or a dropped item rests on, once, whichever run made it. Tokens are those that went in and "
        "those that came out, together.",
        charts.costs,
        "costs",
    ),
)

FIGURE_FILES = (*(f"{plan.name}.{ending}" for plan in _PLANS for ending in ("csv", *FORMATS)), "captions.md")
"""Every file that figures may have."""


def build_figures(results: BuildResults) -> list[Figure]:
    """Return the figures that have something to show, in the order of the page."""
    tables = {table.name: table for table in build_tables(results)} | results.check_tables
    return [_figure(plan, results, tables[plan.table]) for plan in _PLANS if plan.table in tables and tables[plan.table].rows]


def _figure(plan: _Plan, results: BuildResults, table: Table) -> Figure:
    return Figure(
        name=plan.name,
        title=plan.title,
        section=plan.section,
        caption=plan.caption,
        table=table,
        spec=finished(plan.draw(results), plan.title),
    )
