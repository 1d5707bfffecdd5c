"""Let judges grade responses: imported ones, or those of a run in a new run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.ledger_folder import ledger_name
from opensafeintent.calls.ledger_merge import copy_calls, copy_ledger
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.commands.outcome import RunOutcome
from opensafeintent.commands.planning import apply_judging_settings, grow_run
from opensafeintent.commands.running import RunCommand, dry_run, execute, leave_out_silent
from opensafeintent.commands.session import run_async, wait_or_refuse
from opensafeintent.commands.settings import GradeSettings
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import (
    Manifest,
    RunFolder,
)
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.plan import Plan, PlanChange
from opensafeintent.evaluation.regrade import yield_audit_keys
from opensafeintent.evaluation.replay import (
    has_both_grades,
    list_given_tasks,
    list_judged_tasks,
    read_imported,
    replay,
)
from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.completions import StoredOdds, read_turning_odds
from opensafeintent.numbers.gates import describe_sets
from opensafeintent.numbers.judges import JudgeShift
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.record import count_units
from opensafeintent.report.columns import describe_turning_odds, format_estimate
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics.shifts import least_margin
from opensafeintent.taxonomy import ProbeScope
from opensafeintent.templates import Templates


def grade(settings: GradeSettings, *, quiet: bool = False) -> RunOutcome:
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
            return _grade_into(settings, folder, RunFolder(settings.out, settings.ledger), screen)
        if settings.dry_run:
            return dry_run(_plan_grading(settings, folder))
        with folder.lock(wait_or_refuse(settings, screen)):
            return run_async(lambda: execute(_plan_grading(settings, folder), screen))


def _plan_grading(settings: GradeSettings, folder: RunFolder) -> RunCommand:
    """Return the responses to grade, and the run as it is with these grades.

    Raises:
        InputError: there is nothing to grade, or the run has grades that were made otherwise.
    """
    old, dataset = folder.load()
    old = leave_out_silent(folder, old, settings)
    with Ledger(folder.ledger_path(old), readonly=True) as ledger:
        imported = read_imported(ledger, dataset)
    judge_by = settings.judge_by or old.plan.judge_by
    asking = msgspec.structs.replace(old, plan=msgspec.structs.replace(old.plan, judge_by=judge_by))
    tasks = {
        model: list_given_tasks(rows, asking, dataset)
        for model, rows in imported.items()
        if model in old.models
    }
    if not any(tasks.values()):
        called = any(not entry.imported for entry in old.models.values())
        other = "add --out DIR to have other judges grade this run, or " if called else ""
        raise InputError(
            f"{settings.run}: no imported response is without grades; {other}import the file"
            " without its grade columns into a new run"
        )
    graded = [model for model in tasks if any(map(has_both_grades, imported[model]))]
    if graded and len(graded) < len(tasks):
        raise InputError(
            f"{settings.run}: responses of {graded[0]} came with grades, and those of other models"
            " did not; a run is judged as a whole: import the two into runs of their own, or that"
            " file without its grade columns"
        )
    templates = settings.judge_templates() if settings.rubrics or not old.plan.judges else None
    wanted = apply_judging_settings(settings, old.plan, templates)
    manifest = grow_run(folder, old, wanted, settings, templates=templates)
    return RunCommand(
        settings=settings,
        folder=folder,
        dataset=dataset,
        manifest=manifest,
        work=[manifest.work(model, its_tasks) for model, its_tasks in tasks.items()],
        earlier=old,
    )


def _grade_into(
    settings: GradeSettings, source: RunFolder, folder: RunFolder, display: Display
) -> RunOutcome:
    """Let judges grade the responses of a run in a new run.

    The ledger of the run is read and stays as it is. The new ledger gets the responses, and the
    grades by the judges that are named. A judge with such grades is not called, unless judges
    are asked again (`retest`, `swap`).

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
            outcome.notes.insert(0, _describe_precision(plan))
            return outcome
    with folder.lock(wait_or_refuse(settings, display)):
        outcome = run_async(lambda: execute(work.plan(work.ledger_path(), display), display))
    shifts = outcome.cohort.judges.shifts if outcome.cohort else ()
    outcome.notes += map(describe_shift, shifts)
    return outcome


