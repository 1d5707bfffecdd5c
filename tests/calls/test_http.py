"""One attempt against an endpoint: what is sent, and what each kind of answer comes to."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import Callable

import pytest

from calls.support import KEY, MODEL, chat_model, user_call
from loopback import Fault, LoopbackServer, Match, answer_text
from opensafeintent.calls import http as module
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.protocols import WireProtocol
from opensafeintent.calls.protocols.anthropic import MESSAGES
from opensafeintent.calls.protocols.chat_completions import CHAT_COMPLETIONS
from opensafeintent.calls.providers import (
    name_variables,
    parse_provider,
    resolve_endpoint,
)
from opensafeintent.calls.records import Answered, Attempt, Call, Failure, Replied, Sampling
from opensafeintent.errors import InputError
from opensafeintent.secrets import Secrets
from opensafeintent.templates.template import Message

# What two services add to a rate limit that passes in seconds, for those who have not paid yet;
# shortened from https://github.com/continuedev/continue/issues/10920 and
# https://github.com/openai/openai-cookbook/issues/141
GROQ = "Rate limit reached. Need more? Upgrade at https://console.groq.com/settings/billing"
OPENAI = "Limit 3 / min. Visit https://platform.openai.com/account/billing to add a payment method."


def attempts(base_url: str, *calls: Call) -> list[Attempt]:
    """Make one attempt after another with one model."""

    async def run() -> list[Attempt]:
        async with HttpSession() as http:
            model = chat_model(base_url, http)
            return [await model.attempt(call) for call in calls]

    return asyncio.run(run())


def attempt(base_url: str, call: Call | None = None) -> Attempt:
    return attempts(base_url, call or user_call())[0]


def failure(fault: Fault) -> Failure:
    """Return what one fault of the server comes to."""
    with LoopbackServer(faults=[fault]) as server:
        result = attempt(server.base_url)
    assert isinstance(result, Failure)
    assert "\n" not in result.error
    return result


def status(number: int, **fields: object) -> Fault:
    return Fault(action="status", status=number, **fields)  # type: ignore[arg-type]


def body(number: int, content: bytes) -> Fault:
    return Fault(action="body", status=number, body=content)


# What is sent
# ------------------------------------------------------------------------------


def test_the_request_is_the_call() -> None:
    messages = (Message("system", ("Be ", "brief.")), Message("user", ("Tell me of boats.",)))
    fields = {"max_tokens": 64, "temperature": 0.5, "reasoning_effort": "low"}
    extra = {"seed": 7, "stop": ["\n"]}
    sampling = Sampling(**fields, extra=extra)
    with LoopbackServer() as server:
        result = attempt(server.base_url, user_call(messages=messages, sampling=sampling))
        (request,) = server.requests
    sent = [{"role": "system", "content": "Be brief."}]
    sent += [{"role": "user", "content": "Tell me of boats."}]
    assert request.body == {"model": "m", "messages": sent, **fields, **extra}
    assert isinstance(result, Replied)
    assert isinstance(result.outcome, Answered)
    assert result.outcome.text == answer_text("m", ["Be brief.", "Tell me of boats."])


@pytest.mark.parametrize("protocol", [CHAT_COMPLETIONS, MESSAGES], ids=["chat", "messages"])
def test_a_null_of_the_user_takes_a_setting_out(protocol: WireProtocol) -> None:
    extra = {"temperature": None, "seed": None, "top_p": 0.9}
    body = protocol.request(user_call(sampling=Sampling(temperature=0.5, extra=extra)), "m", ())
    assert body["top_p"] == 0.9
    assert body.keys().isdisjoint(("temperature", "seed"))


# Fields that a model does not take
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "error_fields"),
    [
        ("temperature", {"code": "unsupported_value", "param": "temperature"}),
        ("reasoning_effort", {"message": "'reasoning_effort' is not supported by this model"}),
    ],
)
def test_a_field_that_is_not_supported_is_left_out_from_then_on(
    field: str, error_fields: dict[str, str]
) -> None:
    call = user_call(sampling=Sampling(max_tokens=9, temperature=0.0, reasoning_effort="low"))
    with LoopbackServer(faults=[status(422, match=Match(has=field), **error_fields)]) as server:
        results = attempts(server.base_url, call, call)
        sent = [request.body.keys() for request in server.requests]
    assert all(isinstance(result, Replied) for result in results)
    kinds = [[refused.kind for refused in result.refused] for result in results]
    assert kinds == [["unsupported_field"], []]
    everything = {"model", "messages", "max_tokens", "temperature", "reasoning_effort"}
    assert sent == [everything, everything - {field}, everything - {field}]


def test_calls_that_were_on_their_way_learn_of_it_too() -> None:
    call = user_call(sampling=Sampling(max_tokens=9, temperature=0.0))
    faults = [
        status(400, code="unsupported_value", param=name, seconds=0.05, match=Match(has=name))
        for name in ("max_tokens", "temperature")
    ]

    async def run(base_url: str) -> list[Attempt]:
        async with HttpSession() as http:
            model = chat_model(base_url, http)
            first = [asyncio.ensure_future(model.attempt(call)) for _ in range(4)]
            await asyncio.sleep(0.08)  # those are refused, and tried without a field
            return await asyncio.gather(*first, *(model.attempt(call) for _ in range(4)))

    with LoopbackServer(faults=faults) as server:
        results = asyncio.run(run(server.base_url))
        sent = server.requests[-1].body
    assert all(isinstance(result, Replied) for result in results)
    # four learn of two fields each, and those that come meanwhile wait for what they learn
    assert [len(result.refused) for result in results] == [2] * 4 + [0] * 4
    assert sent.keys() == {"model", "messages", "max_completion_tokens"}


# Failures
# ------------------------------------------------------------------------------


ONCE_MORE, FATAL, ALONE = (True, False, False), (False, True, False), (False, False, False)
LATER = (True, False, True)


@pytest.mark.parametrize(
    ("fault", "kind", "what"),
    [
        *((status(number), "server", ONCE_MORE) for number in (500, 503, 408)),
        *((Fault(action=how), "connection", ONCE_MORE) for how in ("drop", "reset", "truncate")),
        (Fault(action="malformed"), "malformed", ONCE_MORE),
        (status(200, message="try later", code=503), "server", ONCE_MORE),  # as some gateways do
        *((status(number), "unauthorized", FATAL) for number in (401, 403)),
        (status(402), "no_credit", FATAL),
        (status(404), "unknown_model", FATAL),
        (status(400, code="model_not_found"), "unknown_model", FATAL),
        (status(400, message="The model `m` does not exist"), "rejected", ALONE),
        (status(403, code="permission-denied", type="x"), "forbidden", ALONE),
        (status(429, code="insufficient_quota"), "no_credit", FATAL),
        (status(429, code="insufficient_quota", retry_after=3), "rate_limited", LATER),
        *((status(number), "rate_limited", LATER) for number in (498, 529)),
        (status(200, code=401), "unauthorized", FATAL),
        (status(400, code="context_length_exceeded"), "rejected", ALONE),
        *(
            (status(429, message=message), "rate_limited", LATER)
            for message in (None, GROQ, OPENAI)
        ),
    ],
    ids=repr,
)
def test_what_an_attempt_comes_to(fault: Fault, kind: str, what: tuple[bool, ...]) -> None:
    result = failure(fault)
    assert (result.kind, (result.retry, result.fatal, result.throttled)) == (kind, what)


@pytest.mark.parametrize(
    ("name", "base_url", "message", "hint"),
    [
        (MODEL, "http://h:1", "Not Found", "up to /chat/completions, perhaps http://h:1/v1)"),
        (MODEL, "http://h:1/v1beta/x", "Not Found", "up to /chat/completions)"),
        # the server was reached, and does not know the model
        (MODEL, "http://h:1", "The model `m` does not exist.", ""),
        ("perplexity/sonar", "", "Not Found", ""),
        ("anthropic/claude", "", "not_found", ""),
        ("anthropic/claude", "https://gw.example/anthropic", "no", "up to /v1/messages)"),
    ],
)
def test_a_404_says_what_a_base_url_is_if_it_may_be_wrong(
    name: str, base_url: str, message: str, hint: str
) -> None:
    variables = name_variables(parse_provider(name))
    environment = dict(zip(variables, (base_url, "sk-0123456789"), strict=True))

    async def run() -> str:
        async with HttpSession() as http:
            model = EndpointModel(name, resolve_endpoint(name, environment), http)
            body = json.dumps({"error": {"message": message}}).encode()
            result, _ = model.classify_reply({}, 404, body, {}, 0.1)
            assert isinstance(result, Failure)
            return result.error

    error = asyncio.run(run())
    if hint:
        assert error.endswith(f" (is {variables[0]} right? expected the server's address {hint}")
    else:
        assert error.endswith(message)


def test_a_reply_without_end_is_not_heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_REPLY", 2**20)
    result = failure(Fault(action="completion", content="x" * 2**20))
    assert (result.kind, result.retry) == ("malformed", False)
    assert re.fullmatch("200 from http://127.0.0.1:.* a reply of more than 1 MiB", result.error)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0.5", 0.5),
        ("86400", 300),
        ("-5", 0),
        *((absurd, None) for absurd in ("soon", "Infinity", "nan", "1e400", "9" * 5000)),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300),
        *((f"Fri, 31 Dec {year} 23:59:59", None) for year in (99999, -1, "9" * 50)),
    ],
)
def test_retry_after_is_read_in_seconds(value: str, seconds: float | None) -> None:
    # Five minutes are the most that is waited: a provider that names a day is asked again before.
    assert failure(status(429, headers={"Retry-After": value})).retry_after == seconds


def test_silence_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPT_SECONDS", 0.2)
    started = time.monotonic()
    result = failure(Fault(action="hang", seconds=30))
    assert (result.kind, result.retry) == ("connection", True)
    assert time.monotonic() - started < 5
    assert 0.15 < result.seconds < 5


HOSTILE = (b'{"error": ' + b"[" * 5_000, b'{"error": {"message": "' + b"x" * 100_000, b"\xff\xfe")


@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_error_body_is_a_short_failure(content: bytes) -> None:
    result = failure(body(500, content))
    assert result.kind == "server"
    assert len(result.error) < 500


HUGE = 32 * 2**20
"""Bytes of an error.

