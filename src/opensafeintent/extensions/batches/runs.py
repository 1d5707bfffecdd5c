"""The rounds of a run: what the ledger lacks of its plan, until it lacks nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from opensafeintent.calls.client import ModelStopped
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Call, Failed
from opensafeintent.errors import Stopped
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Asking, ModelWork, Planned
from opensafeintent.evaluation.rebuild import derive
from opensafeintent.evaluation.regrade import expected_regrades, planned_regrades
from opensafeintent.evaluation.replay import replayed
from opensafeintent.evaluation.run import was_judged
from opensafeintent.extensions.batches.rounds import Batching
from opensafeintent.promptsets import Dataset


async def fill_ledger(
    batching: Batching, work: Sequence[ModelWork], identities: Mapping[str, str]
) -> None:
    """Make the calls of some work in rounds: responses; grades and modes; probes; re-asks.

    Args:
        batching: makes the rounds.
        work: the tasks, by target.
        identities: of every target and judge, by name.

    Raises:
        BatchesWaiting, Stopped, InputError: see `Batching.make`.
    """
    for item in work:
        await _prove(batching, item)
    await batching.client.ledger.catch_up()
    await _fill(
        batching, identities, lambda: (task for item in work for task in item.planned), Asking.run
    )


async def _prove(batching: Batching, work: ModelWork) -> None:
    """Have one response of a target written and graded by plain calls: a wrong name or key, of a
    judge too, and a field that a model does not take show before the first batch.

    Raises:
        Stopped: a judge does not answer.
    """
    judges = {*work.plan.judges, work.plan.mode_judge}
    if not work.tasks or batching.are_proven({work.model, *judges}):
        return
    asking = Asking(batching.ask_plainly, work.tasks[0], work.plan, work.templates)
    graded = None
    # a stopped model is named below, if it is a judge
    with contextlib.suppress(ModelStopped):
        graded = await asking.run()
        batching.note_proven(work.model)
    stopped_models = batching.client.stopped_models
    if stopped := sorted(judges & stopped_models.keys()):
        raise Stopped("; ".join(stopped_models[judge] for judge in stopped))
    if graded is not None and was_judged(graded):
        batching.note_proven(*work.plan.judges)


async def fill_regrades(batching: Batching, manifest: Manifest, dataset: Dataset) -> None:
    """Make the calls for asking the judges of a run again, whose other calls are in the ledger.

    Raises:
        BatchesWaiting, Stopped, InputError: see `Batching.make`.
    """
    if not expected_regrades(manifest, dataset):
        return
    ledger = batching.client.ledger
    graded = derive(manifest, dataset, ledger)
    judged = {response.key for response in graded if was_judged(response)}
    planned_of = planned_regrades(manifest, dataset, ledger, judged)
    lacking = [(regrading.ask, planned) for regrading, planned in planned_of if planned]
    for ask, planned in lacking:
        await _fill(batching, manifest.identities(), lambda: planned, ask)  # noqa: B023


async def _fill(
    batching: Batching,
    identities: Mapping[str, str],
    planned: Callable[[], Collection[Planned] | Iterator[Planned]],
    ask: Callable[[Asking], Coroutine[Any, Any, Any]],
) -> None:
    ledger = batching.client.ledger
    while await batching.make(_lacking(ledger, identities, planned(), ask)):
        pass


def _lacking(
    ledger: Ledger,
    identities: Mapping[str, str],
    planned: Collection[Planned] | Iterator[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, Any]],
) -> Iterator[Call]:
    """Yield the calls that can be made now and that the ledger has no outcome of."""
    for _, _, asked in replayed(ledger, identities, planned, ask):
        for call, _, outcome in asked:
            if isinstance(outcome, Failed):
                yield call
