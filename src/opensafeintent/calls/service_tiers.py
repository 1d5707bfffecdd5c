"""Service tiers: for which price, and how fast, a provider answers a request.

A tier is how a call is made, and no part of its key: answers of all tiers are one ledger's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping

import msgspec

from opensafeintent.hostile import NAME

FLEX = "flex"
STANDARD = "standard"
BATCH = "batch"
"""Of a call in a batch."""
FIELD = "service_tier"
"""Of a request and of a reply."""

FLEX_SECONDS = 900.0
"""Deadline of one attempt at the flex tier, as OpenAI and Google advise it."""

_STANDARD_NAMES = ("", "auto", "default", "on_demand", STANDARD)
"""Names of the standard tier: of OpenAI, Groq, Google and Anthropic."""
_HEADER = "x-gemini-service-tier"
"""Google names the tier that served here."""
_STATED = re.compile(rb'"service_tier"\s*:\s*"([a-z_]{1,30})"')
"""A reply's field, at any depth. No text in a reply matches: its quotation marks are escaped."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A way to get the same answers for another price, as a provider documents it."""

    factor: float
    """Its price as a share of the standard price, if no price list has it."""
    takes: str
    """How long a call may take, for people."""
    source: str
    """Address of the documentation."""
    checked: str
    """Year and month in which the documentation said so."""


class FlexPlan(msgspec.Struct, frozen=True):
    """The models that are asked at the flex tier."""

    models: Collection[str] = ()
    fallback_seconds: float | None = None
    """So long a model waits for capacity; then calls go to the standard tier. None waits on."""

    def find_tier(self, model: str) -> FlexTier | None:
        """Return the flex tier of a model; None if it is not asked there."""
        return FlexTier(self.fallback_seconds) if model in self.models else None


NO_FLEX = FlexPlan()


class FlexTier:
    """The flex tier of one model, and whether it has capacity.

    After `fallback_seconds` without capacity, calls go to the standard tier. Once in so many
    seconds one of them tries the flex tier first, and its answer ends the fallback.

    Args:
        fallback_seconds: see above; None never falls back.
    """

    def __init__(self, fallback_seconds: float | None) -> None:
        self._fallback_seconds = fallback_seconds
        self._lacking_since: float | None = None
        self._next_trial = 0.0
        self.fallbacks = 0
        """Calls that went to the standard tier."""

    @property
    def fell_back(self) -> bool:
        """Whether there has been no capacity for too long."""
        return (
            self._fallback_seconds is not None
            and self._lacking_since is not None
            and time.monotonic() - self._lacking_since >= self._fallback_seconds
        )

    def takes_next(self) -> bool:
        """Tell whether the next call is sent to this tier; count it if it is not."""
        if not self.fell_back:
            return True
        if (now := time.monotonic()) >= self._next_trial:
            self._next_trial = now + (self._fallback_seconds or 0.0)
            return True
        self.fallbacks += 1
        return False

    def note_answer(self) -> None:
        """Note an answer of this tier."""
        self._lacking_since = None

    def note_lack(self) -> None:
        """Note that there was no capacity for a call."""
        if self._lacking_since is None:
            self._lacking_since = time.monotonic()
            self._next_trial = self._lacking_since + 2 * (self._fallback_seconds or 0.0)

    def notice(self, model: str) -> str:
        """Say how many calls went to the standard tier; "" if none did."""
        if not self.fallbacks:
            return ""
        return (
            f"{model}: {self.fallbacks:,} calls were sent at the standard tier, because the flex"
            " tier had no capacity (--wait-for)"
        )


def tier_name(name: str) -> str:
    """Return a tier by its usual name, of the name that a provider gives it."""
    plain = re.sub(r"[^a-z_]", "", name.lower())[:NAME]
    return STANDARD if plain in _STANDARD_NAMES else plain


def read_tier(reply: bytes) -> str | None:
    """Return the tier that a reply says it was served by; None if it says nothing."""
    stated = _STATED.search(reply)
    return tier_name(stated[1].decode()) if stated else None


def find_served_tier(reply: bytes, headers: Mapping[str, str], requested: object) -> str:
    """Return the tier that served a reply: the one that it states or, if it states none, the
    requested one.

    Args:
        reply: its body.
        headers: of the reply.
        requested: the tier in the request, if there was one.
    """
    if (stated := read_tier(reply)) is not None:
        return stated
    header = headers.get(_HEADER) or ""
    named = header if header.replace("_", "").isalpha() else ""
    name = named or (requested if isinstance(requested, str) else "")
    return tier_name(name) if name else STANDARD
