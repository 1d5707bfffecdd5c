"""What an error means: a content filter's refusal, a failure that every call would meet, a limit
that passes.

Codes and statuses decide, never prose: "your account was flagged" and "your prompt was flagged"
differ in one word, and only one is a refusal. Prose may only make a call wait.
`docs/what-providers-send.md` shows the tables of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from opensafeintent.calls.provider_errors import ProviderError, code_name, object_in

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
    metadata = object_in(fields, "metadata")
    inner = [  # Azure's details, directly or as LiteLLM passes them on
        object_in(holder, name)
        for holder in (fields, object_in(fields, "provider_specific_fields"))
        for name in ("innererror", "inner_error")
    ]
    codes = [
        *(holder.get(name) for holder in (fields, *inner) for name in ("code", "type")),
        fields.get("status_code"),
        metadata.get("error_type"),
    ]
    if any(code_name(code) in _FILTERS for code in codes if isinstance(code, str | int)):
        return True
    reasons = metadata.get("reasons")
    moderated = isinstance(reasons, list) and all(isinstance(text, str) for text in reasons)
    if isinstance(metadata.get("flagged_input"), str) or (reasons and moderated):
        return True  # OpenRouter's moderation
    results = (
        object_in(holder, name)
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
"""Codes of limits that pass, whatever the status."""

CAPACITY_CODES = (
    Codes(("resource_unavailable",), "OpenAI, with status 429"),
    Codes(("capacity_exceeded",), "Groq, with status 498"),
    Codes(("unavailable",), "Gemini, with status 503"),
)
"""Codes of a tier without capacity, whose requests another tier would answer."""

FATAL = tuple(FATAL_CODES)
"""Kinds that every further call to the model would meet."""

_FATAL_KINDS: dict[str, str] = {}
for _kind, _table in FATAL_CODES.items():
    for _codes in _table:
        _FATAL_KINDS |= dict.fromkeys(_codes.names, _kind)
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


def kind_of_error(status: int, error: ProviderError, delay: float | None = None) -> str:
    """Return the kind of failure that an error is, if no filter's field explains it.

    Args:
        status: the HTTP status.
        error: the error in the reply.
        delay: the wait that it states, in seconds; see `stated_delay`.
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
        kind: of the failure; see `kind_of_error`.
    """
    if kind not in ("rate_limited", "server") or status not in (*LIMITED, 503):
        return False
    return bool(error.codes & _CAPACITY) or not error.codes & _QUOTA
