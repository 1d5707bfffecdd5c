"""Tables with a line for each number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import MetricEstimate
from opensafeintent.metrics import METRICS, Unit
from opensafeintent.report.cohort_columns import (
    OfModel,
    cohort_notes,
    lack_grades,
    model_columns,
)
from opensafeintent.report.columns import Column, Section, Table


class NumberRow(OfModel, frozen=True, kw_only=True):
    """A number of a model, or of the average."""

    number: MetricEstimate


def metrics(cohorts: Sequence[Cohort]) -> Table:
    """Return every metric of every model, and of their average."""
    return numbers_table(
        cohorts,
        "metrics",
        "Every metric",
        "numbers",
        [
            (index, number)
            for index, cohort in enumerate(cohorts)
            for number in cohort.estimates.overall_and_averages()
        ],
    )


def strata(cohorts: Sequence[Cohort]) -> Table:
    """Return the main metrics by harm domain, by task type and by cell; the others are in
    `metrics.json`.
    """
    return numbers_table(
        cohorts,
        "strata",
        "Main metrics by harm domain, by task type, and by both",
        "strata",
        [
            (index, number)
            for index, cohort in enumerate(cohorts)
            for number in cohort.estimates.in_strata()
        ],
        by_stratum=True,
    )


def numbers_table(
    cohorts: Sequence[Cohort],
    name: str,
    title: str,
    section: Section,
    numbers: Iterable[tuple[int, MetricEstimate]],
    *,
    by_stratum: bool = False,
) -> Table:
    """Return a line for each of some numbers.

    Args:
        cohorts: all of the report's.
        name, title, section: of the table.
        numbers: each with the index of its cohort.
        by_stratum: whether they are of strata.
    """
    return Table.of(
        number_columns(cohorts, by_stratum=by_stratum),
        number_rows(cohorts, numbers),
        name=name,
        title=title,
        section=section,
        notes=cohort_notes(cohorts),
    )


def number_rows(
    cohorts: Sequence[Cohort], numbers: Iterable[tuple[int, MetricEstimate]]
) -> Iterator[NumberRow]:
    """Yield the row of each number, which has the index of its cohort."""
    for index, number in numbers:
        yield NumberRow(index=index, cohort=cohorts[index], model=number.model, number=number)


def number_columns(cohorts: Sequence[Cohort], *, by_stratum: bool) -> tuple[Column[NumberRow], ...]:
    """Return the columns of a number: of what it is, and all its fields."""
    strata: tuple[Column[NumberRow], ...] = (
        Column("harm_domain", lambda row: row.number.stratum[0], "Harm domain", order=-1),
        Column("task_type", lambda row: row.number.stratum[1], "Task type", order=-1),
    )
    lacking = lack_grades(cohorts) and not by_stratum
    return (
        *model_columns(cohorts),
        *(strata if by_stratum else ()),
        Column("metric", lambda row: row.number.metric, "Metric"),
        Column("value", _number, "Value", "interval", _unit),
        Column("ci_method", lambda row: row.number.method),
        Column("n", lambda row: row.number.n, "Sets", "count"),
        Column(
            "bounds",
            lambda row: row.number.bounds,
            "Lowest – highest with any missing grades" if lacking else None,
            "span",
            _unit,
            estimate=_number,
        ),
        Column(
            "worst_case",
            lambda row: row.number.worst_case,
            "Interval with any missing grades" if lacking else None,
            "span",
            _unit,
            estimate=_number,
        ),
        Column("models", lambda row: row.number.models),
        Column("pooled", lambda row: row.number.pooled),
    )


def _number(row: NumberRow) -> MetricEstimate:
    return row.number


def _unit(row: NumberRow) -> Unit:
    metric = METRICS.get(row.number.metric)
    # the paraphrase effect, a difference of shares, is no metric
    return "share" if metric is None else metric.unit
