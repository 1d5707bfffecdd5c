"""Classification of replies as answers, refusals or neither (docs/missing-grades.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Failure,
    Outcome,
    Refused,
    Usage,
    is_truncated,
)
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line
from opensafeintent.templates.template import Message

# A provider's error
# ------------------------------------------------------------------------------

# Prose does not decide: "your account was flagged" and "your prompt was flagged" differ in a word,
# and only one is a refusal.

LONGEST_ERROR = 2**20
"""Bytes; more of an error is neither read nor kept."""

REFUSING = (400, 403, 422)
"""HTTP statuses that a filter answers with; any other says first of all that something else is
wrong.
"""

_FILTERS = frozenset(
    {
        "content_filter",  # OpenAI, Azure, and those who answer as they do
        "content_policy_violation",  # OpenAI, OpenRouter, LiteLLM
        "moderation_blocked",  # OpenAI
        "bio_policy",  # OpenAI
        "cyber_policy",  # OpenAI
        "responsibleaipolicyviolation",  # Azure, in `innererror`
        "data_inspection_failed",  # DashScope, compatible mode
        "datainspectionfailed",  # DashScope
        # Volcengine Ark and BytePlus ModelArk, with `.Violence` and the like behind it
        "sensitivecontentdetected",
        "inputtextsensitivecontentdetected",
        "outputtextsensitivecontentdetected",
        "inputtextriskdetection",
        "outputtextriskdetection",
        "sensitive_words_detected",  # One API and New API
        "prompt_blocked",  # New API
    }
)
"""Documented codes of content filters, in lower case. A code must match in full: Azure's
`content_filter_error` says that the filter was *not* applied.
"""


def error_of(body: bytes) -> dict[str, Any]:
    """Return the fields of the error in a reply; empty if no error can be read."""
    if len(body) > LONGEST_ERROR:
        return {}
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    error = data.get("error") or data
    return error if isinstance(error, dict) else {"message": str(error)}


def is_filter(error: dict[str, Any]) -> bool:
    """Tell whether an error says, in a documented field, that a content filter refused the request
    or its answer.
    """
    status = error.get("code")  # some gateways give it in the body
    if isinstance(status, int) and 400 <= status < 600 and status not in REFUSING:
        return False
    metadata = _inside(error, "metadata")
    inner = [  # Azure's details, directly or as LiteLLM passes them on
        _inside(holder, name)
        for holder in (error, _inside(error, "provider_specific_fields"))
        for name in ("innererror", "inner_error")
    ]
    codes = [
        *(holder.get(name) for holder in (error, *inner) for name in ("code", "type")),
        metadata.get("error_type"),
    ]
    if any(isinstance(code, str) and code.partition(".")[0].lower() in _FILTERS for code in codes):
        return True
    reasons = metadata.get("reasons")
    moderated = isinstance(reasons, list) and all(isinstance(text, str) for text in reasons)
    if isinstance(metadata.get("flagged_input"), str) or (reasons and moderated):
        return True  # OpenRouter's moderation
    results = (
        _inside(holder, name)
        for holder in inner
        for name in ("content_filter_result", "content_filter_results")
    )
    return any(
        isinstance(verdict, dict) and verdict.get("filtered") is True
        for result in results
        for verdict in result.values()
    )


def _inside(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


# A reply
# ------------------------------------------------------------------------------


class NotAnAnswer(ValueError):
    """A complete reply that is neither an answer nor a refusal; the text names the problem.

    Args:
        kind: `no_answer`, `malformed` (content without a text) or `broken_off`.
        line: the problem.
    """

    def __init__(self, kind: str, line: str) -> None:
        super().__init__(line)
        self.kind = kind

    @property
    def final(self) -> bool:
        """Whether the model ended like this by itself: asked again, it most likely ends the same
        way.
        """
        return self.kind != "broken_off"


def no_answer(wrong: NotAnAnswer, body: bytes, seconds: float = 0.0) -> Failure:
    """Return the failure that a reply without an answer is."""
    return Failure(
        kind=wrong.kind,
        error=str(wrong),
        retry=True,
        replied=wrong.final,
        body=body,
        seconds=seconds,
    )


REPLIED = ("no_answer: ", "malformed: the reply's content")
"""Start of a failed row's error that shows that the model did reply."""


