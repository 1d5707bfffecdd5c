"""How a run is going, in one line."""

from __future__ import annotations

import asyncio
import io
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from calls.support import user_call
from opensafeintent.calls import progress as module
from opensafeintent.calls.client import Client
from opensafeintent.calls.costs import Tally
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, TerminalDisplay, progress_line, show_progress
from opensafeintent.calls.records import Answered, Refused, Usage

ANSWER = Answered(text="x", stop_reason="stop", usage=Usage(1_000, 250))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, as the test sets it."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def tally_of(
    answered: int, *, in_flight: int = 0, reused: int = 0, retries: int = 0, refused: int = 0
) -> Tally:
    tally = Tally()
    call = user_call()
    refusal = Refused(reason="f", usage=ANSWER.usage)
    for number in range(answered + in_flight):
        tally.began(call, retry=False)
        if number < answered:
            tally.in_flight -= 1
            tally.note_outcome(call, refusal if number < refused else ANSWER)
    tally.reused_calls = reused
    for _ in range(retries):
        tally.began(call, retry=True)
        tally.in_flight -= 1
    return tally


def test_the_line_holds_the_figures_of_the_run(clock: SimpleNamespace) -> None:
    tally = tally_of(60, in_flight=20, reused=30, retries=4, refused=3)
    tally.missing = 2
    clock.now += 10
    # 60 of 260 are done, without the 30 of the ledger; 80 begun in 10 s are 8/s; 60 ended in 10 s
    # are 6/s, at which the 200 that are left take 33 s; 60 answers of 1,000 and 250 tokens.
    assert progress_line(tally, 260, 12.5).split(" · ") == [
        *("60 of 260 calls", "8/s", "tokens 60,000 in, 15,000 out", "$12.50"),
        *("3 refused", "4 retries", "2 missing", "0:00:33 left"),
    ]


def test_no_time_left_is_stated_while_the_last_calls_hang(clock: SimpleNamespace) -> None:
    tally = tally_of(0, in_flight=100)
    assert progress_line(tally, 100).endswith("tokens 0 in, 0 out")
    clock.now += 10
    call = user_call()
    for _ in range(98):
        tally.in_flight -= 1
        tally.note_outcome(call, ANSWER)
    lines = []
    for seconds in (1, 9, 51, 540):
        clock.now += seconds
        lines.append(progress_line(tally, 100).rpartition(" · ")[2])
    # two calls at 9.8/s; then nothing for a minute, and for ten
    assert lines == [
        "0:00:00 left",
        "0:00:00 left",
        "no answer for 0:01:01",
        "no answer for 0:10:01",
    ]
    tally.in_flight -= 1
    tally.note_outcome(call, ANSWER)
    # 99 in 611 s: the last one as long as one of them
    assert progress_line(tally, 100).endswith("0:00:06 left")


def test_many_calls_left_are_more_than_a_silence(clock: SimpleNamespace) -> None:
    tally = tally_of(100, in_flight=10)
    clock.now += 60
    # 900 calls at 100 a minute
    assert progress_line(tally, 1000).endswith("0:09:00 left")


def test_the_plain_display_writes_a_line_every_ten_seconds_and_the_last(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    display = module.display_for(quiet=False)  # there is no terminal
    display.close()
    for second in (*range(25), 90, 90.25):  # the machine slept: missed lines are not made up for
        clock.now = 1000.0 + second
        display.update(int(second), 50 if second < 90 else 0, f"second {second}")
    display.close()
    assert stream.getvalue().splitlines() == [
        " 20 %  second 10",
        " 40 %  second 20",
        "       second 90",  # nothing is expected: no share of it
        "       second 90.25",
    ]


class Recorder(Display):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.updates: list[tuple[int, int, str]] = []
        self.closed = 0

    def update(self, done: int, expected: int, line: str) -> None:
        self.updates.append((done, expected, line))

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_display_is_kept_up_to_date_and_closed_however_it_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: bool
) -> None:
    monkeypatch.setattr(module, "_REFRESH_SECONDS", 0.01)
    display = Recorder()
    tally = tally_of(3, in_flight=1, reused=30)

    async def run() -> None:
        client = Client(Ledger(tmp_path / "none.sqlite", readonly=True, missing_ok=True), {})
        client.tally = tally
        async with show_progress(display, client, 8, lambda: 0.5):
            await asyncio.sleep(0.1)
            tally.in_flight -= 1
            if fails:
                raise KeyError("stopped")

    with pytest.raises(KeyError) if fails else nullcontext():
        asyncio.run(run())
    assert display.updates[0][:2] == (3, 8)
    # what ended is all that there was
    assert display.updates[-1][:2] == ((4, 8) if fails else (4, 4))
    assert "$0.50" in display.updates[-1][2]
    assert len(display.updates) >= 3
    assert display.closed == 1


def test_a_terminal_of_80_columns_keeps_the_percentage(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    display = TerminalDisplay()
    display.update(370, 1000, "370 of 1,000 calls, " + "12.3 calls/s, " * 6)
    display.close()
    assert "37%" in screen.getvalue()


def test_a_terminal_of_80_columns_shows_a_silence(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    tally = tally_of(8, in_flight=20, retries=4, refused=3)
    tally.missing = 1
    clock.now += 18
    display = TerminalDisplay()
    display.update(8, 1120, progress_line(tally, 1120, 12.5))
    clock.now += 600
    display.update(8, 10, progress_line(tally, 10, 12.5))
    display.close()
    assert "8 of 10 calls" in screen.getvalue()
    assert " · no answer for 0:10:18" in screen.getvalue()
    assert "1 missing" in screen.getvalue()
