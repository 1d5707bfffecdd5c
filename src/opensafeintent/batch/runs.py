"""The batches of a run: its calls gathered for them, their list for people, their early end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple

import msgspec

from opensafeintent.batch.dialects import BatchDialect
from opensafeintent.batch.endpoints import BatchModel, find_dialect, hash_account
from opensafeintent.batch.rounds import Batching, describe_age
from opensafeintent.batch.server import BatchServer, LostReply, NotSent, RequestRefused
from opensafeintent.batch.store import BatchStore, StoredBatch
from opensafeintent.calls.client import Client, ModelStopped, explain_unrecorded
from opensafeintent.calls.headers import Headers, read_header_values
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.progress import Display
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.calls.records import Call, Outcome
from opensafeintent.errors import InputError, Stopped, nearest
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Asking, ModelWork, Planned
from opensafeintent.evaluation.regrade import plan_regrades
from opensafeintent.evaluation.replay import derive, replay_each
from opensafeintent.evaluation.run import was_judged
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.promptsets import Dataset


class BatchLine(NamedTuple):
    """One batch."""

    model: str
    batch: str
    """Its id at the provider; "" if it is not known."""
    state: str
    """In the provider's words, if it could be asked."""
    calls: int
    done: int | None
    """Calls with a result; None if the provider does not say."""
    age: str
    """Since its first step, or until its end."""
    note: str


async def list_batches(
    store: BatchStore, *, cancel: bool, ids: Collection[str], headers: Headers
) -> list[BatchLine]:
    """Return a line about each batch, the oldest first; those under way are asked about.

    Args:
        store: the batches. Others may have made the file: a request goes to the address that this
            process has for the model alone.
        cancel: whether the providers are asked to end those under way that this key made.
        ids: of the batches that the lines are about; these are ended whoever made them. All if
            there are none.
        headers: of the requests about each model's batches.

    Raises:
        InputError: there is no batch of one of the ids.
    """
    batches = store.batches()
    known = [batch.remote for batch in batches if batch.remote]
    for name in ids:
        if name not in known:
            raise InputError(f"--id {clean_for_display(name)}: {nearest(name, known)}")
    async with HttpSession() as http:
        return [
            await _describe_batch(batch, http, headers, cancel=cancel, named=batch.remote in ids)
            for batch in batches
            if not ids or batch.remote in ids
        ]


async def _describe_batch(
    batch: StoredBatch, http: HttpSession, headers: Headers, *, cancel: bool, named: bool
) -> BatchLine:
    state, done, note = batch.status or batch.state, None, batch.note
    if batch.state == "ended":
        done = batch.answered
    elif batch.state == "open":
        try:
            dialect, server = _find_server(batch, http, headers)
            if cancel and (named or batch.account == hash_account(server.endpoint)):
                await dialect.cancel(server, batch.remote)
                note = "its end was requested"
            elif cancel:
                note = (
                    "not cancelled: another key made it, or the file is not yours; if you know"
                    " this batch: --cancel --id ID"
                )
            remote = await dialect.find(server, batch.remote)
            state, done = remote.status, remote.done
        except (InputError, RequestRefused, LostReply, NotSent) as error:
            note = f"cannot be asked about: {error}"
    elif cancel or batch.state == "submitting":
        note = "it is unclear whether it exists; the command that made it finds out"
    age = describe_age((batch.ended or time.time()) - batch.planned)
    return BatchLine(batch.model, batch.remote, state, batch.lines, done, age, note)


def _find_server(
    batch: StoredBatch, http: HttpSession, headers: Headers
) -> tuple[BatchDialect, BatchServer]:
    """Return the dialect and the server of a batch.

    Raises:
        InputError: its provider has no batches any more, a variable is not set, or the batch was
            made at another address.
    """
    dialect = find_dialect(batch.model)
    if dialect is None:
        raise InputError(f"{batch.model}: has no batches")
    added = read_header_values(batch.model, headers.get(batch.model, {}))
    endpoint = msgspec.structs.replace(resolve_endpoint(batch.model), headers=added)
    if batch.base_url != endpoint.base_url:
        raise InputError(
            f"{batch.model}: it was made at {one_line(batch.base_url)}, and is not asked about"
            f" at {endpoint.base_url}"
        )
    return dialect, BatchServer(endpoint, http)


async def fill_ledger(
    batching: Batching, work: Sequence[ModelWork], identities: Mapping[str, str]
) -> None:
    """Make the calls of some work in rounds: responses; grades and modes; probes; re-asks.

    Args:
        batching: makes the rounds.
        work: the tasks, by target.
        identities: of every target and judge, by name.

    Raises:
        BatchesWaiting, Stopped, InputError: see `Batching.make`.
    """
    for item in work:
        await _prove(batching, item)
    await batching.client.ledger.catch_up()
    await _fill(
        batching, identities, lambda: (task for item in work for task in item.planned), Asking.run
    )


