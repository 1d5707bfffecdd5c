"""How many requests an endpoint gets at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from opensafeintent.calls import limiter as module
from opensafeintent.calls.limiter import Limiter

T = TypeVar("T")


@contextlib.asynccontextmanager
async def slot(limiter: Limiter) -> AsyncIterator[None]:
    await limiter.acquire()
    try:
        yield
    finally:
        limiter.release()


async def load(
    limiter: Limiter, seconds: float, *, latency: float, workers: int, at_once: int = 10_000
) -> int:
    """Keep an endpoint that works on `at_once` requests side by side busy; return the most that
    were under way.
    """
    server = asyncio.Semaphore(at_once)
    until = time.monotonic() + seconds
    draw = random.Random(1)
    most = 0

    async def worker() -> None:
        nonlocal most
        while time.monotonic() < until:
            async with slot(limiter):
                most = max(most, limiter.in_use)
                async with server:
                    await asyncio.sleep(latency * draw.uniform(0.9, 1.1))
                limiter.note_answer()

    await asyncio.gather(*(worker() for _ in range(workers)))
    return most


class _Clock(selectors.DefaultSelector):
    """A clock that jumps to the next timer where a loop would have waited for it: minutes of load
    in no time.
    """

    now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events and timeout:
            self.now += timeout
        return events


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """What runs a coroutine in virtual time."""
    clock = _Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        yield runner.run


# A fixed number
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", range(4))
def test_a_cancelled_wait_gives_its_slot_back(rounds: int) -> None:
    # After the holder leaves, the waiter is cancelled before, while and after the slot is handed to
    # it.
    async def run() -> None:
        limiter = Limiter(1)

        async def hold() -> None:
            async with slot(limiter):
                await asyncio.sleep(0)

        await limiter.acquire()
        waiter = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        limiter.release()
        for _ in range(rounds):
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert limiter.in_use == 0
        await asyncio.wait_for(hold(), timeout=1)

    asyncio.run(run())


# As many as pay
# ------------------------------------------------------------------------------


# Of every case: spells of load as (seconds, latency), so many workers, what the endpoint works on at
# once, and between which limits ours ends.
@pytest.mark.parametrize(
    ("spells", "workers", "at_once", "low", "high"),
    [
        # More at once always pays. A window of 2 x limit answers takes 2 s, so 20 s hold ten; four
        # are enough: 16 -> 24 -> 36 -> 54 -> 81.
        ([(20, 1)], 400, 10_000, 64, 1024),
        # At the ceiling (64) one step down and one more, to try, are fair: 64 / 1.5 / 1.5 = 28.
        ([(120, 1)], 200, 10_000, 28, 64),
        # 96 at once bring 96 answers a second, and more bring no more: between two steps down from
        # 96 (96 / 1.5 / 1.5 = 42) and three up (96 * 1.5 ** 3 = 324).
        ([(300, 1)], 1000, 96, 42, 324),
        # Nobody waits.
        ([(60, 1)], 10, 10_000, 16, 16),
        # For a minute answers take ten seconds: nothing but the limit holds throughput down then.
        ([(5, 1), (60, 10), (60, 1)], 300, 10_000, 64, 1024),
    ],
)
def test_the_limit_follows_what_pays(
    virtual: Any,
    monkeypatch: pytest.MonkeyPatch,
    spells: Any,
    workers: int,
    at_once: int,
    low: int,
    high: int,
) -> None:
    monkeypatch.setattr(module, "CEILING", 64 if high == 64 else 1024)
    limiter = Limiter()
    for seconds, latency in spells:
        virtual(load(limiter, seconds, latency=latency, workers=workers, at_once=at_once))
    assert low <= limiter.limit <= high


def test_a_rate_limit_halves_the_limit_once_for_what_was_in_flight(virtual: Any) -> None:
    async def run() -> list[int]:
        limiter = Limiter()
        limits = []
        for _ in range(5):
            for _ in range(10):  # the answers to ten requests that were under way together
                limiter.note_throttling(None)
            limits.append(limiter.limit)
            await asyncio.sleep(1.5)
        return limits

    assert virtual(run()) == [8, 4, 2, 1, 1]


def test_the_limit_recovers_after_rate_limits(virtual: Any) -> None:
    limiter = Limiter()
    for _ in range(4):
        limiter.note_throttling(None)
        virtual(asyncio.sleep(1.5))
    assert limiter.limit == 1
    virtual(load(limiter, 60, latency=1, workers=100))
    # A window takes 2 s, so there are thirty; rises by half, and by one at least, lead from 1 to 2,
    # 3, 4, 6, 9, 13, 19.
    assert limiter.limit >= 16


# Retry-After
# ------------------------------------------------------------------------------


def test_retry_after_closes_the_endpoint_for_those_who_wait_and_those_who_come(
    virtual: Any,
) -> None:
    entered = []

    async def run() -> None:
        limiter = Limiter(1)

        async def take() -> None:
            async with slot(limiter):
                entered.append(time.monotonic() - started)

        started = time.monotonic()
        async with slot(limiter):
            waiting = [asyncio.ensure_future(take()) for _ in range(3)]
            await asyncio.sleep(1)
            limiter.note_throttling(30.0)  # until the 31st second
            limiter.note_throttling(1.0)  # a shorter wait does not shorten a longer one
        await asyncio.gather(*waiting, take())

    virtual(run())
    assert entered == pytest.approx([31.0] * 4, abs=0.1)


def test_once_it_is_over_nobody_waits_whatever_the_endpoint_says() -> None:
    async def run() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        waiting = [
            asyncio.ensure_future(limiter.acquire(urgent=urgent)) for urgent in (True, False)
        ]
        await asyncio.sleep(0)
        limiter.note_throttling(60)
        limiter.open()
        limiter.note_throttling(60)  # of what was in flight by then
        await asyncio.wait_for(asyncio.gather(*waiting, limiter.acquire()), 5)

    asyncio.run(run())
