"""Keys of calls, and how a chat completion is read."""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from opensafeintent.calls.records import Answered, Call, Sampling, Subject, Usage, call_key
from opensafeintent.calls.replies import read_reply, without_thinking
from opensafeintent.templates.template import Message

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


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": "openai/y"},
        {"messages": (Message("system", ("Be brief.",)), Message("user", ("Tell me of ships.",)))},
        {"messages": (Message("user", ("Be brief.",)), Message("user", ("Tell me of boats.",)))},
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


PARTS = (Message("system", ("Be ", "brief.")), Message("user", ("Tell me of boats.",)))
SAMPLING = Sampling(temperature=0.0, extra={"a": 1, "b": [{"c": 1, "d": 2}]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"model": "another name for it"}),
        ({}, {"purpose": "harm", "template": "osi-harm/1", "template_hash": "ab"}),
        ({}, {"subject": Subject("set", "benign", 1)}),
        ({}, {"messages": PARTS}),
        ({}, {"sampling": Sampling(max_tokens=64, temperature=0.5, extra={})}),
        # 0 is 0.0 once it has been through run.json
        (
            {"sampling": SAMPLING},
            {"sampling": Sampling(temperature=0, extra={"b": [{"d": 2, "c": 1}], "a": 1})},
        ),
    ],
)
def test_key_does_not_change_with_what_the_model_never_sees(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert key(**one) == key(**other)


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
    "body",
    [
        b"",
        b"[]",
        b'{"choices": null}',
        b'{"choices": [{"message": {"content": "cut',
        b'{"choices": [{"message": {"content": "\xff"}}]}',
        pytest.param(b'{"error": ' + b"[" * 5_000, id="nested deeply"),
    ],
)
def test_what_is_no_completion_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="the reply"):
        read_reply(body)
