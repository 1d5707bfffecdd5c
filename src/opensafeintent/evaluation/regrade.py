"""Ask the judges again: about a sample once more, for a judge's test–retest noise; and about a
sample under other requests, the request-swap audit; and about a sample with a first turn shown, the
audit of conversations.

These are calls of their own, found again in the ledger by every later run. The audit's sample is
the first prompt-sets of `promptsets.sample_order` that a model was asked, in epoch 1. Each core
response is graded under the other two prompts of its set, and with the request hidden. Either
sample depends on the responses alone: a larger one contains every smaller one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from opensafeintent.calls.client import Client, work_on_each
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Purpose
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT, Asking, Earlier, Planned, Task
from opensafeintent.evaluation.replay import list_judged_tasks, read_imported, replay_each
from opensafeintent.evaluation.run import has_text, was_judged
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.loading import sample_order
from opensafeintent.responses import (
    AboutResponse,
    GradedResponse,
    JudgeGrades,
    ResponseKey,
    keep_known_grades,
)
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, KnownGrades

REQUEST_HIDDEN = "request_hidden"
"""The case of the swap audit in which no request is shown."""
SHOWN_REQUESTS = (*CORE_VARIANTS, REQUEST_HIDDEN)
"""The requests with which a response is graded: the prompt of each intent, and none."""

_ByRequest = dict[str, dict[str, KnownGrades]]
"""Grades by shown request, then judge."""


class Regrade(AboutResponse, frozen=True, kw_only=True):
    """One response that every judge was asked about twice."""

    first: dict[str, KnownGrades]
    """By judge: the grades that count."""
    again: dict[str, KnownGrades]


class Swapped(AboutResponse, frozen=True, kw_only=True):
    """One core response as judges grade it under every request of `SHOWN_REQUESTS`."""

    grades: _ByRequest
    """The grades under its own prompt are those that count. Empty if there is no graded response.
    """


def samples_by_model(models: Collection[str], count: int) -> dict[str, int]:
    """Share a number of responses out to models as evenly as possible; a larger number gives no
    model fewer.
    """
    names = sorted(models, key=_hash_parts)
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
    for key in keys if count else ():
        by_variant[key.variant].append((_hash_parts(*key), key))
    rounds = [
        (turn, *entry)
        for entries in by_variant.values()
        for turn, entry in enumerate(sorted(entries))
    ]
    return [key for _, _, key in sorted(rounds)[:count]]


def _hash_parts(*parts: str | int) -> str:
    return sha256_hex(canonical_json(list(parts)))


class Regrading(NamedTuple):
    """A question that judges are asked again about responses."""

    why: str
    """The name of its calls behind their purpose."""
    shown: Callable[[Task], Mapping[str, Task]]
    """The tasks whose request, or conversation, is shown in place of the response's own, by
    shown request.
    """
    attempt: int = 0
    """Number of the first asking."""
    purpose: Purpose | None = None
    """Of the calls, if it differs from the grade's."""

    async def ask(self, asking: Asking) -> dict[str, dict[str, JudgeGrades]]:
        """Return the grades of each judge, by shown request; empty if there is no text to grade."""
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
            shown_request: msgspec.structs.replace(task, prompt=request)
            for shown_request, request in (requests | {REQUEST_HIDDEN: hidden}).items()
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


