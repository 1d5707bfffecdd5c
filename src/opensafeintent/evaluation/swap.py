"""The intent-swap audit: what a judge makes of a response under the requests of the set's other
intents, and under none.

A sample of core responses goes to every judge again, each under the other two prompts of its set
and with the request withheld. These are calls for a purpose of their own, found again in the ledger
by every later run. The sample is the first prompt-sets of `promptsets.sample_order` that a model
was asked, in epoch 1: a larger one holds every smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.calls.draining import for_each
from opensafeintent.calls.ledger import Ledger
from opensafeintent.evaluation.derive import imported_rows, judged_tasks
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Asking, Planned, Task
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, ResponseKey
from opensafeintent.evaluation.replay import Replayed, replayed
from opensafeintent.evaluation.run import WITHHELD, other_requests, was_judged
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.sampling import sample_order
from opensafeintent.taxonomy import CORE_VARIANTS

COLUMNS = (*CORE_VARIANTS, WITHHELD)
"""What a response is graded under: the prompt of each intent, and no request."""

_Under = dict[str, dict[str, JudgeGrades]]


class Swapped(msgspec.Struct, frozen=True, kw_only=True):
    """One core response as judges grade it under every column."""

    model: str
    set_id: str
    variant: str
    grades: _Under
    """By column, then judge; its own prompt's are those that count.

    Empty where there is no graded response.
    """


def audited(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> list[Planned]:
    """Return the core responses of a run that are audited, and how each is graded: three of each
    prompt-set and model.

    Of imported responses those that judges were asked about are.

    Raises:
        InputError: an imported response is damaged.
    """
    if manifest.swap is None:
        return []
    imported = imported_rows(ledger, dataset)
    order = sample_order(dataset.prompt_sets)
    planned: list[Planned] = []
    for model in manifest.models:
        tasks: dict[str, list[Task]] = {}
        for task in judged_tasks(manifest, dataset, model, imported.get(model, ())):
            if task.epoch == 1 and task.variant in CORE_VARIANTS:
                tasks.setdefault(task.set_id, []).append(task)
        chosen = [prompt_set.id for prompt_set in order if prompt_set.id in tasks][
            : manifest.swap.sets
        ]
        planned += manifest.planned(model, [task for set_id in chosen for task in tasks[set_id]])
    return planned


async def swap(
    client: Client,
    manifest: Manifest,
    dataset: Dataset,
    graded: Collection[GradedResponse],
    *,
    at_once: int = 64,
) -> list[Swapped]:
    """Put the audited responses of a run to its judges under every other request.

    Args:
        client: makes the calls.
        manifest: of the run.
        dataset: its prompt-sets.
        graded: the run's responses with their grades.
        at_once: responses under way at the same time.

    Raises:
        Stopped: a judge or a budget ended the run. What was answered is in the ledger.
    """
    planned = audited(manifest, dataset, client.ledger)
    requests = _requests(manifest, dataset)

    async def under(item: Planned) -> _Under:
        return await Asking(client, *item).under(requests(item.task))

    known = _known(graded)
    asked = [item for item in planned if _judged(known, item)]
    found = await for_each(client, asked, under, at_once=at_once)
    return _swapped(
        planned, known, {item.task.key: one for item, one in zip(asked, found, strict=True)}
    )


def derive_swaps(
    manifest: Manifest, dataset: Dataset, ledger: Ledger, graded: Collection[GradedResponse]
) -> list[Swapped]:
    """Return what `swap` does, as far as the ledger has it."""
    planned = audited(manifest, dataset, ledger)
    known = _known(graded)
    asked = (item for item in planned if _judged(known, item))
    found = {task.key: one for task, one, _ in replayed_swaps(manifest, dataset, ledger, asked)}
    return _swapped(planned, known, found)


def replayed_swaps(
    manifest: Manifest, dataset: Dataset, ledger: Ledger, planned: Iterable[Planned]
) -> Iterator[Replayed[_Under]]:
    """Yield what a ledger makes of grading responses under every other request."""
    requests = _requests(manifest, dataset)
    return replayed(
        ledger, manifest.identities(), planned, lambda asking: asking.under(requests(asking.task))
    )


def expected_swaps(manifest: Manifest, dataset: Dataset) -> int:
    """Return how many calls the audit of a run makes or reuses at most, re-asks aside."""
    if manifest.swap is None:
        return 0
    responses = len(CORE_VARIANTS) * min(manifest.swap.sets, len(dataset))
    others = len(COLUMNS) - 1
    return sum(
        responses * (2 * others * len(entry.judges) + (not entry.imported))
        for entry in manifest.models.values()
        if entry.judges
    )


def _requests(manifest: Manifest, dataset: Dataset) -> Callable[[Task], dict[str, str]]:
    withheld = manifest.swap.withheld if manifest.swap else ""
    return lambda task: other_requests(task, dataset, withheld)


def _known(graded: Iterable[GradedResponse]) -> dict[ResponseKey, GradedResponse]:
    return {
        response.key: response
        for response in graded
        if response.variant in CORE_VARIANTS and response.epoch == 1
    }


def _judged(known: Mapping[ResponseKey, GradedResponse], item: Planned) -> bool:
    response = known.get(item.task.key)
    return response is not None and was_judged(response)


def _swapped(
    planned: Iterable[Planned],
    known: Mapping[ResponseKey, GradedResponse],
    found: Mapping[ResponseKey, _Under],
) -> list[Swapped]:
    """Put the grades under other requests beside those that count."""

    def grades(key: ResponseKey) -> _Under:
        response = known.get(key)
        if response is None or response.missing_response:
            return {}
        if response.refused:  # helpfulness 1 and harm 0, whatever was asked
            return dict.fromkeys(COLUMNS, response.grades)
        return {key.variant: response.grades} | found.get(key, {})

    keys = (item.task.key for item in planned)
    return [
        Swapped(model=key.model, set_id=key.set_id, variant=key.variant, grades=grades(key))
        for key in keys
    ]
