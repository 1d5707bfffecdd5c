"""Claude by our own client: Anthropic's messages protocol, at a server on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from calls.support import answered, attempt_against, holds, rows, user_call, word_for
from endtoend import Ran, coverage, grades, osi
from loopback.messages import MessagesServer, Reply, in_events, message, problem, serving
from opensafeintent.calls.client import Client
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_merge import merge_ledgers
from opensafeintent.calls.protocols import WireProtocol
from opensafeintent.calls.protocols.anthropic import MESSAGES
from opensafeintent.calls.protocols.chat_completions import CHAT_COMPLETIONS
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.calls.records import (
    Answered,
    Attempt,
    Call,
    Failure,
    Outcome,
    Refused,
    Replied,
    Sampling,
    Usage,
)
from opensafeintent.calls.replies import read_reply, usage_in
from opensafeintent.errors import InputError
from opensafeintent.templates import load_templates
from opensafeintent.templates.template import Message

NAME = "anthropic/claude-served"
KEY = "sk-ant-0123456789abcdef"
TEXT = "A good note."


pytestmark = pytest.mark.usefixtures("quick_retries")


def variables(base_url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": KEY}


def attempt(reply: Reply, call: Call | None = None) -> tuple[Attempt, MessagesServer]:
    return attempt_against(reply, call or user_call(model=NAME), NAME, variables)


def body_of(call: Call) -> dict[str, Any]:
    return MESSAGES.request(call, "claude-served", ())


def evaluate(out: Path, reply: Reply, *options: object) -> tuple[Ran, MessagesServer]:
    settings = ("--judge", "baseline/judge", "--limit", 2, "--probe", "none", "--out", out)
    with serving(reply) as server:
        return osi("evaluate", NAME, *settings, *options, **variables(server.base_url)), server


# Requests
# ------------------------------------------------------------------------------


def test_what_is_sent() -> None:
    messages = (Message("system", ("Be brief.",)), Message("user", ("Hello.",)))
    sampling = Sampling(max_tokens=77, temperature=0.25, extra={"top_p": 0.5, "stop_seqs": ["#"]})
    call = user_call(model=NAME, messages=messages, sampling=sampling)
    sent = attempt(lambda body: (200, message(TEXT)), call)[1]
    assert sent.requests == [
        {
            "model": "claude-served",
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Hello."}],
            "max_tokens": 77,
            "temperature": 0.25,
            "top_p": 0.5,
            "stop_sequences": ["#"],
        }
    ]
    headers = dict(line.split(": ", 1) for line in sent.headers[0].strip().splitlines())
    assert headers["x-api-key"] == KEY and headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize(
    ("sampling", "fields"),
    [
        ({}, {"max_tokens": 32_000}),
        (
            {"reasoning_effort": "minimal"},
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
        ),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        # a budget counts towards the limit
        (
            {"extra": {"reasoning_tokens": 2000}},
            {
                "thinking": {"type": "enabled", "budget_tokens": 2000, "display": "summarized"},
                "max_tokens": 34_000,
            },
        ),
        (
            {"extra": {"thinking": {"type": "between_tools"}}},
            {"thinking": {"type": "between_tools"}},
        ),
        (
            {"json_schema": {"type": "object"}, "reasoning_effort": "high"},
            {
                "output_config": {
                    "effort": "high",
                    "format": {"type": "json_schema", "schema": {"type": "object"}},
                },
            },
        ),
    ],
)
def test_settings_have_their_own_fields(
    sampling: Mapping[str, Any], fields: Mapping[str, Any]
) -> None:
    body = body_of(user_call(model=NAME, sampling=Sampling(**sampling)))
    assert {name: body[name] for name in fields} == fields
    assert not {"reasoning_effort", "reasoning_tokens", "response_format"} & body.keys()


def test_the_rubric_comes_first_and_is_marked_for_the_cache() -> None:
    """Two requests to a judge are equal up to the end of the rubric, and differ from there on."""
    for template in load_templates().all()[:3]:
        blocks = [
            body_of(user_call(model=NAME, messages=(template.render(prompt, "A response."),)))[
                "messages"
            ][0]["content"]
            for prompt in ("First.", "Second.")
        ]
        (rubric, first), (same, second) = blocks
        assert rubric == same and rubric["cache_control"] == {"type": "ephemeral"}
        assert "cache_control" not in first
        # all of the template but its closing lines: the delimiters of the texts follow
        whole = template.render("First.", "A response.").content
        assert rubric["text"] + first["text"] == whole
        assert len(rubric["text"]) > 0.75 * len(template.body)
        assert first["text"][:4] != second["text"][:4]  # the nonce: nothing equal is left behind


def test_a_prompt_is_sent_as_it_is() -> None:
    reask = (Message("user", ("Rubric.", "text")), Message("assistant", ("no", "pe")))
    sent = body_of(user_call(model=NAME, messages=(*reask, Message("user", ("Again.",)))))
    assert [item["content"] for item in sent["messages"][1:]] == ["nope", "Again."]


# Refused fields
# ------------------------------------------------------------------------------

SETTINGS: dict[str, tuple[Sampling, str, str]] = {
    "a model without a temperature": (
        Sampling(temperature=0.0),
        "`temperature` is deprecated for this model.",
        "temperature",
    ),
    "an extra field": (Sampling(extra={"seed": 1}), "seed: Extra inputs are not permitted", "seed"),
    "one of two": (
        Sampling(temperature=0.5, extra={"top_p": 0.9}),
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        "top_p",
    ),
    "an older model": (
        Sampling(reasoning_effort="high"),
        "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags:"
        " 'disabled', 'enabled'",
        "reasoning_effort",
    ),
    "no effort": (
        Sampling(reasoning_effort="low"),
        "This model does not support the effort parameter.",
        "reasoning_effort",
    ),
    "a newer model": (
        Sampling(extra={"reasoning_tokens": 2000}),
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".',
        "reasoning_tokens",
    ),
    "both at once": (
        Sampling(temperature=0.0, reasoning_effort="high"),
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        "temperature",
    ),
    "no schemas": (
        Sampling(reasoning_effort="high", json_schema={"type": "object"}),
        "output_config.format: Extra inputs are not permitted",
        "response_format",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_field_that_is_refused_is_left_out(name: str) -> None:
    sampling, line, field = SETTINGS[name]
    call = user_call(model=NAME, sampling=sampling)
    without = MESSAGES.request(call, "claude-served", (field,))
    refused = (400, problem("invalid_request_error", line))

    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return (200, message(TEXT)) if body == without else refused

    result, server = attempt(reply, call)
    assert isinstance(result, Replied) and len(result.refused) == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "line",
    [
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        "max_tokens: 99000 > 64000, which is the maximum allowed number of output tokens",
        "prompt is too long: 212345 tokens > 200000 maximum",
    ],
)
def test_a_limit_is_no_refused_field(line: str) -> None:
    sampling = Sampling(max_tokens=99_000, extra={"reasoning_tokens": 99_001})
    refused = (400, problem("invalid_request_error", line))
    result, server = attempt(lambda body: refused, user_call(model=NAME, sampling=sampling))
    assert isinstance(result, Failure) and result.kind == "rejected" and line in result.error
    assert len(server.requests) == 1


# Replies
# ------------------------------------------------------------------------------

REPLIES: dict[str, tuple[str, dict[str, Any]]] = {
    "end_turn": ("answered", message(TEXT)),
    "stop_sequence": ("answered", message(TEXT, stop="stop_sequence")),
    "several blocks": ("answered", message("A good ", "note.")),
    "thinking": ("answered", message(TEXT, thinking="let me think")),
    "max_tokens": ("cut", message(TEXT, stop="max_tokens")),
    "model_context_window_exceeded": ("cut", message(TEXT, stop="model_context_window_exceeded")),
    "max_tokens within thinking": ("truncated", message(thinking="hm", stop="max_tokens")),
    "refusal": ("refused", message(stop="refusal")),
    "refusal of an empty text": ("refused", message("", stop="refusal")),
    "refusal after half an answer": ("cut", message(TEXT, stop="refusal")),
    "an empty answer": ("empty", message()),
    "an empty text": ("empty", message("")),
    "thinking alone": ("reasoning_only", message(thinking="let me think")),
    "redacted thinking alone": (
        "reasoning_only",
        message() | {"content": [{"type": "redacted_thinking", "data": "x"}]},
    ),
    "counted thinking alone": (
        "reasoning_only",
        message(output_tokens_details={"thinking_tokens": 5}),
    ),
    "pause_turn": ("stop_reason:pause_turn", message(stop="pause_turn")),
    "pause_turn with text": ("answered", message(TEXT, stop="pause_turn")),
    "tool_use": (
        "stop_reason:tool_use",
        message(stop="tool_use") | {"content": [{"type": "tool_use", "name": "f", "input": {}}]},
    ),
    "a reason of the future": ("stop_reason:new", message(stop="new")),
    "a reason of the future with text": ("answered", message(TEXT, stop="new")),
    "no reason": ("answered", message(TEXT, stop=None)),
    "nothing at all": ("no_answer", message(tokens=(0, 0))),
    "content that is none": ("malformed", message() | {"content": None}),
    "an error in its place": ("rate_limited", problem("overloaded_error", "Overloaded")),
    "another error in its place": ("server", {"error": {"code": 500, "message": "x"}}),
    "a chat completion": ("malformed", {"choices": [{"message": {"content": TEXT}}]}),
}


@pytest.mark.parametrize("name", REPLIES)
def test_what_a_reply_comes_to(name: str) -> None:
    word, reply = REPLIES[name]
    result, _ = attempt(lambda body: (200, reply))
    assert word_for(result, TEXT) == word
    # of a stored reply the same comes out
    if isinstance(result, Replied):
        assert read_reply(result.body, MESSAGES) == result.outcome


def events(reply: dict[str, Any], *, named: bool = True, first: int = 0) -> bytes:
    """Return a message as a stream, without its first events, and perhaps without their names."""
    lines = b"".join(list(in_events(reply))[first:]).splitlines(keepends=True)
    return b"".join(line for line in lines if named or not line.startswith(b"event:"))


def event(**fields: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(fields).encode()


WHOLE = events(message("A good ", "note.", thinking="let me think"))
OVERLOADED = event(**problem("overloaded_error", "Overloaded"))
BEGUN = WHOLE[: WHOLE.index(b"event: message_delta")]
NULLS = event(type="message_delta", delta={"stop_reason": None}, usage={"input_tokens": None})

BOTH = message(TEXT) | {
    "choices": [{"message": {"content": "Another text."}, "finish_reason": "stop"}]
}
"""A message that is a chat completion as well."""

STREAMS: dict[str, tuple[str, bytes]] = {
    "a stream": ("answered", WHOLE),
    "without names": ("answered", events(message("A good ", "note."), named=False)),
    "cut by the limit": ("cut", events(message(TEXT, stop="max_tokens"))),
    "a refusal": ("refused", events(message(stop="refusal"))),
    "thinking alone": ("reasoning_only", events(message(thinking="let me think"))),
    "with pings": ("answered", b": ping\n\n" + event(type="ping") + WHOLE + event(type="ping")),
    "without the start of a block": (
        "answered",
        re.sub(rb"event: content_block_start\ndata: .*\n\n", b"", WHOLE),
    ),
    "with line ends of two characters": ("answered", WHOLE.replace(b"\n", b"\r\n")),
    "without its last event": ("answered", WHOLE[: WHOLE.index(b"event: message_stop")]),
    "a later event that knows less": ("answered", WHOLE + NULLS),
    "a whole message as one event": ("answered", event(**message(TEXT))),
    "cut within an answer": ("broken_off", BEGUN),
    "cut within an event": ("malformed", WHOLE[: WHOLE.index(b"note.")]),
    "without its first event": ("malformed", events(message(TEXT), first=1)),
    "an error in the middle": ("rate_limited", BEGUN + OVERLOADED),
    "an error alone": ("rate_limited", b"event: error\n" + OVERLOADED),
    "an error without a type": ("rate_limited", BEGUN + event(error={"type": "overloaded_error"})),
    "another error in the middle": ("malformed", BEGUN + event(**problem("api_error", "x"))),
    "a wrong key in a stream": ("unauthorized", event(**problem("authentication_error", "x"))),
    "chunks of another protocol": ("malformed", event(choices=[{"delta": {"content": TEXT}}])),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_events_is_one_message(name: str) -> None:
    word, body = STREAMS[name]
    result, _ = attempt(lambda asked: (200, body))
    assert word_for(result, TEXT) == word
    if word == "answered":
        assert isinstance(result, Replied)
        # 10 and 5, as `message` counts them: the start of a stream has the one, its end the other
        assert result.outcome.usage == Usage(10, 5)
        assert result.outcome.served_model == "claude-served"
        assert read_reply(result.body, MESSAGES) == result.outcome


@pytest.mark.parametrize("reply", [message(TEXT), BOTH], ids=["message", "both"])
@pytest.mark.parametrize("protocol", [MESSAGES, CHAT_COMPLETIONS], ids=lambda each: each.name)
def test_what_an_event_may_hold_is_of_any_type(
    protocol: WireProtocol, reply: dict[str, Any]
) -> None:
    odd = (None, [], {}, 1, True, "x", [[]], {"a": 1})
    parts = [json.loads(each.partition(b"data: ")[2]) for each in in_events(reply)]
    for number, part in enumerate(parts):
        for field in part:
            for value in odd:
                changed = [*parts[:number], part | {field: value}, *parts[number + 1 :]]
                body = b"".join(event(**each) for each in changed)
                with contextlib.suppress(ValueError):  # an outcome, or no reply
                    read_reply(body, protocol)
                usage_in(body, protocol)


ERRORS = {
    (400, "invalid_request_error"): ("rejected", False),
    (401, "authentication_error"): ("unauthorized", False),
    (402, "billing_error"): ("no_credit", False),
    (403, "permission_error"): ("unauthorized", False),
    (404, "not_found_error"): ("unknown_model", False),
    (413, "request_too_large"): ("rejected", False),
    (429, "rate_limit_error"): ("rate_limited", True),
    (500, "api_error"): ("server", True),
    (503, "overloaded_error"): ("rate_limited", True),
    (504, "timeout_error"): ("server", True),
    (529, "overloaded_error"): ("rate_limited", True),
}


@pytest.mark.parametrize(("status", "kind"), ERRORS)
def test_what_an_error_comes_to(status: int, kind: str) -> None:
    result, _ = attempt(lambda body: (status, problem(kind, "There is a problem.")))
    assert isinstance(result, Failure)
    assert (result.kind, result.retry) == ERRORS[status, kind]
    assert result.throttled == (result.kind == "rate_limited")
    assert "There is a problem." in result.error
    assert ("check ANTHROPIC_API_KEY" in result.error) == (result.kind == "unauthorized")
    # its address has no /v1, as its own library wants it
    assert "/v1/v1" not in result.error


def test_a_category_is_told_with_a_refusal() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    reply = message(stop="refusal") | {"stop_details": details}
    result, _ = attempt(lambda body: (200, reply))
    assert isinstance(result, Replied) and isinstance(result.outcome, Refused)
    assert result.outcome.reason == "refusal: cyber"


def test_cached_tokens_are_input_tokens() -> None:
    usage = {"cache_read_input_tokens": 1200, "cache_creation_input_tokens": 30}
    result, _ = attempt(lambda body: (200, message(TEXT, **usage)))
    assert isinstance(result, Replied)
    assert result.outcome.usage == Usage(1240, 5, 1200, 30)
    nulls = {"cache_read_input_tokens": None, "cache_creation_input_tokens": -1}
    result, _ = attempt(lambda body: (200, message(TEXT, **nulls)))
    assert isinstance(result, Replied) and result.outcome.usage == Usage(10, 5)


# Runs
# ------------------------------------------------------------------------------


def test_a_run_with_thinking_that_is_not_graded(tmp_path: Path) -> None:
    reply = (200, message("I can't help with that.", thinking="let me think"))
    ran, server = evaluate(tmp_path / "run", lambda body: reply, "--system", "Be brief.")
    assert (ran.code, ran.errors) == (0, [])
    assert len(server.requests) == 14  # 2 sets of 7 prompts
    assert all(KEY in headers for headers in server.headers)
    ledger = tmp_path / "run" / "ledger.sqlite"
    kept = rows(ledger, "model, status, stop_reason, served_model, input_tokens, output_tokens")
    expected = (NAME, "answered", "end_turn", "claude-served", 10, 5)
    assert {row for row in kept if row[0] == NAME} == {expected}
    assert holds(ledger, "let me think") and not holds(ledger, KEY)
    # without the thinking the answer is a bare refusal
    modes = {row["mode"] for row in grades(tmp_path / "run") if row["variant"] == "dual_use"}
    assert modes == {"A0"}


@pytest.mark.parametrize(
    ("stop", "counted"), [("refusal", "filtered"), ("max_tokens", "truncated")]
)
def test_how_an_answer_ended_is_counted(tmp_path: Path, stop: str, counted: str) -> None:
    texts = () if stop == "refusal" else ("And",)
    evaluate(tmp_path / "run", lambda body: (200, message(*texts, stop=stop)))
    assert coverage(tmp_path / "run", NAME)[counted] == 14


@pytest.mark.slow
def test_overload_is_waited_out(tmp_path: Path) -> None:
    busy = iter([(529, problem("overloaded_error", "Overloaded"))] * 3)
    answer = (200, message("Text."))
    one = ("--max-connections", 1)
    ran, server = evaluate(tmp_path / "run", lambda body: next(busy, answer), *one)
    assert ran.code == 0
    kept = rows(tmp_path / "run" / "ledger.sqlite")
    assert [status for status, error in kept if "rate_limited" in error] == ["failed"] * 3
    assert len(server.requests) == 14 + 3


def test_the_next_run_asks_nothing_again(tmp_path: Path) -> None:
    reply = (200, message(TEXT, thinking="hm"))
    evaluate(tmp_path / "run", lambda body: reply)
    ran, server = evaluate(tmp_path / "run", lambda body: reply)
    assert ran.code == 0 and server.requests == []


@pytest.mark.parametrize("body", [BOTH, event(**BOTH)], ids=["whole", "stream"])
def test_a_stored_reply_is_read_by_the_protocol_that_it_was_asked_in(
    tmp_path: Path, body: dict[str, Any] | bytes
) -> None:
    call = user_call(model=NAME)

    async def run(server: MessagesServer, ledger: Ledger) -> Outcome:
        async with HttpSession() as http:
            model = EndpointModel(NAME, resolve_endpoint(NAME, variables(server.base_url)), http)
            return await Client(ledger, {NAME: model}).ask(call)

    path, merged = tmp_path / "ledger.sqlite", tmp_path / "merged.sqlite"
    with serving(lambda asked: (200, body)) as server, Ledger(path) as ledger:
        outcome = asyncio.run(run(server, ledger))
    assert outcome == Answered(
        text=TEXT, stop_reason="end_turn", usage=Usage(10, 5), served_model="claude-served"
    )
    merge_ledgers([path], merged)
    for file in (path, merged):
        with Ledger(file, readonly=True) as ledger:
            assert ledger.find(Client(ledger, {NAME: NAME}).compute_key(call)) == outcome
            assert [each.input_tokens for each in ledger.attempts()] == [10]
            assert rows(file, "protocol") == [("messages",)]


def test_a_body_of_both_protocols_is_judged_and_exported_as_one_text(tmp_path: Path) -> None:
    ran, _ = evaluate(tmp_path / "run", lambda asked: (200, BOTH))
    assert ran.code == 0
    out = tmp_path / "out.jsonl"
    options = ("--format", "jsonl", "--include-unsafe", "--out", out)
    assert osi("export", tmp_path / "run", *options).code == 0
    assert {json.loads(line)["response"] for line in out.read_text().splitlines()} == {TEXT}


def test_a_protocol_that_nobody_knows_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.add(answered("q"))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE calls SET protocol = 'x'")
    with Ledger(path, readonly=True) as ledger, pytest.raises(InputError, match="protocol x"):
        ledger.find(answered("q").key)
