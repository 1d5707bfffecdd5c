"""Rows of numbers as data frames of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import EVERYWHERE, MetricEstimate
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.errors import InputError, install_extra
from opensafeintent.report.columns import Table
from opensafeintent.taxonomy import SCALES

if TYPE_CHECKING:
    import pandas as pd


_WHOLE = ("group", "epoch", "n", "models", "family", *SCALES, "ledger_row", "judge_shift_n")

_REAL = (
    "value",
    "bounds",
    "worst_case",
    "pooled",
    "rerun_se",
    "difference",
    "p_unadjusted",
    "p_adjusted",
    "minimum_detectable_difference",
    "direct",
    "second_turn",
    "effect",
    "lock_in",
    "opened_up",
    "judge_shift",
)

_TRUE = ("truncated", "prompt_hidden", "response_hidden", "quotes_hidden", "partial")


def metric_estimates(cohort: Cohort) -> list[MetricEstimate]:
    """Return the numbers of a cohort over all prompt-sets."""
    wordings = [
        MetricEstimate.of(wording.excess, wording.model, "paraphrase_effect")
        for wording in cohort.wordings
    ]
    return [*cohort.estimates.overall_and_averages(), *wordings]


def stratum_estimates(cohort: Cohort) -> list[MetricEstimate]:
    """Return the numbers of a cohort by harm domain and by task type."""
    averages = [
        number
        for (_, stratum), number in cohort.estimates.averages.items()
        if stratum != EVERYWHERE
    ]
    return [*cohort.estimates.strata.values(), *averages]


def model_kind(number: MetricEstimate) -> str:
    """Return what a number is of: a model, a baseline, or an average of models."""
    if number.models is not None:
        return "average"
    return "baseline" if is_baseline(number.model) else "model"


def table_frame(table: Table) -> pd.DataFrame:
    """Return a table of the report as a frame."""
    return data_frame(table.fields, [tuple(record.values()) for record in table.records()])


def data_frame(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """Return lines as a frame whose column types do not depend on the content."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError(f"data frames need an extra: {install_extra('frames')}") from error
    frame = pd.DataFrame(list(map(tuple, lines)), columns=list(columns), dtype=object)
    return frame.astype({column: column_type(column) for column in columns})


def column_type(column: str) -> str:
    """Return the type that pandas gives to a column, by its name."""
    base = column.partition("[")[0].removesuffix("_low").removesuffix("_high")
    if base in _WHOLE:
        return "Int64"
    if base in _REAL:
        return "float64"
    return "boolean" if base in _TRUE else "object"
