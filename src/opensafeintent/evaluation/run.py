"""Evaluate many prompts on many targets at once, without one holding up another; grade a sample of
responses once more.

A re-grade, which tells how far a judge agrees with itself, is a call of its own, in the ledger
under a key of its own, and is found again there by every later run. The sample is a function of the
responses alone: a larger one holds every smaller one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from opensafeintent.calls.client import Client, ModelStopped
from opensafeintent.calls.draining import for_each, side_by_side
from opensafeintent.canonical import canonical_json, sha256_hex
from opensafeintent.errors import Stopped
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Asking, ModelWork, Planned, Task
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, Missing, ResponseKey
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.record import PromptSet
from opensafeintent.taxonomy import CORE_VARIANTS, is_dual_use

WITHHELD = "withheld"
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

    A target that stops (wrong key, dead endpoint) is asked no more, and what it has answered is
    graded; a judge that stops ends the run, and so does the last target.

    Args:
        client: makes the calls.
        work: what to do, a target each.
        at_once: prompts of one target under way at the same time.
        done: takes each graded response, in no particular order.

    Raises:
        Stopped: a judge, the last target or a budget ended the run. What was answered is in the
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
            graded = await Asking(client, task, work.plan, work.templates).run()
        except ModelStopped as stopped:
            if stopped.model != work.model:
                raise
            return  # of the other tasks, those whose response is on record can still be graded
        client.tally.missing += missing_grades(graded)
        done(graded)

    await for_each(client, work.tasks, grade, at_once=at_once)


def missing_grades(graded: GradedResponse) -> int:
    """Return how many grades of a response could not be had."""
    if graded.missing_response:
        return 2
    pairs = [(grades.helpfulness, grades.harm_severity) for grades in graded.grades.values()]
    return sum(isinstance(grade, Missing) for pair in pairs for grade in pair)


class Regrade(msgspec.Struct, frozen=True, kw_only=True):
    """One response that every judge was asked about twice."""

    model: str
    set_id: str
    variant: str
    epoch: int
    first: dict[str, JudgeGrades]
    """By judge: the grades that count."""
    again: dict[str, JudgeGrades]


def samples_by_model(models: Collection[str], count: int) -> dict[str, int]:
    """Share a number of responses out to models, as evenly as it goes; a larger number gives no
    model fewer.
    """
    names = sorted(models, key=_digest)
    return {
        model: count // len(names) + (index < count % len(names))
        for index, model in enumerate(names)
    }


def sample(keys: Iterable[ResponseKey], count: int) -> list[ResponseKey]:
    """Return `count` of a model's responses: as many of each variant as it goes, and at random
    within each.

    The order is by content hashes alone, so the sample is the same whenever it is drawn, and grows
    with `count`.
    """
    by_variant: defaultdict[str, list[tuple[str, ResponseKey]]] = defaultdict(list)
    for key in keys:
        by_variant[key.variant].append((_digest(*key), key))
    rounds = [
        (turn, *entry)
        for entries in by_variant.values()
        for turn, entry in enumerate(sorted(entries))
    ]
    return [key for _, _, key in sorted(rounds)[:count]]


def _digest(*parts: str | int) -> str:
    return sha256_hex(canonical_json(list(parts)))


async def regrade(
    client: Client,
    manifest: Manifest,
    dataset: Dataset,
    graded: Collection[GradedResponse],
    *,
    at_once: int = 64,
) -> list[Regrade]:
    """Put a sample of every model's responses to its judges once more, as many as the manifest
    says.

    Args:
        client: makes the calls.
        manifest: of the run.
        dataset: its prompt-sets.
        graded: the run's responses with their grades.
        at_once: responses under way at the same time.

    Raises:
        Stopped: a judge or a budget ended the run. What was answered is in the ledger.
    """

    async def again(item: Planned) -> dict[str, JudgeGrades]:
        return await Asking(client, *item).again()

    first, planned = sampled(manifest, dataset, graded)
    return regrades_of(first, await for_each(client, planned, again, at_once=at_once))


def regrades_of(
    first: Iterable[GradedResponse], again: Iterable[dict[str, JudgeGrades]]
) -> list[Regrade]:
    """Put the first and the second grades of responses together."""
    return [
        Regrade(**one.key._asdict(), first=one.grades, again=two)
        for one, two in zip(first, again, strict=True)
    ]


def expected_regrades(manifest: Manifest) -> int:
    """Return how many calls the re-grades of a run take at most, re-asks aside."""
    return sum(2 * len(entry.judges) * entry.judge_samples for entry in manifest.models.values())


def sampled(
    manifest: Manifest, dataset: Dataset, graded: Collection[GradedResponse]
) -> tuple[list[GradedResponse], list[Planned]]:
    """Return the responses of a run that are graded once more, and how."""
    first: list[GradedResponse] = []
    planned: list[Planned] = []
    for model, entry in manifest.models.items():
        judged = {
            response.key: response
            for response in graded
            if response.model == model and was_judged(response)
        }
        keys = sample(judged, entry.judge_samples)
        first += [judged[key] for key in keys]
        planned += manifest.planned(model, [task_at(key, dataset) for key in keys])
    return first, planned


def task_at(key: ResponseKey, dataset: Dataset) -> Task:
    """Return the task of one response."""
    return Task(**key._asdict(), prompt=dataset.by_id[key.set_id].wordings()[key.variant])


def other_requests(task: Task, dataset: Dataset, withheld: str) -> dict[str, str]:
    """Return what stands in the request's place in the swap audit, by column: the set's other two
    prompts, and none.
    """
    prompts = dataset.by_id[task.set_id].prompts
    return {intent: prompts.of(intent) for intent in CORE_VARIANTS if intent != task.variant} | {
        WITHHELD: withheld
    }


def was_judged(graded: GradedResponse) -> bool:
    """Whether judges have graded a response."""
    return bool(graded.grades) and not graded.refused and not graded.missing_response
