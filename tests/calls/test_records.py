"""Keys of calls, and how a chat completion is read."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from opensafeintent.calls.records import Answered, Call, Sampling, Usage, call_key
from opensafeintent.calls.replies import read_reply
from opensafeintent.templates.template import Message


def messages(*texts: str, first: str = "system") -> tuple[Message, ...]:
    """Return a first message of one part, and a user's of the other parts."""
    return Message(first, (texts[0],)), Message("user", texts[1:])


def sampling(**fields: Any) -> Sampling:
    return Sampling(**({"max_tokens": 64, "temperature": 0.5} | fields))


CALL = Call(
    model="openai/x",
    messages=messages("Be brief.", "Tell me ", "of boats."),
    sampling=sampling(),
    purpose="generate",
    epoch=2,
    attempt=1,
)


def key(call: Call = CALL, identity: str = "openai/x", **changes: Any) -> str:
    return call_key(msgspec.structs.replace(call, **changes), identity).hex()


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
        *({"identity": "openai/y"}, {"epoch": 1}, {"attempt": 0}),
        {"messages": messages("Be brief.", "Tell me of ships.")},
        {"messages": messages("Be brief.", "Tell me of boats.", first="user")},
        *({"sampling": sampling(temperature=value)} for value in (None, 0.0)),
        {"sampling": sampling(reasoning_effort="low")},
        {"sampling": sampling(extra={"top_p": 0.9})},
    ],
)
def test_key_changes_with_what_shapes_the_answer(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


NESTED = sampling(temperature=0.0, extra={"a": 1, "b": [{"c": 1, "d": 2}]})
TURNED = sampling(temperature=0, extra={"b": [{"d": 2, "c": 1}], "a": 1})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"model": "another name for it"}),
        ({}, {"purpose": "harm", "template": "osi-harm/1", "template_hash": "ab"}),
        ({}, {"messages": messages("Be brief.", "Tell me of ", "boats.")}),
        ({}, {"sampling": sampling(extra={})}),
        ({"sampling": NESTED}, {"sampling": TURNED}),  # 0 is 0.0 once it has been through run.json
    ],
)
def test_key_does_not_change_with_what_the_model_never_sees(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert key(**first) == key(**second)


# Replies
# ------------------------------------------------------------------------------


def test_an_answer_is_read_with_its_usage_and_the_model_that_served_it() -> None:
    choice = {"message": {"content": " Hello. \n"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    body = {"choices": [choice], "usage": usage, "model": "m-2026-01-01"}
    assert read_reply(json.dumps(body).encode()) == Answered(
        text="Hello.", stop_reason="stop", usage=Usage(7, 3), served_model="m-2026-01-01"
    )


CUT = b'{"choices": [{"message": {"content": "cut'
BINARY = b'{"choices": [{"message": {"content": "\xff"}}]}'
DEEP = b'{"error": ' + b"[" * 5_000


@pytest.mark.parametrize("body", [b"", b"[]", b'{"choices": null}', CUT, BINARY, DEEP], ids=len)
def test_what_is_no_completion_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="the reply"):
        read_reply(body)
