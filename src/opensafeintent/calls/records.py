"""One request to one model, and its results: of one attempt, and the final one.

Both are closed unions.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Literal

import msgspec

from opensafeintent.calls.service_tiers import STANDARD
from opensafeintent.calls.stop_reasons import stop_kind
from opensafeintent.files import canonical_json
from opensafeintent.taxonomy import QuestionRole
from opensafeintent.templates.template import Message

Purpose = Literal[
    "generate",
    QuestionRole,
    "mode",
    "probe",
    "guard",
    "request_swap",
    "in_conversation",
    "metadata",
    "backfill",
    "triplet",
    "intent",
    "repair",
    "quality",
    "relabel",
    "wording",
    "reread",
    "paraphrase",
    "paraphrase_check",
    "annotation",
]
"""The purpose of a call; `guard` asks a guard model; `request_swap` grades a response under another
request than its own, `in_conversation` with the first turn shown before its request; from
`metadata` on, the stages of construction.
"""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters of a model's answer besides its messages; part of every key."""

    max_tokens: int | None = None
    temperature: float | None = None
    """None leaves the provider's default."""
    reasoning_effort: str | None = None
    extra: dict[str, Any] = {}
    """Further fields of the request body, as `-M key=value` gives them."""
    json_schema: dict[str, Any] = {}
    """JSON schema requested for the reply, if the provider has structured output."""

    def __post_init__(self) -> None:
        # 0 and 0.0 are one temperature, and one key
        if self.temperature is not None:
            msgspec.structs.force_setattr(self, "temperature", float(self.temperature))


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to one model."""

    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    purpose: Purpose
    epoch: int = 1
    attempt: int = 0
    """0 for the first asking, then one more for each re-ask; re-grades count from
    `evaluation.pipeline.FIRST_ATTEMPT`.
    """
    template: str = ""
    template_hash: str = ""
    counted: bool = True
    """False if the plan makes it for another prompt: it is counted there."""


def call_key(call: Call, identity: str) -> bytes:
    """Return the SHA-256 under which the ledger keeps a call's outcome (32 bytes).

    It is that of the canonical JSON of `model`, `messages` ({role, content}), `sampling`, `epoch`
    and `attempt`. The JSON is assembled here in pieces, because all requests to a judge begin with
    the same rubric.

    Args:
        call: the call.
        identity: the model's identity: its name, and for a scripted model its version.
    """
    first, *further = call.messages
    # one part alone is a prompt; several are a template's, filled
    head = first.parts[0] if len(first.parts) > 1 else ""
    digest = _begun(call.attempt, call.epoch, head).copy()
    digest.update(
        b'%b","role":"%b"}' % (_inside("".join(first.parts[bool(head) :])), first.role.encode())
    )
    for message in further:
        digest.update(
            b',{"content":"%b","role":"%b"}' % (_inside(message.content), message.role.encode())
        )
    digest.update(
        b'],"model":%b,"sampling":%b}' % (_canonical_name(identity), canonical_json(call.sampling))
    )
    return digest.digest()


_canonical_name = lru_cache(maxsize=64)(canonical_json)


@lru_cache(maxsize=64)
def _begun(attempt: int, epoch: int, text: str) -> hashlib._Hash:
    """Return the SHA-256 of a request's canonical JSON as far as the beginning of its first
    message.
    """
    return hashlib.sha256(
        b'{"attempt":%d,"epoch":%d,"messages":[{"content":"%b' % (attempt, epoch, _inside(text))
    )


def _inside(text: str) -> bytes:
    """Return a text as it appears within the quotes of a JSON string."""
    return canonical_json(text)[1:-1]


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the provider counted them; 0 if it reported none."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that were read from a cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to a cache for a price of their own."""


def is_cut(stop_reason: str) -> bool:
    """Tell whether a stop reason says that a text goes no further: a token limit ended it, or a
    filter.
    """
    return stop_kind(stop_reason) in ("cut", "refusal")


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The model wrote something, or ended by itself without a word."""

    text: str
    """The answer's text, without its reasoning."""
    stop_reason: str
    """As the server gave it; `length` if the reasoning never ended."""
    usage: Usage = Usage()
    served_model: str = ""
    reasoned: bool = False
    """Whether the reply shows reasoning: of any empty or cut one, and of one with its marks in the
    text.
    """
    unopened: bool = False
    """Whether its reasoning ended with a mark that nothing had opened: the chat template did."""

    @property
    def truncated(self) -> bool:
        """Whether a token limit or a filter cut the answer."""
        return is_cut(self.stop_reason)

    @property
    def cut_by_limit(self) -> bool:
        """Whether a token limit cut the answer."""
        return stop_kind(self.stop_reason) == "cut"

    @property
    def filtered(self) -> bool:
        """Whether a filter cut the answer."""
        return stop_kind(self.stop_reason) == "refusal"

    @property
    def may_be_thought(self) -> bool:
        """Whether it may be a thought that a limit cut, opened in the chat template."""
        return bool(self.text) and self.cut_by_limit and not self.reasoned

    @property
    def reasoning_only(self) -> bool:
        """Whether the model reasoned, ended by itself, and wrote no text."""
        return self.reasoned and not self.text and not self.truncated


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The provider's content filter gave no answer."""

    reason: str
    usage: Usage = Usage()
    served_model: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """No outcome was obtained; the next run tries again."""

    kind: str
    error: str


Outcome = Answered | Refused | Failed


USUAL_PROTOCOL = "chat_completions"
"""Name of the protocol of nearly all replies; those of this process's own models are of it too."""


class Replied(msgspec.Struct, frozen=True):
    """The model answered, or its provider's content filter refused."""

    outcome: Answered | Refused
    body: bytes
    seconds: float = 0.0
    refused: tuple[Failure, ...] = ()
    """Requests before it that were made again at once: with a field which the model does not take,
    or at a tier without capacity.
    """
    tier: str = STANDARD
    """The service tier that served it."""
    protocol: str = USUAL_PROTOCOL
    """Name of the protocol that it was asked in, by which its body is read."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """There was neither an answer nor a refusal."""

    kind: str
    error: str
    """One line, without secrets."""
    retry: bool = False
    """Trying again may help."""
    fatal: bool = False
    """Every further call to this model would end the same way."""
    throttled: bool = False
    """A limit of the provider, which is waited out."""
    slow: bool = False
    """The endpoint was too slow: it gets fewer requests at once."""
    no_capacity: bool = False
    """The requested service tier has no capacity."""
    replied: bool = False
    """The model did reply, though with no answer: it is asked once more, and nothing follows for
    its other calls.
    """
    retry_after: float | None = None
    body: bytes = b""
    seconds: float = 0.0
    refused: tuple[Failure, ...] = ()
    """As of `Replied`."""
    tier: str = STANDARD
    """As of `Replied`."""
    protocol: str = USUAL_PROTOCOL
    """As of `Replied`."""


Attempt = Replied | Failure
