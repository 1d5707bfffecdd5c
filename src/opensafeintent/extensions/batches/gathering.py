"""Batches for a plan that waits for the outcome of each call: a build.

Calls gather until none is made any more. Then they are one round.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from opensafeintent.calls.client import Client, not_on_record
from opensafeintent.calls.progress import Display
from opensafeintent.calls.records import Call, Outcome
from opensafeintent.extensions.batches.models import BatchModel
from opensafeintent.extensions.batches.rounds import Batching
from opensafeintent.extensions.batches.store import BatchStore

QUIET_SECONDS = 0.5
"""A round is whole if no call was added for so long."""
_SEQUENTIAL = ("backfill",)
"""Purposes of calls of which each depends on the one before it: they go as plain calls."""


class _Waiting(NamedTuple):
    call: Call
    outcome: asyncio.Future[Outcome | None]


class Gathering:
    """Gathers the calls of a client, and makes them in rounds.

    Args:
        client: whose calls are gathered while `gathering` is in force.
        models: those that are asked in batches, by name.
        store: of the batches.
        display: shows how they are going.
        hours: to wait for them in all; None waits until they end.
    """

    at_once = 1_000_000
    """Items of a stage in progress at the same time: all of them, so that a round is whole."""

    def __init__(
        self,
        client: Client,
        models: Mapping[str, BatchModel],
        store: BatchStore,
        display: Display,
        hours: float | None,
    ) -> None:
        self._client = client
        self._models = models
        self._waiting: dict[bytes, _Waiting] = {}
        self._error: BaseException | None = None
        self._news = asyncio.Event()
        self.batching = Batching(client, models, store, display, hours=hours, plainly=self._release)

    @contextlib.asynccontextmanager
    async def gathering(self) -> AsyncIterator[None]:
        """Make the client's calls in rounds while the body runs.

        Raises:
            BatchesWaiting, Stopped, InputError: see `Batching.make`.
        """
        try:
            await self.batching.begin()
            self._client.elsewhere = self._outcome
            rounds = asyncio.ensure_future(self._make_rounds())
            try:
                yield
            finally:
                self._client.elsewhere = None
                rounds.cancel()
                with contextlib.suppress(BaseException):
                    await rounds
        except BaseException:  # whatever ends the build, batches may go on
            self.batching.note_left()
            raise

    async def _outcome(self, call: Call, key: bytes) -> Outcome | None:
        """Wait for the outcome of a call; None if it is to be made as a plain call."""
        if call.model not in self._models or call.purpose in _SEQUENTIAL:
            return None
        if self._error is not None:
            raise self._error
        waiting = _Waiting(call, asyncio.get_running_loop().create_future())
        self._waiting[key] = waiting
        self._news.set()
        return await waiting.outcome

    async def _make_rounds(self) -> None:
        try:
            while True:
                await self._news.wait()
                await self._until_quiet()
                self._news.clear()
                calls = [waiting.call for waiting in self._waiting.values()]
                await self.batching.make(calls)
                self._hand_out()
        # a cancellation too: every waiting call has to end
        except BaseException as error:
            self._error = error
            for waiting in self._waiting.values():
                if not waiting.outcome.done():
                    waiting.outcome.set_exception(error)
            self._waiting.clear()
            raise

    async def _until_quiet(self) -> None:
        """Wait until no call was added for some time, and no plain call is in flight."""
        count = -1
        while count != len(self._waiting) or self._client.busy:
            count = len(self._waiting)
            await asyncio.sleep(QUIET_SECONDS)

    def _hand_out(self) -> None:
        """Give each waiting call its outcome, if there is one; the others are tried again."""
        for key, (_, outcome) in list(self._waiting.items()):
            found = self._client.ledger.find(key)
            if found is not None:
                outcome.set_result(found)
            elif key in self._client.final_failures:
                outcome.set_result(not_on_record(self._client.ledger, key))
            else:
                self._news.set()
                continue
            del self._waiting[key]

    async def _release(self, calls: Sequence[Call]) -> None:
        """Have some of the waiting calls made as plain calls, and wait for them."""
        keys = [self._client.key_of(call) for call in calls]
        for key in keys:
            self._waiting.pop(key).outcome.set_result(None)
        await self._client.until_made(keys)
