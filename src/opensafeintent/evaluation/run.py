"""A run: many prompts evaluated at once, without one holding up another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from opensafeintent.calls.client import Client, ModelStopped, side_by_side, work_on_each
from opensafeintent.calls.records import (
    Purpose,
)
from opensafeintent.errors import Stopped
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import (
    FIRST_ATTEMPT,
    Asking,
    Earlier,
    ModelWork,
    Task,
)
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse, JudgeGrades
from opensafeintent.taxonomy import (
    DUAL_USE,
    QUESTIONS,
    SCALES,
)

REQUEST_HIDDEN = "request_hidden"
"""The column of the swap audit in which no request is shown."""


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
    judges = {judge for item in work for judge in item.plan.panel}
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
            asking = Asking(client.ask, task, work.plan, work.templates, told=client.note_form)
            graded = await asking.run()
        except ModelStopped as stopped:
            if stopped.model != work.model:
                raise
            return  # of the other tasks, those whose response is stored can still be graded
        client.tally.missing += count_missing_grades(graded)
        done(graded)

    await work_on_each(client, work.tasks, grade, at_once=at_once)


def count_missing_grades(graded: GradedResponse) -> int:
    """Return the number of missing grades of a response."""
    if graded.reason("response"):
        return len(QUESTIONS)
    return sum(missing.what in SCALES for missing in graded.missing)


class Regrading(NamedTuple):
    """A question that judges are asked again about responses."""

    why: str
    """The name of its calls behind their purpose."""
    shown: Callable[[Task], Mapping[str, Task]]
    """The tasks whose request, or conversation, is shown in place of the response's own, by
    column.
    """
    attempt: int = 0
    """Number of the first asking."""
    purpose: Purpose | None = None
    """Of the calls, if it differs from the grade's."""

    async def ask(self, asking: Asking) -> dict[str, dict[str, JudgeGrades]]:
        """Return the grades of each judge, by column; empty if there is no text to grade."""
        return await asking.regrade(self.shown(asking.task), self.attempt, self.purpose)


RETEST = Regrading("again", lambda task: {task.variant: task}, attempt=FIRST_ATTEMPT)
"""The same question once more."""


def plan_swaps(manifest: Manifest, dataset: Dataset) -> Regrading:
    """Return the question of the swap audit: the set's other prompts in the request's place, and
    none.
    """
    swap = manifest.plan.swap
    hidden = swap.hidden if swap else ""

    def other_requests(task: Task) -> dict[str, Task]:
        prompts = dataset.by_id[task.set_id].prompts.by_intent()
        requests: dict[str, str] = {
            intent: text for intent, text in prompts.items() if intent != task.variant
        }
        return {
            column: msgspec.structs.replace(task, prompt=request)
            for column, request in (requests | {REQUEST_HIDDEN: hidden}).items()
        }

    return Regrading("swapped", other_requests, purpose="swap")


AUDITED = ("benign", "malicious")
"""Prompts whose replies are graded again with the first turn shown: the twins of the primary
effects."""


def plan_conversation_audit(manifest: Manifest, dataset: Dataset) -> Regrading:
    """Return the question of the audit of conversations: the first turn is shown before the
    request.
    """

    def conversation(task: Task) -> dict[str, Task]:
        assert manifest.plan.follow_ups is not None  # no other response is asked about
        dual_use = dataset.by_id[task.set_id].prompts.of(DUAL_USE)
        earlier = Earlier(prompt=dual_use, texts=manifest.plan.follow_ups)
        return {task.variant: msgspec.structs.replace(task, earlier=earlier)}

    return Regrading("in conversation", conversation, purpose="turn")


def has_text(graded: GradedResponse) -> bool:
    """Whether there is a response that judges are asked about."""
    return bool(graded.by_judge) and not graded.refused and not graded.reason("response")


def was_judged(graded: GradedResponse) -> bool:
    """Whether every judge has been asked about a response."""
    unasked = {missing.what for missing in graded.missing if missing.reason == "not_made"}
    return has_text(graded) and not unasked & SCALES.keys()
