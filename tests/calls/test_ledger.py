"""The ledger: what it keeps, what it finds again, and what happens to it when things go wrong."""

from __future__ import annotations

import os
import random
import re
import socket
import sqlite3
import stat
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

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
from fuzz.contract import bounded
from opensafeintent.calls import ledger_rows as ledger_file
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import Texts, compress_with_checksum, decompress_and_check
from opensafeintent.calls.recorded import RecordedResponse, SourceFile
from opensafeintent.calls.records import Answered, Failure, Refused, Sampling, Usage
from opensafeintent.errors import InputError
from opensafeintent.replacing import Taken
from opensafeintent.templates.template import Message

RUBRIC = "You grade how far a response satisfies the request. " * 20


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the right to write anywhere: tests may run as root, to whom no folder is
    read-only.
    """
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are private to whoever runs the tests."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


# What is kept
# ------------------------------------------------------------------------------


def test_every_attempt_is_a_row_and_only_an_answer_satisfies_its_key(path: Path) -> None:
    answer = answered("q")
    with Ledger(path) as ledger:
        ledger.add(failed("q"))
        ledger.add(failed("q"))
        assert ledger.find(answer.key) is None
    with Ledger(path) as ledger:
        assert ledger.find(answer.key) is None
        ledger.add(answer)
    assert outcome_in(path, answer) == answer.outcome
    assert rows(path) == [("failed", "server: 500"), ("failed", "server: 500"), ("answered", "")]


def test_a_provider_refusal_satisfies_its_key(path: Path) -> None:
    refusal = Refused(reason="content_filter: violence", usage=Usage(5, 0), served_model="m-1")
    assert outcome_in(written(path, entry(refusal)), entry(refusal)) == refusal


def test_a_row_holds_all_there_is_to_know_about_the_attempt(path: Path) -> None:
    call = user_call(
        "q", purpose="harm", epoch=2, attempt=1, template="osi-harm/1", template_hash="ab"
    )
    answer = Answered(text="3", stop_reason="length", usage=Usage(11, 1), served_model="m-2026")
    kept = entry(answer, call, body_of("3"))
    written(path, kept)
    columns = (
        "key, model, purpose, template, template_hash, epoch, attempt, stop_reason, input_tokens,"
        " output_tokens, served_model, seconds"
    )
    columns_expected = ("harm", "osi-harm/1", "ab", 2, 1, "length", 11, 1, "m-2026", 1.25)
    assert rows(path, columns) == [(kept.key, "openai-api/loopback/m", *columns_expected)]
    ((created,),) = rows(path, "created")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(created)).seconds < 60


def test_a_request_can_be_rebuilt_exactly(path: Path) -> None:
    odd = (RUBRIC, "", "x" * 79, "y" * 80, "12", "Grüße \U0001f600 \x00 \u2028" * 20, RUBRIC)
    system = Message("system", ("Be brief. " * 30,))
    messages = (system, Message("user", odd), Message("assistant", ("5",)))
    sampling = Sampling(max_tokens=9, temperature=0.0, extra={"seed": 7, "stop": ["\n"]})
    written(path, failed("", user_call(messages=messages, sampling=sampling)))
    with Ledger(path) as ledger:
        rebuilt, stored_sampling = ledger.request(1)
    assert rebuilt == messages
    assert stored_sampling == {
        "max_tokens": 9,
        "temperature": 0.0,
        "extra": {"seed": 7, "stop": ["\n"]},
    }


def test_long_texts_are_not_kept_in_memory_for_their_ids(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "_LONG_IN_MEMORY", 1000)
    written(path)
    texts = Texts()
    with closing(sqlite3.connect(path)) as connection, connection:
        ids = [texts.find_text_id(connection, f"{number:0300}") for number in range(20)]
        assert sum(map(len, texts._ids)) <= 1000
        assert [texts.find_text_id(connection, f"{number:0300}") for number in range(20)] == ids


@pytest.mark.parametrize("answer", ["No.", "A long answer. " * 500])
def test_the_raw_response_is_kept_whether_or_not_it_is_compressed(path: Path, answer: str) -> None:
    in_memory = Answered(text="what is in memory", stop_reason="stop")
    kept = entry(in_memory, raw=body_of(answer))
    assert outcome_in(written(path, kept), kept) == Answered(
        text=answer.strip(), stop_reason="stop"
    )


def test_a_text_is_stored_once_over_all_calls_and_openings(path: Path) -> None:
    for start in (0, 50):
        messages = [(Message("user", (RUBRIC, f"Response {start + n}")),) for n in range(50)]
        written(
            path,
            *(failed("", user_call(messages=messages_of_call)) for messages_of_call in messages),
        )
    assert execute(path, "SELECT count(*) FROM texts") == [(1,)]
    assert len(rows(path)) == 100
    # The rubric has 1,040 characters: stored with every row it alone would take 104 kB.
    assert path.stat().st_size < 70_000


def test_only_the_first_answer_to_a_key_counts_and_a_second_stops_the_run(path: Path) -> None:
    first, second = answered("q", answer="first"), answered("q", answer="second")
    with pytest.raises(InputError, match=r"ledger\.sqlite: another process has written into this"):
        written(path, first, second)
    assert outcome_in(path, first) == first.outcome


def test_the_files_are_private_to_their_user(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.add(answered("q"))
        deadline = time.monotonic() + 5
        while ledger.count() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    hidden = (".ledger.sqlite.lock", ".ledger.sqlite.room")
    files = (*hidden, "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")
    assert modes == dict.fromkeys(files, 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_file_is_whole_at_the_end_even_if_somebody_reads_it(
    path: Path, folder: Path, snapshot: bool
) -> None:
    copy = folder / "copy.sqlite"
    written(path, answered("before"))
    with Ledger(path) as ledger, Ledger(path, readonly=True) as reader:
        with reader.snapshot() if snapshot else nullcontext():
            ledger.add(answered("q"))
            ledger.close()
        copy.write_bytes(path.read_bytes())
        # what a snapshot holds up is in the file when that is closed
        assert len(rows(copy)) == (1 if snapshot else 2)
    assert not path.with_name("ledger.sqlite-wal").exists()
    assert len(rows(path)) == 2


def test_awkward_file_names_are_file_names(tmp_path: Path) -> None:
    path = written(tmp_path / "a?mode=ro#100% ü.sqlite", answered("q"))
    assert outcome_in(path, answered("q")) == answered("q").outcome


# Found at once, on disk soon
# ------------------------------------------------------------------------------


def test_an_answer_stays_found_while_its_failed_attempt_is_written(path: Path) -> None:
    # The failed attempt goes into one batch, the answer into the next: nothing may forget the
    # answer between the two.
    answer, noise = answered("q"), random.Random(1)
    with Ledger(path) as ledger:
        ledger.add(failed("q"))
        for number in range(60):
            failure = Failure(kind="server", error="500", body=noise.randbytes(50_000))
            ledger.add(entry(failure, user_call(f"{number}")))
        time.sleep(0.1)  # the batch was closed after 0.05 s and is being written: 3 MB take a while
        ledger.add(answer)
        until = time.monotonic() + 1.5
        lost = 0
        while rows(path)[-1:] != [("answered", "")] and time.monotonic() < until:
            lost += ledger.find(answer.key) is None
        assert lost == 0


def test_an_answer_is_found_at_once_and_is_on_disk_within_a_fraction_of_a_second(
    path: Path,
) -> None:
    with Ledger(path) as ledger, Ledger(path, readonly=True) as reader:
        ledger.add(answered("q"))
        assert ledger.find(answered("q").key) == answered("q").outcome
        deadline = time.monotonic() + 1  # 0.05 s, and patience for a busy machine
        while reader.count() == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert reader.count() == 1


_WRITE_UNTIL_KILLED = """
import itertools, os, sys, time
from pathlib import Path
from calls.support import answered
from opensafeintent.calls.ledger import Ledger

