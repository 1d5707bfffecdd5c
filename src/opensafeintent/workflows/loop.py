"""Run a coroutine to its end, wherever the caller is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

__all__ = ["run_async"]

T = TypeVar("T")


def run_async(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own; in a thread where a loop runs already (a notebook)."""
    _raise_file_limit()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(make)
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(_run(make))
        except BaseException as error:  # handed to the caller's thread, whatever it is
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner, _rare_collections():
        return runner.run(make())


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely: each time, thousands of live tasks are walked, for half of all CPU (benchmarks/evaluate.py)."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _raise_file_limit() -> None:
    """A connection is an open file: a thousand of them need more than the usual limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
