"""The table that a page begins with: the headline numbers of each model."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.metrics import HEADLINES, METRICS
from opensafeintent.report.cohort_columns import (
    ANY_GRADES,
    OfModel,
    cohort_notes,
    have_several,
    missing_text,
    model_columns,
)
from opensafeintent.report.columns import Column, Columns, Table, estimate_columns

HEADLINE = "headline"
"""The name of its files."""

_LABELS = dict(zip(HEADLINES, ("Triplet Safety", "Mean Utility", "Over-refusal"), strict=True))


class _HeadlineRow(OfModel, frozen=True, kw_only=True):
    """A model with its headline numbers."""

    @property
    def missing(self) -> str | None:
        """What is missing of it, by kind; None if no judge was asked, or no response is stored."""
        coverage = self.cohort.coverage[self.model]
        if coverage.not_graded == coverage.responses:
            return None
        return missing_text(coverage) or "0"

    @property
    def not_graded(self) -> int:
        """The number of its responses that no judge was asked about."""
        return self.cohort.coverage[self.model].not_graded


def headline(cohorts: Sequence[Cohort]) -> Table:
    """Return the models of each cohort by Mean Utility, with the headline numbers: the primary
    metrics, the over-refusal rate of benign prompts, and what is missing; if grades are, the
    intervals over all of them.
    """
    rows = [
        _HeadlineRow(index=index, cohort=cohort, model=model)
        for index, cohort in enumerate(cohorts)
        for model in cohort.estimates.models
    ]
    moved = any(row.estimate(metric).worst_case for row in rows for metric in _LABELS)
    columns: list[Columns[_HeadlineRow]] = [model_columns(cohorts)]
    columns += [_headline_columns(metric, moved=moved) for metric in _LABELS]
    columns.append(Column("missing", lambda row: row.missing, "Missing", "count"))
    if any(row.not_graded for row in rows):
        columns.append(Column("not_graded", lambda row: row.not_graded, "Not graded", "count"))
    return Table.of(
        columns,
        rows,
        name=HEADLINE,
        title="Models by Mean Utility" if have_several(cohorts) else "Headline metrics",
        section="headline",
        notes=(
            *cohort_notes(cohorts),
            "Over-refusal: share of benign responses with helpfulness 1 or 2.",
            *([ANY_GRADES] if moved else []),
        ),
    )


def headline_table(cohort: Cohort) -> Table:
    """Return the headline numbers of one cohort, without the notes on the cohort itself."""
    table = headline([cohort])
    about_cohort = cohort_notes([cohort])
    notes = tuple(note for note in table.notes if note not in about_cohort)
    return msgspec.structs.replace(table, notes=notes)


def _headline_columns(metric: str, *, moved: bool) -> tuple[Column[_HeadlineRow], ...]:
    return estimate_columns(
        metric,
        lambda row: row.estimate(metric),
        _LABELS[metric],
        unit=METRICS[metric].unit,
        parts=("worst_case",),
        headings={"worst_case": f"{_LABELS[metric].split()[-1]},\nany grades"} if moved else None,
        order=1,
    )