T = TypeVar("T")

_NO_USAGE = Usage()
_completion = msgspec.json.Decoder(dict[str, Any])
_TAG = re.compile(r"<(/?)think>", re.IGNORECASE)
_BROKEN_OFF = frozenset(
    {
        "abort",  # vLLM, SGLang
        "error",  # vLLM, OpenRouter, Mistral
        "timeout",  # TensorRT-LLM, as the next two
        "cancelled",
        "not_finished",
        "network_error",  # Z.ai
        "insufficient_system_resource",  # DeepSeek
    }
)
_MOST_TOKENS = 2**53
_MOST_DIGITS = 18
_LONGEST_ODD = 8 * 2**20
"""Bytes of a reply that are read field by field: that takes many times as long, and every other
call waits for it.
"""


def without_thinking(text: str) -> str:
    """Take off `<think>…</think>`: closed blocks, one that never ended, and one whose opening the
    server removed.

    The returned text contains no tag. A tag that only appears after a block within it was taken off
    is broken by a space. Otherwise a judge that quotes such a response would seem to have reasoned
    up to there, with the quotation as its reply.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    end, thinking = 0, False
    for tag in _TAG.finditer(text):
        closing = bool(tag[1])
        if closing and not thinking:  # everything so far was thought
            kept.clear()
        elif not closing and not thinking:
            kept.append(text[end : tag.start()])
        thinking = not closing
        end = tag.end()
    rest = "".join(kept) if thinking else "".join((*kept, text[end:]))
    return _TAG.sub(lambda tag: f"< {tag[0][1:]}", rest)


def _decode(body: bytes) -> dict[str, Any]:
    """Return the fields of a reply. Each field is checked on use, so that a faulty field does not
    discard an answer beside it.

    Raises:
        ValueError, RecursionError: it is no JSON object.
    """
    try:
        return _completion.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if len(body) > _LONGEST_ODD:
            raise

    def whole(digits: str) -> int:
        return int(digits) if len(digits) <= _MOST_DIGITS else -1

    # an answer that was cut within a character holds half of a surrogate pair, which only Python's
    # own reader takes
    text = json.dumps(json.loads(body, parse_int=whole), ensure_ascii=False)
    sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return msgspec.convert(json.loads(sound), dict[str, Any])


def _count(tokens: Any) -> int:
    """Return a count of tokens, 0 if the server's value cannot be one."""
    if not isinstance(tokens, int | float) or not 0 <= tokens <= _MOST_TOKENS:
        return 0
    return int(tokens)


def usage_in(body: bytes) -> Usage:
    """Return the tokens that a reply reports, of any kind of reply; none if it reports none."""
    try:
        return _spent(_decode(body))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _NO_USAGE


def _spent(reply: dict[str, Any]) -> Usage:
    usage = _inside(reply, "usage")
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def completion_body(
    text: str, model: str, stop_reason: str = "stop", usage: Usage | None = None
) -> bytes:
    """Return the body of a chat completion, for models that answer in this process."""
    body: dict[str, Any] = {
        "choices": [{"message": {"content": text}, "finish_reason": stop_reason}],
        "model": model,
    }
    if usage is not None:
        body["usage"] = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
        }
    return canonical_json(body)


_served = lru_cache(maxsize=64)(one_line)
"""A server names itself alike in each reply."""


def read_reply(body: bytes) -> Answered | Refused:
    """Read the body of a reply: a chat completion, or an error in its place.

    Raises:
        NotAnAnswer: it is a chat completion without an answer.
        ValueError: it is neither a completion nor a content filter's error.
    """
    try:
        reply = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"the reply is not a chat completion: {error}") from error
    spent = _spent(reply)
    served = _served(reply["model"]) if isinstance(reply.get("model"), str) else ""
    choices, failure = reply.get("choices"), reply.get("error")
    if choices is not None and not isinstance(choices, list):
        raise ValueError("the reply's `choices` is not an array")
    if not choices:
        if is_filter(fields := error_of(body)):
            return Refused(reason=_told(fields), usage=spent, served_model=served)
        but = f" but an error: {_told(failure)}" if failure else ""
        raise ValueError(f"the reply holds no choices{but}")
    each = [one if isinstance(one, dict) else {} for one in choices]
    choice = next((one for one in each if one.get("index") == 0), each[0])
    given = choice.get("finish_reason")
    reason = given if isinstance(given, str) else ""
    failure = failure or choice.get("error")
    if failure:
        raise NotAnAnswer("broken_off", f"{_broken_off(reason)}: {_told(failure)}")
    message = choice.get("message")
    if not isinstance(message, dict):
        raise NotAnAnswer("no_answer", "the reply's choice holds no message")
    text = _said(message)
    try:
        return outcome_of(text, reason, spent, served)
    except NotAnAnswer as wrong:
        if text is not None or message.get("content") is None or not wrong.final:
            raise
        raise NotAnAnswer("malformed", "the reply's content holds no text") from wrong


