"""The table of components of variance: where more calls would narrow an interval most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isinf, isnan, sqrt
from typing import NamedTuple

from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import METRICS, Unit
from opensafeintent.numbers.spending import MetricComponents, find_spending
from opensafeintent.report.cohort_columns import cohort_notes
from opensafeintent.report.columns import Column, Columns, Table
from opensafeintent.statistics import round_number
from opensafeintent.statistics.components import Components


class _ComponentRow(NamedTuple):
    """One component of the variance of one metric."""

    metric: str
    component: str
    variance: float
    """Of one set, wording, repeat or judge."""
    draws: int
    """How many of them the value is a mean of."""
    total: float
    """The variance of the value."""
    option: str = ""
    """What would reduce the component, if it is not more prompt-sets alone."""
    worth: float | None = None
    """The further prompt-sets that would narrow the interval as much."""


def variance_components(cohort: Cohort) -> Table:
    """Return the components of the variance of each primary metric, and what more judges, epochs,
    wordings and prompt-sets would change; without rows if only that between sets is known.
    """
    found = find_spending(cohort)
    rows = [row for item in found for row in _component_rows(item)]
    columns: tuple[Columns[_ComponentRow], ...] = (
        Column("metric", lambda row: METRICS[row.metric].label, "Metric", "name"),
        Column("component", lambda row: row.component, "Between", "name"),
        Column("sd", lambda row: round_number(sqrt(row.variance)), "SD of one", "gap", _unit),
        Column("draws", lambda row: row.draws, "Number", "count"),
        Column(
            "share",
            lambda row: round_number(row.variance / row.draws / row.total),
            "Share of the variance",
            "share",
        ),
        Column("option", lambda row: row.option or None, "To reduce it"),
        Column(
            "worth",
            lambda row: None if row.worth is None else _count(row.worth),
            "Worth, in further prompt-sets",
        ),
    )
    return Table.of(
        columns,
        rows,
        name="variance_components",
        title="Where the variance of a value comes from",
        section="precision",
        notes=(
            *_say_best(rows),
            *_say_units(found),
            (
                "Of a model’s value, with several judges of their mean, on the complete"
                " prompt-sets, on average over the models under test. SD of one: how far one"
                " prompt-set, wording, repeat or judge lies from the mean of all. Repeats need two"
                " epochs, judges two judges (two or three tell it roughly), wordings the"
                " paraphrases."
            ),
            *cohort_notes(cohort),
        ),
    )


def _unit(row: _ComponentRow) -> Unit:
    return METRICS[row.metric].unit


def _component_rows(item: MetricComponents) -> Iterator[_ComponentRow]:
    found, metric = item.components, item.metric
    sets, judges = found.sets, found.judges
    averaged = "the mean over the wordings" if metric == "triplet_safety" else ""
    for component, variance, draws, option, then in (
        (_name_units(found), found.by_set, found.units, "", 0.0),
        ("wordings of a set", found.wording, sets, averaged, found.with_all_wordings),
        (
            "repeats of a set",
            found.repeat,
            sets * found.epochs,
            "twice the epochs",
            found.with_twice_the_epochs,
        ),
        ("judges", found.judge, judges, "one more judge", found.with_another_judge),
        ("judges, from set to set", found.judge_by_set, found.units * judges, "", 0.0),
    ):
        if not isnan(variance):
            worth = found.count_sets(then) if option else None
            yield _ComponentRow(metric, component, variance, draws, found.variance, option, worth)


def _name_units(found: Components) -> str:
    return "prompt-sets" if found.units == found.sets else "families"


def _say_units(found: Sequence[MetricComponents]) -> Iterator[str]:
    """Say that families are the units, if they are."""
    if any(item.components.units < item.components.sets for item in found):
        yield (
            "Families of prompt-sets are the units, a prompt-set without one being its own. Further"
            " prompt-sets are counted in families as large."
        )


def _say_best(rows: list[_ComponentRow]) -> Iterator[str]:
    """Yield a sentence for each metric on what would narrow its interval most, apart from
    prompt-sets, if that is worth one or more.
    """
    for metric in dict.fromkeys(row.metric for row in rows):
        known = [(row.worth or 0.0, row.option) for row in rows if row.metric == metric]
        worth, option = max(known)
        if worth >= 1:
            amount = _count(worth) if isinf(worth) else f"as much as {_count(worth)}"
            yield (
                f"{option[0].upper()}{option[1:]} would narrow the interval of"
                f" {METRICS[metric].label} {amount} further prompt-sets."
            )


def _count(sets: float) -> str:
    """Return a number of prompt-sets with two digits."""
    return "more than any number of" if isinf(sets) else f"{float(f'{sets:.2g}'):,.0f}"
