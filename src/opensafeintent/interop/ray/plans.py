"""What the calls of a shard are, read from the folder of its run or build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.construction.folder import BuildFolder, BuildManifest
from opensafeintent.construction.pipeline import run_stage
from opensafeintent.construction.records import Draft, Seed, Topic
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import run_tasks, tasks_of
from opensafeintent.files import read_bytes, write_private
from opensafeintent.interop.ray.folder import ShardsFolder
from opensafeintent.interop.ray.records import Job

__all__ = ["AT_ONCE", "BuildShard", "EvaluationShard", "StageItems", "read_items", "write_items"]

AT_ONCE = 512
"""Prompts or items under way at the same time while connections adapt."""


class StageItems(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage of a build is to work on: one of these is not empty."""

    seeds: tuple[Seed, ...] = ()
    topics: tuple[Topic, ...] = ()
    drafts: tuple[Draft, ...] = ()
    cells: tuple[tuple[str, str, int], ...] = ()
    """Harm domain, task type, and how many topics are wanted."""
    accepted: tuple[Topic, ...] = ()
    """The topics that those of a cell must not resemble."""

    @property
    def items(self) -> tuple[Any, ...]:
        """The items that can be worked on apart."""
        return self.seeds or self.topics or self.drafts or self.cells


class EvaluationShard:
    """Some prompt-sets of one target."""

    items_done = 0

    def __init__(self, job: Job) -> None:
        folder = RunFolder(Path(job.run))
        self._job = job
        self._manifest, self._dataset = folder.load()
        self.identities = self._manifest.identities()

    async def ask(self, client: Client) -> None:
        """Make the calls.

        Raises:
            Stopped: see `run_tasks`.
        """
        job = self._job
        sets = [self._dataset.by_id[set_id] for set_id in job.sets]
        work = ModelWork(
            model=job.model,
            plan=self._manifest.plan(job.model),
            templates=self._manifest.templates_of(job.model),
            tasks=tasks_of(job.model, sets, job.epochs),
        )
        await run_tasks(client, [work], at_once=at_once(job), done=lambda _: None)


class BuildShard:
    """Some items of one stage."""

    def __init__(self, job: Job) -> None:
        manifest = BuildFolder(Path(job.run)).load()
        if manifest is None:
            raise InputError(f"{job.run}: no build here")
        self._job = job
        self._manifest: BuildManifest = manifest
        self.identities = manifest.identities
        self.items_done = 0

    async def ask(self, client: Client) -> None:
        """Make the calls.

        Raises:
            Stopped: see `construction.asking.each`.
        """
        job, manifest = self._job, self._manifest
        stage_items = read_items(ShardsFolder(Path(job.run)).items)
        context = manifest.context(client, at_once=at_once(job), finished=self._finished)
        items = stage_items.items[slice(*job.items)]
        await run_stage(context, job.stage, items, stage_items.accepted)

    def _finished(self) -> None:
        self.items_done += 1


def at_once(job: Job) -> int:
    """Return how many prompts or items of a shard are under way at the same time."""
    return 2 * job.max_connections if job.max_connections else AT_ONCE


def read_items(path: Path) -> StageItems:
    """Return what `write_items` wrote.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        return msgspec.msgpack.decode(read_bytes(path), type=StageItems)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: holds no items of a stage: {error}") from error


def write_items(shards: ShardsFolder, items: StageItems) -> None:
    """Put the items of a stage where tasks find them."""
    write_private(shards.items, msgspec.msgpack.encode(items))
