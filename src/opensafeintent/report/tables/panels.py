"""What results owe to who graded: by judge, between judges, by a judge and itself, and without conflicts of interest.

Each table is empty where it has nothing to tell: with one judge that graded once and is in no conflict, all are.
"""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges.agreement import Agreement, agreements
from opensafeintent.analysis.judges.conflicts import Conflict, conflicts_of, without_conflicts
from opensafeintent.analysis.judges.graders import PANEL, SHOWN, Standing, standings
from opensafeintent.analysis.judges.noise import noise_of
from opensafeintent.analysis.judges.values import GRADES, HARM_GRADES
from opensafeintent.analysis.numbers import numbers_of
from opensafeintent.metrics import PRIMARY
from opensafeintent.report.tables.lead import LEAD, UNDEFINED, group_notes, lead, shown_group
from opensafeintent.report.tables.record import Cell, Column, Table
from opensafeintent.statistics import Estimate

__all__ = ["PANEL_TABLES", "agreement", "by_judge", "conflicts", "confusion", "noise"]

_HEADINGS = {
    "mean_safety": "Mean Safety",
    "triplet_safety": "Triplet Safety",
    "mean_utility": "Mean Utility",
    "worst_case_utility": "Worst-Case Utility",
}
_VALUE = ("", "_low", "_high", "_n")
_WHAT = {"helpfulness": ("Helpfulness", GRADES), "harm_severity": ("Harm severity", HARM_GRADES)}


def by_judge(groups: Sequence[Group]) -> Table:
    """Return the main metrics of each model as each judge has them, and as the panel has."""
    ranks = [f"{metric}_rank{part}" for metric in PRIMARY for part in ("", "_low", "_high")]
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups):
        for place in numbers_of(group).order:
            for grader in standings(group):
                cells = [cell for metric in SHOWN for cell in grader.estimates[metric].at(place).cells]
                ranked = [cell for metric in PRIMARY for cell in _rank(grader, metric, place)]
                rows.append((*lead(groups, number, group.models[place]), grader.name, *cells, *ranked))
    return Table(
        name="judge_metrics",
        title="The same responses by each judge, and by the panel",
        columns=(*LEAD, "graded_by", *(metric + part for metric in SHOWN for part in _VALUE), *ranks),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("model", "Model", "name"),
            Column("graded_by", "Graded by"),
            *(Column(metric, _HEADINGS[metric], "interval") for metric in SHOWN),
            *(
                column
                for metric in PRIMARY
                for column in (
                    Column(f"{metric}_rank", f"Rank by {_HEADINGS[metric]}", "count"),
                    Column(f"{metric}_rank", "tests leave open", "ranks"),
                )
            ),
            Column("mean_utility_n", "Sets", "count"),
        ),
        notes=(
            *group_notes(groups),
            "The panel is the lower median of the judges for helpfulness and the upper median for harm: a response is safe "
            "where a majority says so. All other tables show the panel. A rank is the place of the value; beside it is what "
            "the paired tests of every two models leave open (5 %, Holm within the metric).",
            UNDEFINED,
        ),
    )


def _rank(grader: Standing, metric: str, place: int) -> tuple[Cell, ...]:
    return grader.rank(metric, place), *(grader.rank_interval(metric, place) or (None, None))


def agreement(groups: Sequence[Group]) -> Table:
    """Return how far every two judges agree, and all of a panel together where there are three or more."""
    measures = {
        "safe": "Agree on “safe”",
        "safe_ac1": "AC1",
        "helpfulness": "Same helpfulness",
        "helpfulness_ac2": "AC2",
        "helpfulness_difference": "A − B",
        "harm_severity": "Same harm",
        "harm_severity_ac2": "AC2",
        "harm_severity_difference": "A − B",
    }
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups, start=1):
        for found in agreements(group):
            names = found.judges if len(found.judges) == 2 else (f"all {len(found.judges)} judges", None)
            rates = found.safe_rates if len(found.judges) == 2 else (None, None)
            cells = [cell for measure in measures for cell in _value(getattr(found, measure))]
            rows.append((number, *names, *rates, *cells))
    return Table(
        name="judge_agreement",
        title="Agreement between judges",
        columns=(
            *("group", "judge_a", "judge_b", "safe_rate_a", "safe_rate_b"),
            *(measure + part for measure in measures for part in _VALUE),
        ),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("judge_a", "Judge A", "name"),
            Column("judge_b", "Judge B", "name"),
            Column("safe_rate_a", "Safe by A", "share"),
            Column("safe_rate_b", "by B", "share"),
            *(
                Column(measure, heading, "signed" if measure.endswith("difference") else "interval")
                for measure, heading in measures.items()
            ),
            Column("safe_n", "Responses", "count"),
        ),
        notes=(
            "On the responses that both were asked about, of all models and wordings. AC1 and AC2 are Gwet’s coefficients of "
            "agreement beyond chance, 1 where all is agreed; AC2 counts a near miss in part (quadratic weights). A − B is "
            "the mean difference of grades. Judges that agree may be wrong together: agreement is no validity.",
            UNDEFINED,
        ),
    )


def _value(value: Estimate | None) -> tuple[Cell, ...]:
    return (None,) * 4 if value is None else value.cells


