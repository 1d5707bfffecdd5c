"""Our calls and their outcomes as Inspect AI has them, and its outputs as we have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opensafeintent.calls.providers import LOCAL_WEIGHTS
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling
from opensafeintent.canonical import canonical_json
from opensafeintent.hostile import one_line
from opensafeintent.interop.inspect.extra import to_inspect

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ChatMessageAssistant, ModelOutput


_FINISH = {"max_tokens": "length"}
_STOP = {
    "length": "max_tokens",
    **{reason: reason for reason in ("stop", "max_tokens", "model_length", "content_filter")},
}


def sampling_fields(sampling: Sampling, provider: str) -> dict[str, Any]:
    """Return how a call is sampled, as Inspect AI names it."""
    fields: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "reasoning_effort": sampling.reasoning_effort,
    }
    if provider in LOCAL_WEIGHTS and sampling.temperature == 0:
        # `transformers` refuses 0; the likeliest token alone is what it means
        fields |= {"temperature": None, "top_k": 1}
    return fields


def chat_messages(call: Call) -> list[ChatMessage]:
    """Return a call's messages as Inspect AI has them."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds = {
        "system": ChatMessageSystem,
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
    }
    return [kinds[message.role](content=message.content) for message in call.messages]


def complaint_in(output: ModelOutput) -> str | None:
    """Return the error that a provider of Inspect's gave for an answer; None where it is an answer,
    or a filter's stop.

    Some of them make the text of an answer out of an error, which no model wrote and no tokens were
    counted for: of a prompt that is too long, and of what they take for a content filter's error.
    Where they go by its words ("blocked", or any that come with `error`), it is no refusal to us;
    where they go by its code, it is one.
    """
    if output.empty or output.usage is not None or not (text := output.choices[0].message.text):
        return None
    choice = output.choices[0]
    details = choice.stop_details
    by_words = output.error or (details and details.explanation == text and "blocked" in text)
    if choice.stop_reason == "model_length" or (
        choice.stop_reason == "content_filter" and by_words
    ):
        return output.error or text
    return None


def completion_of(output: ModelOutput, max_tokens: int | None = None) -> bytes:
    """Return an output as a chat completion, which the ledger keeps and `read_reply` reads.

    Reasoning stays apart from the text, for nobody grades it. Tokens that came from or went to a
    prompt cache are input tokens, reasoning tokens are output tokens.
    """
    if output.empty:
        return canonical_json(
            {"choices": [], "error": one_line(output.error or "the provider gave no answer")}
        )
    choice = output.choices[0]
    stop = _FINISH.get(choice.stop_reason, choice.stop_reason)
    usage = output.usage
    if (
        stop == "unknown" and usage and max_tokens
    ):  # a provider that does not say: who came up to the limit was cut
        stop = "length" if usage.output_tokens >= max_tokens else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": _content(choice.message)}
    if thought := _reasoning(choice.message.content):
        message["reasoning_content"] = thought
    body: dict[str, Any] = {
        "model": output.model,
        "choices": [{"message": message, "finish_reason": stop}],
    }
    if usage is not None:
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        body["usage"] = {
            "prompt_tokens": usage.input_tokens + cached,
            "completion_tokens": usage.output_tokens,
        }
    return canonical_json(body)


def model_output(model: str, outcome: Outcome) -> ModelOutput:
    """Return a call's outcome as Inspect AI has it; usage only where tokens were counted."""
    from inspect_ai.model import ModelOutput, ModelUsage

    match outcome:
        case Failed(error=error):
            return ModelOutput(model=to_inspect(model), error=error)
        case Refused(reason=reason, usage=usage, served_model=served):
            output = ModelOutput.from_content(
                served or model, "", stop_reason="content_filter", error=reason
            )
        case Answered(text=text, stop_reason=stop, usage=usage, served_model=served):
            known: Any = _STOP.get(stop, "unknown")
            output = ModelOutput.from_content(served or model, text, stop_reason=known)
    if total := usage.input_tokens + usage.output_tokens:
        output.usage = ModelUsage(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=total
        )
    return output


def _content(message: ChatMessageAssistant) -> str | list[dict[str, str]] | None:
    """Return what a message says, as its provider most likely had it: Inspect makes "" of no
    text.
    """
    from inspect_ai.model import ContentReasoning, ContentText

    if text := message.text:
        return text
    parts = message.content if isinstance(message.content, list) else []
    if any(not isinstance(part, ContentText | ContentReasoning) for part in parts):
        return [{"type": part.type} for part in parts]
    return None if message.tool_calls else ""


def _reasoning(content: Any) -> str:
    from inspect_ai.model import ContentReasoning

    parts = content if isinstance(content, list) else []
    return "\n".join(
        part.text for part in parts if isinstance(part, ContentReasoning) and part.text
    )
