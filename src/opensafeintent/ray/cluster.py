"""A Ray cluster, and what its tasks need."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.costs import Budget
from opensafeintent.calls.headers import NO_HEADERS, Headers
from opensafeintent.calls.providers import (
    INSPECT_PROVIDERS,
    LOCAL_WEIGHTS,
    is_native,
    name_variables,
    parse_provider,
)
from opensafeintent.calls.service_tiers import NO_FLEX, FlexPlan
from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import os_errors
from opensafeintent.hostile import one_line

_FURTHER_PREFIXES = {
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


def collect_variables(
    names: Iterable[str],
    environment: Mapping[str, str] = os.environ,
    headers: Headers = NO_HEADERS,
) -> dict[str, str]:
    """Return the environment variables that some models need, if they are set, and no other;
    `headers` are those of their requests.
    """
    values: dict[str, str] = {}
    for name in names:
        if name.startswith("baseline/"):
            continue
        provider = parse_provider(name)
        prefixes: tuple[str, ...] = ()
        if provider in LOCAL_WEIGHTS:
            wanted = {"HF_TOKEN", "HF_ENDPOINT"}  # each node has its own place for weights
        elif is_native(name):
            wanted = set(name_variables(provider))
        else:
            from opensafeintent.inspect.inspect_providers import PROVIDERS

            wanted = set(PROVIDERS[provider].needs) if provider in INSPECT_PROVIDERS else set()
            prefixes = (
                f"{provider.upper().replace('-', '_')}_",
                *_FURTHER_PREFIXES.get(provider, ()),
            )
        wanted |= set(headers.get(name, {}).values())
        values |= {
            variable: value
            for variable, value in environment.items()
            if variable in wanted or (prefixes and variable.startswith(prefixes))
        }
    return values


_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 30.0
"""For a cluster to answer, Ray being read from a slow disk included."""

_STORE_BYTES = 100 * 2**20
"""Ray's shared memory in a cluster of this machine alone."""
_INSTALLED = Path(__file__).parents[2]
"""Folder that holds this package."""


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
    flex: FlexPlan = NO_FLEX
    """The models that are asked at the flex tier."""
    headers: Headers = NO_HEADERS
    """Of the requests to each model."""
    timeout: float | None = None
    """Seconds after which a request is given up, if the user set them."""


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


def last_line(error: BaseException) -> str:
    """Return the last line of an error that has any text."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return one_line(lines[-1] if lines else type(error).__name__)


async def check_reachable(address: str) -> None:
    """See whether there is a cluster at an address, in a process that can be ended: Ray would wait
    for one, and for a server of another kind for ever.
    """
    program = (sys.executable, "-P", "-m", "ray.scripts.scripts")
    no_stream = asyncio.subprocess.DEVNULL
    with os_errors(f"--ray {address}: cannot start Python to look for a cluster"):
        health_check = await asyncio.create_subprocess_exec(
            *program,
            "health-check",
            "--skip-version-check",
            "--address",
            address,
            stdin=no_stream,
            stdout=no_stream,
            stderr=no_stream,
            env=os.environ | {"RAY_py_gcs_connect_timeout_s": str(_CONNECT_SECONDS)},
        )
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(health_check.wait(), _ANSWER_SECONDS)
    finally:
        if health_check.returncode is None:
            health_check.kill()
            await health_check.wait()
    if health_check.returncode:
        raise InputError(f"--ray {address}: no cluster there")


@contextlib.asynccontextmanager
async def connect_cluster(address: str) -> AsyncIterator[Any]:
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
                await check_reachable(address)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # workers import from the folder that this is started in: not from the user's, in
                # which a module may have the name of one of the library's
                with contextlib.chdir(_INSTALLED):
                    ray.init(address=address, **options)
    # a broken installation, or other versions of Ray or Python in the cluster
    except (ImportError, ConnectionError, RuntimeError, ValueError, SystemExit) as error:
        raise InputError(f"--ray {address}: cannot be used: {last_line(error)}") from error
    try:
        yield ray
    finally:
        if connecting:
            await asyncio.to_thread(ray.shutdown)
