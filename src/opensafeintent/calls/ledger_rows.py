"""Rows of a ledger, as they are read."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from opensafeintent.calls.ledger_file import transport_of, unpack
from opensafeintent.calls.protocols import WireProtocol
from opensafeintent.calls.records import Answered, Purpose, Refused, Usage
from opensafeintent.calls.replies import protocol_named, read_reply, usage_in
from opensafeintent.calls.service_tiers import STANDARD, stated_tier

Status = Literal["answered", "refused", "failed"]


class Located(NamedTuple):
    """An outcome, and its position in the ledger."""

    row: int
    """Id of the row; 0 for one that is still on its way to the file."""
    outcome: Answered | Refused


class Attempted(NamedTuple):
    """Result of an attempt, as far as it was paid for."""

    model: str
    purpose: Purpose
    status: Status
    input_tokens: int
    output_tokens: int
    seconds: float
    created: datetime
    """UTC."""
    served_model: str
    """The model that the reply names."""
    cached_tokens: int = 0
    """Input tokens that were read from a cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to one."""
    tier: str = STANDARD
    """The service tier that served it."""


_CACHE_COUNT = re.compile(rb'cach[A-Za-z_]*"\s*:\s*[1-9]')
"""A count of cached tokens, in any form of usage."""


def protocol_of(request_end: str) -> WireProtocol:
    """Return the protocol in which a row was asked.

    Args:
        request_end: the last `END_OF_REQUEST` characters of the stored request.

    Raises:
        ValueError: it names an unknown one.
    """
    return protocol_named(transport_of(request_end).protocol)


def with_reply(attempted: Attempted, packed: bytes, request_end: str) -> Attempted:
    """Return an attempt with the facts that the columns lack: the service tier, all tokens of a
    failed attempt, the cached ones of any other.

    Args:
        attempted: the attempt.
        packed: its reply.
        request_end: the last `END_OF_REQUEST` characters of the stored request.
    """
    reply = unpack(packed)
    tier, protocol_name = transport_of(request_end)
    protocol = protocol_named(protocol_name)
    tier = stated_tier(reply) or STANDARD if tier == STANDARD else tier
    if tier != STANDARD:
        attempted = attempted._replace(tier=tier)
    tokens = attempted.input_tokens + attempted.output_tokens
    if attempted.status == "failed" and not tokens:
        return attempted._replace(**msgspec.structs.asdict(usage_in(reply, protocol)))
    # most replies of most providers count none: nothing is decoded
    if not tokens or not _CACHE_COUNT.search(reply):
        return attempted
    usage = usage_in(reply, protocol)
    return attempted._replace(
        cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
    )


def stored_outcome(
    status: str,
    body: bytes,
    request_end: str,
    error: str = "",
    input_tokens: int = 0,
    output_tokens: int = 0,
    served: str = "",
) -> Answered | Refused:
    """Return the outcome of a row, read by the protocol that it was asked in.

    Raises:
        ValueError: the stored reply is no such outcome.
    """
    reply = unpack(body)
    if status == "answered":
        return read_reply(reply, protocol_of(request_end))
    return Refused(reason=error, usage=Usage(input_tokens, output_tokens), served_model=served)
