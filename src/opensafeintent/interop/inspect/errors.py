"""Errors of Inspect AI's providers, in the many forms of their client libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.error_codes import FATAL, LIMITED, REFUSING, is_filter, kind_of_error
from opensafeintent.calls.provider_errors import ProviderError, error_of
from opensafeintent.calls.records import Attempt, Failure, Refused, Replied
from opensafeintent.calls.stated_wait import bounded_wait, stated_delay
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.secrets import Secrets

if TYPE_CHECKING:
    from inspect_ai.model import Model

_MARKUP = re.compile(r"\[/?(bold|blue|red|green|yellow|dim|italic|cyan)[^\]]*\]")


def plain_line(error: BaseException, secrets: Secrets) -> str:
    """Return the text of an error, on one line, without markup and secrets."""
    message = (
        getattr(error, "provider_message", None)
        or getattr(error, "message", None)
        or str(error)
        or type(error).__name__
    )
    text = _MARKUP.sub("", str(message)).removeprefix("ERROR:").strip()
    return one_line(without_user_info(secrets.scrub(text)), 300)


def failed_attempt(
    error: BaseException, model: Model | None, secrets: Secrets, seconds: float
) -> Attempt:
    """Classify a failed attempt.

    Args:
        error: the exception; Inspect AI wraps those that it would have retried.
        model: the model that was asked; None if it could not be opened.
        secrets: texts that must not be quoted.
        seconds: the duration of the attempt.
    """
    from inspect_ai._util.error import (
        # inspect-evals-lint: ignore[private_api_imports] -- it has no public name
        PrerequisiteError,
    )

    last = getattr(error, "last_attempt", None)
    retry = last is not None
    cause: Any = (last and last.exception()) or error
    line = plain_line(cause, secrets)
    status = http_status(cause)
    sent = provider_error(cause)
    if status in REFUSING and is_filter(sent):
        fields = {**sent.fields[0], "message": line}
        refused = msgspec.json.encode({"error": fields}, enc_hook=str)
        return Replied(Refused(reason=line), secrets.scrub_bytes(refused), seconds)
    text = line if status is None or str(status) in line else f"{status}: {line}"
    decision: object = model.api.should_retry(cause) if model else False
    wait = getattr(decision, "retry_after", None)
    after = bounded_wait(wait) if isinstance(wait, int | float) else stated_delay({}, sent)
    throttled = status in LIMITED or getattr(decision, "kind", "") == "rate_limit"
    if model and model.api.is_auth_failure(cause):
        kind = "unauthorized"
    elif status is not None:
        kind = kind_of_error(status, sent, after)
    else:
        # it could not be opened, or not with these settings; or any other error
        unusable = model is None or isinstance(cause, PrerequisiteError)
        kind = "unusable" if unusable else "provider"
    fatal = kind in (*FATAL, "unusable")
    if kind == "unauthorized" and (names := getattr(model and model.api, "api_key_vars", None)):
        text += f" (check {' or '.join(names)})"
    return Failure(
        kind="rate_limited" if throttled and not fatal else kind,
        error=text,
        retry=retry and not fatal,
        fatal=fatal,
        throttled=throttled and retry and not fatal,
        slow=isinstance(cause, TimeoutError),
        retry_after=after if retry else None,
        seconds=seconds,
    )


def provider_error(error: BaseException) -> ProviderError:
    """Return the error that a provider sent, as its client library kept it; Inspect AI wraps the
    exceptions that it would have retried.
    """
    last = getattr(error, "last_attempt", None)
    error = (last and last.exception()) or error
    body = getattr(error, "body", None)
    fields = {name: getattr(error, name, None) for name in ("code", "type", "param")}
    codes = {name: value for name, value in fields.items() if isinstance(value, str | int)}
    details = body if isinstance(body, dict | list) else {}
    if isinstance(details, dict) and "error" not in details:
        details = {"error": {"message": str(error)[:_MOST_READ], **codes, **details}}
    return error_of(details)


_MOST_READ = 2000
"""Characters of an exception's text that are looked through."""


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status that an error tells of, in the many ways of client libraries."""
    last = getattr(error, "last_attempt", None)
    error = (last and last.exception()) or error
    for holder in (error, error.__cause__):
        for name in ("status_code", "code", "status"):
            if isinstance(value := getattr(holder, name, None), int) and 100 <= value < 600:
                return value
        response = getattr(holder, "response", None)
        # botocore
        if isinstance(response, dict):
            value = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return value if isinstance(value, int) else None
    return None
