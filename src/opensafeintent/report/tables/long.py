"""Tables with a line for each number: complete, for programs and for figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import Number, numbers_of
from opensafeintent.report.tables.lead import LEAD, UNDEFINED, group_notes, judges_of, lead, shown_group
from opensafeintent.report.tables.record import Cell, Column, Table
from opensafeintent.statistics import rounded
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["comparisons", "coverage", "distributions", "metrics", "numbers_table", "strata"]

_NUMBER = ("value", "value_low", "value_high", "ci_method", "n", "bounds_low", "bounds_high", "models", "pooled")


def metrics(groups: Sequence[Group]) -> Table:
    """Return every metric of every model, and of their average."""
    found = ((number, item) for number, group in enumerate(groups) for item in numbers_of(group).every())
    return numbers_table(groups, "metrics", "Every metric of every model", found)


def strata(groups: Sequence[Group]) -> Table:
    """Return the main metrics by harm domain, by task type and by cell; the others are in `metrics.json`."""
    found = ((number, item) for number, group in enumerate(groups) for item in numbers_of(group).in_strata())
    return numbers_table(groups, "strata", "Main metrics by harm domain, by task type, and by both", found, by_stratum=True)


def numbers_table(
    groups: Sequence[Group],
    name: str,
    title: str,
    found: Iterable[tuple[int, Number]],
    *,
    by_stratum: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    """Return a line for each of some numbers, each with the place of its group.

    Args:
        groups: all of the report's.
        name, title: of the table.
        found: the numbers.
        by_stratum: whether they are of strata.
        notes: what a reader should know, beside what is said of every table.
    """
    rows = [
        (*lead(groups, place, item.model), *(item.stratum if by_stratum else ()), item.metric, *_cells(item))
        for place, item in found
    ]
    where = ("harm_domain", "task_type") if by_stratum else ()
    return Table(
        name=name,
        title=title,
        columns=(*LEAD, *where, "metric", *_NUMBER),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            *((Column("harm_domain", "Harm domain"), Column("task_type", "Task type")) if by_stratum else ()),
            Column("model", "Model", "name"),
            Column("metric", "Metric"),
            Column("value", "Value", "interval"),
            Column("n", "Sets", "count"),
            *(() if by_stratum else (Column("bounds", "If missing grades were worst – best", "span"),)),
        ),
        notes=(*group_notes(groups), *notes, UNDEFINED),
    )


def _cells(number: Number) -> tuple[Cell, ...]:
    low, high = number.bounds or (None, None)
    return (
        *(number.value, number.low, number.high, number.method, number.n),
        *(low, high, number.models, number.pooled),
    )


def comparisons(groups: Sequence[Group]) -> Table:
    """Return every two models' differences in the metrics that are compared, the one ranked higher first."""
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups):
        order = numbers_of(group).order
        pairs = [(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
        for metric, found in group.comparisons.items():
            for a, b in pairs:
                if found.n[a, b]:
                    values = (found.difference, found.low, found.high, found.n, found.p, found.p_holm, found.detectable)
                    cells = (_defined(value[a, b]) for value in values)
                    names = group.models[a], group.models[b], group.dataset.name, judges_of(group)
                    rows.append((number + 1, *names, metric, *cells))
    return Table(
        name="comparisons",
        title="Differences between every two models",
        columns=(
            *("group", "model_a", "model_b", "dataset", "judge", "metric"),
            *("difference", "difference_low", "difference_high", "n", "p", "p_holm", "detectable"),
        ),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("metric", "Metric"),
            Column("model_a", "Model A", "name"),
            Column("model_b", "Model B", "name"),
            Column("difference", "A − B", "signed"),
            Column("n", "Sets", "count"),
            Column("p", "p", "p"),
            Column("p_holm", "p (Holm)", "p"),
            Column("detectable", "Detectable", "number"),
        ),
        notes=(
            *group_notes(groups),
            "On the prompt-sets that count for both. Exact McNemar test for shares, sign-flip permutation for means; Holm's "
            "correction over all pairs within one metric. Triplet Safety and Mean Utility are primary. Detectable is the "
            "smallest difference found with a power of 80 %.",
            UNDEFINED,
        ),
    )


def _defined(value: float | np.number) -> Cell:
    """Return a number as `metrics.json` has it, None where it is undefined."""
    if isinstance(value, np.integer):
        return int(value)
    return None if np.isnan(value) else rounded(float(value))


def distributions(groups: Sequence[Group]) -> Table:
    """Return how often each grade was given to the responses of each intent."""
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups):
        for place in numbers_of(group).order:
            for intent in CORE_VARIANTS:
                for what, grades in (("helpfulness", range(1, 5)), ("harm_severity", range(4))):
                    given = group.array[what].sel(variant=intent).values[place]
                    n = int((~np.isnan(given)).sum())
                    for grade in grades:
                        times = int((given == grade).sum())
                        share = times / n if n else None
                        rows.append((*lead(groups, number, group.models[place]), intent, what, grade, times, n, share))
    return Table(
        name="grade_distributions",
        title="Grades given to the responses of each intent",
        columns=(*LEAD, "intent", "what", "grade", "responses", "n", "share"),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("model", "Model", "name"),
            Column("intent", "Intent"),
            Column("what", "Grade of"),
            Column("grade", "Grade", "count"),
            Column("responses", "Responses", "count"),
            Column("share", "Share", "share"),
        ),
        notes=group_notes(groups),
    )


def coverage(groups: Sequence[Group]) -> Table:
    """Return what was planned and what is there of each model."""
    fields = {
        **{"sets": "Sets", "complete_triplets": "Complete triplets", "planned": "Planned", "responses": "Responses"},
        **{"counted": "Graded", "missing_core": "Core grades missing", "missing_paraphrase": "Paraphrase grades missing"},
        **{"not_graded": "Not graded", "filtered": "Filtered", "empty": "Empty", "truncated": "Truncated"},
    }
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups):
        for model in numbers_of(group).models:
            found = group.coverage[model]
            reasons = "; ".join(
                f"{kind} {reason}: {count}" for kind, counts in found.missing.items() for reason, count in counts.items()
            )
            rows.append((*lead(groups, number, model), *(getattr(found, field) for field in fields), reasons))
    return Table(
        name="coverage",
        title="What was planned, what is there, and why grades are missing",
        columns=(*LEAD, *fields, "reasons"),
        rows=tuple(rows),
        shown=(
            *shown_group(groups),
            Column("model", "Model", "name"),
            *(
                Column(field, heading, "share" if field.startswith("missing") else "count")
                for field, heading in fields.items()
            ),
            Column("reasons", "Reasons"),
        ),
        notes=group_notes(groups),
    )
