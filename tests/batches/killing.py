"""Runs in batches whose files of results are damaged, and that are killed between any two of their
steps, as seeded schedules: they end with the results of plain calls, and no call is made again
while a batch may answer it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from batches.support import NAMES, hasten, run_batch, served
from endtoend import osi
from loopback.batches import BatchHttpServer, batch_server
from loopback.damage import DAMAGE, GONE
from opensafeintent.batch.server import BatchServer
from opensafeintent.batch.store import BatchStore
from opensafeintent.calls.ledger import Ledger

_PRELOADED = (
    "aiohttp",
    "extensions.batches.killing",
    "opensafeintent.cli.commands",
    "opensafeintent.batch.runs",
    "opensafeintent.commands.evaluate",
)
_MOST_KILLS = 4
_SECONDS = 120
_STEPS = 130
"""About as many as a run has without being killed."""


_BOTH = ["out", "err"]
_PASSING = ("400", "503", "moved", "other answers, cut")
"""Damage that is not for ever: a server that fails, and one whose answers differ."""


class Schedule(NamedTuple):
    """The faults of the provider, and the steps at which the program is killed."""

    form: str
    faults: dict[str, Any]
    kills: tuple[int, ...]
    unclear: float
    """Seconds for which a batch is looked for in lists."""


def schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    draw = Random(seed)
    # a list that is late needs a program that looks for longer than a restart takes
    late = draw.random() < 0.3
    faults = {
        "looks": draw.randint(0, 2),
        "lost_creates": tuple(number for number in range(1, 6) if draw.random() < 0.3),
        "lists_before": draw.randint(1, 2) if late else 0,
        "without_files": draw.choice([0, 0, 1]),
        "expires": draw.choice([0.0, 0.0, 0.2]),
        "twice": draw.choice([0.0, 0.3]),
        "strange": draw.random() < 0.3,
        "odd_states": draw.choice([0, 0, 1]),
        "separators": draw.random() < 0.3,
    }
    form = draw.choice(list(NAMES))
    if form != "anthropic" and draw.random() < 0.2:
        faults["queue"] = 10
    faults |= _damage(draw, form)
    kills = tuple(draw.randint(1, _STEPS) for _ in range(draw.randint(1, _MOST_KILLS)))
    return Schedule(form, faults, kills, 8.0 if late else 0.3)


def _damage(draw: Random, form: str) -> dict[str, Any]:
    """Return faults of files, replies, ids and clocks."""
    faults: dict[str, Any] = {
        "clock": draw.choice([0.0, 900.0, -900.0]),
        "ids": draw.choice(["", "", "long", "gs"]),
        "form_of_lines": draw.choice(["", "", "text", "itself"]),
        "silent": draw.random() < 0.2,
        "vanishes": draw.choice([0, 0, 0, 1, 2]),
        "deep": {name: 1 for name in ("get", "list", "create") if draw.random() < 0.1},
        "without_output": form != "anthropic" and draw.random() < 0.1,
        "damaged_batches": draw.choice([1, 2]),
    }
    files = ["all"] if form == "anthropic" else draw.choice([["out"], ["out"], ["err"], _BOTH])
    if draw.random() < 0.7 and not faults["without_output"]:
        damage = draw.choice(sorted(DAMAGE.keys() - {"one line without end"}))
        faults["damage"] = dict.fromkeys(files, damage)
        # a file is not asked for again after some, and the others have to end
        always = damage in GONE or (damage not in _PASSING and draw.random() < 0.4)
        faults["damaged"] = 10**9 if always else draw.choice([1, 2])
        if not always:
            faults["damaged_batches"] = 10**9
    return faults


class Ended(NamedTuple):
    """How a schedule ended."""

    code: int
    kills: int
    asked_twice: list[str]
    metrics: bytes


def carry_through(plan: Schedule, dataset: Path, run: Path) -> Ended:
    """Begin a run, kill it as planned, and begin it again until it ends by itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    killed = 0
    with batch_server(plan.form, **plan.faults) as server:
        for step in (*plan.kills, 0):
            command = _command(server, dataset, run)
            process = context.Process(
                target=_run, args=(command, served(server), step, plan.unclear)
            )
            process.start()
            process.join(_SECONDS)
            if process.exitcode is None:
                process.kill()
                raise TimeoutError(f"{plan} has no end")
            if process.exitcode != -signal.SIGKILL:
                break
            killed += 1
        twice = list(server.asked_twice)
    metrics = run / "metrics.json"
    content = metrics.read_bytes() if metrics.exists() else b""
    return Ended(process.exitcode or 0, killed, twice, content)


def plain_metrics(form: str, dataset: Path, run: Path, *, separators: bool) -> bytes:
    """Return the results of plain calls to a server of a form."""
    with batch_server(form, separators=separators) as server:
        ran = run_batch(server, dataset, run, batch=False)
        assert ran.code == 0, ran
    return (run / "metrics.json").read_bytes()


def _command(server: BatchHttpServer, dataset: Path, run: Path) -> list[str]:
    name = NAMES[server.form]
    models = [f"{name}/target", "--judge", f"{name}/judge", "--tier", "batch"]
    return ["evaluate", *models, "--dataset", str(dataset), "--out", str(run)]


def _run(command: list[str], variables: dict[str, str], step: int, unclear: float) -> None:
    """Run a command in this process, which is killed at a step; 0 lets it end."""
    hasten(setattr, unclear=unclear, unreadable=20.0)
    if step:
        _count_steps(step)
    ran = osi(*command, **variables)
    if ran.code:
        print(ran, file=sys.stderr)
    sys.exit(ran.code)


def _count_steps(last: int) -> None:
    """Have this process killed at its n-th step: around each request, after each change on disk."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    once, download, change, add = (
        BatchServer._once,
        BatchServer.download,
        BatchStore._change,
        Ledger.catch_up,
    )

    async def counted_once(self: BatchServer, *args: Any, **options: Any) -> Any:
        step()
        try:
            return await once(self, *args, **options)
        finally:
            step()

    async def counted_download(
        self: BatchServer, path: str, write: Callable[[bytes], object], submitted: int
    ) -> str:
        def counted_write(part: bytes) -> None:
            step()
            write(part)

        fault = await download(self, path, counted_write, submitted)
        step()
        return fault

    @contextlib.contextmanager
    def counted_change(self: BatchStore) -> Iterator[Callable[..., Any]]:
        with change(self) as execute:
            yield execute
        step()

    async def counted_catch_up(self: Ledger, most: int = 0) -> None:
        step()
        await add(self, most)
        step()

    patch: Callable[[Any, str, Any], object] = setattr
    patch(BatchServer, "_once", counted_once)
    patch(BatchServer, "download", counted_download)
    patch(BatchStore, "_change", counted_change)
    patch(Ledger, "catch_up", counted_catch_up)
