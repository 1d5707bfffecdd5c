"""What one attempt at a call can come to."""

from __future__ import annotations

import msgspec

from opensafeintent.calls.records import Answered, Refused
from opensafeintent.calls.replies import NotAnAnswer

__all__ = ["Attempt", "Failure", "Replied", "no_answer"]


class Replied(msgspec.Struct, frozen=True):
    """The model, or its provider's filter, gave its word."""

    outcome: Answered | Refused
    body: bytes
    seconds: float = 0.0


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """It did not."""

    kind: str
    error: str
    """One line, without secrets."""
    retry: bool = False
    """Trying again may help."""
    fatal: bool = False
    """Every further call to this model would end the same way."""
    throttled: bool = False
    replied: bool = False
    """The model did reply, though with no answer: it is asked once more, and nothing follows for its other calls."""
    retry_after: float | None = None
    body: bytes = b""
    seconds: float = 0.0


Attempt = Replied | Failure


def no_answer(wrong: NotAnAnswer, body: bytes, seconds: float = 0.0) -> Failure:
    """Return the failure that a reply without an answer is."""
    return Failure(kind=wrong.kind, error=str(wrong), retry=True, replied=wrong.final, body=body, seconds=seconds)
