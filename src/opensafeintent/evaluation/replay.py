"""The plan of calls, answered by the ledger alone, many prompts side by side.

The calls of all prompts are looked up together. Nothing here waits, so there is no event loop: a
prompt's coroutine stops when it needs an outcome, and goes on with it after the next look-up.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from opensafeintent.calls.client import Asked, not_on_record
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import MOST_TEXT, Room, TooLong
from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Outcome,
    Refused,
    call_key,
)
from opensafeintent.evaluation.pipeline import (
    Asking,
    Planned,
    Task,
)
from opensafeintent.responses import GradedResponse, Missing

T = TypeVar("T")

_AT_ONCE = 1000
"""Prompts: their calls are close together in the ledger."""

_ROOM = 2**26
"""Bytes of the texts of prompts that are looked up together; a prompt alone may have more."""

_NO_RUN = "no evaluation writes as much about one prompt; take the ledger from a backup"


class Replayed(NamedTuple, Generic[T]):
    """The ledger's result for one prompt."""

    task: Task
    result: T
    asked: list[Asked]
    """Every call for the prompt, as far as the ledger holds the calls before it."""

    @property
    def whole(self) -> bool:
        """Whether the ledger holds an outcome of every call that the prompt takes."""
        return not any(isinstance(call.outcome, Failed) for call in self.asked)


def replay(
    ledger: Ledger, identities: Mapping[str, str], planned: Iterable[Planned]
) -> Iterator[Replayed[GradedResponse]]:
    """Yield the ledger's result for each prompt, by the ordinary plan of calls (`replayed`)."""
    return replayed(ledger, identities, planned, Asking.run)


def replayed(
    ledger: Ledger,
    identities: Mapping[str, str],
    planned: Iterable[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
) -> Iterator[Replayed[T]]:
    """Yield the ledger's result for each prompt, in their order.

    Args:
        ledger: holds the outcomes.
        identities: of every target and judge, by name.
        planned: the prompts; those with calls from about the same time should come together.
        ask: the calls about each of them.

    Raises:
        InputError: the ledger is damaged.
    """
    upcoming, size = iter(planned), _AT_ONCE
    some: list[Planned] = []
    while some := [*some, *islice(upcoming, max(size - len(some), 0))]:
        room = Room(ledger.path, _NO_RUN, _ROOM if size > 1 else MOST_TEXT)
        try:
            results = _together(ledger, identities, some[:size], ask, room)
        except TooLong:
            if size == 1:
                raise
            size = min(size, len(some)) // 2 or 1
            continue
        yield from results
        some = some[size:]
        if 4 * room.taken < _ROOM:
            size = min(2 * size, _AT_ONCE)


def _together(
    ledger: Ledger,
    identities: Mapping[str, str],
    some: Sequence[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
    room: Room,
) -> list[Replayed[T]]:
    """Return the ledger's result for some prompts, which are looked up together.

    Raises:
        TooLong: there is no room for their texts.
    """
    for item in some:
        if item.task.given is not None:
            room.take(item.task.given.text)
    prompts = [_Prompt(ledger, identities) for _ in some]
    steps = [
        ask(Asking(prompt.ask, *item, together=_one_by_one))
        for prompt, item in zip(prompts, some, strict=True)
    ]
    results = _driven(ledger, steps, room)
    return [
        Replayed(item.task, results[index], prompt.asked)
        for index, (item, prompt) in enumerate(zip(some, prompts, strict=True))
    ]


@types.coroutine
def _look_up(
    key: bytes,
) -> Generator[bytes, Answered | Refused | None, Answered | Refused | None]:
    """Hand a call's key to the coroutine's driver, which sends back the outcome."""
    return (yield key)


class _Prompt:
    """Replaces the client while one prompt goes through the plan, and notes the calls."""

    def __init__(self, ledger: Ledger, identities: Mapping[str, str]) -> None:
        self._ledger, self._identities = ledger, identities
        self.asked: list[Asked] = []

    async def ask(self, call: Call) -> Outcome:
        """Look a call up."""
        key = call_key(call, self._identities[call.model])
        outcome = await _look_up(key) or not_on_record(self._ledger, key)
        self.asked.append(Asked(call, key, outcome))
        return outcome


def _driven(
    ledger: Ledger, steps: Sequence[Coroutine[bytes, Answered | Refused | None, T]], room: Room
) -> dict[int, T]:
    """Drive some prompts to their end, a look-up for all of them after each step; return the
    results by index.

    Raises:
        TooLong: there is no room for their texts.
    """
    results: dict[int, T] = {}
    outcomes: dict[int, Answered | Refused | None] = dict.fromkeys(range(len(steps)))
    try:
        while outcomes:
            keys: dict[int, bytes] = {}
            for index, outcome in outcomes.items():
                try:
                    keys[index] = steps[index].send(outcome)
                except StopIteration as ended:
                    results[index] = ended.value
            located = ledger.find_all(set(keys.values()), room)
            outcomes = {
                index: located[key].outcome if key in located else None
                for index, key in keys.items()
            }
    finally:
        for step in steps:
            step.close()
    return results


async def _one_by_one(
    *questions: Coroutine[Any, Any, int | str | Missing],
) -> list[int | str | Missing]:
    try:
        return [await question for question in questions]
    finally:
        for question in questions:
            question.close()
