"""One request to one model, and its outcome: a closed union."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from opensafeintent.canonical import canonical_json

__all__ = [
    "Answered",
    "Call",
    "Failed",
    "Message",
    "Outcome",
    "Purpose",
    "Refused",
    "Sampling",
    "Subject",
    "Usage",
    "call_key",
    "read_reply",
]

Purpose = Literal["generate", "helpfulness", "harm", "mode", "probe"]
Role = Literal["system", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, kept in parts so that the ledger stores a repeated text once."""

    role: Role
    parts: tuple[str, ...]

    @property
    def content(self) -> str:
        """The message's text."""
        return "".join(self.parts)


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What shapes a model's answer besides its messages; part of every key."""

    max_tokens: int | None = None
    temperature: float | None = None
    """None leaves the provider's default."""
    reasoning_effort: str | None = None
    extra: dict[str, Any] = {}
    """Further fields of the request body, as `-M key=value` gives them."""


class Subject(msgspec.Struct, frozen=True):
    """Which response a call is about; for replayed responses and for tracing, never part of a key."""

    set_id: str
    variant: str
    epoch: int


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to one model."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    purpose: Purpose
    epoch: int = 1
    attempt: int = 0
    """0 for the first asking, then one more for each re-ask."""
    template: str = ""
    template_hash: str = ""
    subject: Subject | None = None


def call_key(call: Call, identity: str) -> bytes:
    """Return the SHA-256 under which the ledger keeps a call's outcome (32 bytes).

    Args:
        call: the call.
        identity: the model's identity: its name, and for a scripted model its version.
    """
    from hashlib import sha256

    content = {
        "model": identity,
        "messages": [{"role": message.role, "content": message.content} for message in call.messages],
        "sampling": call.sampling,
        "epoch": call.epoch,
        "attempt": call.attempt,
    }
    return sha256(canonical_json(content)).digest()


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the provider counted them; 0 where it did not say."""

    input_tokens: int = 0
    output_tokens: int = 0


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The model wrote something, or ended by itself without a word."""

    text: str
    """What it wrote, its reasoning taken off."""
    stop_reason: str
    usage: Usage = Usage()
    served_model: str = ""

    @property
    def truncated(self) -> bool:
        """Whether the token limit cut the answer."""
        return self.stop_reason in ("length", "max_tokens")


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The provider's content filter gave no answer, or took it back."""

    reason: str
    usage: Usage = Usage()
    served_model: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """No outcome could be had; the next run tries again."""

    kind: str
    attempts: int
    error: str


Outcome = Answered | Refused | Failed


# Reading a chat completion ---------------------------------------------------------------------------------------------


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


_completion = msgspec.json.Decoder(_Completion, strict=False)
_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"<think>", re.IGNORECASE)
_CLOSE = re.compile(r"</think>", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """Take off `<think>…</think>`: closed blocks, one that never ended, and one whose opening the server had swallowed."""
    if "<" not in text:
        return text
    text = _THINKING.sub("", text)
    if opening := _OPEN.search(text):
        text = text[: opening.start()]
    if closing := list(_CLOSE.finditer(text)):
        text = text[closing[-1].end() :]
    return text


def read_reply(body: bytes) -> Answered | Refused:
    """Read a chat-completions body.

    Raises:
        ValueError: the body is not a chat completion; the text says what is wrong with it.
    """
    try:
        reply = _completion.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the reply is not a chat completion: {error}") from error
    if not reply.choices:
        raise ValueError(f"the reply holds no choices{f' but an error: {reply.error}' if reply.error else ''}")
    choice, usage = reply.choices[0], reply.usage or _Usage()
    spent = Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)
    served, stop = reply.model or "", choice.finish_reason or "stop"
    if stop == "content_filter":
        return Refused(reason="content_filter", usage=spent, served_model=served)
    content = choice.message.content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if part.get("type") == "text")
        content = "".join(text for text in texts if isinstance(text, str))
    text = without_thinking(content or choice.message.refusal or "").strip()
    return Answered(text=text, stop_reason=stop, usage=spent, served_model=served)
