"""What a task on the cluster does: one shard of an evaluation, or of a stage of a build, into files of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.client import Budget, Client
from opensafeintent.calls.draining import current_drain, under_way
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.shards import AttemptFiles, ShardLedger, spent_in
from opensafeintent.construction.folder import BuildFolder, BuildManifest
from opensafeintent.construction.pipeline import run_stage
from opensafeintent.construction.records import Commission, Draft, Seed, Topic
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.evaluation.run import run_tasks, tasks_of
from opensafeintent.files import read_bytes, write_private
from opensafeintent.interop.models import open_models
from opensafeintent.interop.ray.folder import Job, Progress, Report, ShardsFolder

__all__ = ["BuildShard", "EvaluationShard", "StageItems", "read_items", "run_shard", "write_items"]


class StageItems(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage of a build is to work on: one of these is not empty."""

    seeds: tuple[Seed, ...] = ()
    commissions: tuple[Commission, ...] = ()
    drafts: tuple[Draft, ...] = ()
    cells: tuple[tuple[str, str, int], ...] = ()
    """Harm domain, task type, and how many topics are wanted."""
    accepted: tuple[Topic, ...] = ()
    """The topics that those of a cell must not resemble."""

    @property
    def items(self) -> tuple[Any, ...]:
        """The items that can be worked on apart."""
        return self.seeds or self.commissions or self.drafts or self.cells


class EvaluationShard:
    """Some prompt-sets of one target."""

    items_done = 0

    def __init__(self, job: Job) -> None:
        folder = RunFolder(Path(job.run))
        self._job = job
        self._manifest, self._dataset = folder.load()
        self.identities = self._manifest.identities()

    async def ask(self, client: Client) -> None:
        """Make the calls.

        Raises:
            Stopped: see `run_tasks`.
        """
        job = self._job
        sets = [self._dataset.by_id[set_id] for set_id in job.sets]
        work = ModelWork(
            model=job.model,
            plan=self._manifest.plan(job.model),
            templates=self._manifest.templates_of(job.model),
            tasks=tasks_of(job.model, sets, job.epochs),
        )
        await run_tasks(client, [work], at_once=under_way(job.max_connections), done=lambda _: None)


class BuildShard:
    """Some items of one stage."""

    def __init__(self, job: Job) -> None:
        manifest = BuildFolder(Path(job.run)).load()
        if manifest is None:
            raise InputError(f"{job.run}: no build here")
        self._job = job
        self._manifest: BuildManifest = manifest
        self.identities = manifest.identities
        self.items_done = 0

    async def ask(self, client: Client) -> None:
        """Make the calls.

        Raises:
            Stopped: see `construction.asking.each`.
        """
        job, manifest = self._job, self._manifest
        stage_items = read_items(ShardsFolder(Path(job.run)).items)
        context = manifest.context(client, at_once=under_way(job.max_connections), finished=self._finished)
        items = stage_items.items[slice(*job.items)]
        await run_stage(context, job.stage, items, stage_items.accepted)

    def _finished(self) -> None:
        self.items_done += 1


