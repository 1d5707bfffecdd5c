"""The work of a run, cut into tasks of a cluster, and their ledgers merged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opensafeintent import __version__
from opensafeintent.any_model import open_models
from opensafeintent.calls.client import Client, choose_concurrency, side_by_side
from opensafeintent.calls.costs import Tally
from opensafeintent.calls.draining import current_drain, raise_if_interrupted
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.ledger_merge import take_up
from opensafeintent.calls.providers import PYTHON_PREFIX, loads_weights
from opensafeintent.calls.records import Answered, Failed, Refused
from opensafeintent.errors import InputError, OpenSafeIntentError, Stopped
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.replay import replay
from opensafeintent.evaluation.run import raise_if_over, run_tasks
from opensafeintent.files import make_private_folder
from opensafeintent.ray.cluster import Cluster, collect_variables, connect_cluster, last_line

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
    cluster: Cluster
    """Its connections are those of this shard."""
    working_folder: Path
    """File names within models' names are relative to it."""
    run: Callable[..., ShardReport]
    """Runs a coroutine to its end, and ends it in good order when it is interrupted."""
    left_out: Mapping[str, Collection[str]] = {}
    """By model, fields that it is known not to take."""


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
    cluster = job.cluster
    async with HttpSession(cluster.max_connections, cluster.timeout) as http:
        opened = open_models(
            job.identities,
            http,
            left_out=job.left_out,
            flex=cluster.flex,
            headers=cluster.headers,
        )
        for name, model in opened.items():
            if model.identity != job.identities[name]:
                raise InputError(
                    f"{name}: is {model.identity} on this node; the run has {job.identities[name]}"
                )
        # an earlier attempt at this shard, on a node that was cut off, may still write
        with _ShardLedger(job.folder / LEDGER, waiting=raise_if_interrupted) as ledger:
            ledger.stored_in_run = job.stored
            client = Client(ledger, opened, cluster.patience)
            with contextlib.suppress(Stopped), current_drain().halt_on_signal(client):
                await run_tasks(
                    client,
                    [job.work],
                    at_once=choose_concurrency(cluster.max_connections),
                    done=lambda _: None,
                )
    with Ledger(job.folder / LEDGER, readonly=True) as ledger:
        return ShardReport(
            client.tally,
            client.stopped_models,
            client.last_errors,
            client.request_notes,
            client.left_out,
            ledger.count(),
        )


def models_asked(work: ModelWork) -> set[str]:
    """Return the models that some work asks."""
    targets = [] if all(task.given for task in work.tasks) else [work.model]
    return {*targets, *work.plan.asked}


def loads_its_weights(work: ModelWork) -> bool:
    """Tell whether a task with this work loads the weights of its model."""
    return work.model in models_asked(work) and loads_weights(work.model)


def check_models(work: Sequence[ModelWork]) -> None:
    """Refuse models that tasks cannot ask.

    Raises:
        InputError: there is one among them.
    """
    for name in sorted({name for item in work for name in models_asked(item)}):
        if name.startswith(PYTHON_PREFIX):
            raise InputError(
                f"--ray: {name} is a function in this process, which no other can call; leave"
                " --ray out"
            )
    for judge in sorted({judge for item in work for judge in item.plan.asked}):
        if loads_weights(judge):
            raise InputError(
                f"--ray: every task asks the judge, and {judge} would be loaded by each of them;"
                " serve it (vllm serve …) and name it vllm/NAME, or leave --ray out"
            )


def cut_work(work: Sequence[ModelWork], count: int) -> list[ModelWork]:
    """Cut each model's prompt-sets into this number of parts. Models with weights to load come
    first and whole, because weights are loaded once; the others come in turn.
    """
    parts: dict[tuple[bool, int, int], list[Task]] = {}
    for index, item in enumerate(work):
        whole = loads_its_weights(item)
        shards: dict[str, int] = {}
        for task in item.tasks:
            shard = shards.setdefault(task.set_id, 0 if whole else len(shards) % count)
            parts.setdefault((not whole, shard, index), []).append(task)
    return [
        msgspec.structs.replace(work[key[-1]], tasks=tasks) for key, tasks in sorted(parts.items())
    ]


_RETRIES = 8
"""Times that Ray runs a shard again whose worker or node was lost."""
_SHARDS_A_CORE = 2
"""Shards for each core, unless the user says how many: the last ones then end at about the same
time.
"""