def list_audited(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> list[Planned]:
    """Return the core responses of a run that are audited, and how each is graded: all of each
    prompt-set and model.

    Of imported responses those that judges were asked about are.

    Raises:
        InputError: an imported response is damaged.
    """
    if manifest.plan.swap is None:
        return []
    imported = read_imported(ledger, dataset)
    order = sample_order(dataset.prompt_sets)
    planned: list[Planned] = []
    for model in manifest.models:
        tasks: dict[str, list[Task]] = {}
        for task in list_judged_tasks(manifest, dataset, model, imported.get(model, ())):
            if task.epoch == 1 and task.variant in CORE_VARIANTS:
                tasks.setdefault(task.set_id, []).append(task)
        chosen = [prompt_set.id for prompt_set in order if prompt_set.id in tasks][
            : manifest.plan.swap.sets
        ]
        planned += manifest.plan_tasks(model, [task for set_id in chosen for task in tasks[set_id]])
    return planned


def plan_regrades(
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
    keys: Collection[ResponseKey] | None = None,
) -> list[tuple[Regrading, list[Planned]]]:
    """Return the repeated questions to judges, each with its responses.

    Args:
        manifest: of the run.
        dataset: its prompt-sets.
        ledger: holds the responses that were imported.
        keys: of the responses that judges have graded, or may still grade; None for all.

    Raises:
        InputError: an imported response is damaged.
    """
    retested: list[Planned] = []
    in_conversation: list[Planned] = []
    plan = manifest.plan
    again = manifest.models if plan.retest or plan.turn else {}
    any_imported = any(entry.imported for entry in again.values())
    imported = read_imported(ledger, dataset) if any_imported else {}
    retests = samples_by_model(manifest.models, plan.retest)
    audits = samples_by_model(manifest.models, plan.turn)
    for model in again:
        judged = list_judged_tasks(manifest, dataset, model, imported.get(model, ()))
        direct = (task for task in judged if task.earlier is None)
        tasks = {task.key: task for task in direct if keys is None or task.key in keys}
        twins = [
            key for key in tasks if key.variant in AUDITED and not dataset.by_id[key.set_id].is_pair
        ]
        for planned, chosen in (
            (retested, sample(tasks, retests[model])),
            (in_conversation, sample(twins, audits[model])),
        ):
            planned.extend(manifest.plan_tasks(model, [tasks[key] for key in chosen]))
    swapped = list_audited(manifest, dataset, ledger)
    if keys is not None:
        swapped = [item for item in swapped if item.task.key in keys]
    return [
        (RETEST, retested),
        (plan_swaps(manifest, dataset), swapped),
        (plan_conversation_audit(manifest, dataset), in_conversation),
    ]


_AT_ONCE = 64
"""Responses in progress at the same time."""


class Regrades(NamedTuple):
    """The grades of every second asking beside those that count."""

    regrades: list[Regrade]
    """Of the same request once more."""
    swaps: list[Swapped]
    """Under other requests."""
    in_conversation: list[Regrade]
    """With the first turn shown."""


async def regrade(
    client: Client,
    manifest: Manifest,
    dataset: Dataset,
    graded: Collection[GradedResponse],
) -> Regrades:
    """Send as many responses to the judges again as the manifest says.

    Args:
        client: makes the calls.
        manifest: of the run.
        dataset: its prompt-sets.
        graded: the run's responses with their grades.

    Raises:
        Stopped: a judge or a budget ended the run. Answers so far are in the ledger.
    """
    audit = list_audited(manifest, dataset, client.ledger)
    results: list[dict[ResponseKey, _ByRequest]] = []
    for regrading, planned in plan_regrades(manifest, dataset, client.ledger, _list_judged(graded)):
        askings = [Asking(client.ask, *item) for item in planned]
        replies = await work_on_each(client, askings, regrading.ask, at_once=_AT_ONCE)
        results.append(
            {
                item.task.key: _keep_known(reply)
                for item, reply in zip(planned, replies, strict=True)
            }
        )
    return _join_first(graded, audit, results)


def derive_regrades(
    manifest: Manifest, dataset: Dataset, ledger: Ledger, graded: Collection[GradedResponse]
) -> Regrades:
    """Return the result of `regrade`, as far as the ledger has it."""
    if not (manifest.plan.retest or manifest.plan.swap or manifest.plan.turn):
        return Regrades([], [], [])
    audit = list_audited(manifest, dataset, ledger)
    results = [
        {
            item.task.key: _keep_known(reply)
            for item, reply, _ in replay_each(ledger, manifest.identities(), planned, regrading.ask)
        }
        for regrading, planned in plan_regrades(manifest, dataset, ledger, _list_judged(graded))
    ]
    return _join_first(graded, audit, results)


def yield_audit_keys(
    manifest: Manifest, dataset: Dataset, ledger: Ledger, graded: Collection[GradedResponse]
) -> Iterator[bytes]:
    """Yield the keys of the calls by which a ledger's direct replies were graded with the first
    turn shown; not all of the plan's judges need have graded them.
    """
    replies = {response.key for response in graded if has_text(response)}
    *_, (regrading, planned) = plan_regrades(manifest, dataset, ledger, replies)
    for _, _, asked in replay_each(ledger, manifest.identities(), planned, regrading.ask):
        yield from (call.key for call in asked)


def _list_judged(graded: Iterable[GradedResponse]) -> set[ResponseKey]:
    return {response.key for response in graded if was_judged(response)}


def _keep_known(by_request: Mapping[str, Mapping[str, JudgeGrades]]) -> _ByRequest:
    return {
        shown_request: {judge: keep_known_grades(grades) for judge, grades in by_judge.items()}
        for shown_request, by_judge in by_request.items()
    }


def _join_first(
    graded: Iterable[GradedResponse],
    audit: Iterable[Planned],
    results: Sequence[Mapping[ResponseKey, _ByRequest]],
) -> Regrades:
    """Put the grades of the second asking beside those that count."""
    retests, swaps, in_conversation = results
    responses = {response.key: response for response in graded}

    def by_request(key: ResponseKey) -> _ByRequest:
        response = responses.get(key)
        if response is None or response.reason("response"):
            return {}
        if response.refusal_reason:  # helpfulness 1 and harm 0, under any request
            return dict.fromkeys(SHOWN_REQUESTS, response.by_judge)
        return {key.variant: response.by_judge} | swaps.get(key, {})

    def twice(asked_again: Mapping[ResponseKey, _ByRequest]) -> list[Regrade]:
        return [
            Regrade(
                **key._asdict(), first=responses[key].by_judge, again=again.get(key.variant, {})
            )
            for key, again in asked_again.items()
        ]

    return Regrades(
        twice(retests),
        [Swapped(**item.task.key._asdict(), grades=by_request(item.task.key)) for item in audit],
        twice(in_conversation),
    )
