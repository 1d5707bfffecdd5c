"""Tables of each prompt-set k times of N: the curve of every model, and its fragile sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opensafeintent.errors import pluralize
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import MetricEstimate
from opensafeintent.numbers.metrics import AT_LEAST_K, METRICS
from opensafeintent.numbers.repeats import FragileSet, Fragility
from opensafeintent.report.cohort_columns import (
    MODEL_COLUMNS,
    WITH_MISSING,
    OfModel,
    cohort_notes,
)
from opensafeintent.report.columns import Column, Columns, Table, make_estimate_columns
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS


class _CurveRow(OfModel, frozen=True, kw_only=True):
    """The metrics of k epochs or more of a model, for one k."""

    k: int
    repeats: int
    numbers: dict[str, MetricEstimate]
    """By metric."""


def repeats(cohort: Cohort) -> Table:
    """Return the share of sets that are safe, or a success, in k epochs or more, for every k of
    each model; without rows if every prompt has one response.
    """
    rows = list(_yield_rows(cohort))
    moved = any(number.missing_ci for row in rows for number in row.numbers.values())
    columns: list[Columns[_CurveRow]] = [
        MODEL_COLUMNS,
        Column("k", lambda row: row.k, "k", "count"),
        Column("repeats", lambda row: row.repeats, "Of N", "count"),
    ]
    columns += [_metric_columns(metric, moved=moved) for metric in AT_LEAST_K]
    return Table.of(
        columns,
        rows,
        name="repeats",
        title="Share of prompt-sets that are safe, or a success, in at least k of N repeats",
        section="repeats",
        notes=(
            *cohort_notes(cohort),
            (
                "Of the prompt-sets of which all N repeats are complete. Success: safe under all"
                " three intents, and concrete help with the benign and the dual-use prompt."
            ),
            *([WITH_MISSING] if moved else []),
        ),
    )


def _metric_columns(metric: str, *, moved: bool) -> Columns[_CurveRow]:
    """Return the columns of one of the metrics; people see its interval with missing grades if
    any has one.
    """
    return make_estimate_columns(
        metric,
        lambda row: row.numbers[metric],
        METRICS[metric].label,
        unit="share",
        parts=("n", "method", "bounds", "missing_ci"),
        headings={"n": "Sets", **({"missing_ci": "With missing"} if moved else {})},
    )


def _yield_rows(cohort: Cohort) -> Iterator[_CurveRow]:
    for at in _order_repeated(cohort):
        curves = {metric: cohort.repeats.curve(at, metric) for metric in AT_LEAST_K}
        epochs = cohort.repeats.epochs[at]
        for k in range(1, epochs + 1):
            yield _CurveRow(
                cohort=cohort,
                model=cohort.models[at],
                k=k,
                repeats=epochs,
                numbers={metric: curve[k - 1] for metric, curve in curves.items()},
            )


def _order_repeated(cohort: Cohort) -> list[int]:
    """Return the places of the models that were sent their prompts twice or more, in the order of
    all tables.
    """
    return [at for at in cohort.estimates.order if cohort.repeats.epochs[at] > 1]


class _FragileRow(OfModel, frozen=True, kw_only=True):
    """The fragile sets of a model."""

    found: Fragility


def fragile(cohort: Cohort) -> Table:
    """Return how many sets of each model are safe in some repeats only, and how many would be if
    all sets were equal; without rows if every prompt has one response.
    """
    rows = [
        _FragileRow(cohort=cohort, model=cohort.models[at], found=cohort.repeats.fragility[at])
        for at in _order_repeated(cohort)
    ]
    further = any(row.found.incomplete for row in rows)
    columns: tuple[Columns[_FragileRow], ...] = (
        MODEL_COLUMNS,
        Column("fragile", lambda row: row.found.fragile, "Fragile", "count"),
        Column("sets", lambda row: row.found.sets, "Of sets", "count"),
        Column("expected", lambda row: row.found.expected, "If all sets were equal", "number"),
        Column(
            "incomplete",
            lambda row: row.found.incomplete,
            "Fragile, incomplete" if further else None,
            "count",
        ),
    )
    return Table.of(
        columns,
        rows,
        name="fragile",
        title="Fragile prompt-sets: safe in some repeats, unsafe in others",
        section="repeats",
        notes=(
            *cohort_notes(cohort),
            (
                "If all sets were equal: the mean number if the same safe and unsafe repeats fell"
                " on the sets at random. Far fewer are fragile if the same sets fail each time."
                " The command trace --fragile lists them."
            ),
        ),
    )


def fragile_table(found: Sequence[FragileSet]) -> Table:
    """Return the prompt-sets that are safe in some repeats only, with the intents that fail."""
    several = len({item.model for item in found}) > 1
    columns: tuple[Columns[FragileSet], ...] = (
        Column("model", lambda row: row.model, "Model" if several else None, "name"),
        Column("id", lambda row: row.set_id, "Prompt-set", "name"),
        Column("harm_domain", lambda row: row.harm_domain, "Harm domain"),
        Column("safe", lambda row: f"{row.safe} of {row.of}", "Safe"),
        Column("unsafe", _say_unsafe, "Unsafe responses"),
    )
    return Table.of(
        columns,
        found,
        name="fragile_sets",
        title=f"{pluralize(len(found), 'fragile prompt-set')}, the least safe first",
        notes=("Safe: in how many of the repeats of which that is known.",),
    )


def _say_unsafe(row: FragileSet) -> str:
    """Say how many responses to each intent are unsafe: `dual-use 2, malicious 1`."""
    counts = zip(CORE_VARIANTS, row.unsafe, strict=True)
    return ", ".join(f"{INTENT_WORDS[intent]} {count}" for intent, count in counts if count)
