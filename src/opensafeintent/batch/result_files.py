"""JSON of providers: decoded within limits, and the bodies of replies that the ledger keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from opensafeintent.files import check_depth


def decoded(raw: bytes, read: Callable[[bytes], Any] = msgspec.json.decode) -> Any:
    """Return the value of some JSON.

    Raises:
        ValueError: it is none, or is nested too deeply.
    """
    try:
        value = read(raw)
        check_depth(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def identified(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the custom id of a line of results, which is empty if it has none, and its fields.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        fields = decoded(line)
    except ValueError:
        # half of a surrogate pair, which only Python's own reader takes
        fields = decoded(line, json.loads)
    if not isinstance(fields, dict):
        raise ValueError("a line is no JSON object")
    return str(fields.get("custom_id") or ""), fields


def reply_body(body: dict[str, Any] | str) -> bytes:
    """Return the bytes of the body of a reply, which some gateways send as a text."""
    if isinstance(body, str):
        return body.encode("utf-8", "replace")
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()
