"""Show how a run is going, on a terminal or in a log."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

from opensafeintent.calls.costs import Tally
from opensafeintent.calls.draining import current_drain
from opensafeintent.errors import Stopped

if TYPE_CHECKING:
    from opensafeintent.calls.client import Client

_REFRESH_SECONDS = 0.25
_PLAIN_SECONDS = 10.0
_SILENCE = 10.0
"""Seconds without an answer after which the time left is doubtful."""


_BAR, _SHARE = 24, 4
"""Characters of a terminal before the figures: of the bar, and of the share that is done."""
_BETWEEN = " · "
_LEAST_FIRST = ("tokens ", "/s", " retries", " refused", "$", " missing")
"""Parts of figures, in the order in which they give way on a narrow terminal."""


class Display:
    """Shows how a run is going; this one shows nothing.

    After an interruption, the calls still in flight are named on standard error all the same.
    """

    def update(self, done: int, expected: int, line: str) -> None:
        """Show the state of things; called a few times a second."""

    def stage(self, line: str) -> None:
        """Show the current step if it has no rate: reading, estimating, drawing."""

    def note(self, line: str) -> None:
        """Show a line that stays."""

    def close(self) -> None:
        """End the display."""


class PlainDisplay(Display):
    """A line every ten seconds, for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = time.monotonic() + _PLAIN_SECONDS
        self._last = ""
        self._stage = ""

    def update(self, done: int, expected: int, line: str) -> None:
        """Write a line when it is time for one."""
        share = f"{100 * done / expected:.0f} %" if expected else ""
        self._last = f"{share:>5}  {line}"
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_SECONDS
            self.note(self._last)

    def stage(self, line: str) -> None:
        """Write a line when a step begins (its name comes before a colon), and its progress at
        intervals.
        """
        begun = line.partition(":")[0]
        if begun != self._stage or time.monotonic() >= self._next:
            self._stage, self._next = begun, time.monotonic() + _PLAIN_SECONDS
            self.note(line)

    def note(self, line: str) -> None:
        """Write a line."""
        print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Write the last state, once."""
        if self._last:
            self.note(self._last)
        self._last = ""


class TerminalDisplay(Display):
    """A bar and a line of figures, redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
        from rich.table import Column

        self._progress = Progress(
            BarColumn(bar_width=_BAR, table_column=Column(min_width=_BAR)),
            TaskProgressColumn(table_column=Column(min_width=_SHARE, no_wrap=True)),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def update(self, done: int, expected: int, line: str) -> None:
        """Redraw; after `close`, on a line below."""
        self._progress.start()
        room = self._progress.console.width - _BAR - _SHARE - 2
        self._progress.update(
            self._task, completed=done, total=expected or None, description=_fit_line(line, room)
        )

    def stage(self, line: str) -> None:
        """Show a line beside the bar; after `close`, on a line below."""
        self._progress.start()
        self._progress.update(self._task, completed=0, total=None, description=line)

    def note(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._progress.stop()


def display_for(*, quiet: bool) -> Display:
    """Return the display that suits standard error, or one that shows nothing."""
    if quiet:
        return Display()
    return TerminalDisplay() if sys.stderr.isatty() else PlainDisplay(sys.stderr)


def progress_line(tally: Tally, expected: int | None, cost: float | None = None) -> str:
    """Return the figures of a run in one line: rate, tokens, refusals, retries, missing grades,
    time left. What the ledger held is no part of it.

    `expected` calls may be unknown: None.
    """
    seconds = max(time.monotonic() - tally.started, 1e-6)
    done = tally.done
    rate = tally.new_calls.total() / seconds
    tokens = {
        kind: sum(n for (*_, what), n in tally.usage.items() if what == kind)
        for kind in ("input", "output")
    }
    parts = [
        f"{done:,} calls" if expected is None else f"{done:,} of {expected:,} calls",
        f"{rate:,.0f}/s",
        f"tokens {tokens['input']:,} in, {tokens['output']:,} out",
    ]
    if cost is not None:
        parts.append(f"${cost:,.2f}")
    for count, what in (
        (tally.refusals, "refused"),
        (tally.retries, "retries"),
        (tally.missing, "missing"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    if tally.abandoned:
        parts.append(f"interrupted, {tally.abandoned:,} abandoned")
    elif tally.draining:
        parts.append(f"interrupted, {tally.in_flight:,} still in flight")
    elif expected is not None and done < expected:
        parts += _time_left(tally, expected - done, seconds)
    return _BETWEEN.join(parts)


def _fit_line(line: str, room: int) -> str:
    """Return a line of figures without the least important ones, if it is longer than `room`: what
    is done comes first, and the time left, or the silence, last.
    """
    parts = line.split(_BETWEEN)
    for what in _LEAST_FIRST:
        if len(_BETWEEN.join(parts)) > room:
            parts = [part for part in parts if what not in part]
    return _BETWEEN.join(parts)


def _time_left(tally: Tally, calls: int, seconds: float) -> list[str]:
    """Return when some calls will be done, after so many seconds; or for how long no answer has
    come, if by the rate so far they would be done by now. Nothing as long as there is no rate.
    """
    silence = time.monotonic() - tally.answered_at
    ended = tally.done
    left = calls * seconds / ended if ended else 0.0
    if silence > max(left, _SILENCE):
        return [f"no answer for {timedelta(seconds=round(silence))}"]
    return [f"{timedelta(seconds=round(left))} left"] if ended else []


@contextlib.asynccontextmanager
async def show_progress(
    display: Display, client: Client, expected: int, cost: Callable[[], float | None]
) -> AsyncIterator[None]:
    """Keep a display up to date with the calls of a command while the body runs, of which so many
    are expected.
    """

    ended = False
    tally = client.tally

    def refresh() -> None:
        made = tally.new_calls.total()
        # re-asks add to the expected number; a response that needs no judge lowers it
        total = made if ended else max(expected, made)
        display.update(tally.done, total, progress_line(tally, total, cost()))

    async with refresh_display(display, refresh, client):
        yield
        ended = True


@contextlib.asynccontextmanager
async def refresh_display(
    display: Display, refresh: Callable[[], None], client: Client
) -> AsyncIterator[None]:
    """Call `refresh` a few times a second while the body runs, and once more at its end; then close
    the display.

    Raises:
        Interrupted: the process was asked to end while the body ran. The calls then in flight are
            in the client's ledger.
    """

    async def tick() -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            refresh()

    ticking = asyncio.ensure_future(tick())
    try:
        with current_drain().halt_on_signal(_Shown(client, display)):
            yield
            client.raise_if_halted()
    finally:
        ticking.cancel()
        refresh()
        display.close()


class _Shown:
    """A client whose draining is shown."""

    def __init__(self, client: Client, display: Display) -> None:
        self._client = client
        self._display = PlainDisplay(sys.stderr) if type(display) is Display else display

    @property
    def busy(self) -> bool:
        return self._client.busy

    def halt(self, reason: Stopped) -> None:
        self._client.halt(reason)
        self._client.tally.draining = True
        flight = self._client.tally.in_flight
        self._display.note(
            "interrupted: no new call begins. Waiting for"
            f" {f'{flight:,}' if flight else 'calls'} in flight, to keep the answers; interrupt"
            " again to abandon them"
        )
