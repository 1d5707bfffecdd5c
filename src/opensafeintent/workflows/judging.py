"""Check judges on the anchor cases before they are relied on; let them grade responses that were
made elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.analysis.groups import accepted_at_lines
from opensafeintent.calls.client import Client, Tally
from opensafeintent.calls.draining import under_way
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, shown
from opensafeintent.calls.spending import spent_of
from opensafeintent.errors import InputError, JudgeFailed
from opensafeintent.evaluation.derive import given_tasks, imported_rows
from opensafeintent.evaluation.forecast import Forecast, expected_calls, forecast, forecast_swaps
from opensafeintent.evaluation.judge_check import (
    GRADE_NAMES,
    Examination,
    JudgeCheck,
    check_work,
    load_anchors,
    verdict,
    with_checks,
)
from opensafeintent.evaluation.manifest import Manifest, RunFolder, store_templates
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.records import GradedResponse
from opensafeintent.evaluation.replay import replay
from opensafeintent.evaluation.run import run_work
from opensafeintent.files import locked_folder, write_private
from opensafeintent.interop.inspect.models import model_identity, open_models, unset_lines
from opensafeintent.promptsets import Dataset
from opensafeintent.report.cost import Costs, cost_json
from opensafeintent.templates import Templates
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import Outcome
from opensafeintent.workflows.running import finish, other_judges, run_calls, without_silent
from opensafeintent.workflows.settings import GradeSettings, JudgeCheckSettings, Limits

_SCHEMA = 1


class JudgeChecks(msgspec.Struct, kw_only=True):
    """What a check found, and how it ended."""

    exit_code: int
    """0 every judge passed; 4 one did not."""
    out: Path
    """The file with every result."""
    checks: tuple[JudgeCheck, ...]
    notes: list[str]
    """What a reader should know, a line each."""
    tally: Tally
    forecast: Forecast | None = None
    """Of a dry run, which checks nothing."""
    costs: Costs | None = None


def check_judges(settings: JudgeCheckSettings, display: Display | None = None) -> JudgeChecks:
    """Put the anchor cases to judges, and hold what they say against what the rubrics allow.

    Running again is resuming: what the ledger holds is not asked for again.

    Raises:
        InputError: something in the settings is not usable.
        Stopped: a provider ended the check; what was answered is kept.
    """
    examination = Examination(
        anchors=load_anchors(),
        duties=dict.fromkeys(settings.judges, GRADE_NAMES),
        templates=settings.judge_templates(),
        parse=settings.grade_parse,
        sampling=settings.judge_sampling,
        pass_mark=settings.pass_mark,
    )
    if settings.dry_run:
        return _foretold(settings, examination)
    limits, shown = settings.limits(), display or Display()
    with locked_folder(settings.out, "checking a judge into", settings.waiting(shown)):
        return run_async(lambda: _check(settings, examination, shown, limits))


def _ledger_of(settings: JudgeCheckSettings) -> Path:
    return settings.ledger or settings.out / "ledger.sqlite"


def _foretold(settings: JudgeCheckSettings, examination: Examination) -> JudgeChecks:
    """Count the calls of a check that the ledger does not hold."""
    identities = {name: model_identity(name) for name in examination.duties}
    with Ledger(_ledger_of(settings), readonly=True, missing_ok=True) as ledger:
        found = forecast(ledger, identities, check_work(examination))
    return JudgeChecks(
        exit_code=0,
        out=settings.out,
        checks=(),
        notes=unset_lines(identities),
        tally=Tally(),
        forecast=msgspec.structs.replace(found, connections=settings.max_connections),
    )


async def _check(
    settings: JudgeCheckSettings, examination: Examination, display: Display, limits: Limits
) -> JudgeChecks:
    async with HttpSession(settings.max_connections) as http:
        opened = open_models(examination.duties, http)
        settings.check_budget(opened)
        identities = {name: model.identity for name, model in opened.items()}
        with Ledger(_ledger_of(settings), waiting=settings.waiting(display)) as ledger:
            client = Client(ledger, opened, limits.budget)
            checks = await _examine(client, examination, identities, display, limits)
    with Ledger(_ledger_of(settings), readonly=True) as ledger:
        keys = None if settings.ledger is None else _asked_in(ledger, identities, examination)
        costs = Costs({"judge-check": spent_of(ledger, keys)}, settings.prices)
    write_private(settings.out / "cost.json", cost_json(costs))
    path = settings.out / "judge-check.json"
    write_private(path, _file(checks))
    return JudgeChecks(
        exit_code=0 if all(check.passed for check in checks) else JudgeFailed.exit_code,
        out=path,
        checks=checks,
        notes=[
            *client.notices,
            *(
                f"{name}: a call that failed said: {error}"
                for name, error in client.last_errors.items()
            ),
        ],
        tally=client.tally,
        costs=costs,
    )


def _asked_in(
    ledger: Ledger, identities: Mapping[str, str], examination: Examination
) -> list[bytes]:
    """Return the keys of the calls of a check, in a ledger that others use too."""
    planned = (item for work in check_work(examination) for item in work.planned)
    return [one.key for _, _, asked in replay(ledger, identities, planned) for one in asked]


async def _examine(
    client: Client,
    examination: Examination,
    identities: Mapping[str, str],
    display: Display,
    limits: Limits,
) -> tuple[JudgeCheck, ...]:
    """Make the calls of a check and judge the judges.

    Raises:
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    work = check_work(examination)
    graded: list[GradedResponse] = []
    total = expected_calls(work)
    async with shown(display, client, lambda: total, lambda: limits.spent(client.tally)):
        await run_work(client, work, at_once=under_way(limits.max_connections), done=graded.append)
    return verdict(examination, identities, graded)


