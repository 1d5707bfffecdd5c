"""What servers and gateways are known to send, and what each reply comes to; and the loopback
server as it sends them.

An outcome is one word: `answered` (with text), `refused` (by a filter, or an empty answer that
ended by itself), `truncated` (cut by the limit before its first word), or the kind of the failure,
which ends as a missing grade.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from loopback import Fault, LoopbackServer, Match

GOOD = "A good note."


class Case(NamedTuple):
    """One reply."""

    outcome: str
    body: bytes
    status: int = 200


def json_body(value: Any) -> bytes:
    return json.dumps(value).encode()


def reply(outcome: str, message: Any, stop: Any = "stop", **beside: Any) -> Case:
    """Return a completion with one choice."""
    choices = [{"message": message, "finish_reason": stop}]
    return Case(outcome, json_body({"choices": choices, **beside}))


def choice(outcome: str, **fields: Any) -> Case:
    """Return a completion with a choice as given."""
    return Case(outcome, json_body({"choices": [fields]}))


def error(outcome: str, status: int, **fields: Any) -> Case:
    """Return an error."""
    return Case(outcome, json_body({"error": fields}), status)


def raw(outcome: str, text: str) -> Case:
    """Return a body as it is written here: JSON of Python's own would not be so."""
    return Case(outcome, text.encode())


TEXT = {"role": "assistant", "content": GOOD}
TOOLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
FOUND = {"hate": {"filtered": False}, "violence": {"filtered": True, "severity": "high"}}
AZURE = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": FOUND}
THOUGHT = {"type": "thinking", "thinking": []}
ODD_USAGE = '{"choices":[{"message":{"content":"A good note."}}],"usage":{"prompt_tokens":'

