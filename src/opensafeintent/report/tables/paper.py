"""The paper's known figures beside a run's."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.paper import beside_paper, same_as_paper
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import (
    MEASURED,
    UNDEFINED,
    group_notes,
    measured_of,
    numbered,
)


def ticks(group: Group) -> str:
    """Say what a group shares with the paper."""
    marks = {True: "✓ same", False: "✗ another"}
    return ", ".join(f"{marks[same]} {what}" for what, same in same_as_paper(group).items())


def beside(groups: Sequence[Group]) -> Table:
    """Return the paper's figures beside those of each group on its dataset; empty where there is
    none.
    """
    return Table(
        name="paper",
        title="Beside the paper: its known figures, and the same here",
        section="utility",
        columns=(
            numbered(groups),
            Column("figure", "Figure", "name"),
            *MEASURED,
            Column("paper", "The paper", "number"),
            *estimate_columns("here", "Here", headings={"n": "Sets"}, order=1),
            Column("here_model", "Of", order=1, part="model"),
        ),
        rows=[
            (index + 1, item.label, *measured_of(group), item.paper, item.here)
            for index, group in enumerate(groups)
            for item in beside_paper(group)
        ],
        notes=(
            *group_notes(groups),
            *(
                f"Compared with the paper: {ticks(group)}."
                for group in groups
                if beside_paper(group)
            ),
            (
                "The paper's averages are over its twenty models, and have no intervals. Where"
                " models, rubric or judge are others, a difference tells nothing of the benchmark."
            ),
            UNDEFINED,
        ),
    )
