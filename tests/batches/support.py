"""What the tests of batches share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calls.support import rows
from endtoend import KEY, Ran, osi
from loopback.batches import BatchHttpServer
from opensafeintent.batch import rounds, runs as gathering, server
from opensafeintent.calls.providers import name_variables

NAMES = {
    "openai": "openai-api/loop",
    "together": "together",
    "mistral": "mistral",
    "anthropic": "anthropic",
}
"""By the form of the server, its models' provider."""


def hasten(patch: Callable[[Any, str, Any], object], **pace: float) -> None:
    """Make every wait short."""
    waits = {"first_look": 0.02, "longest_look": 0.02, "unclear": 0.6, "again": 0.05}
    waits |= {"quota": 0.05, "unreadable": 1.0}
    patch(rounds, "PACE", rounds.Pace(**(waits | pace)))
    patch(server, "_FIRST_WAIT", 0.01)
    patch(rounds, "HANDFUL", 2)
    patch(gathering, "QUIET_SECONDS", 0.05)


def served(at: BatchHttpServer, key: str = KEY) -> dict[str, str]:
    """Return the variables of a server's provider."""
    url, key_variable = name_variables(NAMES[at.form].removeprefix("openai-api/"))
    return {url: at.base_url, key_variable: key}


def run_batch(
    at: BatchHttpServer,
    dataset: Path,
    run: Path,
    *options: object,
    key: str = KEY,
    batch: bool = True,
) -> Ran:
    """Evaluate the target with the judge."""
    name = NAMES[at.form]
    models = (f"{name}/target", "--judge", f"{name}/judge")
    flags = ["--tier", "batch"] if batch else []
    paths = ("--dataset", dataset, "--out", run)
    return osi("evaluate", *models, *paths, *flags, *options, **served(at, key))


def ledger_rows(run: Path) -> list[tuple[Any, ...]]:
    """Return what a ledger holds of each call, in an order of its own."""
    columns = (
        "model, purpose, template, epoch, attempt, status, stop_reason, input_tokens, output_tokens"
    )
    return sorted(rows(run / "ledger.sqlite", f"key, {columns}"))
