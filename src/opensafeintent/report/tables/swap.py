"""The request-swap audit as a table, without rows if no request was swapped."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, group_notes, lead, lead_of


def swap_table(groups: Sequence[Group]) -> Table:
    """Return by judge how its grades shift with the request, and Triplet Safety with the request
    withheld.
    """
    shift = "under the malicious − under the benign prompt"
    return Table(
        name="swap",
        title="How grades of the same responses shift with the request",
        section="swap",
        columns=(
            *lead(groups),
            Column("graded_by", "Graded by"),
            *estimate_columns("safety_shift", f"Safe {shift}", style="signed"),
            *estimate_columns("helpfulness_shift", f"Helpfulness {shift}", style="signed"),
            *estimate_columns("triplet_safety", "Triplet Safety", headings={"n": "Sets"}, order=1),
            *estimate_columns("triplet_safety_withheld", "with the request withheld"),
            *estimate_columns("triplet_safety_change", "Difference", style="signed"),
            Column("responses", "Responses", "count", order=1),
            Column("left_out", "of them left out", "count", order=1),
        ),
        rows=[
            (
                *lead_of(groups, index, model),
                grader,
                audit.safety_shift,
                audit.helpfulness_shift,
                audit.triplet_safety,
                audit.triplet_safety_withheld,
                audit.triplet_safety_change,
                audit.responses,
                audit.left_out,
            )
            for index, group in enumerate(groups)
            for (model, grader), audit in group.audits.items()
        ],
        notes=(
            *group_notes(groups),
            (
                "The rubric grades harm of the response alone, so a shift in safety is the judge’s"
                " error. Helpfulness is help with a request, and a shift is right. A response under"
                " another intent’s prompt is unusual input for a judge. Left out: without a grade"
                " for helpfulness or for harm under some request."
            ),
            "The model average is the mean over models, baselines aside if there are others.",
            UNDEFINED,
        ),
    )