async def checked(
    client: Client,
    folder: RunFolder,
    manifest: Manifest,
    examination: Examination,
    display: Display,
    limits: Limits,
) -> tuple[JudgeCheck, ...]:
    """Check the judges of a run before anything else is asked, and return their checks, all of them
    passed.

    Raises:
        JudgeFailed: a judge failed. A run that is there already keeps the check, and nothing else
            of the new evaluation.
        Stopped: a judge does not answer any more, or a budget is used up.
    """
    checks = await _examine(client, examination, manifest.identities(), display, limits)
    failed = [check for check in checks if not check.passed]
    if failed and folder.exists():
        before = folder.load()[0]
        folder.save(
            msgspec.structs.replace(before, judge_checks=with_checks(before.judge_checks, checks))
        )
    if failed:
        lines = [
            f"{check.judge}: failed its check, {_count(check)}: {'; '.join(check.reasons)}"
            for check in failed
        ]
        ledger = folder.ledger_path(manifest)
        show = (
            f"no model was asked; judge-check with the same judge options and --ledger {ledger}"
            " shows the cases"
        )
        raise JudgeFailed(*lines, show)
    return checks


def passed_line(check: JudgeCheck) -> str:
    """Say that a judge passed."""
    return f"{check.judge}: passed its check, {_count(check)}"


def _count(check: JudgeCheck) -> str:
    return f"{check.accepted} of {check.cases} cases accepted"


def _file(checks: Sequence[JudgeCheck]) -> bytes:
    shown: list[dict[str, Any]] = [
        {
            **msgspec.to_builtins(check),
            **{
                name: getattr(check, name)
                for name in ("accepted", "cases", "missing", "passed", "reasons")
            },
            "groups": msgspec.to_builtins(accepted_at_lines(check)),
        }
        for check in checks
    ]
    content = msgspec.json.encode({"schema": _SCHEMA, "checks": shown}, order="sorted")
    return msgspec.json.format(content, indent=1) + b"\n"