def outcome_of(
    said: str | None, stop_reason: str, usage: Usage = _NO_USAGE, served: str = ""
) -> Answered | Refused:
    """Classify a message by its text and its stop reason.

    Args:
        said: its text, reasoning included; None if it has no text of its own, "" if that is empty.
        stop_reason: as the server gave it; "" if it gave none.
        usage, served: copied into the outcome.

    Raises:
        NotAnAnswer: it is neither an answer nor a refusal.
    """
    reason = stop_reason if stop_reason in ("stop", "length") else one_line(stop_reason, 60)
    if reason.lower() in _BROKEN_OFF:
        raise NotAnAnswer("broken_off", _broken_off(reason))
    if reason == "content_filter":
        return Refused(reason="content_filter", usage=usage, served_model=served)
    text = without_thinking(said or "").strip()
    if not text and said and _still_thinking(said) and not is_truncated(reason):
        reason = "length"  # in spite of the server's reason: reasoning that does not end was cut
    if text or is_truncated(reason) or (reason == "stop" and said is not None):
        return Answered(text=text, stop_reason=reason or "stop", usage=usage, served_model=served)
    raise NotAnAnswer("no_answer", f"the reply holds no text (finish reason: {reason or 'none'})")


def _said(message: dict[str, Any]) -> str | None:
    """Return the text of a message: its content, or the refusal in its place; None if neither has a
    text.
    """
    content, refusal = message.get("content"), message.get("refusal")
    for text in (content, refusal):
        if isinstance(text, str) and text:
            return text
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [
        part["text"]
        for part in content
        if isinstance(part, dict)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
    ]
    return "".join(texts) if texts else None


def _still_thinking(text: str) -> bool:
    """Tell whether the last word on thinking is that it begins."""
    slashes = _TAG.findall(text)
    return bool(slashes) and not slashes[-1]


def _broken_off(reason: str) -> str:
    return f"the answer broke off (finish reason: {one_line(reason, 60) or 'none'})"


def _told(error: Any) -> str:
    """Return the text of an error, on one line."""
    message = error.get("message") if isinstance(error, dict) else error
    return one_line(str(message or "it says no more"))


# Asking again
# ------------------------------------------------------------------------------

_REASKS = 2


class Unparsed(msgspec.Struct, frozen=True):
    """An answer that does not keep to the form that was asked for."""

    reminder: Message
    """The message for the model when it is asked again."""
    text: str
    problem: str = ""


async def ask_until_parsed(
    ask: Callable[[Call], Awaitable[Outcome]],
    call: Call,
    parse: Callable[[Answered], T | Unparsed],
) -> T | Unparsed | Refused | Failed:
    """Ask until the answer keeps to its form: once, and at most twice more, each time with the
    whole conversation.

    Args:
        ask: makes a call.
        call: the first one.
        parse: reads an answer.

    Returns:
        The parsed answer; or the last answer, if none could be parsed; or an outcome that is no
            answer.
    """
    for _ in range(1 + _REASKS):
        outcome = await ask(call)
        if not isinstance(outcome, Answered):
            return outcome
        parsed = parse(outcome)
        if not isinstance(parsed, Unparsed):
            return parsed
        messages = (
            *call.messages,
            Message("assistant", (outcome.text or "(no reply)",)),
            parsed.reminder,
        )
        call = msgspec.structs.replace(call, attempt=call.attempt + 1, messages=messages)
    return parsed
