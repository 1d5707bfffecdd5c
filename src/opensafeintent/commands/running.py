"""The one shell of commands that work on a run: the forecast, the calls themselves, and the
results. `docs/architecture.md` lists what is on disk if one is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from math import isnan
from pathlib import Path
from typing import get_args

import msgspec

from opensafeintent.any_model import describe_unset_variables
from opensafeintent.calls.client import Client, choose_concurrency
from opensafeintent.calls.costs import Budget, forecast_cost
from opensafeintent.calls.headers import headers_by_model, unlike_requests
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.ledger_merge import shard_read, take_up
from opensafeintent.calls.prices import PriceList, Prices, read_prices
from opensafeintent.calls.progress import Display, progress_line, refresh_display
from opensafeintent.calls.providers import PYTHON_PREFIX
from opensafeintent.calls.python_models import hash_functions
from opensafeintent.calls.records import Failed
from opensafeintent.commands.batching import begin_batches, fill_ledger_in_batches
from opensafeintent.commands.checking_judges import check_before_run, describe_passed
from opensafeintent.commands.graded_runs import count_added_grades, make_graded_run, name_runs
from opensafeintent.commands.outcome import RunOutcome, run_again_can_bring
from opensafeintent.commands.planning import check_judge_by, set_checklist
from opensafeintent.commands.reporting import write_results
from opensafeintent.commands.session import (
    Session,
    check_batch_models,
    make_budget,
    open_session,
    plan_flex_tier,
    run_async,
    show_waiting,
)
from opensafeintent.commands.settings import EvaluateSettings, GradeSettings
from opensafeintent.errors import InputError, first_exit_code, pluralize
from opensafeintent.evaluation.forecast import (
    Forecast,
    forecast,
    forecast_regrades,
)
from opensafeintent.evaluation.gold_cases import (
    GoldCheckPlan,
    JudgeCheck,
    make_gold_check_work,
    merge_checks,
)
from opensafeintent.evaluation.manifest import (
    Manifest,
    RunFolder,
    store_templates,
)
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.plan import describe_growth
from opensafeintent.evaluation.regrade import Regrades, regrade
from opensafeintent.evaluation.replay import derive, replay
from opensafeintent.evaluation.run import count_missing_grades, run_work
from opensafeintent.files import inside, near
from opensafeintent.grades import check_cells
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.numbers.cohort import Cohort, GradedRun, gather_models, name_graders
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.numbers.stop_when import StopWhen
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.record import describe_questions
from opensafeintent.report.cost_tables import dollars_text
from opensafeintent.responses import GradedResponse, ResponseKey
from opensafeintent.taxonomy import JudgeBy
from opensafeintent.templates import load_templates

_READ_AT_ONCE = 500
_CAREFUL = 32
"""Connections if an answer may end the run: calls in flight then are paid for, and do not count."""
_SHARDS = "shards"
"""The folder of their ledgers, in that of the run; it exists while a cluster works, or after an
interruption.
"""


def leave_out_silent(
    folder: RunFolder,
    manifest: Manifest,
    settings: EvaluateSettings | GradeSettings,
    kept: Collection[str] = (),
) -> Manifest:
    """Leave out the names that never answered where the command states names, so that one that was
    misspelt once does not stay in the run. What the command does not state is the run's, with
    names that are still to answer.

    Args:
        folder: of the run.
        manifest: as it is stored.
        settings: of the command; a model that it names stays.
        kept: further models that stay.
    """
    answering = _find_answering(folder, manifest)
    plan, models = manifest.plan, manifest.models
    if settings.guard and plan.guard and plan.guard.model not in answering:
        plan = msgspec.structs.replace(plan, guard=None)
    if settings.judges:
        if judges := tuple(judge for judge in plan.judges if judge in answering):
            plan = msgspec.structs.replace(plan, judges=judges)
        else:  # the plan of a run in which nothing was graded is as good as new
            plan = msgspec.structs.replace(plan, judges=(), mode_judge="")
    if settings.mode_judge and plan.mode_judge not in answering:
        plan = msgspec.structs.replace(plan, mode_judge="")
    samplings = {name: of for name, of in plan.judge_samplings.items() if name in plan.panel}
    plan = msgspec.structs.replace(plan, judge_samplings=samplings)
    judges_left = {name: key for name, key in manifest.judges.items() if name in plan.panel}
    if settings.under_test:
        kept = answering | {*kept, *settings.under_test}
        models = {name: of for name, of in models.items() if of.imported or name in kept}
    return msgspec.structs.replace(manifest, models=models, plan=plan, judges=judges_left)


def _find_answering(folder: RunFolder, manifest: Manifest) -> set[str]:
    """Return the models that have answered a call of a run."""
    answering: set[str] = set()
    run_ledger = folder.ledger_path(manifest)
    for path in filter(Path.is_file, (run_ledger, *_list_shards(folder))):
        with (
            contextlib.nullcontext() if path == run_ledger else shard_read(path.parent),
            Ledger(path, readonly=True) as ledger,
        ):
            answering |= ledger.find_answering_models()
    return answering


def _list_shards(folder: RunFolder) -> list[Path]:
    """Return the ledgers that shards of an interrupted run have left."""
    paths = folder.path.glob(f"{_SHARDS}/*/{LEDGER}")
    return [inside(folder.path, str(path.relative_to(folder.path))) for path in paths]


class RunCommand(msgspec.Struct, kw_only=True):
    """What a command does with a run: the run as it will be, and the calls that lead there."""

    settings: EvaluateSettings | GradeSettings
    folder: RunFolder
    dataset: Dataset
    manifest: Manifest
    work: list[ModelWork]
    notes: list[str] = []
    """Notes for a reader before any call, a line each."""
    earlier: Manifest | None = None
    """The run as it was; None for a new one."""
    gold_check: GoldCheckPlan | None = None
    """The check that judges have to pass first."""
    known_checks: list[JudgeCheck] = []
    """Checks of judges that passed before, in the folder of `judge-check`."""
    stop_when: StopWhen | None = None
    only_stored: frozenset[str] = frozenset()
    """The judges that are not called: the ledger has the grades that they gave."""

    def __post_init__(self) -> None:
        settings, asked, manifest, old = self.settings, self.asked, self.manifest, self.earlier
        judges = manifest.plan.asked
        stated = headers_by_model(settings.header, settings.under_test, judges, asked)
        loaded = [name for name in asked if name not in self.unstated_functions]
        kept = {name: own for name, own in manifest.headers.items() if name not in asked}
        self.manifest = manifest = msgspec.structs.replace(
            manifest,
            headers=kept | stated,
            code=manifest.code | hash_functions(loaded, settings.functions),
            prices=read_prices(settings.prices) if settings.prices else manifest.prices,
        )
        if old is not None:
            unlike = unlike_requests(old.identities().keys() & asked, old, manifest)
            # a name that never answered is as good as new
            answering = _find_answering(self.folder, old) if unlike else {}
            if lines := [line for model, line in unlike.items() if model in answering]:
                raise InputError(
                    f"{self.folder.path}: holds a run that cannot be mixed with this one:"
                    f" {'; '.join(lines)}, or choose a new --out"
                )
        check_judge_by(settings, manifest.plan, self.dataset)
        entry = msgspec.structs.replace(
            manifest.dataset,
            questions=self.dataset.questions_hash if manifest.plan.by_questions else "",
        )
        self.manifest = manifest = msgspec.structs.replace(manifest, dataset=entry)
        check_batch_models(settings, self.in_batches)
        self.folder.check_size(manifest)
        check_cells(self.folder.path, len(manifest.models), self.dataset, manifest.plan.epochs)

    @property
    def asked(self) -> list[str]:
        """The models that may be called: those under test, and the judges and the guard of the
        run.
        """
        called = (item.model for item in self.work if not self.manifest.models[item.model].imported)
        names = dict.fromkeys((*called, *self.manifest.plan.asked))
        return [name for name in names if name not in self.only_stored]

    @property
    def unstated_functions(self) -> list[str]:
        """The Python functions of the run that the command does not name: none is loaded, since a
        run may come from somebody else.
        """
        named = self.settings.named
        return [name for name in self.asked if name.startswith(PYTHON_PREFIX) and name not in named]

    @property
    def in_batches(self) -> list[str]:
        """The models that `--tier batch` is for: a guard that it does not name may be asked by
        plain calls.
        """
        guard = self.manifest.plan.guard.model if self.manifest.plan.guard else None
        others = {item.model for item in self.work} | {*self.manifest.plan.panel}
        others |= {text.rpartition(":")[0] for text in self.settings.tier}
        return [name for name in self.asked if name != guard or name in others]

    @property
    def prices(self) -> Path | PriceList | None:
        """The user's file of prices, which errors name, or else its content as the run keeps it."""
        return self.settings.prices or self.manifest.prices