def describe_shift(shift: JudgeShift) -> str:
    """Say how far the primary metrics move from one judge to another, and which models change
    places beyond chance.
    """
    old, new = (clean_for_display(judge) for judge in shift.judges)
    moves = ", ".join(
        f"{METRICS[item.metric].label}"
        f" {format_estimate(item, METRICS[item.metric].unit, signed=True)}"
        f"{_describe_turning_odds(item.turning_odds)}"
        for item in shift.metrics
        if item.family is not None
    )
    places = [
        f"; beyond chance, {clean_for_display(first)} and {clean_for_display(second)} change places"
        f" in {METRICS[rank.metric].label}{_describe_turning_odds(rank.turning_odds)}"
        for rank in shift.ranks
        if rank.changes_order and rank.significant
        for first, second in (rank.models,)
    ]
    more = (
        f"; {pluralize(len(places) - _MOST_PLACES, 'more change')} in the table judge_shift_ranks"
    )
    return (
        f"{new} in place of {old}: {moves or 'no response has grades by both'}"
        f"{''.join(places[:_MOST_PLACES])}{more if len(places) > _MOST_PLACES else ''}"
    )


def _describe_turning_odds(stored: StoredOdds) -> str:
    turning = read_turning_odds(stored)
    return "" if turning is None else f" (holds {describe_turning_odds(turning)})"


_MOST_PLACES = 3
"""Changes of order that a line names."""


