"""Write what a build came to: the page, figures, tables, the check, and the dataset card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opensafeintent.calls.models import Price
from opensafeintent.construction.controls import check
from opensafeintent.construction.folder import BuildFolder, BuildManifest, Cost
from opensafeintent.construction.pipeline import Built
from opensafeintent.files import write_private
from opensafeintent.people.labels import Label
from opensafeintent.promptsets import Dataset
from opensafeintent.report.built import (
    FIGURE_FILES,
    TABLE_NAMES,
    BuildResults,
    Reviewed,
    build_figures,
    build_tables,
    card,
    likeness_of,
    render_build_page,
)
from opensafeintent.report.figures import write_figures
from opensafeintent.report.formats import FORMATS
from opensafeintent.report.tables import write_tables
from opensafeintent.report.tables.checks import check_tables
from opensafeintent.workflows.checking import write_check

__all__ = ["reviewed_by", "write_build_results"]

_NAME = "dataset.jsonl"


def write_build_results(
    folder: BuildFolder,
    manifest: BuildManifest,
    built: Built,
    costs: Sequence[Cost],
    *,
    remarks: Sequence[str] = (),
    dataset: Dataset | None = None,
    reviewed: Reviewed | None = None,
    prices: dict[str, Price] | None = None,
) -> None:
    """Write `build.html`, `figures/` and `tables/`, and of a finished dataset `README.md` and `check/`.

    The same build gives the same bytes, whatever its folder is called; in another folder PDF files differ, as the converter
    writes their parts in an order of its own. What earlier results had and these have not is taken away.

    Args:
        folder: the build's.
        manifest: models, settings, templates.
        built: what every stage kept and dropped.
        costs: of the calls behind it.
        remarks: what the build says of itself, a line each.
        dataset: where the build came so far.
        reviewed: what people said of it, where they were asked.
        prices: dollars for tokens, where they are known.

    Raises:
        InputError: a file cannot be written.
    """
    named = Dataset(_NAME, dataset.prompt_sets, dataset.taxonomy) if dataset else None
    found = check(named) if named else None
    results = BuildResults(
        manifest,
        built,
        costs,
        remarks=remarks,
        dataset=named,
        check=found,
        check_tables=check_tables(found) if found else (),
        likeness=likeness_of(named) if named else None,
        reviewed=reviewed,
        prices=prices,
    )
    path = folder.path
    tables, figures = build_tables(results), build_figures(results)
    write_tables(tables, path / "tables")
    write_figures(figures, path / "figures")
    if found and named:
        write_check(found, path / "check")
        write_private(path / "README.md", card(results, named))
    else:
        _remove_dataset_results(path)
    _remove_stale(path, {table.name for table in tables}, {figure.name for figure in figures})
    page_tables = [*tables, *(table for table in results.check_tables.values() if table.name != "cells")]
    write_private(path / "build.html", render_build_page(results, page_tables, figures, path / "figures"))


def reviewed_by(labels: Sequence[Label]) -> Reviewed:
    """Count who said of how many prompt-sets whether they are good."""
    told = [
        label
        for label in labels
        if label.kind == "dataset_quality" and not label.repeat and label.answers.get("overall_quality") in ("good", "poor")
    ]
    return Reviewed(len({label.annotator for label in told}), len({label.id for label in told}))


def _remove_stale(path: Path, tables: set[str], figures: set[str]) -> None:
    for name in TABLE_NAMES:
        if name not in tables:
            for ending in FORMATS:
                (path / "tables" / f"{name}.{ending}").unlink(missing_ok=True)
    for name in FIGURE_FILES:
        if name.partition(".")[0] not in {*figures, "captions"}:
            (path / "figures" / name).unlink(missing_ok=True)


def _remove_dataset_results(path: Path) -> None:
    """Take away what is said of a dataset that is not there any more, and nothing that is not ours."""
    for name in ("README.md", "check/check.json", "check/check.md"):
        (path / name).unlink(missing_ok=True)
    for ending in FORMATS:
        for table in (path / "check" / "tables").glob(f"*.{ending}"):
            table.unlink()
    for left in ("check/tables", "check"):
        if (path / left).is_dir() and not any((path / left).iterdir()):
            (path / left).rmdir()
