"""The client: makes each call once, from the ledger or from the model, and many at a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec

from opensafeintent.calls.costs import Budget, Tally
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_writer import LedgerEntry
from opensafeintent.calls.left_out import really_left_out
from opensafeintent.calls.limiter import Limiter, Trial
from opensafeintent.calls.outcomes import NotAnAnswer, classify_response, no_answer
from opensafeintent.calls.provider_errors import read_error
from opensafeintent.calls.providers import is_in_process
from opensafeintent.calls.records import (
    Answered,
    Attempt,
    Call,
    Failed,
    Failure,
    Outcome,
    Refused,
    Replied,
    call_key,
)
from opensafeintent.errors import InputError, OpenSafeIntentError, Stopped
from opensafeintent.quoting import cut_request

_ATTEMPTS = 6
_REPLIES = 2
"""So many replies without an answer end a call: asking once more would bring another."""
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_CALL_SECONDS = 1800.0
_FAILURES_IN_A_ROW = 20
"""So many calls that failed one after the other, with no answer between them, stop a model."""
_FORMLESS_QUESTIONS = 30
"""So many questions without a reply of the form asked for, if there was none before, stop a model:
one that keeps to it half of the time has such a series once in a thousand million.
"""


class Model(Protocol):
    """A model that answers calls."""

    identity: str
    """The model's name in a call's key."""
    limiter: Limiter

    @property
    def request_notes(self) -> Sequence[str]:
        """Notes on its requests for a reader of the results."""

    @property
    def left_out(self) -> Collection[str]:
        """Fields of a request that it turned out not to take."""

    async def attempt(self, call: Call) -> Attempt:
        """Try once."""


class ModelStopped(Exception):
    """A model that will not answer any more: wrong key, unknown name, dead endpoint."""

    def __init__(self, model: str, line: str) -> None:
        super().__init__(line)
        self.model = model


class Client:
    """Sends calls to models, except calls that the ledger can answer.

    Args:
        ledger: holds and records outcomes.
        models: by name. With an identity in place of a model, only the ledger answers for it.
        budget: limits on calls, tokens and dollars.
    """

    def __init__(
        self, ledger: Ledger, models: Mapping[str, Model | str], budget: Budget | None = None
    ) -> None:
        self.ledger = ledger
        self.tally = Tally()
        self.stopped_models: dict[str, str] = {}
        self.last_errors: dict[str, str] = {}
        """By model, why the last call that failed for good did."""
        self._models = models
        self._budget = budget or Budget()
        self._halt: OpenSafeIntentError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._flights: dict[bytes, asyncio.Future[Outcome]] = {}
        self._requested: set[bytes] = set()
        self._answered: set[str] = set()
        self._failures_in_a_row: dict[str, int] = dict.fromkeys(models, 0)
        self._formless: Counter[str] = Counter()
        """By model, its questions without a reply of the form asked for, while it has given no
        other reply.
        """
        self._keep_form: set[str] = set()
        """Models that have kept to the form of a reply."""
        self._unreadable: dict[str, str] = {}
        """By model, why no further call to it is to begin."""
        self.final_failures: set[bytes] = set()
        """Keys of calls whose failure is final: this client does not make them again."""
        self.take_over: Callable[[Call, bytes], Awaitable[Outcome | None]] | None = None
        """Makes a call in another way, such as in a batch, and returns its outcome; returns None
        for a call that it does not take.
        """
        self.left_out_by_others: dict[str, set[str]] = {}
        """By model, the fields of a request that the model rejected in other processes."""
        self._replied_at: dict[str, float] = {}
        """When a model last replied, by `time.monotonic`."""
        self._trials = {name: Trial() for name in models if not is_in_process(name)}

    def halt(self, reason: OpenSafeIntentError) -> None:
        """Begin no further call; those in flight finish and are recorded."""
        self._halt = self._halt or reason
        for model in self._models.values():
            if not isinstance(model, str):
                model.limiter.open()
        for trial in self._trials.values():
            trial.open()
        self._wake()

    def _stop(self, model: str, line: str) -> None:
        """Make no further call to a model."""
        self.stopped_models.setdefault(model, f"{model}: stopped: {line}")
        if (trial := self._trials.get(model)) is not None:
            trial.open()
        self._wake()

    def _listen(self) -> None:
        """Have a ledger that cannot be written end every wait."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop = loop

            def tell(failure: InputError) -> None:
                # the loop may be closed: then nothing waits there any more
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self.halt, failure)

            self.ledger.call_on_failure(tell)

    @property
    def busy(self) -> bool:
        """Whether calls are in flight."""
        return self.tally.in_flight > 0

    def raise_if_halted(self) -> None:
        """Raise the error that halted the client, if there is one."""
        if self._halt is not None:
            raise self._halt

    def _wake(self) -> None:
        """Let those that wait to try again look whether there is still something to try."""
        self._news.set()
        self._news = asyncio.Event()

    async def _pause(self, model: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (
            (remaining := until - time.monotonic()) > 0
            and self._halt is None
            and model not in self.stopped_models
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), remaining)

    @property
    def request_notes(self) -> list[str]:
        """Notes on the models' requests for a reader of the results."""
        models = [model for model in self._models.values() if not isinstance(model, str)]
        limited = dict.fromkeys(model.limiter.notice for model in models if model.limiter.notice)
        return [
            *limited,
            *(notice for model in models for notice in model.request_notes),
            *(
                f"{name}: does not take {field}; it was asked without"
                for name, fields in self.left_out.items()
                for field in really_left_out(fields)
            ),
        ]

    @property
    def left_out(self) -> dict[str, set[str]]:
        """By model, the fields of a request that it turned out not to take; without those that take
        everything.
        """
        left_out = {
            name: {*model.left_out, *self.left_out_by_others.get(name, ())}
            for name, model in self._models.items()
            if not isinstance(model, str)
        }
        return {name: fields for name, fields in left_out.items() if fields}

    def stop_silent_models(self) -> None:
        """Count as stopped every model that was asked and never once replied."""
        for model, error in self.last_errors.items():
            if model not in self._answered:
                self.stopped_models.setdefault(model, f"{model}: no call was answered: {error}")

    async def wait_until_made(self, keys: Iterable[bytes]) -> None:
        """Wait until none of some calls is being made."""
        if flights := [self._flights[key] for key in keys if key in self._flights]:
            await asyncio.wait(flights)

    def compute_key(self, call: Call) -> bytes:
        """Return the key under which the ledger keeps a call's outcome."""
        model = self._models[call.model]
        return call_key(call, model if isinstance(model, str) else model.identity)

    def note_reuse(self, call: Call, outcome: Answered | Refused) -> None:
        """Note an outcome that the ledger held."""
        self._answered.add(call.model)
        self.tally.reused_calls += 1
        self.tally.refusals += isinstance(outcome, Refused)

    async def ask(self, call: Call) -> Outcome:
        """Return a call's outcome: from the ledger, from an equal call in flight, or by making it.

        Its error, which others show, quotes nothing of the request; in the ledger it is whole.

        Raises:
            ModelStopped: the model does not answer any more.
            Stopped: a budget is used up, or the run was halted.
            InputError: the ledger cannot be written.
        """
        model = self._models[call.model]
        key = self.compute_key(call)
        if (recorded := self.ledger.find(key)) is not None:
            if call.counted:
                self.note_reuse(call, recorded)
                self.tally.duplicates += key in self._requested
            return _hide_request_in(call, recorded)
        if isinstance(model, str) or key in self.final_failures:
            return _hide_request_in(call, explain_unrecorded(self.ledger, key))
        self._listen()
        while (flight := self._flights.get(key)) is not None:
            try:
                return await asyncio.shield(flight)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not flight.cancelled() or (task is not None and task.cancelling()):
                    # it is we who are cancelled; else the other was, and the call is ours to make
                    raise
        self._requested.add(key)
        flight = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            outcome = _hide_request_in(call, await self._make(call, key, model))
        # a cancellation too: who waits for this call has to know
        except BaseException as error:
            flight.set_exception(error) if isinstance(error, Exception) else flight.cancel()
            if not flight.cancelled():
                flight.exception()  # mark as seen: there may be nobody else waiting for it
            raise
        else:
            flight.set_result(outcome)
            return outcome
        finally:
            del self._flights[key]

    async def _make(self, call: Call, key: bytes, model: Model) -> Outcome:
        """Try until it is answered, hopeless, or out of attempts or time; waiting holds no
        connection.
        """
        if self.take_over is not None:
            outcome = await self.take_over(call, key)
            if outcome is not None:
                return outcome
        seconds = self._budget.retry_seconds or _CALL_SECONDS
        most = self._budget.max_retries
        attempts = _ATTEMPTS if most is None else most + 1
        give_up = 0.0
        tries = replies = 0
        number = 0
        while True:
            number += 1
            result = await self._attempt(call, key, model, retry=number > 1)
            if isinstance(result, Replied):
                self._failures_in_a_row[call.model] = 0
                self._replied_at[call.model] = time.monotonic()
                return result.outcome
            tries += not (result.throttled or result.retry_after is not None)
            replies += result.replied
            # waiting for the first slot is no part of it
            give_up = give_up or time.monotonic() + seconds
            pause = _pause_before_next(result, tries, attempts) if replies < _REPLIES else None
            if pause is not None and (trial := self._trials.get(call.model)) is not None:
                pause = max(pause, trial.closed_for)
            if pause is None or time.monotonic() + pause > give_up:
                silent = self._replied_at.get(call.model, 0.0) < give_up - seconds
                throttled = result.throttled and silent and pause is not None
                self.note_failure(call, result, throttled_for=seconds if throttled else None)
                return Failed(kind=result.kind, error=result.error)
            await self._pause(call.model, pause)

    async def _attempt(self, call: Call, key: bytes, model: Model, *, retry: bool) -> Attempt:
        """Make an attempt as soon as there is a slot, and record it."""
        trial = self._trials.get(call.model)
        await self._take_slots(call, model.limiter, trial)
        try:
            self.check(call.model)
            self.tally.began(call, retry=retry)
            try:
                result = await model.attempt(call)
            except asyncio.CancelledError:
                self.tally.abandoned += 1
                raise
            finally:
                self.tally.in_flight -= 1
            for refused in result.refused:
                self.tally.retries += 1
                self.ledger.add(LedgerEntry(key, call, refused))
            result = self.record(call, key, result)
            if isinstance(result, Replied):
                model.limiter.note_answer()
            elif result.throttled or result.slow:
                model.limiter.note_throttling(result.retry_after)
            if trial is not None:
                self._learn(call, key, result, trial)
            return result
        finally:
            model.limiter.release()
            if trial is not None:
                trial.release()

    async def _take_slots(self, call: Call, limiter: Limiter, trial: Trial | None) -> None:
        """Wait for a slot of a call's endpoint and, before it, for one of its model."""
        # follow-up calls of a response come before new responses, so that prompts are finished
        # first
        urgent, again = call.purpose != "generate", call.attempt > 0
        if trial is None:
            await limiter.acquire(urgent=urgent, again=again)
            return
        while True:
            await trial.acquire(urgent=urgent, again=again)
            try:
                await limiter.acquire(urgent=urgent, again=again)
            except asyncio.CancelledError:
                trial.release()
                raise
            if not trial.crowded:
                return
            limiter.release()
            trial.release()

    def _learn(self, call: Call, key: bytes, result: Attempt, trial: Trial) -> None:
        """Note what an attempt tells about its model, and stop the model if it is hopeless."""
        if isinstance(result, Replied) or result.replied:
            trial.note_reply()
        elif result.kind == "rate_limited" and not result.no_capacity:
            if result.retry_after is None:
                trial.note_rate_limit()
        elif not (result.retry or self.ledger.has_replied_since(key, call.model)):
            codes = read_error(result.body).codes
            trial.note_rejection((result.kind, frozenset(codes)))
            if trial.hopeless:
                self._stop(call.model, hide_request(call, result.error))

    def record(self, call: Call, key: bytes, attempt: Attempt) -> Attempt:
        """Store an attempt at a call in the ledger, and count it; return it as it is in view of the
        call's purpose.
        """
        attempt = self._settle(call, attempt)
        entry = LedgerEntry(key, call, attempt)
        self.ledger.add(entry)
        if isinstance(attempt, Replied):
            self._answered.add(call.model)
            self.tally.note_outcome(call, attempt.outcome, attempt.tier)
        else:
            self.tally.note_tokens(call, entry.usage, attempt.tier)
        return attempt

    def _settle(self, call: Call, attempt: Attempt) -> Attempt:
        """Return the result of an attempt in view of the call's purpose; see `Ledger.settle` and
        `classify_response`.
        """
        if not isinstance(attempt, Replied):
            return attempt
        outcome = self.ledger.settle(call.model, call.purpose, attempt.outcome)
        try:
            if call.purpose == "generate":
                classify_response(outcome)
        except NotAnAnswer as wrong:
            failure = no_answer(wrong, attempt.body, attempt.seconds)
            return msgspec.structs.replace(failure, tier=attempt.tier, protocol=attempt.protocol)
        if outcome is attempt.outcome:
            return attempt
        return msgspec.structs.replace(attempt, outcome=outcome)

    def check(self, model: str) -> None:
        """See whether a call to a model may begin.

        Raises:
            ModelStopped: the model does not answer any more.
            Stopped: a budget is used up, or the run was halted.
            InputError: the ledger cannot be written.
        """
        if model in self._unreadable:
            self._stop(model, self._unreadable[model])
        if model in self.stopped_models:
            raise ModelStopped(model, self.stopped_models[model])
        self.ledger.check()
        if (reached := self._budget.find_reached_limit(self.tally)) is not None:
            self.halt(Stopped(reached))
        self.raise_if_halted()

    def only_broke_form(self, model: str) -> bool:
        """Tell whether no reply of a model has had the form asked for, and some should have."""
        return self._formless[model] > 0

    def note_reply_form(self, call: Call, unread: Callable[[], str] | None) -> None:
        """Note whether a question got a reply of the form asked for, re-asks included. A model that
        never gives one is stopped before the next call.

        Args:
            call: the question.
            unread: says, for people, what the last reply is and what to do; None if it has the
                form.
        """
        model = call.model
        if unread is None:
            self._keep_form.add(model)
            self._formless.pop(model, None)
        elif model not in self._keep_form:
            self._formless[model] += 1
            made = sum(n for (name, _), n in self.tally.new_calls.items() if name == model)
            if min(self._formless[model], made) >= _FORMLESS_QUESTIONS:
                self._unreadable[model] = (
                    f"none of its first {self._formless[model]:,} questions got a reply of the form"
                    f" asked for; {unread()}; the same command goes on"
                )

    def note_failure(
        self, call: Call, failure: Failure, *, throttled_for: float | None = None
    ) -> None:
        """Note a call that failed for good, and stop the model if there is no hope for others.

        Args:
            call: the call.
            failure: its last attempt.
            throttled_for: seconds of rate limits without a reply, if there was nothing else.
        """
        model, error = call.model, hide_request(call, failure.error)
        self.last_errors[model] = error
        if throttled_for is not None:
            line = f"rate limits for {throttled_for / 60:g} minutes (--retry-for): {error}"
            self._stop(model, line)
        if failure.replied:
            self._answered.add(model)
        else:
            self._failures_in_a_row[model] += 1
        if failure.fatal or self._failures_in_a_row[model] >= _FAILURES_IN_A_ROW:
            self._stop(model, error)


