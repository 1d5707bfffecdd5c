"""What a provider's error says in its fields, and which of them tell that a content filter stepped in.

Prose is never gone by: "your account was flagged" and "your prompt was flagged" differ in a word, and only one is a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["LONGEST_ERROR", "REFUSING", "error_of", "is_filter"]

LONGEST_ERROR = 2**20
"""Bytes; more of an error is neither read nor kept."""

REFUSING = (400, 403, 422)
"""HTTP statuses that a filter answers with; any other says first of all that something else is wrong."""

_FILTERS = frozenset(
    {
        "content_filter",  # OpenAI, Azure, and those who answer as they do
        "content_policy_violation",  # OpenAI, OpenRouter, LiteLLM
        "moderation_blocked",  # OpenAI
        "bio_policy",  # OpenAI
        "cyber_policy",  # OpenAI
        "responsibleaipolicyviolation",  # Azure, in `innererror`
        "data_inspection_failed",  # DashScope, compatible mode
        "datainspectionfailed",  # DashScope
        "sensitivecontentdetected",  # Volcengine Ark and BytePlus ModelArk, with `.Violence` and the like behind it
        "inputtextsensitivecontentdetected",
        "outputtextsensitivecontentdetected",
        "inputtextriskdetection",
        "outputtextriskdetection",
        "sensitive_words_detected",  # One API and New API
        "prompt_blocked",  # New API
    }
)
"""Codes that are documented for a content filter, in lower case. Each stands alone: Azure's `content_filter_error` says that
the filter was *not* applied."""


def error_of(body: bytes) -> dict[str, Any]:
    """Return the fields of the error in a reply; empty where there is none that can be read."""
    if len(body) > LONGEST_ERROR:
        return {}
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    error = data.get("error") or data
    return error if isinstance(error, dict) else {"message": str(error)}


def is_filter(error: dict[str, Any]) -> bool:
    """Tell whether an error says, in a documented field, that a content filter refused the request or its answer."""
    status = error.get("code")  # some gateways give it in the body
    if isinstance(status, int) and 400 <= status < 600 and status not in REFUSING:
        return False
    metadata, inner = _inside(error, "metadata"), list(_inner_errors(error))
    codes = [*(holder.get(name) for holder in (error, *inner) for name in ("code", "type")), metadata.get("error_type")]
    if any(isinstance(code, str) and code.partition(".")[0].lower() in _FILTERS for code in codes):
        return True
    if isinstance(metadata.get("flagged_input"), str) or _some_texts(metadata.get("reasons")):  # OpenRouter's moderation
        return True
    results = (_inside(holder, name) for holder in inner for name in ("content_filter_result", "content_filter_results"))
    return any(isinstance(found, dict) and found.get("filtered") is True for result in results for found in result.values())


def _inner_errors(error: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what Azure says in more detail, directly or as LiteLLM passes it on."""
    for holder in (error, _inside(error, "provider_specific_fields")):
        for name in ("innererror", "inner_error"):
            yield _inside(holder, name)


def _inside(holder: dict[str, Any], name: str) -> dict[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def _some_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)