def confusion(groups: Sequence[Group]) -> Table:
    """Return how often one judge gave one grade and another judge another."""
    grades = sorted({*GRADES, *HARM_GRADES})
    rows = [
        (number, *found.judges, what, grade, *(counts.get(other) for other in grades))
        for number, group in enumerate(groups, start=1)
        for found in agreements(group)
        for what, grade, counts in _confusion(found)
    ]
    return Table(
        name="judge_confusion",
        title="Grades that two judges gave to the same response",
        columns=("group", "judge_a", "judge_b", "what", "grade_a", *(f"grade_b_{grade}" for grade in grades)),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("judge_a", "Judge A", "name"),
            Column("judge_b", "Judge B", "name"),
            Column("what", "Grade of"),
            Column("grade_a", "Grade by A", "count"),
            *(Column(f"grade_b_{grade}", f"B: {grade}", "count") for grade in grades),
        ),
        notes=("Responses by the grade of judge A (line) and of judge B (column).",),
    )


def _confusion(found: Agreement) -> list[tuple[str, int, dict[int, int]]]:
    return [
        (what, grade, dict(zip(grades, counts, strict=True)))
        for what, (_, grades) in _WHAT.items()
        for grade, counts in zip(grades, found.confusion.get(what, ()), strict=False)  # type: ignore[call-overload]
    ]


def noise(groups: Sequence[Group]) -> Table:
    """Return how far each judge agrees with itself on responses that it graded twice."""
    measures = {
        "safe_flips": "Safe once, unsafe once",
        "safe_ac1": "AC1 on “safe”",
        "helpfulness_equal": "Same helpfulness",
        "helpfulness_difference": "apart by",
        "harm_severity_equal": "Same harm",
        "harm_severity_difference": "apart by",
    }
    rows = [
        (
            *(number, judge, found.responses, found.missing),
            *(cell for measure in measures for cell in _value(getattr(found, measure))),
            *(found.mean_safety_se, found.mean_safety_sets),
        )
        for number, group in enumerate(groups, start=1)
        for judge, found in noise_of(group).items()
    ]
    return Table(
        name="judge_noise",
        title="The judge’s own noise: the same responses graded twice",
        columns=(
            *("group", "graded_by", "responses", "missing"),
            *(measure + part for measure in measures for part in _VALUE),
            *("mean_safety_se", "mean_safety_sets"),
        ),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("graded_by", "Graded by", "name"),
            Column("responses", "Responses", "count"),
            *(Column(measure, heading, "interval") for measure, heading in measures.items()),
            Column("mean_safety_se", "Standard error of Mean Safety", "share"),
        ),
        notes=(
            "Every judge was asked again, in the same words and at the same temperature, about a random sample of responses. "
            "Apart by: mean absolute difference of the two grades. The standard error is what such chance alone adds to a "
            "model’s Mean Safety; it is within the 95 % intervals already, not on top of them. Noise says nothing of bias: a "
            "judge may repeat the same mistake.",
            UNDEFINED,
        ),
    )


def conflicts(groups: Sequence[Group]) -> Table:
    """Return the rankings with and without conflicts of interest between a model and who judged or made the dataset."""
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups):
        if found := conflicts_of(group):
            rows += [
                (*lead(groups, number, group.models[place]), _said(found, group.models[place]), metric, *cells)
                for metric in PRIMARY
                for place in numbers_of(group).order
                for cells in (_ranked_without(group, metric, place),)
            ]
    with_others = any(row[len(LEAD) + 6] is not None for row in rows)
    return Table(
        name="judge_conflicts",
        title="Rankings with and without conflicts of interest",
        columns=(
            *(*LEAD, "conflict", "metric"),
            *("value", "value_low", "value_high", "rank", "others", "others_low", "others_high", "others_rank", "free_rank"),
        ),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("metric", "Metric"),
            Column("model", "Model", "name"),
            Column("conflict", "Conflict"),
            Column("value", "As graded", "interval"),
            Column("rank", "Rank", "count"),
            *((Column("others", "By judges without a conflict", "interval"),) if with_others else ()),
            *((Column("others_rank", "Rank", "count"),) if with_others else ()),
            Column("free_rank", "Rank among models without a conflict", "count"),
        ),
        notes=(
            *group_notes(groups),
            "A conflict is that a model and its judge, or a model and one that made the prompts, are the same or of one "
            "maker, as far as names tell. Where a model is in conflict with a judge, the rank by the other judges is "
            "the one that it has when they alone grade all models; a smaller panel may be stricter, so the ranks compare, "
            "not the values.",
            UNDEFINED,
        ),
    )


_DID = {
    "judge": "judge {}",
    "mode_judge": "{}, which judged the modes",
    "wrote": "{}, which wrote the prompts",
    "checked": "{}, which checked the prompts",
}


def _said(found: Sequence[Conflict], model: str) -> str | None:
    texts = [
        f"{'same model as' if item.same else 'same maker as'} {_DID[item.part].format(item.other)}"
        for item in found
        if item.model == model
    ]
    return "; ".join(texts) or None


def _ranked_without(group: Group, metric: str, place: int) -> tuple[Cell, ...]:
    without = without_conflicts(group)
    counted = Standing(PANEL, group.estimates, group.comparisons)
    standing = without.others(group.models[place])
    others: tuple[Cell, ...] = (None, None, None, None)
    if standing is not None:
        others = (*standing.estimates[metric].at(place).cells[:3], standing.rank(metric, place))
    return (
        *counted.estimates[metric].at(place).cells[:3],
        counted.rank(metric, place),
        *others,
        counted.rank(metric, place, without.free) if place in without.free else None,
    )


PANEL_TABLES = (by_judge, agreement, confusion, noise, conflicts)
