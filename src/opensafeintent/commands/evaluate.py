"""Evaluate models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from opensafeintent.any_model import model_identity
from opensafeintent.calls.baselines import BASELINES, DEMONSTRATION_JUDGE, drop_baselines
from opensafeintent.calls.ledger_folder import ledger_name
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.commands.checking_judges import (
    default_judge_files,
    describe_passed_before,
    find_earlier_checks,
    raise_if_failed_before,
)
from opensafeintent.commands.outcome import RunOutcome
from opensafeintent.commands.planning import (
    describe_missing_dual_use,
    grow_run,
    make_mixing_refusal,
    refuse_other_dataset,
    replace_questions,
    state_plan,
)
from opensafeintent.commands.running import RunCommand, dry_run, execute, leave_out_silent
from opensafeintent.commands.session import run_async, wait_or_refuse
from opensafeintent.commands.settings import EvaluateSettings
from opensafeintent.commands.settings.by_command import PAPER_DATASET
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.gold_cases import (
    GoldCheckPlan,
    list_grades_by_judge,
    load_gold_cases,
)
from opensafeintent.evaluation.manifest import (
    Manifest,
    ModelEntry,
    RunFolder,
    label_models,
    list_tasks,
)
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.hostile import clean_for_display, name_safe, one_line
from opensafeintent.numbers.gates import describe_second_turn_reach, describe_sets
from opensafeintent.numbers.metrics import METRICS, find_scope, is_defined, list_question_groups
from opensafeintent.numbers.stop_when import StopWhen
from opensafeintent.promptsets import Dataset, draw_sets, load_dataset
from opensafeintent.promptsets.loading import (
    PAPER_DATASET_HASH,
    PUBLISHED,
    NotAtHand,
    dataset_name,
)
from opensafeintent.promptsets.record import count_units
from opensafeintent.statistics.intervals import half_width
from opensafeintent.templates import Templates, load_templates


def demo(out: Path | None = None, *, quiet: bool = False) -> RunOutcome:
    """Evaluate the scripted baselines on the starter set with the demonstration judge: no key, no
    network.
    """
    targets = tuple(f"baseline/{name}" for name, script in BASELINES.items() if script.target)
    settings = EvaluateSettings(
        models=targets, judges=(DEMONSTRATION_JUDGE,), out=out or Path("runs/demo"), modes="core"
    )
    return evaluate(settings, quiet=quiet)


def evaluate(settings: EvaluateSettings, *, quiet: bool = False) -> RunOutcome:
    """Send every prompt to every model, grade the responses, and write the results into the run's
    folder.

    Running again is resuming: calls in the run's ledger are not made again. What is not stated is
    the run's. With other models, or a larger plan, the run grows (`plan.extend_plan`).

    Raises:
        InputError: a setting is not usable, or the folder holds a run that cannot be mixed with
            this one.
        JudgeFailed: a judge did not pass the requested check; no model was called.
        Stopped: a provider or a budget ended the run; answers so far are kept.
    """
    name = dataset_name(settings.dataset or "starter")
    out = settings.out or Path("runs").absolute() / name_safe(name)
    with closing(display_for(quiet=quiet)) as screen:
        folder = RunFolder(out, settings.ledger)
        stated = _NamedFiles.read(settings, folder, screen)
        if settings.dry_run:
            return _forecast_calls(settings, folder, stated)
        with folder.lock(wait_or_refuse(settings, screen)):
            return run_async(lambda: execute(_plan_calls(settings, folder, stated), screen))


def _forecast_calls(
    settings: EvaluateSettings, folder: RunFolder, stated: _NamedFiles
) -> RunOutcome:
    command = _plan_calls(settings, folder, stated)
    plan, dataset = command.manifest.plan, command.dataset
    size, drawn = stated.size or len(dataset), draw_sets(dataset.prompt_sets, plan.limit)
    scope = find_scope(dataset)._replace(rubric=plan.by_rubric, asked=list_question_groups(dataset))
    safety = METRICS[scope.safety]
    lacking = sum(not is_defined(safety, item) for item in drawn)
    sets = min(size, plan.limit or size) - lacking
    outcome = dry_run(command, factor=stated.factor(plan.limit))
    units = max(round(sets * count_units(drawn) / len(drawn)), 1)
    precision = (
        f"with {describe_sets(sets, units)}, the 95 % interval of {safety.label} is at most"
        f" {min(200 * half_width(units), 100):.0f} points wide"
    )
    lines = [precision, *stated.notes]
    if plan.follow_ups:
        models = len(drop_baselines(command.manifest.models))
        lines.append(describe_second_turn_reach(sets, plan.epochs, models, units))
    outcome.notes[:0] = lines
    return outcome


class _NamedFiles(NamedTuple):
    """The files that a command names, read before the folder is locked."""

    dataset: Dataset | None
    """None is the run's."""
    templates: Templates | None
    """None are the run's."""
    size: int
    """Prompt-sets of the dataset that is named; 0 if none is."""
    notes: list[str]

    @classmethod
    def read(cls, settings: EvaluateSettings, folder: RunFolder, screen: Display) -> _NamedFiles:
        """Read what is named; for a new run also what it has by default.

        Raises:
            InputError: the dataset or the templates cannot be used, or are not the paper's and have
                to be.
        """
        run, notes = folder.manifest() if folder.exists() else None, list[str]()
        dataset, size, templates = None, 0, None
        if run is None or settings.dataset:
            name = settings.dataset or "starter"
            screen.stage(f"reading {clean_for_display(name)}")
            dataset, size, note = _read_dataset(settings, name, folder, run)
            notes += note
        has_rubrics = run is not None and (run.plan.as_paper or not settings.as_paper)
        if settings.rubrics or not has_rubrics:
            templates, note = _read_templates(settings)
            notes += note
        return cls(dataset, templates, size, notes)

    def factor(self, limit: int | None) -> float:
        """Return the prompt-sets that are evaluated over those that are at hand: a dry run may
        estimate with others.
        """
        if self.dataset is None or self.size == len(self.dataset):
            return 1.0
        return min(self.size, limit or self.size) / len(draw_sets(self.dataset.prompt_sets, limit))


