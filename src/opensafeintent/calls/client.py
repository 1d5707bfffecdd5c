"""Make calls: once each, through the ledger, with retries, within budgets."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from itertools import count
from typing import Protocol

from opensafeintent.calls.attempts import Attempt, Failure, Replied
from opensafeintent.calls.ledger import Entry, Ledger
from opensafeintent.calls.limiter import Limiter
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, call_key
from opensafeintent.calls.tally import Budget, Tally
from opensafeintent.errors import Stopped

__all__ = ["Client", "Model", "ModelStopped"]

_ATTEMPTS = 6
_CALL_SECONDS = 1800.0
"""Deadline of one call, its retries and waits included."""
_FAILURES_IN_A_ROW = 20
"""So many calls that failed one after the other, with no answer between them, stop a model."""


class Model(Protocol):
    """What answers calls."""

    identity: str
    """What a call's key names the model by."""
    limiter: Limiter | None

    async def attempt(self, call: Call) -> Attempt:
        """Try once."""
        ...


class ModelStopped(Exception):
    """A model that will not answer any more: wrong key, unknown name, dead endpoint."""

    def __init__(self, model: str, line: str) -> None:
        super().__init__(line)
        self.model = model
        self.line = line


class Client:
    """Asks models, and never asks for what the ledger holds.

    Args:
        ledger: where outcomes are looked up and recorded.
        models: what answers, by name. With an identity in place of a model, only the ledger answers for it.
        budget: limits on calls and tokens.
    """

    def __init__(self, ledger: Ledger, models: Mapping[str, Model | str], budget: Budget | None = None) -> None:
        self.ledger = ledger
        self.tally = Tally()
        self.stopped_models: dict[str, str] = {}
        self._models = models
        self._budget = budget or Budget()
        self._halt: Stopped | None = None
        self._flights: dict[bytes, asyncio.Future[Outcome]] = {}
        self._failures_in_a_row: dict[str, int] = dict.fromkeys(models, 0)

    def halt(self, reason: Stopped) -> None:
        """Begin no further call; those in flight finish and are recorded."""
        self._halt = self._halt or reason

    async def ask(self, call: Call) -> Outcome:
        """Return a call's outcome: from the ledger, from an equal call in flight, or by making it.

        Raises:
            ModelStopped: the model does not answer any more.
            Stopped: a budget is used up, or the run was halted.
            InputError: the ledger cannot be written.
        """
        model = self._models[call.model]
        key = call_key(call, model if isinstance(model, str) else model.identity)
        if (known := self.ledger.find(key)) is not None:
            self.tally.reused(call, known)
            return known
        if isinstance(model, str):
            return Failed(kind="not_made", attempts=0, error="the call is not in the ledger")
        while (flight := self._flights.get(key)) is not None:
            try:
                return await asyncio.shield(flight)
            except asyncio.CancelledError:
                if not flight.cancelled() or _being_cancelled():
                    raise  # it is we who are cancelled; else the other was, and the call is ours to make
        flight = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            outcome = await self._make(call, key, model)
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
        """Try until it is answered, hopeless, or out of attempts or time; waiting holds no connection."""
        give_up = time.monotonic() + _CALL_SECONDS
        for number in count(1):
            if model.limiter is None:
                result = await self._attempt(call, key, model, number)
            else:
                async with model.limiter:
                    result = await self._attempt(call, key, model, number)
            if isinstance(result, Replied):
                self._failures_in_a_row[call.model] = 0
                return result.outcome
            pause = _pause(result, number)
            if pause is None or time.monotonic() + pause > give_up:
                self._note_failure(call.model, result.error, fatal=result.fatal)
                return Failed(kind=result.kind, attempts=number, error=result.error)
            await asyncio.sleep(pause)
        raise AssertionError("counting does not end")

    async def _attempt(self, call: Call, key: bytes, model: Model, number: int) -> Attempt:
        self._check(call.model)
        self.tally.began(call, retry=number > 1)
        try:
            result = await model.attempt(call)
        finally:
            self.tally.ended()
        self.ledger.add(*_entry(call, key, result))
        match result:
            case Replied(outcome=outcome):
                self.tally.finished(call, outcome)
                if model.limiter is not None:
                    model.limiter.succeeded()
            case Failure(throttled=True, retry_after=retry_after) if model.limiter is not None:
                model.limiter.throttled(retry_after)
            case _:
                pass
        return result

    def _check(self, model: str) -> None:
        if model in self.stopped_models:
            raise ModelStopped(model, self.stopped_models[model])
        if (reached := self._budget.reached(self.tally)) is not None:
            self.halt(Stopped(reached))
        if self._halt is not None:
            raise self._halt

    def _note_failure(self, model: str, error: str, *, fatal: bool) -> None:
        self._failures_in_a_row[model] += 1
        if fatal or self._failures_in_a_row[model] >= _FAILURES_IN_A_ROW:
            self.stopped_models.setdefault(model, f"{model}: stopped: {error}")


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _pause(failure: Failure, attempts: int) -> float | None:
    """Return how long to wait before the next attempt, in seconds; None when there is none.

    Waits double from half a second, with jitter, and are at least what `Retry-After` asks for. A rate limit is waited out
    however often it is met.
    """
    if not failure.retry or (attempts >= _ATTEMPTS and not failure.throttled):
        return None
    if failure.kind == "unsupported_field":  # the next request leaves the field out: nothing to wait for
        return 0.0
    backoff = min(0.5 * 2.0 ** (attempts - 1), 30.0) * random.uniform(0.5, 1.5)
    return max(backoff, failure.retry_after or 0.0)


def _entry(call: Call, key: bytes, result: Attempt) -> tuple[Entry, Answered | Refused | None]:
    match result:
        case Replied(outcome=Answered() as answer, body=body, seconds=seconds):
            entry = Entry(
                key=key,
                call=call,
                status="answered",
                body=body,
                stop_reason=answer.stop_reason,
                usage=answer.usage,
                served_model=answer.served_model,
                seconds=seconds,
            )
            return entry, answer
        case Replied(outcome=Refused() as refusal, body=body, seconds=seconds):
            entry = Entry(
                key=key,
                call=call,
                status="refused",
                body=body,
                stop_reason="content_filter",
                usage=refusal.usage,
                served_model=refusal.served_model,
                seconds=seconds,
                error=refusal.reason,
            )
            return entry, refusal
        case Failure(error=error, body=body, seconds=seconds, kind=kind):
            failed = Entry(key=key, call=call, status="failed", body=body, seconds=seconds, error=f"{kind}: {error}")
            return failed, None
    raise AssertionError(result)