def _describe_precision(plan: RunCommand) -> str:
    """Say how closely judges can be shown to agree on the planned prompt-sets."""
    sets = {task.set_id for item in plan.work for task in item.tasks}
    units = count_units(item for item in plan.dataset.prompt_sets if item.id in sets)
    points = 100 * least_margin(units)
    return (
        f"with {describe_sets(len(sets), units)}, two judges can be shown to agree on safety"
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

    def plan(self, ledger_path: Path, display: Display) -> RunCommand:
        """Copy responses and grades into a ledger, and return the plan of the calls that it lacks.

        Args:
            ledger_path: of the ledger that gets them.
            display: names the process that holds the ledger, if one does.

        Raises:
            InputError: see `_grade_into`.
        """
        settings, folder = self.settings, self.folder
        given, dataset = self.source.load()
        given = leave_out_silent(self.source, given, settings, given.models)
        old = None
        if folder.exists():
            old = leave_out_silent(folder, folder.load()[0], settings, given.models)
            _refuse_mixture(folder, old, given)
        templates = None
        if settings.rubrics or not given.plan.judges:
            templates = settings.judge_templates()
        wanted = self._plan_run(given, old, templates)
        with (
            Ledger(self.source.ledger_path(given), readonly=True) as source,
            source.snapshot(),
        ):
            tasks = _list_tasks(given, dataset, source)
            if not tasks:
                raise InputError(
                    f"{self.source.path}: holds no response that a judge could grade; expected a"
                    " run that evaluate wrote, or imported responses without grades"
                )
            manifest = self._manifest(given, old, wanted, templates, tasks)
            plan = manifest.plan
            display.stage("copying responses and grades")
            with Ledger(ledger_path, waiting=wait_or_refuse(settings, display)) as ledger:
                work = _copy_calls(manifest, dataset, tasks, source, ledger)
        stored = _find_only_stored(given.plan, plan)
        if plan.guard and plan.guard == given.plan.guard:
            stored |= {plan.guard.model} - {*settings.judges, settings.mode_judge}
        stored |= tasks.keys() - {*plan.asked}
        return RunCommand(
            settings=settings,
            folder=folder,
            dataset=dataset,
            manifest=manifest,
            work=work,
            earlier=old,
            only_stored=stored,
            notes=[*_note_uncopied_probes(given, manifest), *_note_left_out(given, tasks)],
        )

    def _plan_run(self, given: Manifest, old: Manifest | None, templates: Templates | None) -> Plan:
        """Return the plan of the run with the responses, or of the new run if it exists, with what
        the command states in it.

        Raises:
            InputError: a judge that graded the run would be asked in another way now.
        """
        settings, before = self.settings, given.plan
        base = msgspec.structs.replace(
            old.plan if old else before,
            limit=before.limit,
            epochs=before.epochs,
            follow_ups=before.follow_ups,
            turn=before.turn,
        )
        if old is None:
            base = msgspec.structs.replace(
                base,
                judges=(),
                mode_judge=_choose_mode_judge(settings.judges, before),
                retest=0,
                swap=None,
            )
        wanted = apply_judging_settings(settings, base, templates)
        for judge in before.judge_samplings.keys() & wanted.judge_samplings.keys():
            was, now = before.judge_samplings[judge], wanted.judge_samplings[judge]
            if was != now:
                change = PlanChange(f"arguments of {judge}", was, now)
                raise InputError(
                    f"{self.source.path}: {change}; give the same, so that only the judge changes"
                )
        own = {name: wanted.judge_samplings[name] for name in wanted.panel}
        wanted = msgspec.structs.replace(wanted, judge_samplings=own)
        return msgspec.structs.replace(wanted, probe=_choose_probe(before, wanted))

    def _manifest(
        self,
        given: Manifest,
        old: Manifest | None,
        wanted: Plan,
        templates: Templates | None,
        models: Iterable[str],
    ) -> Manifest:
        """Return the manifest of the new run.

        Args:
            given: of the run with the responses.
            old: of the new run, if it exists.
            wanted: plan of the new run.
            templates: that the command names; None are those of the run with the responses.
            models: of the responses to grade.
        """
        begun = old or msgspec.structs.replace(
            given,
            version=__version__,
            ledger=ledger_name(self.settings.ledger),
            models={},
            judges={name: key for name, key in given.judges.items() if name in wanted.panel},
            panel_before=(),
        )
        entries = {model: given.models[model] for model in models}
        manifest = grow_run(
            self.folder, begun, wanted, self.settings, templates=templates, models=entries
        )
        return manifest if old else msgspec.structs.replace(manifest, panel_before=())


def _choose_probe(before: Plan, plan: Plan) -> ProbeScope:
    """Return which probes of a run the new run has.

    No model is called. So the probes of unsafe responses stay only if the grades do.
    """
    same_question = before.templates.get("strategy") == plan.templates.get("strategy")
    rubrics, before_rubrics = (
        {role: digest for role, digest in one.templates.items() if role != "checklist"}
        for one in (plan, before)
    )
    same_grades = (
        {*before.judges} == {*plan.judges}
        and before_rubrics == rubrics
        and before.parse == plan.parse
    )
    stays = same_question if before.probe == "all" else same_grades
    return before.probe if stays else "none"


def _note_uncopied_probes(given: Manifest, manifest: Manifest) -> list[str]:
    """Return a note if probes are not copied."""
    called = any(not entry.imported for entry in manifest.models.values())
    if not called or given.plan.probe == manifest.plan.probe:
        return []
    return ["probes are not copied, because they follow the earlier grades"]


def _note_left_out(given: Manifest, tasks: Collection[str]) -> list[str]:
    """Return a note on models of which no response can be graded."""
    names = [clean_for_display(model) for model in given.models if model not in tasks]
    if not names:
        return []
    return [
        f"left out, since all their responses came with grades: {', '.join(names)}; to have judges"
        " grade them, import the file without its grade columns"
    ]


def _choose_mode_judge(judges: Sequence[str], before: Plan) -> str:
    """Return the judge of modes if the command names none: the one that the run has, or the first
    new judge.
    """
    if before.mode_judge in judges:
        return before.mode_judge
    new = [judge for judge in judges if judge not in before.judges]
    return (new or [before.mode_judge])[0]


def _find_only_stored(given: Plan, plan: Plan) -> frozenset[str]:
    """Return the judges that are not called: the run that is graded has their grades, by the same
    templates.

    Args:
        given: of the run that is graded.
        plan: of the new run.
    """
    if plan.swap or plan.retest:
        return frozenset()
    stored = {*given.panel}
    if given.templates != plan.templates:
        stored -= {*plan.panel}
    if given.mode_judge != plan.mode_judge or given.modes != plan.modes:
        stored.discard(plan.mode_judge)
    return frozenset(stored)


def _refuse_mixture(folder: RunFolder, old: Manifest, given: Manifest) -> None:
    """Refuse a folder that holds another run than one with these responses.

    Raises:
        InputError: see above.
    """
    sampled = [
        msgspec.structs.replace(
            Plan(),
            **{name: getattr(one.plan, name) for name in ("target_sampling", "system", "as_paper")},
        )
        for one in (old, given)
    ]
    other = [model for model in given.models if model in old.models]
    if (
        old.dataset.hash != given.dataset.hash
        or sampled[0] != sampled[1]
        or any(old.models[model].identity != given.models[model].identity for model in other)
    ):
        raise InputError(
            f"{folder.path}: holds a run with other responses (dataset, sampling, system prompt or"
            " models); choose a new --out"
        )


def _list_tasks(given: Manifest, dataset: Dataset, source: Ledger) -> dict[str, list[Task]]:
    """Return the responses of a run that judges can grade, by model; models without any are left
    out.
    """
    imported = read_imported(source, dataset)
    tasks = {
        model: list_judged_tasks(given, dataset, model, imported.get(model, ()))
        for model in given.models
    }
    return {model: its_tasks for model, its_tasks in tasks.items() if its_tasks}


def _copy_calls(
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
        planned = manifest.plan_tasks(model, its_tasks)
        for item, graded, asked in replay(source, manifest.identities(), planned):
            keys.update(call.key for call in asked)
            rows.append(graded)
            if graded.reason("response") in ("", "truncated"):
                stored.append(item.task)
        work.append(manifest.work(model, stored))
    keys.update(yield_audit_keys(manifest, dataset, source, rows))
    copy_calls(ledger, source, keys)
    if any(manifest.models[model].imported for model in tasks):
        ledger.imports.add(dataset.hash, source.imports.yield_with_files(dataset.hash))
    return work