def dry_run(
    command: RunCommand, ledger_path: Path | None = None, *, factor: float = 1.0
) -> RunOutcome:
    """Count the calls of a command that the ledger does not hold, and make none.

    Args:
        command: of the command.
        ledger_path: a ledger to read in place of the run's.
        factor: the prompt-sets of the command, over those of its work, which may stand for a
            dataset that is not here.
    """
    plan_flex_tier(command.settings, command.asked)
    make_budget(command.settings, command.prices).check_prices(command.asked)
    expected = _forecast(command, ledger_path, factor)
    owing = [line.model for line in expected.lines]
    if command.dataset.questions_hash:
        command.notes.append(_compare_judge_by(command, ledger_path))
    notes = [
        *command.notes,
        *_describe_growth(command),
        *describe_unset_variables(owing, command.manifest.headers),
    ]
    return RunOutcome.from_forecast(
        expected, command.settings, notes, command.prices, names=command.in_batches
    )


def _forecast(
    command: RunCommand, ledger_path: Path | None = None, factor: float = 1.0
) -> Forecast:
    """Count the calls of a command that the ledger does not hold: see `dry_run`."""
    manifest, dataset = command.manifest, command.dataset
    checks = make_gold_check_work(command.gold_check) if command.gold_check else []
    if ledger_path is None:
        ledger_path = command.folder.ledger_to_write(manifest, command.settings.ledger)
    with Ledger(ledger_path, readonly=True, missing_ok=True) as ledger:
        identities = manifest.identities()
        if factor == 1.0:
            parts = [forecast(ledger, identities, [*checks, *command.work])]
        else:
            of_sets = forecast(ledger, identities, command.work).scale(factor)
            parts = [forecast(ledger, identities, checks), of_sets]
        graded = {item.model for item in command.work}
        parts.append(forecast_regrades(ledger, manifest, dataset, graded))
    lines = [line for part in parts for line in part.lines if line.model not in command.only_stored]
    assumed = next((part.assumed for part in parts if part.assumed), "")
    return Forecast(tuple(lines), assumed)


