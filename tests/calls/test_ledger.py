"""The ledger: what it keeps, what it finds again, and what happens to it when things go wrong."""

from __future__ import annotations

import os
import random
import re
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calls.support import rows, statuses, user_call
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import Entry
from opensafeintent.calls.recorded import ImportedRow, RecordedResponse
from opensafeintent.calls.records import (
    Answered,
    Failure,
    Refused,
    Replied,
    Sampling,
    Usage,
    call_key,
)
from opensafeintent.errors import InputError
from opensafeintent.files import Taken, sha256_hex
from opensafeintent.templates.template import Message

RUBRIC = "You grade how far a response satisfies the request. " * 20
HERE = Path(__file__).parent.parent  # for subprocesses: `from calls.support import ...`


def body_of(text: str) -> bytes:
    return b'{"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}]}' % text.encode()


def answered(text: str, *, number: int = 0, answer: str = "Yes.") -> Entry:
    call = user_call(text, epoch=number)
    return Entry(
        call_key(call, "m"),
        call,
        Replied(Answered(text=answer, stop_reason="stop"), body_of(answer)),
    )


def failed(text: str) -> Entry:
    call = user_call(text, epoch=0)
    return Entry(call_key(call, "m"), call, Failure(kind="server", error="500"))


def run_python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a script that imports what tests import."""
    paths = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the right to write anywhere: tests may run as root, to whom no folder is
    read-only.
    """
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are private to whoever runs the tests."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


# What is kept
# ------------------------------------------------------------------------------


