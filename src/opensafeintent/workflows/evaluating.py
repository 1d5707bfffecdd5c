"""Evaluate models."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.baselines import BASELINES, DEMONSTRATION_JUDGE
from opensafeintent.calls.client import Budget, Client
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger, open_for_run
from opensafeintent.calls.models import Price, load_suite, read_prices, unpriced
from opensafeintent.calls.progress import Display, Quiet
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.evaluation.anchors import load_anchors
from opensafeintent.evaluation.forecast import Forecast, forecast
from opensafeintent.evaluation.judge_check import Examination, JudgeCheck, check_work, duties_of, with_checks
from opensafeintent.evaluation.manifest import (
    MOST_EPOCHS,
    DatasetEntry,
    Manifest,
    ModelEntry,
    Preset,
    RunFolder,
    differences,
    hashes_of,
    store_templates,
)
from opensafeintent.evaluation.records import ModesScope, ProbeScope
from opensafeintent.evaluation.regrading import forecast_regrades, samples_by_model
from opensafeintent.evaluation.run import ModelWork, tasks_of
from opensafeintent.hostile import name_safe, one_line
from opensafeintent.interop.models import model_identity, open_models
from opensafeintent.promptsets import Dataset, load_dataset, stratified_sample
from opensafeintent.promptsets.loading import dataset_name
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import load_taxonomy
from opensafeintent.templates import ParseRule, Templates, load_templates
from opensafeintent.workflows.judge_checking import checked, passed_line
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import MAX_MISSING, Outcome, check_share
from opensafeintent.workflows.running import finish, named_models, other_judges, run_calls, without_silent
from opensafeintent.workflows.spreading.options import Spreading, check_options, left_shards, take_up_run

__all__ = ["EvaluateSettings", "demo", "evaluate"]

_COUNTS = (
    "limit",
    "epochs",
    "max_connections",
    "max_tokens",
    "judge_max_tokens",
    "judge_samples",
    "budget_calls",
    "budget_tokens",
)
_MAX_TOKENS = 4096


class EvaluateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to evaluate, how, and where the run is kept."""

    judges: tuple[str, ...]
    models: tuple[str, ...] = ()
    suite: str | None = None
    """Further models: a suite of ours by its name, or a file of the same form."""
    mode_judge: str | None = None
    """The first judge by default."""
    dataset: str = "starter"
    taxonomy: Path | None = None
    max_rows: int | None = MOST_ROWS
    """Of the dataset; None sets no limit."""
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
    judge_samples: int | None = None
    """How many responses, of all models together, each judge grades once more: how far it agrees with itself."""
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
    check_judge: bool = False
    """Put the anchor cases to the judges first, and stop when one fails."""
    ray: str | None = None
    """Spread the calls over a Ray cluster: HOST:PORT of its head, `auto`, or `local`; all nodes share the run's folder."""
    shards: int | None = None
    """Parts that each target's prompt-sets are spread in."""
    gpus_per_model: float | None = None
    """For a target whose weights a task loads."""
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} is {value}; expected at least 1")
        if self.epochs > MOST_EPOCHS:
            raise InputError(f"--epochs is {self.epochs}; at most {MOST_EPOCHS:,} are accepted")
        if self.temperature is not None and not 0 <= self.temperature < inf:
            raise InputError(f"--temperature is {self.temperature}; expected a number from 0")
        if self.preset and self.max_tokens != _MAX_TOKENS:
            raise InputError(f"--preset {self.preset} sets the token limit; leave --max-tokens out")
        for option, text in (("--system", self.system), ("--reasoning-effort", self.reasoning_effort), ("-M", self.extra)):
            _check_unicode(option, text)
        check_share(self.max_missing)
        check_options(self.ray, self.shards, self.gpus_per_model)
        if not self.models and self.suite is None:
            raise InputError("no model to evaluate: name at least one, or a --suite")
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")

    @property
    def targets(self) -> tuple[str, ...]:
        """Every model to evaluate, each once: those that are named, then the suite's.

        Raises:
            InputError: there is no such suite.
        """
        return tuple(dict.fromkeys((*self.models, *(load_suite(self.suite).names if self.suite is not None else ()))))

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self.out or Path("runs") / name_safe(dataset_name(self.dataset)))

    @property
    def budget(self) -> Budget:
        """The most that may be asked for."""
        return Budget(calls=self.budget_calls, tokens=self.budget_tokens)

    @property
    def spreading(self) -> Spreading | None:
        """Where the calls are spread to, if they are."""
        if self.ray is None:
            return None
        return Spreading(
            address=self.ray,
            shards=self.shards,
            gpus_per_model=self.gpus_per_model,
            max_connections=self.max_connections,
            budget=self.budget,
        )

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
    targets = tuple(f"baseline/{name}" for name, script in BASELINES.items() if script.target)
    settings = EvaluateSettings(models=targets, judges=(DEMONSTRATION_JUDGE,), out=out or Path("runs/demo"), modes="core")
    return evaluate(settings, display)


def evaluate(settings: EvaluateSettings, display: Display | None = None) -> Outcome:
    """Put every prompt to every model, grade the responses, and write what was found into the run's folder.

    Running again is resuming: what the run's ledger holds is not asked for again. With other models, judges, epochs, limits
    or templates the run grows.

    Raises:
        InputError: something in the settings is not usable, or the folder holds a run that cannot be mixed with this one.
        JudgeFailed: a judge did not pass the check that was asked for; no model was called.
        Stopped: a provider or a budget ended the run; what was answered is kept.
    """
    display = display or Quiet()
    try:
        return _evaluated(settings, display)
    finally:
        display.close()


