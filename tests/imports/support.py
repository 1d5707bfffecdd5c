"""What tests of formats of responses share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opensafeintent import ImportSettings, RunOutcome, import_files
from opensafeintent.calls.ledger import Ledger


def taken_in(out: Path, *paths: Path, dataset: str = "starter", **settings: Any) -> RunOutcome:
    """Import files into a run."""
    return import_files(
        ImportSettings(files=paths, out=out, dataset=dataset, max_missing=1, **settings)
    )


def texts(run: Path) -> dict[tuple[str, str, str, int], str | None]:
    """Read the imported responses of a run, by model, set, variant and epoch."""
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return {
            (row.model, row.set_id, row.variant, row.epoch): row.response
            for row in ledger.imports.rows()
        }
