"""How many requests an endpoint gets at once: a fixed number, or as many as pay."""

from __future__ import annotations

import asyncio
import time
from collections import deque

__all__ = ["Limiter"]

_START = 16
_CEILING = 1024
_GROWTH = 1.5
_PAYS = 1.05  # a higher limit has to bring at least this ratio of throughput to be kept


class Limiter:
    """Slots of one endpoint, given in the order of asking.

    With `fixed` the number of slots is exactly that. Without, it starts low, rises while throughput rises with it, and
    halves when the endpoint says that it is too much (429); a `Retry-After` closes the endpoint for that long.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self.limit = fixed or _START
        self.in_use = 0
        self._adaptive = fixed is None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._window_start = time.monotonic()
        self._window_done = 0
        self._window_full = False
        self._best_rate = 0.0
        self._last_cut = 0.0

    async def __aenter__(self) -> None:
        while (pause := self._closed_until - time.monotonic()) > 0:  # noqa: ASYNC110 - a time, not an event
            await asyncio.sleep(pause)
        if self.in_use < self.limit and not self._waiting:
            self.in_use += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():  # the slot was handed over just as the waiter was cancelled
                self._free()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        self.in_use -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.in_use < self.limit:
            slot = self._waiting.popleft()
            if not slot.done():
                self.in_use += 1
                slot.set_result(None)

    def succeeded(self) -> None:
        """Note one answer; after each window of them, raise the limit if the last rise paid."""
        if not self._adaptive:
            return
        self._window_done += 1
        self._window_full = self._window_full or bool(self._waiting)
        if self._window_done < 2 * self.limit:
            return
        now = time.monotonic()
        rate = self._window_done / max(now - self._window_start, 1e-9)
        if self._window_full:  # slots were the bottleneck: the rate tells what this limit brings
            if rate > self._best_rate * _PAYS:
                self._best_rate = rate
                self.limit = min(int(self.limit * _GROWTH), _CEILING)
            elif self.limit > _START:
                self.limit = max(int(self.limit / _GROWTH), _START)
                self._best_rate = rate / _PAYS
        self._window_start, self._window_done, self._window_full = now, 0, False
        self._hand_out()

    def throttled(self, retry_after: float | None) -> None:
        """Note a 429: halve the limit (once for what was in flight), and keep to the `Retry-After`."""
        now = time.monotonic()
        if retry_after:
            self._closed_until = max(self._closed_until, now + retry_after)
        if self._adaptive and now - self._last_cut > 1.0:
            self.limit = max(self.limit // 2, 1)
            self._last_cut = now
            self._best_rate = 0.0
            self._window_start, self._window_done, self._window_full = now, 0, False