class Shards:
    """The shards of one run: handed to a cluster, and merged into the run's ledger as they end.

    Args:
        cluster: runs them.
        folder: for their ledgers; all nodes see it.
        client: of the run. Its ledger takes their calls, and its tally their counts.
        run: runs a coroutine to its end on a node.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, client: Client, run: Callable[..., ShardReport]
    ) -> None:
        self.done = self.count = 0
        """Shards that have ended, and all."""
        self.notices: dict[str, None] = {}
        """Notes on the models' requests for a reader of the results, each line once."""
        self.duplicates = 0
        """Calls that two shards made at once."""
        self._cluster, self._folder, self._client, self._run = cluster, folder, client, run
        self._ray: Any = None
        self._tasks: set[Any] = set()
        self._merging = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Whether shards are under way."""
        return bool(self._tasks)

    def halt(self, reason: OpenSafeIntentError) -> None:
        """Begin no further shard; running ones finish their calls in flight."""
        self._client.halt(reason)
        for task in self._tasks:
            self._ray.cancel(task)

    async def make(self, work: Sequence[ModelWork], identities: Mapping[str, str]) -> None:
        """Make every call of some work; they are in the run's ledger afterwards.

        Args:
            work: the tasks, by model.
            identities: of every model and judge, by name.

        Raises:
            InputError: there is no usable cluster, or its nodes have a wrong installation.
            Stopped: a judge, the last model or a signal ended the run. Answers so far are kept.
        """
        client, cluster = self._client, self._cluster
        work = [item for item in work if item.tasks]
        check_models(work)
        if not work:
            return
        async with connect_cluster(cluster.address) as self._ray:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            cores = max(1, int(sum(node.get("CPU", 0) for node in nodes)))
            gpus = self._choose_gpus(
                work, float(max((node.get("GPU", 0) for node in nodes), default=0))
            )
            parts = cut_work(work, cluster.shards or ceil(_SHARDS_A_CORE * cores / len(work)))
            self.count = at_once = len(parts)
            if cluster.max_connections:
                at_once = min(at_once, cores, cluster.max_connections)
            connections = cluster.max_connections and cluster.max_connections // at_once
            free_places = asyncio.Semaphore(at_once)

            async def work_on(number: int, part: ModelWork) -> None:
                async with free_places:
                    client.raise_if_halted()
                    if part.model not in client.stopped_models:
                        await self._work_on(
                            self._make_job(number, part, identities, connections), gpus
                        )

            with current_drain().halt_on_signal(self):
                await side_by_side(*(work_on(number, part) for number, part in enumerate(parts)))
        client.raise_if_halted()
        for model in set(client.last_errors) - client.ledger.find_answering_models():
            client.stopped_models.setdefault(
                model, f"{model}: no call was answered: {client.last_errors[model]}"
            )
        raise_if_over(client, work)

    def _choose_gpus(self, work: Sequence[ModelWork], largest_node: float) -> float:
        """Return the GPUs of a task that loads weights."""
        gpus_per_model = self._cluster.gpus_per_model
        loading = next(filter(loads_its_weights, work), None)
        if gpus_per_model is not None and loading is not None and gpus_per_model > largest_node:
            raise InputError(
                f"--gpus-per-model {gpus_per_model:g}: no node of the cluster has as many"
                f" ({largest_node:g} at most) for {loading.model}"
            )
        return min(1.0, largest_node) if gpus_per_model is None else gpus_per_model

    def _make_job(
        self, number: int, part: ModelWork, identities: Mapping[str, str], connections: int | None
    ) -> Job:
        return Job(
            folder=self._folder.resolve() / f"{number:05d}",
            work=part,
            identities={name: identities[name] for name in models_asked(part)},
            left_out=self._client.left_out,
            stored={
                asked.key: asked.outcome
                for replayed in replay(self._client.ledger, identities, part.planned)
                for asked in replayed.asked
                if not isinstance(asked.outcome, Failed)
            },
            cluster=msgspec.structs.replace(self._cluster, max_connections=connections),
            working_folder=Path.cwd(),
            run=self._run,
        )

    async def _work_on(self, job: Job, gpus: float) -> None:
        """Have one shard done, and merge its ledger."""
        try:
            make_private_folder(job.folder)
            report = await self._run_to_end(job, gpus)
            async with self._merging:
                merged = await asyncio.to_thread(
                    take_up, self._client.ledger, job.folder, raise_if_interrupted, report.rows
                )
            self.duplicates += merged.duplicates
            self.done += 1
            self._note(job.work.model, report)
        except OpenSafeIntentError as error:
            self.halt(error)
            raise

    async def _run_to_end(self, job: Job, gpus: float) -> ShardReport:
        """Run one shard; Ray runs it again if its worker or node is lost."""
        remote = self._ray.remote(
            num_cpus=1,
            num_gpus=gpus if loads_its_weights(job.work) else 0,
            # keys and weights end with the process of the task, and so does its hold on a GPU
            max_calls=1,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )(run_shard)
        task = remote.remote(
            __version__,
            pickle.dumps(job),
            collect_variables(job.identities, headers=self._cluster.headers),
        )
        self._tasks.add(task)
        errors = self._ray.exceptions
        try:
            report: ShardReport = await task
        except asyncio.CancelledError:
            self._ray.cancel(task, force=True)
            raise
        except errors.TaskCancelledError:
            return ShardReport(Tally(), {}, {}, [], {}, 0)
        except errors.RayTaskError as error:
            if isinstance(error.cause, OpenSafeIntentError):
                raise error.cause from error
            raise InputError(f"--ray: a task failed: {last_line(error)}") from error
        except errors.RayError as error:
            line = f"--ray: a shard was lost ({type(error).__name__}: {last_line(error)})"
            raise Stopped(f"{line}; answers so far are kept, run again to go on") from error
        finally:
            self._tasks.discard(task)
        return report

    def _note(self, target: str, report: ShardReport) -> None:
        client = self._client
        client.tally.add(report.tally)
        client.last_errors |= report.last_errors
        self.notices |= dict.fromkeys(report.notices)
        for model, fields in report.left_out.items():
            client.left_out_by_others.setdefault(model, set()).update(fields)
        for model, line in report.stopped.items():
            client.stopped_models.setdefault(model, line)
            if model != target:  # a judge, without which nothing goes on
                raise Stopped(line)