def _describe_growth(command: RunCommand) -> list[str]:
    """Say what a run grows by, which judges are asked about the rest, and which models of the run
    this command does not ask.
    """
    earlier, manifest, plan = command.earlier, command.manifest, command.manifest.plan
    called, lines = {item.model for item in command.work}, list[str]()
    not_called = [
        name for name, entry in manifest.models.items() if name not in called and not entry.imported
    ]
    if earlier and earlier.plan.judges:  # it is no new run
        growth = describe_growth(earlier.plan, plan)
        if joined := [name for name in manifest.models if name not in earlier.models]:
            growth.append(f"models: + {_join_names(joined)}")
        lines += [f"the run grows: {'; '.join(growth)}"] if growth else []
    counted_before = {*manifest.panel_before}
    added = [judge for judge in plan.judges if counted_before and judge not in counted_before]
    if added and not lines:
        lines = [f"{_join_names(added)}: asked about the responses that remain"]
    if not_called and lines and (added or (earlier and plan != earlier.plan)):
        lines.append(
            f"not asked by this command: {_join_names(not_called)}; `opensafeintent evaluate"
            f" --out {near(command.folder.path)}` asks all models of the run"
        )
    if added and not_called:
        lines.append(f"until then the numbers are by {_join_names(manifest.panel_before)} alone")
    return lines


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(clean_for_display(name) for name in names)


