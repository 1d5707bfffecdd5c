"""Asking again for an answer that does not keep to its form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from opensafeintent.calls.reasoning_marks import unknown_mark
from opensafeintent.calls.reasoning_signs import REASONING_ONLY
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused
from opensafeintent.templates.chat_tokens import without_tokens
from opensafeintent.templates.template import Message

T = TypeVar("T")

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
            Message("assistant", (without_tokens(outcome.text) or "(no reply)",)),
            parsed.reminder,
        )
        call = msgspec.structs.replace(call, attempt=call.attempt + 1, messages=messages)
    return parsed