def _read_dataset(
    settings: EvaluateSettings, name: str, folder: RunFolder, run: Manifest | None
) -> tuple[Dataset | None, int, list[str]]:
    """Return the prompt-sets, and their number. One that is not at hand is the run's own, if it has
    that name; a new dry run that cannot fetch a published dataset takes the starter set in its
    place. A note says so.

    Raises:
        InputError: see `_NamedFiles.read`.
    """
    try:
        dataset = load_dataset(name, settings.taxonomy)
    except NotAtHand as error:
        if run is not None:
            if run.dataset.name == dataset_name(name):
                return None, 0, [f"{error}; the run’s own prompt-sets are used"]
            own = clean_for_display(run.dataset.name)
            raise InputError(
                f"{error}; {folder.path} has prompt-sets of its own ({own}): leave --dataset out"
            ) from error
        published = PUBLISHED.get(name)
        if published is None or not settings.dry_run or settings.stop_when:
            raise
        starter, size = load_dataset("starter"), published.sets
        planned = min(size, settings.limit or size)
        note = (
            f"the calls are those of {pluralize(planned, 'prompt-set')}, and the tokens are"
            f" estimated with the {len(starter)} of the starter set, for {error}"
        )
        return starter, size, [note]
    if settings.as_paper and name != PAPER_DATASET and dataset.hash != PAPER_DATASET_HASH:
        raise InputError(
            f"--dataset {one_line(name)}: --as-paper takes the paper's 115 prompt-sets, and"
            f" these are others (sha256 {dataset.hash[:8]}, not {PAPER_DATASET_HASH[:8]})"
        )
    return dataset, len(dataset), [f"left out: {line}" for line in dataset.left_out]


