"""Spread the calls of an evaluation, or of a build's stages, over a cluster, and bring them back into one ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, Literal

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.client import Asked, Client, LedgerReader
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Failed
from opensafeintent.calls.shards import merge_ledger
from opensafeintent.construction.asking import StageContext
from opensafeintent.construction.folder import BuildFolder, BuildManifest
from opensafeintent.construction.pipeline import run_stage
from opensafeintent.construction.records import PURPOSES, Commission, Draft, Seed, Stage, Topic
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork, Task, run_task
from opensafeintent.evaluation.run import raise_if_over
from opensafeintent.interop.ray.cluster import Cluster, cluster, loads_weights, reachable, variables_of
from opensafeintent.interop.ray.driving import Driver, Ended
from opensafeintent.interop.ray.folder import Job, Merged, ShardsFolder
from opensafeintent.interop.ray.worker import StageItems, run_shard, write_items
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.spreading.options import Spreading, build_identity, run_identity

__all__ = ["BuildSpreader", "lacking_sets", "parts", "run_task_there", "see_cluster", "spread_evaluation"]

_SHARDS_A_SLOT = 2
"""Shards for each process that can run at once, where the user says nothing: the last ones end at about the same time."""


# What is on record -----------------------------------------------------------------------------------------------------


class _Lacking(msgspec.Struct, kw_only=True):
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


async def lacking_sets(ledger: Ledger, identities: Mapping[str, str], work: Sequence[ModelWork]) -> _Lacking:
    """Find the prompt-sets of each target whose calls are not all on record."""
    lacking = _Lacking()
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


# What both share -------------------------------------------------------------------------------------------------------


def run_task_there(job: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """What Ray runs on a node."""
    return run_shard(job, variables, run_async)


def _refuse_loaded(judges: set[str]) -> None:
    """Refuse models that every task would load for itself.

    Raises:
        InputError: there is one among them.
    """
    if loaded := sorted(filter(loads_weights, judges)):
        raise InputError(
            f"--ray: every task asks the judge, and {loaded[0]} would be loaded by each of them; serve it (vllm serve …) and "
            "name it vllm/NAME, or leave --ray out"
        )


def _new_job(kind: Literal["evaluate", "build"], run: Path) -> Job:
    """Return what all jobs of a run or a build have in common."""
    return Job(
        name="",
        run=str(run.resolve()),
        working_folder=str(Path.cwd()),
        token="",
        version=__version__,
        kind=kind,
        models=(),
    )


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is handed out at once: an evaluation, or a stage of a build."""

    of: Mapping[str, str]
    """What cannot differ within one run or build."""
    jobs: Sequence[Job]
    known: set[bytes]
    """Keys of the calls on record that tasks need: the ledger itself is this machine's alone."""
    essential: set[str]
    """Models without which nothing goes on."""
    items: StageItems | None = None


async def _hand_out(
    work: _Work,
    pool: Cluster,
    shards: ShardsFolder,
    client: Client,
    spreading: Spreading,
    begun: Callable[[Driver], None] = lambda _: None,
) -> tuple[Driver, Ended]:
    """Run all jobs; what they recorded is in the folder of shards afterwards. `begun` is told by what."""
    names = tuple(f"{number:05d}" for number in range(len(work.jobs)))
    token = shards.begin(work.of, names)
    if work.known:
        await asyncio.to_thread(merge_ledger, shards.known, client.ledger.path, work.known)
    if work.items:
        write_items(shards, work.items)
    driver = Driver(
        pool,
        shards,
        client.tally,
        budget=spreading.budget,
        max_connections=spreading.max_connections,
        essential=work.essential,
    )
    begun(driver)
    jobs = [msgspec.structs.replace(job, name=name, token=token) for job, name in zip(work.jobs, names, strict=True)]
    return driver, await driver.run(jobs)


