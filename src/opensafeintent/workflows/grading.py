"""Grade responses that were made elsewhere."""

from __future__ import annotations

from pathlib import Path

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import open_for_run
from opensafeintent.calls.progress import Display, Quiet
from opensafeintent.errors import InputError
from opensafeintent.evaluation.derive import given_tasks, imported_rows
from opensafeintent.evaluation.manifest import RunFolder, store_templates
from opensafeintent.evaluation.records import ModesScope
from opensafeintent.evaluation.run import ModelWork
from opensafeintent.interop.models import open_models
from opensafeintent.templates import ParseRule, Templates, load_templates
from opensafeintent.workflows.evaluating import EvaluateSettings
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import MAX_MISSING, Outcome
from opensafeintent.workflows.running import finish, named_models, other_judges, run_calls, without_silent
from opensafeintent.workflows.spreading.options import left_shards

__all__ = ["GradeSettings", "grade"]


class GradeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which run to grade, and how."""

    run: Path
    judges: tuple[str, ...]
    mode_judge: str | None = None
    max_connections: int | None = None
    judge_max_tokens: int = 2048
    modes: ModesScope = "dual_use"
    rubrics: Path | None = None
    grade_parse: ParseRule = "strict"
    max_missing: float = MAX_MISSING


def grade(settings: GradeSettings, display: Display | None = None) -> Outcome:
    """Let judges grade the responses of a run that came without grades.

    Raises:
        InputError: there is no run, or nothing in it to grade.
        Stopped: a provider ended the work; what was answered is kept.
    """
    folder = RunFolder(settings.run)
    templates = load_templates(settings.rubrics)
    folder.load()  # before the lock, which makes the folder
    display = display or Quiet()
    try:
        with folder.lock():
            outcome = run_async(lambda: _grade(settings, folder, templates, display))
    finally:
        display.close()
    outcome.notes[:0] = left_shards(folder.path)
    return outcome


async def _grade(settings: GradeSettings, folder: RunFolder, templates: Templates, display: Display) -> Outcome:
    manifest, dataset = folder.load()
    manifest = without_silent(folder, manifest, manifest.models)
    as_evaluation = EvaluateSettings(
        models=("imported",),
        judges=settings.judges,
        mode_judge=settings.mode_judge,
        max_connections=settings.max_connections,
        judge_max_tokens=settings.judge_max_tokens,
        modes=settings.modes,
        probe="none",
        rubrics=settings.rubrics,
        grade_parse=settings.grade_parse,
        max_missing=settings.max_missing,
        out=settings.run,
    )
    if manifest.judge_sampling not in (None, as_evaluation.judge_sampling):
        raise InputError(f"{settings.run}: its judges were given another --judge-max-tokens; give the same, or import anew")
    async with HttpSession(settings.max_connections) as http:
        opened = open_models(named_models((), settings.judges, settings.mode_judge), http)
        with open_for_run(folder.ledger_path(manifest), own=manifest.owns_ledger) as ledger:
            tasks = {
                model: given_tasks(rows, dataset)
                for model, rows in imported_rows(ledger, dataset).items()
                if model in manifest.models
            }
            if not any(tasks.values()):
                raise InputError(f"{settings.run}: no imported response is without grades")
            entries = {
                model: manifest.models[model].grown_by(
                    msgspec.structs.replace(as_evaluation.entry(manifest.models[model].identity, templates), imported=True)
                )
                for model, listed in tasks.items()
                if listed
            }
            manifest = msgspec.structs.replace(
                manifest,
                models=manifest.models | entries,
                judges=manifest.judges | {name: model.identity for name, model in opened.items()},
                judge_sampling=as_evaluation.judge_sampling,
                templates=manifest.templates | store_templates(templates),
            )
            opened |= other_judges(manifest, list(entries), opened, http)
            folder.save(manifest)
            client = Client(ledger, {**manifest.identities(), **opened})
            work = [
                ModelWork(model=model, plan=manifest.plan(model), templates=templates, tasks=tasks[model])
                for model in entries
            ]
            found = await run_calls(client, manifest, dataset, work, display, max_connections=settings.max_connections)
    return finish(folder, manifest, dataset, found, client, settings.max_missing, display)
