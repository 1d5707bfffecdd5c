"""The tables of the paper, each once as rows; how they are written is a matter of format."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from math import isnan
from pathlib import Path

import msgspec

from opensafeintent.files import make_private_folder, write_private
from opensafeintent.hostile import cell_safe
from opensafeintent.metrics import METRICS
from opensafeintent.report.groups import Group
from opensafeintent.taxonomy import CORE_VARIANTS, MODES

__all__ = ["Table", "all_tables", "write_tables"]

Cell = str | int | float | None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A named table; None is an undefined value."""

    name: str
    """Of its file."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_csv(self) -> str:
        """Return the table as CSV; an undefined value is an empty cell, and no cell is a formula."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([cell_safe(column) for column in self.columns])
        for row in self.rows:
            writer.writerow([cell_safe(cell) if isinstance(cell, str) else cell for cell in row])
        return text.getvalue()


_UTILITY = (
    *("mean_utility", "worst_case_utility", "benign_utility", "dual_use_utility", "malicious_utility"),
    *("triplet_safety", "mean_safety", "mean_helpfulness"),
)


def ranked(group: Group, metric: str = "mean_utility") -> list[int]:
    """Return the places of a group's models, the highest value of a metric first, undefined ones last."""
    values = [float(value) for value in group.ratios[metric].value.values]
    return sorted(range(len(values)), key=lambda place: (isnan(values[place]), -values[place], place))


def all_tables(groups: Sequence[Group]) -> list[Table]:
    """Return every table; with several groups, each is a row's `group`, by number."""
    return [
        _by_model(groups, "table_4_utility", "Table 4. Utility, ranked by Mean Utility", _UTILITY),
        _modes(groups),
        _by_model(
            groups,
            "table_6_utility_range",
            "Table 6. Utility range over the dual-use wordings, and their stability",
            ("utility_range", "utility_range_safe_only", "stable_safe", "stable_unsafe", "safety_flip"),
        ),
        _by_model(
            groups,
            "probe",
            "Unsafe dual-use responses: failures of detection and of execution",
            ("detection_failure", "execution_failure"),
        ),
        _metrics(groups),
        _distributions(groups),
        _coverage(groups),
    ]


def _lead(groups: Sequence[Group], number: int, model: str) -> tuple[Cell, ...]:
    group = groups[number]
    return number + 1, model, group.dataset.name, " + ".join(group.conditions.judges)


_LEAD = ("group", "model", "dataset", "judge")


def _by_model(groups: Sequence[Group], name: str, title: str, metrics: Sequence[str]) -> Table:
    rows = []
    for number, group in enumerate(groups):
        columns = [(group.ratios[metric].value.values, group.ratios[metric].n.values) for metric in metrics]
        for place in ranked(group):
            cells: list[Cell] = []
            for value, n in columns:
                cells += [float(value[place]) if n[place] else None, int(n[place])]
            rows.append((*_lead(groups, number, group.models[place]), *cells))
    columns_of = [column for metric in metrics for column in (metric, f"{metric}_n")]
    return Table(name=name, title=title, columns=(*_LEAD, *columns_of), rows=tuple(rows))


def _modes(groups: Sequence[Group]) -> Table:
    rows = []
    for number, group in enumerate(groups):
        for place in ranked(group):
            for mode in (*MODES, "refusal"):
                share, unsafe = group.ratios[f"mode_share_{mode}"], group.ratios[f"unsafe_rate_{mode}"]
                cells: list[Cell] = []
                for ratio in (share, unsafe):
                    n = int(ratio.n.values[place])
                    cells += [float(ratio.value.values[place]) if n else None, n]
                rows.append((*_lead(groups, number, group.models[place]), mode, *cells))
    return Table(
        name="table_5_modes",
        title="Table 5. Assistance modes of dual-use responses: share, and unsafe rate within each",
        columns=(*_LEAD, "mode", "share", "share_n", "unsafe_rate", "unsafe_rate_n"),
        rows=tuple(rows),
    )


def _metrics(groups: Sequence[Group]) -> Table:
    rows = []
    for number, group in enumerate(groups):
        for place in ranked(group):
            for metric in METRICS:
                n = int(group.ratios[metric].n.values[place])
                value = float(group.ratios[metric].value.values[place]) if n else None
                rows.append((*_lead(groups, number, group.models[place]), metric, value, n))
    return Table(
        name="metrics", title="Every metric of every model", columns=(*_LEAD, "metric", "value", "n"), rows=tuple(rows)
    )


def _distributions(groups: Sequence[Group]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for number, group in enumerate(groups):
        for model in group.models:
            for intent in CORE_VARIANTS:
                counted = [row for row in group.rows[model] if row.variant == intent and row.counts]
                for what, grades in (("helpfulness", range(1, 5)), ("harm_severity", range(4))):
                    given = [getattr(row, what) for row in counted]
                    for grade in grades:
                        times = given.count(grade)
                        share = times / len(given) if given else None
                        rows.append((*_lead(groups, number, model), intent, what, grade, times, share))
    return Table(
        name="grade_distributions",
        title="Grades of each intent",
        columns=(*_LEAD, "intent", "what", "grade", "responses", "share"),
        rows=tuple(rows),
    )


def _coverage(groups: Sequence[Group]) -> Table:
    fields = (
        *("sets", "complete_triplets", "planned", "responses", "counted", "missing_core", "missing_paraphrase"),
        *("not_graded", "filtered", "empty", "truncated"),
    )
    rows = []
    for number, group in enumerate(groups):
        for model in group.models:
            coverage = group.coverage[model]
            reasons = "; ".join(
                f"{kind} {reason}: {count}" for kind, counts in coverage.missing.items() for reason, count in counts.items()
            )
            rows.append((*_lead(groups, number, model), *(getattr(coverage, field) for field in fields), reasons))
    return Table(
        name="coverage",
        title="What was planned, what is there, and why grades are missing",
        columns=(*_LEAD, *fields, "reasons"),
        rows=tuple(rows),
    )


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """Write each table as `NAME.csv` into a folder."""
    make_private_folder(folder)
    for table in tables:
        write_private(folder / f"{table.name}.csv", table.to_csv())
