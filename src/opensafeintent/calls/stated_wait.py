"""The wait that an error states."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from math import isfinite

from opensafeintent.calls.provider_errors import ProviderError

_LONGEST_WAIT = 300.0
"""Seconds; a provider that asks for a longer wait gets this one, again and again."""
_IN_PROSE = re.compile(
    r"\b(?:try again|retry|retrying|wait)\b[^.\d\n]{0,30}"
    r"(?P<span>(?:\d{1,9}(?:\.\d{1,12})?\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?"
    r"|h|hours?)\b\s*|\d{1,6}(?:h|m)(?=\d))+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|[smh])", re.IGNORECASE)
_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def bounded_wait(seconds: float) -> float | None:
    """Return the wait for a provider that requests so many seconds; None if it names no number."""
    return min(max(seconds, 0.0), _LONGEST_WAIT) if isfinite(seconds) else None


def stated_delay(headers: Mapping[str, str], error: ProviderError) -> float | None:
    """Return the wait that a reply asks for, in seconds; None if it states none.

    It is in a header, in Google's `RetryInfo`, or in a sentence ("try again in 1m30s").
    """
    with suppress(ValueError):
        return bounded_wait(float(headers.get("retry-after-ms", "")) / 1000)
    if (wait := _seconds(headers.get("Retry-After"))) is not None:
        return wait
    for fields in error.fields:
        details = fields.get("details")
        for detail in details if isinstance(details, list) else ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            if isinstance(delay, str) and (wait := _duration(delay[:50])) is not None:
                return wait
    match = _IN_PROSE.search(error.text)
    return _duration(match["span"]) if match else None


def _duration(text: str) -> float | None:
    parts = _PART.findall(text)
    if not parts:
        return None
    return bounded_wait(sum(float(number) * _UNITS[unit.lower()] for number, unit in parts))


def _seconds(retry_after: str | None) -> float | None:
    """Read `Retry-After`: seconds, or a date. None if it is neither."""
    if not retry_after or len(retry_after) > 100:
        return None
    with suppress(ValueError):
        return bounded_wait(float(retry_after))
    try:
        return bounded_wait(parsedate_to_datetime(retry_after).timestamp() - time.time())
    # a hostile date has impossible years and zones
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
