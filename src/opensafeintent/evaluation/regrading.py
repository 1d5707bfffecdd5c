"""Grading a sample of responses once more: how far a judge agrees with itself.

A re-grade is a call of its own, in the ledger under a key of its own, and found again there by every later run. The sample is
a function of the responses alone: a larger one holds every smaller one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from opensafeintent.calls.client import Client, for_each
from opensafeintent.canonical import canonical_json, sha256_hex
from opensafeintent.evaluation.forecast import CallCounter, ForecastLine, not_made
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Task, grade_again, run_task
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, JudgePlan
from opensafeintent.evaluation.run import tasks_of
from opensafeintent.promptsets import Dataset
from opensafeintent.templates import Templates

__all__ = ["FIRST_ATTEMPT", "Regrade", "expected_regrades", "forecast_regrades", "regrade", "sample", "samples_by_model"]

FIRST_ATTEMPT = 100
"""Attempt number of the first asking of a re-grade; its re-asks are 101 and 102. The first grading has 0, 1 and 2."""

Place = tuple[str, str, int]
"""Prompt-set, variant, epoch."""

_Again = tuple[Task, JudgePlan, Templates, GradedResponse]
"""What is graded once more: the response, how, and its first grades."""


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
    """Share a number of responses out to models, as evenly as it goes; a larger number gives no model fewer."""
    names = sorted(models, key=_digest)
    return {model: count // len(names) + (place < count % len(names)) for place, model in enumerate(names)}


def sample(model: str, places: Iterable[Place], count: int) -> list[Place]:
    """Return `count` of a model's responses: as many of each variant as it goes, and at random within each.

    The order is by content hashes alone, so the sample is the same whenever it is drawn, and grows with `count`.
    """
    by_variant: defaultdict[str, list[tuple[str, Place]]] = defaultdict(list)
    for place in places:
        by_variant[place[1]].append((_digest(model, *place), place))
    rounds = [(turn, *entry) for entries in by_variant.values() for turn, entry in enumerate(sorted(entries))]
    return [place for _, _, place in sorted(rounds)[:count]]


def _digest(*parts: str | int) -> str:
    return sha256_hex(canonical_json(list(parts)))


async def regrade(
    client: Client, manifest: Manifest, dataset: Dataset, graded: Collection[GradedResponse], *, at_once: int = 64
) -> list[Regrade]:
    """Put a sample of every model's responses to its judges once more, as many as the manifest says.

    Args:
        client: makes the calls, or looks them up where it has nobody to ask.
        manifest: of the run.
        dataset: its prompt-sets.
        graded: the run's responses with their grades.
        at_once: responses under way at the same time.

    Raises:
        Stopped: a judge or a budget ended the run. What was answered is in the ledger.
    """
    work = [item for model in manifest.models for item in _sampled(model, manifest, dataset, graded)]

    async def grade(item: _Again) -> Regrade:
        task, plan, templates, first = item
        again = await grade_again(client, task, plan, templates, first_attempt=FIRST_ATTEMPT)
        return Regrade(
            model=task.model,
            set_id=task.set_id,
            variant=task.variant,
            epoch=task.epoch,
            first=first.grades,
            again=again,
        )

    return await for_each(client, work, grade, at_once=at_once)


def expected_regrades(manifest: Manifest) -> int:
    """Return how many calls the re-grades of a run take at most, re-asks aside."""
    return sum(2 * len(entry.judges) * entry.judge_samples for entry in manifest.models.values())


def _sampled(model: str, manifest: Manifest, dataset: Dataset, graded: Iterable[GradedResponse]) -> Iterator[_Again]:
    count = manifest.models[model].judge_samples
    if not count:
        return
    plan, templates = manifest.plan(model), manifest.templates_of(model)
    judged = {_place(found): found for found in graded if found.model == model and _was_judged(found)}
    for place in sample(model, judged, count):
        yield _task(model, place, dataset), plan, templates, judged[place]


def _place(graded: GradedResponse) -> Place:
    return graded.set_id, graded.variant, graded.epoch


def _task(model: str, place: Place, dataset: Dataset) -> Task:
    set_id, variant, epoch = place
    prompt = dataset.by_id[set_id].wordings()[variant]
    return Task(model=model, set_id=set_id, variant=variant, epoch=epoch, prompt=prompt)


def _was_judged(graded: GradedResponse) -> bool:
    return bool(graded.grades) and not graded.refused and not graded.missing_response


async def forecast_regrades(client: Client, manifest: Manifest, dataset: Dataset) -> tuple[ForecastLine, ...]:
    """Count the calls that re-grades still take.

    Args:
        client: one that answers from the ledger alone.
        manifest: of the run as it would be.
        dataset: its prompt-sets.
    """
    counter = CallCounter()
    for model, entry in manifest.models.items():
        if not entry.judge_samples:
            continue
        plan, templates = manifest.plan(model), manifest.templates_of(model)
        found = {}
        for task in tasks_of(model, manifest.sets_of(model, dataset), entry.epochs):
            graded = await run_task(client, task, plan, templates)
            if _was_judged(graded) or graded.missing_response not in ("", "truncated"):
                found[_place(graded)] = graded
        for place in sample(model, found, entry.judge_samples):
            task = _task(model, place, dataset)
            again: Mapping[str, JudgeGrades] = {}
            if _was_judged(found[place]):
                again = await grade_again(client, task, plan, templates, first_attempt=FIRST_ATTEMPT)
            for judge in plan.judges:
                if judge not in again or not_made(again[judge].helpfulness):
                    counter.judge(judge, "helpfulness, again", templates.helpfulness, task)
                if judge not in again or not_made(again[judge].harm_severity):
                    counter.judge(judge, "harm, again", templates.harm, task)
    return counter.lines()
