"""Ledgers that are merged: every call once, its texts along, as often as one likes; damage and
strangers are refused.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from calls.support import (
    answered,
    body_of,
    entry,
    execute,
    failed,
    imported,
    outcome_in,
    rows,
    run_python,
    statuses,
    user_call,
    written,
)
from calls.test_ledger import RUBRIC
from endtoend import Ran, osi
from opensafeintent.calls import ledger, ledger_merge, ledger_rows as ledger_file
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_merge import Merged, merge_ledgers, take_up
from opensafeintent.calls.ledger_rows import unpack_text
from opensafeintent.calls.ledger_writer import LedgerEntry
from opensafeintent.calls.records import Answered
from opensafeintent.errors import InputError
from opensafeintent.replacing import Taken
from opensafeintent.templates.template import Message


def graded(number: int, answer: str = "Yes.") -> LedgerEntry:
    """An answer to a question with a rubric, which is kept once by reference."""
    call = user_call(messages=(Message("user", (RUBRIC, f"Response {number}")),))
    return entry(Answered(text=answer, stop_reason="stop"), call, body_of(answer))


def test_rows_come_with_their_texts_and_once(tmp_path: Path) -> None:
    first = written(tmp_path / "one.sqlite", graded(1), graded(2), answered("a"))
    # Texts have other ids here: the long one of 4 comes first.
    other_entries = (answered("long " * 30), graded(2, "No."), failed("b"), failed("b"), graded(3))
    second = written(tmp_path / "other.sqlite", *other_entries)
    target = tmp_path / "both.sqlite"
    assert merge_ledgers([first, second], target) == {
        first: Merged(rows=3, added=3, duplicates=0),
        second: Merged(rows=5, added=4, duplicates=1),  # 2 has an answer already, which stands
    }
    for part in (first, second):  # again, it adds nothing
        assert merge_ledgers([target, part], target)[part].added == 0
    for item in (graded(1), graded(2), graded(3), answered("a")):
        assert outcome_in(target, item) == Answered(text="Yes.", stop_reason="stop")
    messages = {graded(number).call.messages for number in (1, 2, 3)}
    with Ledger(target, readonly=True) as merged:
        assert {merged.request(row)[0] for row in range(1, 8)} >= messages
    assert statuses(target).count("failed") == 2
    assert execute(target, "SELECT count(*) FROM texts") == [(2,)]
    columns = (
        "key, model, purpose, epoch, attempt, status, stop_reason, input_tokens, seconds, error,"
        " response, created"
    )
    assert set(rows(first, columns)) < set(rows(target, columns))


def test_a_text_that_many_requests_name_is_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path / "one.sqlite", *(graded(number) for number in range(5)))
    named = ", ".join(["1"] * 50)
    request = f'{{"messages":[["user",[{named},"and this"]]],"sampling":{{}}}}'
    execute(source, f"UPDATE calls SET request = '{request}'")
    unpacked: list[bytes] = []

    def noted(sha: bytes, body: bytes) -> str:
        unpacked.append(sha)
        return unpack_text(sha, body)

    for module in (ledger, ledger_file, ledger_merge):
        monkeypatch.setattr(module, "unpack_text", noted, raising=False)
    target = tmp_path / "both.sqlite"
    assert merge_ledgers([source], target)[source].added == 5
    assert len(unpacked) == 1
    with Ledger(target, readonly=True) as merged:
        assert [merged.request(row)[0][0].content for row in range(1, 6)] == [
            RUBRIC * 50 + "and this"
        ] * 5


def test_a_ledger_that_is_written_can_be_merged(path: Path) -> None:
    with Ledger(path) as busy:
        busy.add(answered("a"))
        while busy.count() == 0:
            pass
        assert merge_ledgers([path], path.with_name("new.sqlite"))[path].added == 1


def test_a_merge_that_is_killed_at_its_end_leaves_no_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, answered("a"))
    beside: list[str] = []
    rename = Path.rename

    def looking(growing: Path, target: Path) -> Path:
        renamed = rename(growing, target)
        beside.extend(item.name for item in path.parent.glob("*merging*"))
        return renamed

    monkeypatch.setattr(Path, "rename", looking)
    merge_ledgers([path], path.with_name("new.sqlite"))
    assert beside == []


_KILLED = """
import os, sys, time
import subprocess
import sys
import time
from pathlib import Path
from calls.support import answered
from opensafeintent.calls.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
for number in range(50):
    ledger.add(answered(f"q{number}"))
