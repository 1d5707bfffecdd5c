"""What spreading an evaluation and spreading a build share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.client import Client
from opensafeintent.calls.shards import copy_calls
from opensafeintent.errors import InputError
from opensafeintent.interop.ray.driving import Driver, Ended, Pool
from opensafeintent.interop.ray.folder import Merged, ShardsFolder
from opensafeintent.interop.ray.records import Job
from opensafeintent.interop.ray.resources import loads_weights
from opensafeintent.interop.ray.worker import run_shard
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.spreading.options import Spreading

__all__ = [
    "SHARDS_A_SLOT",
    "named",
    "names_of",
    "new_driver",
    "new_job",
    "notes_of",
    "raise_error",
    "refuse_loaded",
    "run_task_there",
    "seed",
    "used_up",
]

SHARDS_A_SLOT = 2
"""Shards for each process that can run at once, where the user says nothing: the last ones end at about the same time."""


def run_task_there(job: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """What Ray runs on a node."""
    return run_shard(job, variables, run_async)


def refuse_loaded(judges: set[str]) -> None:
    """Refuse models that every task would load anew.

    Raises:
        InputError: there is one among them.
    """
    if loaded := sorted(filter(loads_weights, judges)):
        raise InputError(
            f"--ray: every task asks the judge, and {loaded[0]} would be loaded by each of them; serve it (vllm serve …) and "
            "name it vllm/NAME, or leave --ray out"
        )


def new_job(kind: Literal["evaluate", "build"], run: Path) -> Job:
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


def names_of(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Return the names of shards, in the order of their jobs."""
    return tuple(f"{number:05d}" for number in range(len(jobs)))


def named(jobs: Sequence[Job], token: str) -> list[Job]:
    """Return jobs with their shards' names and the token of the folder."""
    return [msgspec.structs.replace(job, name=name, token=token) for job, name in zip(jobs, names_of(jobs), strict=True)]


def seed(shards: ShardsFolder, client: Client, known: set[bytes]) -> None:
    """Put what tasks need of the run's ledger where they see it: the ledger itself is this machine's alone."""
    if known:
        copy_calls(shards.known, client.ledger.path, known)


def new_driver(pool: Pool, shards: ShardsFolder, client: Client, spreading: Spreading, essential: set[str]) -> Driver:
    """Return what hands the shards out; nothing goes on without the `essential` models."""
    return Driver(
        pool,
        shards,
        client.tally,
        budget=spreading.budget,
        max_connections=spreading.max_connections,
        essential=essential,
    )


def raise_error(client: Client, ended: Ended) -> None:
    """Tell the client which models have stopped, and raise what was wrong with the cluster, if anything was."""
    client.stopped_models.update(ended.stopped)
    if ended.error is not None:
        raise ended.error


def used_up(client: Client, spreading: Spreading) -> str:
    """Say which budget is used up."""
    reached = spreading.budget.reached(client.tally)
    return reached or "the budget is used up, lost requests included; run again with a larger one to go on"


def notes_of(ended: Ended, merged: Merged) -> list[str]:
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