def _say_cost(expected: Forecast, prices: Path | PriceList | None) -> str:
    """Say how many calls are expected, and what they cost."""
    costs = [forecast_cost(line, Prices(prices)) for line in expected.lines]
    known = sum(cost for cost in costs if cost is not None)
    dollars = f", about {dollars_text(known)} dollars" if known else ""
    return pluralize(expected.calls, "call") + dollars


def _judge_otherwise(command: RunCommand, judge_by: JudgeBy) -> RunCommand:
    """Return a command whose judges are asked something else about the same responses."""
    manifest, dataset = command.manifest, command.dataset
    plan = msgspec.structs.replace(manifest.plan, judge_by=judge_by)
    plan = msgspec.structs.replace(
        plan, templates=set_checklist(plan.templates, asked=plan.by_questions)
    )
    manifest = msgspec.structs.replace(
        manifest, plan=plan, templates=store_templates(load_templates()) | manifest.templates
    )
    tasks = {
        item.model: item.tasks
        if manifest.models[item.model].imported
        else manifest.list_tasks(item.model, dataset)
        for item in command.work
    }
    other = copy(command)
    other.manifest = manifest
    other.work = [manifest.work(model, its_tasks) for model, its_tasks in tasks.items()]
    return other


def _compare_judge_by(command: RunCommand, ledger_path: Path | None) -> str:
    """Say how many calls each way of judging takes that the run can still be judged by."""
    run = command.earlier.plan if command.earlier and command.earlier.plan.judges else None
    ways = [way for way in get_args(JudgeBy) if run is None or way in (run.judge_by, "both")]
    costs = [
        f"{way} {_say_cost(_forecast(_judge_otherwise(command, way), ledger_path), command.prices)}"
        for way in ways
    ]
    judges = len(command.manifest.plan.judges)
    ties = "; a tie of judges is missing: use an odd number" if judges and judges % 2 == 0 else ""
    return f"{describe_questions(command.dataset)}; --judge-by: {'; '.join(costs)}{ties}"


def _tell_questions(command: RunCommand) -> str:
    """Say that there are questions, and what asking them takes."""
    more = _forecast(_judge_otherwise(command, "both"))
    own = Forecast(tuple(line for line in more.lines if line.purpose.startswith("checklist")))
    return (
        f"{describe_questions(command.dataset)}, which are not asked; --judge-by both asks them"
        f" too: {_say_cost(own, command.prices)}"
    )


def _describe_start(command: RunCommand, expected: Forecast) -> list[str]:
    """Return what is said before the first call: the notes, questions that are not asked, and what
    the run grows by, with its expected cost.
    """
    lines = [*command.notes]
    if command.dataset.questions_hash and not command.manifest.plan.by_questions:
        lines.append(_tell_questions(command))
    if growth := _describe_growth(command):
        paid = _say_cost(expected, command.prices)
        lines += [*growth, f"that takes at most {paid}, re-asks and retries aside"]
    return lines


