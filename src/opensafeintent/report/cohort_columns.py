"""The first columns of every table of a report, and the notes below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.evaluation.missing import KINDS
from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.coverage import Coverage
from opensafeintent.numbers.estimates import MetricEstimate
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.report.columns import Column, describe_turning_odds
from opensafeintent.report.notices import STATED, Results, collect_notices
from opensafeintent.statistics.comparisons import Comparison, find_rank_turning_odds

Item_co = TypeVar("Item_co", covariant=True)

WITH_MISSING = "With missing: the ends of the interval with missing grades (--missing-odds)."
HOLDS_TO = "Holds to"
ABOUT_HOLDS_TO = (
    "Holds to: the odds of missing responses up to which a difference that the interval shows holds"
    " with them, 0 for none."
)


def explain_missing(*, missing: bool, turns: bool = False) -> tuple[str, ...]:
    """Return the notes on the columns about missing grades that a table shows."""
    return ((WITH_MISSING,) if missing else ()) + ((ABOUT_HOLDS_TO,) if turns else ())


def say_ranks_hold(comparisons: Iterable[Mapping[str, Comparison]]) -> str:
    """Say up to which odds of missing responses intervals of ranks hold, as further sentences of a
    note; nothing of those that rest on no missing grade.

    Args:
        comparisons: by metric, of each grader.
    """
    least: dict[str, float] = {}
    for of_grader in comparisons:
        for metric, comparison in of_grader.items():
            turning = find_rank_turning_odds(comparison)
            if turning is not None:
                least[metric] = min(turning, least.get(metric, turning))
    return "".join(
        f" The ranks by {METRICS[metric].label} hold {describe_turning_odds(odds)}."
        for metric, odds in least.items()
    )


class OfCohort(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table about the models of a report."""

    cohort: Cohort


class OfModel(OfCohort, frozen=True, kw_only=True):
    """A row that is about one model, or about their average."""

    model: str

    def estimate(self, metric: str) -> MetricEstimate:
        """Return a metric of it."""
        return self.cohort.estimates.of(self.model, metric)


class ModelItem(OfModel, Generic[Item_co], frozen=True, kw_only=True):
    """A row about something that a model has: one of its numbers, its coverage, a label."""

    item: Item_co


def name_judges(cohort: Cohort) -> str:
    """Return who graded the responses."""
    judges, mode_judge = cohort.conditions.judges, cohort.conditions.mode_judge
    mode_note = f" (modes: {mode_judge})" if mode_judge and mode_judge not in judges else ""
    return " + ".join(judges) + mode_note


MEASURED: tuple[Column[OfCohort], ...] = (
    Column("dataset", lambda row: row.cohort.dataset.name),
    Column("judge", lambda row: name_judges(row.cohort)),
)
"""Columns of the dataset and the judges."""

MODEL_COLUMNS: tuple[Column[OfModel], ...] = (
    Column("model", lambda row: row.model, "Model", "name"),
    *MEASURED,
)
"""Columns of a row's model, and of the dataset and the judges."""


def cohort_line(cohort: Cohort) -> str:
    """Return a line on the dataset and the judges."""
    judges = clean_for_display(name_judges(cohort)) or "none"
    return f"Dataset {cohort.dataset.shown} ({cohort.size_in_words}), judge {judges}."


def cohort_notes(cohort: Cohort) -> tuple[str, ...]:
    """Return a line on the dataset and the judges, and the limitations of all numbers."""
    notices = collect_notices(Results(cohort=cohort), STATED)
    return cohort_line(cohort), *(said.text for said in notices)


def describe_average(cohort: Cohort) -> tuple[str, ...]:
    """Describe an average over models; empty if there is none."""
    if len(cohort.estimates.averaged) < 2:
        return ()
    return (
        (
            "The model average is the mean over the models under test for which the metric is"
            " defined. It needs as many prompt-sets as “Averages” in the docs says, ten for a whole"
            " dataset; its interval is for the same models on other prompt-sets."
        ),
    )


def explain_unranked(cohort: Cohort) -> str:
    """Say why baselines have no rank, if any has none, as a further sentence of a note."""
    left_out = len(drop_baselines(cohort.models)) < len(cohort.models)
    return " Baselines are left out of the ranks." if left_out else ""


def describe_missing(coverage: Coverage) -> str:
    """Name the kinds of questions of which an answer is missing, with their numbers; beside core
    grades, the prompt-sets that lack one.
    """
    kinds = []
    for kind, part in coverage.lacking.items():
        kinds.append(f"{part.missing:,} of {part.asked:,} {KINDS[kind]}")
        if kind == "core" and not coverage.not_graded:
            sets = f"{coverage.incomplete_sets:,} of {coverage.core_sets:,}"
            kinds.append(f"{sets} {coverage.unit_of_sets}")
    return ", ".join(kinds)


def lack_grades(cohort: Cohort) -> bool:
    """Tell whether any grade is missing."""
    return any(coverage.lacks_grades for coverage in cohort.coverage.values())
