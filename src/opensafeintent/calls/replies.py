"""Classification of replies as answers, refusals or neither (docs/missing-grades.md)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from opensafeintent.calls.provider_errors import is_filter, read_error
from opensafeintent.calls.reasoning import (
    REASONING_ONLY,
    is_reasoning,
    reasoned_beside,
    unknown_mark,
    without_reasoning,
)
from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Failure,
    Outcome,
    Refused,
    Usage,
)
from opensafeintent.calls.stop_reasons import stop_kind, stop_name
from opensafeintent.calls.streams import NoStream, read_stream
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line, short_name
from opensafeintent.templates.template import Message


class NotAnAnswer(ValueError):
    """A complete reply that is neither an answer nor a refusal; the text names the problem.

    Args:
        kind: `no_answer`, `reasoning_only`, `malformed` (content without a text), `broken_off`, or
            `stop_reason:NAME` for a reason that no table has.
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


REPLIED = ("no_answer: ", "stop_reason:", f"{REASONING_ONLY}: ", "malformed: the reply's content")
"""Start of a failed row's error that shows that the model did reply."""


T = TypeVar("T")

_NO_USAGE = Usage()
_completion = msgspec.json.Decoder(dict[str, Any])
_MOST_TOKENS = 2**53
_MOST_DIGITS = 18
_LONGEST_ODD = 8 * 2**20
"""Bytes of a reply that are read field by field: that takes many times as long, and every other
call waits for it.
"""


def _decode(body: bytes) -> dict[str, Any]:
    """Return the fields of a reply. Each field is checked on use, so that a faulty field does not
    discard an answer beside it.

    Raises:
        ValueError, RecursionError: it is no JSON object, and no stream of them.
    """
    try:
        return _completion.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if len(body) > _LONGEST_ODD:
            raise

    def whole(digits: str) -> int:
        return int(digits) if len(digits) <= _MOST_DIGITS else -1

    try:
        value = json.loads(body, parse_int=whole)
    except ValueError as error:
        try:
            value = read_stream(body)
        except NoStream:
            raise error from None
    # an answer that was cut within a character holds half of a surrogate pair, which only Python's
    # own reader takes
    text = json.dumps(value, ensure_ascii=False)
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
        return _spent(_object(_decode(body).get("usage")))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _NO_USAGE


def _spent(usage: Mapping[str, Any]) -> Usage:
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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


_served = lru_cache(maxsize=64)(short_name)
"""A server names itself alike in each reply."""


def read_reply(body: bytes, *, stored: bool = False) -> Answered | Refused:
    """Read the body of a reply: a chat completion, or an error in its place.

    Args:
        body: the reply.
        stored: whether a ledger holds it as an outcome, perhaps of an earlier version. It then
            stays one if it can.

    Raises:
        NotAnAnswer: it is a chat completion without an answer.
        ValueError: it is neither a completion nor a content filter's error.
    """
    try:
        reply = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"the reply is not a chat completion: {error}") from error
    usage = _object(reply.get("usage"))
    spent = _spent(usage)
    served = _served(reply["model"]) if isinstance(reply.get("model"), str) else ""
    choices, failure = reply.get("choices"), reply.get("error")
    if choices is not None and not isinstance(choices, list):
        raise ValueError("the reply's `choices` is not an array")
    if not choices:
        told = read_error(body)
        if is_filter(told) or _prompt_filtered(reply):
            return Refused(reason=_error_text(told.fields[0]), usage=spent, served_model=served)
        but = f" but an error: {_error_text(failure)}" if failure else ""
        raise ValueError(f"the reply holds no choices{but}")
    each = [one if isinstance(one, dict) else {} for one in choices]
    choice = next((one for one in each if one.get("index") == 0), each[0])
    given = choice.get("finish_reason")
    reason = given if isinstance(given, str) else ""
    kind = stop_kind(reason)
    failure = failure or choice.get("error")
    if failure:
        raise NotAnAnswer("broken_off", f"{_broken_off(reason)}: {_error_text(failure)}")
    message = choice.get("message") or choice.get("delta")
    if not isinstance(message, dict):
        if kind != "refusal":  # Gemini's compatible route leaves the message of those out
            raise NotAnAnswer("no_answer", "the reply's choice holds no message")
        message = {}
    text = _message_text(message)
    try:
        outcome = outcome_of(
            text,
            reason,
            spent,
            served,
            beside=lambda: reasoned_beside(message, usage),
            stored=stored,
        )
    except NotAnAnswer as wrong:
        if text is not None or message.get("content") is None or not wrong.final:
            raise
        raise NotAnAnswer("malformed", "the reply's content holds no text") from wrong
    if not stored and _is_empty(outcome) and _counts_nothing(usage):
        raise NotAnAnswer("no_answer", "the reply holds no text and counts no tokens")
    return outcome


