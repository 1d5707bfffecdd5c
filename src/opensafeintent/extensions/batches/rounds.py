"""Rounds: calls that do not depend on one another, made in as few batches as possible."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Self

from opensafeintent.calls.client import Client, ModelStopped
from opensafeintent.calls.concurrency import for_each
from opensafeintent.calls.progress import Display, refreshed
from opensafeintent.calls.records import Call, Failed, Outcome
from opensafeintent.errors import Stopped, counted
from opensafeintent.extensions.batches import submitting
from opensafeintent.extensions.batches.collecting import DOWNLOADS, Collector
from opensafeintent.extensions.batches.dialects import RemoteBatch
from opensafeintent.extensions.batches.models import BatchModel
from opensafeintent.extensions.batches.server import LostReply, NotSent, RequestRefused
from opensafeintent.extensions.batches.store import BatchStore, StoredBatch
from opensafeintent.extensions.batches.submitting import (
    Submitter,
    input_path,
    is_of_account,
    is_quota,
    no_batches,
    other_account,
)

HANDFUL = 20
"""So many calls of a model go as plain calls, if they are no model's first ones."""
_STAGED_AT_ONCE = 500
_PLAIN_AT_ONCE = 512
_ALERT_SECONDS = 0.25


Plainly = Callable[[Sequence[Call]], Awaitable[None]]


class BatchesWaiting(Stopped):
    """The time to wait for batches is over; they go on at their providers (exit code 3)."""