async def execute(command: RunCommand, display: Display) -> RunOutcome:
    """Make the calls of a command, and write the results into the run's folder, which this process
    holds.

    Raises:
        InputError: a model, or the ledger, cannot be used.
        JudgeFailed: a judge did not pass its check; no model was called.
        Stopped: a provider or a budget ended the run; answers so far are kept.
    """
    folder, manifest, settings = command.folder, command.manifest, command.settings
    checks: tuple[JudgeCheck, ...] = ()
    if command.unstated_functions:
        _find_spare(command)
    async with open_session(
        settings,
        [name for name in command.asked if name not in command.unstated_functions],
        folder.ledger_to_write(manifest, settings.ledger),
        display,
        headers=manifest.headers,
        left_out=manifest.left_out,
        identities=manifest.identities(),
        prices=command.prices,
        spare=lambda: _find_spare(command),
    ) as calling:
        display.stage("reading the ledger")
        await asyncio.sleep(0)  # an interruption is to be heard
        expected = _forecast(command)
        for line in _describe_start(command, expected):
            display.note(line)
        await begin_batches(calling)
        if command.gold_check is not None:
            checks = await check_before_run(calling, folder, manifest, command.gold_check, settings)
        together = merge_checks(manifest.judge_checks, [*command.known_checks, *checks])
        manifest = msgspec.structs.replace(manifest, judge_checks=together)
        if not folder.exists() or manifest.dataset.questions:
            folder.write_prompt_sets(command.dataset)  # it may have questions by now
        folder.save(manifest)
        try:
            run, notes = await _run_calls(command, manifest, calling, expected.calls)
        finally:
            if folder.exists():
                folder.save(folder.manifest().add_left_out(calling.client.left_out))
    folder.load()  # results of a run whose folder was removed meanwhile are none
    display.stage("estimating")
    page = isinstance(settings, EvaluateSettings) and settings.report
    outcome = write_results(run, folder, settings.max_missing, display, page=page)
    outcome = outcome.add_call_notes(calling.client)
    outcome.again = run_again_can_bring((*run.rows, *run.follow_ups), command.only_stored)
    if calling.client.stopped_models:
        outcome.exit_code = 3
        outcome.stopped = [*calling.client.stopped_models.values()]
    effects = _panel_effects(command, run.manifest.plan.judges, outcome.results)
    outcome.notes += [*notes, *map(describe_passed, checks), *effects]
    if command.stop_when is not None:
        outcome.notes += command.stop_when.lines()
        outcome.exit_code = first_exit_code(outcome.exit_code, *command.stop_when.exit_codes())
    return outcome


def _find_spare(command: RunCommand) -> set[str]:
    """Return the models of a command to which no call is due.

    Raises:
        InputError: a call is due to a Python function that the command does not name.
    """
    due = {line.model for line in _forecast(command).lines}
    if loaded := [name for name in command.unstated_functions if name in due]:
        raise InputError(
            f"{command.folder.path}: has {loaded[0]}, and only Python that the command names is"
            " loaded; name it too"
        )
    return {*command.asked} - due


def _panel_effects(command: RunCommand, judges: Sequence[str], cohort: Cohort) -> list[str]:
    """Return the changes of the headline metrics of each model if its judges changed, a line each.

    Args:
        command: of the command.
        judges: that count now.
        cohort: of the run as it is now.
    """
    earlier = command.earlier and command.earlier.keep_counted()
    if earlier is None or not earlier.plan.judges or {*earlier.plan.judges} == {*judges}:
        return []
    with Ledger(command.folder.ledger_path(earlier), readonly=True) as ledger:
        graded = derive(earlier, command.dataset, ledger)
    before = _headlines(
        gather_models([make_graded_run("before", earlier, command.dataset, graded)])
    )
    now = _headlines(cohort)
    panels = f"by {name_graders(earlier.plan.judges)} before, now by {name_graders(judges)}"
    return [
        f"{one_line(model)}: graded {panels}: "
        + ", ".join(
            f"{METRICS[metric].label} {old}, now {now[model][metric]}"
            for metric, old in values.items()
        )
        for model, values in before.items()
    ]