async def _prove(batching: Batching, work: ModelWork) -> None:
    """Have one response of a target written and graded by plain calls: a wrong name or key, of a
    judge too, and a field that a model does not take show before the first batch.

    Raises:
        Stopped: a judge does not answer.
    """
    client, plan = batching.client, work.plan
    judges = {*plan.panel}
    if batching.are_proven({work.model, *judges}):
        return
    for task in work.tasks:
        told = client.note_reply_form
        asking = Asking(batching.ask_plainly, task, plan, work.templates, told=told)
        graded = None
        # a stopped model is named below, if it is a judge
        with contextlib.suppress(ModelStopped):
            graded = await asking.run()
            batching.note_proven(work.model)
        if stopped := sorted(judges & client.stopped_models.keys()):
            raise Stopped("; ".join(client.stopped_models[judge] for judge in stopped))
        if graded is None or not any(map(client.only_broke_form, judges)):
            break
    if graded is not None and was_judged(graded):
        batching.note_proven(*plan.judges)


async def fill_regrades(batching: Batching, manifest: Manifest, dataset: Dataset) -> None:
    """Make the calls for asking the judges of a run again, whose other calls are in the ledger.

    Raises:
        BatchesWaiting, Stopped, InputError: see `Batching.make`.
    """
    if not manifest.plan.asks_again:
        return
    ledger = batching.client.ledger
    graded = derive(manifest, dataset, ledger)
    judged = {response.key for response in graded if was_judged(response)}
    planned_of = plan_regrades(manifest, dataset, ledger, judged)
    lacking = [(regrading.ask, planned) for regrading, planned in planned_of if planned]
    for ask, planned in lacking:
        await _fill(batching, manifest.identities(), lambda: planned, ask)  # noqa: B023


async def _fill(
    batching: Batching,
    identities: Mapping[str, str],
    planned: Callable[[], Iterable[Planned]],
    ask: Callable[[Asking], Coroutine[Any, Any, Any]],
) -> None:
    """Make rounds of the calls that the ledger lacks and that can be made, until there is none."""
    ledger, any_made = batching.client.ledger, True
    while any_made:
        prompts = replay_each(ledger, identities, planned(), ask)
        any_made = await batching.make(call for prompt in prompts for call in prompt.lacking)


QUIET_SECONDS = 0.5
"""A round is whole if no call was added for so long."""
_SEQUENTIAL = ("backfill",)
"""Purposes of calls of which each depends on the one before it: they go as plain calls."""


class _Waiting(NamedTuple):
    call: Call
    outcome: asyncio.Future[Outcome | None]


class Gathering(Batching):
    """Makes the rounds of a plan that waits for each outcome: gathers the calls of the client while
    `gather` is in force.
    """

    read_again = False
    at_once = 1_000_000
    """Items of a stage in progress at the same time: all of them, so that a round is whole."""

    def __init__(
        self,
        client: Client,
        models: Mapping[str, BatchModel],
        store: BatchStore,
        display: Display,
        seconds: float | None = None,
    ) -> None:
        super().__init__(client, models, store, display, seconds)
        self._waiting: dict[bytes, _Waiting] = {}
        self._error: BaseException | None = None
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def gather(self) -> AsyncIterator[None]:
        """Make the client's calls in rounds while the body runs.

        Raises:
            BatchesWaiting, Stopped, InputError: see `Batching.make`.
        """
        try:
            await self.begin()
            self.client.take_over = self._outcome
            rounds = asyncio.ensure_future(self._make_rounds())
            try:
                yield
            finally:
                self.client.take_over = None
                rounds.cancel()
                with contextlib.suppress(BaseException):
                    await rounds
        except BaseException:  # whatever ends the build, batches may go on
            self.note_left()
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
                await self._wait_until_quiet()
                self._news.clear()
                calls = [waiting.call for waiting in self._waiting.values()]
                await self.make(calls)
                self._hand_out()
        # a cancellation too: every waiting call has to end
        except BaseException as error:
            self._error = error
            for waiting in self._waiting.values():
                if not waiting.outcome.done():
                    waiting.outcome.set_exception(error)
            self._waiting.clear()
            raise

    async def _wait_until_quiet(self) -> None:
        """Wait until no call was added for some time, and no plain call is in flight."""
        count = -1
        while count != len(self._waiting) or self.client.busy:
            count = len(self._waiting)
            await asyncio.sleep(QUIET_SECONDS)

    def _hand_out(self) -> None:
        """Give each waiting call its outcome, if there is one; the others are tried again."""
        for key, (_, outcome) in list(self._waiting.items()):
            found = self.client.ledger.find(key)
            if found is not None:
                outcome.set_result(found)
            elif key in self.client.final_failures:
                outcome.set_result(explain_unrecorded(self.client.ledger, key))
            else:
                self._news.set()
                continue
            del self._waiting[key]

    async def make_plainly(self, calls: Sequence[Call]) -> None:
        """Have some of the waiting calls made as plain calls, and wait for them."""
        keys = [self.client.compute_key(call) for call in calls]
        for key in keys:
            self._waiting.pop(key).outcome.set_result(None)
        await self.client.wait_until_made(keys)