def _read_templates(settings: EvaluateSettings) -> tuple[Templates, list[str]]:
    """Return the judge templates. A dry run that cannot fetch the paper's takes ours, and a note
    says so.

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


def _plan_calls(settings: EvaluateSettings, folder: RunFolder, stated: _NamedFiles) -> RunCommand:
    """Return the run as it is with this evaluation in it, and the calls that it takes.

    Raises:
        InputError: the run cannot be mixed with this evaluation, or the question of --stop-when
            cannot be used.
    """
    stored, old, dataset = None, None, stated.dataset
    if folder.exists():
        stored, of_run = folder.load()
        old = leave_out_silent(folder, stored, settings)
        refuse_other_dataset(settings, folder, old, dataset)
        dataset = of_run
    assert dataset is not None  # a new run has one
    manifest = old or Manifest.new(dataset, ledger=ledger_name(settings.ledger))
    models = _choose_models(settings, folder, manifest)
    size = stated.size or len(dataset)
    wanted = state_plan(settings, manifest.plan, size, stated.templates)
    if old is not None and stated.dataset is not None:
        dataset = replace_questions(folder, old, dataset, stated.dataset, wanted)
    entries = {
        model: ModelEntry(
            identity=model_identity(model, settings.functions),
            label=manifest.models[model].label if model in manifest.models else "",
        )
        for model in settings.under_test
    }
    manifest = grow_run(
        folder, manifest, wanted, settings, templates=stated.templates, models=entries
    )
    manifest, plan = label_models([manifest], settings.label)[0], manifest.plan
    about_pairs = describe_missing_dual_use(settings, plan, dataset)
    ended = stored if stored and stored.stop_when and stored.stop_when.limits else None
    if ended and (ended.plan != plan or ended.models.keys() != manifest.models.keys()):
        raise make_mixing_refusal(folder, ended, "the run ended with an answer to --stop-when")
    work = _list_work(manifest, dataset, models, to_the_end=settings.stop_when is not None)
    command = RunCommand(
        settings=settings,
        folder=folder,
        dataset=dataset,
        manifest=manifest,
        work=work,
        notes=[*about_pairs, *([] if settings.dry_run else stated.notes)],
        earlier=old,
    )
    if settings.limit and plan.limit is None and settings.limit > len(dataset) and not stated.notes:
        has = pluralize(len(dataset), "prompt-set")
        command.notes.append(f"--limit {settings.limit:,}: {dataset.name} has {has}; all are taken")
    if settings.check_judge:
        add_check(command)
    if settings.stop_when is not None:
        question = (settings.stop_when, settings.confidence, settings.max_missing)
        command.stop_when = StopWhen(*question, manifest, dataset, work)
        command.notes = [*command.stop_when.impossible(), *command.notes]
    return command


def _list_work(
    manifest: Manifest, dataset: Dataset, models: Sequence[str], *, to_the_end: bool
) -> list[ModelWork]:
    """Return the tasks of models, in the order of samples: an interruption leaves a sample.

    Args:
        manifest: of the run with its plan.
        dataset: its prompt-sets.
        models: to ask.
        to_the_end: whether all of the plan is to be asked, also of models that a question ended.
    """
    plan = manifest.plan
    limits = {model: plan.limit if to_the_end else manifest.find_limit(model) for model in models}
    return [
        manifest.work(
            model,
            list_tasks(
                model,
                draw_sets(dataset.prompt_sets, limit),
                plan.epochs,
                plan.follow_ups,
                only_asked_about=not plan.by_rubric,
            ),
        )
        for model, limit in limits.items()
    ]


def add_check(command: RunCommand) -> None:
    """Let a command check its judges on the gold cases first, those aside that passed before.

    Raises:
        JudgeFailed: one failed before.
    """
    manifest = command.manifest
    templates = manifest.judge_templates()
    gold_check = GoldCheckPlan(
        gold=load_gold_cases(),
        grades_by_judge=list_grades_by_judge(item.plan for item in command.work),
        templates=templates,
        parse=manifest.plan.parse,
        samplings=manifest.plan.judge_samplings,
    )
    files, unread = default_judge_files()
    known, command.gold_check = find_earlier_checks(gold_check, manifest.judges, files)
    raise_if_failed_before(known)
    command.known_checks = known
    command.notes += [*unread, *map(describe_passed_before, known)]


def _choose_models(
    settings: EvaluateSettings, folder: RunFolder, manifest: Manifest
) -> tuple[str, ...]:
    """Return the models that are named; without any, those of the run that can be called.

    Raises:
        InputError: there is none, or responses of the run were imported and are graded elsewhere,
            or are those of a model that is named.
    """
    imported = [name for name, entry in manifest.models.items() if entry.imported]
    if imported and not manifest.plan.judges:
        raise InputError(
            f"{folder.path}: holds imported responses that no judge has graded: `opensafeintent"
            f" grade {folder.path} --judge MODEL` does, or choose a new --out"
        )
    if both := next((name for name in settings.under_test if name in imported), None):
        raise InputError(
            f"{folder.path}: the responses of {both} were imported into this run; use another --out"
        )
    models = settings.under_test or tuple(name for name in manifest.models if name not in imported)
    if not models:
        raise InputError("no model to evaluate: name at least one, or a --suite")
    return models
