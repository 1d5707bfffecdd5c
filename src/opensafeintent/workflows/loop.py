"""Run a coroutine to its end, wherever the caller is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
    with ThreadPoolExecutor(max_workers=1) as executor:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

        async def work() -> T:
            task = asyncio.current_task()
            assert task is not None
            started.set_result((asyncio.get_running_loop(), task))
            return await make()

        result = executor.submit(_run, work)
        try:
            return result.result()
        except KeyboardInterrupt:  # the cell was interrupted: so is the work, before we leave
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
            raise


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
