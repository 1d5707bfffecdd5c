"""Go through the plan of calls with nobody to answer but the ledger, many prompts side by side.

What the prompts ask for is looked up together. Nothing here waits for anything, so there is no event loop: a prompt's
coroutine stops where it needs an outcome, and goes on with it after the next look-up.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from opensafeintent.calls.client import not_on_record
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Call, Outcome, Refused, call_key
from opensafeintent.evaluation.pipeline import Task, run_task
from opensafeintent.evaluation.records import GradedResponse, JudgePlan, Missing
from opensafeintent.templates import Templates

__all__ = ["Planned", "Replayed", "replay"]

_AT_ONCE = 1000
"""Prompts: their calls lie together in the ledger, and their responses fit into memory."""


class Planned(NamedTuple):
    """One prompt and how its response is graded."""

    task: Task
    plan: JudgePlan
    templates: Templates


class Replayed(NamedTuple):
    """What the ledger makes of one prompt."""

    task: Task
    graded: GradedResponse
    whole: bool
    """Whether the ledger holds an outcome of every call that the prompt takes."""
    found: list[tuple[Call, Answered | Refused]]
    """The calls that it holds one of."""


def replay(ledger: Ledger, identities: Mapping[str, str], planned: Iterable[Planned]) -> Iterator[Replayed]:
    """Yield what a ledger makes of prompts, in their order.

    Args:
        ledger: where outcomes are.
        identities: of every target and judge, by name.
        planned: the prompts; those whose calls were made at about the same time should come together.

    Raises:
        InputError: the ledger is damaged.
    """
    rest = iter(planned)
    while some := list(islice(rest, _AT_ONCE)):
        yield from _replayed(ledger, [_Replay(item, ledger, identities) for item in some])


class _Wanted:
    """Awaits the outcome of a call: what drives the coroutine is given the key, and gives back what it found."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __await__(self) -> Generator[bytes, Answered | Refused | None, Answered | Refused | None]:
        return (yield self._key)


class _Replay:
    """One prompt on its way through the plan."""

    def __init__(self, planned: Planned, ledger: Ledger, identities: Mapping[str, str]) -> None:
        self.task = planned.task
        self.found: list[tuple[Call, Answered | Refused]] = []
        self.lacking = False
        self._ledger, self._identities = ledger, identities
        self.steps: Coroutine[bytes, Answered | Refused | None, GradedResponse] = run_task(
            self, planned.task, planned.plan, planned.templates, together=_one_by_one
        )

    async def ask(self, call: Call) -> Outcome:
        """Look a call up."""
        key = call_key(call, self._identities[call.model])
        outcome = await _Wanted(key)
        if outcome is None:
            self.lacking = True
            return not_on_record(self._ledger, key)
        self.found.append((call, outcome))
        return outcome


def _replayed(ledger: Ledger, replays: list[_Replay]) -> Iterator[Replayed]:
    """Drive some prompts to their end, a look-up for all of them after each step."""
    graded: dict[int, GradedResponse] = {}
    outcomes: dict[bytes, Answered | Refused] = {}
    waiting: list[tuple[int, bytes | None]] = [(place, None) for place in range(len(replays))]
    try:
        while waiting:
            asked: list[tuple[int, bytes | None]] = []
            for place, key in waiting:
                try:
                    asked.append((place, replays[place].steps.send(None if key is None else outcomes.get(key))))
                except StopIteration as ended:
                    graded[place] = ended.value
            waiting = asked
            found = ledger.find_all({key for _, key in waiting if key is not None})
            outcomes = {key: located.outcome for key, located in found.items()}
    finally:
        for replay in replays:
            replay.steps.close()
    for place, replay in enumerate(replays):
        yield Replayed(replay.task, graded[place], not replay.lacking, replay.found)


async def _one_by_one(*questions: Coroutine[Any, Any, int | str | Missing]) -> list[int | str | Missing]:
    try:
        return [await question for question in questions]
    finally:
        for question in questions:
            question.close()
