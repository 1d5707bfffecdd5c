"""Go through the plan of calls with nobody to answer but the ledger, many prompts side by side.

What the prompts ask for is looked up together. Nothing here waits for anything, so there is no
event loop: a prompt's coroutine stops where it needs an outcome, and goes on with it after the next
look-up.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from opensafeintent.calls.client import Asked, not_on_record
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, call_key
from opensafeintent.evaluation.pipeline import Asking, Planned, Task
from opensafeintent.evaluation.records import GradedResponse, Missing

T = TypeVar("T")

_AT_ONCE = 1000
"""Prompts: their calls lie together in the ledger, and their responses fit into memory."""


class Replayed(NamedTuple, Generic[T]):
    """What the ledger makes of one prompt."""

    task: Task
    result: T
    asked: list[Asked]
    """Every call that the prompt takes, as far as the ledger holds what they depend on."""

    @property
    def whole(self) -> bool:
        """Whether the ledger holds an outcome of every call that the prompt takes."""
        return not any(isinstance(one.outcome, Failed) for one in self.asked)


def replay(
    ledger: Ledger, identities: Mapping[str, str], planned: Iterable[Planned]
) -> Iterator[Replayed[GradedResponse]]:
    """Yield what a ledger makes of prompts, as `replayed` does of whatever is asked about them."""
    return replayed(ledger, identities, planned, Asking.run)


def replayed(
    ledger: Ledger,
    identities: Mapping[str, str],
    planned: Iterable[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
) -> Iterator[Replayed[T]]:
    """Yield what a ledger makes of prompts, in their order.

    Args:
        ledger: where outcomes are.
        identities: of every target and judge, by name.
        planned: the prompts; those whose calls were made at about the same time should come
            together.
        ask: what is asked about each of them.

    Raises:
        InputError: the ledger is damaged.
    """
    rest = iter(planned)
    while some := list(islice(rest, _AT_ONCE)):
        prompts = [_Prompt(ledger, identities) for _ in some]
        steps = [
            ask(Asking(prompt, *item, together=_one_by_one))
            for prompt, item in zip(prompts, some, strict=True)
        ]
        results = _driven(ledger, steps)
        for index, (item, prompt) in enumerate(zip(some, prompts, strict=True)):
            yield Replayed(item.task, results[index], prompt.asked)


@types.coroutine
def _look_up(
    key: bytes,
) -> Generator[bytes, Answered | Refused | None, Answered | Refused | None]:
    """Hand a call's key to what drives the coroutine, which gives back the outcome."""
    return (yield key)


class _Prompt:
    """Stands in for the client while one prompt goes through the plan, and notes what is asked."""

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
    ledger: Ledger, steps: Sequence[Coroutine[bytes, Answered | Refused | None, T]]
) -> dict[int, T]:
    """Drive some prompts to their end, a look-up for all of them after each step; return the
    results by index.
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
            located = ledger.find_all(set(keys.values()))
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
