"""Evaluate and grade on a Ray cluster.

A task takes a part of one model's prompt-sets, and makes their calls as a command does. It writes a
ledger of its own into the run's folder, which all nodes share. When the task ends, its ledger is
merged into the run's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import re
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.budget import Budget, Tally
from opensafeintent.calls.client import Client
from opensafeintent.calls.concurrency import side_by_side, under_way
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import LEDGER, Ledger
from opensafeintent.calls.ledger_merge import take_up
from opensafeintent.calls.providers import (
    INSPECT_PROVIDERS,
    LOCAL_WEIGHTS,
    PREFIX,
    is_native,
    loads_weights,
    provider_of,
    variables,
)
from opensafeintent.calls.records import Answered, Failed, Refused
from opensafeintent.calls.shutdown import current_drain, raise_if_interrupted
from opensafeintent.errors import InputError, OpenSafeIntentError, Stopped, install_extra
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.replay import replay
from opensafeintent.evaluation.run import raise_if_over, run_tasks
from opensafeintent.files import make_private_folder, os_errors
from opensafeintent.hostile import one_line
from opensafeintent.interop import open_models

_FURTHER = {
    "bedrock": ("AWS_",),
    "sagemaker": ("AWS_",),
    "google": ("GOOGLE_", "GEMINI_", "VERTEX_"),
    "openai": ("OPENAI_", "AZUREAI_", "AZURE_"),
    "azureai": ("AZUREAI_", "AZURE_"),
    "anthropic": ("ANTHROPIC_", "AWS_", "GOOGLE_", "AZUREAI_", "AZURE_"),
    "vllm-completions": ("VLLM_",),
    "mistral": ("MISTRAL_", "AZUREAI_", "AZURE_"),
}
"""First parts of a provider's variables, if they are more than its own name."""
_RETRIES = 8
"""Times that Ray runs a shard again whose worker or node was lost."""
_SHARDS_A_CORE = 2
"""Shards for each core, unless the user says how many: the last ones then end at about the same
time.
"""
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 30.0
"""For a cluster to answer, Ray being read from a slow disk included."""
_APPEARS_SECONDS = 10
"""Until a node sees a folder that was just made: network file systems take their time."""
_STORE_BYTES = 100 * 2**20
"""Ray's shared memory in a cluster of this machine alone."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster for the calls, and the number of shards."""

    address: str
    """HOST:PORT of a cluster's head; `auto`, the cluster of this machine; or `local`, one that
    lives as long as the run.
    """
    shards: int | None = None
    """Parts of each model's prompt-sets."""
    gpus_per_model: float | None = None
    """For a model whose weights a task loads; by default one, if the cluster has any."""
    max_connections: int | None = None
    """Of an endpoint, over all tasks at work."""
    patience: Budget = Budget()
    """How long a call is tried again."""


# Requirements of models on a node
# ------------------------------------------------------------------------------


