"""The reasons for which models stop, as servers and gateways name them, and what each means.

A reason is compared without case, and with `-` as `_`. `docs/what-providers-send.md` shows the
table.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

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
_LONGEST = 60
"""Characters of a reason; longer ones are no names."""


def stop_name(reason: str) -> str:
    """Return a reason as the table has it: in lower case, with `_`, and without what a gateway puts
    around it (`FinishReason.STOP`, `content_filter: HATE`).
    """
    plain = re.sub(r"[\s-]+", "_", reason.partition(":")[0].strip().lower())
    return re.sub(r"^finish_?reason[._]", "", plain)[:_LONGEST]


@lru_cache(maxsize=256)
def stop_kind(reason: str) -> StopKind:
    """Return what a stop reason means.

    Args:
        reason: as the server gave it; "" if it gave none.
    """
    name = stop_name(reason)
    return _KINDS.get(name, "unknown") if name else "none"
