"""From a number to the responses behind it, and from a response to the calls in the ledger."""

from __future__ import annotations

from pathlib import Path

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.derive import RunTexts, TracedRow
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.grades import GradeRow
from opensafeintent.interop.inspect.logs_out import export_logs
from opensafeintent.promptsets import PromptSet
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import read_study
from opensafeintent.workflows.typed import Settings

__all__ = ["ExportSettings", "Trace", "TracedResponse", "export_inspect", "trace"]


class TracedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response of a prompt-set with its grades, its text, and the ledger rows behind them."""

    grades: GradeRow
    text: str | None
    """None where there is none."""
    rows: tuple[TracedRow, ...]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run holds of one prompt-set."""

    ledger: Path
    prompt_set: PromptSet
    responses: tuple[TracedResponse, ...]


def trace(run: Path, set_id: str) -> Trace:
    """Return every response to one prompt-set, with its grades and the ledger rows that they come from.

    Raises:
        InputError: there is no run, or no prompt-set of that id in it.
    """
    folder = RunFolder(run)
    manifest, dataset = folder.load()
    if set_id not in dataset.by_id:
        raise InputError(f"--set {set_id}: not a prompt-set of {dataset.name}; {nearest(set_id, dataset.by_id, shown=10)}")
    study = read_study(folder, run.name)
    ledger = folder.ledger_path(manifest)
    with RunTexts(manifest, dataset, ledger) as texts:
        rows = texts.trace(set_id)
        responses = []
        for grades in study.rows:
            if grades.set_id != set_id:
                continue
            key = (grades.model, grades.variant, grades.epoch)
            found = texts.find(grades.model, set_id, grades.variant, grades.epoch)
            behind = tuple(row for row in rows if (row.subject, row.variant, row.epoch) == key)
            responses.append(TracedResponse(grades=grades, text=found.text if found else None, rows=behind))
    return Trace(ledger=ledger, prompt_set=dataset.by_id[set_id], responses=tuple(responses))


class ExportSettings(Settings, frozen=True, kw_only=True):
    """Which run to export, and where to."""

    run: Path
    out: Path


def export_inspect(settings: ExportSettings) -> list[Path]:
    """Write a run as logs of Inspect AI, one `.eval` for each model, which `inspect view` opens.

    Raises:
        InputError: the extra `[inspect]` is missing, there is no run, or a log cannot be written.
    """
    return export_logs(RunFolder(settings.run), settings.out, run_async)
