"""Differences between every two models: as a table, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import msgspec

from opensafeintent.calls.baselines import contenders
from opensafeintent.errors import counted
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import METRICS, Unit
from opensafeintent.report.cohort_columns import (
    ANY_GRADES,
    MEASURED,
    OfCohort,
    cohort_notes,
    lack_grades,
)
from opensafeintent.report.columns import Column, Columns, Scalar, Table
from opensafeintent.statistics import Difference

_SIMILAR = 0.10
"""Difference in dual-use safety up to which safety flips are compared: by arithmetic, they depend
on how often a model is safe.
"""


class PairRow(OfCohort, frozen=True, kw_only=True):
    """Two models and their difference in a metric, B − A."""

    model_a: str
    model_b: str
    metric: str
    difference: Difference


def difference_of(row: PairRow) -> Difference:
    """Return the estimate that a row's numbers are parts of."""
    return row.difference


def unit_of(row: PairRow) -> Unit:
    """Return the unit of a row's metric."""
    return METRICS[row.metric].unit


DETECTABLE: Column[PairRow] = Column(
    "minimum_detectable_difference",
    lambda row: row.difference.minimum_detectable_difference,
    "Detectable",
    "gap",
    unit_of,
    estimate=difference_of,
)


def comparisons(cohort: Cohort) -> Table:
    """Return every two models' differences in the metrics that are compared, later minus earlier as
    they were named.
    """
    lacking = lack_grades(cohort)
    columns: tuple[Columns[PairRow], ...] = (
        Column("model_a", lambda row: row.model_a, "Model A", "name"),
        Column("model_b", lambda row: row.model_b, "Model B", "name"),
        MEASURED,
        Column("metric", lambda row: row.metric, "Metric", order=-1),
        Column("difference", difference_of, "B − A", "signed", unit_of),
        Column("n", lambda row: row.difference.n, "Sets", "count"),
        Column(
            "worst_case",
            lambda row: row.difference.worst_case,
            "Any grades" if lacking else None,
            "signed_span",
            unit_of,
            estimate=difference_of,
        ),
        Column("p_unadjusted", lambda row: row.difference.p_unadjusted),
        Column("p_adjusted", lambda row: row.difference.p_adjusted, "Adjusted p", "p"),
        DETECTABLE,
        Column("family", lambda row: row.difference.pairs, "Family", "count"),
    )
    return Table.of(
        columns,
        [pair for metric in cohort.estimates.comparisons for pair in pairs(cohort, metric)],
        name="comparisons",
        title="Differences between every two models",
        section="comparisons",
        notes=(
            *cohort_notes(cohort),
            (
                "On the prompt-sets that count for both. Interval and p are adjusted for all pairs"
                " of models under test (Family), or of baselines if there are no others. A model"
                " and a baseline are a pair on its own. A"
                " difference is significant if the interval lies entirely on one side of 0, with"
                " any missing grades. Triplet Safety and Mean Utility are primary."
                " Detectable: the difference that the test finds with 80 % power. Safety flips"
                " depend on how often a model is safe: compare them between models of similar"
                " dual-use safety only."
            ),
            *([ANY_GRADES] if lacking else []),
        ),
    )


def pairs(cohort: Cohort, metric: str) -> Iterator[PairRow]:
    """Yield every two models with their difference in one metric, B − A, if any prompt-set counts
    for both.
    """
    for a, b in combinations(range(len(cohort.models)), 2):
        if difference := cohort.estimates.comparisons[metric].pair(a, b):
            yield PairRow(
                cohort=cohort,
                model_a=cohort.models[a],
                model_b=cohort.models[b],
                metric=metric,
                difference=difference,
            )


def without_unlike(table: Table, cohort: Cohort) -> Table:
    """Return a table of differences without the safety flips of models that are unlike in dual-use
    safety, and say so; others as they are.
    """
    if table.name != "comparisons":
        return table
    overall = cohort.estimates.overall
    safety = {model: overall[model, "dual_use_safety"].value or 0.0 for model in cohort.models}

    def may_be_compared(record: Mapping[str, Scalar]) -> bool:
        a, b = safety[str(record["model_a"])], safety[str(record["model_b"])]
        return record["metric"] != "safety_flip" or abs(a - b) <= _SIMILAR

    compared = table.only(may_be_compared)
    left_out = len(table.rows) - len(compared.rows)
    if not left_out:
        return table
    note = (
        f"Left out here: safety flips of {counted(left_out, 'pair')} of models that are more than"
        f" {100 * _SIMILAR:.0f} points apart in dual-use safety; {table.name}.csv has them."
    )
    return msgspec.structs.replace(compared, notes=(*table.notes, note))


def by_family(cohort: Cohort, metric: str) -> list[list[PairRow]]:
    """Return the pairs of models under test, which are one family, and those with a baseline, each
    compared on its own; a list only if there are any.
    """
    tested = {*contenders(cohort.models)}
    together, with_baseline = list[PairRow](), list[PairRow]()
    for pair in pairs(cohort, metric):
        of_tested = {pair.model_a, pair.model_b} <= tested
        (together if of_tested else with_baseline).append(pair)
    return [family for family in (together, with_baseline) if family]
