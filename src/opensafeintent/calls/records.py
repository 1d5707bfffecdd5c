"""A call, its request, its outcome, and why a model stopped writing."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from opensafeintent.calls.service_tiers import STANDARD
from opensafeintent.files import canonical_json
from opensafeintent.hostile import NAME
from opensafeintent.taxonomy import QuestionRole
from opensafeintent.templates.template import Message

StopKind = Literal["end", "cut", "refusal", "break", "pause", "unknown", "none"]
"""How a reply ended.

- `end`: the model ended by itself.
- `cut`: a limit of tokens ended it.
- `refusal`: a filter, a guardrail or the model's own refusal ended it.
- `break`: an error, a time limit or a cancellation ended it.
- `pause`: the model waits for a tool that it called.
- `unknown`: a reason that the table does not have.
- `none`: no reason was given.
"""


class StopReasons(NamedTuple):
    """Reasons of one meaning and one source."""

    kind: StopKind
    names: tuple[str, ...]
    source: str


STOP_REASONS = (
    StopReasons("end", ("stop",), "OpenAI, Gemini, DeepSeek, Groq and nearly every server"),
    StopReasons("end", ("end_turn", "stop_sequence"), "Anthropic, Bedrock Converse, xAI"),
    StopReasons("end", ("eos_token", "eos", "word"), "TGI, Together, watsonx, llama.cpp"),
    StopReasons("end", ("complete", "completed"), "Cohere, OpenAI Responses"),
    StopReasons("end", ("finish", "finished", "stop_criteria_met", "endoftext"), "Titan, AI21"),
    StopReasons("end", ("normal", "end"), "Baidu Qianfan, Zhipu"),
    StopReasons("end", ("eosfound", "stopstringfound"), "LM Studio"),
    StopReasons("cut", ("length",), "OpenAI and nearly every server"),
    StopReasons(
        "cut",
        ("max_tokens", "model_context_window_exceeded"),
        "Anthropic, Bedrock Converse, Gemini, Cohere, Zhipu",
    ),
    StopReasons("cut", ("model_length",), "Mistral, Inspect AI"),
    StopReasons("cut", ("max_output_tokens",), "OpenAI Responses"),
    StopReasons("cut", ("error_limit", "token_limit", "limit"), "Cohere, watsonx, llama.cpp"),
    StopReasons("cut", ("maxpredictedtokensreached", "contextlengthreached"), "LM Studio"),
    StopReasons("cut", ("repetition",), "vLLM: it ends a text that repeats itself"),
    StopReasons("refusal", ("content_filter",), "OpenAI, Azure, and Gemini with a name behind it"),
    StopReasons("refusal", ("refusal",), "Anthropic"),
    StopReasons(
        "refusal",
        (
            "safety",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "image_safety",
            "image_prohibited_content",
            "image_recitation",
            "model_armor",
            "escalation",
        ),
        "Gemini, Vertex",
    ),
    StopReasons("refusal", ("guardrail_intervened", "content_filtered"), "Bedrock Converse, Titan"),
    StopReasons("refusal", ("sensitive",), "Zhipu, Tencent Hunyuan"),
    StopReasons("refusal", ("error_toxic",), "Cohere"),
    StopReasons("break", ("abort",), "vLLM, SGLang"),
    StopReasons("break", ("error", "failed"), "vLLM, OpenRouter, Mistral, Cohere, LM Studio"),
    StopReasons("break", ("timeout", "time_limit"), "TensorRT-LLM, Cohere, watsonx"),
    StopReasons(
        "break",
        ("cancelled", "canceled", "user_cancel", "userstopped", "modelunloaded"),
        "TensorRT-LLM, watsonx, Cohere, LM Studio",
    ),
    StopReasons("break", ("not_finished", "in_progress"), "TensorRT-LLM, watsonx"),
    StopReasons("break", ("load", "unload"), "Ollama: it loaded or unloaded the model"),
    StopReasons("break", ("network_error",), "Zhipu"),
    StopReasons("break", ("insufficient_system_resource",), "DeepSeek"),
    StopReasons(
        "break",
        (
            "malformed_function_call",
            "function_call_filter",
            "unexpected_tool_call",
            "too_many_tool_calls",
            "malformed_response",
            "missing_thought_signature",
        ),
        "Gemini, Vertex",
    ),
    StopReasons("break", ("malformed_model_output", "malformed_tool_use"), "Bedrock Converse"),
    StopReasons("pause", ("tool_calls", "function_call"), "OpenAI and those who answer as it does"),
    StopReasons("pause", ("tool_use", "pause_turn", "compaction"), "Anthropic, Bedrock Converse"),
    StopReasons("pause", ("tool_call", "toolcalls"), "Cohere, LM Studio"),
    StopReasons("none", ("null", "none", "unspecified"), "DashScope, Together, Gemini"),
)
"""Every reason that is known.

Left out on purpose are reasons that name no cause, such as Gemini's `OTHER` and `LANGUAGE`: their
replies are `unknown`.
"""

_KINDS: dict[str, StopKind] = {
    name: reasons.kind for reasons in STOP_REASONS for name in reasons.names
}


def stop_name(reason: str) -> str:
    """Return a reason as the table has it: in lower case, with `_`, and without what a gateway puts
    around it (`FinishReason.STOP`, `content_filter: HATE`).
    """
    plain = re.sub(r"[\s-]+", "_", reason.partition(":")[0].strip().lower())
    return re.sub(r"^finish_?reason[._]", "", plain)[:NAME]


@lru_cache(maxsize=256)
def stop_kind(reason: str) -> StopKind:
    """Return what a stop reason means.

    Args:
        reason: as the server gave it; "" if it gave none.
    """
    name = stop_name(reason)
    return _KINDS.get(name, "unknown") if name else "none"


Purpose = Literal[
    "generate",
    QuestionRole,
    "mode",
    "checklist",
    "probe",
    "guard",
    "swap",
    "turn",
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
"""The purpose of a call; `checklist` asks a prompt-set's own questions; `guard` asks a guard model;
`swap` grades a response under another request than its own, `turn` with the first turn shown before
its request; from `metadata` on, the stages of construction.
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
    digest = _begin_hash(call.attempt, call.epoch, head).copy()
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
def _begin_hash(attempt: int, epoch: int, text: str) -> hashlib._Hash:
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
    """Those of reasoning included, which are billed as such."""
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
    def filtered(self) -> bool:
        """Whether a filter cut the answer."""
        return stop_kind(self.stop_reason) == "refusal"

    @property
    def may_be_thought(self) -> bool:
        """Whether it may be a thought that a limit cut, opened in the chat template."""
        return bool(self.text) and stop_kind(self.stop_reason) == "cut" and not self.reasoned

    @property
    def reasoning_only(self) -> bool:
        """Whether the model reasoned, ended by itself, and wrote no text."""
        return self.reasoned and not self.text and not self.truncated


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The provider's content filter gave no answer."""

    reason: str
    """The name that the server gives for it, or the text of its error."""
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
