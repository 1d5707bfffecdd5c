"""Ledgers put together: every call once, its texts along, as often as one likes; and what tells lost requests."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from opensafeintent.calls.ledger import Entry, Ledger
from opensafeintent.calls.records import (
    Answered,
    Attempt,
    Call,
    Failure,
    Message,
    Refused,
    Replied,
    Sampling,
    Usage,
    call_key,
)
from opensafeintent.calls.shards import (
    AttemptFiles,
    ShardLedger,
    Spent,
    lost_calls,
    merge_ledger,
    settled,
    spent_in,
)
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError

RUBRIC = "A long rubric that several requests share, so that it is kept once and referred to. " * 3


def call(number: int, model: str = "p/m") -> Call:
    texts = (RUBRIC, f"question {number}", f"a long question of its own, number {number}, " * 4)
    return Call(model=model, messages=(Message("user", texts),), sampling=Sampling(), purpose="generate")


def body(text: str) -> bytes:
    return canonical_json({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


def answered(ledger: Ledger, number: int, text: str = "", model: str = "p/m") -> bytes:
    made = call(number, model)
    key = call_key(made, model)
    answer = Answered(text=text or f"answer {number}", stop_reason="stop", usage=Usage(10, 3))
    ledger.add(Entry(key, made, Replied(answer, body(answer.text))))
    return key


def failed(ledger: Ledger, number: int) -> None:
    made = call(number)
    ledger.add(Entry(call_key(made, "p/m"), made, Failure(kind="server", error="500")))


def texts(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT count(*) FROM texts").fetchone()[0]
    return found


def text_of(ledger: Ledger, key: bytes) -> str:
    found = ledger.find(key)
    assert isinstance(found, Answered)
    return found.text


def test_rows_come_with_their_texts_and_once(tmp_path: Path) -> None:
    one, two, both = tmp_path / "one.sqlite", tmp_path / "two.sqlite", tmp_path / "both.sqlite"
    with Ledger(one) as ledger:
        keys = [answered(ledger, number) for number in (1, 2, 3)]
    with Ledger(two) as ledger:  # texts have other ids here: 4's come first
        keys.append(answered(ledger, 4))
        answered(ledger, 2, "another answer")
        failed(ledger, 5)
        failed(ledger, 5)
    first, second = merge_ledger(both, one), merge_ledger(both, two)
    assert (first.rows, first.retries, first.twice) == (3, 0, 0)
    assert first.made == {("p/m", "generate"): 3}
    assert first.tokens == {("p/m", "input"): 30, ("p/m", "output"): 9}
    # 4 and the two attempts at 5, the second of which is a retry; 2 was there, so it was made twice
    assert (second.rows, second.retries, second.answers, second.twice) == (3, 1, 1, 1)
    with Ledger(both, readonly=True) as ledger:
        assert [text_of(ledger, key) for key in keys] == ["answer 1", "answer 2", "answer 3", "answer 4"]
        for row, number in zip((1, 2, 3, 4), (1, 2, 3, 4), strict=True):
            assert ledger.request(row)[0] == call(number).messages
        assert ledger.count("failed") == 2
    assert texts(both) == 1 + 5  # the rubric once


def test_merging_again_adds_nothing(tmp_path: Path) -> None:
    one, both = tmp_path / "one.sqlite", tmp_path / "both.sqlite"
    with Ledger(one) as ledger:
        answered(ledger, 1)
        failed(ledger, 2)
    merge_ledger(both, one)
    again = merge_ledger(both, one)
    assert (again.rows, again.twice) == (0, 0)
    with Ledger(both, readonly=True) as ledger:
        assert ledger.count() == 2


def test_merged_into_a_ledger_that_is_open(tmp_path: Path) -> None:
    shard, main = tmp_path / "shard.sqlite", tmp_path / "main.sqlite"
    with Ledger(shard) as ledger:
        known = answered(ledger, 2)
    with Ledger(main) as ledger:
        answered(ledger, 1)
        merge_ledger(main, shard)
        assert text_of(ledger, known) == "answer 2"
        third = answered(ledger, 3)
    with Ledger(main, readonly=True) as ledger:
        assert ledger.count() == 3
        assert text_of(ledger, third) == "answer 3"


def test_some_calls_alone_can_be_copied(tmp_path: Path) -> None:
    source, part = tmp_path / "source.sqlite", tmp_path / "part.sqlite"
    with Ledger(source) as ledger:
        keys = [answered(ledger, number) for number in range(4)]
        failed(ledger, 9)
        ledger_rows = merge_ledger(part, source, [])  # nothing, and it may be open
        assert ledger_rows.rows == 0
    wanted = [keys[1], keys[3], call_key(call(9), "p/m"), call_key(call(8), "p/m")]
    assert merge_ledger(part, source, wanted).rows == 2
    with Ledger(part, readonly=True) as ledger:
        assert [ledger.find(key) is not None for key in keys] == [False, True, False, True]


_KILLED = """
import os, sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from calls.test_shards import Ledger, answered
ledger = Ledger(Path(sys.argv[1]))
for number in range(50):
    answered(ledger, number)
while ledger.count() < 50:
    time.sleep(0.01)
