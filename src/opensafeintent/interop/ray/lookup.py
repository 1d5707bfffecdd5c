"""What of some work is on record already, so that only the rest is spread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from opensafeintent.calls.client import Asked, LedgerReader
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Failed
from opensafeintent.construction.asking import StageContext
from opensafeintent.construction.pipeline import run_stage
from opensafeintent.construction.records import Stage
from opensafeintent.evaluation.pipeline import ModelWork, Task, run_task
from opensafeintent.interop.ray.plans import StageItems

__all__ = ["Lacking", "lacking_sets", "lacks_calls"]


class Lacking(msgspec.Struct, kw_only=True):
    """What work still takes calls, and what the ledger has of it."""

    sets: dict[str, list[str]] = {}
    """Ids of prompt-sets by target."""
    known: set[bytes] = set()
    """Keys of the calls on record that this work rests on."""
    reused: int = 0
    """Calls of the work that is complete."""


class _Notes:
    """The keys of calls that were found, and whether any was not."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.lacking = False

    def add(self, asked: Asked) -> None:
        """Note a call."""
        if isinstance(asked.outcome, Failed):
            self.lacking = True
        else:
            self.found.append(asked.key)


async def lacking_sets(ledger: Ledger, identities: Mapping[str, str], work: Sequence[ModelWork]) -> Lacking:
    """Find the prompt-sets of each target whose calls are not all on record."""
    lacking = Lacking()
    answering = ledger.answering_models()
    for item in work:
        by_set: dict[str, list[Task]] = {}
        for task in item.tasks:
            by_set.setdefault(task.set_id, []).append(task)
        if item.model not in answering:
            lacking.sets[item.model] = list(by_set)
            continue
        for set_id, tasks in by_set.items():
            notes = _Notes()
            client = LedgerReader(ledger, identities, notes.add)
            for task in tasks:
                await run_task(client, task, item.plan, item.templates)
                await asyncio.sleep(0)  # nothing else here waits: an interruption is to be heard
            if notes.lacking:
                lacking.sets.setdefault(item.model, []).append(set_id)
                lacking.known.update(notes.found)
            else:
                lacking.reused += len(notes.found)
    return lacking


async def lacks_calls(
    ledger: Ledger, identities: Mapping[str, str], context: StageContext, stage: Stage, items: StageItems
) -> Lacking | None:
    """Return what is on record of a stage's calls; None where all of them are."""
    notes = _Notes()
    looking = replace(context, client=LedgerReader(ledger, identities, notes.add), finished=lambda: None)
    await run_stage(looking, stage, items.items, items.accepted)
    return Lacking(known=set(notes.found)) if notes.lacking else None
