"""What an error of a provider says: its text, its code, how long to wait."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.protocols import ERROR_CODES, ERROR_TEXTS, dict_or_empty, find_error
from opensafeintent.calls.streams import NoStream, Stream, read_stream

LONGEST_ERROR = 2**20
"""Bytes; more of an error is neither read nor kept."""
_MOST_READ = 2000
"""Characters of each text of an error that are looked through."""
_LEVELS = 4
"""Of errors within errors: gateways quote the error of the server behind them."""
_MOST_ERRORS = 16


class ProviderError(NamedTuple):
    """An error as a provider or a gateway sent it."""

    fields: tuple[dict[str, Any], ...] = ({},)
    """The fields of the error, then those of each error that it quotes."""
    text: str = ""
    """All of its texts."""

    @property
    def message(self) -> str:
        """The message of the outermost error; "" if it has none."""
        return str(self.fields[0].get("message") or "")

    @property
    def status(self) -> int | None:
        """The HTTP status that the body gives, as some gateways do that answer with 200."""
        codes = (self.fields[0].get(name) for name in ("code", "status", "status_code"))
        return next((code for code in codes if isinstance(code, int) and 400 <= code < 600), None)

    @property
    def codes(self) -> set[str]:
        """Every code and type in it, as `code_name` writes them."""
        return {code_name(code) for fields in self.fields for code in _codes_in(fields)}


def code_name(code: str | int) -> str:
    """Return a code as the tables have it: in lower case, with `_`, without what follows a dot."""
    return str(code)[:100].partition(".")[0].strip().lower().replace("-", "_").replace(" ", "_")


def _codes_in(fields: Mapping[str, Any]) -> Iterator[str | int]:
    details = fields.get("details")
    nested = [
        *(dict_or_empty(fields.get(name)) for name in ("innererror", "inner_error", "metadata")),
        *(
            item
            for item in (details if isinstance(details, list) else ())
            if isinstance(item, dict)
        ),
    ]
    for holder in (fields, *nested):
        for name in ERROR_CODES:
            if isinstance(code := holder.get(name), str | int) and not isinstance(code, bool):
                yield code


def read_error(body: bytes) -> ProviderError:
    """Read an error in any of the shapes that servers give it; without fields if it has none."""
    if len(body) > LONGEST_ERROR:
        return ProviderError()
    errors: list[dict[str, Any]] = []
    with suppress(RecursionError, NoStream):
        _collect(_json(body) or _errors_in(read_stream(body)), errors, _LEVELS)
    body_start = body[: 4 * _MOST_READ].decode("utf-8", "replace")
    quoted = " ".join(str(fields.get("message"))[:_MOST_READ] for fields in errors)
    return ProviderError(tuple(errors) or ({},), f"{body_start} {quoted}")


def _errors_in(stream: Stream) -> list[dict[str, Any]]:
    """Return the events of a stream that hold an error; all of them if none does."""
    return [part for part in stream.parts if part.get("error")] or stream.parts


def parse_error(data: Any) -> ProviderError:
    """Return the error that some decoded fields are."""
    return read_error(msgspec.json.encode(data, enc_hook=str))


def _json(raw: bytes | str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None


def _collect(data: Any, errors: list[dict[str, Any]], levels: int) -> None:
    """Add the errors in a value, the outermost first."""
    if levels == 0 or len(errors) >= _MOST_ERRORS:
        return
    if isinstance(data, list):
        for item in data[:_MOST_ERRORS]:
            _collect(item, errors, levels - 1)
    if not isinstance(data, dict):
        return
    error = find_error(data)
    if isinstance(error, dict):
        beside = {name: data[name] for name in ("code", "type", "status") if name in data}
        fields = {name: value for name, value in beside.items() if name not in error} | error
        # Anthropic's word for the whole reply
        if fields.get("type") == "error":
            del fields["type"]
    else:
        fields = dict(data)
        if error and "message" not in fields:
            fields["message"] = error if isinstance(error, str) else str(error)
    texts = (fields.get(name) for name in ERROR_TEXTS)
    text = next((text for text in texts if isinstance(text, str)), None)
    if text is not None:
        fields.setdefault("message", text)
    errors.append(fields)
    for name in ("base_resp", "errors"):
        _collect(fields.get(name), errors, levels - 1)
    raw = dict_or_empty(fields.get("metadata")).get("raw")
    for text in (fields.get("message"), fields.get("cause"), raw):
        if isinstance(text, str) and (quoted := _find_quoted_json(text)) is not None:
            _collect(quoted, errors, levels - 1)


def _find_quoted_json(text: str) -> Any:
    """Return the JSON that a message quotes; None if it quotes none."""
    start = re.search(r"[\[{]", text)
    if start is None or len(text) > LONGEST_ERROR:
        return None
    end = max(text.rfind("}"), text.rfind("]")) + 1
    return _json(text[start.start() : end])


REFUSING = (400, 403, 422)
"""HTTP statuses that a filter answers with; any other says first of all that something else is
wrong.
"""


class Codes(NamedTuple):
    """Codes of one meaning and one source, as `code_name` writes them."""

    names: tuple[str, ...]
    source: str


FILTER_CODES = (
    Codes(("content_filter",), "OpenAI, Azure, Moonshot, and those who answer as they do"),
    Codes(("content_policy_violation",), "OpenAI, OpenRouter, LiteLLM"),
    Codes(("moderation_blocked", "bio_policy", "cyber_policy"), "OpenAI"),
    Codes(("responsibleaipolicyviolation",), "Azure, in innererror"),
    Codes(("data_inspection_failed", "datainspectionfailed"), "DashScope"),
    Codes(
        (
            "sensitivecontentdetected",
            "inputtextsensitivecontentdetected",
            "outputtextsensitivecontentdetected",
            "inputtextriskdetection",
            "outputtextriskdetection",
            "contentsecuritydetectionerror",
        ),
        "Volcengine Ark, BytePlus ModelArk",
    ),
    Codes(("1301",), "Zhipu"),
    Codes(("1026", "1027"), "MiniMax"),
    Codes(("sensitive_words_detected", "prompt_blocked"), "One API, New API"),
)
"""Documented codes of content filters. A code has to match in full: Azure's `content_filter_error`
says that the filter was *not* applied.
"""

_FILTERS = frozenset(name for codes in FILTER_CODES for name in codes.names)


def is_filter(error: ProviderError) -> bool:
    """Tell whether an error says, in a documented field, that a content filter refused the request
    or its answer.
    """
    if error.status is not None and error.status not in REFUSING:
        return False
    return any(map(_says_filter, error.fields))


def _says_filter(fields: Mapping[str, Any]) -> bool:
    metadata = dict_or_empty(fields.get("metadata"))
    inner = [  # Azure's details, directly or as LiteLLM passes them on
        dict_or_empty(holder.get(name))
        for holder in (fields, dict_or_empty(fields.get("provider_specific_fields")))
        for name in ("innererror", "inner_error")
    ]
    codes = [
        *(holder.get(name) for holder in (fields, *inner) for name in ("code", "type", "kind")),
        fields.get("status_code"),
        metadata.get("error_type"),
    ]
    if any(code_name(code) in _FILTERS for code in codes if isinstance(code, str | int)):
        return True
    reasons = metadata.get("reasons")
    has_reason_texts = isinstance(reasons, list) and all(isinstance(text, str) for text in reasons)
    if isinstance(metadata.get("flagged_input"), str) or (reasons and has_reason_texts):
        return True  # OpenRouter's moderation
    results = (
        dict_or_empty(holder.get(name))
        for holder in inner
        for name in ("content_filter_result", "content_filter_results")
    )
    return any(
        isinstance(verdict, dict) and verdict.get("filtered") is True
        for result in results
        for verdict in result.values()
    )


FATAL_CODES: dict[str, tuple[Codes, ...]] = {
    "unauthorized": (
        Codes(("invalid_api_key", "incorrect_api_key", "account_deactivated"), "OpenAI, Groq"),
        Codes(("access_terminated", "organization_restricted"), "OpenAI, Groq"),
        Codes(("unsupported_country_region_territory",), "OpenAI"),
        Codes(("authentication_error", "permission_error"), "Anthropic"),
        Codes(("unauthenticated", "api_key_invalid", "service_disabled"), "Gemini"),
        Codes(("incorrect_api_key_error", "invalid_authentication_error"), "Moonshot"),
        Codes(("invalidapikey", "authenticationerror"), "DashScope, Volcengine Ark"),
        Codes(("1000", "1001", "1002", "1003", "1004", "2049"), "Zhipu, MiniMax"),
    ),
    "no_credit": (
        Codes(("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"), "OpenAI"),
        Codes(
            (
                "credit_balance_exhausted",
                "organization_spend_limit_exceeded",
                "project_spend_limit_exceeded",
                "organization_usage_limit_exceeded",
            ),
            "OpenAI",
        ),
        Codes(("billing_error",), "Anthropic"),
        Codes(("exceeded_current_quota_error",), "Moonshot"),
        Codes(("insufficient_balance", "insufficient_balance_error", "1008"), "MiniMax, gateways"),
        Codes(("1110", "1111", "1112", "1113", "1121", "1309", "1310"), "Zhipu"),
        Codes(("arrearage", "accountoverdueerror", "serviceoverdue"), "DashScope, Volcengine Ark"),
        Codes(("usage_limit_reached",), "gateways"),
    ),
    "unknown_model": (
        Codes(("model_not_found", "model_decommissioned", "model_terms_required"), "OpenAI, Groq"),
        Codes(("model_not_available", "invalid_model", "unknown_model"), "gateways"),
        Codes(("deploymentnotfound", "modelnotfound", "modelnotopen"), "Azure, Volcengine Ark"),
        Codes(("invalidendpointormodel", "1211", "1311"), "Volcengine Ark, Zhipu"),
    ),
}
"""Codes that every further call to the model would meet, by the kind of failure."""

WAITING_CODES = (
    Codes(("in_flight_budget_exhausted",), "OpenRouter, with status 402"),
    Codes(("request_quota_exceeded", "token_quota_exceeded", "queue_exceeded"), "Cerebras"),
    Codes(("rate_limit_error", "overloaded_error"), "Anthropic, its compatible route as well"),
    Codes(("rate_limit_daily", "rate_limit_exceeded", "rate_limited"), "gateways, Mistral"),
)
"""Codes of limits that pass, by any server and whatever the status: none that the status tells, and
no word that another server has for something else.
"""

CAPACITY_CODES = (
    Codes(("resource_unavailable",), "OpenAI, with status 429"),
    Codes(("capacity_exceeded",), "Groq, with status 498"),
    Codes(("unavailable",), "Gemini, with status 503"),
)
"""Codes of a tier without capacity, whose requests another tier would answer."""

FATAL = tuple(FATAL_CODES)
"""Kinds that every further call to the model would meet."""

_FATAL_KINDS = {
    name: kind for kind, table in FATAL_CODES.items() for codes in table for name in codes.names
}
_WAITING = frozenset(name for codes in WAITING_CODES for name in codes.names)
_CAPACITY = frozenset(name for codes in CAPACITY_CODES for name in codes.names)
_QUOTA = _WAITING | {"resource_exhausted"}
"""Codes of limits of the account, which hold for all tiers: the last one is Gemini's."""