Each character of it was looked at for what a terminal might make of it, which took a second a MiB.
"""


HUGE_ONES = (
    b'{"error": {"message": "' + b"\\u0073\\u006b" * (HUGE // 12) + b'"}}',
    b'{"error": {"code": ' + b"[[]," * (HUGE // 4) + b"0]}}",
    b"\xe2\x80\xae" * (HUGE // 3),
)


@pytest.mark.parametrize("content", HUGE_ONES, ids=["the key's characters", "arrays", "no JSON"])
def test_a_huge_error_does_not_hold_up_the_others(content: bytes) -> None:
    async def run(base_url: str) -> tuple[Attempt, float]:
        longest = 0.0

        async def heartbeats() -> None:
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0.005)
                longest = max(longest, time.perf_counter() - before)

        async with HttpSession() as http:
            watching = asyncio.ensure_future(heartbeats())
            result = await chat_model(base_url, http).attempt(user_call())
            watching.cancel()
            return result, longest

    with LoopbackServer(faults=[body(400, content)]) as server:
        result, longest = asyncio.run(run(server.base_url))
    assert isinstance(result, Failure)
    assert result.kind == "rejected"
    assert len(result.error) < 500
    assert len(result.body) <= 2**20
    assert longest < 5  # it was half a minute


# Secrets and proxies
# ------------------------------------------------------------------------------


ESCAPED = [
    "".join(f"\\u{ord(char):04x}" for char in KEY),
    "".join(f"\\u{ord(char):04X}" for char in KEY),
    "".join(f"\\u{ord(char):04x}" if n % 3 else char for n, char in enumerate(KEY)),
    f"\\u{ord(KEY[0]):04x}{KEY[1:]}",
    "".join(f"\\\\u{ord(char):04x}" for char in KEY),  # JSON within JSON
]


@pytest.mark.parametrize("number", [200, 400, 500])
@pytest.mark.parametrize("written", ESCAPED)
def test_a_key_that_comes_back_in_escapes_is_in_no_reply(number: int, written: str) -> None:
    error_object = f'{{"message":"Your key is {written}."}}'
    reply_body = f'{{"error":{error_object},"choices":[{{"message":{{"content":"It is {written}\\u00e9"}}}}]}}'
    with LoopbackServer(faults=[body(number, reply_body.encode())]) as server:
        result = attempt(server.base_url)
    kept = result.body.decode() + str(result)
    assert "***" in kept
    assert written not in kept
    assert KEY not in kept and KEY not in json.loads(result.body)["error"]["message"]


@pytest.mark.parametrize("key", ["sk/loop/back", 'a"b\\c-d\u00e9f', "\U0001f511-and-a-key"])
def test_characters_of_a_key_may_be_escaped(key: str) -> None:
    secrets = Secrets([key, "short"])
    written = (key, json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1])
    for form in (*written, key.replace("/", r"\/"), key.replace("/", r"\u002f")):
        assert (secrets.scrub_bytes(form.encode()), secrets.scrub(form)) == (b"***", "***")
    assert secrets.scrub_bytes(rb"sk\u003floop/back, short") == rb"sk\u003floop/back, short"
    assert Secrets([]).scrub_bytes(rb"\u0041") == rb"\u0041"


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what names a proxy in the environment."""
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return lambda proxy: monkeypatch.setenv("HTTP_PROXY", proxy)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_stands_between_us_and_this_machine(
    through: Callable[[str], None], host: str
) -> None:
    through("http://127.0.0.1:9")
    with LoopbackServer() as server:
        result = attempt(server.base_url.replace("127.0.0.1", host))
    assert isinstance(result, Replied)


