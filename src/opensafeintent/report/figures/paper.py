"""The paper's known figures as grey marks behind a run's."""

from __future__ import annotations

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.paper import beside_paper
from opensafeintent.report.figures.kit import BLUE, Datum, Series, Spec, dots, row_of
from opensafeintent.report.tables.paper import ticks

__all__ = ["beside"]


def beside(group: Group) -> Spec:
    """Draw the paper's known figures in grey, and those of a group with their intervals."""
    found = [item for item in beside_paper(group) if item.here is not None and item.here.value is not None]
    labels = {model: model for model in group.numbers.models}
    rows: list[Datum] = []
    for item in found:
        if item.here is not None:
            row = row_of(item.here, labels, "here") | {"label": item.label}
            rows.append(row | {"low": None if row["low"] is None else max(row["low"], 0.0)})  # the axis begins at 0
    mark: Datum = {"model": "the paper", "n": 115, "thin": False}
    marks = [mark | {"label": item.label, "value": item.paper, "shown": f"{item.paper:.2f}"} for item in found]
    return dots(rows, Series(("here",), (BLUE,)), width=400, title=ticks(group), faint=marks)