def _headlines(cohort: Cohort) -> dict[str, dict[str, str]]:
    """Return the headline metrics of each model, by its name and the metric's."""
    return {
        origin.model: {
            metric: "undefined" if isnan(value) else f"{value:.2f}"
            for metric in cohort.scope.select(("mean_safety",))
            for value in (float(cohort.estimates.ratios[metric].value.values[index]),)
        }
        for index, origin in enumerate(cohort.origins)
    }


async def _list_unfinished(
    command: RunCommand,
    client: Client,
    display: Display,
    done: Callable[[GradedResponse], None],
) -> list[ModelWork]:
    """Return the work that still takes calls; every other response is done, and its calls count as
    reused.
    """
    if client.ledger.count() == 0:
        return command.work
    unfinished: list[ModelWork] = []
    responses = sum(len(item.tasks) for item in command.work)
    read = 0
    for item in command.work:
        tasks: list[Task] = []
        for replayed in replay(client.ledger, command.manifest.identities(), item.planned):
            if read % _READ_AT_ONCE == 0:
                so_far = f": {read:,} of {pluralize(responses, 'response')}" if read else ""
                display.stage(f"reading the ledger{so_far}")
                await asyncio.sleep(0)  # nothing else waits: an interruption is to be heard
            read += 1
            if replayed.lacking:
                tasks.append(replayed.planned.task)
                continue
            for call, _, outcome in replayed.asked:
                if call.counted and not isinstance(outcome, Failed):
                    client.note_reuse(call, outcome)
            client.tally.missing += count_missing_grades(replayed.result)
            done(replayed.result)
        unfinished.append(msgspec.structs.replace(item, tasks=tasks))
    return unfinished


async def _run_calls(
    command: RunCommand, manifest: Manifest, calling: Session, expected: int
) -> tuple[GradedRun, list[str]]:
    """Make every call of a command, at most `expected` if no reply is asked for again, then those
    of re-grades and the request-swap audit; return the whole run, and notes on the cluster.

    With a cluster, the calls of the work are made there. With batches, they are in the ledger when
    the work begins. Shards that an interrupted run left are merged first.
    """
    folder, dataset, stop_when = command.folder, command.dataset, command.stop_when
    client, display = calling.client, calling.display
    notes = _take_up_shards(folder, client.ledger, display)
    graded_by_key: dict[ResponseKey, GradedResponse] = {}

    def note_done(graded: GradedResponse) -> None:
        graded_by_key[graded.key] = graded
        if stop_when is not None:
            stop_when.take(graded)

    work = await _list_unfinished(command, client, display, note_done)
    await fill_ledger_in_batches(calling, work, manifest.identities(), (manifest, dataset))
    if stop_when is not None:
        work = stop_when.begin(manifest, folder.save, work)
    if command.settings.ray is not None:
        notes += await _spread(command, calling, work)
    async with calling.show_progress(expected):
        if command.settings.ray is None:
            connections = command.settings.max_connections or (_CAREFUL if stop_when else None)
            await run_work(client, work, at_once=choose_concurrency(connections), done=note_done)
        if stop_when is not None:
            manifest = stop_when.conclude()
        # a reply that a limit cut is a thought if later ones of its model show how it thinks
        settled = {key: graded for key, graded in graded_by_key.items() if not graded.truncated}
        graded = derive(manifest, dataset, client.ledger, settled)
        if manifest.panel_before and not _lack_judges(graded, manifest):
            manifest = msgspec.structs.replace(manifest, panel_before=())
            folder.save(manifest)
        second = await regrade(client, manifest, dataset, graded)
        notes += _small_audits(command, second)
    with contextlib.suppress(OSError):
        (folder.path / _SHARDS).rmdir()
    added_grades = count_added_grades(manifest, graded)
    if added_grades is not None:  # the judges that were added do not count yet
        notes += _lines_on_added(graded, manifest)
        manifest = manifest.keep_counted()
        graded = derive(manifest, dataset, client.ledger)
    manifest = manifest.add_left_out(client.left_out)
    (name,) = name_runs([folder.path])
    run = make_graded_run(name, manifest, dataset, graded, *second, added_grades=added_grades)
    return run, notes


