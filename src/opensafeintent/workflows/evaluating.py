"""Evaluate models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.baselines import BASELINES, DEMONSTRATION_JUDGE
from opensafeintent.calls.client import Client
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display
from opensafeintent.errors import InputError, first_exit_code
from opensafeintent.evaluation.forecast import (
    ASSUMED,
    Forecast,
    forecast,
    forecast_regrades,
    forecast_swaps,
)
from opensafeintent.evaluation.judge_check import (
    Examination,
    JudgeCheck,
    check_work,
    duties_of,
    load_anchors,
    with_checks,
)
from opensafeintent.evaluation.manifest import (
    Manifest,
    ModelEntry,
    differences,
    hashes_of,
    store_templates,
)
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import samples_by_model, tasks_of
from opensafeintent.hostile import one_line
from opensafeintent.interop.inspect.models import model_identity, open_models, unset_lines
from opensafeintent.promptsets import Dataset, drawn, load_dataset
from opensafeintent.templates import Templates
from opensafeintent.workflows.judging import checked, passed_line
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import Outcome, ReportSettings, write_report
from opensafeintent.workflows.running import finish, other_judges, run_calls, without_silent
from opensafeintent.workflows.settings import EvaluateSettings, Limits

if TYPE_CHECKING:
    from opensafeintent.extensions.stop_when import StopWhen


def demo(out: Path | None = None, display: Display | None = None) -> Outcome:
    """Evaluate the scripted baselines on the starter set with the demonstration judge: no key, no
    network.
    """
    targets = tuple(f"baseline/{name}" for name, script in BASELINES.items() if script.target)
    settings = EvaluateSettings(
        models=targets, judges=(DEMONSTRATION_JUDGE,), out=out or Path("runs/demo"), modes="core"
    )
    return evaluate(settings, display)


def evaluate(settings: EvaluateSettings, display: Display | None = None) -> Outcome:
    """Put every prompt to every model, grade the responses, and write what was found into the run's
    folder.

    Running again is resuming: what the run's ledger holds is not asked for again. With other
    models, judges, epochs, limits or templates the run grows.

    Raises:
        InputError: something in the settings is not usable, or the folder holds a run that cannot
            be mixed with this one.
        JudgeFailed: a judge did not pass the check that was asked for; no model was called.
        Stopped: a provider or a budget ended the run; what was answered is kept.
    """
    display = display or Display()
    try:
        outcome = _evaluated(settings, display)
        return _with_page(outcome, settings, display) if settings.report else outcome
    finally:
        display.close()


def _with_page(outcome: Outcome, settings: EvaluateSettings, display: Display) -> Outcome:
    """Write the page and figures of a run that was just evaluated; what its calls came to stays in
    the outcome.
    """
    outcome.groups.clear()  # drawing takes memory of its own, and the report reads them anew
    report = write_report(
        ReportSettings(
            runs=(settings.folder.path,), max_missing=settings.max_missing, prices=settings.prices
        ),
        display,
    )
    report.tally, report.stopped = outcome.tally, outcome.stopped
    report.notes = list(dict.fromkeys((*outcome.notes, *report.notes)))
    report.exit_code = first_exit_code(outcome.exit_code, report.exit_code)
    return report


class _Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation: its settings, and what they name, read."""

    settings: EvaluateSettings
    models: tuple[str, ...]
    dataset: Dataset
    templates: Templates
    limits: Limits

    @property
    def named(self) -> list[str]:
        """Every model and judge that is named, each once."""
        return list(dict.fromkeys((*self.models, *self.settings.panel)))

    def old_manifest(self) -> Manifest | None:
        """Return the manifest of the run that is there, if there is one, without the models that
        never answered.
        """
        folder = self.settings.folder
        return without_silent(folder, folder.load()[0], self.models) if folder.exists() else None

    def manifest(self, identities: Mapping[str, str], old: Manifest | None) -> Manifest:
        """Return the manifest of the run as it is with this evaluation in it.

        Raises:
            InputError: the run that is there cannot be mixed with this evaluation.
        """
        settings = self.settings
        stated: dict[str, Any] = {
            "target_sampling": settings.target_sampling,
            "judge_sampling": settings.judge_sampling,
            "system": settings.system,
            "preset": settings.preset,
        }
        ledger = str(settings.ledger.resolve()) if settings.ledger else "ledger.sqlite"
        if old is None:
            old = Manifest.new(self.dataset, ledger=ledger)
        elif found := differences(old, self.dataset, stated) + self._other_ledger(old):
            raise InputError(
                f"{settings.folder.path}: holds a run that cannot be mixed with this one: "
                + "; ".join(found)
                + "; choose a new --out"
            )
        return msgspec.structs.replace(
            old,
            models=old.models | self._entries(identities, old),
            judges=old.judges | {name: identities[name] for name in settings.panel},
            templates=old.templates | store_templates(self.templates),
            **stated,
        ).swapping(settings.swap)

    def asked_anew(self, old: Manifest | None) -> list[str]:
        """Say which templates are others than those that models of the run were graded by: a line,
        or none.
        """
        now = hashes_of(self.templates)
        before = (
            [old.models[model].templates for model in self.models if model in old.models]
            if old
            else []
        )
        roles = sorted(
            {
                role
                for entry in before
                for role in entry
                if role != "reask" and entry[role] != now[role]
            }
        )
        if not roles:
            return []
        which = f"the templates for {', '.join(roles)}"
        where = "where the ledger has no answer; --rubrics takes the old ones"
        return [f"changed since the last run: {which}; what they ask is asked anew {where}"]

    def _other_ledger(self, old: Manifest) -> list[str]:
        ledger, folder = self.settings.ledger, self.settings.folder
        if ledger is None or ledger.resolve() == folder.ledger_path(old).resolve():
            return []
        return [f"ledger: the run has {old.ledger}, this has {ledger}"]

    def _entries(self, identities: Mapping[str, str], old: Manifest) -> dict[str, ModelEntry]:
        settings = self.settings
        samples = samples_by_model(self.models, settings.judge_samples or 0)
        entries: dict[str, ModelEntry] = {}
        for model in self.models:
            entry = settings.entry(
                identities[model],
                self.templates,
                probe=settings.probe,
                epochs=settings.epochs,
                limit=settings.limit,
                judge_samples=samples[model],
            )
            before = old.models.get(model)
            if before is not None and before.imported:
                raise InputError(
                    f"{settings.folder.path}: the responses of {model} were imported into this run;"
                    " use another --out"
                )
            try:
                entries[model] = before.grown_by(entry) if before else entry
            except InputError as error:
                raise InputError(f"{settings.folder.path}: {model}: {error}") from error
        return entries

    def work(self, manifest: Manifest) -> list[ModelWork]:
        """Return what this evaluation asks for; what the run holds beyond it is taken from the
        ledger afterwards.
        """
        sets, settings = self.dataset.prompt_sets, self.settings
        return [
            ModelWork(
                model=model,
                plan=manifest.plan(model),
                templates=self.templates,
                tasks=tasks_of(model, drawn(sets, settings.limit), settings.epochs),
            )
            for model in self.models
        ]

    def stop_when(
        self, manifest: Manifest, old: Manifest | None, work: Sequence[ModelWork]
    ) -> StopWhen | None:
        """Return what ends the run as soon as its question is answered; None if it has none.

        Raises:
            InputError: the question cannot be used, or the run was asked another one.
        """
        settings = self.settings
        if settings.stop_when is None:
            return None
        from opensafeintent.extensions.stop_when import StopWhen

        question = (settings.stop_when, settings.confidence, settings.max_missing)
        return StopWhen(*question, manifest, old, self.dataset, work)

    def examination(self, work: Sequence[ModelWork]) -> Examination:
        """Return the check of every judge that some work needs, asked as it will be asked there."""
        return Examination(
            anchors=load_anchors(),
            duties=duties_of(item.plan for item in work),
            templates=self.templates,
            parse=self.settings.grade_parse,
            sampling=self.settings.judge_sampling,
        )


