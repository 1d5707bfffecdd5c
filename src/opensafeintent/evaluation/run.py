"""A run: many prompts evaluated at once, without one holding up another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opensafeintent.calls.client import Client, ModelStopped, side_by_side, work_on_each
from opensafeintent.errors import Stopped
from opensafeintent.evaluation.pipeline import Asking, ModelWork, Task
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import QUESTIONS, SCALES


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
            asking = Asking(
                client.ask, task, work.plan, work.templates, told=client.note_reply_form
            )
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


def has_text(graded: GradedResponse) -> bool:
    """Whether there is a response that judges are asked about."""
    return bool(graded.by_judge) and not graded.refusal_reason and not graded.reason("response")


def was_judged(graded: GradedResponse) -> bool:
    """Whether every judge has been asked about a response."""
    unasked = {missing.what for missing in graded.missing if missing.reason == "not_made"}
    return has_text(graded) and not unasked & SCALES.keys()