# fmt: off
CASES: Mapping[str, Case] = {
    # Text: answered, whatever the reason for its end, unless that says that it broke off
    "text": reply("answered", TEXT),
    "text, cut": reply("answered", TEXT, "length"),
    "text, no reason": reply("answered", TEXT, None),
    "text, reason absent": choice("answered", message=TEXT),
    "text, unknown reason": reply("answered", TEXT, "eos_token"),
    "text, reason is an object": reply("answered", TEXT, {"type": "stop"}),
    "text, tool_calls": reply("answered", TEXT | {"tool_calls": TOOLS}, "tool_calls"),
    "text in parts": reply("answered", {"content": [{"type": "text", "text": "A good "}, {"type": "text", "text": "note."}]}),
    "text among parts": reply("answered", {"content": [THOUGHT, {"type": "text", "text": GOOD}]}),
    "text after thinking": reply("answered", {"content": f"<think>plan</think>{GOOD}"}),
    "refusal field": reply("answered", {"content": None, "refusal": GOOD}),
    "text, abort": reply("broken_off", TEXT, "abort"),
    "text, error": reply("broken_off", TEXT, "error"),
    "text, error beside choices": reply("broken_off", TEXT, error={"message": "upstream is gone", "code": 502}),
    "text, error as a word": reply("broken_off", TEXT, error="overloaded"),
    "text, error within the choice": choice("broken_off", message=TEXT, finish_reason="stop", error={"message": "gone"}),
    # A good answer is not thrown away for what stands beside it
    "usage is a list": reply("answered", TEXT, usage=[]),
    "usage holds objects": reply("answered", TEXT, usage={"prompt_tokens": {}, "completion_tokens": [1]}),
    "usage is negative": reply("answered", TEXT, usage={"prompt_tokens": -5, "completion_tokens": -0.5}),
    "usage is 1e400": raw("answered", ODD_USAGE + "1e400}}"),
    "usage is endless": raw("answered", ODD_USAGE + "9" * 6000 + "}}"),
    "model is an object": reply("answered", TEXT, model={"id": "m"}),
    "error is null": reply("answered", TEXT, error=None),
    "index is a text": choice("answered", index="first", message=TEXT, finish_reason="stop", logprobs="none"),
    "second choice is null": Case("answered", json_body({"choices": [{"message": TEXT}, None]})),
    "refusal is false": reply("answered", TEXT | {"refusal": False}),
    "half a character": raw("answered", '{"choices":[{"message":{"content":"A good note \\ud83d"}}],"usage":[]}'),
    # No text
    "empty": reply("refused", {"content": ""}),
    "white space": reply("refused", {"content": " \n"}),
    "empty after reasoning": reply("refused", {"content": "", "reasoning_content": "plan"}),
    "closed thinking alone": reply("refused", {"content": "<think>plan</think>\n"}),
    "empty text part": reply("refused", {"content": [{"type": "text", "text": ""}]}),
    "filtered": reply("refused", {"content": None}, "content_filter"),
    "filtered half-way": reply("refused", TEXT, "content_filter"),
    "empty, cut": reply("truncated", {"content": ""}, "length"),
    "null, cut": reply("truncated", {"content": None, "reasoning_content": "a long plan"}, "length"),
    "thinking parts, cut": reply("truncated", {"content": [THOUGHT]}, "length"),
    "thinking, cut": reply("truncated", {"content": "<think>a long pl"}, "length"),
    "thinking never ended": reply("truncated", {"content": "<think>a long pl"}),
    "thinking never ended, no reason": reply("truncated", {"content": "a plan</think><think>a long pl"}, None),
    "thinking never ended, abort": reply("broken_off", {"content": "<think>a long pl"}, "abort"),
    "empty, no reason": reply("no_answer", {"content": ""}, None),
    "empty, unknown reason": reply("no_answer", {"content": ""}, "other"),
    "empty, tool_calls": reply("no_answer", {"content": "", "tool_calls": TOOLS}, "tool_calls"),
    "null": reply("no_answer", {"content": None}),
    "null, no reason": reply("no_answer", {"content": None}, None),
    "null and an empty refusal": reply("no_answer", {"content": None, "refusal": ""}),
    "content absent": reply("no_answer", {"role": "assistant"}),
    "tool calls alone": reply("no_answer", {"content": None, "tool_calls": TOOLS}, "tool_calls"),
    "reasoning alone": reply("no_answer", {"content": None, "reasoning_content": "plan"}),
    "message is null": reply("no_answer", None),
    "message is a text": reply("no_answer", GOOD),
    "legacy text": choice("no_answer", text=GOOD, finish_reason="stop"),
    "delta": choice("no_answer", delta={"content": GOOD}, finish_reason="stop"),
    "empty choice": choice("no_answer"),
    "empty, abort": reply("broken_off", {"content": ""}, "abort"),
    "image parts": reply("malformed", {"content": [{"type": "image_url", "image_url": {"url": "u"}}]}),
    "parts of another protocol": reply("malformed", {"content": [{"type": "output_text", "text": GOOD}]}),
    "content is a number": reply("malformed", {"content": 5}),
    "content is an object": reply("malformed", {"content": {"text": GOOD}}),
    # No completion at all
    "no choices": Case("malformed", b'{"choices": []}'),
    "choices is an object": Case("malformed", json_body({"choices": {"0": {"message": TEXT}}})),
    "a page": Case("malformed", b"<html>Welcome</html>"),
    # Errors: a filter's, by its fields
    "code": error("refused", 400, code="content_filter", message="The response was filtered."),
    "type": error("refused", 422, type="content_policy_violation", message="No."),
    "Azure": error("refused", 400, code=None, innererror=AZURE, message="Filtered."),
    "DashScope": error("refused", 400, code="data_inspection_failed", type="data_inspection_failed", message="Input data."),
    "Ark": error("refused", 400, code="SensitiveContentDetected.Violence", type="BadRequest", message="The input text."),
    "OpenRouter": error("refused", 403, code=403, message="Flagged.", metadata={"reasons": ["x"], "flagged_input": "a b"}),
    "OpenRouter, by type": error("refused", 403, code=403, metadata={"error_type": "content_policy_violation"}),
    "LiteLLM": error("refused", 400, code="400", message="m", provider_specific_fields={"innererror": AZURE}),
    "code without a wrapper": Case("refused", json_body({"object": "error", "code": "content_filter", "message": "m"}), 400),
    "OpenRouter in a 200": error("refused", 200, code=403, message="Flagged.", metadata={"flagged_input": "a b"}),
    # Errors: not a filter's, whatever they say
    "flagged account": error("unauthorized", 403, message="Your account was flagged for potential abuse"),
    "moderate access": error("unauthorized", 403, message="only moderate access"),
    "policy to accept": error("rejected", 400, message="You must accept the content_policy in your account settings"),
    "policy to accept, 403": error("rejected", 403, message="You must accept the content policy first"),
    "prose alone": error("rejected", 400, code="invalid_request_error", message="Content Exists Risk"),
    "filter not applied": error("rejected", 400, code="content_filter_error", message="The contents are not filtered"),
    "invalid_prompt": error("rejected", 400, code="invalid_prompt", message="Your prompt was flagged"),
    "filter's words in a field of ours": error("rejected", 400, code="invalid_value", param="content_filter", message="m"),
    "metadata without a word": error("unauthorized", 403, message="No.", metadata={"reasons": [], "flagged_input": None}),
    "overloaded": error("server", 503, code="content_filter", message="The content_filter is overloaded"),
    "no funds in a 200": error("no_credit", 200, code=402, message="moderation", metadata={"reasons": ["no credit"]}),
}
# fmt: on

TWICE = ("no_answer", "malformed")
"""Kinds of which a completion without an answer is tried twice, and does not count towards the
failures that stop a model.
"""


def served(case: Case, text: str = "") -> Fault:
    """Return what has the loopback server give a reply to requests that hold a text."""
    match = Match(contains=text)
    return Fault(action="body", status=case.status, body=case.body, match=match)


def replying() -> LoopbackServer:
    """Serve each case to the prompt `<its name>, in between`, and a good answer to any other."""
    names = sorted(CASES, key=len, reverse=True)  # one may end as another does
    cases = [served(CASES[name], f"{name}, in between") for name in names]
    return LoopbackServer(faults=[*cases, served(CASES["text"])])
