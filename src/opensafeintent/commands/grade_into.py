"""Grade the responses of a run into a new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.ledger_folder import ledger_name
from opensafeintent.calls.ledger_merge import copy_calls, copy_ledger
from opensafeintent.calls.progress import Display
from opensafeintent.commands.outcome import Outcome
from opensafeintent.commands.running import EvaluationPlan, dry_run, execute, without_silent
from opensafeintent.commands.session import run_async, wait_or_refuse
from opensafeintent.commands.settings import EvaluateSettings, GradeSettings, Judging
from opensafeintent.errors import InputError, counted
from opensafeintent.evaluation.manifest import (
    Manifest,
    ModelEntry,
    RunFolder,
    differences,
    hashes_of,
    judge_differences,
    store_templates,
)
from opensafeintent.evaluation.pipeline import Guard, ModelWork, Task
from opensafeintent.evaluation.rebuild import imported_rows, judged_tasks
from opensafeintent.evaluation.regrade import samples_by_model, stored_audit
from opensafeintent.evaluation.replay import replay
from opensafeintent.evaluation.run import AUDITED
from opensafeintent.hostile import one_line
from opensafeintent.inspect.routes import model_identity
from opensafeintent.numbers.judges import JudgeShift
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.promptsets import Dataset
from opensafeintent.report.columns import interval
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics.shifts import least_margin
from opensafeintent.taxonomy import ProbeScope
from opensafeintent.templates import Templates
from opensafeintent.templates.guards import load_form


class _RunSize(NamedTuple):
    """A setting that says how much of something a run has."""

    flag: str
    asked: int | None
    before: int
    """The run has so many before the command."""
    noun: str
    most: int | None = None
    """It can have so many; None is not said here."""
    of: str = ""
    """What these are called."""

    def lines(self) -> Iterator[str]:
        """Yield a line if the run does not get the number that was asked for."""
        if self.asked is None:
            return
        named = f"{self.flag} {self.asked:,}"
        before = self.before if self.most is None else min(self.before, self.most)
        if self.asked < before:
            has = counted(before, self.noun)
            yield f"{named}: the run has {has} already; none is removed"
        elif self.most is not None and self.asked > self.most:
            yield f"{named}: the run has {counted(self.most, self.of)}; all are taken"


def size_lines(
    settings: EvaluateSettings | GradeSettings,
    old: Manifest | None,
    tasks: Mapping[str, Sequence[Task]],
) -> list[str]:
    """Say which numbers of a command the run does not have afterwards: a line each.

    Args:
        settings: of the command.
        old: of the run as it is; None for a new one.
        tasks: by model of the command, all that the run has afterwards; there may be none if no
            sample of them is asked for.
    """
    before = [old.models[model] for model in tasks if old and model in old.models]
    swaps = old.request_swap.sets if old and old.request_swap else 0
    replies = [task for of_model in tasks.values() for task in of_model if task.earlier is None]
    sizes = [
        _RunSize(
            "--judge-retest",
            settings.judge_retest,
            sum(entry.judge_retest for entry in before),
            "retested response",
            len(replies),
            "response",
        ),
        _RunSize(
            "--request-swap",
            settings.request_swap,
            swaps,
            "audited prompt-set",
            len({task.set_id for task in replies}),
            "prompt-set",
        ),
    ]
    if isinstance(settings, EvaluateSettings):
        all_sets = old.dataset.sets if old else 0
        sizes += [
            _RunSize(
                "--limit",
                settings.limit,
                max((entry.limit or all_sets for entry in before), default=0),
                "prompt-set",
            ),
            _RunSize(
                "--epochs",
                None if settings.epochs == 1 else settings.epochs,  # it may not be given
                max((entry.epochs for entry in before), default=0),
                "epoch",
            ),
            _RunSize(
                "--follow-up-audit",
                settings.follow_up_audit,
                sum(entry.follow_up_audit for entry in before),
                "audited response",
                sum(task.variant in AUDITED for task in replies),
                "direct response",
            ),
        ]
    return [line for size in sizes for line in size.lines()]


def guard_of(settings: Judging) -> Guard | None:
    """Return the guard model of a command; None if it names none.

    Raises:
        InputError: there is no such model, or its form is not known.
    """
    if settings.guard is None:
        return None
    form = settings.form_of_guard(settings.guard)
    return Guard(
        model=settings.guard,
        identity=model_identity(settings.guard, settings.functions),
        form=form,
        source=load_form(form).source,
        sampling=settings.guard_sampling,
    )


def grade_into(
    settings: GradeSettings, source: RunFolder, folder: RunFolder, display: Display
) -> Outcome:
    """Let judges grade the responses of a run in a new run.

    The ledger of the run is read and stays as it is. The new ledger gets the responses, and the
    grades by the judges that are named. A judge with such grades is not called, unless judges
    are asked again (`judge_retest`, `request_swap`).

    Args:
        settings: of the command.
        source: the run with the responses.
        folder: of the new run; one that exists grows.
        display: shows the progress.

    Raises:
        InputError: the run has no response to grade, or the folder holds a run that cannot be mixed
            with this one.
        Stopped: a provider ended the work; answers so far are kept.
    """
    outside = Path(source.manifest().ledger)
    if settings.ledger and outside.is_absolute() and settings.ledger.resolve() == outside.resolve():
        # it names the ledger that is read; the new run has one of its own
        settings = msgspec.structs.replace(settings, ledger=None)
    work = _NewRun(settings=settings, source=source, folder=folder)
    if settings.dry_run:
        with TemporaryDirectory() as scratch:
            ledger_path = Path(scratch) / LEDGER
            if (stored := work.ledger_path()).is_file():
                copy_ledger(stored, ledger_path)
            plan = work.plan(ledger_path, display)
            outcome = dry_run(plan, ledger_path)
            outcome.notes.insert(0, _precision(plan))
            return outcome
    with folder.lock(wait_or_refuse(settings, display)):
        outcome = run_async(lambda: execute(work.plan(work.ledger_path(), display), display))
    shifts = (shift for cohort in outcome.cohorts for shift in cohort.judges.shifts)
    outcome.notes += map(shift_line, shifts)
    return outcome


def shift_line(shift: JudgeShift) -> str:
    """Say how far the primary metrics move from one judge to another, and which models change
    places beyond chance.
    """
    old, new = (one_line(judge, 80) for judge in shift.judges)
    moves = ", ".join(
        f"{METRICS[item.metric].label}"
        f" {interval(item.value, item.low, item.high, METRICS[item.metric].unit, signed=True)}"
        for item in shift.metrics
        if item.family is not None
    )
    places = [
        f"; beyond chance, {one_line(first, 80)} and {one_line(second, 80)} change places in"
        f" {METRICS[rank.metric].label}"
        for rank in shift.ranks
        if rank.changes_order and rank.leaves_out_zero
        for first, second in (rank.models,)
    ]
    more = f"; {counted(len(places) - _MOST_PLACES, 'more change')} in the table judge_shift_ranks"
    return (
        f"{new} in place of {old}: {moves or 'no response has grades by both'}"
        f"{''.join(places[:_MOST_PLACES])}{more if len(places) > _MOST_PLACES else ''}"
    )


_MOST_PLACES = 3
"""Changes of order that a line names."""


def _precision(plan: EvaluationPlan) -> str:
    """Say how closely judges can be shown to agree on the planned prompt-sets."""
    sets = len({task.set_id for item in plan.work for task in item.tasks})
    points = 100 * least_margin(sets)
    return (
        f"with {counted(sets, 'prompt-set')}, two judges can be shown to agree on Triplet Safety"
        f" within ± {points:.1f} points at best"
    )


class _NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """One command that grades the responses of a run in a new one."""

    settings: GradeSettings
    source: RunFolder
    folder: RunFolder

    def ledger_path(self) -> Path:
        """Return the path of the new run's ledger.

        Raises:
            InputError: it is the ledger of the graded run, or see `RunFolder.ledger_to_write`.
        """
        settings = self.settings
        old = self.folder.manifest() if self.folder.exists() else None
        name = old.ledger if old else ledger_name(settings.ledger)
        manifest = msgspec.structs.replace(self.source.manifest(), ledger=name)
        path = self.folder.ledger_to_write(manifest, settings.ledger)
        if path.resolve() == self.source.ledger_path(self.source.manifest()).resolve():
            raise InputError(
                f"--ledger {path}: is the ledger of {self.source.path}, which is only read;"
                " expected another file"
            )
        return path

    def plan(self, ledger_path: Path, display: Display) -> EvaluationPlan:
        """Copy responses and grades into a ledger, and return the plan of the calls that it lacks.

        Args:
            ledger_path: of the ledger that gets them.
            display: names the process that holds the ledger, if one does.

        Raises:
            InputError: see `grade_into`.
        """
        settings, folder = self.settings, self.folder
        given, dataset = self.source.load()
        given = without_silent(self.source, given, given.models)
        _refuse_unlike(settings, self.source, given)
        old = None
        if folder.exists():
            old = without_silent(folder, folder.load()[0], given.models)
            _refuse_mixture(settings, folder, old, given, dataset)
        with (
            Ledger(self.source.ledger_path(given), readonly=True) as source,
            source.snapshot(),
        ):
            tasks = _tasks(given, dataset, source)
            if not any(tasks.values()):
                raise InputError(
                    f"{self.source.path}: holds no response that a judge could grade; expected a"
                    " run that evaluate wrote, or imported responses without grades"
                )
            manifest = self._manifest(given, dataset, old, tasks)
            display.stage("copying responses and grades")
            with Ledger(ledger_path, waiting=wait_or_refuse(settings, display)) as ledger:
                work = _copied(manifest, dataset, tasks, source, ledger)
        stored = _only_stored(given, manifest, tasks)
        if manifest.guard and manifest.guard == given.guard:
            stored |= {manifest.guard.model} - {*settings.panel}
        guards = {settings.guard, manifest.guard.model if manifest.guard else None}
        stored |= tasks.keys() - {*settings.panel, *manifest.judges, *guards}
        named = [name for name in (*settings.panel, settings.guard) if name and name not in stored]
        return EvaluationPlan(
            settings=settings,
            folder=folder,
            dataset=dataset,
            manifest=manifest,
            work=work,
            named=list(dict.fromkeys(named)),
            earlier=old and old.before_addition(),
            only_stored=stored,
            notes=[
                *size_lines(settings, old, tasks),
                *_without_probes(given, manifest, tasks),
            ],
        )

    def _manifest(
        self, given: Manifest, dataset: Dataset, old: Manifest | None, tasks: dict[str, list[Task]]
    ) -> Manifest:
        """Return the manifest of the new run.

        Args:
            given: of the run with the responses.
            dataset: its prompt-sets.
            old: of the new run, if it exists.
            tasks: by model, the responses to grade.
        """
        settings = self.settings
        templates = {model: self._templates(given, model) for model in tasks}
        samples = samples_by_model(tasks, settings.judge_retest or 0)
        entries: dict[str, ModelEntry] = {}
        for model, chosen in templates.items():
            before = old.models.get(model) if old else None
            entry = self._entry(given.models[model], before, chosen, samples[model])
            grown = before.grown_by(entry) if before else entry
            probe = _copied_probe(given.models[model], grown)
            entries[model] = msgspec.structs.replace(grown, probe=probe)
        kept = {judge: given.judges[judge] for judge in given.judges if judge not in settings.panel}
        named = {name: model_identity(name, settings.functions) for name in settings.panel}
        used = {judge for entry in entries.values() for judge in (*entry.judges, entry.mode_judge)}
        identities = (old.judges if old else {}) | kept | named
        stored = {
            digest: item
            for new in templates.values()
            for digest, item in (store_templates(new).items())
        }
        return msgspec.structs.replace(
            given,
            version=__version__,
            ledger=old.ledger if old else ledger_name(settings.ledger),
            models=(old.models if old else {}) | entries,
            judges={name: key for name, key in identities.items() if name in used},
            judge_sampling=settings.judge_sampling,
            judge_samplings=given.judge_samplings
            | (old.judge_samplings if old else {})
            | settings.judge_samplings,
            templates=(old.templates if old else {}) | stored,
            judge_checks=old.judge_checks if old else given.judge_checks,
            prices=(old or given).prices,
            request_swap=old.request_swap if old else None,
            guard=guard_of(settings) or (old or given).guard,
            panels_before={},
        ).swapping(settings.request_swap)

    def _entry(
        self, before: ModelEntry, there: ModelEntry | None, templates: Templates, retest: int
    ) -> ModelEntry:
        """Return the new run's entry of a model, its probes aside.

        Args:
            before: its entry in the run with the responses.
            there: in the new run, if it has one; its judge of modes stays unless another is named.
            templates: by which it is graded.
            retest: how many of its responses each judge grades once more.
        """
        settings = self.settings
        graded = bool(before.judges)
        stays = there is not None and there.mode_judge in there.judges
        mode_judge = settings.mode_judge or (
            there.mode_judge if there and stays else _mode_judge(settings.judges, before)
        )
        parse = before.parse if graded and settings.grade_parse == "strict" else None
        return msgspec.structs.replace(
            before,
            judges=tuple(dict.fromkeys(settings.judges)),
            parse=parse or settings.grade_parse,
            templates=hashes_of(templates),
            judge_retest=retest,
            mode_judge=mode_judge,
            modes=before.modes if mode_judge == before.mode_judge else settings.modes,
        )

    def _templates(self, given: Manifest, model: str) -> Templates:
        """Return the templates for a model: those that its grades were given by, unless the command
        names others.
        """
        settings = self.settings
        if given.models[model].judges and not (settings.rubrics or settings.judge_reasons):
            return given.templates_of(model)
        return settings.judge_templates()


def _copied_probe(before: ModelEntry, entry: ModelEntry) -> ProbeScope:
    """Return which probes a model's entry in the new run has, of those in its entry before.

    The model is not called. So the probes of unsafe responses stay only if the grades do.
    """
    same_question = before.templates.get("strategy") == entry.templates.get("strategy")
    same_grades = (
        set(before.judges) == set(entry.judges)
        and before.templates == entry.templates
        and before.parse == entry.parse
    )
    stays = same_question if before.probe == "all" else same_grades
    return before.probe if stays and not before.imported else "none"


def _without_probes(given: Manifest, manifest: Manifest, models: Iterable[str]) -> list[str]:
    """Return a note that names the models whose probes are not copied, if there are any."""
    lacking = [
        one_line(model, 80)
        for model in models
        if not given.models[model].imported
        and given.models[model].probe != "none"
        and manifest.models[model].probe == "none"
    ]
    if not lacking:
        return []
    return [f"probes are not copied, because they follow the earlier grades: {', '.join(lacking)}"]


def _mode_judge(judges: Sequence[str], before: ModelEntry) -> str:
    """Return the judge of modes if the command names none: the one that the run has, or the first
    new judge.
    """
    if before.mode_judge in judges:
        return before.mode_judge
    new = [judge for judge in judges if judge not in before.judges]
    return (new or [before.mode_judge])[0]


def _only_stored(given: Manifest, manifest: Manifest, models: Iterable[str]) -> frozenset[str]:
    """Return the judges that are not called: the run that is graded has their grades, by the same
    templates.

    Args:
        given: of the run that is graded.
        manifest: of the new run.
        models: the models whose responses are graded.
    """
    entries = [(given.models[model], manifest.models[model]) for model in models]
    if manifest.request_swap or any(entry.judge_retest for _, entry in entries):
        return frozenset()
    by_model = [{*before.judges, before.mode_judge} for before, _ in entries]
    stored = set.intersection(*by_model)
    for before, entry in entries:
        if before.templates != entry.templates:
            stored -= {*entry.judges, entry.mode_judge}
        if before.mode_judge != entry.mode_judge:
            stored.discard(entry.mode_judge)
    return frozenset(stored)


def _refuse_unlike(settings: GradeSettings, source: RunFolder, given: Manifest) -> None:
    """Refuse judges that graded the run and would be asked in another way now.

    Raises:
        InputError: see above.
    """
    if not given.judges.keys() & set(settings.panel):
        return
    unlike = judge_differences(given, settings.judge_sampling, settings.samplings_of_panel)
    if unlike:
        raise InputError(
            f"{source.path}: {'; '.join(unlike)}; give the same, so that only the judge changes"
        )


def _refuse_mixture(
    settings: GradeSettings, folder: RunFolder, old: Manifest, given: Manifest, dataset: Dataset
) -> None:
    """Refuse a folder that holds another run than one with these responses, or other arguments of
    judges.

    Raises:
        InputError: see above.
    """
    fields = ("target_sampling", "judge_sampling", "system", "preset")
    unlike = differences(old, dataset, {field: getattr(given, field) for field in fields})
    unlike += judge_differences(old, settings.judge_sampling, settings.samplings_of_panel)
    unlike += [
        f"model {model}: it was called under another identity"
        for model, entry in given.models.items()
        if model in old.models and old.models[model].identity != entry.identity
    ]
    if unlike:
        raise InputError(
            f"{folder.path}: holds a run that cannot be mixed with this one: {'; '.join(unlike)};"
            " choose a new --out"
        )


def _tasks(given: Manifest, dataset: Dataset, source: Ledger) -> dict[str, list[Task]]:
    """Return the responses of a run that judges can grade, by model; models without any are left
    out.
    """
    imported = imported_rows(source, dataset)
    tasks = {
        model: judged_tasks(given, dataset, model, imported.get(model, ()))
        for model in given.models
    }
    return {model: its_tasks for model, its_tasks in tasks.items() if its_tasks}


def _copied(
    manifest: Manifest,
    dataset: Dataset,
    tasks: dict[str, list[Task]],
    source: Ledger,
    ledger: Ledger,
) -> list[ModelWork]:
    """Copy the stored calls of a plan into a ledger; return the responses that judges can be asked
    about.

    The audit of second turns is part of it. Other second gradings are not: a judge that is asked
    again is asked now.

    Args:
        manifest: of the new run.
        dataset: its prompt-sets.
        tasks: by model, the responses to grade.
        source: the ledger with the stored calls.
        ledger: the one that gets them.
    """
    keys: set[bytes] = set()
    rows: list[GradedResponse] = []
    work: list[ModelWork] = []
    for model, its_tasks in tasks.items():
        stored: list[Task] = []
        planned = manifest.planned(model, its_tasks)
        for task, graded, asked in replay(source, manifest.identities(), planned):
            keys.update(call.key for call in asked)
            rows.append(graded)
            if graded.reason("response") in ("", "truncated"):
                stored.append(task)
        work.append(
            ModelWork(
                model=model,
                plan=manifest.plan(model),
                templates=manifest.templates_of(model),
                tasks=stored,
            )
        )
    keys.update(stored_audit(manifest, dataset, source, rows))
    copy_calls(ledger, source, keys)
    if any(manifest.models[model].imported for model in tasks):
        ledger.imports.add(dataset.hash, source.imports.with_files(dataset.hash))
    return work
