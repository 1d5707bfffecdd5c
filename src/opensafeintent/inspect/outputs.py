"""Calls and outputs in Inspect AI's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opensafeintent.calls.providers import LOCAL_WEIGHTS
from opensafeintent.calls.records import Call, Sampling
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ChatMessageAssistant, ModelOutput


def name_sampling(sampling: Sampling, provider: str) -> dict[str, Any]:
    """Return how a call is sampled, as Inspect AI names it."""
    fields: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "reasoning_effort": sampling.reasoning_effort,
    }
    if provider in LOCAL_WEIGHTS and sampling.temperature == 0:
        # `transformers` refuses 0, which means the likeliest token alone
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
    """Return the error that a provider of Inspect's gave as an answer; None for an answer, or a
    filter's stop.

    Some providers turn an error into the text of an answer, without a count of tokens: for a prompt
    that is too long, and for an apparent content filter's error. If they decide by its words
    ("blocked", or any that come with `error`), we count no refusal; if they decide by its code, we
    do.
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


def make_completion(output: ModelOutput, max_tokens: int | None = None) -> bytes:
    """Return an output as a chat completion, which the ledger keeps and `read_reply` reads.

    Reasoning stays apart from the text, for nobody grades it. Tokens that came from or went to a
    prompt cache are input tokens, reasoning tokens are output tokens.
    """
    if output.empty:
        return canonical_json(
            {"choices": [], "error": one_line(output.error or "the provider gave no answer")}
        )
    choice = output.choices[0]
    stop: str = choice.stop_reason
    usage = output.usage
    thoughts = _list_reasoning(choice.message.content)
    # a provider without a stop reason: an answer at the limit was cut, or one of its batch was; a
    # text of fewer bytes was not
    if stop == "unknown" and usage and max_tokens:
        text = f"{''.join(thoughts)}{choice.message.text}"
        short = 0 < len(text.encode("utf-8", "replace")) < max_tokens
        stop = "length" if usage.output_tokens >= max_tokens and not short else "stop"
    # without a count of tokens no model wrote the text: it is an error in other words
    foreign = stop == "content_filter" and usage is None
    message = {
        "role": "assistant",
        "content": None if foreign else _rebuild_content(choice.message),
        **({"reasoning_content": "\n".join(thoughts) or "(hidden)"} if thoughts else {}),
    }
    body: dict[str, Any] = {
        "model": output.model,
        "choices": [
            {"message": message, "finish_reason": STOP_REASONS.get(stop, stop)},
        ],
    }
    if usage is not None:
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        body["usage"] = {
            "prompt_tokens": usage.input_tokens + cached,
            "completion_tokens": usage.output_tokens,
        }
        if cached:
            body["usage"]["prompt_tokens_details"] = {
                "cached_tokens": usage.input_tokens_cache_read or 0,
                "cache_write_tokens": usage.input_tokens_cache_write or 0,
            }
        if usage.reasoning_tokens:
            body["usage"]["completion_tokens_details"] = {
                "reasoning_tokens": usage.reasoning_tokens
            }
    return canonical_json(body)


STOP_REASONS = {"max_tokens": "length", "unknown": ""}
"""Those of Inspect AI that chat completions name otherwise; `unknown` if the provider gave none."""


def only_reasons(output: ModelOutput) -> bool:
    """Tell whether an output shows reasoning and has no text."""
    tokens = output.usage.reasoning_tokens if output.usage else 0
    return not output.completion.strip() and bool(tokens or _list_reasoning(output.message.content))


def _rebuild_content(message: ChatMessageAssistant) -> str | list[dict[str, str]] | None:
    """Return the text of a message, as its provider most likely sent it: Inspect turns a missing
    text into "".
    """
    from inspect_ai.model import ContentReasoning, ContentText

    if text := message.text:
        return text
    parts = message.content if isinstance(message.content, list) else []
    if any(not isinstance(part, ContentText | ContentReasoning) for part in parts):
        return [{"type": part.type} for part in parts]
    return None if message.tool_calls else ""


def _list_reasoning(content: Any) -> list[str]:
    """Return the texts of a message's reasoning, each "" if its provider hides it."""
    from inspect_ai.model import ContentReasoning

    parts = content if isinstance(content, list) else []
    return [part.text or "" for part in parts if isinstance(part, ContentReasoning)]


def first_reply_in(messages: Sequence[ChatMessage]) -> str | None:
    """Return the reply before the last message of the user; None if there is one turn alone."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    if len(users) < 2:
        return None
    return next(
        (message.text for message in messages[: users[-1]] if message.role == "assistant"), None
    )
