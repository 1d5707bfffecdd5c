"""The part of the ledger that a run has used, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from opensafeintent.calls.costs import Spent, spent_of
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Failed
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.rebuild import imported_rows, judged_tasks
from opensafeintent.evaluation.regrade import planned_regrades
from opensafeintent.evaluation.replay import Replayed, replay, replayed
from opensafeintent.evaluation.run import was_judged
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse, ResponseKey


def calls_of(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Iterator[bytes]:
    """Yield the key of every call behind a run's results, as far as its ledger holds the calls
    before it.
    """
    judged: set[ResponseKey] = set()
    for _, response, calls in replayed_responses(manifest, dataset, ledger):
        if was_judged(response):
            judged.add(response.key)
        yield from (call.key for call in calls if call.call.counted)
    for regrading, planned in planned_regrades(manifest, dataset, ledger, judged):
        for _, _, calls in replayed(ledger, manifest.identities(), planned, regrading.ask):
            yield from (call.key for call in calls if call.call.counted)


def replayed_responses(
    manifest: Manifest, dataset: Dataset, ledger: Ledger
) -> Iterator[Replayed[GradedResponse]]:
    """Yield the replay of every response of a run that judges are asked about."""
    imported = imported_rows(ledger, dataset)
    for model in manifest.models:
        tasks = judged_tasks(manifest, dataset, model, imported.get(model, ()))
        yield from replay(ledger, manifest.identities(), manifest.planned(model, tasks))


def spent_of_run(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Spent:
    """Add up the calls of a run: every attempt in a ledger of its own, else the calls that its
    results use.
    """
    shared = Path(manifest.ledger).is_absolute()
    return spent_of(ledger, calls_of(manifest, dataset, ledger) if shared else None)


class AskedInLedger(NamedTuple):
    """The calls of a check that a ledger holds."""

    keys: list[bytes]
    served: dict[str, tuple[str, ...]]
    """By model, the models that its replies name."""
    whole: bool
    """Whether every call has an outcome."""


def asked_in(
    ledger: Ledger, identities: Mapping[str, str], work: Iterable[ModelWork]
) -> AskedInLedger:
    """Find the calls of a check in a ledger.

    Args:
        ledger: holds the outcomes.
        identities: of the judges, by name.
        work: the calls.
    """
    keys: list[bytes] = []
    served: dict[str, set[str]] = {}
    whole = True
    for item in work:
        for replayed_task in replay(ledger, identities, item.planned):
            whole = whole and replayed_task.whole
            for call, key, outcome in replayed_task.asked:
                keys.append(key)
                if not isinstance(outcome, Failed) and outcome.served_model:
                    served.setdefault(call.model, set()).add(outcome.served_model)
    return AskedInLedger(
        keys, {model: tuple(sorted(names)) for model, names in served.items()}, whole
    )
