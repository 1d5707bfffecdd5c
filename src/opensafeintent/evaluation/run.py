"""A run: many prompts evaluated at once, without one holding up another; and the same run rebuilt
from its manifest and ledger alone.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from opensafeintent.calls.client import Asked, Client, ModelStopped, not_on_record
from opensafeintent.calls.concurrency import for_each, side_by_side
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import MOST_TEXT, Room, TooLong
from opensafeintent.calls.reasoning import without_reasoning
from opensafeintent.calls.reasoning_marks import unknown_mark
from opensafeintent.calls.recorded import ImportedResponse, RecordedResponse
from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Outcome,
    Purpose,
    Refused,
    call_key,
    is_cut,
)
from opensafeintent.calls.stop_reasons import stop_kind
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import (
    FIRST_ATTEMPT,
    Asking,
    Given,
    ModelWork,
    Planned,
    Task,
    generation_call,
)
from opensafeintent.evaluation.questions import QUESTIONS
from opensafeintent.evaluation.responses import (
    GradedResponse,
    JudgeGrades,
    Missing,
    Refusal,
    ResponseKey,
)
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.record import PromptSet
from opensafeintent.taxonomy import CORE_VARIANTS, SCALES, Graded, is_dual_use

REQUEST_HIDDEN = "request_hidden"
"""The column of the swap audit in which no request is shown."""


def tasks_of(model: str, prompt_sets: Iterable[PromptSet], epochs: int) -> list[Task]:
    """Return a target's prompts, epoch by epoch and set by set, the longest chain of calls of a set
    first.
    """
    return [
        Task(model=model, set_id=prompt_set.id, variant=variant, epoch=epoch, prompt=prompt)
        for epoch in range(1, epochs + 1)
        for prompt_set in prompt_sets
        for variant, prompt in sorted(
            prompt_set.wordings().items(), key=lambda item: not is_dual_use(item[0])
        )
    ]


async def run_work(
    client: Client,
    work: Sequence[ModelWork],
    *,
    at_once: int,
    done: Callable[[GradedResponse], None],
) -> None:
    """Run every task; each finished response is handed to `done`.

    A target that stops (wrong key, dead endpoint) is asked no more, and its answers so far are
    graded. A judge that stops ends the run, and so does the last target.

    Args:
        client: makes the calls.
        work: the tasks, by target.
        at_once: prompts of one target in progress at the same time.
        done: takes each graded response, in no particular order.

    Raises:
        Stopped: a judge, the last target or a budget ended the run. Answers so far are in the
            ledger.
        InputError: the ledger cannot be written.
    """
    await run_tasks(client, work, at_once=at_once, done=done)
    client.stop_silent_models()
    raise_if_over(client, work)


async def run_tasks(
    client: Client,
    work: Sequence[ModelWork],
    *,
    at_once: int,
    done: Callable[[GradedResponse], None],
) -> None:
    """Run every task, as `run_work` does; that a target has stopped is for the caller to see.

    Raises:
        Stopped: a judge or a budget ended the work.
        InputError: the ledger cannot be written.
    """
    await side_by_side(*(_run_model(client, item, at_once, done) for item in work if item.tasks))


def raise_if_over(client: Client, work: Sequence[ModelWork]) -> None:
    """Raise `Stopped` when a judge has stopped, or every target has."""
    judges = {judge for item in work for judge in (*item.plan.judges, item.plan.mode_judge)}
    if stopped := sorted(judges & set(client.stopped_models)):
        raise Stopped("; ".join(client.stopped_models[judge] for judge in stopped))
    targets = {item.model for item in work}
    if targets and targets <= set(client.stopped_models):
        raise Stopped("; ".join(client.stopped_models[target] for target in sorted(targets)))


async def _run_model(
    client: Client, work: ModelWork, at_once: int, done: Callable[[GradedResponse], None]
) -> None:
    async def grade(task: Task) -> None:
        if work.wanted is not None and not work.wanted(task):
            return
        try:
            graded = await Asking(client.ask, task, work.plan, work.templates).run()
        except ModelStopped as stopped:
            if stopped.model != work.model:
                raise
            return  # of the other tasks, those whose response is stored can still be graded
        client.tally.missing += missing_grades(graded)
        done(graded)

    await for_each(client, work.tasks, grade, at_once=at_once)


def missing_grades(graded: GradedResponse) -> int:
    """Return the number of missing grades of a response."""
    if graded.missing_response:
        return len(QUESTIONS)
    return sum(
        isinstance(grade, Missing) for grades in graded.grades.values() for grade in grades.values()
    )


class Regrading(NamedTuple):
    """A question that judges are asked again about responses."""

    why: str
    """The name of its calls behind their purpose."""
    requests: Callable[[Task], Mapping[str, str]]
    """Texts in place of the request, by column."""
    attempt: int = 0
    """Number of the first asking."""
    purpose: Purpose | None = None
    """Of the calls, if it differs from the grade's."""

    async def ask(self, asking: Asking) -> dict[str, dict[str, JudgeGrades]]:
        """Return the grades of each judge, by column; empty if there is no text to grade."""
        return await asking.regrade(self.requests(asking.task), self.attempt, self.purpose)


