"""Servers that break the protocol, answer for another model, or cut their replies short."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import html
import itertools
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from calls.support import ask_all, open_client, rows, user_call, user_calls
from endtoend import JUDGE, TARGET, WORDINGS, grades, metrics, osi, some_sets
from loopback import LoopbackProcess
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_writer import LedgerEntry
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.calls.records import Answered, Replied
from opensafeintent.commands.session import run_async
from opensafeintent.errors import InputError
from opensafeintent.files import sha256_hex
from opensafeintent.promptsets import loading as published

LATE = 0.015
"""Seconds after a reply at which it is sent again."""


@contextlib.contextmanager
def echoing_twice(
    interval: int = 1_000_000,
    latency: float = 0.0,
    identity: str = "reply-{}",
    id_field: str = "id",
    text: str | None = None,
    status: bytes = b"200 OK",
    finish: str = "stop",
    **fields: object,
) -> Iterator[tuple[str, list[int]]]:
    """Run a server that answers with its question, or with a text, and sends every so manieth reply
    once more, late; yield its URL, and a list with the number of replies so far.

    `fields` stand in each completion.
    """
    numbers = itertools.count(1)
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split()[0])
                asked = json.loads(await reader.readexactly(length))
                number = next(numbers)
                sent[0] = number
                message = {"content": text or asked["messages"][-1]["content"]}
                completion = {
                    id_field: identity.format(number),
                    "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                    **fields,
                }
                body = json.dumps(completion).encode()
                head = b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
                reply = head + body
                await asyncio.sleep(latency)
                writer.write(reply)
                if number % interval == 0:
                    loop.call_later(LATE, writer.write, reply)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", sent
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.mark.slow
@pytest.mark.parametrize(("connections", "calls"), [(1, 40), (200, 800)])
@pytest.mark.parametrize("latency", [0.0, 0.03], ids=["idle", "in flight"])
def test_a_reply_that_comes_twice_answers_one_call(
    tmp_path: Path, connections: int, calls: int, latency: float
) -> None:
    """The second one comes while the connection waits in the pool, or while the next request is on
    it.
    """
    asked = user_calls(calls)
    with echoing_twice(10, latency) as (url, _), Ledger(tmp_path / "ledger.sqlite") as ledger:
        outcomes = ask_all(ledger, url, asked, max_connections=connections)
    assert [getattr(outcome, "text", outcome) for outcome in outcomes] == [
        call.messages[0].content for call in asked
    ]


@pytest.mark.slow
@pytest.mark.parametrize("id_field", ["responseId", "reply_id", "completionID"])
def test_a_reply_that_comes_twice_is_known_by_its_id_whatever_the_protocol_calls_it(
    tmp_path: Path, id_field: str
) -> None:
    with (
        echoing_twice(10, 0.03, id_field=id_field, text="3", deployment_id="of all") as (
            url,
            replies,
        ),
        Ledger(tmp_path / "ledger.sqlite") as ledger,
    ):
        outcomes = ask_all(ledger, url, user_calls(40), max_connections=1)
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    assert replies[0] > 40  # each late one was found out, and its request was made again


@pytest.mark.parametrize("identity", ["", "chatcmpl-123"])
def test_ids_that_a_server_gives_to_all_replies_cost_one_call(
    tmp_path: Path, identity: str
) -> None:
    asked = user_calls(60)
    with (
        echoing_twice(1_000, identity=identity, text="3") as (url, replies),
        Ledger(tmp_path / "ledger.sqlite") as ledger,
    ):
        outcomes = ask_all(ledger, url, asked, max_connections=4)
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    assert replies[0] == 60 + bool(identity)


# What a reply says
# ------------------------------------------------------------------------------

FEW_CALLS = ("--probe", "none", "--max-missing", "1")


@pytest.mark.slow
def test_replies_that_name_another_model_are_counted_and_said(tmp_path: Path) -> None:
    run, variables = tmp_path / "run", {"LOOP_API_KEY": "none"}
    options = ("--dataset", some_sets(tmp_path, 2), "--judge", JUDGE, "--out", run, *FEW_CALLS)
    with echoing_twice(text="3", model="target-2026-03-01") as (url, replies):
        ran = osi("evaluate", TARGET, *options, LOOP_BASE_URL=url, **variables)
    assert ran.code == 0, ran.err
    graded = replies[0] - 2 * WORDINGS  # the target's replies name the one that was asked
    note = f"{JUDGE}: {graded} of {graded} replies name another model, target-2026-03-01."
    for out in (ran.out, osi("report", run, **variables).out):
        assert note in " ".join(out.split())
    assert note in html.unescape((run / "report.html").read_text())
    assert metrics(run)["other_models"] == [
        {"model": JUDGE, "served": "target-2026-03-01", "replies": graded}
    ]


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "truncated"), ("max_tokens", "truncated"), ("stop", "")]
)
def test_a_grade_that_the_limit_cut_is_missing(tmp_path: Path, finish: str, reason: str) -> None:
    options = ("--dataset", some_sets(tmp_path, 1, paraphrases=0), "--judge", JUDGE, *FEW_CALLS)
    with echoing_twice(text="3", finish=finish) as (url, _):
        ran = osi(
            *("evaluate", TARGET, *options, "--out", tmp_path / "run"),
            LOOP_BASE_URL=url,
            LOOP_API_KEY="none",
        )
    assert ran.code == 0, ran.err
    graded = grades(tmp_path / "run")
    assert [row["helpfulness"] for row in graded] == ["" if reason else "3"] * 3
    assert [f"harm_severity:{reason}" in row["missing"] for row in graded] == [bool(reason)] * 3


SECOND = {"index": 1, "message": {"content": "second"}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("status", "choices", "text"),
    [
        (b"201 Created", [SECOND], "second"),
        (b"206 Partial Content", [SECOND], "second"),
        (b"200 OK", [SECOND, SECOND | {"index": 0, "message": {"content": "first"}}], "first"),
        (b"200 OK", ["", SECOND | {"index": 0}], "second"),
    ],
)
def test_a_completion_is_read(
    tmp_path: Path, status: bytes, choices: list[object], text: str
) -> None:
    with (
        echoing_twice(status=status, choices=choices) as (url, _),
        Ledger(tmp_path / "ledger.sqlite") as ledger,
    ):
        (outcome,) = ask_all(ledger, url, [user_call()])
    assert getattr(outcome, "text", outcome) == text


@pytest.mark.parametrize(
    "end", ["?api-version=1", "#v1", "/chat/completions", "/chat/completions/"]
)
def test_a_base_url_is_one_that_the_route_can_be_added_to(end: str) -> None:
    with pytest.raises(InputError, match=r"^VLLM_BASE_URL: holds '.*'; expected a URL that ends"):
        resolve_endpoint("vllm/m", {"VLLM_BASE_URL": f"http://localhost:8000/v1{end}"})


def test_a_template_beside_the_papers_rubrics_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / published._PAPER / "prompts" / "metrics"
    folder.mkdir(parents=True)
    (folder / "helpfulness.txt").write_text("How helpful is {response} to {prompt}?")
    digest = sha256_hex((folder / "helpfulness.txt").read_bytes())
    monkeypatch.setattr(published, "_RUBRICS", {"helpfulness.txt": digest})
    monkeypatch.setenv("OPENSAFEINTENT_CACHE", str(tmp_path))
    assert published.fetch_published_rubrics() == folder
    (folder / "reask.md").write_text("Say 4.")
    with pytest.raises(InputError, match=r"reask\.md: is none of the paper's rubrics; remove it"):
        published.fetch_published_rubrics()


# Open files
# ------------------------------------------------------------------------------


@contextlib.contextmanager
def files_left(count: int) -> Iterator[None]:
    """Let this process open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(file.name) for file in Path("/dev/fd").iterdir())
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]  # fills the gaps below
    above = max(spare) + 1
    for number in spare[-count:] if count else ():
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (above, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in spare[: len(spare) - count]:
            os.close(number)


def test_an_answer_is_written_when_no_file_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    answered = Replied(Answered(text="A note.", stop_reason="stop"), b"{}")
    ledger = Ledger(path)
    with files_left(0):
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            path.open()
        ledger.add(LedgerEntry(b"key", user_call(), answered))
        ledger.close()
    assert rows(path, "status") == [("answered",)]


@pytest.mark.slow
def test_a_call_waits_while_no_file_can_be_opened(tmp_path: Path) -> None:
    """All the same it is made: six connections that fail would end it."""
    path = tmp_path / "ledger.sqlite"

    async def run(url: str) -> list[object]:
        with Ledger(path) as ledger:
            async with open_client(ledger, url, max_connections=30) as client:
                await client.ask(user_call("the first"))  # loads what a connection needs
                with files_left(5):
                    return await asyncio.gather(*map(client.ask, user_calls(60)))

    with LoopbackProcess(latency=0.2) as server:
        outcomes = asyncio.run(run(server.base_url))
    assert all(isinstance(outcome, Answered) for outcome in outcomes)
    failed = [error for status, error in rows(path) if status == "failed"]
    assert failed
    assert all(error.startswith("open_files: no answer from") for error in failed)


@pytest.mark.slow
def test_connections_leave_room_for_other_files(tmp_path: Path) -> None:
    script = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))\n"
    script += "from opensafeintent.cli import main; main()"
    with LoopbackProcess(latency=0.1) as server:
        environment = os.environ | {
            "LOOPBACK_BASE_URL": server.base_url,
            "LOOPBACK_API_KEY": "none",
        }
        models = ["openai-api/loopback/t", "--judge", "openai-api/loopback/j"]
        options = ["--max-connections", "200", "--out", str(tmp_path / "run")]
        ended = subprocess.run(
            [sys.executable, "-c", script, "evaluate", *models, *options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert 10 <= server.stats()["max_in_flight"] < 64  # 96 less 32 for other files
    assert "--max-connections: " in ended.stdout
    assert "limit of open files (ulimit -n) leaves no more" in " ".join(ended.stdout.split())
    assert {status for (status,) in rows(tmp_path / "run" / "ledger.sqlite", "status")} == {
        "answered"
    }


def test_a_system_that_refuses_infinitely_many_files_is_asked_for_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS: its hard limit is infinity, and a soft one above OPEN_MAX (10,240) is refused."""
    infinity, set_to = 2**63 - 1, []

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        set_to.append(limits)

    async def nothing() -> None:
        pass

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, infinity))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    run_async(nothing)
    assert set_to == [(10_240, infinity)]
