"""Bodies of replies: decoded, and read by the protocol that they were asked in."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from opensafeintent.calls.protocols import WireProtocol
from opensafeintent.calls.protocols.chat_completions import CHAT_COMPLETIONS
from opensafeintent.calls.providers import ENDPOINTS
from opensafeintent.calls.reasoning import find_thought, list_reasoning_beside
from opensafeintent.calls.records import Answered, Refused, Usage
from opensafeintent.calls.streams import NoStream, read_stream
from opensafeintent.files import canonical_json
from opensafeintent.hostile import clean_for_display

_completion = msgspec.json.Decoder(dict[str, Any])
_MOST_DIGITS = 18
_LONGEST_ODD = 8 * 2**20
"""Bytes of a reply that are read field by field: that takes many times as long, and every other
call waits for it.
"""


def _decode(body: bytes, protocol: WireProtocol) -> dict[str, Any]:
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
            stream = read_stream(body)
        except NoStream:
            raise error from None
        value = protocol.join(stream.parts, ended=stream.ended)
    # an answer that was cut within a character holds half of a surrogate pair, which only Python's
    # own reader takes
    text = json.dumps(value, ensure_ascii=False)
    sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return msgspec.convert(json.loads(sound), dict[str, Any])


def protocol_named(name: str) -> WireProtocol:
    """Return a protocol by the name that a ledger has.

    Raises:
        ValueError: there is none with this name.
    """
    if name == CHAT_COMPLETIONS.name:
        return CHAT_COMPLETIONS
    for provider in ENDPOINTS.values():
        if provider.protocol.name == name:
            return provider.protocol
    raise ValueError(f"a reply of the unknown protocol {clean_for_display(name)}")


def read_reply(body: bytes, protocol: WireProtocol = CHAT_COMPLETIONS) -> Answered | Refused:
    """Read the body of a reply: an answer, or an error in its place.

    Args:
        body: the reply.
        protocol: of the request.

    Raises:
        NotAnAnswer: it is a complete reply without an answer.
        ValueError: it is neither a reply nor a content filter's error.
    """
    try:
        reply = _decode(body, protocol)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"the reply is not a {protocol.reply_name}: {error}") from error
    return protocol.read(reply, body)


def usage_in(body: bytes, protocol: WireProtocol) -> Usage:
    """Return the tokens that a reply reports, of any kind of reply; none if it reports none."""
    try:
        return protocol.usage(_decode(body, protocol))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Usage()


def ends_unopened_thought(body: bytes, protocol: WireProtocol = CHAT_COMPLETIONS) -> bool:
    """Tell whether a stored reply ends a thought that no mark had opened."""
    try:
        outcome = read_reply(body, protocol)
    except ValueError:
        return False
    return isinstance(outcome, Answered) and outcome.unopened


def read_reply_reasoning(body: bytes, protocol: WireProtocol) -> str:
    """Return the reasoning that a stored reply shows, in fields and blocks beside its text or
    between marks in it; "" if it shows none.
    """
    try:
        reply = _decode(body, protocol)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    beside = list_reasoning_beside(protocol.beside(reply))
    return "\n\n".join([*beside, *filter(None, [find_thought(protocol.text(reply) or "")])])


def completion_body(text: str, model: str, usage: Usage | None = None) -> bytes:
    """Return the body of a chat completion, for models that answer in this process."""
    body: dict[str, Any] = {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "model": model,
    }
    if usage is not None:
        body["usage"] = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
        }
    return canonical_json(body)