LIMITED = (429, 498, 529)
"""Statuses of limits and of missing capacity, which are waited out: 498 is Groq's, 529
Anthropic's.
"""
_WAITABLE = (*LIMITED, 402, 403)
"""Statuses that say no more than a wait if the error states one."""
_TOO_LARGE = 413
"""A single request beyond the limit: no wait makes it smaller."""
_TRANSIENT = (408, 409, 425)


def classify_error(status: int, error: ProviderError, delay: float | None = None) -> str:
    """Return the kind of failure that an error is, if no filter's field explains it.

    Args:
        status: the HTTP status.
        error: the error in the reply.
        delay: the wait that it states, in seconds; see `read_delay`.
    """
    codes = error.codes
    if delay is not None and status in _WAITABLE:
        return "rate_limited"
    kinds = {_FATAL_KINDS[code] for code in codes if code in _FATAL_KINDS}
    if kinds:
        return next(kind for kind in FATAL_CODES if kind in kinds)
    if codes & _WAITING and status != _TOO_LARGE:
        return "rate_limited"
    match status:
        case 401:
            return "unauthorized"
        case 402:
            return "no_credit"
        case 403:
            return "forbidden"
        case 404:
            return "unknown_model"
        case _ if status in LIMITED:
            return "rate_limited"
        case _:
            return "server" if status in _TRANSIENT or status >= 500 else "rejected"