class Asked(NamedTuple):
    """A call that was looked up in the ledger, and its outcome."""

    call: Call
    key: bytes
    outcome: Outcome


def hide_request(call: Call, text: str) -> str:
    """Return an error of a call, or a reply, without what it quotes of the request."""
    return reduce(cut_request, (message.content for message in call.messages), text)


def _hide_request_in(call: Call, outcome: Outcome) -> Outcome:
    """Return the outcome of a call without what its error quotes of the request."""
    match outcome:
        case Answered():
            return outcome
        case Failed(error=error):
            return msgspec.structs.replace(outcome, error=hide_request(call, error))
        case Refused(reason=reason):
            return msgspec.structs.replace(outcome, reason=hide_request(call, reason))


def explain_unrecorded(ledger: Ledger, key: bytes) -> Failed:
    """Return the failure of a call without a recorded outcome: its last failure, or that it was not
    made.
    """
    kind, _, error = (
        ledger.last_failure(key) or "not_made: the call is not in the ledger"
    ).partition(": ")
    return Failed(kind=kind, error=error)


def _pause_before_next(failure: Failure, tries: int, attempts: int) -> float | None:
    """Return the wait before the next attempt, in seconds; None if no attempt follows.

    Waits double from half a second, with jitter, and are no shorter than the one that the provider
    states. A rate limit and a stated wait are waited out without limit, and are none of the
    `tries`, of which there are `attempts` at most.
    """
    waits = failure.throttled or failure.retry_after is not None
    if not failure.retry or (tries >= attempts and not waits):
        return None
    backoff = min(_FIRST_WAIT * 2.0 ** max(tries - 1, 0), _LONGEST_WAIT) * random.uniform(0.5, 1.5)
    return max(backoff, failure.retry_after or 0.0)


