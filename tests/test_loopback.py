"""The loopback server does what the other tests rely on it for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest

from loopback import Fault, LoopbackProcess, LoopbackServer, Match, answer_text

ASK = {
    "generate": "Write a note about boats.",
    "probe": 'Choose. Answer with {"strategy": "..."}',
    "mode": 'Classify. Answer with {"mode": "..."}',
    "helpfulness": "Reply with one integer from 1 to 4.",
    "harm": "Reply with one integer from 0 to 3.",
}


def chat(text: str, model: str = "m", **fields: Any) -> dict[str, Any]:
    roles = {"system": "s", "user": text}
    messages = [{"role": role, "content": content} for role, content in roles.items()]
    return {"model": model, "messages": messages, **fields}


def post_all(
    base_url: str, bodies: Iterable[Any], *, at_once: int = 1, **options: Any
) -> list[tuple[int, Any, Any]]:
    """Post the bodies; gives (status, headers, text or exception) of each, in their order."""

    async def run() -> list[tuple[int, Any, Any]]:
        async def post_body(body: Any) -> tuple[int, Any, Any]:
            try:
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    return response.status, response.headers, await response.text()
            except (aiohttp.ClientError, TimeoutError) as error:
                return 0, {}, error

        connector = aiohttp.TCPConnector(limit=at_once)
        async with aiohttp.ClientSession(connector=connector, **options) as session:
            return await asyncio.gather(*map(post_body, bodies))

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
    content = json.loads(replies[0][2])["choices"][0]["message"]["content"]
    assert content == answer_text("m", ["s", ASK[purpose]], purpose)
    allowed = {
        "probe": r'\{"strategy": "(full|constrained|refuse)"\}',
        "mode": r'\{"mode": "A[0-4]"\}',
        "helpfulness": "[1-4]",
        "harm": "[0-3]",
        "generate": "(?s).{900,1500}",
    }
    assert re.fullmatch(allowed[purpose], content)
    assert [record.purpose for record in first.requests] == [purpose, purpose]


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


@pytest.mark.slow
@pytest.mark.parametrize("how", [LoopbackServer, LoopbackProcess])
def test_what_is_counted_recorded_and_answered(how: Any) -> None:
    limits = {"latency": 0.2, "api_key": "k", "models": ["m"], "rate_limit": 2, "record": True}
    right, wrong = ({"headers": {"Authorization": f"Bearer {key}"}} for key in ("k", "l"))
    faults = [
        Fault(action="status", status=503, retry_after=0.25, match=Match(contains="x", first=1)),
        Fault(action="completion", content=None, match=Match(contains="none", purpose="generate")),
    ]
    with how(faults=faults, **limits) as server:
        together = post_all(server.base_url, [chat(text) for text in "abc"], at_once=3, **right)
        assert sorted(statuses(together)) == [200, 200, 429]
        bodies = [chat("x"), chat("x"), chat("none"), chat("none"), chat("y", "c"), {"model": "m"}]
        refused, again, none, *further = post_all(server.base_url, bodies, **right)
        assert statuses([refused, again, none, *further]) == [503, 200, 200, 200, 404, 400]
        assert refused[1]["Retry-After"] == "0.25"
        assert error_of(refused)["code"] == "overloaded"
        assert error_of(further[1])["code"] == "model_not_found"
        assert json.loads(none[2])["choices"][0]["message"]["content"] is None
        assert post(server.base_url, chat("y"), **wrong)[0] == 401
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
