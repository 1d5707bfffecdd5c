"""A shard on a node: a task in a process of its own, with a ledger of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from opensafeintent import __version__
from opensafeintent.calls.budget import Budget, Tally
from opensafeintent.calls.client import Client, under_way
from opensafeintent.calls.headers import NO_HEADERS, Headers
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.records import Answered, Refused
from opensafeintent.calls.service_tiers import NO_FLEX, FlexPlan
from opensafeintent.calls.shutdown import current_drain, raise_if_interrupted
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import run_tasks
from opensafeintent.inspect.routes import open_models

_APPEARS_SECONDS = 10
"""Until a node sees a folder that was just made: network file systems take their time."""


class Job(NamedTuple):
    """One shard."""

    folder: Path
    work: ModelWork
    identities: Mapping[str, str]
    """Of the models that it asks, by name."""
    stored: Mapping[bytes, Answered | Refused]
    """Stored outcomes of the calls that its prompts take."""
    max_connections: int | None
    patience: Budget
    working_folder: Path
    """File names within models' names are relative to it."""
    run: Callable[..., ShardReport]
    """Runs a coroutine to its end, and ends it in good order when it is interrupted."""
    left_out: Mapping[str, Collection[str]] = {}
    """By model, fields that it is known not to take."""
    flex: FlexPlan = NO_FLEX
    """The models that are asked at the flex tier."""
    headers: Headers = NO_HEADERS
    """Of the requests to each model."""
    timeout: float | None = None
    """Seconds after which a request is given up, if the user set them."""


class ShardReport(NamedTuple):
    """How a shard ended."""

    tally: Tally
    stopped: dict[str, str]
    """Models that do not answer any more, each with its line."""
    last_errors: dict[str, str]
    notices: list[str]
    left_out: Mapping[str, Collection[str]]
    """By model, fields that it turned out not to take."""
    rows: int
    """In its ledger."""


class _ShardLedger(Ledger):
    """The ledger of a shard, which also finds the run's recorded calls."""

    stored_in_run: Mapping[bytes, Answered | Refused] = {}

    def find(self, key: bytes) -> Answered | Refused | None:
        """Return the outcome that satisfies a key."""
        return self.stored_in_run.get(key) or super().find(key)


def run_shard(version: str, pickled: bytes, environment: Mapping[str, str]) -> ShardReport:
    """Work on one shard, as a task in a process of its own; keys come with the environment, and are
    in no file.
    """
    host = socket.gethostname()
    if version != __version__:
        line = f"{host}: has opensafeintent {__version__}, and the run was begun with {version}"
        raise InputError(f"{line}; install the same on all nodes")
    job: Job = pickle.loads(pickled)
    os.environ.update(environment)
    if job.working_folder.is_dir():
        os.chdir(job.working_folder)
    try:
        return job.run(lambda: _make_calls(job))
    except InputError as error:
        raise InputError(f"{host}: {error}") from error


async def _make_calls(job: Job) -> ShardReport:
    for _ in range(2 * _APPEARS_SECONDS):
        if job.folder.is_dir():
            break
        await asyncio.sleep(0.5)
    else:
        raise InputError(
            f"{job.folder}: is not to be seen; the folder of a run has to be one that all nodes"
            " share"
        )
    async with HttpSession(job.max_connections, job.timeout) as http:
        opened = open_models(
            job.identities, http, left_out=job.left_out, flex=job.flex, headers=job.headers
        )
        for name, model in opened.items():
            if model.identity != job.identities[name]:
                raise InputError(
                    f"{name}: is {model.identity} on this node; the run has {job.identities[name]}"
                )
        # an earlier attempt at this shard, on a node that was cut off, may still write
        with _ShardLedger(job.folder / LEDGER, waiting=raise_if_interrupted) as ledger:
            ledger.stored_in_run = job.stored
            client = Client(ledger, opened, job.patience)
            with contextlib.suppress(Stopped), current_drain().covering(client):
                await run_tasks(
                    client, [job.work], at_once=under_way(job.max_connections), done=lambda _: None
                )
    with Ledger(job.folder / LEDGER, readonly=True) as ledger:
        return ShardReport(
            client.tally,
            client.stopped_models,
            client.last_errors,
            client.notices,
            client.left_out,
            ledger.count(),
        )