def _small_audits(command: RunCommand, second: Regrades) -> Iterator[str]:
    """Yield which audits that the settings ask for have fewer responses, or prompt-sets."""
    swapped = Counter(model for model, _ in {(row.model, row.set_id) for row in second.swaps})
    for name, had, what in (
        ("retest", len(second.regrades), "graded response"),
        ("turn", len(second.in_conversation), "graded direct response"),
        ("swap", max(swapped.values(), default=0), "prompt-set"),
    ):
        if had < (stated := command.settings.audit.get(name, 0)):
            yield f"--audit {name}={stated:,}: there are {pluralize(had, what)}; all are audited"


def _lack_judges(graded: Iterable[GradedResponse], manifest: Manifest) -> bool:
    """Tell whether a judge that was added has not been asked about a response yet."""
    added = {*manifest.plan.judges} - {*manifest.panel_before}
    return any(
        missing.judge in added and missing.reason == "not_made"
        for row in graded
        for missing in row.missing
    )


def _lines_on_added(graded: Iterable[GradedResponse], manifest: Manifest) -> Iterator[str]:
    """Yield how many grades of a judge that does not count yet are missing though it was asked."""
    rows = list(graded)
    for judge in manifest.plan.judges:
        if judge not in manifest.panel_before:
            asked = [row for row in rows if judge in row.by_judge]
            missing = sum(
                any(
                    item.judge == judge and not item.reason.startswith("not_made")
                    for item in row.missing
                )
                for row in asked
            )
            if missing:
                yield (
                    f"{clean_for_display(judge)}: no usable grade of {missing:,} of"
                    f" {pluralize(len(asked), 'response')}; a judge cannot be removed from a run:"
                    " look at its replies with opensafeintent trace before the rest is asked"
                )


def _take_up_shards(folder: RunFolder, ledger: Ledger, display: Display) -> list[str]:
    """Merge the ledgers of shards that an interrupted run has left; a task that has not ended yet
    is waited for.
    """

    waiting = partial(show_waiting, display)
    shards = sorted(_list_shards(folder))
    added = sum(take_up(ledger, shard.parent, waiting).added for shard in shards)
    return [f"shards of an interrupted run: {pluralize(added, 'call')} taken up"] if added else []


async def _spread(command: RunCommand, calling: Session, work: Sequence[ModelWork]) -> list[str]:
    """Make the calls of some work on a cluster; return notes for a reader of the results, a line
    each.
    """
    from opensafeintent.ray.cluster import Cluster
    from opensafeintent.ray.shards import Shards

    settings, client, budget = command.settings, calling.client, calling.budget
    assert settings.ray is not None
    cluster = Cluster(
        address=settings.ray,
        shards=settings.shards,
        gpus_per_model=settings.gpus_per_model,
        max_connections=settings.max_connections,
        patience=Budget(max_retries=budget.max_retries, retry_seconds=budget.retry_seconds),
        flex=plan_flex_tier(settings, command.asked),
        headers=command.manifest.headers,
        timeout=settings.timeout,
    )
    shards = Shards(cluster, command.folder.path / _SHARDS, client, run_async)

    def refresh() -> None:
        figures = progress_line(client.tally, None, calling.dollars)
        calling.display.update(
            shards.done, shards.count, f"{shards.done:,} of {shards.count:,} shards · {figures}"
        )

    async with refresh_display(calling.display, refresh, client):
        await shards.make(work, command.manifest.identities())
    twice = f"{pluralize(shards.duplicates, 'call')} made by two shards; the first answer counts"
    return [*shards.notices, *([twice] if shards.duplicates else [])]