def read_items(path: Path) -> StageItems:
    """Return what `write_items` wrote.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        return msgspec.msgpack.decode(read_bytes(path), type=StageItems)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: holds no items of a stage: {error}") from error


def write_items(shards: ShardsFolder, items: StageItems) -> None:
    """Put the items of a stage where tasks find them."""
    write_private(shards.items, msgspec.msgpack.encode(items))


_SECONDS = 0.5
"""Between looks at the control file, and between reports of progress."""


def run_shard(job: Mapping[str, Any], variables: Mapping[str, str], run: Callable[..., Report]) -> dict[str, Any]:
    """Work on one shard, as a task in a process of its own.

    Args:
        job: a `Job` as plain data, so that a node with another version of this program can say so.
        variables: environment variables of the models, keys among them; set for as long as the task runs, never written.
        run: runs a coroutine to its end.

    Returns:
        A `Report`, as plain data.
    """
    if job.get("version") != __version__:
        line = f"{socket.gethostname()}: has opensafeintent {__version__}, and the run was begun with {job.get('version')}"
        return _plain(Report(ended="unusable", line=f"{line}; install the same on all nodes"))
    with _environment(variables), _working_folder(Path(job["working_folder"])):
        try:
            return _plain(run(lambda: _work(msgspec.convert(job, Job))))
        except InputError as error:
            return _plain(Report(ended="unusable", line=f"{socket.gethostname()}: {error}"))


def _plain(report: Report) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    return fields


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """A worker of the cluster goes on to other tasks: what it was lent is taken back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _working_folder(path: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.chdir(path) if path.is_dir() else contextlib.nullcontext()


async def _work(job: Job) -> Report:
    shards = ShardsFolder(Path(job.run))
    shards.check(job.token)
    shard = EvaluationShard(job) if job.kind == "evaluate" else BuildShard(job)
    before = await asyncio.to_thread(spent_in, shards.path, job.name)
    budget = Budget(
        calls=None if job.most_calls is None else job.most_calls - before.calls,
        tokens=None if job.most_tokens is None else job.most_tokens - before.tokens,
    )
    files = AttemptFiles.begin(shards.path, job.name)
    async with HttpSession(job.max_connections) as http:
        opened = open_models(job.models, http)
        _check_identities(job, shard.identities, {name: model.identity for name, model in opened.items()})
        known = [shards.known] if shards.known.exists() else []
        with ShardLedger(files, known) as ledger:
            client = Client(ledger, {name: ledger.noted(model) for name, model in opened.items()}, budget)
            report = await _asked(client, shards, ledger, shard, budget)
    return msgspec.structs.replace(report, spent=await asyncio.to_thread(spent_in, shards.path, job.name))


def _check_identities(job: Job, wanted: Mapping[str, str], here: Mapping[str, str]) -> None:
    for name in job.models:
        if here[name] != wanted[name]:
            raise InputError(f"{name}: is {here[name]} on this node, and {wanted[name]} where the run was begun")


async def _asked(
    client: Client, shards: ShardsFolder, ledger: ShardLedger, shard: EvaluationShard | BuildShard, budget: Budget
) -> Report:
    """Make the calls of a shard, while progress is written and the control file is looked at."""
    with contextlib.suppress(OSError):
        ledger.files.progress.touch(0o600)
    if line := shards.halted():  # before this shard's turn came
        client.halt(Stopped(line))
    watching = asyncio.ensure_future(_watch(client, shards, ledger, shard))
    line = ""
    try:
        with current_drain().covering(client):
            await shard.ask(client)
    except Stopped as stopped:
        line = str(stopped)
    finally:
        watching.cancel()
        _write_progress(client, ledger, shard)
    ended = "done"
    if line:
        ended = "stopped" if client.stopped_models else "budget" if budget.reached(client.tally) else "halted"
    return Report(
        ended=ended,  # type: ignore[arg-type]
        line=line,
        stopped=client.stopped_models,
        last_errors=client.last_errors,
        notices=tuple(client.notices),
        reused=_reused(client, ledger),
        missing=client.tally.missing,
    )


def _reused(client: Client, ledger: ShardLedger) -> int:
    """Return how many calls were on record before the work was spread."""
    return max(client.tally.reused_calls - ledger.found_earlier, 0)


async def _watch(client: Client, shards: ShardsFolder, ledger: ShardLedger, shard: EvaluationShard | BuildShard) -> None:
    while True:
        await asyncio.to_thread(_write_progress, client, ledger, shard)
        if line := await asyncio.to_thread(shards.halted):
            client.halt(Stopped(line))
        await asyncio.sleep(_SECONDS)


def _write_progress(client: Client, ledger: ShardLedger, shard: EvaluationShard | BuildShard) -> None:
    tally = client.tally
    tokens = tally.tokens.copy()
    progress = Progress(
        node=socket.gethostname(),
        process=os.getpid(),
        made=_by_purpose(tally.made),
        retries=tally.retries,
        reused=_reused(client, ledger),
        in_flight=tally.in_flight,
        refusals=tally.refusals,
        missing=tally.missing,
        tokens={model: (tokens[model, "input"], tokens[model, "output"]) for model, _ in tokens},
        items=shard.items_done,
    )
    with contextlib.suppress(OSError):  # progress alone is no reason to stop
        ledger.files.progress.write_bytes(msgspec.json.encode(progress))


def _by_purpose(made: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (_, purpose), count in made.items():
        found[purpose] += count
    return found