def test_every_attempt_is_a_row_and_only_an_answer_satisfies_its_key(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    entry = answered("q")
    with Ledger(path) as ledger:
        ledger.add(failed("q"))
        ledger.add(failed("q"))
        assert ledger.find(entry.key) is None
    with Ledger(path) as ledger:
        assert ledger.find(entry.key) is None
        ledger.add(entry)
    with Ledger(path) as ledger:
        assert ledger.find(entry.key) == entry.outcome
    assert rows(path) == [("failed", "server: 500"), ("failed", "server: 500"), ("answered", "")]


def test_a_provider_refusal_satisfies_its_key(tmp_path: Path) -> None:
    call = user_call("q")
    refusal = Refused(reason="content_filter: violence", usage=Usage(5, 0), served_model="m-1")
    entry = Entry(call_key(call, "m"), call, Replied(refusal, b""))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.add(entry)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.find(entry.key) == refusal


def test_a_row_holds_all_there_is_to_know_about_the_attempt(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    call = user_call(
        "q", purpose="harm", epoch=2, attempt=1, template="osi-harm/1", template_hash="ab"
    )
    answer = Answered(text="3", stop_reason="length", usage=Usage(11, 1), served_model="m-2026")
    entry = Entry(call_key(call, "m"), call, Replied(answer, body_of("3"), seconds=1.25))
    with Ledger(path) as ledger:
        ledger.add(entry)
    columns = (
        "key, model, purpose, template, template_hash, epoch, attempt, stop_reason, input_tokens,"
        " output_tokens, served_model, seconds"
    )
    told = ("harm", "osi-harm/1", "ab", 2, 1, "length", 11, 1, "m-2026", 1.25)
    assert rows(path, columns) == [(entry.key, "openai-api/loopback/m", *told)]
    ((created,),) = rows(path, "created")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(created)).seconds < 60


def test_a_request_can_be_rebuilt_exactly(tmp_path: Path) -> None:
    messages = (
        Message("system", ("Be brief. " * 30,)),
        Message(
            "user",
            (RUBRIC, "", "x" * 79, "y" * 80, "12", "Grüße \U0001f600 \x00 \u2028" * 20, RUBRIC),
        ),
        Message("assistant", ("5",)),
    )
    call = user_call(
        messages=messages,
        sampling=Sampling(max_tokens=9, temperature=0.0, extra={"seed": 7, "stop": ["\n"]}),
    )
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.add(Entry(call_key(call, "m"), call, Failure(kind="server", error="500")))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        rebuilt, sampling = ledger.request(1)
    assert rebuilt == messages
    assert sampling == {"max_tokens": 9, "temperature": 0.0, "extra": {"seed": 7, "stop": ["\n"]}}


@pytest.mark.parametrize("answer", ["No.", "A long answer. " * 500])
def test_the_raw_response_is_kept_whether_or_not_it_is_compressed(
    tmp_path: Path, answer: str
) -> None:
    entry = answered("q", answer=answer)
    in_memory = Replied(Answered(text="what is in memory", stop_reason="stop"), body_of(answer))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.add(Entry(entry.key, entry.call, in_memory))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.find(entry.key) == Answered(text=answer.strip(), stop_reason="stop")


def test_a_text_is_stored_once_over_all_calls_and_openings(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    for start in (0, 50):
        with Ledger(path) as ledger:
            for number in range(start, start + 50):
                call = user_call(messages=(Message("user", (RUBRIC, f"Response {number}")),))
                ledger.add(Entry(call_key(call, "m"), call, Failure(kind="server", error="500")))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM texts").fetchone() == (1,)
    assert len(rows(path)) == 100
    # The rubric has 1,040 characters: stored with every row it alone would take 104 kB.
    assert path.stat().st_size < 70_000


def test_only_the_first_answer_to_a_key_counts_and_a_second_stops_the_run(tmp_path: Path) -> None:
    first = answered("q", answer="first")
    second = answered("q", answer="second")
    with (
        pytest.raises(
            InputError,
            match=r"ledger\.sqlite: another process has written into this ledger; run the command",
        ),
        Ledger(tmp_path / "ledger.sqlite") as ledger,
    ):
        ledger.add(first)
        ledger.add(second)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.find(first.key) == first.outcome


def test_the_files_are_private_to_their_user(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.add(answered("q"))
        deadline = time.monotonic() + 5
        while ledger.count() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(
        (".ledger.sqlite.lock", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"), 0o600
    )
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_awkward_file_names_are_file_names(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=ro#100% ü.sqlite"
    entry = answered("q")
    with Ledger(path) as ledger:
        ledger.add(entry)
    with Ledger(path, readonly=True) as ledger:
        assert ledger.find(entry.key) == entry.outcome


# Found at once, on disk soon
# ------------------------------------------------------------------------------


def test_an_answer_stays_found_while_its_failed_attempt_is_written(tmp_path: Path) -> None:
    # The failed attempt goes into one batch, the answer into the next: nothing may forget the
    # answer between the two.
    entry = answered("q")
    noise = random.Random(1)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.add(failed("q"))
        for number in range(60):
            call = user_call(f"{number}")
            ledger.add(
                Entry(
                    call_key(call, "m"),
                    call,
                    Failure(kind="server", error="500", body=noise.randbytes(50_000)),
                )
            )
        time.sleep(0.1)  # the batch was closed after 0.05 s and is being written: 3 MB take a while
        ledger.add(entry)
        until = time.monotonic() + 1.5
        lost = 0
        while rows(ledger.path)[-1:] != [("answered", "")] and time.monotonic() < until:
            lost += ledger.find(entry.key) is None
        assert lost == 0


def test_an_answer_is_found_at_once_and_is_on_disk_within_a_fraction_of_a_second(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger, Ledger(path, readonly=True) as other:
        entry = answered("q")
        ledger.add(entry)
        assert ledger.find(entry.key) == entry.outcome
        deadline = time.monotonic() + 1  # 0.05 s, and patience for a busy machine
        while other.count() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert other.count() == 1


_WRITE_UNTIL_KILLED = """
import itertools, os, sys, time
from pathlib import Path
from calls.test_ledger import answered
from opensafeintent.calls.ledger import Ledger

ledger = Ledger(Path(sys.argv[1]))
for number in itertools.count():
    ledger.add(answered("A prompt long enough to be kept by reference. " * 3 + str(number), number=number))
    os.write(1, b"%d %.6f\\n" % (number, time.monotonic()))
    time.sleep(0.001)
"""


def test_kill_9_loses_a_fifth_of_a_second_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with run_python(_WRITE_UNTIL_KILLED, path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(400)]
        process.kill()
        lines += process.stdout.readlines()
    added = {
        int(number): float(when)
        for number, when in (line.split() for line in lines if line.endswith("\n"))
    }
    last = max(added.values())
    with Ledger(path) as ledger:
        there = {number for (number,) in rows(path, "epoch")}
        assert ledger.request(1)[0][0].content.startswith("A prompt long enough")
    assert {number for number, when in added.items() if when < last - 0.2} <= there
    assert len(added) >= 400
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_a_killed_process_left_can_be_read_where_nothing_can_be_written(folder: Path) -> None:
    path = folder / "ledger.sqlite"
    with run_python(_WRITE_UNTIL_KILLED, path) as process:
        assert process.stdout is not None
        for _ in range(200):
            process.stdout.readline()
        process.kill()
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    with ordinary_user(), Ledger(path, readonly=True) as ledger:
        seen = ledger.count()
    assert seen == len(rows(path))
    assert seen > 0


# Other files, other processes
# ------------------------------------------------------------------------------


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"theirs\.sqlite: is not a ledger of opensafeintent"):
        Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"id,text\n1,hello\n" * 100, b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match="file: "):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_newer_ledger_is_refused_with_both_versions_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    for readonly in (False, True):
        with pytest.raises(InputError, match="is a ledger of version 99; this program reads"):
            Ledger(path, readonly=readonly)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "ledger.sqlite", tmp_path):
        with pytest.raises(InputError, match="cannot open the ledger"):
            Ledger(path, readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_an_input_error_to_write_and_fine_to_read(folder: Path) -> None:
    entry = answered("q")
    with Ledger(folder / "ledger.sqlite") as ledger:
        ledger.add(entry)
    (folder / "ledger.sqlite").chmod(0o444)
    folder.chmod(0o555)
    with ordinary_user():
        for name in ("new.sqlite", "ledger.sqlite"):
            with pytest.raises(InputError, match=f"{name}: cannot open .*: Permission denied"):
                Ledger(folder / name)
        with Ledger(folder / "ledger.sqlite", readonly=True) as ledger:
            assert ledger.find(entry.key) == entry.outcome


def test_a_damaged_ledger_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    entry = answered("q")
    with Ledger(path) as ledger:
        ledger.add(entry)
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)  # the first page, with the schema, stays whole
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"ledger\.sqlite"), Ledger(path) as ledger:
        ledger.find(entry.key)


@pytest.mark.parametrize("name", ["ledger.sqlite", "link.sqlite"])
def test_a_second_writer_is_refused_and_told_who_holds_the_ledger(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "ledger.sqlite"
    (tmp_path / "link.sqlite").symlink_to(path)
    with run_python(_WRITE_UNTIL_KILLED, path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        holder = f"process {process.pid} on {re.escape(socket.gethostname())}"
        with pytest.raises(Taken, match=f"{name}: {holder} has been writing this ledger since 2"):
            Ledger(tmp_path / name)
        with Ledger(path, readonly=True) as ledger:  # a reader is not
            ledger.count()
        process.kill()
    with Ledger(tmp_path / name) as ledger:  # the system has released it
        ledger.add(answered("q"))


def test_a_second_writer_may_wait(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    told: list[str] = []

    def waiting(line: str) -> None:
        told.append(line)
        first.close()

    first = Ledger(path)
    with Ledger(path, waiting=waiting) as second:
        second.add(answered("q"))
    assert len(told) == 1
    assert f"process {os.getpid()} on " in told[0]


def test_a_ledger_with_two_hard_links_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "one.sqlite").close()
    (tmp_path / "other.sqlite").hardlink_to(tmp_path / "one.sqlite")
    with pytest.raises(InputError, match=r"other\.sqlite: has several names \(hard links\)"):
        Ledger(tmp_path / "other.sqlite")


# When nothing can be written
# ------------------------------------------------------------------------------

_FULL_DISK = """
import resource, sys
from pathlib import Path
from opensafeintent.calls.ledger import Ledger
from opensafeintent.errors import InputError

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    Ledger(Path(sys.argv[1])).close()
except InputError as error:
    print("InputError:", error)
"""


# 8 kB take the first pages and no more; 32 kB the index of the write-ahead log, and not the tables.
@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("size", [8192, 32_768])
def test_a_disk_that_is_full_as_it_is_opened_is_an_input_error(tmp_path: Path, size: int) -> None:
    path = tmp_path / "ledger.sqlite"
    process = run_python(_FULL_DISK, path, size, stderr=subprocess.PIPE)
    said, complaint = process.communicate(timeout=30)
    assert said.startswith(f"InputError: {path}: cannot "), complaint
    with Ledger(path) as ledger:  # there is room again
        ledger.add(failed("q"))
    assert rows(path) == [("failed", "server: 500")]


def test_rows_that_the_database_cannot_take_are_not_lost_in_silence(tmp_path: Path) -> None:
    # 2**63 is one more than an SQLite integer holds; a server may well claim to have used so many
    # tokens.
    call = user_call("q")
    bad = Entry(
        call_key(call, "m"),
        call,
        Replied(Answered(text="", stop_reason="stop", usage=Usage(2**63, 0)), body_of("")),
    )
    path = tmp_path / "ledger.sqlite"
    with (
        pytest.raises(InputError, match="answers that came and are lost: 1"),
        Ledger(path) as ledger,
    ):
        ledger.add(bad)
        ledger.add(answered("a good row"))
    assert statuses(path) == ["answered"]


# Imported responses
# ------------------------------------------------------------------------------

DATASET = "d" * 64


def imported(
    response: str | None, set_id: str = "s1", source: str = "one.json", **fields: Any
) -> ImportedRow:
    given = {"variant": "benign", "helpfulness": 3}
    recorded = RecordedResponse(set_id=set_id, response=response, **(given | fields))
    return ImportedRow(
        model="m", recorded=recorded, source=Path(source), source_sha256=sha256_hex(source)
    )


def texts(ledger: Ledger, dataset: str) -> list[str | None]:
    return [row.recorded.response for row in ledger.imports.rows(dataset)]


def test_imported_responses_come_back_as_they_were_and_are_added_once(tmp_path: Path) -> None:
    given = [imported("Grüße " * 100), imported(None, "s2"), imported("", "s3", epoch=2)]
    new = imported("x", "s4", source="two.json")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.imports.add(DATASET, given)
        ledger.imports.add(DATASET, given)
        # The same response from another file is no news either; what is new in that file is.
        ledger.imports.add(DATASET, [imported("Grüße " * 100, source="two.json"), new])
    with Ledger(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        assert [row.recorded for row in ledger.imports.rows(DATASET)] == [
            row.recorded for row in (*given, new)
        ]


@pytest.mark.parametrize(
    "other",
    [imported("Another."), imported("One.", helpfulness=4)],
)
def test_another_response_in_the_same_place_is_refused_with_all_that_came_with_it(
    tmp_path: Path, other: ImportedRow
) -> None:
    long = imported("New text " * 30, "s0")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.imports.add(DATASET, [imported("One.")])
        with pytest.raises(
            InputError,
            match=r"one\.json: m has another response or grade for set s1, benign, epoch 1",
        ):
            ledger.imports.add(DATASET, [long, other])
        assert texts(ledger, "another") == []
        assert texts(ledger, DATASET) == ["One."]
        # The text that was rolled back is stored again when it comes again.
        ledger.imports.add(DATASET, [long])
        assert texts(ledger, DATASET) == ["One.", "New text " * 30]
