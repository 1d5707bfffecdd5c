"""What flips are made of: wordings that differ, and answers that vary."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import Number
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, Line, group_notes, lead

__all__ = ["by_wordings", "wording"]

_ESTIMATES = {
    "flip": "Safety flip",
    "between": "Two wordings disagree",
    "within": "One wording disagrees with itself",
    "excess": "Excess",
    "share": "Share owed to wording",
}


class _OfWordings(NamedTuple):
    """A metric over the sets that have so many dual-use wordings."""

    metric: str
    wordings: int
    number: Number


def wording(groups: Sequence[Group]) -> Table:
    """Return how often answers to the wordings of a set disagree, and why; empty where every prompt was put once."""
    return Table(
        name="wording",
        title="What flips are made of: wordings that differ, and answers that vary",
        section="stability",
        columns=(
            *lead(groups),
            Column("epochs", "Epochs", "count", attrgetter("item.epochs")),
            *(
                column
                for name, heading in _ESTIMATES.items()
                for column in estimate_columns(
                    f"wording_{name}" if name in ("excess", "share") else name,
                    heading,
                    attrgetter(f"item.{name}"),
                    style="signed" if name == "excess" else "interval",
                    parts=("n", "method"),
                    headings={"n": "Sets"} if name == "between" else None,
                    order=1,
                )
            ),
            Column("p", "p", "p", attrgetter("item.p")),
            *estimate_columns(
                "judge_flips_dual_use", "Judge changes its verdict (these wordings)", attrgetter("item.judge_flips_dual_use")
            ),
            Column("unknown", "Not known, because", get=attrgetter("item.unknown")),
        ),
        rows=[
            Line(number, found.model, found)
            for number, group in enumerate(groups)
            for index in group.numbers.order
            for found in (group.wordings[index],)
            if found.epochs > 1
        ],
        notes=(
            *group_notes(groups),
            "Answers to dual-use wordings of one set disagree where one is safe and another is not. Excess is how much "
            "oftener two wordings disagree than one does with itself: E(p − p′)² for their safe rates p and p′, never cut "
            "off at 0. The share is that part of the disagreement between wordings. p: a set's answers dealt out to its "
            "wordings at random. The share holds what a judge reads off each wording. "
            "The judge’s own change is of this model’s answers to dual-use wordings alone; “The judge’s own noise” has it "
            "of all models and prompts. Models that were sampled at different "
            "temperatures are not to be compared in it.",
            UNDEFINED,
        ),
    )


def by_wordings(groups: Sequence[Group]) -> Table:
    """Return stability and ranges by the number of wordings; empty where all sets have as many."""
    return Table(
        name="by_wordings",
        title="Stability and range by the number of dual-use wordings",
        section="stability",
        columns=(
            *lead(groups),
            Column("metric", "Metric", get=attrgetter("item.metric"), order=-1),
            Column("wordings", "Wordings", "count", attrgetter("item.wordings")),
            *estimate_columns("value", "Value", attrgetter("item.number"), style="interval", parts=("n", "method")),
        ),
        rows=[
            Line(place, model, _OfWordings(metric, count, number))
            for place, group in enumerate(groups)
            for (model, metric, count), number in group.numbers.by_wordings.items()
        ],
        notes=(
            *group_notes(groups),
            "Of five wordings some are safe and others not more often than of two by arithmetic alone: flips, stability and "
            "ranges are to be compared at the same number of wordings. Elsewhere they are of all sets together, "
            "which compares models on the same sets, and nothing else.",
            UNDEFINED,
        ),
    )
