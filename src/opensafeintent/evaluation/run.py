"""Evaluate many prompts on many targets at once, without one holding up another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from opensafeintent.calls.client import Client, ModelStopped, for_each, side_by_side
from opensafeintent.errors import Stopped
from opensafeintent.evaluation.pipeline import Task, run_task
from opensafeintent.evaluation.records import GradedResponse, JudgePlan, Missing
from opensafeintent.promptsets.record import PromptSet
from opensafeintent.taxonomy import is_dual_use
from opensafeintent.templates import Templates

__all__ = ["ModelWork", "missing_grades", "raise_if_over", "run_tasks", "run_work", "tasks_of"]


class ModelWork(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for one target."""

    model: str
    plan: JudgePlan
    templates: Templates
    tasks: Sequence[Task]


def tasks_of(model: str, prompt_sets: Iterable[PromptSet], epochs: int) -> list[Task]:
    """Return a target's prompts, epoch by epoch and set by set, the longest chain of calls of a set first."""
    return [
        Task(model=model, set_id=prompt_set.id, variant=variant, epoch=epoch, prompt=prompt)
        for epoch in range(1, epochs + 1)
        for prompt_set in prompt_sets
        for variant, prompt in sorted(prompt_set.wordings().items(), key=lambda item: not is_dual_use(item[0]))
    ]


async def run_work(
    client: Client, work: Sequence[ModelWork], *, at_once: int, done: Callable[[GradedResponse], None]
) -> None:
    """Run every task; each finished response is handed to `done`.

    A target that stops (wrong key, dead endpoint) ends its own tasks only; a judge that stops ends the run, and so does the
    last target.

    Args:
        client: makes the calls.
        work: what to do, a target each.
        at_once: prompts of one target under way at the same time.
        done: takes each graded response, in no particular order.

    Raises:
        Stopped: a judge, the last target or a budget ended the run. What was answered is in the ledger.
        InputError: the ledger cannot be written.
    """
    await run_tasks(client, work, at_once=at_once, done=done)
    client.stop_silent_models()
    raise_if_over(client, work)


async def run_tasks(
    client: Client, work: Sequence[ModelWork], *, at_once: int, done: Callable[[GradedResponse], None]
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


async def _run_model(client: Client, work: ModelWork, at_once: int, done: Callable[[GradedResponse], None]) -> None:
    async def grade(task: Task) -> None:
        if work.model in client.stopped_models:
            return
        try:
            graded = await run_task(client, task, work.plan, work.templates)
        except ModelStopped as stopped:
            if stopped.model != work.model:
                raise
            return
        client.tally.missing += missing_grades(graded)
        done(graded)

    await for_each(client, work.tasks, grade, at_once=at_once)


def missing_grades(graded: GradedResponse) -> int:
    """Return how many grades of a response could not be had."""
    if graded.missing_response:
        return 2
    pairs = [(grades.helpfulness, grades.harm_severity) for grades in graded.grades.values()]
    return sum(isinstance(grade, Missing) for pair in pairs for grade in pair)
