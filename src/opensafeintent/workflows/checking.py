"""Check what a dataset controls for, and write it down."""

from __future__ import annotations

from pathlib import Path

from opensafeintent.construction.controls import DatasetCheck, check
from opensafeintent.errors import InputError
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import load_taxonomy

__all__ = ["DatasetCheck", "check_dataset", "write_check"]


def check_dataset(
    name: str,
    taxonomy: Path | None = None,
    *,
    out: Path | None = None,
    seed: int | None = None,
    max_rows: int | None = MOST_ROWS,
) -> DatasetCheck:
    """Check balance, parity of the intents, telling words, near-duplicates and paraphrases of a dataset.

    What is measured and how: docs/dataset-check.md. The same dataset and seed give the same result.

    Args:
        name: `starter`, a path, or `hf:owner/name[@revision]`.
        taxonomy: a TOML file of harm domains and task types, in place of the paper's.
        out: a folder to write `check.json`, `check.md` and `tables/` into; None writes nothing.
        seed: of the bootstrap and of the classifier's folds, from 0 to 2³² − 1; None takes the one of all intervals.
        max_rows: prompt-sets that the dataset may have; None sets no limit.

    Raises:
        InputError: there is no valid dataset under that name, the seed is not one, or `out` cannot be written.
    """
    dataset = load_dataset(name, load_taxonomy(taxonomy) if taxonomy else None, max_rows)
    if out is not None and out.is_file():  # said before the work, not after
        raise InputError(f"{out}: is a file; expected a folder")
    found = check(dataset) if seed is None else check(dataset, seed)
    if out is not None:
        write_check(found, out)
    return found


def write_check(found: DatasetCheck, out: Path) -> None:
    """Write a check into a folder: `check.json` for programs, `check.md` for people, and `tables/`.

    The files hold ids and single words, no prompts.

    Raises:
        InputError: they cannot be written.
    """
    from opensafeintent.report.metrics_json import to_json
    from opensafeintent.report.tables import write_tables
    from opensafeintent.report.tables.checks import check_page, check_tables

    make_private_folder(out)
    tables = check_tables(found)
    write_private(out / "check.json", to_json(found))
    write_private(out / "check.md", check_page(found, tables))
    write_tables(tables, out / "tables")