async def _bring_back(driver: Driver, ended: Ended, shards: ShardsFolder, client: Client) -> Merged:
    """Merge what was recorded; tell the client which models have stopped, and raise what was wrong with the cluster."""
    merged = await asyncio.to_thread(shards.merge, client.ledger.path)
    driver.settle(merged)
    client.stopped_models.update(ended.stopped)
    if ended.error is not None:
        raise ended.error
    client.raise_if_halted()
    return merged


def _raise_unfinished(client: Client, ended: Ended, spreading: Spreading) -> None:
    """Say which budget is used up, where one is."""
    if ended.unfinished:
        reached = spreading.budget.reached(client.tally)
        raise Stopped(reached or "the budget is used up, lost requests included; run again with a larger one to go on")


def _notes_of(ended: Ended, merged: Merged) -> list[str]:
    """Return what a reader of the results should know, a line each."""
    notes = list(ended.notices)
    if merged.lost:
        notes.append(
            f"{merged.lost:,} calls were in flight when their worker was lost; {merged.again:,} of them were made again"
        )
    if merged.added.twice:
        notes.append(
            f"{merged.added.twice:,} calls were made by two shards at once, for their content is the same; the first outcome "
            "counts"
        )
    return notes


# An evaluation ---------------------------------------------------------------------------------------------------------


async def see_cluster(spreading: Spreading, manifest: Manifest, work: Sequence[ModelWork], client: Client) -> None:
    """See whether there is a cluster, where some work will need one.

    Raises:
        InputError: there is none.
    """
    if (await lacking_sets(client.ledger, manifest.identities(), work)).sets:
        await reachable(spreading.address)


async def spread_evaluation(
    spreading: Spreading, folder: RunFolder, manifest: Manifest, work: Sequence[ModelWork], client: Client
) -> list[str]:
    """Make every call that some work asks for, on a cluster; they are in the client's ledger afterwards.

    Returns:
        What a reader of the results should know, a line each.

    Raises:
        InputError: there is no usable cluster, or something on its nodes is not as it should be.
        Stopped: a judge, the last target or a budget ended the run. What was answered is in the ledger.
    """
    lacking = await lacking_sets(client.ledger, manifest.identities(), work)
    client.tally.reused_calls += lacking.reused
    if not lacking.sets:
        return []
    plans = {item.model: item for item in work}
    panels = {model: {*plans[model].plan.judges, plans[model].plan.mode_judge} for model in lacking.sets}
    judges = {judge for panel in panels.values() for judge in panel}
    _refuse_loaded(judges)
    shards = ShardsFolder(folder.path.resolve())
    async with cluster(spreading.address, run_task_there, variables_of({*panels, *judges})) as pool:
        draft = _new_job("evaluate", folder.path)
        jobs = [
            msgspec.structs.replace(
                draft,
                models=tuple(dict.fromkeys((model, *sorted(panels[model])))),
                gpus=gpus,
                model=model,
                sets=tuple(sets),
                epochs=max(task.epoch for task in plans[model].tasks),
            )
            for model, sets, gpus in parts(lacking.sets, pool, spreading)
        ]
        handed = _Work(of=run_identity(manifest), jobs=jobs, known=lacking.known, essential=judges)
        driver, ended = await _hand_out(handed, pool, shards, client, spreading)
    merged = await _bring_back(driver, ended, shards, client)
    client.last_errors.update(ended.last_errors)
    for model in set(ended.last_errors) - client.ledger.answering_models():
        client.stopped_models.setdefault(model, f"{model}: no call was answered: {ended.last_errors[model]}")
    raise_if_over(client, work)
    _raise_unfinished(client, ended, spreading)
    return _notes_of(ended, merged)


