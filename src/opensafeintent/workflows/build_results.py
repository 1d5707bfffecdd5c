"""The files of a build: its dataset, its card, its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from opensafeintent.annotation.labels import Label
from opensafeintent.construction.controls import DatasetCheck
from opensafeintent.construction.folder import RESULTS, BuildFolder, BuildManifest
from opensafeintent.construction.pipeline import Built
from opensafeintent.files import read_text, to_json, write_private
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.cards import generated_source
from opensafeintent.promptsets.sources import CARD
from opensafeintent.replacing import replaced_together
from opensafeintent.report.costs import Costs, cost_json
from opensafeintent.report.dataset_findings import check
from opensafeintent.report.datasets import (
    CARD_MARK,
    build_card,
    build_page,
    coverage_of,
    marked_source,
)
from opensafeintent.report.formats import FORMATS
from opensafeintent.workflows.datasets import write_check

NAME = "dataset.jsonl"

FINISHED = 6
"""The stage from which on there is a dataset."""


class BuildResults(NamedTuple):
    """The dataset of a build."""

    dataset: Dataset | None
    """`dataset.jsonl`; None if the build ends before stage 6, or nothing was kept."""
    check: DatasetCheck | None
    notes: list[str]
    """Notes for a reader, a line each."""


def write_build_results(
    folder: BuildFolder,
    manifest: BuildManifest,
    built: Built,
    costs: Costs,
    *,
    remarks: Sequence[str] = (),
    judged: Sequence[Label] | None = None,
) -> BuildResults:
    """Write the results of a build: funnel, coverage, costs; the finished dataset, its check and
    card.

    The same build gives the same bytes, in a folder of any name. Files of earlier results that are
    not among these are removed. A card without our mark stays.

    Args:
        folder: the build's.
        manifest: models, settings, templates; saved as complete in the end.
        built: kept and dropped items of every stage.
        costs: of its calls.
        remarks: on the build, a line each.
        judged: the annotators' verdicts, good or poor, by set, if there were any.

    Raises:
        InputError: a file cannot be written.
    """
    folder.remove_later_stages(manifest.stages[1])
    dataset, checked = _dataset(manifest, built), None
    card = folder.path / CARD
    others = card.exists() and CARD_MARK not in read_text(card)
    obsolete = [path for path in _of_dataset(folder.path) if not (others and path == card)]
    with replaced_together(folder.path, lambda: obsolete) as new:
        write_private(new / "funnel.json", _json([stage.funnel_line() for stage in built.stages]))
        write_private(
            new / "coverage.json", _json([cell._asdict() for cell in coverage_of(built, manifest)])
        )
        write_private(new / "cost.json", cost_json(costs))
        write_private(new / "build.md", build_page(built, manifest, costs, remarks).encode())
        if dataset:
            checked = check(dataset)
            write_check(checked, new / "check")
            if not others:
                write_private(new / CARD, build_card(dataset, checked, built, manifest, judged))
            BuildFolder(new).write_dataset(dataset, built.finished)
    folder.save(
        msgspec.structs.replace(
            manifest, complete=True, dataset_hash=dataset.hash if dataset else None
        )
    )
    notes = [f"{card}: lacks the line of our cards, so it stays as it is"] if others else []
    return BuildResults(dataset, checked, notes)


def _of_dataset(folder: Path) -> list[Path]:
    """Return our files about the dataset of an earlier build."""
    names = (*RESULTS, CARD, "check/check.json", "check/check.md")
    tables = (folder / "check" / "tables").glob("*")
    return [
        *(folder / name for name in names),
        *(table for table in tables if table.suffix.removeprefix(".") in FORMATS),
    ]


def _json(content: object) -> bytes:
    return to_json(content, indent=2, sort_keys=False)


def _dataset(manifest: BuildManifest, built: Built) -> Dataset | None:
    """Return the finished prompt-sets, each with the canary that is made from all of them; None if
    there are none.
    """
    if not built.finished or manifest.stages[1] < FINISHED:
        return None
    source = generated_source(manifest.generator)
    unmarked = tuple(draft.prompt_set(source) for draft in built.finished)
    marked = marked_source(source, Dataset(NAME, unmarked, manifest.taxonomy).hash)
    finished = tuple(draft.prompt_set(marked) for draft in built.finished)
    return Dataset(NAME, finished, manifest.taxonomy)