os._exit(9)
"""


def test_log_of_a_killed_writer_is_read_on_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "killed.sqlite"
    tests = Path(__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", _KILLED, str(path), str(tests)], check=False).returncode == 9
    assert path.with_name("killed.sqlite-wal").exists()
    before = path.read_bytes()
    path.with_name("killed.sqlite-shm").write_bytes(b"\xff" * 32768)  # the index of the log, as that machine had it
    (tmp_path / "beside").mkdir()
    assert merge_ledger(tmp_path / "all.sqlite", settled(path, tmp_path / "beside")).rows == 50
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all" * 300, None], ids=["not a ledger", "texts are gone"])
def test_damaged_shard_is_refused_and_nothing_is_merged(tmp_path: Path, content: bytes | None) -> None:
    shard, main = tmp_path / "shard.sqlite", tmp_path / "main.sqlite"
    with Ledger(shard) as ledger:
        answered(ledger, 1)
    if content:
        shard.write_bytes(content)
    else:
        with closing(sqlite3.connect(shard)) as connection, connection:
            connection.execute("DELETE FROM texts")
    with pytest.raises(InputError, match=r"shard\.sqlite"):
        merge_ledger(main, shard)
    with Ledger(main, readonly=True, missing_ok=True) as ledger:
        assert ledger.count() == 0


# Shards ----------------------------------------------------------------------------------------------------------------


class Model:
    """Answers the even ones, and fails at the odd ones."""

    identity = "p/m"
    limiter = None
    notices = ()

    async def attempt(self, asked: Call) -> Attempt:
        if int(asked.messages[0].parts[1].split()[1]) % 2:
            return Failure(kind="server", error="500", retry=True)
        return Replied(Answered(text="even", stop_reason="stop"), body("even"))


def ask(ledger: ShardLedger, number: int, *, recorded: bool = True) -> None:
    attempt = asyncio.run(ledger.noted(Model()).attempt(call(number)))
    if recorded and isinstance(attempt, Replied) and not isinstance(attempt.outcome, Refused):
        answered(ledger, number, "even")
    elif recorded:
        failed(ledger, number)


def test_second_attempt_finds_what_the_first_recorded(tmp_path: Path) -> None:
    with Ledger(tmp_path / "known.sqlite") as known:
        before = answered(known, 0)
    first = AttemptFiles.begin(tmp_path, "00007")
    with ShardLedger(first) as ledger:
        key = answered(ledger, 2)
    second = AttemptFiles.begin(tmp_path, "00007")
    assert (first.number, second.number) == (1, 2)
    with ShardLedger(second, [tmp_path / "known.sqlite"]) as ledger:
        assert text_of(ledger, key) == "answer 2"
        assert text_of(ledger, before) == "answer 0"
        assert ledger.find(call_key(call(4), "p/m")) is None
        assert ledger.found_earlier == 1
    with Ledger(second.ledger, readonly=True) as ledger:
        assert ledger.count() == 0  # found, not copied


def test_lost_requests_are_those_begun_and_not_recorded(tmp_path: Path) -> None:
    with ShardLedger(AttemptFiles.begin(tmp_path, "00000")) as ledger:
        for number in (2, 4, 5, 5):
            ask(ledger, number)  # two answers, two failures
        for number in (6, 8, 10):
            ask(ledger, number, recorded=False)  # lost with the worker
    assert lost_calls(tmp_path, "00000") == (3, 0)
    assert spent_in(tmp_path, "00000") == Spent(calls=7, tokens=2 * 13, recorded=4)
    with ShardLedger(AttemptFiles.begin(tmp_path, "00000")) as ledger:
        ask(ledger, 6)
        ask(ledger, 8, recorded=False)  # lost once more
    with ShardLedger(AttemptFiles.begin(tmp_path, "00000")) as ledger:
        ask(ledger, 8)
    # 6 once and 8 twice were made again; 10 was not
    assert lost_calls(tmp_path, "00000") == (4, 3)
    assert spent_in(tmp_path, "00000") == Spent(calls=10, tokens=4 * 13, recorded=6)
    assert lost_calls(tmp_path, "00001") == (0, 0)


def test_note_that_was_cut_off_and_ledger_that_was_never_begun(tmp_path: Path) -> None:
    files = AttemptFiles.begin(tmp_path, "00000")
    files.begun.write_bytes(os.urandom(32) + os.urandom(7))
    assert lost_calls(tmp_path, "00000") == (1, 0)
    files.ledger.touch()
    assert lost_calls(tmp_path, "00000") == (1, 0)
    assert merge_ledger(tmp_path / "main.sqlite", files.ledger).rows == 0


def test_attempts_are_found_by_name_where_a_list_lacks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may list a folder as it was a minute ago."""
    for _ in range(2):
        with ShardLedger(AttemptFiles.begin(tmp_path, "00000")) as ledger:
            ask(ledger, 2)
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))
    assert spent_in(tmp_path, "00000") == Spent(calls=2, tokens=2 * 13, recorded=2)
    third = AttemptFiles.begin(tmp_path, "00000")
    assert third.number == 3
    with ShardLedger(third) as ledger:
        assert ledger.find(call_key(call(2), "p/m")) is not None


def test_attempt_that_cannot_begin_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "known.sqlite").write_bytes(b"no database at all" * 300)
    with pytest.raises(InputError, match="known"):
        ShardLedger(AttemptFiles.begin(tmp_path, "00000"), [tmp_path / "known.sqlite"])
    assert not list((tmp_path / "temporary").iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name == "ledger"]
