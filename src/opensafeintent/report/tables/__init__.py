"""The tables of the paper and of a report, each once as rows; how they are written is a matter of
`report.formats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opensafeintent.analysis.groups import Group
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.report.formats import FORMATS
from opensafeintent.report.table import Cell, Column, Table
from opensafeintent.report.tables.by_judge import JUDGE_TABLES
from opensafeintent.report.tables.by_model import (
    harm_threshold,
    knowing,
    modes,
    probe,
    utility,
    utility_range,
)
from opensafeintent.report.tables.long import (
    comparisons,
    coverage,
    distributions,
    domains,
    metrics,
    reference,
    strata,
    task_types,
)
from opensafeintent.report.tables.paper import beside
from opensafeintent.report.tables.stability import wording
from opensafeintent.report.tables.swap import swap_table

__all__ = ["Cell", "Column", "Table", "all_tables", "tables_in", "write_tables"]

_TABLES = (
    *(domains, task_types, utility, harm_threshold, modes, utility_range, probe),
    *(comparisons, metrics, strata, distributions, coverage, reference),
)
_IF_ANY = (
    *(knowing, beside),
    *(wording, *JUDGE_TABLES, swap_table),
)
"""Those that are there only where they have something to tell."""
_NOT_ALWAYS = (
    *("paper", "wording", "judge_*", "swap"),
    "knowing",
    *("corrected*", "gates*", "cost"),
)
"""Their names, as patterns; and those of the tables that settings ask for."""


def all_tables(groups: Sequence[Group]) -> list[Table]:
    """Return every table that there is; with several groups, each is a row's `group`, numbered from
    1.
    """
    if_any = (table(groups) for table in _IF_ANY)
    return [*(table(groups) for table in _TABLES), *(table for table in if_any if table.rows)]


def tables_in(folder: Path) -> list[Path]:
    """Return the files in a folder of tables that not every report has."""
    return [
        path
        for name in _NOT_ALWAYS
        for ending in FORMATS
        for path in folder.glob(f"{name}.{ending}")
    ]


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """Write each table into a folder as `NAME.csv`, `NAME.md` and `NAME.tex`."""
    make_private_folder(folder)
    for table in tables:
        for ending, formatted in FORMATS.items():
            write_private(folder / f"{table.name}.{ending}", formatted(table))
