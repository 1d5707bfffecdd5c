"""What result files of other evaluation tools have in common: how they become our records.

A record has `model`, `prompt`, `response`, `stop_reason`, `missing`; `id` and `variant` if the
user's own variables name both; and `sent`, the text that the model got, if the tool reports another
than the prompt. A response without text is missing: `failed` if the tool reports an error,
`reasoning_only` if the model reasoned, else `no_answer`.
"""

from __future__ import annotations

import json
from typing import Any


def prompt_text(text: str) -> str:
    """Return the prompt of a request; of a chat with one message, which both tools keep as JSON,
    its text; of a longer one, its JSON in one form.
    """
    try:
        chat = json.loads(text)
    except (ValueError, RecursionError):
        return text
    match chat:
        case [{"role": "user", "content": str(content)}]:
            return content
        case [{"role": _}, *_]:
            return json.dumps(chat)
    return text


def named_place(variables: object) -> dict[str, str]:
    """Return set and variant, if a user's own variables name both."""
    match variables:
        case {"id": str(set_id), "variant": str(variant)}:
            return {"id": set_id, "variant": variant}
    return {}


def response_fields(output: object, stop: str, *, reasoned: bool = False) -> dict[str, Any]:
    """Return the fields of a response, or of one that is missing."""
    if isinstance(output, str) and (output.strip() or (stop and not reasoned)):
        return {"response": output, "stop_reason": stop or "stop"}
    return missing_fields("reasoning_only" if reasoned else "no_answer")


def missing_fields(reason: str) -> dict[str, Any]:
    """Return the fields of a response that is missing."""
    return {"missing": [f"response:{reason}"]}
