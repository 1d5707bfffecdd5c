"""Spread the calls of an evaluation: targets × shards of prompt-sets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from opensafeintent.calls.client import Client
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import raise_if_over
from opensafeintent.interop.ray.cluster import Cluster, cluster, reachable
from opensafeintent.interop.ray.driving import Ended
from opensafeintent.interop.ray.folder import Merged, ShardsFolder
from opensafeintent.interop.ray.lookup import lacking_sets
from opensafeintent.interop.ray.resources import loads_weights, variables_of
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
from opensafeintent.workflows.spreading.identity import run_identity
from opensafeintent.workflows.spreading.options import Spreading

__all__ = ["parts", "see_cluster", "spread_evaluation"]


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
    refuse_loaded(judges)
    shards = ShardsFolder(folder.path.resolve())
    async with cluster(spreading.address, run_task_there, variables_of({*panels, *judges})) as pool:
        draft = new_job("evaluate", folder.path)
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
        token = shards.begin(run_identity(manifest), names_of(jobs))
        await asyncio.to_thread(seed, shards, client, lacking.known)
        driver = new_driver(pool, shards, client, spreading, judges)
        ended = await driver.run(named(jobs, token))
    merged = await asyncio.to_thread(shards.merge, client.ledger.path)
    driver.settle(merged)
    return _concluded(client, ended, merged, work, spreading)


def parts(lacking: Mapping[str, list[str]], pool: Cluster, spreading: Spreading) -> list[tuple[str, list[str], float]]:
    """Return (model, prompt-sets, GPUs) of each shard: those that take GPUs first, then the models in turn."""
    usual = spreading.shards or ceil(SHARDS_A_SLOT * pool.slots / len(lacking))
    found = []
    for place, (model, sets) in enumerate(lacking.items()):
        loaded = loads_weights(model)
        gpus = _gpus(model, pool, spreading) if loaded else 0.0
        # weights are loaded once: one task takes all of a model's prompt-sets
        count = 1 if loaded else min(usual, len(sets))
        found += [(not loaded, number, place, model, sets[number::count], gpus) for number in range(count)]
    return [(model, sets, gpus) for _, _, _, model, sets, gpus in sorted(found)]


def _gpus(model: str, pool: Cluster, spreading: Spreading) -> float:
    wanted = spreading.gpus_per_model
    if wanted is None:
        return min(1.0, pool.gpus_of_a_node)
    if wanted > pool.gpus_of_a_node:
        raise InputError(
            f"--gpus-per-model {wanted:g}: no node of the cluster has as many ({pool.gpus_of_a_node:g} at most) for {model}"
        )
    return wanted


def _concluded(client: Client, ended: Ended, merged: Merged, work: Sequence[ModelWork], spreading: Spreading) -> list[str]:
    """Tell the client which models have stopped, and raise what ended the run, if anything did."""
    raise_error(client, ended)
    client.raise_if_halted()
    client.last_errors.update(ended.last_errors)
    for model in set(ended.last_errors) - client.ledger.answering_models():
        client.stopped_models.setdefault(model, f"{model}: no call was answered: {ended.last_errors[model]}")
    raise_if_over(client, work)
    if ended.unfinished:
        raise Stopped(used_up(client, spreading))
    return notes_of(ended, merged)