def parts(lacking: Mapping[str, list[str]], pool: Cluster, spreading: Spreading) -> list[tuple[str, list[str], float]]:
    """Return (model, prompt-sets, GPUs) of each shard: those that take GPUs first, then the models in turn."""
    usual = spreading.shards or ceil(_SHARDS_A_SLOT * pool.slots / len(lacking))
    shards = []
    for index, (model, sets) in enumerate(lacking.items()):
        loaded = loads_weights(model)
        gpus = _gpus(model, pool, spreading) if loaded else 0.0
        # weights are loaded once: one task takes all of a model's prompt-sets
        count = 1 if loaded else min(usual, len(sets))
        shards += [(not loaded, number, index, model, sets[number::count], gpus) for number in range(count)]
    return [(model, sets, gpus) for _, _, _, model, sets, gpus in sorted(shards)]


def _gpus(model: str, pool: Cluster, spreading: Spreading) -> float:
    wanted = spreading.gpus_per_model
    if wanted is None:
        return min(1.0, pool.gpus_of_a_node)
    if wanted > pool.gpus_of_a_node:
        raise InputError(
            f"--gpus-per-model {wanted:g}: no node of the cluster has as many ({pool.gpus_of_a_node:g} at most) for {model}"
        )
    return wanted


# A build ---------------------------------------------------------------------------------------------------------------


class BuildSpreader:
    """Makes the calls of each stage of a build on a cluster; see `construction.pipeline.Prefetch`."""

    def __init__(
        self, spreading: Spreading, folder: BuildFolder, manifest: BuildManifest, client: Client, stack: AsyncExitStack
    ) -> None:
        self.notes: list[str] = []
        self._spreading, self._manifest, self._client, self._stack = spreading, manifest, client, stack
        self._models = tuple(dict.fromkeys((manifest.generator, manifest.judge)))
        self._run = folder.path.resolve()
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
        client, identities, notes = self._client, self._manifest.identities, _Notes()
        work = _stage_items(items, accepted)
        looking = replace(context, client=LedgerReader(client.ledger, identities, notes.add), finished=lambda: None)
        await run_stage(looking, stage, work.items, work.accepted)
        if notes.lacking:
            await self._spread(stage, work, set(notes.found))
        return replace(context, client=Client(client.ledger, identities))

    async def _spread(self, stage: Stage, items: StageItems, known: set[bytes]) -> None:
        client, spreading = self._client, self._spreading
        pool = await self._connected()
        count = len(items.items)
        number_of_parts = min(spreading.shards or _SHARDS_A_SLOT * pool.slots, count)
        edges = [number * count // number_of_parts for number in range(number_of_parts + 1)]
        draft = msgspec.structs.replace(_new_job("build", self._run), models=self._models, stage=stage)
        jobs = [msgspec.structs.replace(draft, items=edge) for edge in pairwise(edges)]
        work = _Work(of=build_identity(self._manifest), jobs=jobs, known=known, essential=set(self._models), items=items)
        shards = ShardsFolder(self._run)
        driver, ended = await _hand_out(work, pool, shards, client, spreading, self._begun)
        merged = await _bring_back(driver, ended, shards, client)
        self._driver = None
        answering = client.ledger.answering_models()
        client.last_errors.update({model: error for model, error in ended.last_errors.items() if model not in answering})
        if ended.stopped:
            raise Stopped("; ".join(ended.stopped.values()))
        _raise_unfinished(client, ended, spreading)
        self.notes += [note for note in _notes_of(ended, merged) if note not in self.notes]

    def _begun(self, driver: Driver) -> None:
        self._driver = driver

    async def _connected(self) -> Cluster:
        if self._pool is None:
            _refuse_loaded(set(self._models))
            connection = cluster(self._spreading.address, run_task_there, variables_of(self._models))
            self._pool = await self._stack.enter_async_context(connection)
        return self._pool


def _stage_items(items: Sequence[Any], accepted: Sequence[Topic]) -> StageItems:
    match items[0]:
        case Seed():
            return StageItems(seeds=tuple(items))
        case Commission():
            return StageItems(commissions=tuple(items))
        case Draft():
            return StageItems(drafts=tuple(items))
        case _:
            wanted = {(domain, kind) for domain, kind, _ in items}
            return StageItems(cells=tuple(items), accepted=tuple(topic for topic in accepted if topic.cell in wanted))
