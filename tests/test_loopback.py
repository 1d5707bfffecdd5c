"""The loopback server does what the other tests rely on it for."""

from __future__ import annotations

import asyncio
import json
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


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("drop", aiohttp.ServerDisconnectedError),
        ("reset", aiohttp.ClientConnectionError),
        ("truncate", aiohttp.ClientPayloadError),
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


@pytest.mark.parametrize("how", [LoopbackServer, LoopbackProcess])
def test_what_is_counted_recorded_and_answered(how: Any) -> None:
    limits = {"latency": 0.2, "api_key": "k", "models": ["m"], "rate_limit": 2, "record": True}
    right, wrong = ({"headers": {"Authorization": f"Bearer {key}"}} for key in ("k", "l"))
    faults = [
        Fault(action="status", status=503, retry_after=0.25, match=Match(contains="x", first=1)),
        Fault(action="completion", content=None, match=Match(contains="none", purpose="generate")),
    ]
    with how(faults=faults, **limits) as server:
        started = time.perf_counter()
        together = post_all(server.base_url, [chat(text) for text in "abc"], at_once=3, **right)
        assert time.perf_counter() - started < 0.39  # side by side
        refused, again, none = post_all(server.base_url, map(chat, ("x", "x", "none")), **right)
        assert sorted(statuses(together)) == [200, 200, 429]
        assert statuses([refused, again, none]) == [503, 200, 200]
        assert refused[1]["Retry-After"] == "0.25"
        assert error_of(refused)["code"] == "overloaded"
        assert json.loads(none[2])["choices"][0]["message"]["content"] is None
        assert post(server.base_url, chat("none"), **right)[0] == 200
        assert post(server.base_url, chat("y"), **wrong)[0] == 401
        assert error_of(post(server.base_url, chat("y", "c"), **right))["code"] == "model_not_found"
        assert post(server.base_url, {"model": "m"}, **right)[0] == 400
        stats = server.stats()
        assert (stats["total"], stats["duplicates"], stats["max_in_flight"]) == (10, 1, 2)
        by_status = {"200": 5, "400": 1, "401": 1, "404": 1, "429": 1, "503": 1}
        assert stats["by_status"] == by_status
        record = server.requests[3]
        assert (record.body, record.model, record.status) == (chat("x"), "m", 503)
        server.reset()
        assert (server.stats()["total"], server.requests) == (0, [])
    if how is LoopbackProcess:
        assert server.process.returncode == 0
