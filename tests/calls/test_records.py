"""Keys of calls, and how a chat completion is read."""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from calls.support import user_call
from opensafeintent.calls.records import Answered, Call, Refused, Sampling, Subject, Usage, call_key
from opensafeintent.calls.replies import read_reply, without_thinking
from opensafeintent.messages import Message

CALL = Call(
    model="openai/x",
    messages=(Message("system", ("Be brief.",)), Message("user", ("Tell me ", "of boats."))),
    sampling=Sampling(max_tokens=64, temperature=0.5),
    purpose="generate",
    epoch=2,
    attempt=1,
)


def key(call: Call = CALL, identity: str = "openai/x", **changes: Any) -> str:
    return call_key(msgspec.structs.replace(call, **changes), identity).hex()


def completion(message: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps(
        {"choices": [{"message": message, "finish_reason": "stop"}], **fields}
    ).encode()


# Keys
# ------------------------------------------------------------------------------


def test_key_is_the_hash_of_sorted_json() -> None:
    # Written out by hand: every object's keys in alphabetical order, no white space.
    text = (
        '{"attempt":1,"epoch":2,'
        '"messages":[{"content":"Be brief.","role":"system"},{"content":"Tell me of'
        ' boats.","role":"user"}],'
        '"model":"openai/x","sampling":{"max_tokens":64,"temperature":0.5}}'
    )
    assert key() == sha256(text.encode()).hexdigest()


def test_key_sorts_the_sampling_fields_too() -> None:
    # canonical_json promises sorted keys: extra < max_tokens < reasoning_effort < temperature.
    call = Call(
        model="m",
        messages=(Message("user", ("Hi",)),),
        sampling=Sampling(
            max_tokens=1, temperature=0.5, reasoning_effort="low", extra={"top_p": 1, "seed": 7}
        ),
        purpose="generate",
    )
    sampling = (
        '{"extra":{"seed":7,"top_p":1},"max_tokens":1,"reasoning_effort":"low","temperature":0.5}'
    )
    text = f'{{"attempt":0,"epoch":1,"messages":[{{"content":"Hi","role":"user"}}],"model":"m","sampling":{sampling}}}'
    assert call_key(call, "m") == sha256(text.encode()).digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": "openai/y"},
        {"messages": (Message("system", ("Be brief.",)), Message("user", ("Tell me of ships.",)))},
        {"messages": (Message("user", ("Be brief.",)), Message("user", ("Tell me of boats.",)))},
        {"messages": (Message("user", ("Tell me of boats.",)),)},
        {"sampling": Sampling(max_tokens=65, temperature=0.5)},
        {"sampling": Sampling(max_tokens=64)},
        {"sampling": Sampling(max_tokens=64, temperature=0.0)},
        {"sampling": Sampling(max_tokens=64, temperature=0.5, reasoning_effort="low")},
        {"sampling": Sampling(max_tokens=64, temperature=0.5, extra={"top_p": 0.9})},
        {"epoch": 1},
        {"attempt": 0},
    ],
)
def test_key_changes_with_what_shapes_the_answer(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "another name for it"},
        {"purpose": "harm"},
        {"template": "osi-harm/1", "template_hash": "ab"},
        {"subject": Subject("set", "benign", 1)},
        {
            "messages": (
                Message("system", ("Be ", "brief.")),
                Message("user", ("Tell me of boats.",)),
            )
        },
        {"sampling": Sampling(max_tokens=64, temperature=0.5, reasoning_effort=None, extra={})},
    ],
)
def test_key_does_not_change_with_what_the_model_never_sees(changes: dict[str, Any]) -> None:
    assert key(**changes) == key()


def test_key_ignores_the_order_of_extra_fields() -> None:
    one, other = (
        Sampling(extra={"a": 1, "b": [{"c": 1, "d": 2}]}),
        Sampling(extra={"b": [{"d": 2, "c": 1}], "a": 1}),
    )
    assert key(sampling=one) == key(sampling=other)


def test_key_of_a_whole_temperature_does_not_depend_on_how_it_was_written() -> None:
    # `Sampling(temperature=0)` in Python is 0.0 once it has been through run.json, and the calls
    # have to be found again.
    assert key(sampling=Sampling(temperature=0)) == key(sampling=Sampling(temperature=0.0))


def test_a_message_is_its_parts_joined() -> None:
    assert Message("user", ("a", "", "b\n")).content == "ab\n"
    assert user_call("x").messages[0].content == "x"