def outcome_of(
    given: str | None,
    stop_reason: str,
    usage: Usage = _NO_USAGE,
    served: str = "",
    *,
    beside: Callable[[], bool] = lambda: False,
    stored: bool = False,
) -> Answered | Refused:
    """Classify a message by its text and its stop reason.

    Args:
        given: its text, reasoning included; None if it has no text of its own, "" if that is empty.
        stop_reason: as the server gave it; "" if it gave none.
        usage, served: copied into the outcome.
        beside: whether the message shows reasoning apart from its text.
        stored: see `read_reply`.

    Raises:
        NotAnAnswer: it is neither an answer nor a refusal.
    """
    kind = stop_kind(stop_reason)
    reason = stop_reason if stop_reason in ("stop", "length") else short_name(stop_reason, 60)
    if kind == "break" and not (stored and given):
        raise NotAnAnswer("broken_off", _broken_off(reason))
    parted = without_reasoning(given or "", cut=kind == "cut")
    text = parted.text.strip()
    reasoned = parted.reasoned or ((not text or kind == "cut") and beside())
    if text:
        return Answered(
            text=text,
            stop_reason=reason or "stop",
            usage=usage,
            served_model=served,
            reasoned=reasoned,
            unopened=parted.unopened,
        )
    if kind == "refusal":
        return Refused(reason=stop_name(reason), usage=usage, served_model=served)
    cut = kind == "cut" or not parted.ended  # a thought that does not end was cut
    if cut or (kind in ("end", "none") and (reasoned or (kind == "end" and given is not None))):
        return Answered(
            text="",
            stop_reason="length" if cut and kind != "cut" else reason or "stop",
            usage=usage,
            served_model=served,
            reasoned=reasoned,
            unopened=parted.unopened,
        )
    name = stop_name(reason)
    raise NotAnAnswer(
        f"stop_reason:{name}" if kind in ("unknown", "pause") else "no_answer",
        f"the reply holds no text (finish reason: {reason or 'none'})",
    )


def response_of(outcome: Answered | Refused) -> Answered | Refused:
    """Return the outcome of a call for a response, which is graded.

    Raises:
        NotAnAnswer: it holds reasoning and no text: the absence of text shows no intent.
    """
    if isinstance(outcome, Answered) and outcome.reasoning_only:
        raise NotAnAnswer(REASONING_ONLY, "the reply holds reasoning and no text")
    return outcome


def ends_unopened_thought(body: bytes) -> bool:
    """Tell whether a stored reply ends a thought that no mark had opened."""
    try:
        outcome = read_reply(body, stored=True)
    except ValueError:
        return False
    return isinstance(outcome, Answered) and outcome.unopened


def _is_empty(outcome: Answered | Refused) -> bool:
    return (
        isinstance(outcome, Answered)
        and not outcome.text
        and not outcome.truncated
        and not outcome.reasoned
    )


def _counts_nothing(usage: Mapping[str, Any]) -> bool:
    """Tell whether a server counts that no token was read or written: no model wrote the reply."""
    return usage.get("prompt_tokens") == 0 and usage.get("completion_tokens") == 0


def _prompt_filtered(reply: Mapping[str, Any]) -> bool:
    """Tell whether Azure says that its filter took the prompt."""
    listed = reply.get("prompt_filter_results")
    return any(
        _object(verdict).get("filtered") is True
        for item in (listed if isinstance(listed, list) else ())
        for verdict in _object(_object(item).get("content_filter_results")).values()
    )


def _message_text(message: Mapping[str, Any]) -> str | None:
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
        text
        for part in content
        if isinstance(part, dict) and not is_reasoning(part)
        for name in ("text", "refusal")
        if part.get("type") == name and isinstance(text := part.get(name), str)
    ]
    return "".join(texts) if texts else None


def _broken_off(reason: str) -> str:
    return f"the answer broke off (finish reason: {short_name(reason, 60) or 'none'})"


def _error_text(error: Any) -> str:
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


def problem_of(answer: Answered) -> str:
    """Return why an answer does not keep to the form that was asked for, as far as its reply tells:
    the reason of a missing grade.
    """
    if answer.truncated:
        return "truncated"
    if answer.reasoning_only:
        return REASONING_ONLY
    return "unknown_mark" if unknown_mark(answer.text) else "unparsed"


def cause_of(answer: Answered) -> str:
    """Return why a reply has not the form that was asked for, to follow its problem; "" if the
    reply does not tell.
    """
    match problem_of(answer):
        case "truncated":
            return ": the token limit cut it"
        case "reasoning_only":
            return ": it holds reasoning and no text"
        case "unknown_mark":
            return f": it begins with {unknown_mark(answer.text)}, perhaps a mark of reasoning"
    return ""


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
        if outcome.filtered:
            return Refused(reason=outcome.stop_reason)
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
