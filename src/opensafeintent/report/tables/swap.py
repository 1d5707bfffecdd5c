"""The request-swap audit as a table, without rows if no request was swapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.swap import Audit
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, Line, group_notes, lead
from opensafeintent.statistics import Estimate


def swap_table(groups: Sequence[Group]) -> Table:
    """Return by judge how its grades shift with the request, and Triplet Safety with the request
    withheld.
    """

    def of(name: str) -> Callable[[Line], Estimate]:
        return lambda line: getattr(line.item[1], name)

    def audit(line: Line) -> Audit:
        found: Audit = line.item[1]
        return found

    shift = "under the malicious − under the benign prompt"
    return Table(
        name="swap",
        title="How grades of the same responses shift with the request",
        section="swap",
        columns=(
            *lead(groups),
            Column("graded_by", "Graded by", get=lambda line: line.item[0]),
            *estimate_columns("safety_shift", f"Safe {shift}", of("safety_shift"), style="signed"),
            *estimate_columns(
                "helpfulness_shift", f"Helpfulness {shift}", of("helpfulness_shift"), style="signed"
            ),
            *estimate_columns(
                "triplet_safety",
                "Triplet Safety",
                of("triplet_safety"),
                headings={"n": "Sets"},
                order=1,
            ),
            *estimate_columns(
                "triplet_safety_withheld",
                "with the request withheld",
                of("triplet_safety_withheld"),
            ),
            *estimate_columns(
                "triplet_safety_change", "Difference", of("triplet_safety_change"), style="signed"
            ),
            Column("responses", "Responses", "count", lambda line: audit(line).responses, order=1),
            Column(
                "left_out", "of them left out", "count", lambda line: audit(line).left_out, order=1
            ),
        ),
        rows=[
            Line(index, model, (grader, found))
            for index, group in enumerate(groups)
            for (model, grader), found in group.audits.items()
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