# Thinking
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no tags, 1 < 2", "no tags, 1 < 2"),
        ("<think>plan</think>answer", "answer"),
        ("<THINK>plan</Think>answer", "answer"),
        ("<think>line\nline\n</think>\nanswer", "\nanswer"),
        ("<think>a</think>one<think>b</think>two", "onetwo"),
        ("<think>a <think>b</think> c</think>answer", "answer"),
        ("plan that never ends <think>and more", "plan that never ends "),
        ("<think>never ended, cut by the limit", ""),
        ("plan, its opening swallowed</think>answer", "answer"),
        ("plan</think>more plan</THINK>answer", "answer"),
        ("plan</think>answer<think>afterthought", "answer"),
        ("<think></think>", ""),
        (
            "text</thi<think></think>nk>0",
            "text< /think>0",
        ),  # a tag that taking off a block brings about
        ("a<thi<think>b</think>nk>c", "a< think>c"),
        ("a <thinker> and a <b>bold</b> word", "a <thinker> and a <b>bold</b> word"),
    ],
)
def test_thinking_is_taken_off(text: str, rest: str) -> None:
    assert without_thinking(text) == rest


def test_thinking_is_taken_off_in_linear_time() -> None:
    # Model text is hostile: 8,000 openings are 56 kB, and reading them must not hold up every other
    # call.
    started = time.process_time()
    assert without_thinking("<think>" * 8_000) == ""
    assert time.process_time() - started < 0.25


# Replies
# ------------------------------------------------------------------------------


def test_an_answer_is_read_with_its_usage_and_the_model_that_served_it() -> None:
    body = completion(
        {"content": " Hello. \n"},
        usage={"prompt_tokens": 7, "completion_tokens": 3},
        model="m-2026-01-01",
    )
    assert read_reply(body) == Answered(
        text="Hello.", stop_reason="stop", usage=Usage(7, 3), served_model="m-2026-01-01"
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "x", "reasoning_content": "secret plan", "reasoning": "plan"}, "x"),
        ({"content": "<think>plan</think> x"}, "x"),
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({"content": "", "refusal": "I cannot."}, "I cannot."),
        (
            {"content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            "one two",
        ),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "p"}]},
                    {"type": "text", "text": "x"},
                ]
            },
            "x",
        ),
    ],
)
def test_text_is_what_the_model_said_and_not_what_it_thought(
    message: dict[str, Any], text: str
) -> None:
    assert read_reply(completion(message)) == Answered(text=text, stop_reason="stop")


@pytest.mark.parametrize(
    "usage", [{}, {"usage": None}, {"usage": {}}, {"usage": {"prompt_tokens": None}}]
)
def test_missing_usage_is_no_tokens(usage: dict[str, Any]) -> None:
    outcome = read_reply(completion({"content": "x"}, **usage))
    assert outcome.usage == Usage(0, 0)


def test_a_filtered_answer_is_a_refusal_by_the_provider() -> None:
    body = (
        b'{"choices":[{"message":{"content":"It'
        b' beg"},"finish_reason":"content_filter"}],"usage":{"prompt_tokens":5}}'
    )
    assert read_reply(body) == Refused(reason="content_filter", usage=Usage(5, 0))


@pytest.mark.parametrize(
    ("stop", "truncated"),
    [
        ("stop", False),
        (None, False),
        ("length", True),
        ("max_tokens", True),
        ("model_length", True),
    ],  # the last is Mistral's
)
def test_an_answer_knows_whether_the_limit_cut_it(stop: str | None, truncated: bool) -> None:
    outcome = read_reply(
        json.dumps({"choices": [{"message": {"content": "x"}, "finish_reason": stop}]}).encode()
    )
    assert isinstance(outcome, Answered)
    assert outcome.truncated is truncated


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{"message": {"content": "cut',
        b'{"choices": [{"message": {"content": "\xff"}}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": {}}',
        pytest.param(b'{"error": ' + b"[" * 5_000, id="nested deeply"),
    ],
)
def test_what_is_no_completion_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="the reply"):
        read_reply(body)


# https://github.com/genkit-ai/genkit/pull/6259 lists what compatible services send: a gateway that
# lost the model half-way has said 200 already, and so has DeepSeek when it runs out of machines.
@pytest.mark.parametrize("stop", ["error", "network_error", "insufficient_system_resource"])
@pytest.mark.parametrize("text", ["", "Half of an ans"])
def test_an_answer_that_the_service_broke_off_is_no_answer(stop: str, text: str) -> None:
    # Taken for one, an empty text would be graded as a refusal: safe, and of no help.
    body = {
        "choices": [
            {
                "message": {"content": text},
                "finish_reason": stop,
                "error": {"message": "upstream is gone"},
            }
        ]
    }
    with pytest.raises(ValueError, match=stop):
        read_reply(json.dumps(body).encode())


def test_an_error_in_place_of_choices_is_told() -> None:
    with pytest.raises(ValueError, match="overloaded"):
        read_reply(b'{"error": {"message": "overloaded"}}')


def test_an_answer_cut_within_a_character_is_an_answer() -> None:
    reply = read_reply(
        b'{"choices": [{"message": {"content": "So \\ud83d"}, "finish_reason": "length"}]}'
    )
    assert reply == Answered(text="So \ufffd", stop_reason="length")
