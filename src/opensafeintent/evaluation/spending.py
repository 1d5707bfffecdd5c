"""Which calls a run is made of, and what they came to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.spending import Spent, spent_of
from opensafeintent.evaluation.again import audited, due
from opensafeintent.evaluation.derive import imported_rows, judged_tasks
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.records import GradedResponse
from opensafeintent.evaluation.replay import replay, replayed
from opensafeintent.evaluation.run import was_judged
from opensafeintent.promptsets import Dataset


def calls_of(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Iterator[bytes]:
    """Yield the key of every call that a run's results rest on, as far as its ledger holds what
    they depend on.
    """
    imported, identities = imported_rows(ledger, dataset), manifest.identities()
    graded: list[GradedResponse] = []
    for model in manifest.models:
        tasks = judged_tasks(manifest, dataset, model, imported.get(model, ()))
        for _, response, asked in replay(ledger, identities, manifest.planned(model, tasks)):
            graded.append(response)
            yield from (one.key for one in asked)
    keys = {response.key for response in graded if was_judged(response)}
    for again, planned in due(manifest, dataset, keys, audited(manifest, dataset, ledger)):
        for _, _, asked in replayed(ledger, identities, planned, again.ask):
            yield from (one.key for one in asked)


def spent_of_run(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Spent:
    """Add up what a run came to: every attempt in a ledger of its own, else the calls that its
    results rest on.
    """
    shared = Path(manifest.ledger).is_absolute()
    return spent_of(ledger, calls_of(manifest, dataset, ledger) if shared else None)
