"""Claims: a call that one process is making, no other makes; what becomes of them when a process ends or is late."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from calls.support import MODEL, open_client, rows, until, user_call, user_calls
from loopback import Fault, LoopbackServer, Match, answer_text
from opensafeintent.calls import client as module
from opensafeintent.calls.claims import Claimed, Sharing
from opensafeintent.calls.client import Budget, Client, ModelStopped
from opensafeintent.calls.ledger import Entry, Ledger
from opensafeintent.calls.records import Answered, Failed, Outcome, Replied, call_key
from opensafeintent.errors import Stopped

CALL = user_call("Write a note about boats.")
KEY = call_key(CALL, MODEL)


class Clock:
    """What a claim's age is told by."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.sqlite"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(latency=0.02, fickle=True) as server:
        yield server


def shared(path: Path, clock: Clock | None = None, **times: float) -> Ledger:
    """Open a ledger as one of several that write it; two of them in one process are two claimants."""
    return Ledger(path, sharing=Sharing(look=0.01, clock=clock or Clock(), **times))


def claims(path: Path, columns: str = "key") -> list[tuple[object, ...]]:
    with closing(connect(path, timeout=10)) as connection:
        return connection.execute(f"SELECT {columns} FROM claims ORDER BY key").fetchall()


def put_claim(path: Path, host: str, pid: int, begun: str, heartbeat: float, batch: str | None = None) -> None:
    """Leave a claim on the call as another process would."""
    with closing(connect(path, timeout=10)) as connection, connection:
        values = (KEY, "another", host, pid, begun, heartbeat, batch)
        connection.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def my_host(path: Path) -> str:
    """What a claim of this process names as its host."""

    async def look() -> str:
        with shared(path) as ledger:
            await ledger.claim(KEY)
            return str(claims(path, "host")[0][0])

    return asyncio.run(look())


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 30)

    asyncio.run(bounded())


def entry_of(text: str) -> Entry:
    body = b'{"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}]}' % text.encode()
    return Entry(KEY, CALL, Replied(Answered(text=text, stop_reason="stop"), body))


async def is_waiting(task: asyncio.Future[Outcome]) -> bool:
    """Give a call ten looks' time, and tell whether it still waits."""
    await asyncio.sleep(0.1)
    return not task.done()


# Waiting for another ---------------------------------------------------------------------------------------------------


def test_who_finds_a_call_claimed_waits_and_takes_its_outcome(path: Path, server: LoopbackServer) -> None:
    async def work() -> None:
        with shared(path) as theirs, shared(path) as ours:
            assert await theirs.claim(KEY) is Claimed.OURS
            async with open_client(ours, server.base_url, max_connections=1) as client:
                waiting = asyncio.ensure_future(client.ask(CALL))
                assert await is_waiting(waiting)
                # the one connection is free meanwhile
                assert isinstance(await client.ask(user_call("Another.")), Answered)
                entry = entry_of("Theirs.")
                outcome = entry.outcome
                assert outcome is not None
                theirs.add(entry)
                assert await theirs.kept(KEY, outcome) == outcome
                assert await waiting == outcome
                assert (client.tally.calls, client.tally.reused_calls) == (1, 1)
        assert server.stats()["total"] == 1
        assert claims(path) == []

    run(work)


def test_a_failed_call_is_left_to_who_waits_for_it(path: Path, server: LoopbackServer) -> None:
    server.set_faults(Fault(action="status", status=400, code="context_length_exceeded", seconds=0.1, match=Match(first=1)))

    async def work() -> None:
        with shared(path) as one, shared(path) as other:
            async with open_client(one, server.base_url) as first, open_client(other, server.base_url) as second:
                outcomes = await asyncio.gather(first.ask(CALL), second.ask(CALL))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Answered", "Failed"]
        assert claims(path) == []

    run(work)
    assert sorted(rows(path, "status")) == [("answered",), ("failed",)]


