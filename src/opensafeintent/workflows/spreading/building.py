"""Spread the calls of a build, stage by stage: its items are worked on apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.construction.asking import StageContext
from opensafeintent.construction.folder import BuildFolder, BuildManifest
from opensafeintent.construction.records import PURPOSES, Draft, Seed, Stage, Topic
from opensafeintent.errors import Stopped
from opensafeintent.interop.ray.cluster import Cluster, cluster
from opensafeintent.interop.ray.driving import Driver, Ended
from opensafeintent.interop.ray.folder import Merged, ShardsFolder
from opensafeintent.interop.ray.lookup import lacks_calls
from opensafeintent.interop.ray.plans import StageItems, write_items
from opensafeintent.interop.ray.resources import variables_of
from opensafeintent.workflows.spreading.common import (
    SHARDS_A_SLOT,
    named,
    names_of,
    new_driver,
    new_job,
    notes_of,
    raise_error,
    refuse_loaded,
    run_task_there,
    seed,
    used_up,
)
from opensafeintent.workflows.spreading.identity import build_identity
from opensafeintent.workflows.spreading.options import Spreading

__all__ = ["BuildSpreader"]


class BuildSpreader:
    """Makes the calls of each stage of a build on a cluster; see `construction.pipeline.Prefetch`."""

    def __init__(
        self, spreading: Spreading, folder: BuildFolder, manifest: BuildManifest, client: Client, stack: AsyncExitStack
    ) -> None:
        self.notes: list[str] = []
        self._spreading, self._manifest, self._client, self._stack = spreading, manifest, client, stack
        self._run = folder.path.resolve()
        self._shards = ShardsFolder(self._run)
        self._pool: Cluster | None = None
        self._driver: Driver | None = None

    @property
    def items_done(self) -> int:
        """Items of the stage under way that tasks are done with."""
        return self._driver.items_done if self._driver else 0

    async def __call__(
        self, context: StageContext, stage: Stage, items: Sequence[Any], accepted: Sequence[Topic]
    ) -> StageContext:
        """Make the calls of a stage; return a context that takes them from the ledger.

        Raises:
            InputError: there is no usable cluster, or something on its nodes is not as it should be.
            Stopped: a model does not answer any more, or a budget is used up.
        """
        if context.recorded_only.issuperset(PURPOSES[stage]):
            return context
        client, identities = self._client, self._manifest.identities
        work = _stage_items(stage, items, accepted)
        lacking = await lacks_calls(client.ledger, identities, context, stage, work)
        if lacking is not None:
            await self._spread(stage, work, lacking.known)
        return replace(context, client=Client(client.ledger, identities), finished=lambda: None)

    async def _spread(self, stage: Stage, work: StageItems, known: set[bytes]) -> None:
        pool = await self._connected()
        count = len(work.items)
        parts = min(self._spreading.shards or SHARDS_A_SLOT * pool.slots, count)
        edges = [number * count // parts for number in range(parts + 1)]
        models = tuple(dict.fromkeys((self._manifest.generator, self._manifest.judge)))
        draft = new_job("build", self._run)
        jobs = [
            msgspec.structs.replace(draft, models=models, stage=stage, items=(first, last)) for first, last in pairwise(edges)
        ]
        client, shards = self._client, self._shards
        token = shards.begin(build_identity(self._manifest), names_of(jobs))
        await asyncio.to_thread(seed, shards, client, known)
        write_items(shards, work)
        self._driver = new_driver(pool, shards, client, self._spreading, set(models))
        ended = await self._driver.run(named(jobs, token))
        merged = await asyncio.to_thread(shards.merge, client.ledger.path)
        self._driver.settle(merged)
        self._driver = None
        self._conclude(ended, merged)

    async def _connected(self) -> Cluster:
        if self._pool is None:
            models = (self._manifest.generator, self._manifest.judge)
            refuse_loaded(set(models))
            connection = cluster(self._spreading.address, run_task_there, variables_of(models))
            self._pool = await self._stack.enter_async_context(connection)
        return self._pool

    def _conclude(self, ended: Ended, merged: Merged) -> None:
        client = self._client
        raise_error(client, ended)
        client.raise_if_halted()
        answering = client.ledger.answering_models()
        client.last_errors.update({model: error for model, error in ended.last_errors.items() if model not in answering})
        if ended.stopped:
            raise Stopped("; ".join(ended.stopped.values()))
        if ended.unfinished:
            raise Stopped(used_up(client, self._spreading))
        self.notes += [note for note in notes_of(ended, merged) if note not in self.notes]


def _stage_items(stage: Stage, items: Sequence[Any], accepted: Sequence[Topic]) -> StageItems:
    match items[0]:
        case Seed():
            return StageItems(seeds=tuple(items))
        case Topic():
            return StageItems(topics=tuple(items))
        case Draft():
            return StageItems(drafts=tuple(items))
        case _:
            wanted = {(domain, kind) for domain, kind, _ in items}
            return StageItems(cells=tuple(items), accepted=tuple(topic for topic in accepted if topic.cell in wanted))
