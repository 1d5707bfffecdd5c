"""How a run is going, in one line."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

import pytest

from calls.support import user_call
from opensafeintent.calls import progress as module
from opensafeintent.calls.client import Client, Tally
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import (
    Display,
    PlainDisplay,
    progress_line,
    shown,
    terminal_or_plain,
)
from opensafeintent.calls.records import Answered, Refused, Usage

ANSWER = Answered(text="x", stop_reason="stop", usage=Usage(1_000, 250))


class Clock:
    """The time, as the test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def tally_of(
    answered: int, *, in_flight: int = 0, reused: int = 0, retries: int = 0, refused: int = 0
) -> Tally:
    tally = Tally()
    call = user_call()
    for number in range(answered + in_flight):
        tally.began(call, retry=False)
        if number < answered:
            tally.ended()
            tally.finished(
                call, Refused(reason="f", usage=ANSWER.usage) if number < refused else ANSWER
            )
    for _ in range(reused):
        tally.reused(call, ANSWER)
    for _ in range(retries):
        tally.began(call, retry=True)
        tally.ended()
    return tally


def test_the_line_holds_the_figures_of_the_run(clock: Clock) -> None:
    tally = tally_of(60, in_flight=20, reused=30, retries=4, refused=3)
    tally.missing = 2
    clock.now += 10
    # 60 + 30 of 290 are done; 80 begun in 10 s are 8/s; 200 are left, which take 25 s; 60 answers
    # of 1,000 and 250 tokens.
    assert (
        progress_line(tally, 290, 12.5)
        == "90 of 290 calls · 8/s · tokens 60.0 k in, 15.0 k out · $12.50 · 3 refused · 4 retries ·"
        " 2 missing · 25 s left"
    )


def test_the_line_leaves_out_what_there_is_none_of(clock: Clock) -> None:
    assert progress_line(tally_of(0), 1_000) == "0 of 1,000 calls · 0/s · tokens 0 in, 0 out"
    done = tally_of(5)
    clock.now += 1
    assert progress_line(done, 5) == "5 of 5 calls · 5/s · tokens 5.0 k in, 1.2 k out"


@pytest.mark.parametrize(
    ("tokens", "shown_as"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.0 k"),
        (1_500_000, "1.5 M"),
        (2_340_000_000, "2.3 G"),
        (999_990, "1.0 M"),
    ],
)
def test_tokens_are_rounded_to_a_unit(tokens: int, shown_as: str) -> None:
    tally = Tally()
    tally.tokens["m", "input"] = tokens
    assert f"tokens {shown_as} in, 0 out" in progress_line(tally, 1)


@pytest.mark.parametrize(
    ("left", "shown_as"),
    [
        (59, "59 s left"),
        (60, "1 min 0 s left"),
        (3599, "59 min 59 s left"),
        (3660, "1 h 1 min left"),
    ],
)
def test_the_time_left_is_told_in_two_units(clock: Clock, left: int, shown_as: str) -> None:
    tally = tally_of(1)
    clock.now += 1  # one call a second
    assert progress_line(tally, 1 + left).endswith(f" · {shown_as}")


def test_the_plain_display_writes_a_line_every_ten_seconds_and_the_last(clock: Clock) -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for second in range(25):
        clock.now = 1000.0 + second
        display.update(second, 50, f"second {second}")
    display.close()
    assert stream.getvalue().splitlines() == [
        " 20 %  second 10",
        " 40 %  second 20",
        " 48 %  second 24",
    ]


def test_the_plain_display_does_not_make_up_for_lines_it_missed(clock: Clock) -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    clock.now += 60  # the machine slept
    for number in range(4):
        clock.now += 0.25
        display.update(number, 4, "awake")
    assert len(stream.getvalue().splitlines()) == 1


def test_the_plain_display_has_nothing_to_say_of_nothing() -> None:
    stream = io.StringIO()
    PlainDisplay(stream).close()
    assert stream.getvalue() == ""
    display = PlainDisplay(stream)
    display.update(0, 0, "waiting")  # nothing is expected: no share of it
    display.close()
    assert stream.getvalue() == "       waiting\n"


def test_without_a_terminal_the_display_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(terminal_or_plain(), PlainDisplay)


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
    tally = tally_of(3, in_flight=1)

    async def run() -> None:
        client = Client(Ledger(tmp_path / "none.sqlite", readonly=True, missing_ok=True), {})
        client.tally = tally
        async with shown(display, client, lambda: 8, lambda: 0.5):
            await asyncio.sleep(0.1)
            tally.ended()
            if fails:
                raise KeyError("stopped")

    if fails:
        with pytest.raises(KeyError):
            asyncio.run(run())
    else:
        asyncio.run(run())
    assert display.updates[0][:2] == (3, 8)
    assert display.updates[-1][:2] == (
        (4, 8) if fails else (4, 4)
    )  # what ended is all that there was
    assert "$0.50" in display.updates[-1][2]
    assert len(display.updates) >= 3
    assert display.closed == 1
