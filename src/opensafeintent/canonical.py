"""Canonical JSON and its SHA-256: what identities, keys and hashes are made of."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON in one and only one form: keys sorted, no white space, UTF-8."""
    return _encoder.encode(value)


def sha256_hex(value: bytes | str) -> str:
    """Return the SHA-256 of bytes, or of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()