def _evaluated(settings: EvaluateSettings, display: Display) -> Outcome:
    """Read what the settings name, and evaluate; the run's folder is kept meanwhile."""
    display.stage(f"reading {one_line(settings.dataset, 60)}")
    templates = load_templates(settings.rubrics)
    taxonomy = load_taxonomy(settings.taxonomy) if settings.taxonomy else None
    dataset = load_dataset(settings.dataset, taxonomy, settings.max_rows)
    prices = read_prices(settings.prices) if settings.prices else {}
    models = settings.targets
    if settings.dry_run:
        return run_async(lambda: _dry_run(settings, models, dataset, templates))
    with settings.folder.lock():
        notes = take_up_run(settings.folder)
        outcome = run_async(lambda: _evaluate(settings, models, dataset, templates, prices, display))
    outcome.notes[:0] = notes
    return outcome


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
        opened = open_models(named_models(models, settings.judges, settings.mode_judge), http)
        old = _old_manifest(folder, set(models))
        identities = {name: model.identity for name, model in opened.items()}
        manifest = _manifest(settings, models, dataset, templates, identities, old)
        opened |= other_judges(manifest, models, opened, http)
        with open_for_run(folder.ledger_path(manifest), own=manifest.owns_ledger) as ledger:
            client = Client(ledger, {**manifest.identities(), **opened}, settings.budget)
            work = _work(settings, models, dataset, templates, manifest)
            checks: tuple[JudgeCheck, ...] = ()
            if settings.check_judge:
                if settings.spreading is not None:
                    from opensafeintent.workflows.spreading.evaluation import see_cluster

                    await see_cluster(settings.spreading, manifest, work, client)
                examination = _examination(settings, work, templates)
                checks = await checked(
                    client, folder, manifest, examination, display, max_connections=settings.max_connections, prices=prices
                )
                manifest = msgspec.structs.replace(manifest, judge_checks=with_checks(manifest.judge_checks, checks))
            if old is None:
                folder.begin(dataset)
            folder.save(manifest)
            spread: list[str] = []
            found = await run_calls(
                client,
                manifest,
                dataset,
                work,
                display,
                max_connections=settings.max_connections,
                prices=prices,
                elsewhere=_elsewhere(settings, folder, manifest, work, client, spread),
            )
    outcome = finish(folder, manifest, dataset, found, client, settings.max_missing, display)
    outcome.notes += map(passed_line, checks)
    outcome.notes += spread
    if prices and (line := unpriced(named_models(models, settings.judges, settings.mode_judge), prices)):
        outcome.notes.append(line)
    return outcome


def _elsewhere(
    settings: EvaluateSettings,
    folder: RunFolder,
    manifest: Manifest,
    work: Sequence[ModelWork],
    client: Client,
    notes: list[str],
) -> Callable[[], Awaitable[None]] | None:
    """Return what makes the calls on a cluster, where one is named; what it has to say goes into `notes`."""
    if (spreading := settings.spreading) is None:
        return None

    from opensafeintent.workflows.spreading.evaluation import spread_evaluation  # loads much, of building too

    async def spread() -> None:
        notes.extend(await spread_evaluation(spreading, folder, manifest, work, client))

    return spread


def _examination(settings: EvaluateSettings, work: Sequence[ModelWork], templates: Templates) -> Examination:
    """Return the check of every judge that some work needs, asked as it will be asked there."""
    return Examination(
        anchors=load_anchors(),
        duties=duties_of(item.plan for item in work),
        templates=templates,
        parse=settings.grade_parse,
        sampling=settings.judge_sampling,
    )


def _old_manifest(folder: RunFolder, named: Collection[str]) -> Manifest | None:
    """Return the manifest of the run that is there, if there is one, without the models that never answered."""
    return without_silent(folder, folder.load()[0], named) if folder.exists() else None


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
    samples = samples_by_model(models, settings.judge_samples or 0)
    for model in models:
        entry = msgspec.structs.replace(settings.entry(identities[model], templates), judge_samples=samples[model])
        before = old.models.get(model) if old else None
        if before is not None and before.imported:
            raise InputError(
                f"{settings.folder.path}: the responses of {model} were imported into this run; use another --out"
            )
        entries[model] = before.grown_by(entry) if before else entry
    judges = {name: identities[name] for name in named_models((), settings.judges, settings.mode_judge)}
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
    identities = {name: model_identity(name) for name in named_models(models, settings.judges, settings.mode_judge)}
    manifest = _manifest(settings, models, dataset, templates, identities, _old_manifest(folder, set(models)))
    work = _work(settings, models, dataset, templates, manifest)
    if settings.check_judge:
        work = [*check_work(_examination(settings, work, templates)), *work]
    path = folder.ledger_path(manifest)
    with Ledger(path, readonly=True, missing_ok=True) as ledger:
        client = Client(ledger, manifest.identities())
        found = await forecast(client, work)
        again = await forecast_regrades(client, manifest, dataset)
    return Outcome(exit_code=0, forecast=Forecast(found.lines + again), notes=left_shards(folder.path))
