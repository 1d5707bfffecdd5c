"""How many requests an endpoint gets at once."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import deque
from collections.abc import Hashable

START = 16
"""Requests at once to an endpoint, at first."""
FEW = 4
"""Those to a server on the user's own machine: one that can serve a single request makes the others
wait until they time out.
"""
CEILING = 1024
_GROWTH = 1.5
_PAYS = 1.05  # a higher limit has to bring at least this ratio of throughput to be kept
_HOLD = 8  # windows before a rise is tried again
_HALVE_EVERY = 1.0  # seconds: a burst of 429s is one piece of news


_DOUBTED = 3
_HOPELESS = 5
_SILENCE = 60.0
"""Seconds without a reply; most limits pass within a minute."""
_FIRST_INTERVAL, _LONGEST_INTERVAL = 0.5, 300.0
"""Seconds."""

UNLIMITED = sys.maxsize
"""The fixed limit of a model that answers in this process, at once."""


class Limiter:
    """Slots of one endpoint, given in the order of asking, to urgent calls first.

    With `fixed` the number of slots is exactly that. Without, it starts low and rises as long as
    throughput rises with it; a rise that did not pay is taken back, and tried again after a while.
    It halves when the endpoint says that it is too much (429), or is too slow; a `Retry-After`
    closes the endpoint for that long.
    """

    def __init__(self, fixed: int | None = None, start: int = START) -> None:
        self.limit = fixed or start
        self.in_use = 0
        self.notice = ""
        """Says that there are fewer slots than were asked for."""
        self._ceiling = CEILING
        self._adaptive = fixed is None
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._over = False
        self._last_cut = 0.0
        self._before: tuple[int, float] | None = None
        """Limit and throughput before the last rise."""
        self._hold = 0
        self._begin_window()

    async def acquire(self, *, urgent: bool = False, again: bool = False) -> None:
        """Wait for a slot; who is urgent comes before who is not, and who asks again before all of
        its kind.
        """
        if self._over or (
            self.in_use < self.limit
            and not self._waiting
            and not self._urgent
            and not self.closed_for
        ):
            self.in_use += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._urgent if urgent else self._waiting
        (waiting.appendleft if again else waiting.append)(slot)
        self._hand_out()
        try:
            await slot
        except asyncio.CancelledError:
            # the slot was handed over just as the waiter was cancelled
            if slot.done() and not slot.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self.in_use -= 1
        self._hand_out()

    def limit_slots(self, most: int) -> None:
        """Give no more slots than connections can be opened."""
        if not self._adaptive and self.limit > most:
            self.notice = (
                f"--max-connections: {most:,} to an endpoint at most: the limit of open files"
                " (ulimit -n) leaves no more"
            )
        self._ceiling = min(self._ceiling, most)
        self.limit = min(self.limit, most)

    def open(self) -> None:
        """End all waits: all are let through, to learn that there is nothing more to do."""
        self._over = True
        self._hand_out()

    def close(self, seconds: float) -> None:
        """Give no slot for so long."""
        self._closed_until = max(self._closed_until, time.monotonic() + seconds)
        asyncio.get_running_loop().call_later(seconds + 0.001, self._hand_out)

    @property
    def closed_for(self) -> float:
        """Seconds for which it gives no slot."""
        return max(self._closed_until - time.monotonic(), 0.0)

    def _hand_out(self) -> None:
        while (self._urgent or self._waiting) and (
            self._over or (self.in_use < self.limit and not self.closed_for)
        ):
            slot = (self._urgent or self._waiting).popleft()
            if not slot.done():
                self.in_use += 1
                slot.set_result(None)

    def _begin_window(self) -> None:
        self._done = 0
        self._was_full = True
        self._started = time.monotonic()

    def note_answer(self) -> None:
        """Note one answer; after each window of them, look whether the limit is right."""
        if not self._adaptive:
            return
        self._done += 1
        self._was_full = self._was_full and bool(self._urgent or self._waiting)
        # requests under the old limit have ended by now: measure from here
        if self._done == self.limit:
            self._started = time.monotonic()
        elif self._done >= 2 * self.limit:
            # slots were the bottleneck: the rate shows the effect of this limit
            if self._was_full:
                self._adapt(self.limit / max(time.monotonic() - self._started, 1e-9))
            self._begin_window()
            self._hand_out()

    def _adapt(self, rate: float) -> None:
        if self._hold:
            self._hold -= 1
            return
        if self._before is not None and rate <= self._before[1] * _PAYS:
            self.limit = self._before[0]
            self._before, self._hold = None, _HOLD
        elif self.limit < self._ceiling:
            self._before = (self.limit, rate)
            self.limit = min(max(int(self.limit * _GROWTH), self.limit + 1), self._ceiling)
        else:
            self._before = None

    def note_throttling(self, retry_after: float | None) -> None:
        """Note a 429 or a timeout: halve the limit (once for all requests in flight), and obey
        `Retry-After`.
        """
        now = time.monotonic()
        if retry_after:
            self.close(retry_after)
        if self._adaptive and now - self._last_cut > _HALVE_EVERY:
            self.limit = max(self.limit // 2, 1)
            self._last_cut = now
            self._before, self._hold = None, _HOLD
            self._begin_window()


class Trial(Limiter):
    """Slots of one model while nobody knows whether it answers at all: a few until its first reply.

    A cause that no retry helps (no credit, a disabled account, an unknown model) may come in words
    alone, which nothing here interprets. After `_DOUBTED` rejections of one cause in a row, calls
    go one at a time; after `_HOPELESS`, with no other call on its way, the model is hopeless. A
    reply ends all doubt. While nothing comes but rate limits that state no wait, one call asks at a
    time, at intervals that double.
    """

    def __init__(self) -> None:
        super().__init__(FEW)
        self._cause: Hashable = None
        self._rejections = 0
        self._wait = _FIRST_INTERVAL
        self._replied_at = -math.inf

    @property
    def crowded(self) -> bool:
        """Whether more calls hold a slot than may, since doubts came up while they waited for one
        of the endpoint.
        """
        return self.in_use > self.limit and not self._over

    @property
    def hopeless(self) -> bool:
        """Whether the call that holds a slot is the last of too many rejections."""
        return self._rejections >= _HOPELESS and self.in_use <= 1

    def note_reply(self) -> None:
        """Note a reply."""
        self._cause, self._rejections, self._wait = None, 0, _FIRST_INTERVAL
        self._replied_at = time.monotonic()
        self._closed_until = 0.0
        if self.limit != UNLIMITED:
            self.limit = UNLIMITED
            self._hand_out()

    def note_rejection(self, cause: Hashable) -> None:
        """Note a failure that no retry helps.

        Args:
            cause: equal for failures that may have one reason.
        """
        self._rejections = self._rejections + 1 if cause == self._cause else 1
        self._cause = cause
        if self._rejections >= _DOUBTED:
            self.limit = 1

    def note_rate_limit(self) -> None:
        """Note a rate limit that states no wait."""
        silent = time.monotonic() - self._replied_at > _SILENCE
        # those that were on their way when it closed are no further news
        if silent and not self.closed_for:
            self.limit = 1
            self.close(self._wait)
            self._wait = min(2 * self._wait, _LONGEST_INTERVAL)