RETEST = Regrading("again", lambda task: {task.variant: task.prompt}, attempt=FIRST_ATTEMPT)
"""The same question once more."""


def swapping(manifest: Manifest, dataset: Dataset) -> Regrading:
    """Return the question of the swap audit: the set's other two prompts in the request's place,
    and none.
    """
    hidden = manifest.request_swap.hidden if manifest.request_swap else ""

    def other_requests(task: Task) -> dict[str, str]:
        prompts = dataset.by_id[task.set_id].prompts
        others = (intent for intent in CORE_VARIANTS if intent != task.variant)
        return {intent: prompts.of(intent) for intent in others} | {REQUEST_HIDDEN: hidden}

    return Regrading("swapped", other_requests, purpose="request_swap")


def was_judged(graded: GradedResponse) -> bool:
    """Whether judges have graded a response."""
    return bool(graded.grades) and not graded.refused and not graded.missing_response


# Replay: the plan of calls, answered by the ledger alone, many prompts side by side
# ------------------------------------------------------------------------------
# The calls of all prompts are looked up together. Nothing here waits, so there is no event loop: a
# prompt's coroutine stops when it needs an outcome, and goes on with it after the next look-up.

T = TypeVar("T")

_AT_ONCE = 1000
"""Prompts: their calls are close together in the ledger."""
_ROOM = 2**26
"""Bytes of the texts of prompts that are looked up together; a prompt alone may have more."""
_NO_RUN = "no evaluation writes as much about one prompt; take the ledger from a backup"


class Replayed(NamedTuple, Generic[T]):
    """The ledger's result for one prompt."""

    task: Task
    result: T
    asked: list[Asked]
    """Every call for the prompt, as far as the ledger holds the calls before it."""

    @property
    def whole(self) -> bool:
        """Whether the ledger holds an outcome of every call that the prompt takes."""
        return not any(isinstance(one.outcome, Failed) for one in self.asked)


def replay(
    ledger: Ledger, identities: Mapping[str, str], planned: Iterable[Planned]
) -> Iterator[Replayed[GradedResponse]]:
    """Yield the ledger's result for each prompt, by the ordinary plan of calls (`replayed`)."""
    return replayed(ledger, identities, planned, Asking.run)


