"""What flips are made of: wordings that differ, and answers that vary."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, group_notes, lead, lead_of

_ESTIMATES = {
    "flip": "Safety flip",
    "between": "Two wordings disagree",
    "within": "One wording disagrees with itself",
    "excess": "Excess",
}


def wording(groups: Sequence[Group]) -> Table:
    """Return how often answers to the wordings of a set disagree, and why; empty where every prompt
    was put once.
    """
    return Table(
        name="wording",
        title="What flips are made of: wordings that differ, and answers that vary",
        section="stability",
        columns=(
            *lead(groups),
            Column("epochs", "Epochs", "count"),
            *(
                column
                for name, heading in _ESTIMATES.items()
                for column in estimate_columns(
                    "wording_excess" if name == "excess" else name,
                    heading,
                    style="signed" if name == "excess" else "interval",
                    parts=("n", "method"),
                    headings={"n": "Sets"} if name == "between" else None,
                    order=1,
                )
            ),
            Column("unknown", "Not known, because"),
        ),
        rows=[
            (
                *lead_of(groups, index, found.model),
                found.epochs,
                *(getattr(found, name) for name in _ESTIMATES),
                found.unknown,
            )
            for index, group in enumerate(groups)
            for place in group.numbers.order
            for found in (group.wordings[place],)
            if found.epochs > 1
        ],
        notes=(
            *group_notes(groups),
            (
                "Answers to dual-use wordings of one set disagree where one is safe and another is"
                " not. Excess is how much oftener two wordings disagree than one does with itself:"
                " E(p − p′)² for their safe rates p and p′, never cut off at 0. Models that were"
                " sampled at different temperatures are not to be compared in it."
            ),
            UNDEFINED,
        ),
    )
