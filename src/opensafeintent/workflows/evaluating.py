"""Evaluate models, and grade responses that were made elsewhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.baselines import BASELINES, DEMONSTRATION_JUDGE
from opensafeintent.calls.client import Client, Model
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.models import model_identity, open_models
from opensafeintent.calls.prices import Price, cost_of, read_prices
from opensafeintent.calls.progress import Display, Quiet, shown
from opensafeintent.calls.records import Sampling
from opensafeintent.calls.tally import Budget
from opensafeintent.errors import InputError
from opensafeintent.evaluation.derive import Place, derive, given_tasks, imported_rows
from opensafeintent.evaluation.forecast import Forecast, expected_calls, forecast
from opensafeintent.evaluation.manifest import (
    DatasetEntry,
    Manifest,
    ModelEntry,
    Preset,
    RunFolder,
    differences,
    hashes_of,
    store_templates,
)
from opensafeintent.evaluation.records import GradedResponse, ModesScope, ProbeScope
from opensafeintent.evaluation.run import ModelWork, run_work, tasks_of
from opensafeintent.hostile import name_safe
from opensafeintent.promptsets import Dataset, load_dataset, stratified_sample
from opensafeintent.taxonomy import load_taxonomy
from opensafeintent.templates import ParseRule, Templates, load_templates
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import MAX_MISSING, Outcome, check_share, study_of, write_results

__all__ = ["EvaluateSettings", "GradeSettings", "demo", "evaluate", "grade"]

_COUNTS = ("limit", "epochs", "max_connections", "max_tokens", "judge_max_tokens", "budget_calls", "budget_tokens")
_MAX_TOKENS = 4096
_AT_ONCE = 512
"""Prompts of one target under way at the same time while connections adapt."""


class EvaluateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to evaluate, how, and where the run is kept."""

    models: tuple[str, ...]
    judges: tuple[str, ...]
    mode_judge: str | None = None
    """The first judge by default."""
    dataset: str = "starter"
    taxonomy: Path | None = None
    out: Path | None = None
    """`runs/<dataset>` by default."""
    limit: int | None = None
    epochs: int = 1
    max_connections: int | None = None
    """Connections of one endpoint, exactly; adaptive by default."""
    temperature: float | None = None
    max_tokens: int = _MAX_TOKENS
    system: str | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Any] = {}
    """Further fields of the target's requests."""
    judge_max_tokens: int = 2048
    preset: Preset | None = None
    modes: ModesScope = "dual_use"
    probe: ProbeScope = "unsafe"
    rubrics: Path | None = None
    grade_parse: ParseRule = "strict"
    ledger: Path | None = None
    """A ledger that several runs share; one in the run's folder by default."""
    budget_calls: int | None = None
    budget_tokens: int | None = None
    prices: Path | None = None
    max_missing: float = MAX_MISSING
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} is {value}; expected at least 1")
        if self.temperature is not None and not 0 <= self.temperature < inf:
            raise InputError(f"--temperature is {self.temperature}; expected a number from 0")
        if self.preset and self.max_tokens != _MAX_TOKENS:
            raise InputError(f"--preset {self.preset} sets the token limit; leave --max-tokens out")
        for option, text in (("--system", self.system), ("--reasoning-effort", self.reasoning_effort), ("-M", self.extra)):
            _check_unicode(option, text)
        check_share(self.max_missing)
        if not self.models:
            raise InputError("no model to evaluate")
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        named = self.dataset if self.dataset.startswith("hf:") else Path(self.dataset).stem
        return RunFolder(self.out or Path("runs") / name_safe(named))

    @property
    def target_sampling(self) -> Sampling:
        """How targets are sampled."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            reasoning_effort=self.reasoning_effort,
            extra=dict(self.extra),
        )

    @property
    def judge_sampling(self) -> Sampling:
        """How judges are sampled."""
        return Sampling(max_tokens=self.judge_max_tokens, temperature=0.0)

    def entry(self, identity: str, templates: Templates) -> ModelEntry:
        """Return what the manifest says of a target that is evaluated with these settings."""
        return ModelEntry(
            identity=identity,
            epochs=self.epochs,
            limit=self.limit,
            judges=tuple(dict.fromkeys(self.judges)),
            mode_judge=self.mode_judge or self.judges[0],
            modes=self.modes,
            probe=self.probe,
            parse=self.grade_parse,
            templates=hashes_of(templates),
        )


def _check_unicode(option: str, value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{option}: is not valid Unicode text") from error


def demo(out: Path | None = None, display: Display | None = None) -> Outcome:
    """Evaluate the scripted baselines on the starter set with the demonstration judge: no key, no network."""
    targets = tuple(f"baseline/{name}" for name in BASELINES if f"baseline/{name}" != DEMONSTRATION_JUDGE)
    settings = EvaluateSettings(models=targets, judges=(DEMONSTRATION_JUDGE,), out=out or Path("runs/demo"), modes="core")
    return evaluate(settings, display)


def evaluate(settings: EvaluateSettings, display: Display | None = None) -> Outcome:
    """Put every prompt to every model, grade the responses, and write what was found into the run's folder.

    Running again is resuming: what the run's ledger holds is not asked for again. With other models, judges, epochs, limits
    or templates the run grows.

    Raises:
        InputError: something in the settings is not usable, or the folder holds a run that cannot be mixed with this one.
        Stopped: a provider or a budget ended the run; what was answered is kept.
    """
    templates = load_templates(settings.rubrics)
    taxonomy = load_taxonomy(settings.taxonomy) if settings.taxonomy else None
    dataset = load_dataset(settings.dataset, taxonomy)
    prices = read_prices(settings.prices) if settings.prices else {}
    models = tuple(dict.fromkeys(settings.models))
    if settings.dry_run:
        return run_async(lambda: _dry_run(settings, models, dataset, templates))
    with settings.folder.lock():
        return run_async(lambda: _evaluate(settings, models, dataset, templates, prices, display or Quiet()))


async def _evaluate(
    settings: EvaluateSettings,
    models: Sequence[str],
    dataset: Dataset,
    templates: Templates,
    prices: Mapping[str, Price],
    display: Display,
) -> Outcome:
    folder = settings.folder
    async with HttpSession(settings.max_connections) as http:
        opened = open_models(_named(settings, models), http)
        old = _old_manifest(folder, set(models))
        identities = {name: model.identity for name, model in opened.items()}
        manifest = _manifest(settings, models, dataset, templates, identities, old)
        opened |= _other_judges(manifest, models, opened, http)
        if old is None:
            folder.begin(dataset)
        folder.save(manifest)
        with Ledger(folder.ledger_path(manifest)) as ledger:
            budget = Budget(calls=settings.budget_calls, tokens=settings.budget_tokens)
            client = Client(ledger, {**manifest.identities(), **opened}, budget)
            work = _work(settings, models, dataset, templates, manifest)
            known = await _run(client, work, settings, prices, display)
            graded = await derive(manifest, dataset, ledger, known)
    return _finish(folder, manifest, dataset, graded, client, settings.max_missing)


async def _run(
    client: Client, work: Sequence[ModelWork], settings: EvaluateSettings, prices: Mapping[str, Price], display: Display
) -> dict[Place, GradedResponse]:
    known: dict[Place, GradedResponse] = {}

    def done(graded: GradedResponse) -> None:
        known[graded.model, graded.set_id, graded.variant, graded.epoch] = graded

    least = expected_calls(work)

    def expected() -> int:
        return least + sum(count for (_, purpose), count in client.tally.made.items() if purpose == "probe")

    at_once = 2 * settings.max_connections if settings.max_connections else _AT_ONCE
    cost = (lambda: cost_of(client.tally.tokens, prices)) if prices else (lambda: None)
    async with shown(display, client.tally, expected, cost):
        await run_work(client, work, at_once=at_once, done=done)
    return known


def _finish(
    folder: RunFolder,
    manifest: Manifest,
    dataset: Dataset,
    graded: Sequence[GradedResponse],
    client: Client,
    max_missing: float,
) -> Outcome:
    outcome = write_results([study_of(folder.path.name, manifest, dataset, graded)], folder.path, max_missing)
    outcome.tally = client.tally
    outcome.notes += client.notices
    outcome.notes += [
        f"{model}: a call that failed said: {error}"
        for model, error in client.last_errors.items()
        if model not in client.stopped_models
    ]
    if client.stopped_models:
        outcome.exit_code = 3
        outcome.stopped = list(client.stopped_models.values())
    return outcome


def _named(settings: EvaluateSettings, models: Sequence[str]) -> list[str]:
    judges = [*settings.judges, *([settings.mode_judge] if settings.mode_judge else [])]
    return list(dict.fromkeys([*models, *judges]))


def _old_manifest(folder: RunFolder, named: Collection[str]) -> Manifest | None:
    """Return the manifest of the run that is there, if there is one, without the models that never answered."""
    return _without_silent(folder, folder.load()[0], named) if folder.exists() else None


def _without_silent(folder: RunFolder, manifest: Manifest, named: Collection[str]) -> Manifest:
    """Leave out the models that never answered.

    A name that was misspelt once does not stay in the run; one that is named now is looked at anew, without the judges that
    never answered. A model that is not named now keeps its judges: by them its grades are on record, or missing.
    """
    path = folder.ledger_path(manifest)
    answering: set[str] = set()
    if path.is_file():
        with Ledger(path, readonly=True) as ledger:
            answering = ledger.answering_models()
    models = {
        name: msgspec.structs.replace(entry, judges=tuple(judge for judge in entry.judges if judge in answering))
        if name in named
        else entry
        for name, entry in manifest.models.items()
        if entry.imported or name in answering or name in named
    }
    return msgspec.structs.replace(manifest, models=models)


def _other_judges(
    manifest: Manifest, models: Sequence[str], opened: Mapping[str, Model], http: HttpSession
) -> dict[str, Model]:
    """Open the judges that the run has besides those named now: what is new is graded by the whole panel."""
    panel = {judge for model in models for judge in manifest.models[model].judges}
    return open_models(sorted(panel - set(opened)), http)


def _manifest(
    settings: EvaluateSettings,
    models: Sequence[str],
    dataset: Dataset,
    templates: Templates,
    identities: Mapping[str, str],
    old: Manifest | None,
) -> Manifest:
    """Return the manifest of the run as it is with this evaluation in it."""
    sampling: dict[str, Any] = {
        "target_sampling": settings.target_sampling,
        "judge_sampling": settings.judge_sampling,
        "system": settings.system,
        "preset": settings.preset,
    }
    entries: dict[str, ModelEntry] = {}
    for model in models:
        entry = settings.entry(identities[model], templates)
        before = old.models.get(model) if old else None
        if before is not None and before.imported:
            raise InputError(
                f"{settings.folder.path}: the responses of {model} were imported into this run; use another --out"
            )
        entries[model] = before.grown_by(entry) if before else entry
    judges = {name: identities[name] for name in _named(settings, ())}
    if old is None:
        about = DatasetEntry(name=dataset.name, hash=dataset.hash, sets=len(dataset), taxonomy=dataset.taxonomy)
        ledger = str(settings.ledger.resolve()) if settings.ledger else "ledger.sqlite"
        return Manifest(
            version=__version__,
            dataset=about,
            ledger=ledger,
            models=entries,
            judges=judges,
            templates=store_templates(templates),
            **sampling,
        )
    found = differences(old, dataset, sampling)
    if settings.ledger and settings.ledger.resolve() != settings.folder.ledger_path(old).resolve():
        found.append(f"ledger: the run has {old.ledger}, this has {settings.ledger}")
    if found:
        raise InputError(
            f"{settings.folder.path}: holds a run that cannot be mixed with this one. "
            + "; ".join(found)
            + ". Choose a new --out"
        )
    return msgspec.structs.replace(
        old,
        models=old.models | entries,
        judges=old.judges | judges,
        templates=old.templates | store_templates(templates),
        **sampling,
    )


def _work(
    settings: EvaluateSettings, models: Sequence[str], dataset: Dataset, templates: Templates, manifest: Manifest
) -> list[ModelWork]:
    """Return what this evaluation asks for; what the run holds beyond it is taken from the ledger afterwards."""
    sets = stratified_sample(dataset.prompt_sets, settings.limit)
    return [
        ModelWork(model=model, plan=manifest.plan(model), templates=templates, tasks=tasks_of(model, sets, settings.epochs))
        for model in models
    ]


async def _dry_run(settings: EvaluateSettings, models: Sequence[str], dataset: Dataset, templates: Templates) -> Outcome:
    folder = settings.folder
    identities = {name: model_identity(name) for name in _named(settings, models)}
    manifest = _manifest(settings, models, dataset, templates, identities, _old_manifest(folder, set(models)))
    work = _work(settings, models, dataset, templates, manifest)
    path = folder.ledger_path(manifest)
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(Ledger(path, readonly=True)) if path.is_file() else _EmptyLedger()
        found: Forecast = await forecast(Client(ledger, manifest.identities()), work)  # type: ignore[arg-type]
    return Outcome(exit_code=0, forecast=found)


class _EmptyLedger:
    """A ledger that was not begun yet: looking does not create it."""

    def find(self, key: bytes) -> None:
        """Hold nothing."""

    def last_failure(self, key: bytes) -> None:
        """Know of no failure."""


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
    with folder.lock():
        return run_async(lambda: _grade(settings, folder, templates, display or Quiet()))


async def _grade(settings: GradeSettings, folder: RunFolder, templates: Templates, display: Display) -> Outcome:
    manifest, dataset = folder.load()
    manifest = _without_silent(folder, manifest, manifest.models)
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
        opened = open_models(_named(as_evaluation, ()), http)
        with Ledger(folder.ledger_path(manifest)) as ledger:
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
            opened |= _other_judges(manifest, list(entries), opened, http)
            folder.save(manifest)
            client = Client(ledger, {**manifest.identities(), **opened})
            work = [
                ModelWork(model=model, plan=manifest.plan(model), templates=templates, tasks=tasks[model])
                for model in entries
            ]
            known = await _run(client, work, as_evaluation, {}, display)
            graded = await derive(manifest, dataset, ledger, known)
    return _finish(folder, manifest, dataset, graded, client, settings.max_missing)