while ledger.count() < 50:
    time.sleep(0.01)
os._exit(9)
"""


def test_the_log_of_a_killed_shard_is_taken_up(tmp_path: Path) -> None:
    shard = tmp_path / "shards" / "00000"
    shard.mkdir(parents=True)
    path = shard / "ledger.sqlite"
    assert run_python(_KILLED, path).wait() == 9
    assert path.with_name("ledger.sqlite-wal").exists()
    # the index of the log, as another machine had it
    path.with_name("ledger.sqlite-shm").write_bytes(b"\xff" * 32768)
    with Ledger(tmp_path / "run.sqlite") as run:
        with Ledger(path), pytest.raises(Taken):  # its writer is still at work
            take_up(run, shard, lambda line: (_ for _ in ()).throw(Taken(line)))
        assert take_up(run, shard, lambda _: None).added == 50
    assert not shard.exists()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM texts",
        "UPDATE texts SET sha = zeroblob(32)",
        "UPDATE calls SET response = x'7a00' WHERE id = 2",
        "UPDATE calls SET created = x'07' WHERE id = 2",
        "foreign",
        "imported",
    ],
)
def test_damaged_and_foreign_files_are_refused_and_nothing_of_them_is_merged(
    tmp_path: Path, damage: str
) -> None:
    good = written(tmp_path / "good.sqlite", answered("a"))
    bad = written(tmp_path / "bad.sqlite", graded(1), graded(2))
    if damage == "foreign":
        bad.write_bytes(b"no database at all" * 300)
    elif damage == "imported":
        with Ledger(bad) as damaged:
            damaged.imports.add("d" * 64, [imported("One.")])
    else:
        execute(bad, damage)
    for out in (tmp_path / "new.sqlite", good):
        with pytest.raises(InputError, match=r"bad\.sqlite: "):
            merge_ledgers([good, bad], out)
    assert not (tmp_path / "new.sqlite").exists()
    assert len(rows(good)) == 1


def test_the_command_prints_what_each_ledger_brought(tmp_path: Path) -> None:
    first = written(tmp_path / "one.sqlite", answered("a"), answered("b"))
    second = written(tmp_path / "other.sqlite", answered("b", answer="No."), answered("c"))
    target = tmp_path / "both.sqlite"

    def merged_into(out: Path, *ledgers: Path) -> Ran:
        return osi("merge", *ledgers, "--out", out)

    ran = merged_into(target, first, second)
    brought = f"{second}: 1 of 2 attempts added, 1 duplicate answer left out"
    all_of_it = f"{first}: 2 of 2 attempts added, 0 duplicate answers left out"
    assert (ran.code, ran.out.splitlines()[:-1]) == (0, [all_of_it, brought])
    assert merged_into(first, first, second).out.splitlines()[:-1] == [
        brought
    ]  # one of them may grow
    assert sorted(rows(first, "key")) == sorted(rows(target, "key"))
    assert "is there already" in merged_into(target, first, second).err
    assert "none.sqlite" in merged_into(tmp_path / "new.sqlite", tmp_path / "none.sqlite").err
    with Ledger(first):
        assert "has been writing this ledger since" in merged_into(first, first, second).err


@pytest.mark.slow
def test_a_merge_that_is_killed_leaves_nothing_in_its_place(tmp_path: Path) -> None:
    parts = [
        written(tmp_path / f"{part}.sqlite", *(graded(10_000 * part + n) for n in range(4_000)))
        for part in range(2)
    ]
    out = tmp_path / "both.sqlite"
    command = [
        sys.executable,
        "-P",
        "-m",
        "opensafeintent",
        "merge",
        *parts,
        "--out",
        out,
    ]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    takes, whole = time.monotonic() - began, len(rows(out, "key"))
    assert whole == 8_000
    for number in range(3):
        out.unlink()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(takes * (0.4 + 0.2 * number))
        process.kill()
        process.wait()
        assert not out.exists() or len(rows(out, "key")) == whole
        out.unlink(missing_ok=True)
        subprocess.run(command, check=True, capture_output=True)  # a second try works
        assert len(rows(out, "key")) == whole
    assert [path.name for path in tmp_path.iterdir() if "merging" in path.name] == []