@pytest.mark.parametrize("before", ["http://", ""])
def test_a_proxy_is_used_for_other_machines(through: Callable[[str], None], before: str) -> None:
    with LoopbackServer() as proxy:
        through(before + proxy.base_url.removeprefix("http://").removesuffix("/v1"))
        result = attempt("http://model.invalid/v1")
    # The loopback server is no proxy: it tells the address that it was asked for, and that it does
    # not know it.
    assert isinstance(result, Failure)
    assert "POST http://model.invalid/v1/chat/completions" in result.error


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxys_password_reaches_the_proxy_and_nothing_else(
    through: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    heads: list[bytes] = []

    async def run() -> Attempt:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        through(f"http://user:p%40ss-w%C3%B6rd@127.0.0.1:{port}")
        monkeypatch.setenv("HTTPS_PROXY", os.environ["HTTP_PROXY"])
        async with server, HttpSession() as http:
            return await chat_model(f"{scheme}://model.invalid/v1", http).attempt(user_call())

    result = asyncio.run(run())
    assert isinstance(result, Failure)
    (head,) = heads
    starts = {"http": b"POST http://model.invalid/", "https": b"CONNECT model.invalid:443 "}
    assert head.startswith(starts[scheme])
    assert b"Proxy-Authorization: Basic " + base64.b64encode("user:p@ss-w\u00f6rd".encode()) in head
    assert (scheme == "https") is (b"Authorization: Bearer" not in head)
    assert not re.search("user|p%40ss|w\u00f6rd", result.error)


def test_a_dead_proxy_is_told_without_its_password(through: Callable[[str], None]) -> None:
    through("http://user:secret@127.0.0.1:9")
    result = attempt("http://model.invalid/v1")
    assert isinstance(result, Failure)
    assert "127.0.0.1:9" in result.error
    assert "secret" not in result.error


NO_PROXIES = (
    *("socks5://user:secret@proxy.example:1080", "ftp://user:secret@proxy.example"),
    *("http://user:sec#ret@proxy.example:3128", "http://user:sec/secret@proxy.example:3128"),
    *("http://user:secret@proxy.example:port", "http://user:secret@:3128"),
    *("http://user:secret@proxy..example", "http://us%3Aer:secret@proxy.example"),
    *("secret://", "user:secret@[::1"),
)


@pytest.mark.parametrize("proxy", NO_PROXIES)
def test_a_proxy_that_cannot_be_used_is_told_by_its_variable(
    through: Callable[[str], None], proxy: str
) -> None:
    through(proxy)
    with pytest.raises(InputError, match=r"^HTTP_PROXY: is not the address") as refused:
        attempt("http://model.invalid/v1")
    assert not re.search("secret|sec#|user|us%3A", str(refused.value))
