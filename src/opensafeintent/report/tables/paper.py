"""The paper's known figures beside a run's."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.paper import beside_paper, same_as_paper
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, Line, group_notes, measured, numbered


def ticks(group: Group) -> str:
    """Say what a group shares with the paper."""
    marks = {True: "✓ same", False: "✗ another"}
    return ", ".join(f"{marks[same]} {what}" for what, same in same_as_paper(group).items())


def beside(groups: Sequence[Group]) -> Table:
    """Return the paper's figures beside those of each group on its dataset; empty where there is
    none.
    """

    def of_item(field: str) -> Any:
        return attrgetter(f"item.{field}")

    return Table(
        name="paper",
        title="Beside the paper: its known figures, and the same here",
        section="utility",
        columns=(
            numbered(groups),
            Column("figure", "Figure", "name", of_item("label")),
            *measured(groups),
            Column("paper", "The paper", "number", of_item("paper")),
            *estimate_columns("here", "Here", of_item("here"), headings={"n": "Sets"}, order=1),
            Column(
                "here_model",
                "Of",
                get=lambda line: line.item.here.model if line.item.here else None,
                order=1,
            ),
        ),
        rows=[
            Line(number, item.label, item)
            for number, group in enumerate(groups)
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
