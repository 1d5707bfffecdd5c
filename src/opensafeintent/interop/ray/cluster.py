"""A Ray cluster, or a small one of this machine alone, that runs shards as Ray tasks; and what models need on its nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import msgspec

from opensafeintent.calls.providers import INSPECT_PROVIDERS, LOCAL_WEIGHTS, is_native, provider_of, variables
from opensafeintent.errors import InputError, Stopped
from opensafeintent.hostile import one_line
from opensafeintent.interop.inspect.extra import PROVIDERS
from opensafeintent.interop.ray.folder import Job, Report

__all__ = [
    "AUTO",
    "LOCAL",
    "Cluster",
    "check_address",
    "cluster",
    "loads_weights",
    "reachable",
    "require_ray",
    "variables_of",
]


def require_ray() -> None:
    """Refuse to go on without the extra.

    Raises:
        InputError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise InputError('--ray needs an extra: pip install "opensafeintent[ray]"')


_SERVERS = {"vllm": "VLLM_BASE_URL", "vllm-completions": "VLLM_BASE_URL", "sglang": "SGLANG_BASE_URL"}
"""Providers of Inspect AI that start a server, unless this variable says where one is."""
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
"""What the variables of a provider begin with, where it is more than its own name."""


def loads_weights(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether asking a model loads its weights where it is asked: in that process, or a server that it starts."""
    provider = provider_of(name)
    if provider in LOCAL_WEIGHTS:
        return True
    return not is_native(name) and provider in _SERVERS and not environment.get(_SERVERS[provider])


def variables_of(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that some models need, as far as they are set, and no other."""
    found: dict[str, str] = {}
    for name in names:
        if name.startswith(("baseline/", "replay/")):
            continue
        provider = provider_of(name)
        stems: tuple[str, ...] = ()
        if provider in LOCAL_WEIGHTS:
            wanted = {"HF_TOKEN", "HF_ENDPOINT"}  # where weights are kept is each node's own matter
        elif is_native(name):
            wanted = set(variables(provider))
        else:
            wanted = set(PROVIDERS[provider].needs) if provider in INSPECT_PROVIDERS else set()
            stems = (f"{provider.upper().replace('-', '_')}_", *_FURTHER.get(provider, ()))
        found |= {
            variable: value
            for variable, value in environment.items()
            if variable in wanted or (stems and variable.startswith(stems))
        }
    return found


T = TypeVar("T")

LOCAL = "local"
"""In place of an address: a cluster of this machine alone, as long as the command runs."""
AUTO = "auto"
"""In place of an address: the cluster that this machine belongs to."""
RETRIES = 8
"""Times that Ray runs a shard again whose worker or node was lost."""
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
"""For a cluster to answer, Ray being read from a slow disk included."""
_LEAVE_SECONDS = 10.0
"""For Ray to finish connecting, once we were interrupted."""
_STORE_BYTES = 100 * 2**20
"""Ray's shared memory: jobs and reports are small."""

Entry = Callable[[Mapping[str, Any], Mapping[str, str]], dict[str, Any]]
"""What a task runs: takes a job as plain data and environment variables, returns a report as plain data."""


class Cluster:
    """A cluster that the process is connected to; see `driving.Pool`."""

    def __init__(self, entry: Entry, variables: Mapping[str, str]) -> None:
        ray = _ray()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        self.slots = max(1, int(sum(node["Resources"].get("CPU", 0) for node in nodes)))
        self.gpus = float(sum(node["Resources"].get("GPU", 0) for node in nodes))
        self.gpus_of_a_node = float(max((node["Resources"].get("GPU", 0) for node in nodes), default=0))
        self._variables = dict(variables)
        # a lost worker or node is no fault of the task: Ray runs it again, and the shard goes on where it was
        task = {"num_cpus": 1, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}
        self._task = ray.remote(**task)(entry)
        # weights stay in a process, and so does the GPU that it saw first: it ends with its task
        self._task_with_weights = ray.remote(max_calls=1, **task)(entry)

    async def run(self, job: Job) -> Report:
        """Run one shard; Ray runs it again where its worker or node is lost.

        Raises:
            Stopped: it was lost too often, or Ray ended it.
            InputError: the nodes cannot run this program.
        """
        ray = _ray()
        task = self._task_with_weights if loads_weights(job.model) else self._task
        reference = task.options(num_gpus=job.gpus).remote(msgspec.to_builtins(job), self._variables)
        try:
            return msgspec.convert(await reference, Report)
        except asyncio.CancelledError:
            ray.cancel(reference, force=True)
            raise
        except ray.exceptions.RayTaskError as error:
            raise InputError(f"--ray: a task failed: {_last_line(error)}") from error
        except ray.exceptions.RayError as error:
            lost = isinstance(error, ray.exceptions.WorkerCrashedError | ray.exceptions.NodeDiedError)
            raise Stopped(
                f"--ray: a {f'shard was lost {RETRIES + 1} times' if lost else 'task ended'} ({type(error).__name__}: "
                f"{_last_line(error)}); what was answered is kept, run again to go on"
            ) from error


def _ray() -> Any:
    # before Ray is imported: it reports on its use unless told not to
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        # imported here, and without its types: the extra may be missing
        return import_module("ray")
    except ImportError as error:
        raise InputError(f"--ray: the Ray that is installed cannot be imported: {_last_line(error)}") from error


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return one_line(lines[-1] if lines else type(error).__name__, 300)


def check_address(address: str) -> None:
    """Refuse what cannot be the address of a cluster.

    Raises:
        InputError: the extra is missing, or the address is none.
    """
    require_ray()
    if address not in (LOCAL, AUTO):
        _host_and_port(address)


def _host_and_port(address: str) -> tuple[str, int]:
    match = re.fullmatch(r"([^\s/]+):([0-9]{1,5})", address)
    if match is None or not 0 < int(match[2]) < 65536:
        raise InputError(
            f"--ray {address}: expected HOST:PORT of a cluster's head, such as 10.0.0.1:6379; or '{AUTO}', or '{LOCAL}'"
        )
    return match[1].removeprefix("[").removesuffix("]"), int(match[2])


async def reachable(address: str) -> None:
    """See whether there is a cluster at an address, before Ray waits for one. Where we are connected already, there is.

    Raises:
        InputError: the extra is missing, the address is not usable, or no cluster answers there.
    """
    check_address(address)
    if address == LOCAL or _ray().is_initialized():
        return
    if address != AUTO:
        try:
            await _beside(lambda: socket.create_connection(_host_and_port(address), _CONNECT_SECONDS).close())
        except (OSError, UnicodeError) as error:  # a name that cannot be one as well
            raise InputError(f"--ray {address}: no cluster there: {getattr(error, 'strerror', '') or error}") from error
    if not await _answers(address):
        what = "this machine belongs to no running cluster" if address == AUTO else "what answers there is no cluster's head"
        raise InputError(f"--ray {address}: {what}")


async def _answers(address: str) -> bool:
    """Ask for a cluster's head in a process that can be ended: what is none may keep Ray waiting for ever."""
    command = ("-P", "-m", "ray.scripts.scripts", "health-check", "--skip-version-check", "--address", address)
    nothing = asyncio.subprocess.DEVNULL
    asking = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        return await asyncio.wait_for(asking.wait(), _ANSWER_SECONDS) == 0
    except TimeoutError:
        return False
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()


@contextlib.asynccontextmanager
async def cluster(address: str, entry: Entry, variables: Mapping[str, str]) -> AsyncIterator[Cluster]:
    """Connect to a cluster, or start one here, for as long as the body runs.

    A connection to Ray that this process has already is used, and left as it is.

    Args:
        address: HOST:PORT of its head, `auto` for the one this machine belongs to, or `local`.
        entry: what a task runs.
        variables: environment variables for the tasks; they travel as an argument, so that no log or file of Ray's has them.

    Raises:
        InputError: the extra is missing, or there is no usable cluster at the address.
    """
    await reachable(address)
    ray = _ray()
    mine = not ray.is_initialized()
    if mine:
        await _connected(address)
    try:
        yield Cluster(entry, variables)
    finally:
        if mine:
            await asyncio.to_thread(ray.shutdown)


async def _connected(address: str) -> None:
    """Connect beside the loop, so that an interruption is heard; Ray is not left half-way, unless it takes too long."""
    # the servers that Ray starts here die with the thread that started them: the loop's threads last as long as it does
    connect = asyncio.to_thread(_connect, address) if address == LOCAL else _beside(lambda: _connect(address))
    connecting = asyncio.ensure_future(connect)
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        done, _ = await asyncio.wait([connecting], timeout=_LEAVE_SECONDS)
        if done and connecting.exception() is None:
            await asyncio.to_thread(_ray().shutdown)
        raise


async def _beside(work: Callable[[], T]) -> T:
    """Do something that may not come to an end, in a thread that nobody waits for, neither the loop nor the process."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # whatever it is, it is told to whoever waits
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return await asyncio.wrap_future(future)


def _connect(address: str) -> None:
    ray = _ray()
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    here = {"include_dashboard": False, "object_store_memory": _STORE_BYTES} if address == LOCAL else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(address=address, **quiet, **here)
        except (ConnectionError, RuntimeError, ValueError, SystemExit) as error:  # other versions of Ray or Python, and more
            raise InputError(f"--ray {address}: cannot be used: {_last_line(error)}") from error