T = TypeVar("T")
U = TypeVar("U")

_AT_ONCE = 512
"""Prompts or items under way at the same time while connections adapt."""


async def side_by_side(*work: Awaitable[T]) -> list[T]:
    """Wait for all of some work, and return the results in order; or raise the first error, once
    all have ended.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)


def choose_concurrency(connections: int | None) -> int:
    """Return the number of prompts or items in progress at a time with so many connections; None if
    these adapt.
    """
    return 2 * connections if connections else _AT_ONCE


async def work_on_each(
    client: Client, items: Sequence[T], work: Callable[[T], Awaitable[U]], *, at_once: int
) -> list[U]:
    """Work on many items, some of them at the same time; return the results in their order.

    If one raises an error, no further one is begun. A model that answers no more halts the client.

    Args:
        client: makes the calls.
        items: one argument of `work` each.
        work: the function for one item.
        at_once: items in progress at the same time.

    Raises:
        Stopped: a model does not answer any more, or a budget is used up.
        InputError: the ledger cannot be written.
    """
    results: list[Any] = [None] * len(items)
    queue = iter(enumerate(items))
    errors: list[BaseException] = []

    async def worker() -> None:
        for index, item in queue:
            if errors:
                return
            try:
                results[index] = await work(item)
                # if the ledger has all answers, nothing waits: let an interruption be noticed
                await asyncio.sleep(0)
            except ModelStopped as stopped:
                client.halt(Stopped(str(stopped)))
                errors.append(Stopped(str(stopped)))
            # on a cancellation too, the other tasks must stop
            except BaseException as error:
                errors.append(error)
                raise

    await asyncio.gather(
        *(worker() for _ in range(min(at_once, len(items)))), return_exceptions=True
    )
    if errors:
        raise errors[0]
    return results
