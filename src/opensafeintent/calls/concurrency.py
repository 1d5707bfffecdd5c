"""Many calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from opensafeintent.calls.client import Client, ModelStopped
from opensafeintent.errors import Stopped

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


def under_way(connections: int | None) -> int:
    """Return the number of prompts or items in progress at a time with so many connections; None if
    these adapt.
    """
    return 2 * connections if connections else _AT_ONCE


async def for_each(
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