ledger = Ledger(Path(sys.argv[1]))
for number in itertools.count():
    ledger.add(answered("A prompt long enough to be kept by reference. " * 3 + str(number), number=number))
    os.write(1, b"%d %.6f\\n" % (number, time.monotonic()))
    time.sleep(0.001)
"""


def killed_while_writing(path: Path, lines: int) -> list[str]:
    """Kill a writer after so many lines of what it wrote when; return them and what came after."""
    with run_python(_WRITE_UNTIL_KILLED, path) as process:
        assert process.stdout is not None
        lines_read = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        return lines_read + process.stdout.readlines()


@pytest.mark.slow
def test_kill_9_loses_a_fifth_of_a_second_and_no_more(path: Path) -> None:
    lines_read = [line.split() for line in killed_while_writing(path, 400) if line.endswith("\n")]
    added = {int(number): float(when) for number, when in lines_read}
    last = max(added.values())
    with Ledger(path) as ledger:
        there = {number for (number,) in rows(path, "epoch")}
        assert ledger.request(1)[0][0].content.startswith("A prompt long enough")
    assert {number for number, when in added.items() if when < last - 0.2} <= there
    assert len(added) >= 400
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]


def test_what_a_killed_process_left_can_be_read_where_nothing_can_be_written(folder: Path) -> None:
    path = folder / "ledger.sqlite"
    killed_while_writing(path, 200)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    with ordinary_user(), Ledger(path, readonly=True) as ledger:
        count = ledger.count()
    assert count == len(rows(path)) > 0


# Other files, other processes
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a ledger of opensafeintent"),
        *((content, "file: ") for content in (b"id,text\n1,hello\n" * 100, b"\0" * 4096)),
    ],
    ids=["another program's", "text", "zeros"],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    if not content:
        execute(path, "CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    with pytest.raises(InputError, match=complaint):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_newer_ledger_is_refused_with_both_versions_named(path: Path) -> None:
    execute(written(path), "PRAGMA user_version = 99")
    for readonly in (False, True):
        with pytest.raises(InputError, match="is a ledger of version 99; this program reads"):
            Ledger(path, readonly=readonly)


def test_a_cut_thought_is_known_by_a_later_reply_though_it_is_not_written_yet(path: Path) -> None:
    body = body_of("First").replace(b'"stop"', b'"length"')
    cut = entry(Answered(text="First", stop_reason="length"), user_call("a"), body)
    ended = entry(
        Answered(text="No.", stop_reason="stop", reasoned=True, unopened=True),
        user_call("b"),
        body_of("plan</think>No."),
    )
    with Ledger(path) as ledger:
        ledger.add(cut)
        assert ledger.find(cut.key) == cut.outcome
        ledger.add(ended)
        ledger.find(ended.key)
        before = ledger.find(cut.key)
    after = outcome_in(path, cut)
    for now in (before, after):
        assert isinstance(now, Answered) and (now.text, now.stop_reason) == ("", "length")


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "ledger.sqlite", tmp_path):
        with pytest.raises(InputError, match="cannot open the ledger"):
            Ledger(path, readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_an_input_error_to_write_and_fine_to_read(folder: Path) -> None:
    path = written(folder / "ledger.sqlite", answered("q"))
    path.chmod(0o444)
    folder.chmod(0o555)
    with ordinary_user():
        for name in ("new.sqlite", "ledger.sqlite"):
            with pytest.raises(InputError, match=f"{name}: cannot open .*: Permission denied"):
                Ledger(folder / name)
        assert outcome_in(path, answered("q")) == answered("q").outcome


def test_a_damaged_ledger_is_an_input_error(path: Path) -> None:
    raw = written(path, answered("q")).read_bytes()
    # the first page, with the schema, stays whole
    path.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    with pytest.raises(InputError, match=r"ledger\.sqlite"), Ledger(path) as ledger:
        ledger.find(answered("q").key)


def test_a_ledger_whose_schema_is_damaged_is_an_input_error(path: Path) -> None:
    raw = bytearray(written(path, answered("q")).read_bytes())
    for at in (match.start() for match in re.finditer(b"CREATE [A-Z]", bytes(raw))):
        path.write_bytes(raw[: at + 3] + b"\xce" + raw[at + 4 :])
        for readonly in (False, True):
            with pytest.raises(InputError, match=r"ledger\.sqlite"):
                Ledger(path, readonly=readonly)


def test_a_ledger_with_bytes_in_its_schema_is_an_input_error(path: Path) -> None:
    written(path, answered("q"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET name = CAST(name AS BLOB)")
    with pytest.raises(InputError, match=r"ledger\.sqlite"):
        Ledger(path, readonly=True)


@pytest.mark.parametrize("name", ["ledger.sqlite", "link.sqlite"])
def test_a_second_writer_is_refused_and_told_who_holds_the_ledger(path: Path, name: str) -> None:
    path.with_name("link.sqlite").symlink_to(path)
    with run_python(_WRITE_UNTIL_KILLED, path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        holder = f"process {process.pid} on {re.escape(socket.gethostname())}"
        with pytest.raises(Taken, match=f"{name}: {holder} has been writing this ledger since 2"):
            Ledger(path.with_name(name))
        with Ledger(path, readonly=True) as ledger:  # a reader is not
            ledger.count()
        process.kill()
    written(path.with_name(name), answered("q"))  # the system has released it


def test_a_second_writer_may_wait(path: Path) -> None:
    lines_shown: list[str] = []

    def waiting(line: str) -> None:
        lines_shown.append(line)
        first.close()

    first = Ledger(path)
    with Ledger(path, waiting=waiting) as second:
        second.add(answered("q"))
    assert len(lines_shown) == 1
    assert f"process {os.getpid()} on " in lines_shown[0]


def test_a_ledger_with_two_hard_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.sqlite").hardlink_to(written(tmp_path / "one.sqlite"))
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
def test_a_disk_that_is_full_as_it_is_opened_is_an_input_error(path: Path, size: int) -> None:
    process = run_python(_FULL_DISK, path, size, stderr=subprocess.PIPE)
    output, complaint = process.communicate(timeout=30)
    assert output.startswith(f"InputError: {path}: cannot "), complaint
    written(path, failed("q"))  # there is room again
    assert rows(path) == [("failed", "server: 500")]


def test_rows_that_the_database_cannot_take_are_not_lost_in_silence(path: Path) -> None:
    # 2**63 is one more than an SQLite integer holds; a server may well claim to have used so many
    # tokens.
    bad = Answered(text="", stop_reason="stop", usage=Usage(2**63, 0))
    with pytest.raises(InputError, match="answers that came and are lost: 1"):
        written(path, entry(bad, raw=body_of("")), answered("a good row"))
    assert statuses(path) == ["answered"]


# What lies in a ledger comes out as it went in, or not at all
# ------------------------------------------------------------------------------

GRADE = b'{"choices": [{"message": {"content": "3"}, "finish_reason": "stop"}]}'


@pytest.mark.slow
@given(raw=st.sampled_from((b"", b"3", GRADE, GRADE * 20)), draw=st.data())
def test_a_flipped_bit_is_never_another_reply(raw: bytes, draw: st.DataObject) -> None:
    packed = bytearray(compress_with_checksum(raw))
    assert decompress_and_check(bytes(packed)) == raw
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises((ValueError, zlib.error)):
        decompress_and_check(bytes(packed))


@pytest.mark.slow
def test_what_would_unpack_to_gigabytes_is_refused() -> None:
    stream = zlib.compressobj(9)
    bomb = b"z" + b"".join(stream.compress(b"\0" * 2**20) for _ in range(600)) + stream.flush()
    assert len(bomb) < 2**20
    with bounded(), pytest.raises(ValueError, match="does not end"):
        decompress_and_check(bomb)


# Imported responses
# ------------------------------------------------------------------------------

DATASET = "d" * 64


def texts(ledger: Ledger, dataset: str) -> list[str | None]:
    return [row.response for row in ledger.imports.rows(dataset)]


@pytest.mark.parametrize(
    "damage",
    [
        "record = CAST(replace(record, '\"helpfulness\":3', '\"helpfulness\":2') AS BLOB)",
        *("variant = 'malicious'", "record = 'null'", "epoch = 'one'"),
        *("UPDATE texts SET body = x'7A00'", "UPDATE texts SET sha = zeroblob(32)"),
        "DELETE FROM texts",
    ],
)
def test_an_imported_response_that_was_changed_is_refused(path: Path, damage: str) -> None:
    with Ledger(path) as ledger:
        ledger.imports.add("d", [imported("Yes. " * 100)])
        assert texts(ledger, "d") == ["Yes. " * 100]
    execute(path, damage if "texts" in damage else f"UPDATE imported SET {damage}")
    with Ledger(path, readonly=True) as ledger, pytest.raises(InputError, match="is damaged: "):
        list(ledger.imports.rows())


def test_imported_responses_come_back_as_they_were_and_are_added_once(path: Path) -> None:
    responses = [imported("Grüße " * 100), imported(None, "s2"), imported("", "s3", epoch=2)]
    new = imported("x", "s4", source="two.json")
    with Ledger(path) as ledger:
        ledger.imports.add(DATASET, responses)
        ledger.imports.add(DATASET, responses)
        # The same response from another file is no news either; what is new in that file is.
        ledger.imports.add(DATASET, [imported("Grüße " * 100, source="two.json"), new])
    with Ledger(path, readonly=True) as ledger:
        recorded = [msgspec.structs.replace(row, rows=()) for row in ledger.imports.rows(DATASET)]
    assert recorded == [response for _, response in (*responses, new)]


@pytest.mark.parametrize("other_row", [imported("Another."), imported("One.", helpfulness=4)])
def test_another_response_in_the_same_place_is_refused_with_all_that_came_with_it(
    path: Path, other_row: tuple[SourceFile, RecordedResponse]
) -> None:
    long = imported("New text " * 30, "s0")
    with Ledger(path) as ledger:
        ledger.imports.add(DATASET, [imported("One.")])
        with pytest.raises(InputError, match=r"one\.json: m has another .* s1, benign, epoch 1"):
            ledger.imports.add(DATASET, [long, other_row])
        assert texts(ledger, "another") == []
        assert texts(ledger, DATASET) == ["One."]
        # The text that was rolled back is stored again when it comes again.
        ledger.imports.add(DATASET, [long])
        assert texts(ledger, DATASET) == ["One.", "New text " * 30]
