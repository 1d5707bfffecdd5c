"""Evaluate models; let judges grade responses that were made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.baselines import BASELINES, DEMONSTRATION_JUDGE, contenders
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import ledger_name
from opensafeintent.calls.progress import display_for
from opensafeintent.commands.checking_judges import (
    default_judge_files,
    passed_before_line,
    raise_if_failed_before,
)
from opensafeintent.commands.gate_check import gates_of
from opensafeintent.commands.grade_into import grade_into, guard_of, size_lines
from opensafeintent.commands.judged_alike import unlike_models
from opensafeintent.commands.known_checks import made_before
from opensafeintent.commands.outcome import Outcome
from opensafeintent.commands.reproduce import further_options
from opensafeintent.commands.running import EvaluationPlan, dry_run, execute, without_silent
from opensafeintent.commands.session import run_async, wait_or_refuse
from opensafeintent.commands.settings import EvaluateSettings, GradeSettings, Judging
from opensafeintent.commands.settings.by_command import PAPER_DATASET
from opensafeintent.errors import InputError, counted
from opensafeintent.evaluation.gold_cases import Examination, duties_of, load_gold_cases
from opensafeintent.evaluation.manifest import (
    Manifest,
    ModelEntry,
    RunFolder,
    differences,
    hashes_of,
    judge_differences,
    store_templates,
    with_labels,
)
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.rebuild import given_tasks, imported_rows
from opensafeintent.evaluation.regrade import samples_by_model
from opensafeintent.hostile import name_safe, one_line
from opensafeintent.inspect.routes import model_identity
from opensafeintent.numbers.gates import (
    Gate,
    margins_in_reach,
    out_of_reach,
    second_turn_in_reach,
    undecidable_margins,
)
from opensafeintent.promptsets import Dataset, drawn, load_dataset
from opensafeintent.promptsets.loading import PAPER_DATASET_HASH, PUBLISHED, dataset_name
from opensafeintent.statistics.intervals import half_width
from opensafeintent.templates import Templates, load_templates


def demo(out: Path | None = None, *, quiet: bool = False) -> Outcome:
    """Evaluate the scripted baselines on the starter set with the demonstration judge: no key, no
    network.
    """
    targets = tuple(f"baseline/{name}" for name, script in BASELINES.items() if script.target)
    settings = EvaluateSettings(
        models=targets, judges=(DEMONSTRATION_JUDGE,), out=out or Path("runs/demo"), modes="core"
    )
    return evaluate(settings, quiet=quiet)


def evaluate(settings: EvaluateSettings, *, quiet: bool = False) -> Outcome:
    """Send every prompt to every model, grade the responses, and write the results into the run's
    folder.

    Running again is resuming: calls in the run's ledger are not made again. With other models,
    judges, epochs, limits or templates the run grows.

    Raises:
        InputError: a setting is not usable, or the folder holds a run that cannot be mixed with
            this one.
        JudgeFailed: a judge did not pass the requested check; no model was called.
        Stopped: a provider or a budget ended the run; answers so far are kept.
    """
    out = settings.out or Path("runs").absolute() / name_safe(dataset_name(settings.dataset))
    with closing(display_for(quiet=quiet)) as screen:
        screen.stage(f"reading {one_line(settings.dataset, 60)}")
        folder = RunFolder(out, settings.ledger)
        data = _data_of(settings, folder)
        templates, stand_in = _templates_of(settings)
        evaluation = _Evaluation(
            settings=settings,
            folder=folder,
            templates=templates,
            dataset=data.dataset,
            models=settings.targets,
        )
        if settings.dry_run:
            plan = evaluation.plan()
            sets, epochs = _least_of(plan, data.size)
            gates = dict.fromkeys(gates_of(settings), sets)
            precision = (
                f"with {counted(sets, 'prompt-set')}, the 95 % interval of Triplet"
                f" Safety is at most {min(200 * half_width(sets), 100):.0f} points wide"
            )
            impossible = out_of_reach(gates, settings.confidence, epochs)
            outcome = dry_run(plan, factor=data.factor)
            planned = (gates, sets, settings.confidence)
            margins = margins_in_reach(*planned)
            if settings.follow_ups:
                models = len(contenders(evaluation.models))
                margins = (*margins, second_turn_in_reach(sets, epochs, models))
            outcome.notes[:0] = [precision, *data.notes, *stand_in, *impossible, *margins]
            undecided = map(_undecided, undecidable_margins(*planned))
            outcome.cautions = [*impossible, *undecided]
            # a model that has become better passes each margin: none is out of reach
            outcome.exit_code = 5 if impossible else 0
            return outcome
        with evaluation.folder.lock(wait_or_refuse(settings, screen)):
            return run_async(lambda: execute(evaluation.plan(), screen))


def _least_of(plan: EvaluationPlan, size: int) -> tuple[int, int]:
    """Return the prompt-sets and epochs that each model of a plan has at the end; `size` is the
    number of prompt-sets of the dataset.
    """
    entries = [plan.manifest.models[item.model] for item in plan.work]
    sets = min(min(size, entry.limit or size) for entry in entries)
    return sets, min(entry.epochs for entry in entries)


class _Data(NamedTuple):
    """The prompt-sets of an evaluation, or those that a dry run estimates it with."""

    dataset: Dataset
    limit: int | None
    """Prompt-sets to take; None takes all."""
    size: int
    """Prompt-sets of the dataset that is named."""
    notes: list[str]

    @property
    def planned(self) -> int:
        """The number of prompt-sets that are evaluated."""
        return min(self.size, self.size if self.limit is None else self.limit)

    @property
    def factor(self) -> float:
        """That number, over the prompt-sets that are at hand for it."""
        return self.planned / len(drawn(self.dataset.prompt_sets, self.limit))


def _data_of(settings: EvaluateSettings, folder: RunFolder) -> _Data:
    """Return the prompt-sets. A new dry run that cannot fetch a published dataset takes the starter
    set in its place, and a note says so.

    Raises:
        InputError: the dataset cannot be used, or is not the paper's and has to be.
    """
    try:
        dataset = load_dataset(settings.dataset, settings.taxonomy, settings.max_rows)
    except InputError as error:
        published = PUBLISHED.get(settings.dataset)
        estimated = settings.dry_run and settings.stop_when is None and not folder.exists()
        if published is None or not estimated:
            raise
        starter = load_dataset("starter")
        data = _Data(starter, settings.limit, published.sets, [])
        note = (
            f"the calls are those of {counted(data.planned, 'prompt-set')}, and the tokens are"
            f" estimated with the {len(starter)} of the starter set, for {error}"
        )
        return data._replace(notes=[note])
    is_file = settings.dataset != PAPER_DATASET
    if settings.as_paper and is_file and dataset.hash != PAPER_DATASET_HASH:
        raise InputError(
            f"--dataset {one_line(settings.dataset, 100)}: --as-paper takes the paper's 115"
            f" prompt-sets, and these are others (sha256 {dataset.hash[:8]}, not"
            f" {PAPER_DATASET_HASH[:8]})"
        )
    return _Data(dataset, settings.limit, len(dataset), [])


def _templates_of(settings: EvaluateSettings) -> tuple[Templates, list[str]]:
    """Return the judge templates in force. A dry run that cannot fetch the paper's takes ours, and
    a note says so.

    Raises:
        InputError: they cannot be used.
    """
    try:
        return settings.judge_templates(), []
    except InputError as error:
        if not (settings.dry_run and settings.as_paper and settings.rubrics is None):
            raise
        note = f"tokens of judges are estimated with our rubrics, for {error}"
        return load_templates(), [note]


def _undecided(gate: Gate) -> str:
    return (
        f"{gate.option} {gate.metric}={gate.limit:g}: with so few prompt-sets, a model that"
        " has not changed passes with a probability below 80 %, and otherwise ends undecided"
        " (exit code 5)"
    )


class _Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation: its settings, and the files and models that they name."""

    settings: EvaluateSettings
    folder: RunFolder
    models: tuple[str, ...]
    dataset: Dataset
    templates: Templates

    def plan(self) -> EvaluationPlan:
        """Return this evaluation's plan; the rest of the run is read from the ledger afterwards.

        Raises:
            InputError: the existing run cannot be mixed with this evaluation, or the question of
                --stop-when cannot be used.
        """
        folder = self.folder
        old = without_silent(folder, folder.load()[0], self.models) if folder.exists() else None
        return self._added_to(old)

    def _added_to(self, old: Manifest | None) -> EvaluationPlan:
        """Return the plan for the run as it is; None for a new one."""
        settings, folder = self.settings, self.folder
        named = list(dict.fromkeys((*self.models, *settings.panel)))
        named += [settings.guard] if settings.guard and settings.guard not in named else []
        earlier = old and old.before_addition()
        identities = {name: model_identity(name, settings.functions) for name in named}
        manifest = self._manifest(identities, old)
        sets = drawn(self.dataset.prompt_sets, settings.limit)
        work = [
            ModelWork(
                model=model,
                plan=manifest.plan(model),
                templates=self.templates,
                tasks=manifest.tasks_of(model, sets, settings.epochs),
            )
            for model in self.models
        ]
        plan = EvaluationPlan(
            settings=settings,
            folder=folder,
            dataset=self.dataset,
            manifest=manifest,
            work=work,
            named=named,
            notes=[
                *self._all_taken(len(sets)),
                *size_lines(settings, old, self._all_tasks(manifest)),
                *self._asked_again(old),
                *unlike_models(manifest, self.models),
            ],
            earlier=earlier,
            page=settings.report,
        )
        if settings.check_judge:
            examination = Examination(
                gold=load_gold_cases(),
                duties=duties_of(item.plan for item in work),
                templates=self.templates,
                parse=settings.grade_parse,
                sampling=settings.judge_sampling,
                samplings=settings.judge_samplings,
            )
            files, unread = default_judge_files()
            plan.known_checks, plan.examination = made_before(examination, identities, files)
            raise_if_failed_before(plan.known_checks)
            plan.notes += [*unread, *map(passed_before_line, plan.known_checks)]
        if settings.stop_when is not None:
            from opensafeintent.numbers.stop_when import StopWhen

            question = (settings.stop_when, settings.confidence, settings.max_missing)
            plan.stop_when = StopWhen(*question, manifest, old, self.dataset, work)
            plan.notes = [*plan.stop_when.impossible(), *plan.notes]
        return plan

    def _all_tasks(self, manifest: Manifest) -> dict[str, list[Task]]:
        """Return the tasks of each model of the command, earlier ones of the run included; none if
        no sample of them is asked for.
        """
        settings, tasks = self.settings, dict[str, list[Task]]()
        sampled = settings.judge_retest or settings.request_swap or settings.follow_up_audit
        for model in self.models:
            sets = manifest.sets_of(model, self.dataset) if sampled else ()
            tasks[model] = manifest.tasks_of(model, sets, manifest.models[model].epochs)
        return tasks

    def _manifest(self, identities: Mapping[str, str], old: Manifest | None) -> Manifest:
        """Return the manifest of the run as it is with this evaluation in it."""
        settings = self.settings
        stated: dict[str, Any] = {
            "target_sampling": settings.target_sampling,
            "judge_sampling": settings.judge_sampling,
            "system": settings.system,
            "preset": settings.preset,
        }
        if old is None:
            old = Manifest.new(self.dataset, ledger=ledger_name(settings.ledger))
        elif unlike := [
            *differences(old, self.dataset, stated),
            *judge_differences(old, settings.judge_sampling, settings.samplings_of_panel),
        ]:
            raise InputError(
                f"{self.folder.path}: holds a run that cannot be mixed with this one: "
                + "; ".join(unlike)
                + "; choose a new --out"
            )
        manifest = msgspec.structs.replace(
            old,
            models=old.models | self._entries(identities, old),
            judges=old.judges | {name: identities[name] for name in settings.panel},
            judge_samplings=old.judge_samplings | settings.judge_samplings,
            templates=old.templates | store_templates(self.templates),
            guard=guard_of(settings) or old.guard,
            **stated,
        ).swapping(settings.request_swap)
        manifest = self._with_options(manifest.with_second_turn())
        return with_labels([manifest], settings.label)[0]

    def _with_options(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the options that it has no other place for."""
        options = further_options(self.settings, manifest, self.models) or msgspec.UNSET
        entries = {
            model: msgspec.structs.replace(manifest.models[model], options=options)
            for model in self.models
        }
        return msgspec.structs.replace(manifest, models=manifest.models | entries)

    def _all_taken(self, sets: int) -> list[str]:
        """Say that a dataset has fewer prompt-sets than were asked for: a line, or none."""
        limit, name = self.settings.limit, self.dataset.name
        is_here = name == dataset_name(self.settings.dataset)
        if limit is None or limit <= sets or not is_here:
            return []
        line = f"{name} has {counted(sets, 'prompt-set')}; all are taken"
        return [f"--limit {limit:,}: {line}"]

    def _asked_again(self, old: Manifest | None) -> list[str]:
        """Say which templates are others than those that models of the run were graded by: a line,
        or none.
        """
        now = hashes_of(self.templates)
        before = old.models if old else {}
        roles = {
            role
            for model in self.models
            if model in before
            for role, digest in before[model].templates.items()
            if role != "reask" and digest != now.get(role)
        }
        line = (
            f"changed since the last run: the templates for {', '.join(sorted(roles))}; calls"
            " without an answer in the ledger are made; --rubrics takes the old templates"
        )
        return [line] if roles else []

    def _entries(self, identities: Mapping[str, str], old: Manifest) -> dict[str, ModelEntry]:
        settings = self.settings
        samples = samples_by_model(self.models, settings.judge_retest or 0)
        audits = samples_by_model(self.models, settings.follow_up_audit or 0)
        entries: dict[str, ModelEntry] = {}
        for model in self.models:
            entry = _entry(
                settings,
                identities[model],
                self.templates,
                probe=settings.probe,
                epochs=settings.epochs,
                limit=settings.limit,
                judge_retest=samples[model],
                follow_ups=settings.follow_ups,
                follow_up_audit=audits[model],
            )
            before = old.models.get(model)
            if before is not None and before.imported:
                raise InputError(
                    f"{self.folder.path}: the responses of {model} were imported into this run;"
                    " use another --out"
                )
            try:
                entries[model] = before.grown_by(entry) if before else entry
            except InputError as error:
                raise InputError(f"{self.folder.path}: {model}: {error}") from error
        return entries


def _entry(settings: Judging, identity: str, templates: Templates, **how: Any) -> ModelEntry:
    """Return the manifest's entry of a target whose responses are graded so; `how` has further
    fields.
    """
    return ModelEntry(
        identity=identity,
        judges=tuple(dict.fromkeys(settings.judges)),
        mode_judge=settings.mode_judge or settings.judges[0],
        modes=settings.modes,
        parse=settings.grade_parse,
        templates=hashes_of(templates),
        **how,
    )


def grade(settings: GradeSettings, *, quiet: bool = False) -> Outcome:
    """Let judges grade the responses of a run that came without grades; with `out`, every response
    of the run, in a new run. Responses that were imported with both grades keep those.

    Raises:
        InputError: there is no run, or nothing in it to grade.
        Stopped: a provider ended the work; answers so far are kept.
    """
    folder = RunFolder(settings.run, settings.ledger)
    folder.check()  # before the lock, which makes the folder
    with closing(display_for(quiet=quiet)) as screen:
        if settings.out is not None:
            return grade_into(settings, folder, RunFolder(settings.out, settings.ledger), screen)
        templates = settings.judge_templates()
        if settings.dry_run:
            return dry_run(_to_grade(settings, folder, templates))
        with folder.lock(wait_or_refuse(settings, screen)):
            return run_async(lambda: execute(_to_grade(settings, folder, templates), screen))


def _to_grade(settings: GradeSettings, folder: RunFolder, templates: Templates) -> EvaluationPlan:
    """Return the responses to grade, and the run as it is with these grades.

    Raises:
        InputError: there is nothing to grade, or the run has grades that were made otherwise.
    """
    manifest, dataset = folder.load()
    if unlike := judge_differences(manifest, settings.judge_sampling, settings.samplings_of_panel):
        raise InputError(f"{settings.run}: {'; '.join(unlike)}; give the same, or import again")
    manifest = without_silent(folder, manifest, manifest.models)
    earlier = manifest.before_addition()
    with Ledger(folder.ledger_path(manifest), readonly=True) as ledger:
        imported = imported_rows(ledger, dataset)
    tasks = {
        model: model_tasks
        for model, rows in imported.items()
        if model in manifest.models and (model_tasks := given_tasks(rows, manifest, dataset))
    }
    if not tasks:
        raise InputError(
            f"{settings.run}: no imported response is without grades; add --out DIR to have other"
            " judges grade this run, or import the file without its grade columns"
        )
    samples = samples_by_model(tasks, settings.judge_retest or 0)
    entries = {
        model: _graded_entry(settings, manifest.models[model], templates, count)
        for model, count in samples.items()
    }
    manifest = msgspec.structs.replace(
        manifest,
        models=manifest.models | entries,
        judges=manifest.judges
        | {name: model_identity(name, settings.functions) for name in settings.panel},
        judge_sampling=settings.judge_sampling,
        judge_samplings=manifest.judge_samplings | settings.judge_samplings,
        templates=manifest.templates | store_templates(templates),
        guard=guard_of(settings) or manifest.guard,
    ).swapping(settings.request_swap)
    work = [
        ModelWork(model=model, plan=manifest.plan(model), templates=templates, tasks=model_tasks)
        for model, model_tasks in tasks.items()
    ]
    return EvaluationPlan(
        settings=settings,
        folder=folder,
        dataset=dataset,
        manifest=manifest,
        work=work,
        named=list(dict.fromkeys(filter(None, (*settings.panel, settings.guard)))),
        notes=size_lines(settings, earlier, tasks),
        earlier=earlier,
    )


def _graded_entry(
    settings: GradeSettings, before: ModelEntry, templates: Templates, judge_retest: int
) -> ModelEntry:
    """Return the manifest's entry of a model whose imported responses are graded too."""
    how = {"probe": "none", "imported": True, "judge_retest": judge_retest}
    return before.grown_by(_entry(settings, before.identity, templates, **how))