def _evaluated(settings: EvaluateSettings, display: Display) -> Outcome:
    """Read what the settings name, and evaluate; the run's folder is kept meanwhile."""
    display.stage(f"reading {one_line(settings.dataset, 60)}")
    evaluation = _Evaluation(
        settings=settings,
        templates=settings.judge_templates(),
        dataset=load_dataset(settings.dataset, settings.taxonomy, settings.max_rows),
        limits=settings.limits(),
        models=settings.targets,
    )
    if settings.dry_run:
        return _dry_run(evaluation)
    with settings.folder.lock(settings.waiting(display)):
        return run_async(lambda: _evaluate(evaluation, display))


async def _evaluate(evaluation: _Evaluation, display: Display) -> Outcome:
    settings, dataset, limits = evaluation.settings, evaluation.dataset, evaluation.limits
    folder = settings.folder
    async with HttpSession(limits.max_connections) as http:
        opened = open_models(evaluation.named, http)
        old = evaluation.old_manifest()
        manifest = evaluation.manifest(
            {name: model.identity for name, model in opened.items()}, old
        )
        opened |= other_judges(manifest, evaluation.models, opened, http)
        settings.check_budget(opened)
        for line in evaluation.asked_anew(old):
            display.note(line)
        with Ledger(folder.ledger_path(manifest), waiting=settings.waiting(display)) as ledger:
            client = Client(ledger, {**manifest.identities(), **opened}, limits.budget)
            work = evaluation.work(manifest)
            stop_when = evaluation.stop_when(manifest, old, work)
            for line in stop_when.impossible() if stop_when else ():
                display.note(line)
            checks: tuple[JudgeCheck, ...] = ()
            if settings.check_judge:
                checks = await checked(
                    client, folder, manifest, evaluation.examination(work), display, limits
                )
                manifest = msgspec.structs.replace(
                    manifest, judge_checks=with_checks(manifest.judge_checks, checks)
                )
            if old is None:
                folder.begin(dataset)
            folder.save(manifest)
            found = await run_calls(
                client,
                manifest,
                dataset,
                work,
                display,
                limits,
                folder,
                settings.cluster,
                stop_when,
            )
            manifest = stop_when.manifest if stop_when else manifest
    rest = (settings.max_missing, display, settings.prices)
    outcome = finish(folder, manifest, dataset, found, client, *rest, page_follows=settings.report)
    outcome.notes += map(passed_line, checks)
    if stop_when is not None:
        outcome.notes += stop_when.lines()
        outcome.exit_code = first_exit_code(outcome.exit_code, *stop_when.exit_codes())
    return outcome


