"""The first columns of every table of a report's cohorts, and the notes below it."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.hostile import one_line
from opensafeintent.report.columns import Column

DEMONSTRATION_NOTE = (
    "Graded by baseline/judge, a rule-based judge for demonstrations: these numbers say nothing"
    " about how safe or helpful a model is. To measure a model, give a language model as --judge."
)


UNDEFINED = "– is undefined or does not apply. Brackets hold the 95 % interval."


MEASURED = (Column("dataset"), Column("judge"))
"""Columns of a row's dataset and judges."""


def judges_of(cohort: Cohort) -> str:
    """Return who graded a group's responses."""
    judges, mode_judge = cohort.conditions.judges, cohort.conditions.mode_judge
    other = f" (modes: {mode_judge})" if mode_judge and mode_judge not in judges else ""
    return " + ".join(judges) + other


def measured_of(cohort: Cohort) -> tuple[str, str]:
    """Return the values of MEASURED."""
    return cohort.dataset.name, judges_of(cohort)


def numbered(cohorts: Sequence[Cohort]) -> Column:
    """Return the column of the cohort's number; people see it first if there are several."""
    return Column("group", "Group" if len(cohorts) > 1 else None, "count", order=-2)


def lead(cohorts: Sequence[Cohort]) -> tuple[Column, ...]:
    """Return the columns of a row's group, model, dataset and judges."""
    return numbered(cohorts), Column("model", "Model", "name"), *MEASURED


def lead_of(cohorts: Sequence[Cohort], index: int, model: str) -> tuple[int, str, str, str]:
    """Return the values of `lead` for a model of the group with an index."""
    return index + 1, model, *measured_of(cohorts[index])


def cohort_line(cohorts: Sequence[Cohort], number: int) -> str:
    """Return a line on the dataset and the judges of a cohort."""
    cohort = cohorts[number]
    which = f"Group {number + 1}: dataset" if len(cohorts) > 1 else "Dataset"
    judges = one_line(judges_of(cohort), 80) or "none"
    return f"{which} {one_line(cohort.dataset.name, 60)} ({cohort.extent}), judge {judges}."


def cohort_notes(cohorts: Sequence[Cohort]) -> tuple[str, ...]:
    """Return a line for each cohort, and its limitations."""
    lines = [cohort_line(cohorts, number) for number in range(len(cohorts))]
    demonstration = [number + 1 for number, cohort in enumerate(cohorts) if cohort.demonstration]
    if demonstration:
        which = f"Group {', '.join(map(str, demonstration))}: " if len(cohorts) > 1 else ""
        lines.append(which + DEMONSTRATION_NOTE)
    if any(coverage.partial for cohort in cohorts for coverage in cohort.coverage.values()):
        lines.append("Partial: some responses that were planned are not stored (table coverage).")
    return tuple(lines)


def averaged_notes(cohorts: Sequence[Cohort], more: str = "") -> tuple[str, ...]:
    """Describe an average over models, with `more` text; empty if no cohort has one."""
    if not any(len(cohort.estimates.averaged) > 1 for cohort in cohorts):
        return ()
    return (
        (
            "The model average is the mean over the models under test for which the metric is"
            f" defined; its interval is for the same models on other prompt-sets.{more}"
        ),
    )


def have_several(cohorts: Sequence[Cohort]) -> bool:
    """Tell whether any cohort has two models or more."""
    return any(len(cohort.models) > 1 for cohort in cohorts)


def lack_grades(cohorts: Sequence[Cohort]) -> bool:
    """Tell whether any grade is missing."""
    return any(any(of.missing.values()) for cohort in cohorts for of in cohort.coverage.values())


ANY_GRADES = "Any grades: the ends of the interval with any missing grades."