def replayed(
    ledger: Ledger,
    identities: Mapping[str, str],
    planned: Iterable[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
) -> Iterator[Replayed[T]]:
    """Yield the ledger's result for each prompt, in their order.

    Args:
        ledger: holds the outcomes.
        identities: of every target and judge, by name.
        planned: the prompts; those with calls from about the same time should come together.
        ask: the calls about each of them.

    Raises:
        InputError: the ledger is damaged.
    """
    rest, size = iter(planned), _AT_ONCE
    some: list[Planned] = []
    while some := [*some, *islice(rest, max(size - len(some), 0))]:
        room = Room(ledger.path, _NO_RUN, _ROOM if size > 1 else MOST_TEXT)
        try:
            found = _together(ledger, identities, some[:size], ask, room)
        except TooLong:
            if size == 1:
                raise
            size = min(size, len(some)) // 2 or 1
            continue
        yield from found
        some = some[size:]
        if 4 * room.taken < _ROOM:
            size = min(2 * size, _AT_ONCE)


def _together(
    ledger: Ledger,
    identities: Mapping[str, str],
    some: Sequence[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
    room: Room,
) -> list[Replayed[T]]:
    """Return the ledger's result for some prompts, which are looked up together.

    Raises:
        TooLong: there is no room for their texts.
    """
    for given in (item.task.given for item in some):
        if given is not None:
            room.take(given.text)
    prompts = [_Prompt(ledger, identities) for _ in some]
    steps = [
        ask(Asking(prompt.ask, *item, together=_one_by_one))
        for prompt, item in zip(prompts, some, strict=True)
    ]
    results = _driven(ledger, steps, room)
    return [
        Replayed(item.task, results[index], prompt.asked)
        for index, (item, prompt) in enumerate(zip(some, prompts, strict=True))
    ]


@types.coroutine
def _look_up(
    key: bytes,
) -> Generator[bytes, Answered | Refused | None, Answered | Refused | None]:
    """Hand a call's key to the coroutine's driver, which sends back the outcome."""
    return (yield key)


class _Prompt:
    """Replaces the client while one prompt goes through the plan, and notes the calls."""

    def __init__(self, ledger: Ledger, identities: Mapping[str, str]) -> None:
        self._ledger, self._identities = ledger, identities
        self.asked: list[Asked] = []

    async def ask(self, call: Call) -> Outcome:
        """Look a call up."""
        key = call_key(call, self._identities[call.model])
        outcome = await _look_up(key) or not_on_record(self._ledger, key)
        self.asked.append(Asked(call, key, outcome))
        return outcome


def _driven(
    ledger: Ledger, steps: Sequence[Coroutine[bytes, Answered | Refused | None, T]], room: Room
) -> dict[int, T]:
    """Drive some prompts to their end, a look-up for all of them after each step; return the
    results by index.

    Raises:
        TooLong: there is no room for their texts.
    """
    results: dict[int, T] = {}
    outcomes: dict[int, Answered | Refused | None] = dict.fromkeys(range(len(steps)))
    try:
        while outcomes:
            keys: dict[int, bytes] = {}
            for index, outcome in outcomes.items():
                try:
                    keys[index] = steps[index].send(outcome)
                except StopIteration as ended:
                    results[index] = ended.value
            located = ledger.find_all(set(keys.values()), room)
            outcomes = {
                index: located[key].outcome if key in located else None
                for index, key in keys.items()
            }
    finally:
        for step in steps:
            step.close()
    return results


async def _one_by_one(
    *questions: Coroutine[Any, Any, int | str | Missing],
) -> list[int | str | Missing]:
    try:
        return [await question for question in questions]
    finally:
        for question in questions:
            question.close()


# Rebuild a run from its manifest and its ledger alone
# ------------------------------------------------------------------------------

IMPORTED_JUDGE = "imported"
"""The name of the judge of grades that came with imported responses."""

_READ_AT_ONCE = 500


def imported_rows(ledger: Ledger, dataset: Dataset) -> dict[str, list[ImportedResponse]]:
    """Return the responses that were imported for a dataset, by model.

    Raises:
        InputError: one of them is damaged, or answers a prompt that the dataset does not hold.
    """
    by_model: defaultdict[str, list[ImportedResponse]] = defaultdict(list)
    for row in ledger.imports.rows(dataset.hash):
        set_id, variant = row.recorded.set_id, row.recorded.variant
        prompt_set = dataset.by_id.get(set_id)
        if prompt_set is None or variant not in prompt_set.wordings():
            raise InputError(
                f"{ledger.path}: the ledger is damaged: a response to set {set_id!r},"
                f" {variant!r}, which {dataset.name} does not hold"
            )
        by_model[row.model].append(row)
    return dict(by_model)


def opens_none(rows: Iterable[ImportedResponse]) -> bool:
    """Tell whether one of a model's responses has a thought without its opening mark."""
    return any(
        row.recorded.response is not None and without_reasoning(row.recorded.response).unopened
        for row in rows
    )


def given_tasks(
    rows: Iterable[ImportedResponse], dataset: Dataset, *, opens_no_thought: bool | None = None
) -> list[Task]:
    """Return the imported responses of a model that a judge has to grade: those that did not come
    with both grades.

    Args:
        rows: of the model.
        dataset: its prompt-sets.
        opens_no_thought: whether one of the model's responses has a thought without its opening
            mark; None if `rows` are all of them.
    """
    rows = list(rows)
    if opens_no_thought is None:
        opens_no_thought = opens_none(rows)
    return [
        Task(
            model=row.model,
            set_id=recorded.set_id,
            variant=recorded.variant,
            epoch=recorded.epoch,
            prompt=dataset.by_id[recorded.set_id].wordings()[recorded.variant],
            given=Given(
                text=recorded.response,
                stop_reason=recorded.stop_reason,
                opens_no_thought=opens_no_thought,
            ),
        )
        for row in rows
        for recorded in (row.recorded,)
        if recorded.response is not None and not _has_both_grades(recorded)
    ]


def derive(
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
    known: Mapping[ResponseKey, GradedResponse] | None = None,
    *,
    read: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[GradedResponse]:
    """Return every response of a run with its grades, as far as the ledger has them.

    Args:
        manifest: the run's.
        dataset: its prompt-sets.
        ledger: its ledger.
        known: responses that need not be looked up again.
        read: called with the number of responses read, and their total.
    """
    imported = imported_rows(ledger, dataset)
    judged = dict(known or {})
    tasks = {
        model: judged_tasks(manifest, dataset, model, imported.get(model, ()))
        for model in manifest.models
    }
    left = [
        manifest.planned(model, [task for task in its_tasks if task.key not in judged])
        for model, its_tasks in tasks.items()
    ]
    # models are called side by side, so the calls of a prompt are close together for all of them
    in_turn = (planned for turn in zip_longest(*left) for planned in turn if planned is not None)
    for number, (task, graded, _) in enumerate(replay(ledger, manifest.identities(), in_turn)):
        if number % _READ_AT_ONCE == 0:
            read(number, sum(map(len, left)))
        judged[task.key] = graded
    results: list[GradedResponse] = []
    for model, entry in manifest.models.items():
        if entry.imported:
            results += _with_imported(imported.get(model, []), judged)
        else:
            in_order = (judged[task.key] for task in tasks[model])
            made = [graded for graded in in_order if graded.missing_response != "not_made"]
            results += _with_tries(model, made, manifest, dataset, ledger)
    return results


def _with_tries(
    model: str,
    responses: Sequence[GradedResponse],
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
) -> list[GradedResponse]:
    """Return a model's responses, with a note on those that an attempt gave reasoning for and no
    text.
    """
    keys = ledger.reasoning_only()
    if not keys:
        return list(responses)
    plan, identity = manifest.plan(model), manifest.models[model].identity
    noted: list[GradedResponse] = []
    for response in responses:
        prompt = dataset.by_id[response.set_id].wordings()[response.variant]
        task = Task(**response.key._asdict(), prompt=prompt)
        again = call_key(generation_call(task, plan), identity) in keys
        noted.append(msgspec.structs.replace(response, reasoning_only=again))
    return noted


def judged_tasks(
    manifest: Manifest, dataset: Dataset, model: str, rows: Iterable[ImportedResponse]
) -> list[Task]:
    """Return the tasks that judges were asked about for a model.

    Args:
        manifest: of the run.
        dataset: its prompt-sets.
        model: in the run.
        rows: the model's responses that were imported.
    """
    entry = manifest.models[model]
    return (
        given_tasks(rows, dataset)
        if entry.imported
        else tasks_of(model, manifest.sets_of(model, dataset), entry.epochs)
    )


def _with_imported(
    rows: Iterable[ImportedResponse], judged: Mapping[ResponseKey, GradedResponse]
) -> Iterator[GradedResponse]:
    for row in rows:
        brought = _from_import(row)
        if brought.key not in judged:
            yield brought
            continue
        # the target cannot be asked again: the file's mode and strategy are final
        labels = {
            name: label
            for name in ("mode", "strategy")
            if isinstance(label := getattr(brought, name), str)
        }
        yield msgspec.structs.replace(judged[brought.key], **labels)


def _has_both_grades(recorded: RecordedResponse) -> bool:
    return recorded.helpfulness is not None and recorded.harm_severity is not None


def _from_import(row: ImportedResponse) -> GradedResponse:
    recorded = row.recorded
    reasons = {(gone.what, gone.judge): gone.reason for gone in recorded.missing}
    graded = _has_both_grades(recorded) or any((what, "") in reasons for what in SCALES)
    by_judge = recorded.by_judge
    if not by_judge and graded:
        by_judge = {IMPORTED_JUDGE: (recorded.helpfulness, recorded.harm_severity)}

    def grade(what: Graded, judge: str, value: int | None) -> int | Missing:
        reason = reasons.get((what, judge)) or reasons.get((what, ""), "not_recorded")
        return Missing(reason) if value is None else value

    def label(what: Literal["mode", "strategy"]) -> Any:
        missing = Missing(reasons[what, ""]) if (what, "") in reasons else None
        return getattr(recorded, what) or missing

    return GradedResponse(
        model=row.model,
        set_id=recorded.set_id,
        variant=recorded.variant,
        epoch=recorded.epoch,
        stop_reason=recorded.stop_reason,
        truncated=is_cut(recorded.stop_reason) and ("response", "") not in reasons,
        refused=_refusal(recorded),
        mark=unknown_mark(without_reasoning(recorded.response or "").text),
        missing_response=reasons.get(("response", ""), ""),
        grades={
            judge: {
                what: grade(what, judge, value) for what, value in zip(SCALES, values, strict=True)
            }
            for judge, values in by_judge.items()
        },
        mode=label("mode"),
        strategy=label("strategy"),
    )


def _refusal(recorded: RecordedResponse) -> Refusal:
    """Tell the refusals that take no judge, as in a response that we asked for ourselves."""
    kind, text = stop_kind(recorded.stop_reason), recorded.response
    if text is None:
        return "text_not_kept" if kind == "refusal" else ""
    parted = without_reasoning(text)
    if parted.text.strip() or parted.reasoned:
        return ""
    return {"refusal": "filter", "end": "empty", "none": "empty"}.get(kind, "")  # type: ignore[return-value]


class ResponseText(msgspec.Struct, frozen=True):
    """A target's response to one prompt, its reasoning taken off."""

    text: str
    row: int
    """Id of its row in the ledger: of the table `imported` for responses from files, of `calls` for
    all others.
    """


class TracedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger behind a prompt-set's grades."""

    table: str
    """`calls` or `imported`."""
    row: int
    subject: str
    """The target whose response it is about."""
    model: str
    """The model called: the target, or a judge."""
    purpose: str
    variant: str
    epoch: int
    attempt: int
    """0 for the first asking, then one more for each re-ask; from 100 on for a judge's repeated
    grade.
    """
    status: str
    stop_reason: str = ""
    template: str = ""
    created: str = ""
    reply: str | None = None
    """The reply of a judge or a probe, reasoning taken off; None of other rows and of failed
    attempts.
    """


class RunTexts(AbstractContextManager["RunTexts"]):
    """The texts of one run, read one by one when they are asked for: a large run is never held in
    memory.

    `with RunTexts(manifest, dataset, path) as texts:` opens the ledger for reading only; a ledger
    in place of a path is open already, and is left open.

    Raises:
        InputError: the ledger cannot be read.
    """

    def __init__(self, manifest: Manifest, dataset: Dataset, ledger: Path | Ledger) -> None:
        self._manifest = manifest
        self._dataset = dataset
        self._ours = isinstance(ledger, Path)
        self._opens_none: dict[str, bool] = {}
        """By model with imported responses: see `opens_none`."""
        self._ledger = Ledger(ledger, readonly=True) if isinstance(ledger, Path) else ledger

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._ledger.close()

    def find(self, model: str, set_id: str, variant: str, epoch: int = 1) -> ResponseText | None:
        """Return a response's text; None if there is none: filtered by the provider, failed, or
        never requested.
        """
        if self._manifest.models[model].imported:
            imported = self._ledger.imports.find(
                self._dataset.hash, ResponseKey(model, set_id, variant, epoch)
            )
            if imported is None or imported.recorded.response is None:
                return None
            text = without_reasoning(imported.recorded.response).text.strip()
            return ResponseText(text, imported.text_row)
        prompt = self._dataset.by_id[set_id].wordings()[variant]
        task = Task(model=model, set_id=set_id, variant=variant, epoch=epoch, prompt=prompt)
        call = generation_call(task, self._manifest.plan(model))
        key = call_key(call, self._manifest.models[model].identity)
        located = self._ledger.find_all([key]).get(key)
        return (
            ResponseText(located.outcome.text, located.row)
            if located and isinstance(located.outcome, Answered)
            else None
        )

    def trace(self, set_id: str) -> Iterator[TracedRow]:
        """Yield every ledger row behind the responses and grades of one prompt-set, failed attempts
        included.

        The rows come target by target, wording by wording, in the order in which the calls depend
        on one another.
        """
        prompt_set = self._dataset.by_id[set_id]
        for model, entry in self._manifest.models.items():
            if entry.imported:
                yield from self._traced_imports(model, set_id)
            elif prompt_set in self._manifest.sets_of(model, self._dataset):
                for task in tasks_of(model, [prompt_set], entry.epochs):
                    yield from self._traced_calls(task)

    def _traced_imports(self, model: str, set_id: str) -> Iterator[TracedRow]:
        """Yield the rows of imported responses, and the calls of those that a judge had to
        grade.
        """
        imports, dataset = self._ledger.imports, self._dataset.hash
        if model not in self._opens_none:  # once for each model: it takes all of its responses
            self._opens_none[model] = opens_none(imports.rows(dataset, model))
        of_set = list(imports.rows(dataset, model, set_id))
        tasks = {
            (task.variant, task.epoch): task
            for task in given_tasks(of_set, self._dataset, opens_no_thought=self._opens_none[model])
        }
        for row in of_set:
            yield from (
                TracedRow(
                    table="imported",
                    row=number,
                    subject=row.model,
                    model=row.model,
                    purpose="imported",
                    variant=row.recorded.variant,
                    epoch=row.recorded.epoch,
                    attempt=0,
                    status="imported",
                )
                for number in row.rows
            )
            wording = (row.recorded.variant, row.recorded.epoch)
            if wording in tasks:
                yield from self._traced_calls(tasks[wording])

    def _traced_calls(self, task: Task) -> list[TracedRow]:
        """Go through the plan of calls again, answered by the ledger alone, and note the calls."""
        manifest, identities = self._manifest, self._manifest.identities()
        ways: list[Callable[[Asking], Coroutine[Any, Any, object]]] = [Asking.run]
        if manifest.models[task.model].judge_retest:
            ways.append(RETEST.ask)
        if manifest.request_swap is not None and task.variant in CORE_VARIANTS and task.epoch == 1:
            ways.append(swapping(manifest, self._dataset).ask)
        planned = manifest.planned(task.model, [task])
        calls = {
            one.key: one
            for way in ways
            for made in replayed(self._ledger, identities, planned, way)
            for one in made.asked
        }
        return [
            TracedRow(
                table="calls",
                row=row,
                subject=task.model,
                model=one.call.model,
                purpose=one.call.purpose,
                variant=task.variant,
                epoch=task.epoch,
                attempt=one.call.attempt,
                status=status,
                stop_reason=stop_reason,
                template=one.call.template,
                created=created,
                reply=_reply(one) if status == "answered" else None,
            )
            for key, one in calls.items()
            for row, status, stop_reason, created in self._ledger.rows_of(key)
        ]


def _reply(asked: Asked) -> str | None:
    if isinstance(asked.outcome, Answered) and asked.call.purpose != "generate":
        return asked.outcome.text
    return None