def _dry_run(evaluation: _Evaluation) -> Outcome:
    folder = evaluation.settings.folder
    identities = {name: model_identity(name) for name in evaluation.named}
    old = evaluation.old_manifest()
    manifest = evaluation.manifest(identities, old)
    work = evaluation.work(manifest)
    stop_when = evaluation.stop_when(manifest, old, work)
    if evaluation.settings.check_judge:
        work = [*check_work(evaluation.examination(work)), *work]
    with Ledger(folder.ledger_path(manifest), readonly=True, missing_ok=True) as ledger:
        found = forecast(ledger, manifest.identities(), work)
        again = forecast_regrades(ledger, manifest, evaluation.dataset)
        again += forecast_swaps(ledger, manifest, evaluation.dataset)
    assumed = found.assumed or (ASSUMED if again else "")
    whole = Forecast(found.lines + again, assumed, connections=evaluation.settings.max_connections)
    panels = [judge for model in evaluation.models for judge in manifest.models[model].judges]
    sets = len(drawn(evaluation.dataset.prompt_sets, evaluation.settings.limit))
    precision = (
        f"precision: {sets:,} prompt-sets give Triplet Safety within ± {0.98 / sets**0.5:.2f} or"
        " better (95 % CI)"
    )
    notes = [precision, *(stop_when.impossible() if stop_when else ()), *evaluation.asked_anew(old)]
    notes += unset_lines((*evaluation.named, *panels))
    return Outcome(exit_code=0, forecast=whole, notes=notes)