def variables_of(
    names: Iterable[str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables that some models need, if they are set, and no other."""
    values: dict[str, str] = {}
    for name in names:
        if name.startswith("baseline/"):
            continue
        provider = provider_of(name)
        stems: tuple[str, ...] = ()
        if provider in LOCAL_WEIGHTS:
            wanted = {"HF_TOKEN", "HF_ENDPOINT"}  # each node has its own place for weights
        elif is_native(name):
            wanted = set(variables(provider))
        else:
            from opensafeintent.interop.inspect.providers import PROVIDERS

            wanted = set(PROVIDERS[provider].needs) if provider in INSPECT_PROVIDERS else set()
            stems = (f"{provider.upper().replace('-', '_')}_", *_FURTHER.get(provider, ()))
        values |= {
            variable: value
            for variable, value in environment.items()
            if variable in wanted or (stems and variable.startswith(stems))
        }
    return values


# On a node
# ------------------------------------------------------------------------------


class _Job(NamedTuple):
    """One shard."""

    folder: Path
    work: ModelWork
    identities: Mapping[str, str]
    """Of the models that it asks, by name."""
    known: Mapping[bytes, Answered | Refused]
    """Stored outcomes of the calls that its prompts take."""
    max_connections: int | None
    patience: Budget
    working_folder: Path
    """File names within models' names are relative to it."""
    run: Callable[..., _Report]
    """Runs a coroutine to its end, and ends it in good order when it is interrupted."""
    left_out: Mapping[str, Collection[str]] = {}
    """By model, fields that it is known not to take."""


class _Report(NamedTuple):
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

    known: Mapping[bytes, Answered | Refused] = {}

    def find(self, key: bytes) -> Answered | Refused | None:
        """Return the outcome that satisfies a key."""
        return self.known.get(key) or super().find(key)


def _shard(version: str, pickled: bytes, environment: Mapping[str, str]) -> _Report:
    """Work on one shard, as a task in a process of its own; keys come with the environment, and are
    in no file.
    """
    host = socket.gethostname()
    if version != __version__:
        line = f"{host}: has opensafeintent {__version__}, and the run was begun with {version}"
        raise InputError(f"{line}; install the same on all nodes")
    job: _Job = pickle.loads(pickled)
    os.environ.update(environment)
    if job.working_folder.is_dir():
        os.chdir(job.working_folder)
    try:
        return job.run(lambda: _asked(job))
    except InputError as error:
        raise InputError(f"{host}: {error}") from error


async def _asked(job: _Job) -> _Report:
    for _ in range(2 * _APPEARS_SECONDS):
        if job.folder.is_dir():
            break
        await asyncio.sleep(0.5)
    else:
        raise InputError(
            f"{job.folder}: is not to be seen; the folder of a run has to be one that all nodes"
            " share"
        )
    async with HttpSession(job.max_connections) as http:
        opened = open_models(job.identities, http, left_out=job.left_out)
        for name, model in opened.items():
            if model.identity != job.identities[name]:
                raise InputError(
                    f"{name}: is {model.identity} on this node; the run has {job.identities[name]}"
                )
        # an earlier attempt at this shard, on a node that was cut off, may still write
        with _ShardLedger(job.folder / LEDGER, waiting=raise_if_interrupted) as ledger:
            ledger.known = job.known
            client = Client(ledger, opened, job.patience)
            with contextlib.suppress(Stopped), current_drain().covering(client):
                await run_tasks(
                    client, [job.work], at_once=under_way(job.max_connections), done=lambda _: None
                )
    with Ledger(job.folder / LEDGER, readonly=True) as ledger:
        return _Report(
            client.tally,
            client.stopped_models,
            client.last_errors,
            client.notices,
            client.left_out,
            ledger.count(),
        )


# A cluster
# ------------------------------------------------------------------------------


def check_address(address: str) -> None:
    """Refuse an address that no cluster can have.

    Raises:
        InputError: see above; or the extra is missing.
    """
    if find_spec("ray") is None:
        raise InputError(f"--ray needs an extra: {install_extra('ray')}")
    match = re.fullmatch(r"[^\s/]+:([0-9]{1,5})", address)
    if address not in ("local", "auto") and not (match and 0 < int(match[1]) < 65536):
        raise InputError(
            f"--ray {address}: expected HOST:PORT of a cluster's head, such as 10.0.0.1:6379; or"
            " 'auto', or 'local'"
        )


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return one_line(lines[-1] if lines else type(error).__name__, 300)


async def _reach(address: str) -> None:
    """See whether there is a cluster at an address, in a process that can be ended: Ray would wait
    for one, and for a server of another kind for ever.
    """
    program = (sys.executable, "-P", "-m", "ray.scripts.scripts")
    nothing = asyncio.subprocess.DEVNULL
    with os_errors(f"--ray {address}: cannot start Python to look for a cluster"):
        asking = await asyncio.create_subprocess_exec(
            *program,
            "health-check",
            "--skip-version-check",
            "--address",
            address,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=os.environ | {"RAY_py_gcs_connect_timeout_s": str(_CONNECT_SECONDS)},
        )
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asking.wait(), _ANSWER_SECONDS)
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()
    if asking.returncode:
        raise InputError(f"--ray {address}: no cluster there")


_INSTALLED = Path(__file__).parents[2]
"""Folder that holds this package."""


@contextlib.asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Any]:
    """Connect to a cluster, or start one here, while the body runs; a connection that is there is
    used and left as it is.

    Raises:
        InputError: there is no usable cluster at the address.
    """
    # before Ray is imported: it reports on its use unless told not to
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray = import_module("ray")  # here, and without its types: the extra may be missing
        connecting = not ray.is_initialized()
        if connecting:
            if address != "local":
                await _reach(address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # workers import from the folder that this is started in: not from the user's, in
                # which a module may have the name of one of the library's
                with contextlib.chdir(_INSTALLED):
                    ray.init(address=address, **options)
    # a broken installation, or other versions of Ray or Python in the cluster
    except (ImportError, ConnectionError, RuntimeError, ValueError, SystemExit) as error:
        raise InputError(f"--ray {address}: cannot be used: {_last_line(error)}") from error
    try:
        yield ray
    finally:
        if connecting:
            await asyncio.to_thread(ray.shutdown)


# The shards of a run
# ------------------------------------------------------------------------------


class Shards:
    """The shards of one run: handed to a cluster, and merged into the run's ledger as they end.

    Args:
        cluster: runs them.
        folder: for their ledgers; all nodes see it.
        client: of the run. Its ledger takes their calls, and its tally their counts.
        run: runs a coroutine to its end on a node.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, client: Client, run: Callable[..., _Report]
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
        _check_models(work)
        if not work:
            return
        async with _connected(cluster.address) as self._ray:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            cores = max(1, int(sum(node.get("CPU", 0) for node in nodes)))
            gpus = self._gpus(work, float(max((node.get("GPU", 0) for node in nodes), default=0)))
            parts = _parts(work, cluster.shards or ceil(_SHARDS_A_CORE * cores / len(work)))
            self.count = at_once = len(parts)
            if cluster.max_connections:
                at_once = min(at_once, cores, cluster.max_connections)
            share = cluster.max_connections and cluster.max_connections // at_once
            room = asyncio.Semaphore(at_once)

            async def work_on(number: int, part: ModelWork) -> None:
                async with room:
                    client.raise_if_halted()
                    if part.model not in client.stopped_models:
                        await self._work_on(self._job(number, part, identities, share), gpus)

            with current_drain().covering(self):
                await side_by_side(*(work_on(number, part) for number, part in enumerate(parts)))
        client.raise_if_halted()
        for model in set(client.last_errors) - client.ledger.answering_models():
            client.stopped_models.setdefault(
                model, f"{model}: no call was answered: {client.last_errors[model]}"
            )
        raise_if_over(client, work)

    def _gpus(self, work: Sequence[ModelWork], most: float) -> float:
        """Return the GPUs of a task that loads weights."""
        wanted = self._cluster.gpus_per_model
        loading = next(filter(_loads, work), None)
        if wanted is not None and loading is not None and wanted > most:
            raise InputError(
                f"--gpus-per-model {wanted:g}: no node of the cluster has as many ({most:g} at"
                f" most) for {loading.model}"
            )
        return min(1.0, most) if wanted is None else wanted

    def _job(
        self, number: int, part: ModelWork, identities: Mapping[str, str], connections: int | None
    ) -> _Job:
        return _Job(
            folder=self._folder.resolve() / f"{number:05d}",
            work=part,
            identities={name: identities[name] for name in _asks(part)},
            left_out=self._client.left_out,
            known={
                one.key: one.outcome
                for replayed in replay(self._client.ledger, identities, part.planned)
                for one in replayed.asked
                if not isinstance(one.outcome, Failed)
            },
            max_connections=connections,
            patience=self._cluster.patience,
            working_folder=Path.cwd(),
            run=self._run,
        )

    async def _work_on(self, job: _Job, gpus: float) -> None:
        """Have one shard done, and merge its ledger."""
        try:
            make_private_folder(job.folder)
            report = await self._ended(job, gpus)
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

    async def _ended(self, job: _Job, gpus: float) -> _Report:
        """Run one shard; Ray runs it again if its worker or node is lost."""
        remote = self._ray.remote(
            num_cpus=1,
            num_gpus=gpus if _loads(job.work) else 0,
            # keys and weights end with the process of the task, and so does its hold on a GPU
            max_calls=1,
            max_retries=_RETRIES,
            scheduling_strategy="SPREAD",
        )(_shard)
        task = remote.remote(__version__, pickle.dumps(job), variables_of(job.identities))
        self._tasks.add(task)
        errors = self._ray.exceptions
        try:
            report: _Report = await task
        except asyncio.CancelledError:
            self._ray.cancel(task, force=True)
            raise
        except errors.TaskCancelledError:
            return _Report(Tally(), {}, {}, [], {}, 0)
        except errors.RayTaskError as error:
            if isinstance(error.cause, OpenSafeIntentError):
                raise error.cause from error
            raise InputError(f"--ray: a task failed: {_last_line(error)}") from error
        except errors.RayError as error:
            line = f"--ray: a shard was lost ({type(error).__name__}: {_last_line(error)})"
            raise Stopped(f"{line}; answers so far are kept, run again to go on") from error
        finally:
            self._tasks.discard(task)
        return report

    def _note(self, target: str, report: _Report) -> None:
        client = self._client
        client.tally.add(report.tally)
        client.last_errors |= report.last_errors
        self.notices |= dict.fromkeys(report.notices)
        for model, fields in report.left_out.items():
            client.left_out_elsewhere.setdefault(model, set()).update(fields)
        for model, line in report.stopped.items():
            client.stopped_models.setdefault(model, line)
            if model != target:  # a judge, without which nothing goes on
                raise Stopped(line)


def _asks(work: ModelWork) -> set[str]:
    """Return the models that some work asks."""
    targets = [] if all(task.given for task in work.tasks) else [work.model]
    return {*targets, *work.plan.judges, work.plan.mode_judge}


def _loads(work: ModelWork) -> bool:
    return work.model in _asks(work) and loads_weights(work.model)


def _check_models(work: Sequence[ModelWork]) -> None:
    """Refuse models that tasks cannot ask.

    Raises:
        InputError: there is one among them.
    """
    for name in sorted({name for item in work for name in _asks(item)}):
        if name.startswith(PREFIX):
            raise InputError(
                f"--ray: {name} is a function in this process, which no other can call; leave"
                " --ray out"
            )
    for judge in sorted(
        {judge for item in work for judge in (*item.plan.judges, item.plan.mode_judge)}
    ):
        if loads_weights(judge):
            raise InputError(
                f"--ray: every task asks the judge, and {judge} would be loaded by each of them;"
                " serve it (vllm serve …) and name it vllm/NAME, or leave --ray out"
            )


def _parts(work: Sequence[ModelWork], count: int) -> list[ModelWork]:
    """Cut each model's prompt-sets into this number of parts. Models with weights to load come
    first and whole, because weights are loaded once; the others come in turn.
    """
    parts: dict[tuple[bool, int, int], list[Task]] = {}
    for index, item in enumerate(work):
        whole = _loads(item)
        shards: dict[str, int] = {}
        for task in item.tasks:
            shard = shards.setdefault(task.set_id, 0 if whole else len(shards) % count)
            parts.setdefault((not whole, shard, index), []).append(task)
    return [
        msgspec.structs.replace(work[key[-1]], tasks=tasks) for key, tasks in sorted(parts.items())
    ]
