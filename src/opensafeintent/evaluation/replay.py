"""Go through the plan of calls with nobody to answer but the ledger, many prompts side by side.

What the prompts ask for is looked up together. Nothing here waits for anything, so there is no
event loop: a prompt's coroutine stops where it needs an outcome, and goes on with it after the next
look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from opensafeintent.calls.client import Asked, not_on_record
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, call_key
from opensafeintent.evaluation.pipeline import (
    Planned,
    Task,
    Together,
    grade_again,
    grade_under,
    run_task,
)
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, JudgePlan, Missing
from opensafeintent.templates import Templates

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
    """Yield what a ledger makes of prompts, in their order.

    Args:
        ledger: where outcomes are.
        identities: of every target and judge, by name.
        planned: the prompts; those whose calls were made at about the same time should come
            together.

    Raises:
        InputError: the ledger is damaged.
    """
    return _replayed(_Reader(ledger, identities), planned, run_task)


def replay_again(
    ledger: Ledger, identities: Mapping[str, str], planned: Iterable[Planned]
) -> Iterator[Replayed[dict[str, JudgeGrades]]]:
    """Yield what a ledger makes of grading responses once more, as `replay` does of grading them
    first.
    """
    return _replayed(_Reader(ledger, identities), planned, grade_again)


def replay_under(
    ledger: Ledger,
    identities: Mapping[str, str],
    planned: Iterable[Planned],
    requests: Callable[[Task], Mapping[str, str]],
) -> Iterator[Replayed[dict[str, dict[str, JudgeGrades]]]]:
    """Yield what a ledger makes of grading responses under the requests that each task has in its
    own one's place.
    """

    async def run(
        prompt: _Prompt, task: Task, plan: JudgePlan, templates: Templates, *, together: Together
    ) -> dict[str, dict[str, JudgeGrades]]:
        return await grade_under(prompt, task, plan, templates, requests(task), together=together)

    return _replayed(_Reader(ledger, identities), planned, run)


class _Wanted:
    """Awaits the outcome of a call: what drives the coroutine is given the key, and gives back what
    it found.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __await__(self) -> Generator[bytes, Answered | Refused | None, Answered | Refused | None]:
        return (yield self._key)


class _Reader(NamedTuple):
    """Where outcomes are, and by which identities."""

    ledger: Ledger
    identities: Mapping[str, str]


class _Prompt:
    """Stands in for the client while one prompt goes through the plan, and notes what is asked."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self.asked: list[Asked] = []

    async def ask(self, call: Call) -> Outcome:
        """Look a call up."""
        key = call_key(call, self._reader.identities[call.model])
        outcome = await _Wanted(key) or not_on_record(self._reader.ledger, key)
        self.asked.append(Asked(call, key, outcome))
        return outcome


def _replayed(
    reader: _Reader, planned: Iterable[Planned], run: Callable[..., Coroutine[Any, Any, T]]
) -> Iterator[Replayed[T]]:
    rest = iter(planned)
    while some := list(islice(rest, _AT_ONCE)):
        prompts = [_Prompt(reader) for _ in some]
        steps = [
            run(prompt, *item, together=_one_by_one)
            for prompt, item in zip(prompts, some, strict=True)
        ]
        results = _driven(reader.ledger, steps)
        for index, (item, prompt) in enumerate(zip(some, prompts, strict=True)):
            yield Replayed(item.task, results[index], prompt.asked)


def _driven(
    ledger: Ledger, steps: Sequence[Coroutine[bytes, Answered | Refused | None, T]]
) -> dict[int, T]:
    """Drive some prompts to their end, a look-up for all of them after each step; return the
    results by index.
    """
    results: dict[int, T] = {}
    outcomes: dict[bytes, Answered | Refused] = {}
    waiting: list[tuple[int, bytes | None]] = [(index, None) for index in range(len(steps))]
    try:
        while waiting:
            asked: list[tuple[int, bytes | None]] = []
            for index, key in waiting:
                try:
                    asked.append(
                        (index, steps[index].send(None if key is None else outcomes.get(key)))
                    )
                except StopIteration as ended:
                    results[index] = ended.value
            waiting = asked
            found = ledger.find_all({key for _, key in waiting if key is not None})
            outcomes = {key: located.outcome for key, located in found.items()}
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
