"""Whether a reply is an answer, a refusal or a failure, and asking again if it cannot be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from opensafeintent.calls.reasoning import REASONING_ONLY, cut_reasoning, unknown_mark
from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Failure,
    Outcome,
    Refused,
    Usage,
    stop_kind,
    stop_name,
)
from opensafeintent.hostile import clean_name
from opensafeintent.templates.template import Message, cut_tokens


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


_NO_USAGE = Usage()


def classify_message(
    content: str | None,
    stop_reason: str,
    usage: Usage = _NO_USAGE,
    served: str = "",
    *,
    beside: Callable[[], bool] = lambda: False,
    counts_nothing: bool = False,
) -> Answered | Refused:
    """Classify a message by its text and its stop reason.

    Args:
        content: its text, reasoning included; None if it has no text of its own, "" if that is
            empty.
        stop_reason: as the server gave it; "" if it gave none.
        usage, served: copied into the outcome.
        beside: whether the message shows reasoning apart from its text.
        counts_nothing: whether the server says that no token was read or written: then no model
            wrote an empty message, and it is no refusal.

    Raises:
        NotAnAnswer: it is neither an answer nor a refusal.
    """
    kind = stop_kind(stop_reason)
    reason = stop_reason if stop_reason in ("stop", "length") else clean_name(stop_reason)
    if kind == "break":
        raise make_broken_off(reason)
    parted = cut_reasoning(content or "", cut=kind == "cut")
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
    if cut or (kind in ("end", "none") and (reasoned or (kind == "end" and content is not None))):
        if counts_nothing and not (cut or reasoned):
            raise NotAnAnswer("no_answer", "the reply holds no text and counts no tokens")
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


def classify_response(outcome: Answered | Refused) -> Answered | Refused:
    """Return the outcome of a call for a response, which is graded.

    Raises:
        NotAnAnswer: it holds reasoning and no text: the absence of text shows no intent.
    """
    if isinstance(outcome, Answered) and outcome.reasoning_only:
        raise NotAnAnswer(REASONING_ONLY, "the reply holds reasoning and no text")
    return outcome


def make_broken_off(stop_reason: str, error: str = "") -> NotAnAnswer:
    """Return what a reply is that broke off, with the error that it gives."""
    line = f"the answer broke off (finish reason: {clean_name(stop_reason) or 'none'})"
    return NotAnAnswer("broken_off", f"{line}: {error}" if error else line)


T = TypeVar("T")

_REASKS = 2


class Unparsed(msgspec.Struct, frozen=True):
    """An answer that does not keep to the form that was asked for."""

    reminder: Message
    """The message for the model when it is asked again."""
    answer: Answered
    """The last one."""
    problem: str = ""


def describe_problem(answer: Answered) -> str:
    """Return why an answer does not keep to the form that was asked for, as far as its reply tells:
    the reason of a missing grade.
    """
    if answer.truncated:
        return "truncated"
    if answer.reasoning_only:
        return REASONING_ONLY
    if unknown_mark(answer.text):
        return "unknown_mark"
    return "unparsed"


def describe_cause(answer: Answered) -> str:
    """Return why a reply has not the form that was asked for, to follow its problem; "" if the
    reply does not tell.
    """
    match describe_problem(answer):
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
            return Refused(reason=outcome.stop_reason, served_model=outcome.served_model)
        parsed = parse(outcome)
        if not isinstance(parsed, Unparsed):
            return parsed
        messages = (
            *call.messages,
            Message("assistant", (cut_tokens(outcome.text) or "(no reply)",)),
            parsed.reminder,
        )
        call = msgspec.structs.replace(call, attempt=call.attempt + 1, messages=messages)
    return parsed
