"""Lines of results: their fields, and the bodies that the ledger keeps."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def identified(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the custom id of a line of results, which is empty if it has none, and its fields.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # half of a surrogate pair, which only Python's own reader takes
        try:
            fields = json.loads(line)
        except RecursionError as error:
            raise ValueError(str(error)) from error
    if not isinstance(fields, dict):
        raise ValueError("a line is no JSON object")
    return str(fields.get("custom_id") or ""), fields


def reply_body(body: dict[str, Any]) -> bytes:
    """Return the bytes of the body of a reply."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()