def lacks_capacity(status: int, error: ProviderError, kind: str) -> bool:
    """Tell whether an error says that the requested tier has no capacity.

    A limit of the account has a code of its own; without any code, the status decides.

    Args:
        status: the HTTP status.
        error: the error in the reply.
        kind: of the failure; see `classify_error`.
    """
    if kind not in ("rate_limited", "server") or status not in (*LIMITED, 503):
        return False
    return bool(error.codes & _CAPACITY) or not error.codes & _QUOTA


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


def bound_wait(seconds: float) -> float | None:
    """Return the wait for a provider that requests so many seconds; None if it names no number."""
    return min(max(seconds, 0.0), _LONGEST_WAIT) if isfinite(seconds) else None


def read_delay(headers: Mapping[str, str], error: ProviderError) -> float | None:
    """Return the wait that a reply asks for, in seconds; None if it states none.

    It is in a header, in Google's `RetryInfo`, or in a sentence ("try again in 1m30s").
    """
    with suppress(ValueError):
        return bound_wait(float(headers.get("retry-after-ms", "")) / 1000)
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
    return bound_wait(sum(float(number) * _UNITS[unit.lower()] for number, unit in parts))


def _seconds(retry_after: str | None) -> float | None:
    """Read `Retry-After`: seconds, or a date. None if it is neither."""
    if not retry_after or len(retry_after) > 100:
        return None
    with suppress(ValueError):
        return bound_wait(float(retry_after))
    try:
        return bound_wait(parsedate_to_datetime(retry_after).timestamp() - time.time())
    # a hostile date has impossible years and zones
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
