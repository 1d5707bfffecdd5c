"""Claude by our own client: Anthropic's messages protocol, at a server on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from calls.support import holds, rows, user_call
from endtoend import Ran, coverage, grades, osi
from loopback.messages import MessagesServer, Reply, message, problem, serving
from opensafeintent.calls import client as client_module
from opensafeintent.calls.client import Client
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.protocols.anthropic import MESSAGES
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.calls.records import (
    Answered,
    Attempt,
    Call,
    Failure,
    Refused,
    Replied,
    Sampling,
    Usage,
)
from opensafeintent.templates import load_templates
from opensafeintent.templates.template import Message

NAME = "anthropic/claude-served"
KEY = "sk-ant-0123456789abcdef"
TEXT = "A good note."


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.001)


def variables(server: MessagesServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}


def attempt(reply: Reply, call: Call | None = None) -> tuple[Attempt, MessagesServer]:
    """Make one attempt, and those without refused fields that belong to it."""

    async def run(server: MessagesServer) -> Attempt:
        async with HttpSession() as http:
            model = EndpointModel(NAME, resolve_endpoint(NAME, variables(server)), http)
            return await model.attempt(call or user_call(model=NAME))

    with serving(reply) as server:
        return asyncio.run(run(server)), server


def body_of(call: Call) -> dict[str, Any]:
    return MESSAGES.request(call, "claude-served", ())


def evaluate(out: Path, reply: Reply, *options: object) -> tuple[Ran, MessagesServer]:
    settings = ("--judge", "baseline/judge", "--limit", 2, "--probe", "none", "--out", out)
    with serving(reply) as server:
        return osi("evaluate", NAME, *settings, *options, **variables(server)), server


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


def word_for(result: Attempt) -> str:
    match result:
        case Failure(kind=kind):
            return kind
        case Replied(outcome=Refused()):
            return "refused"
        case Replied(outcome=Answered() as answer):
            if answer.text:
                assert answer.text == TEXT
                return "cut" if answer.truncated else "answered"
            if answer.truncated:
                return "truncated"
            return "reasoning_only" if answer.reasoning_only else "empty"
    raise AssertionError(result)


@pytest.mark.parametrize("name", REPLIES)
def test_what_a_reply_comes_to(name: str) -> None:
    word, reply = REPLIES[name]
    result, _ = attempt(lambda body: (200, reply))
    assert word_for(result) == word
    # of a stored reply, by its form alone, the same comes out
    if isinstance(result, Replied):
        from opensafeintent.calls.replies import read_reply

        assert read_reply(result.body, stored=True) == result.outcome


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


def test_ledger_rows_are_read_by_their_form(tmp_path: Path) -> None:
    call = user_call(model=NAME)

    async def run(server: MessagesServer, ledger: Ledger) -> None:
        async with HttpSession() as http:
            model = EndpointModel(NAME, resolve_endpoint(NAME, variables(server)), http)
            await Client(ledger, {NAME: model}).ask(call)

    path = tmp_path / "ledger.sqlite"
    with serving(lambda body: (200, message(TEXT))) as server, Ledger(path) as ledger:
        asyncio.run(run(server, ledger))
    with Ledger(path, readonly=True) as ledger:
        client = Client(ledger, {NAME: NAME})
        assert ledger.find(client.key_of(call)) == Answered(
            text=TEXT, stop_reason="end_turn", usage=Usage(10, 5), served_model="claude-served"
        )
    assert json.loads(msgspec.json.encode(call.messages))[0]["role"] == "user"
