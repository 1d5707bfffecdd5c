"""The loopback server does what the other tests rely on it for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest

from loopback import Fault, LoopbackProcess, LoopbackServer, Match, answer_text, purpose_of

ASK = {
    "generate": "Write a note about boats.",
    "probe": 'Choose. Answer with {"strategy": "..."}',
    "mode": 'Classify. Answer with {"mode": "..."}',
    "helpfulness": "Reply with one integer from 1 to 4.",
    "harm": "Reply with one integer from 0 to 3.",
}


def chat(text: str, model: str = "m", **more: Any) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}],
        **more,
    }


def post_all(
    base_url: str, bodies: Iterable[Any], *, at_once: int = 1, **options: Any
) -> list[tuple[int, Any, Any]]:
    """Post the bodies; gives (status, headers, text or exception) of each, in their order."""

    async def run() -> list[tuple[int, Any, Any]]:
        gate = asyncio.Semaphore(at_once)

        async def one(body: Any) -> tuple[int, Any, Any]:
            async with gate:
                try:
                    async with session.post(f"{base_url}/chat/completions", json=body) as response:
                        return response.status, response.headers, await response.text()
                except (aiohttp.ClientError, TimeoutError) as error:
                    return 0, {}, error

        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), **options
        ) as session:
            return await asyncio.gather(*map(one, bodies))

    return asyncio.run(run())


def post(base_url: str, body: Any, **options: Any) -> tuple[int, Any, Any]:
    return post_all(base_url, [body], **options)[0]


def error_of(reply: tuple[int, Any, Any]) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(reply[2])["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


def statuses(replies: Iterable[tuple[int, Any, Any]]) -> list[int]:
    return [reply[0] for reply in replies]


@pytest.mark.parametrize("purpose", ASK)
def test_answers_follow_from_the_request(purpose: str) -> None:
    body = chat(ASK[purpose], temperature=0)
    with LoopbackServer() as first, LoopbackServer() as second:
        replies = [post(server.base_url, body) for server in (first, first, second)]
    assert len({text for _, _, text in replies}) == 1
    completion = json.loads(replies[0][2])
    choice = completion["choices"][0]
    content = choice["message"]["content"]
    assert (completion["object"], completion["model"], choice["finish_reason"]) == (
        "chat.completion",
        "m",
        "stop",
    )
    usage = completion["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == max(1, len(content) // 4)
    assert content == answer_text("m", ["s", ASK[purpose]], purpose)
    allowed = {
        "probe": [f'{{"strategy": "{name}"}}' for name in ("full", "constrained", "refuse")],
        "mode": [f'{{"mode": "A{level}"}}' for level in range(5)],
        "helpfulness": list("1234"),
        "harm": list("0123"),
    }
    if purpose == "generate":
        assert 900 <= len(content) <= 1500
    else:
        assert content in allowed[purpose]
    assert [record.purpose for record in first.requests] == [purpose, purpose]


def test_answers_are_spread_and_long_enough() -> None:
    harm = Counter(answer_text("m", [f"{number} {ASK['harm']}"]) for number in range(2000))
    assert harm.keys() == set("0123")
    assert 0.7 < harm["0"] / 2000 < 0.8
    notes = [answer_text("m", [f"topic {number}"]) for number in range(2000)]
    assert len(set(notes)) == 2000
    assert all(900 <= len(note) <= 1500 and purpose_of(note) == "generate" for note in notes)
    assert answer_text("other", ["topic 1"]) != notes[1]


def test_purpose_comes_from_the_end_of_the_last_message() -> None:
    assert purpose_of('the "a_level" field') == "mode"
    assert purpose_of('"mode" and "strategy"') == "probe"
    assert purpose_of(ASK["harm"] + "x" * 600) == "generate"


def test_records_hold_the_request() -> None:
    body = chat("hello", model="some-model", max_tokens=7)
    with LoopbackServer() as server:
        post(server.base_url, body, headers={"Authorization": "Bearer k"})
        (record,) = server.requests
        assert (record.body, record.messages, record.model) == (
            body,
            body["messages"],
            "some-model",
        )
        assert record.headers["Authorization"] == "Bearer k"
        assert record.status == 200
        assert abs(record.time - time.time()) < 30
        server.reset()
        assert server.requests == []


def test_latency_is_waited_side_by_side() -> None:
    with LoopbackServer(latency=0.2) as server:
        start = time.perf_counter()
        replies = post_all(server.base_url, [chat(f"{number}") for number in range(50)], at_once=50)
        took = time.perf_counter() - start
        assert statuses(replies) == [200] * 50
        assert 0.19 <= took < 2
        assert server.stats()["max_in_flight"] == 50


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(action="status", status=401), ("invalid_request_error", "invalid_api_key", None)),
        (Fault(action="status", status=403), ("permission_error", "permission_denied", None)),
        (Fault(action="status", status=404), ("invalid_request_error", "model_not_found", None)),
        (Fault(action="status", status=500), ("server_error", None, None)),
        (Fault(action="status", status=503), ("server_error", "overloaded", None)),
        (
            Fault(action="status", status=400, code="content_filter", param="prompt"),
            ("invalid_request_error", "content_filter", "prompt"),
        ),
        (
            Fault(action="status", status=400, code="context_length_exceeded", param="messages"),
            ("invalid_request_error", "context_length_exceeded", "messages"),
        ),
    ],
)
def test_error_statuses(fault: Fault, expected: tuple[str, str | None, str | None]) -> None:
    with LoopbackServer(faults=[fault]) as server:
        reply = post(server.base_url, chat("x"))
        error = error_of(reply)
        assert reply[0] == server.requests[0].status == fault.status
        assert (error["type"], error["code"], error["param"]) == expected
        assert error["message"]


def test_rate_limit_error_with_retry_after_and_headers() -> None:
    fault = Fault(
        action="status",
        status=429,
        retry_after=0.25,
        headers={"X-Kind": "a"},
        message="Slow.",
        match=Match(first=1),
    )
    with LoopbackServer(faults=[fault]) as server:
        refused, answered = post_all(server.base_url, [chat("x"), chat("x")])
    assert refused[0] == 429
    assert (refused[1]["Retry-After"], refused[1]["X-Kind"]) == ("0.25", "a")
    assert error_of(refused)["message"] == "Slow."
    assert answered[0] == 200


def test_parameter_that_is_not_supported() -> None:
    fault = Fault(
        action="status",
        status=400,
        code="unsupported_value",
        param="temperature",
        match=Match(has="temperature"),
    )
    with LoopbackServer(faults=[fault]) as server:
        refused, answered = post_all(server.base_url, [chat("x", temperature=0), chat("x")])
    assert (refused[0], answered[0]) == (400, 200)
    assert "'temperature'" in error_of(refused)["message"]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("drop", aiohttp.ServerDisconnectedError),
        ("reset", aiohttp.ClientConnectionError),
        ("truncate", aiohttp.ClientPayloadError),
        ("hang", aiohttp.ServerDisconnectedError),
    ],
)
def test_broken_connections(action: Any, error: type[Exception]) -> None:
    with LoopbackServer(faults=[Fault(action=action, seconds=0.1, match=Match(first=1))]) as server:
        broken, answered = post_all(server.base_url, [chat("x"), chat("x")])
        assert isinstance(broken[2], error)
        assert answered[0] == 200
        assert [record.status for record in server.requests] == [
            200 if action == "truncate" else 0,
            200,
        ]
        assert server.stats()["duplicates"] == 0


def test_hang_outlasts_the_client() -> None:
    with LoopbackServer(faults=[Fault(action="hang", seconds=60)]) as server:
        broken = post(server.base_url, chat("x"), timeout=aiohttp.ClientTimeout(total=0.1))
        assert isinstance(broken[2], TimeoutError)
        wait_until(lambda: server.stats()["in_flight"] == 0)
        assert server.stats()["by_status"] == {"0": 1}


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_bodies_that_are_not_completions() -> None:
    faults = [
        Fault(action="malformed", match=Match(contains="malformed")),
        Fault(action="html", match=Match(contains="html")),
    ]
    with LoopbackServer(faults=faults) as server:
        malformed, html = post_all(server.base_url, [chat("malformed"), chat("html")])
    assert (malformed[0], html[0]) == (200, 200)
    with pytest.raises(json.JSONDecodeError):
        json.loads(malformed[2])
    assert html[1]["Content-Type"].startswith("text/html")
    assert html[2].startswith("<!DOCTYPE html>")


def test_delay_adds_to_other_faults() -> None:
    faults = [
        Fault(action="delay", seconds=0.15),
        Fault(action="delay", seconds=0.1),
        Fault(action="status"),
    ]
    with LoopbackServer(faults=faults) as server:
        start = time.perf_counter()
        assert post(server.base_url, chat("x"))[0] == 500
        assert time.perf_counter() - start >= 0.24


def test_replaced_completions() -> None:
    def completion(**what: Any) -> dict[str, Any]:
        server.set_faults(Fault(action="completion", **what))
        made: dict[str, Any] = json.loads(post(server.base_url, chat("x"))[2])
        return made

    with LoopbackServer() as server:
        choice = completion(content='He said "no".', finish_reason="length")["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (
            'He said "no".',
            "length",
        )
        choice = completion(content=None, refusal="I cannot.", finish_reason="content_filter")[
            "choices"
        ][0]
        assert choice["message"] == {"role": "assistant", "content": None, "refusal": "I cannot."}
        assert choice["finish_reason"] == "content_filter"
        message = completion(reasoning_content="First, ...")["choices"][0]["message"]
        assert message["reasoning_content"] == "First, ..."
        assert message["content"] == answer_text("m", ["s", "x"])
        assert completion(empty_choices=True)["choices"] == []
        assert "usage" not in completion(omit_usage=True)


def test_matching_by_kind_of_request() -> None:
    faults = [Fault(action="status", match=Match(purpose="harm", model="a"))]
    with LoopbackServer(faults=faults) as server:
        bodies = [chat(ASK["harm"], "a"), chat(ASK["harm"], "b"), chat(ASK["mode"], "a")]
        assert statuses(post_all(server.base_url, bodies)) == [500, 200, 200]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match(first=2), [500, 500, 200, 200, 200, 200]),
        (Match(skip=1, first=2), [200, 500, 500, 200, 200, 200]),
        (Match(every=3), [200, 200, 500, 200, 200, 500]),
        (Match(attempts=1), [500, 200, 500, 200, 500, 200]),
    ],
)
def test_matching_by_occurrence(match: Match, expected: list[int]) -> None:
    bodies = [chat(f"{number // 2}") for number in range(6)]
    with LoopbackServer(faults=[Fault(action="status", match=match)]) as server:
        for _ in range(2):
            assert statuses(post_all(server.base_url, bodies)) == expected
            server.reset()


def test_matching_a_seeded_fraction() -> None:
    def struck(seed: int, order: int) -> dict[str, int]:
        bodies = [chat(f"{number}") for number in range(400)][::order]
        with LoopbackServer(
            faults=[Fault(action="status", match=Match(fraction=0.25, seed=seed))]
        ) as server:
            replies = post_all(server.base_url, bodies, at_once=20)
        return {
            body["messages"][1]["content"]: reply[0]
            for body, reply in zip(bodies, replies, strict=True)
        }

    once = struck(1, 1)
    assert 60 <= list(once.values()).count(500) <= 140
    assert struck(1, -1) == once
    assert struck(2, 1) != once


def test_limit_on_requests_at_once() -> None:
    with LoopbackServer(latency=0.2, rate_limit=3) as server:
        replies = post_all(server.base_url, [chat(f"{number}") for number in range(10)], at_once=10)
        counts = Counter(statuses(replies))
        assert counts == {200: 3, 429: 7}
        assert {reply[1]["Retry-After"] for reply in replies if reply[0] == 429} == {"0.05"}
        assert server.stats()["max_in_flight"] == 3


def test_key_and_models() -> None:
    with LoopbackServer(api_key="right", models=["a", "b"]) as server:
        wrong = post(server.base_url, chat("x", "a"), headers={"Authorization": "Bearer wrong"})
        assert wrong[0] == 401
        assert error_of(wrong) == {
            "message": "Incorrect API key provided",
            "type": "invalid_request_error",
            "code": "invalid_api_key",
            "param": None,
        }
        right = {"headers": {"Authorization": "Bearer right"}}
        unknown = post(server.base_url, chat("x", "c"), **right)
        assert (unknown[0], error_of(unknown)["code"]) == (404, "model_not_found")
        assert post(server.base_url, chat("x", "b"), **right)[0] == 200


def test_other_paths_and_bad_bodies() -> None:
    async def get(path: str) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(server.base_url + path) as response,
        ):
            return response.status, await response.json()

    with LoopbackServer(models=["a", "b"]) as server:
        status, listed = asyncio.run(get("/models"))
        assert status == 200
        assert [entry["id"] for entry in listed["data"]] == ["a", "b"]
        status, answer = asyncio.run(get("/elsewhere"))
        assert status == 404
        assert "GET /v1/elsewhere" in answer["error"]["message"]
        assert asyncio.run(get("/chat/completions"))[0] == 404
        bad = [{"model": "a"}, {"model": "a", "messages": []}, chat("x", "a", stream=True), [1]]
        assert statuses(post_all(server.base_url, bad)) == [400] * 4


def test_requests_in_pieces_and_in_a_row() -> None:
    async def run() -> list[bytes]:
        port = int(server.base_url.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(chat("x" * 200_000)).encode()
        one = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % len(body)
        last = one + b"Connection: close\r\n\r\n" + body
        first = one + b"Expect: 100-continue\r\n\r\n"
        for piece in (first[:10], first[10:-2], first[-2:]):
            writer.write(piece)
            await asyncio.sleep(0.02)
        seen = [await reader.readuntil(b"\r\n\r\n")]
        writer.write(body + first + body + last)
        seen.append(await reader.read())
        writer.close()
        await writer.wait_closed()
        return seen

    with LoopbackServer(latency=0.02) as server:
        seen = asyncio.run(run())
        assert seen[0].startswith(b"HTTP/1.1 100 ")
        assert seen[1].count(b"HTTP/1.1 200 OK") == 3
        assert server.stats()["by_status"] == {"200": 3}


def test_stats_and_duplicates() -> None:
    faults = [Fault(action="status", match=Match(contains="fails", first=1))]
    with LoopbackServer(faults=faults) as server:
        texts = ["one", "two", "one", "fails", "fails", "fails", ASK["harm"]]
        post_all(server.base_url, [chat(text, "a") for text in texts])
        stats = server.stats()
        assert stats["total"] == 7
        assert stats["by_model"] == {"a": 7}
        assert stats["by_purpose"] == {"generate": 6, "harm": 1}
        assert stats["by_status"] == {"200": 6, "500": 1}
        assert stats["duplicates"] == 2
        assert stats["first_request_time"] <= stats["last_request_time"]
        server.reset()
        assert server.stats()["total"] == 0


def test_many_clients_lose_nothing() -> None:
    bodies = [chat(f"{number}") for number in range(2000)]
    with LoopbackServer(latency=0.01) as server:
        assert statuses(post_all(server.base_url, bodies, at_once=200)) == [200] * 2000
        assert sorted(int(record.messages[1]["content"]) for record in server.requests) == list(
            range(2000)
        )
        assert server.stats()["in_flight"] == 0


def test_process_serves_counts_and_ends() -> None:
    faults = [
        Fault(action="completion", content=None, match=Match(contains="none")),
        Fault(action="status"),
    ]
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    with LoopbackProcess(faults=faults, latency=0.05, api_key="k", models=["m"], cpu=cpu) as server:
        replies = post_all(
            server.base_url,
            [chat("none"), chat("none"), chat("x")],
            headers={"Authorization": "Bearer k"},
        )
        assert statuses(replies) == [200, 200, 500]
        assert json.loads(replies[0][2])["choices"][0]["message"]["content"] is None
        stats = server.stats()
        assert (stats["total"], stats["duplicates"], stats["by_status"]) == (
            3,
            1,
            {"200": 2, "500": 1},
        )
        assert server.requests == []
        server.reset()
        assert server.stats()["total"] == 0
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=10) == 0
    with LoopbackProcess(record=True) as server:
        assert post(server.base_url, chat("x"))[0] == 200
        assert [(record.body, record.status) for record in server.requests] == [(chat("x"), 200)]
    assert server.process.returncode == 0


def test_port_in_use_is_an_error() -> None:
    with LoopbackServer() as server:
        port = int(server.base_url.split(":")[2].split("/")[0])
        with pytest.raises(OSError, match="in use"), LoopbackServer(port=port):
            pass


def test_process_refuses_unknown_fault_fields() -> None:
    with pytest.raises(RuntimeError, match="status 2"):
        LoopbackProcess(port="no").__enter__()  # type: ignore[arg-type]
    home = LoopbackProcess.home()
    for faults in (
        '[{"action": "drop", "sceonds": 1}]',
        '[{"action": "drop", "match": {"firts": 1}}]',
        '[{"a": 1}]',
    ):
        command = [sys.executable, "-m", "loopback", "--faults", faults]
        ended = subprocess.run(
            command, cwd=home, capture_output=True, text=True, timeout=30, check=False
        )
        assert ended.returncode == 2
        assert "--faults" in ended.stderr