class Batching:
    """Makes rounds of calls through batches, and waits for their results.

    Args:
        client: makes plain calls, and stores all results.
        models: those that are asked in batches, by name.
        store: of the batches.
        display: shows how they are going.
        hours: to wait for them in all; None waits until they end.
        plainly: makes some calls as plain calls, if a plan waits for each outcome; None if a plan
            that follows takes all answers from the ledger.
    """

    def __init__(
        self,
        client: Client,
        models: Mapping[str, BatchModel],
        store: BatchStore,
        display: Display,
        *,
        hours: float | None = None,
        plainly: Plainly | None = None,
    ) -> None:
        self.client = client
        self._models = models
        self._store = store
        self._display = display
        self._plainly = plainly or self._make_plainly
        self._submitter = Submitter(client, store, display.note)
        self._collector = Collector(client, store, read_again=plainly is None)
        self._until = None if hours is None else time.monotonic() + 3600 * hours
        self._proven: set[str] = set()
        """Models that have answered a call with the settings of this run."""
        self._remote: dict[int, RemoteBatch] = {}
        """The last that was seen of each batch."""
        self._unreadable_since: dict[int, float] = {}
        self._vanished: dict[int, str] = {}
        """A line about each batch that its provider has no more."""

    async def begin(self) -> Self:
        """See that every model has batches, and take up those that an earlier run has left.

        Raises:
            InputError: a model has none, its key is not valid, or a batch is another account's.
            Stopped: a provider cannot be asked.
        """
        input_path(self._store).unlink(missing_ok=True)
        self._store.remove_files()
        for batch in self._store.batches("planned"):
            self._store.give_back(batch)
        self._store.unstage()
        for model in self._models.values():
            self._proven |= {
                batch.model
                for batch in self._store.batches("ended", model=model.name)
                if batch.answered
            }
            try:
                async with contextlib.aclosing(
                    model.dialect.listed(model.server, time.time())
                ) as listed:
                    await anext(listed, None)
            except RequestRefused as refused:
                if refused.status in (404, 405):
                    raise no_batches(model, refused) from refused
                raise Stopped(f"{model.name}: its batches cannot be listed: {refused}") from refused
            except (LostReply, NotSent) as error:
                raise Stopped(f"{model.name}: its batches cannot be listed: {error}") from error
        await self.complete()
        return self

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show how the batches are going while the body runs; say if any is left under way.

        Raises:
            Interrupted: the process was asked to end while plain calls were in flight.
        """
        try:
            async with refreshed(
                self._display, lambda: self._display.stage(self.line), self.client
            ):
                yield
        except BaseException:
            self.note_left()
            raise

    def note_left(self) -> None:
        """Show how many batches go on at their providers, if any does."""
        if left := len(self._under_way()):
            self._display.note(
                f"batches that go on at their providers: {left:,}; the same command takes their"
                " results"
            )

    async def make(self, calls: Iterable[Call]) -> bool:
        """Make a round of calls, but for those with an outcome and those whose failure is final;
        tell whether there was any.

        Raises:
            BatchesWaiting: the time to wait is over.
            Stopped: a provider or a budget ended the work.
            InputError: a file cannot be written, or a key is another one.
        """
        client = self.client
        any_made = False
        staged: dict[bytes, Call] = {}
        direct: dict[bytes, Call] = {}
        for call in calls:
            key = client.key_of(call)
            if call.model in client.stopped_models or key in client.final_failures:
                continue
            group = staged if call.model in self._models else direct
            group[key] = call
            if len(group) >= _STAGED_AT_ONCE:
                any_made = await self._take(staged, direct) or any_made
        any_made = await self._take(staged, direct) or any_made
        for model in self._models.values():
            await self._prove(model)
            await self._few_as_plain_calls(model)
        await self.complete()
        return any_made

    async def _take(self, staged: dict[bytes, Call], direct: dict[bytes, Call]) -> bool:
        """Keep some calls for batches, and make those of this process."""
        found = self.client.ledger.find_all([*staged, *direct])
        new = self._store.stage((key, call) for key, call in staged.items() if key not in found)
        now = [call for key, call in direct.items() if key not in found]
        await self._plainly(now)
        staged.clear()
        direct.clear()
        # an interruption is to be heard
        await asyncio.sleep(0)
        return bool(new or now)

    async def _make_plainly(self, calls: Sequence[Call]) -> None:
        async def ask(call: Call) -> None:
            with contextlib.suppress(ModelStopped):
                await self.ask_plainly(call)

        await for_each(self.client, calls, ask, at_once=_PLAIN_AT_ONCE)
        await self.client.ledger.catch_up()

    async def ask_plainly(self, call: Call) -> Outcome:
        """Make a plain call whose outcome a plan that follows takes from the ledger.

        Raises:
            ModelStopped, Stopped, InputError: see `Client.ask`.
        """
        client = self.client
        before = client.tally.reused_calls
        outcome = await client.ask(call)
        if isinstance(outcome, Failed):
            client.final_failures.add(client.key_of(call))
        elif client.tally.reused_calls == before:
            # that plan counts it as a duplicate
            client.tally.reused_calls -= 1
            client.tally.duplicates -= 1
        return outcome

    def are_proven(self, names: Iterable[str]) -> bool:
        """Tell whether each of some models has answered, or is not asked in batches."""
        return all(name in self._proven or name not in self._models for name in names)

    def note_proven(self, *names: str) -> None:
        """Note that some models have answered with the settings of this run."""
        self._proven.update(names)

    async def _prove(self, model: BatchModel) -> None:
        """Make one call of a model as a plain call: a wrong name or a field that the model does not
        take shows before thousands of lines fail for it.
        """
        if model.name in self._proven:
            return
        first = next(self._store.calls(model.name), None)
        if first is None:
            return
        await self._plainly([first[1]])
        self._store.unstage_keys([first[0]])
        if model.name in self.client.stopped_models:
            self._store.unstage(model.name)
        self._proven.add(model.name)

    async def _few_as_plain_calls(self, model: BatchModel) -> None:
        """Make a handful of calls as plain calls: a batch may take a day."""
        count = self._store.staged(model.name)
        if not 0 < count <= HANDFUL or not self._store.batches(model=model.name):
            return
        self._display.note(
            f"{model.name}: {counted(count, 'call')} made as plain calls, too few for a batch"
        )
        await self._plainly([call for _, call in list(self._store.calls(model.name))])
        self._store.unstage(model.name)

    async def complete(self) -> None:
        """Submit all staged calls, and wait until every batch of these models has ended.

        Raises:
            BatchesWaiting, Stopped, InputError: see `make`.
        """
        wait = submitting.PACE.first_look
        while True:
            for model in self._models.values():
                await self._submitter.submit(model)
            under_way = self._under_way()
            for batch in under_way:
                await self._look(self._models[batch.model], batch)
            waiting = any(self._store.staged(name) for name in self._models)
            if not waiting and not self._under_way():
                return
            if not waiting and self._vanished.keys() >= {batch.id for batch in self._under_way()}:
                raise Stopped("; ".join(self._vanished.values()))
            if len(self._under_way()) < len(under_way):
                continue
            await self._sleep(wait)
            wait = min(1.5 * wait, submitting.PACE.longest_look)

    def _under_way(self) -> list[StoredBatch]:
        return [
            batch
            for batch in self._store.batches("uploaded", "submitting", "open")
            if batch.model in self._models
        ]

    async def _sleep(self, seconds: float) -> None:
        """Wait, unless the time is over or the run was halted.

        Raises:
            BatchesWaiting, Stopped: see `make`.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.client.raise_if_halted()
            if self._until is not None and time.monotonic() >= self._until:
                raise BatchesWaiting(
                    f"--batch-wait: the time is over; {self.line}; the same command goes on from"
                    " there"
                )
            await asyncio.sleep(min(left, _ALERT_SECONDS))

    @property
    def line(self) -> str:
        """How the batches under way are going: counts if the provider gives them, and age."""
        under_way = self._under_way()
        if not under_way:
            return "batches: planning the next round"
        lines = sum(batch.lines for batch in under_way)
        seen = [self._remote[batch.id] for batch in under_way if batch.id in self._remote]
        counts = [remote.done for remote in seen if remote.done is not None]
        ended = f"{sum(counts):,} of " if counts else ""
        begun = min((batch.planned for batch in under_way), default=time.time())
        minutes = max(time.time() - begun, 0) / 60
        age = f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
        return f"batches: {len(under_way):,} under way, {ended}{lines:,} calls, {age}"

    async def _look(self, model: BatchModel, batch: StoredBatch) -> None:
        """Ask about a batch, and store its results if it has ended.

        Raises:
            Stopped: the provider cannot be asked, or the batch has failed as a whole.
            InputError: it is another account's, or a file cannot be written.
        """
        if batch.state != "open":
            await self._submitter.settle(model, batch)
            return
        try:
            remote = await model.dialect.find(model.server, batch.remote)
        except RequestRefused as refused:
            self._note_refused(model, batch, refused)
            return
        except (LostReply, NotSent) as error:
            self._note_unreadable(batch, str(error))
            return
        self._vanished.pop(batch.id, None)
        self._remote[batch.id] = remote
        if remote.state == "waiting" or await self._end(model, batch, remote):
            self._unreadable_since.pop(batch.id, None)

    def _note_refused(self, model: BatchModel, batch: StoredBatch, refused: RequestRefused) -> None:
        """Note that a provider does not tell about a batch.

        Raises:
            Stopped: it does not take the key that made the batch.
            InputError: the key is another one.
        """
        if refused.status in (401, 403, 404, 410):
            if not is_of_account(model, batch):
                raise other_account(model, batch) from refused
            if refused.status in (401, 403):
                raise Stopped(
                    f"{model.name}: batch {batch.remote} cannot be asked about: {refused}; check"
                    f" {model.model.endpoint.key_variable}"
                ) from refused
            again = submitting.PACE.again
            if self._store.note_download(batch, "", b"no batch", again).equal >= DOWNLOADS:
                self._vanished[batch.id] = (
                    f"{model.name}: its provider has batch {batch.remote} no more"
                    f" ({refused.status}, with the key that made it), and the answers to"
                    f" {counted(batch.lines, 'call')} are lost; to ask for them again, at their"
                    f" price, delete {self._store.path}"
                )
                return
        self._note_unreadable(batch, str(refused))

    def _note_unreadable(self, batch: StoredBatch, why: str, *, nearer: bool = False) -> None:
        """Note that a batch or its results cannot be read to the end, and say so once.

        Args:
            batch: the batch.
            why: it cannot be read.
            nearer: whether it is nearer to an end, however long it takes.

        Raises:
            Stopped: it has been so for too long.
        """
        since = self._unreadable_since.get(batch.id)
        if since is None:
            self._display.note(
                f"{batch.model}: batch {batch.remote} cannot be read to its end: {why}; it is read"
                " again, and none of its calls is made again meanwhile"
            )
        if since is None or nearer:
            self._unreadable_since[batch.id] = since = time.monotonic()
        if time.monotonic() > since + submitting.PACE.unreadable:
            raise Stopped(
                f"{batch.model}: batch {batch.remote} or its results cannot be read: {why}; the"
                " same command reads them again"
            )

    async def _end(self, model: BatchModel, batch: StoredBatch, remote: RemoteBatch) -> bool:
        """Store the results of a batch that has ended; return whether no more is to come.

        Raises:
            Stopped: it has failed as a whole.
        """
        if remote.state == "failed" and not remote.files:
            why = remote.error.message or remote.error.text if remote.error else remote.status
            line = model.server.scrub(why)
            if is_quota(remote.error):
                self._store.give_back(batch)
                self._submitter.queue_was_full(model, batch, line)
                return True
            self._store.end(batch, status=remote.status, note=line)
            raise Stopped(f"{model.name}: batch {batch.remote} has failed: {line}")
        findings = await self._collector.collect(model, batch, remote, submitting.PACE.again)
        if findings.awaited:
            self._note_unreadable(batch, findings.awaited, nearer=findings.nearer)
            return False
        self._store.end(batch, status=remote.status, answered=findings.answered, note=findings.line)
        self._store.remove_files()
        self._display.note(self._collector.lines_of(batch, findings))
        if findings.names_field:
            self._proven.discard(model.name)
        return True
