"""How a run is going: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TextIO

from opensafeintent.calls.client import Client, Tally
from opensafeintent.calls.draining import current_drain
from opensafeintent.errors import Stopped

_REFRESH_SECONDS = 0.25
_PLAIN_SECONDS = 10.0


class Display:
    """Shows how a run is going; this one shows nothing.

    What an interruption waits for is said on standard error all the same.
    """

    def update(self, done: int, expected: int, line: str) -> None:
        """Show the state of things; called a few times a second."""

    def stage(self, line: str) -> None:
        """Show what is being done where there is no rate to show: reading, estimating, drawing."""

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
        """Write a line for each thing that is begun (it stands before a colon), and how far it is
        when it is time for one.
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

        self._progress = Progress(
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def update(self, done: int, expected: int, line: str) -> None:
        """Redraw; after `close`, on a line below."""
        self._progress.start()
        self._progress.update(self._task, completed=done, total=expected or None, description=line)

    def stage(self, line: str) -> None:
        """Show a line beside the bar; after `close`, on a line below."""
        from rich.markup import escape

        self._progress.start()
        self._progress.update(self._task, completed=0, total=None, description=escape(line))

    def note(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._progress.stop()


def terminal_or_plain() -> Display:
    """Return the display that suits standard error."""
    return TerminalDisplay() if sys.stderr.isatty() else PlainDisplay(sys.stderr)


def progress_line(tally: Tally, expected: int | None, cost: float | None = None) -> str:
    """Return the figures of a run in one line: rate, tokens, refusals, retries, missing grades,
    time left.

    `expected` calls may be unknown: None.
    """
    seconds = max(time.monotonic() - tally.started, 1e-6)
    made, done = tally.made.total(), tally.done
    rate = made / seconds
    tokens = {
        kind: sum(n for (_, what), n in tally.tokens.items() if what == kind)
        for kind in ("input", "output")
    }
    parts = [
        f"{done:,} calls" if expected is None else f"{done:,} of {expected:,} calls",
        f"{rate:,.0f}/s",
        f"tokens {_short(tokens['input'])} in, {_short(tokens['output'])} out",
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
    elif expected is not None and made and done < expected:
        parts.append(f"{_duration((expected - done) / rate)} left")
    return " · ".join(parts)


def _short(number: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= 0.99995 * size:
            return f"{number / size:.1f} {unit}"
    return str(number)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.asynccontextmanager
async def shown(
    display: Display, client: Client, expected: Callable[[], int], cost: Callable[[], float | None]
) -> AsyncIterator[None]:
    """Keep a display up to date with the calls of a run while the body runs; see `refreshed`."""

    ended = False
    tally = client.tally

    def refresh() -> None:
        done = tally.made.total() + tally.reused_calls
        # re-asks come on top of what was expected; a response that needs no judge makes it less
        total = done if ended else max(expected(), done)
        display.update(tally.done, total, progress_line(tally, total, cost()))

    async with refreshed(display, refresh, client):
        yield
        ended = True


@contextlib.asynccontextmanager
async def refreshed(
    display: Display, refresh: Callable[[], None], client: Client
) -> AsyncIterator[None]:
    """Call `refresh` a few times a second while the body runs, and once more at its end; then close
    the display.

    Raises:
        Interrupted: the process was asked to end while the body ran. What was in flight is in the
            client's ledger.
    """

    async def tick() -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            refresh()

    ticking = asyncio.ensure_future(tick())
    try:
        with current_drain().covering(_Shown(client, display)):
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
        flight = (
            f"{count:,} in flight" if (count := self._client.tally.in_flight) else "calls in flight"
        )
        self._display.note(
            f"interrupted: no new call begins. Waiting for {flight}, to keep the answers; interrupt"
            " again to abandon them"
        )