def test_processes_that_wait_for_each_other_come_to_an_end(path: Path, server: LoopbackServer) -> None:
    # Each goes through the same calls, one of them backwards: each holds claims that the other waits for.
    calls = user_calls(120)

    async def work() -> None:
        with shared(path) as one, shared(path) as other:
            async with (
                open_client(one, server.base_url, max_connections=3) as first,
                open_client(other, server.base_url, max_connections=3) as second,
            ):

                async def ask(client: Client, listed: list[object]) -> dict[object, Outcome]:
                    queue, found = iter(listed), {}

                    async def worker() -> None:
                        for call in queue:
                            found[call.messages] = await client.ask(call)  # type: ignore[attr-defined, arg-type]

                    await asyncio.gather(*(worker() for _ in range(20)))
                    return found

                forwards, backwards = await asyncio.gather(ask(first, [*calls]), ask(second, calls[::-1]))  # type: ignore[list-item]
                assert forwards == backwards
                assert min(first.tally.calls, second.tally.calls) > 20  # both did their part
        assert claims(path) == []

    run(work)
    assert server.stats()["total"] == len(calls) == len(rows(path))


def test_who_is_cancelled_while_waiting_keeps_no_claim(path: Path, server: LoopbackServer) -> None:
    async def work() -> None:
        with shared(path) as theirs, shared(path) as ours:
            await theirs.claim(KEY)
            async with open_client(ours, server.base_url) as client:
                waiting = asyncio.ensure_future(client.ask(CALL))
                assert await is_waiting(waiting)
                waiting.cancel()
                theirs.free(KEY)
                await until(lambda: not claims(path))
                assert isinstance(await client.ask(CALL), Answered)

    run(work)


@pytest.mark.parametrize("reason", ["halted", "budget", "model"])
def test_waiting_ends_when_nothing_more_is_to_be_asked(
    path: Path, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", 1)

    async def work() -> None:
        with shared(path) as theirs, shared(path) as ours:
            await theirs.claim(KEY)
            async with open_client(ours, server.base_url, budget=Budget(calls=1)) as client:
                waiting = asyncio.ensure_future(client.ask(CALL))
                assert await is_waiting(waiting)
                if reason == "halted":
                    client.halt(Stopped("enough"))
                elif reason == "budget":
                    await client.ask(user_call("The one call."))
                    with pytest.raises(Stopped):
                        await client.ask(user_call("One more."))
                else:
                    server.set_faults(Fault(action="status", status=401))
                    assert isinstance(await client.ask(user_call("With a wrong key.")), Failed)
                with pytest.raises(ModelStopped if reason == "model" else Stopped):
                    await waiting
            assert len(claims(path)) == 1

    run(work)


def test_news_reach_who_has_only_just_begun_to_wait(path: Path) -> None:
    async def work() -> None:
        with shared(path) as theirs, shared(path) as ours:
            await theirs.claim(KEY)
            waiting = asyncio.ensure_future(ours.claim(KEY))
            await asyncio.sleep(0)
            ours.wake()  # goes into the same batch
            assert await waiting is Claimed.WOKEN

    run(work)


# Claims of those who are gone ------------------------------------------------------------------------------------------


def test_a_claim_of_a_process_that_is_gone_is_taken_over_at_once(path: Path, server: LoopbackServer) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])  # a zombie until it is waited for
    host = my_host(path)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    clock = Clock()

    async def work() -> None:
        with shared(path, clock) as ledger:
            async with open_client(ledger, server.base_url) as client:
                await client.ask(user_call("So that the ledger is swept before the claims come."))
                for pid in (ended.pid, os.getpid()):  # of the second, the number has been given to another process: us
                    put_claim(path, host, pid, "1", clock.now)
                    assert isinstance(await client.ask(CALL), Answered)
                    with closing(connect(path)) as connection, connection:
                        connection.execute("DELETE FROM calls WHERE key = ?", (KEY,))
        assert claims(path) == []

    run(work)
    ended.wait()


