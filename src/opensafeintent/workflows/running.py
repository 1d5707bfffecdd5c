"""What evaluating and grading share: the models of a run that still count, the calls themselves,
and the results.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opensafeintent.analysis.groups import Study
from opensafeintent.calls.client import Client, Model
from opensafeintent.calls.draining import heed, under_way
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.merging import LEDGER, take_up
from opensafeintent.calls.progress import Display, progress_line, refreshed, shown
from opensafeintent.calls.records import Failed
from opensafeintent.evaluation.derive import derive
from opensafeintent.evaluation.forecast import expected_calls
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.records import GradedResponse, ResponseKey
from opensafeintent.evaluation.replay import replay
from opensafeintent.evaluation.run import (
    Regrade,
    expected_regrades,
    missing_grades,
    regrade,
    run_work,
)
from opensafeintent.evaluation.spending import spent_of_run
from opensafeintent.evaluation.swap import Swapped, expected_swaps, swap
from opensafeintent.interop.inspect.models import open_models
from opensafeintent.promptsets import Dataset
from opensafeintent.report.cost import Costs
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.reporting import Outcome, study_of, write_results
from opensafeintent.workflows.settings import Limits

if TYPE_CHECKING:
    from opensafeintent.extensions.stop_when import StopWhen
    from opensafeintent.interop.ray import Cluster


_READ_AT_ONCE = 500
_CAREFUL = 32
"""Connections if an answer may end the run: what is in flight then is paid for, and does not count.
"""
_SHARDS = "shards"
"""The folder of their ledgers, in that of the run; there while a cluster is at work, or after it
was interrupted.
"""


def without_silent(folder: RunFolder, manifest: Manifest, named: Collection[str]) -> Manifest:
    """Leave out the models that never answered.

    A name that was misspelt once does not stay in the run; one that is named now is looked at
    again, without the judges that never answered. A model that is not named now keeps its judges:
    by them its grades are on record, or missing.
    """
    answering: set[str] = set()
    for path in filter(
        Path.is_file, (folder.ledger_path(manifest), *folder.path.glob(f"{_SHARDS}/*/{LEDGER}"))
    ):
        with Ledger(path, readonly=True) as ledger:
            answering |= ledger.answering_models()
    models = {
        name: msgspec.structs.replace(
            entry, judges=tuple(judge for judge in entry.judges if judge in answering)
        )
        if name in named
        else entry
        for name, entry in manifest.models.items()
        if entry.imported or name in answering or name in named
    }
    return msgspec.structs.replace(manifest, models=models)


def other_judges(
    manifest: Manifest, models: Sequence[str], opened: Mapping[str, Model], http: HttpSession
) -> dict[str, Model]:
    """Open the judges that the run has besides those named now: what is new is graded by the whole
    panel.
    """
    panel = {judge for model in models for judge in manifest.models[model].judges}
    return open_models(sorted(panel - set(opened)), http)


class Found(NamedTuple):
    """What a run holds after its calls."""

    graded: list[GradedResponse]
    regrades: list[Regrade]
    swaps: list[Swapped]
    notes: Sequence[str] = ()
    """What a reader of the results should know of a cluster, a line each."""


class Calls:
    """The calls of a run as they are made, and the responses that have come of them.

    Args:
        client: makes the calls.
        identities: of every target and judge of the run, by name.
        display: shows how it is going.
        limits: how much at once.
        stop_when: is handed every response as soon as it is known.
    """

    def __init__(
        self,
        client: Client,
        identities: Mapping[str, str],
        display: Display,
        limits: Limits,
        stop_when: StopWhen | None,
    ) -> None:
        self.client = client
        self.known: dict[ResponseKey, GradedResponse] = {}
        """Responses that need not be looked up again."""
        self._identities = identities
        self._display = display
        self._limits = limits
        self._stop_when = stop_when
        # a check of the judges goes before
        self._least = client.tally.made.total() + client.tally.reused_calls

    def expect(self, calls: int) -> None:
        """Have so many more calls shown as what is to come, made or reused; probes come on top."""
        self._least += calls

    def shown(self) -> AbstractAsyncContextManager[None]:
        """Keep the display up to date while the body makes calls."""
        tally = self.client.tally

        def expected() -> int:
            return self._least + sum(
                count for (_, purpose), count in tally.made.items() if purpose == "probe"
            )

        return shown(self._display, self.client, expected, lambda: self._limits.spent(tally))

    async def left_of(self, work: Sequence[ModelWork]) -> list[ModelWork]:
        """Return the work that still takes calls; every other response is known, and its calls
        count as reused.
        """
        client = self.client
        if client.ledger.count() == 0:
            return list(work)
        left: list[ModelWork] = []
        every = sum(len(item.tasks) for item in work)
        read = 0
        for item in work:
            tasks: list[Task] = []
            for replayed in replay(client.ledger, self._identities, item.planned):
                if read % _READ_AT_ONCE == 0:
                    self._display.stage(f"reading the ledger: {read:,} of {every:,} responses")
                    await asyncio.sleep(
                        0
                    )  # nothing else here waits: an interruption is to be heard
                read += 1
                if not replayed.whole:
                    tasks.append(replayed.task)
                    continue
                for call, _, outcome in replayed.asked:
                    if not isinstance(outcome, Failed):
                        client.reused(call, outcome)
                client.tally.missing += missing_grades(replayed.result)
                self._done(replayed.result)
            left.append(msgspec.structs.replace(item, tasks=tasks))
        return left

    async def make(self, work: Sequence[ModelWork]) -> None:
        """Make every call that some work asks for.

        Raises:
            Stopped, InputError: see `evaluation.run.run_work`.
        """
        connections = self._limits.max_connections or (_CAREFUL if self._stop_when else None)
        await run_work(self.client, work, at_once=under_way(connections), done=self._done)

    async def found(self, manifest: Manifest, dataset: Dataset) -> Found:
        """Make the calls of re-grades and of the swap audit, and return all that the run holds."""
        graded = derive(manifest, dataset, self.client.ledger, self.known)
        regrades = await regrade(self.client, manifest, dataset, graded)
        return Found(graded, regrades, await swap(self.client, manifest, dataset, graded))

    def _done(self, graded: GradedResponse) -> None:
        self.known[graded.key] = graded
        if self._stop_when is not None:
            self._stop_when.take(graded)


async def run_calls(
    client: Client,
    manifest: Manifest,
    dataset: Dataset,
    work: Sequence[ModelWork],
    display: Display,
    limits: Limits,
    folder: RunFolder,
    cluster: Cluster | None = None,
    stop_when: StopWhen | None = None,
) -> Found:
    """Make every call that some work asks for, then those of re-grades and the swap audit; return
    all that the run holds.

    With a cluster, the calls of the work are made there. What shards of an interrupted run have
    left is taken up first.
    """
    notes = _taken_up(folder, client.ledger, display)
    calls = Calls(client, manifest.identities(), display, limits, stop_when)
    calls.expect(
        expected_calls(work) + expected_regrades(manifest) + expected_swaps(manifest, dataset)
    )
    work = await calls.left_of(work)
    if stop_when is not None:
        work = stop_when.begin(manifest, folder.save, work)
    if cluster is not None:
        notes += await _spread(
            cluster, folder, client, work, manifest.identities(), display, limits
        )
    async with calls.shown():
        if cluster is None:
            await calls.make(work)
        found = await calls.found(stop_when.conclude() if stop_when else manifest, dataset)
    with contextlib.suppress(OSError):
        (folder.path / _SHARDS).rmdir()
    return found._replace(notes=notes)


def _taken_up(folder: RunFolder, ledger: Ledger, display: Display) -> list[str]:
    """Merge the ledgers of shards that an interrupted run has left; a task that has not ended yet
    is waited for.
    """

    def waiting(line: str) -> None:
        heed()
        display.stage(f"waiting: {line}")

    left = sorted(path.parent for path in folder.path.glob(f"{_SHARDS}/*/{LEDGER}"))
    added = sum(take_up(ledger, shard, waiting).added for shard in left)
    return [f"{added:,} calls were taken up from the shards of an interrupted run"] if added else []


async def _spread(
    cluster: Cluster,
    folder: RunFolder,
    client: Client,
    work: Sequence[ModelWork],
    identities: Mapping[str, str],
    display: Display,
    limits: Limits,
) -> list[str]:
    """Make the calls of some work on a cluster; return what a reader of the results should know, a
    line each.
    """
    from opensafeintent.interop.ray import Shards

    shards = Shards(cluster, folder.path / _SHARDS, client, run_async)

    def refresh() -> None:
        figures = progress_line(client.tally, None, limits.spent(client.tally))
        display.update(
            shards.done, shards.count, f"{shards.done:,} of {shards.count:,} shards · {figures}"
        )

    async with refreshed(display, refresh, client):
        await shards.make(work, identities)
    twice = f"{shards.duplicates:,} calls were made by two shards at once; the first answer stands"
    return [*shards.notices, *([twice] if shards.duplicates else [])]


def costs_of(study: Study, folder: RunFolder, prices: Path | None = None) -> Costs:
    """Return what one run came to; `prices` is a file of the user's."""
    with Ledger(folder.ledger_path(study.manifest), readonly=True) as ledger:
        return Costs({study.name: spent_of_run(study.manifest, study.dataset, ledger)}, prices)


def finish(
    folder: RunFolder,
    manifest: Manifest,
    dataset: Dataset,
    found: Found,
    client: Client,
    max_missing: float,
    display: Display,
    prices: Path | None = None,
    *,
    page_follows: bool = False,
) -> Outcome:
    """Write the results of a run, and say what the calls came to.

    With `page_follows` a new page is written next, so that none need be told that the earlier one
    is gone.
    """
    display.stage("estimating")
    study = study_of(folder.path.name, manifest, dataset, found.graded, found.regrades, found.swaps)
    costs = costs_of(study, folder, prices)
    found.graded.clear()  # of a large run a tenth of all memory, and its rows say the same
    outcome = write_results([study], folder.path, max_missing, costs, page_follows=page_follows)
    outcome.tally = client.tally
    outcome.notes += [*client.notices, *found.notes]
    outcome.notes += [
        f"{model}: a call that failed said: {error}"
        for model, error in client.last_errors.items()
        if model not in client.stopped_models
    ]
    if client.stopped_models:
        outcome.exit_code = 3
        outcome.stopped = list(client.stopped_models.values())
    return outcome
