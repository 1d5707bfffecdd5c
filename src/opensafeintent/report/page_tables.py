"""What the page has of the tables in files: no numbers that a figure shows, and rows that lead."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import msgspec

from opensafeintent.errors import pluralize
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import AVERAGE
from opensafeintent.numbers.judges import ALL_TESTED
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.report.cohort_columns import ABOUT_HOLDS_TO
from opensafeintent.report.columns import Scalar, Table

SIMILAR = 0.10
"""Difference in dual-use safety up to which safety flips are compared: by arithmetic, they depend
on how often a model is safe.
"""

_DRAWN = {
    "repeats": "fig_repeats",
    "probe": "fig_4_failures",
    "stated_policy": "fig_stated_policy",
}
"""Tables whose numbers a figure shows, with that figure."""


def shorten_for_page(table: Table, cohort: Cohort, drawn: Container[str]) -> Table | None:
    """Return what the page has of a table, None if figures of the page show its numbers.

    Args:
        table: as files have it.
        cohort: the models.
        drawn: the names of the page's figures.
    """
    if _DRAWN.get(table.name) in drawn:
        return None
    shorten = _SHORTENED.get(table.name)
    return shorten(table, cohort) if shorten else table


def _drop_undecided(table: Table, cohort: Cohort) -> Table:
    """Return differences in the leading metrics, and the significant ones in others; of safety
    flips only those of models that are similar in dual-use safety.
    """
    overall = cohort.estimates.overall
    safety = {model: overall[model, "dual_use_safety"].value or 0.0 for model in cohort.models}

    def leads(record: Mapping[str, Scalar]) -> bool:
        if record["metric"] in cohort.scope.primary:
            return True
        apart = abs(safety[str(record["model_a"])] - safety[str(record["model_b"])])
        return _excludes_zero(record) and (record["metric"] != "safety_flip" or apart <= SIMILAR)

    return _keep_rows(
        table,
        leads,
        "differences that are not significant in a metric that does not lead, and safety flips of"
        f" models more than {100 * SIMILAR:.0f} points apart in dual-use safety",
    )


def _excludes_zero(record: Mapping[str, Scalar]) -> bool:
    """Tell whether a difference is significant, whatever the missing grades are."""
    low, high = record["missing_ci_low"], record["missing_ci_high"]
    return isinstance(low, float) and isinstance(high, float) and (low > 0 or high < 0)


def _keep_average_shift(table: Table, cohort: Cohort) -> Table:
    """Return the shifts of judges in the leading metrics, on average over the models."""
    labels = {METRICS[metric].label for metric in cohort.scope.primary}
    averaged = any(record["model"] == AVERAGE for record in table.records())
    return _keep_rows(
        table,
        lambda record: record["metric"] in labels and (record["model"] == AVERAGE or not averaged),
        "metrics and single models",
    )


def _keep_all_tested(table: Table, _: Cohort) -> Table:
    """Return the responses that change sides, of all models together."""
    several = any(record["model"] == ALL_TESTED for record in table.records())
    return _keep_rows(
        table, lambda record: record["model"] == ALL_TESTED or not several, "single models"
    )


def _keep_rows(table: Table, keep: Callable[[Mapping[str, Scalar]], bool], other: str) -> Table:
    """Return some rows of a table, and say which its file has beside them."""
    kept = table.only(keep)
    left_out = len(table.rows) - len(kept.rows)
    if not kept.rows or not left_out:
        return table
    turns = any(record.get("turning_odds") is not None for record in kept.records())
    notes = tuple(note for note in table.notes if turns or note != ABOUT_HOLDS_TO)
    note = f"{table.name}.csv has {pluralize(left_out, 'further row')}: {other}."
    return msgspec.structs.replace(kept, notes=(*notes, note))


def _hide_rates_by_mode(table: Table, _: Cohort) -> Table:
    """Return the shares of modes: a figure has the unsafe rates."""
    rates = (field for field in table.fields if field.startswith("unsafe_rate"))
    shares = table.hide_columns(*rates)
    return msgspec.structs.replace(shares, title=table.title.replace(", with unsafe rates", ""))


def _hide_zeros(table: Table, _: Cohort) -> Table:
    """Return what was obtained, without a column for what no model lacks."""
    records = table.records()
    nothing = [
        field
        for field in table.fields
        if field not in ("model", "sets", "counted") and not any(row[field] for row in records)
    ]
    return table.hide_columns(*nothing)


_SHORTENED: dict[str, Callable[[Table, Cohort], Table]] = {
    "comparisons": _drop_undecided,
    "judge_shift": _keep_average_shift,
    "judge_shift_sides": _keep_all_tested,
    "table_5_modes": _hide_rates_by_mode,
    "coverage": _hide_zeros,
}
"""By table, what the page has of it."""
