"""The first columns of every table of a report's cohorts, and the notes below it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.calls.baselines import contenders
from opensafeintent.evaluation.missing import KINDS
from opensafeintent.hostile import one_line
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.coverage import Coverage
from opensafeintent.numbers.estimates import MetricEstimate
from opensafeintent.report.columns import Column

DEMONSTRATION_NOTE = (
    "Graded by baseline/judge, a rule-based judge for demonstrations: these numbers say nothing"
    " about how safe or helpful a model is. To measure a model, give a language model as --judge."
)


ANY_GRADES = "Any grades: the ends of the interval with any missing grades."


class OfCohort(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table that is about one cohort."""

    index: int
    """Of the cohort, from 0."""
    cohort: Cohort


class OfModel(OfCohort, frozen=True, kw_only=True):
    """A row that is about one model of a cohort, or about their average."""

    model: str

    def estimate(self, metric: str) -> MetricEstimate:
        """Return a metric of it."""
        return self.cohort.estimates.of(self.model, metric)


def judges_of(cohort: Cohort) -> str:
    """Return who graded a group's responses."""
    judges, mode_judge = cohort.conditions.judges, cohort.conditions.mode_judge
    mode_note = f" (modes: {mode_judge})" if mode_judge and mode_judge not in judges else ""
    return " + ".join(judges) + mode_note


MEASURED: tuple[Column[OfCohort], ...] = (
    Column("dataset", lambda row: row.cohort.dataset.name),
    Column("judge", lambda row: judges_of(row.cohort)),
)
"""Columns of a row's dataset and judges."""


def numbered(cohorts: Sequence[Cohort]) -> Column[OfCohort]:
    """Return the column of the cohort's number; people see it first if there are several."""
    heading = "Group" if len(cohorts) > 1 else None
    return Column("group", lambda row: row.index + 1, heading, "count", order=-2)


def model_columns(cohorts: Sequence[Cohort]) -> tuple[Column[OfModel], ...]:
    """Return the columns of a row's group, model, dataset and judges."""
    return numbered(cohorts), Column("model", lambda row: row.model, "Model", "name"), *MEASURED


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


def averaged_notes(cohorts: Sequence[Cohort], about_pooled: str = "") -> tuple[str, ...]:
    """Describe an average over models, with a text on pooled numbers; empty if no cohort has
    one.
    """
    if not any(len(cohort.estimates.averaged) > 1 for cohort in cohorts):
        return ()
    return (
        (
            "The model average is the mean over the models under test for which the metric is"
            " defined. It needs as many prompt-sets as “Averages” in the docs says, ten for a whole"
            f" dataset; its interval is for the same models on other prompt-sets.{about_pooled}"
        ),
    )


def unranked_note(cohorts: Sequence[Cohort]) -> str:
    """Say why baselines have no rank, if any has none, as a further sentence of a note."""
    tested = [model for cohort in cohorts for model in contenders(cohort.models)]
    models = sum(len(cohort.models) for cohort in cohorts)
    return " Baselines are left out of the ranks." if len(tested) < models else ""


def have_several(cohorts: Sequence[Cohort]) -> bool:
    """Tell whether any cohort has two models or more."""
    return any(len(cohort.models) > 1 for cohort in cohorts)


def missing_text(coverage: Coverage) -> str:
    """Name the kinds of questions of which an answer is missing, with their numbers."""
    kinds = coverage.lacking.items()
    return ", ".join(f"{part.missing:,} of {part.asked:,} {KINDS[kind]}" for kind, part in kinds)


def lack_grades(cohorts: Sequence[Cohort]) -> bool:
    """Tell whether any grade is missing."""
    return any(coverage.lacks_grades for cohort in cohorts for coverage in cohort.coverage.values())
