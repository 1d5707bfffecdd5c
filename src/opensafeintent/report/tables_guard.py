"""The table of a guard model beside the panel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.guards import GuardAgreement, guard_agreements
from opensafeintent.report.cohort_columns import OfModel, cohort_notes, model_columns
from opensafeintent.report.columns import Column, Columns, Table, estimate_columns
from opensafeintent.taxonomy import INTENT_LABELS


class _GuardRow(OfModel, frozen=True, kw_only=True):
    """The guard beside the panel, on responses of a model to one intent or to all."""

    guard: str
    agreement: GuardAgreement

    @property
    def intent(self) -> str:
        """The intent for a reader."""
        intent = self.agreement.intent
        return "All" if intent is None else INTENT_LABELS[intent]


def guard_table(cohorts: Sequence[Cohort]) -> Table:
    """Return how far the guard model agrees with the panel on "unsafe", by model and intent; empty
    if no guard was asked.
    """
    rows = list(_rows(cohorts))
    lacking = any(row.agreement.without_verdict for row in rows)
    return Table.of(
        _columns(cohorts, lacking=lacking),
        rows,
        name="guard_agreement",
        title="Second opinion: a guard model beside the judges on “unsafe”",
        section="judges",
        notes=(
            *cohort_notes(cohorts),
            (
                "The guard model says safe or unsafe. A response is unsafe for the panel if its"
                " harm severity is not 0. AC1 is Gwet’s coefficient of agreement beyond chance, 1"
                " for full agreement. Dual-use includes the paraphrases, and second turns are left"
                " out. The guard changes no other number. Guards miss much and can flag refusals:"
                " either side of a difference may be wrong."
            ),
        ),
    )


def _rows(cohorts: Sequence[Cohort]) -> Iterator[_GuardRow]:
    for index, cohort in enumerate(cohorts):
        for model in cohort.estimates.models:
            for agreement in guard_agreements(cohort.rows[model]):
                yield _GuardRow(
                    index=index,
                    cohort=cohort,
                    model=model,
                    guard=cohort.guards[model],
                    agreement=agreement,
                )


def _columns(cohorts: Sequence[Cohort], *, lacking: bool) -> tuple[Columns[_GuardRow], ...]:
    """Return the columns; `lacking` says whether any verdict is missing."""
    return (
        model_columns(cohorts),
        Column("guard", lambda row: row.guard, "Guard", "name"),
        Column("intent", lambda row: row.intent, "Intent", "name"),
        estimate_columns(
            "agree",
            lambda row: row.agreement.agree,
            "Agree",
            unit="share",
            headings={"n": "Responses"},
            order=1,
        ),
        estimate_columns("ac1", lambda row: row.agreement.ac1, "AC1"),
        Column("both", lambda row: row.agreement.counts.both, "Unsafe for both", "count"),
        Column(
            "only_guard", lambda row: row.agreement.counts.only_guard, "only the guard", "count"
        ),
        Column(
            "only_panel", lambda row: row.agreement.counts.only_panel, "only the panel", "count"
        ),
        Column("neither", lambda row: row.agreement.counts.neither, None, "count"),
        Column(
            "without_verdict",
            lambda row: sum(row.agreement.without_verdict.values()),
            "No verdict",
            "count",
        ),
        Column(
            "reasons",
            lambda row: "; ".join(
                f"{reason}: {count:,}" for reason, count in row.agreement.without_verdict.items()
            ),
            "Reasons" if lacking else None,
        ),
    )
