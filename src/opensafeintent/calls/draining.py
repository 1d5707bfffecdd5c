"""After Ctrl-C or SIGTERM no new call begins, and calls in flight are waited for.

Nothing is written here: `calls.ledger_writer` keeps the outcomes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, Protocol

from opensafeintent.errors import Interrupted, Stopped


@contextlib.contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], Any], *names: str) -> Iterator[None]:
    """Have signals handled while the body runs, on the main thread; elsewhere Python has none.

    One that is ignored (`nohup`, a job in the background), or that the program handles in a way of
    its own, is left alone.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in names:
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) in (
                signal.SIG_DFL,
                signal.default_int_handler,
            ):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Work(Protocol):
    """An object that makes calls, and can be stopped from beginning more."""

    @property
    def busy(self) -> bool:
        """Whether something is in flight."""

    def halt(self, reason: Stopped) -> None:
        """Begin nothing more; calls in flight finish and are recorded."""


class Drain:
    """Whether this process was asked to end, and the work that hears of it."""

    def __init__(self) -> None:
        self.asked = False
        self._work: list[Work] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything to wait for.

        May be asked from any thread, and from a signal's handler.
        """
        return any(work.busy for work in tuple(self._work))

    def begin(self) -> None:
        """Halt all work; on the thread of its loop."""
        self.asked = True
        for work in tuple(self._work):
            work.halt(Interrupted())

    @contextlib.contextmanager
    def halt_on_signal(self, work: Work) -> Iterator[None]:
        """Have some work halted when this process is asked to end while the body runs, or was
        before.
        """
        if self.asked:
            work.halt(Interrupted())
        self._work.append(work)
        try:
            yield
        finally:
            self._work.remove(work)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Make this the drain that `current_drain` returns in the body."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Drain | None] = ContextVar("drain", default=None)


def current_drain() -> Drain:
    """Return the drain of the running command; outside of one, a drain that is never asked for."""
    return _CURRENT.get() or Drain()


def raise_if_interrupted(_: object = None) -> None:
    """Do nothing, unless this process was asked to end: for waits without a loop.

    Raises:
        Interrupted: it was.
    """
    if current_drain().asked:
        raise Interrupted