def grade(settings: GradeSettings, display: Display | None = None) -> Outcome:
    """Let judges grade the responses of a run that came without grades.

    Raises:
        InputError: there is no run, or nothing in it to grade.
        Stopped: a provider ended the work; what was answered is kept.
    """
    folder = RunFolder(settings.run)
    templates, limits = settings.judge_templates(), settings.limits()
    folder.load()  # before the lock, which makes the folder
    if settings.dry_run:
        return _forecast(settings, folder, templates)
    display = display or Display()
    try:
        with folder.lock(settings.waiting(display)):
            return run_async(lambda: _grade(settings, folder, templates, display, limits))
    finally:
        display.close()


def _load(settings: GradeSettings, folder: RunFolder) -> tuple[Manifest, Dataset]:
    """Return the run that is to be graded, without the models that never answered."""
    manifest, dataset = folder.load()
    if manifest.judge_sampling not in (None, settings.judge_sampling):
        raise InputError(
            f"{settings.run}: its judges were given another --judge-max-tokens; give the same, or"
            " import again"
        )
    return without_silent(folder, manifest, manifest.models), dataset


def _to_grade(
    settings: GradeSettings,
    manifest: Manifest,
    dataset: Dataset,
    templates: Templates,
    ledger: Ledger,
    identities: Mapping[str, str],
) -> tuple[Manifest, list[ModelWork]]:
    """Return the manifest of the run as it will be, and what has to be graded.

    Raises:
        InputError: there is nothing to grade.
    """
    imported = imported_rows(ledger, dataset).items()
    tasks = {
        model: given_tasks(rows, dataset) for model, rows in imported if model in manifest.models
    }
    if not any(tasks.values()):
        raise InputError(f"{settings.run}: no imported response is without grades")
    entries = {
        model: (
            manifest.models[model].grown_by(
                settings.entry(
                    manifest.models[model].identity, templates, probe="none", imported=True
                )
            )
        )
        for model, listed in tasks.items()
        if listed
    }
    manifest = msgspec.structs.replace(
        manifest,
        models=manifest.models | entries,
        judges=manifest.judges | dict(identities),
        judge_sampling=settings.judge_sampling,
        templates=manifest.templates | store_templates(templates),
    ).swapping(settings.swap)
    return manifest, [
        ModelWork(model=model, plan=manifest.plan(model), templates=templates, tasks=tasks[model])
        for model in entries
    ]


def _forecast(settings: GradeSettings, folder: RunFolder, templates: Templates) -> Outcome:
    """Count the calls that grading would take."""
    manifest, dataset = _load(settings, folder)
    identities = {name: model_identity(name) for name in settings.panel}
    with Ledger(folder.ledger_path(manifest), readonly=True) as ledger:
        manifest, work = _to_grade(settings, manifest, dataset, templates, ledger, identities)
        found = forecast(ledger, manifest.identities(), work)
        swapped = forecast_swaps(ledger, manifest, dataset)
    judges = (*settings.panel, *(judge for item in work for judge in item.plan.judges))
    found = Forecast(found.lines + swapped, found.assumed, connections=settings.max_connections)
    return Outcome(exit_code=0, forecast=found, notes=unset_lines(judges))


async def _grade(
    settings: GradeSettings,
    folder: RunFolder,
    templates: Templates,
    display: Display,
    limits: Limits,
) -> Outcome:
    manifest, dataset = _load(settings, folder)
    async with HttpSession(settings.max_connections) as http:
        opened = open_models(settings.panel, http)
        with Ledger(folder.ledger_path(manifest), waiting=settings.waiting(display)) as ledger:
            identities = {name: model.identity for name, model in opened.items()}
            manifest, work = _to_grade(settings, manifest, dataset, templates, ledger, identities)
            opened |= other_judges(manifest, [item.model for item in work], opened, http)
            settings.check_budget(opened)
            folder.save(manifest)
            client = Client(ledger, {**manifest.identities(), **opened}, limits.budget)
            found = await run_calls(
                client, manifest, dataset, work, display, limits, folder, settings.cluster
            )
    return finish(
        folder, manifest, dataset, found, client, settings.max_missing, display, settings.prices
    )