def test_a_claim_of_another_host_is_taken_over_when_its_heartbeat_is_too_long_ago(path: Path, server: LoopbackServer) -> None:
    clock = Clock()

    async def work() -> None:
        with shared(path, clock) as ledger:
            async with open_client(ledger, server.base_url) as client:
                await client.ask(user_call("Another."))
                put_claim(path, "elsewhere", os.getpid(), "1", clock.now)
                waiting = asyncio.ensure_future(client.ask(CALL))
                clock.now += 89
                assert await is_waiting(waiting)
                clock.now += 2
                assert isinstance(await waiting, Answered)

    run(work)
    assert server.stats()["total"] == 2


def test_a_claim_with_a_batch_does_not_expire(path: Path, server: LoopbackServer) -> None:
    clock = Clock()

    async def work() -> None:
        with shared(path, clock) as ledger:
            async with open_client(ledger, server.base_url) as client:
                await client.ask(user_call("Another."))
                put_claim(path, "elsewhere", 1, "1", clock.now - 100_000, batch="batch-1")
                waiting = asyncio.ensure_future(client.ask(CALL))
                assert await is_waiting(waiting)
                client.halt(Stopped("enough"))
                with pytest.raises(Stopped):
                    await waiting
        with shared(path, clock):
            pass
        assert claims(path, "batch") == [("batch-1",)]

    run(work)


def test_what_the_dead_have_left_is_swept_away(path: Path) -> None:
    my_host(path)
    put_claim(path, "elsewhere", 1, "1", 0.0)

    async def work() -> None:
        with shared(path) as ledger:
            await ledger.claim(call_key(user_call("Another."), MODEL))
            assert claims(path, "pid") == [(os.getpid(),)]

    run(work)


def test_a_claim_is_renewed_while_its_call_is_made(path: Path) -> None:
    clock = Clock()

    async def work() -> None:
        with shared(path, clock, heartbeat=0.02) as ledger:
            await ledger.claim(KEY)
            clock.now += 30
            await until(lambda: claims(path, "heartbeat") == [(clock.now,)])

    run(work)
    assert claims(path) == []  # closing gives them up


# Late ------------------------------------------------------------------------------------------------------------------


def test_an_owner_who_comes_back_late_adopts_what_is_on_record(path: Path) -> None:
    clock = Clock()

    async def work(slow_url: str) -> None:
        with shared(path, clock) as late, shared(path, clock) as other:
            async with open_client(late, slow_url) as first, open_client(other, slow_url) as second:
                asked = asyncio.ensure_future(first.ask(CALL))
                await until(lambda: server.stats()["total"] > 0)
                clock.now += 91
                outcome = await second.ask(CALL)
                assert not asked.done()
                assert await asked == outcome
                assert isinstance(outcome, Answered)
                assert outcome.text != answer_text("m", [CALL.messages[0].content, "1"])  # the first one's answer
        with Ledger(path, readonly=True) as ledger:
            assert ledger.find(KEY) == outcome

    slow = Fault(action="delay", seconds=1.0, match=Match(first=1))
    with LoopbackServer(faults=[slow], fickle=True) as server:
        run(lambda: work(server.base_url))
        assert server.stats()["total"] == 2
    assert rows(path, "status") == [("answered",)]


def test_a_ledger_of_ones_own_knows_no_claims(path: Path, server: LoopbackServer) -> None:
    async def work() -> None:
        with Ledger(path) as ledger:
            async with open_client(ledger, server.base_url) as client:
                assert isinstance(await client.ask(CALL), Answered)

    run(work)
    with closing(connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'claims'").fetchone() == (0,)


def test_a_ledger_of_ones_own_that_another_writes_stops_the_run(path: Path, server: LoopbackServer) -> None:
    """Nothing locks the file itself: what is at work cannot go on with answers that are not on record."""

    async def work() -> None:
        with Ledger(path) as one, Ledger(path) as other:
            async with open_client(one, server.base_url) as first, open_client(other, server.base_url) as second:
                await asyncio.gather(first.ask(CALL), second.ask(CALL))
                await until(lambda: bool(rows(path)))

    with pytest.raises(
        module.InputError,
        match=r"shared\.sqlite: another process has written other answers",
    ):
        run(work)
