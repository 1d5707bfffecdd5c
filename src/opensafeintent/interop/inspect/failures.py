"""What one of Inspect AI's providers raised, as our client understands it: one line, and whether to try again."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.http import NO_CREDIT, UNKNOWN_MODEL, Secrets, bounded_wait
from opensafeintent.calls.records import Attempt, Failure, Refused, Replied
from opensafeintent.calls.replies import REFUSING, is_filter
from opensafeintent.hostile import one_line, without_user_info

if TYPE_CHECKING:
    from inspect_ai.model import Model

__all__ = ["failed_attempt", "keys_of_environment", "plain_line"]

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.I)
_MARKUP = re.compile(r"\[/?(bold|blue|red|green|yellow|dim|italic|cyan)[^\]]*\]")


def keys_of_environment() -> Secrets:
    """Return the values of variables that are named like keys: providers read many, and quote them in errors."""
    return Secrets(value for name, value in os.environ.items() if _SECRET.search(name))


def plain_line(error: BaseException, secrets: Secrets) -> str:
    """Return what an error says, on one line, without markup and secrets."""
    told = getattr(error, "provider_message", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    text = _MARKUP.sub("", str(told)).removeprefix("ERROR:").strip()
    return one_line(without_user_info(secrets.scrub(text)), 300)


def failed_attempt(error: BaseException, model: Model | None, secrets: Secrets, seconds: float, body: bytes = b"") -> Attempt:
    """Say what a failed attempt was.

    Args:
        error: what was raised; Inspect AI wraps what it would have tried again.
        model: the model that was asked; None where it could not be opened, or answered with what is no answer.
        secrets: what must not be quoted.
        seconds: how long the attempt took.
        body: what came, if anything did.
    """
    last = getattr(error, "last_attempt", None)  # what Inspect AI wraps an error in that it would have tried again
    retry = last is not None
    cause: BaseException = (last.exception() if last is not None else None) or error
    line = plain_line(cause, secrets)
    if body:
        return Failure(kind="malformed", error=line, retry=True, body=secrets.scrub_bytes(body), seconds=seconds)
    status = _status(cause)
    fields = _fields(cause)
    if status in REFUSING and is_filter(fields):
        refused = msgspec.json.encode({"error": {**fields, "message": line}}, enc_hook=str)
        return Replied(Refused(reason=line), secrets.scrub_bytes(refused), seconds)
    kind, fatal = _kind(cause, status, line, model)
    told = line if status is None or str(status) in line else f"{status}: {line}"
    if kind == "unauthorized" and (names := getattr(getattr(model, "api", None), "api_key_vars", None)):
        told += f" (check {' or '.join(names)})"
    throttled, after = _throttled(cause, status, model)
    return Failure(
        kind="rate_limited" if throttled and not fatal else kind,
        error=told,
        retry=retry and not fatal,
        fatal=fatal,
        throttled=throttled and retry and not fatal,
        retry_after=bounded_wait(after) if retry and isinstance(after, int | float) else None,
        seconds=seconds,
    )


def _kind(cause: BaseException, status: int | None, line: str, model: Model | None) -> tuple[str, bool]:
    """Return the kind of a failure, and whether every further call would end the same way."""
    from opensafeintent.interop.inspect.refusal import Refusal

    if isinstance(cause, Exception) and model is not None and model.api.is_auth_failure(cause):
        return "unauthorized", True
    match status:
        case 401 | 403:
            return "unauthorized", True
        case 402:
            return "no_credit", True
        case 404:
            return "unknown_model", True
        case 400 if UNKNOWN_MODEL.search(line):
            return "unknown_model", True
        case 429 if NO_CREDIT.search(line):
            return "no_credit", True
        case int() if status >= 500:
            return "server", False
        case int():
            return "rejected", False
    if model is None or isinstance(cause, Refusal):  # it could not be opened, or not with these settings
        return "unusable", True
    return "provider", False


def _fields(error: BaseException) -> dict[str, Any]:
    """Return the fields of the error that a provider sent, as its client library kept them."""
    body = getattr(error, "body", None)
    found = body.get("error", body) if isinstance(body, dict) else None
    fields = {name: getattr(error, name, None) for name in ("code", "type")}
    return {name: value for name, value in fields.items() if isinstance(value, str | int)} | (
        found if isinstance(found, dict) else {}
    )


def _throttled(cause: BaseException, status: int | None, model: Model | None) -> tuple[bool, Any]:
    """Tell whether a provider said that it is too much, and after how many seconds it wants to be asked again."""
    decision: Any = False
    if model is not None and isinstance(cause, Exception):
        decision = model.api.should_retry(cause)
    limited = status == 429 or getattr(decision, "kind", "") == "rate_limit"
    return limited, getattr(decision, "retry_after", None)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error tells of, in the many ways of client libraries."""
    for holder in (error, error.__cause__):
        for name in ("status_code", "code", "status"):
            if isinstance(value := getattr(holder, name, None), int) and 100 <= value < 600:
                return value
        response = getattr(holder, "response", None)
        if isinstance(response, dict):  # botocore
            value = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return value if isinstance(value, int) else None
    return None
