"""What every table of a report's groups starts with: which models were measured on what, and by
whom they were graded.
"""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.hostile import one_line
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.table import Column

UNDEFINED = "– is undefined. Brackets hold the 95 % interval."

MEASURED = (Column("dataset"), Column("judge"))
"""Columns of a row's dataset and judges."""


def judges_of(group: Group) -> str:
    """Return who graded a group's responses."""
    judges, mode_judge = group.conditions.judges, group.conditions.mode_judge
    other = f" (modes: {mode_judge})" if mode_judge and mode_judge not in judges else ""
    return " + ".join(judges) + other


def measured_of(group: Group) -> tuple[str, str]:
    """Return the values of MEASURED."""
    return group.dataset.name, judges_of(group)


def numbered(groups: Sequence[Group]) -> Column:
    """Return the column of the group's number, from 1; people are shown it, first, where there are
    several.
    """
    return Column("group", "Group" if len(groups) > 1 else None, "count", order=-2)


def lead(groups: Sequence[Group]) -> tuple[Column, ...]:
    """Return the columns of a row's group, model, dataset and judges."""
    return numbered(groups), Column("model", "Model", "name"), *MEASURED


def lead_of(groups: Sequence[Group], index: int, model: str) -> tuple[int, str, str, str]:
    """Return the values of `lead` for a model of the group with an index."""
    return index + 1, model, *measured_of(groups[index])


def group_line(groups: Sequence[Group], number: int) -> str:
    """Say on what and by whom a group was measured."""
    group = groups[number]
    which = f"Group {number + 1}: dataset" if len(groups) > 1 else "Dataset"
    judges = one_line(judges_of(group), 80) or "none"
    return f"{which} {one_line(group.dataset.name, 60)} ({group.extent}), judge {judges}."


def group_notes(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return a line for each group, and what to distrust."""
    lines = [group_line(groups, number) for number in range(len(groups))]
    demonstration = [number + 1 for number, group in enumerate(groups) if group.demonstration]
    if demonstration:
        which = f"Group {', '.join(map(str, demonstration))}: " if len(groups) > 1 else ""
        lines.append(which + DEMONSTRATION_NOTE)
    if any(coverage.partial for group in groups for coverage in group.coverage.values()):
        lines.append(
            "Partial: some responses that were planned are not on record (table coverage)."
        )
    return tuple(lines)


def averaged_notes(groups: Sequence[Group], more: str = "") -> tuple[str, ...]:
    """Say what an average over models is, and `more` of it; nothing where no group has one."""
    counts = [sum(not is_baseline(model) for model in group.models) for group in groups]
    if not any(counts):
        return ()
    which = ", ".join(
        f"{count} in group {number}" if len(counts) > 1 else str(count)
        for number, count in enumerate(counts, 1)
    )
    return (
        (
            f"The model average is the mean over the models where a metric is defined ({which};"
            " baselines are left aside); its interval is for the same models on other"
            f" prompt-sets.{more}"
        ),
    )
