"""Writing the ledger when it cannot be written."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from calls.support import answered, open_client, rows, run_python, until, user_call
from loopback import Fault, LoopbackServer, Match
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError

_ROOM_AGAIN = """
import resource, sys, time
from pathlib import Path
from calls.support import answered
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

path = Path(sys.argv[1])
ledger = Ledger(path)
limit(100_000)
failures = []
ledger.call_on_failure(failures.append)
number = 0
while not failures:
    ledger.add(answered(str(number) * 1000, number=number))
    number += 1
    time.sleep(0.001)
for step in (ledger.check, ledger.close):
    try:
        step()
    except InputError as error:
        print(error)
    limit(resource.RLIM_INFINITY)
print(number)
"""


@pytest.mark.slow
def test_who_adds_without_a_pause_is_held_back_to_the_speed_of_writing(path: Path) -> None:
    with Ledger(path) as ledger:
        for number in range(12_000):
            ledger.add(answered(str(number) * 100, number=number))
        # 1,000 may wait, and as many again stand in the batch that is being written
        assert len(rows(path)) > 6_000


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_what_did_not_fit_is_kept_where_there_is_room_in_the_end(path: Path) -> None:
    out, _ = run_python(_ROOM_AGAIN, path).communicate(timeout=30)
    first, last, number = out.splitlines()
    assert first.startswith(f"{path}: cannot write the ledger: ")
    assert last == f"{first}; no further call was made; every answer that came is kept"
    assert len(rows(path)) == int(number)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted")
def test_every_wait_ends_when_the_ledger_cannot_be_written(path: Path) -> None:
    later = Fault(action="status", status=503, retry_after=600, match=Match(contains="Later."))
    slow = Fault(action="delay", seconds=0.3, match=Match(contains="Slow."))

    async def run(base_url: str) -> None:
        with Ledger(path) as ledger:
            async with open_client(ledger, base_url, max_connections=2) as client:
                await client.ask(user_call("First."))
                asking = asyncio.gather(
                    *(client.ask(user_call(text)) for text in ("Later.", "Slow.")),
                    return_exceptions=True,
                )
                await until(lambda: client.tally.calls == 3)
                path.unlink()  # noqa: ASYNC240
                await asyncio.wait_for(asking, 30)
                with pytest.raises(InputError):
                    await client.ask(user_call("Another."))

    with LoopbackServer(faults=[later, slow]) as server:
        with pytest.raises(InputError, match=r"deleted .*; answers that came and are lost: 2$"):
            asyncio.run(run(server.base_url))
        assert server.stats()["total"] == 3
