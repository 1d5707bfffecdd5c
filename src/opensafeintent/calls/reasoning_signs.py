"""Signs of reasoning beside a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

REASONING_ONLY = "reasoning_only"
"""Why a response is missing that holds reasoning and no text."""

REASONING_FIELDS = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_items",
    "thinking",
    "thinking_blocks",
)
"""Fields of a message that hold reasoning: DeepSeek, vLLM, SGLang, Ollama, OpenRouter, LiteLLM."""

REASONING_BLOCKS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
"""Types of blocks that hold reasoning: Anthropic, Mistral, Cohere, Bedrock."""

TOKEN_FIELDS = ("completion_tokens_details", "output_tokens_details")
"""Fields of a usage with a count of `REASONING_TOKENS`; SGLang has it in the usage itself."""

REASONING_TOKENS = ("reasoning_tokens", "thinking_tokens")
"""Counts of tokens of reasoning: of OpenAI and nearly every server, of Anthropic."""


def reasoned_beside(message: Mapping[str, Any], usage: Mapping[str, Any]) -> bool:
    """Tell whether a reply shows reasoning apart from its text: in a field, a block or a count of
    tokens.
    """
    inner = message.get("provider_specific_fields")
    messages = (message, inner) if isinstance(inner, Mapping) else (message,)
    if any(holder.get(name) for holder in messages for name in REASONING_FIELDS):
        return True
    blocks = message.get("content")
    if isinstance(blocks, list) and any(map(is_reasoning, blocks)):
        return True
    details = (usage.get(name) for name in TOKEN_FIELDS)
    holders = (holder for holder in (usage, *details) if isinstance(holder, Mapping))
    counts = (holder.get(name) for holder in holders for name in REASONING_TOKENS)
    return any(isinstance(count, int | float) and count > 0 for count in counts)


def reasoning_beside(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of the reasoning that a message holds apart from its text, each once."""
    inner = message.get("provider_specific_fields")
    messages = (message, inner) if isinstance(inner, Mapping) else (message,)
    blocks = message.get("content")
    found = [holder.get(name) for name in REASONING_FIELDS for holder in messages]
    found += [block for block in blocks if is_reasoning(block)] if isinstance(blocks, list) else []
    return list(dict.fromkeys(text for value in found for text in _texts_in(value)))


_TEXTS = ("text", "thinking", "reasoning", "reasoning_content", "content", "summary")
"""Fields of a block that hold its text, or further blocks."""
_DEEPEST = 5


def _texts_in(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield from filter(None, [value.strip()])
    elif depth < _DEEPEST:
        if isinstance(value, Mapping):
            inner = [value.get(name) for name in _TEXTS]
        else:
            inner = list(value) if isinstance(value, list) else []
        for item in inner:
            yield from _texts_in(item, depth + 1)


def is_reasoning(block: object) -> bool:
    """Tell whether a block of a message's content holds reasoning."""
    return isinstance(block, Mapping) and (
        block.get("type") in REASONING_BLOCKS or block.get("thought") is True
    )
