"""Models behind Inspect AI's model layer, as our client calls them, and the errors of their client
libraries.

Only its providers are used: the ledger, retries, limits and budgets are ours, its cache and its
retries are off. This module is imported when such a model is named, not before:
the extra may be missing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from math import ceil
from typing import Any

import msgspec

# inspect-evals-lint: ignore[private_api_imports] -- no public way
from inspect_ai._util.entrypoints import ensure_entry_points
from inspect_ai._util.error import (
    # inspect-evals-lint: ignore[private_api_imports] -- it has no public name
    PrerequisiteError,
)

# inspect-evals-lint: ignore[private_api_imports] -- no public list of providers
from inspect_ai._util.logger import _warned as _given_warnings
from inspect_ai._util.registry import registry_find, registry_unqualified_name
from inspect_ai.model import GenerateConfig, Model, ModelOutput, ResponseSchema, get_model
from inspect_ai.util import JSONSchema

from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.left_out import LeftOut, find_named_field
from opensafeintent.calls.outcomes import NotAnAnswer, no_answer
from opensafeintent.calls.provider_errors import (
    FATAL,
    LIMITED,
    REFUSING,
    ProviderError,
    bound_wait,
    classify_error,
    is_filter,
    parse_error,
    read_delay,
)
from opensafeintent.calls.providers import (
    FOREIGN,
    LOCAL_WEIGHTS,
    loads_weights,
    parse_provider,
)
from opensafeintent.calls.records import Attempt, Call, Failure, Refused, Replied, Sampling
from opensafeintent.calls.replies import read_reply
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line, remove_url_credentials
from opensafeintent.inspect.outputs import (
    chat_messages,
    complaint_in,
    make_completion,
    name_sampling,
)
from opensafeintent.secrets import Secrets, collect_secrets

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
    return one_line(remove_url_credentials(secrets.scrub(text)))


def classify_attempt(
    error: BaseException, model: Model | None, secrets: Secrets, seconds: float
) -> Attempt:
    """Classify a failed attempt.

    Args:
        error: the exception; Inspect AI wraps those that it would have retried.
        model: the model that was asked; None if it could not be opened.
        secrets: texts that must not be quoted.
        seconds: the duration of the attempt.
    """
    retry = getattr(error, "last_attempt", None) is not None
    cause: Any = find_cause(error)
    line = plain_line(cause, secrets)
    status = http_status(cause)
    sent = read_provider_error(cause)
    if status in REFUSING and is_filter(sent):
        fields = {**sent.fields[0], "message": line}
        refused = msgspec.json.encode({"error": fields}, enc_hook=str)
        return Replied(Refused(reason=line), secrets.scrub_bytes(refused), seconds)
    text = line if status is None or str(status) in line else f"{status}: {line}"
    decision: object = model.api.should_retry(cause) if model else False
    wait = getattr(decision, "retry_after", None)
    after = bound_wait(wait) if isinstance(wait, int | float) else read_delay({}, sent)
    throttled = status in LIMITED or getattr(decision, "kind", "") == "rate_limit"
    if model and model.api.is_auth_failure(cause):
        kind = "unauthorized"
    elif status is not None:
        kind = classify_error(status, sent, after)
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


def find_cause(error: BaseException) -> BaseException:
    """Return the exception of a client library; Inspect AI wraps those that it would have
    retried.
    """
    last = getattr(error, "last_attempt", None)
    return (last and last.exception()) or error


def read_provider_error(error: BaseException) -> ProviderError:
    """Return the error that a provider sent, as its client library kept it."""
    body = getattr(error, "body", None)
    fields = {name: getattr(error, name, None) for name in ("code", "type", "param")}
    codes = {name: value for name, value in fields.items() if isinstance(value, str | int)}
    details = body if isinstance(body, dict | list) else {}
    if isinstance(details, dict) and "error" not in details:
        details = {"error": {"message": str(error)[:_MOST_READ], **codes, **details}}
    return parse_error(details)


_MOST_READ = 2000
"""Characters of an exception's text that are looked through."""


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status that an error tells of, in the many ways of client libraries."""
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


_BATCH = 32
"""Prompts that a model in this process works on together, unless --max-connections says otherwise.
"""
_CONNECTIONS = 4096
"""Far above the limit of our own limiter: Inspect's pool must not delay calls."""


def list_registered() -> list[str]:
    """Return the names of all providers that Inspect AI knows, those of installed packages among
    them.
    """
    ensure_entry_points()
    return sorted(
        {
            registry_unqualified_name(info)
            for info in registry_find(lambda info: info.type == "modelapi")
        }
    )


class InspectModel:
    """One model of one of Inspect AI's providers."""

    def __init__(self, name: str, http: HttpSession, left_out: Collection[str] = ()) -> None:
        self.identity = name
        self._left_out = LeftOut(left_out)
        self.request_notes: list[str] = []
        self._name = name.removeprefix(FOREIGN)
        self._provider = parse_provider(name)
        in_process = self._provider in LOCAL_WEIGHTS
        self._http = http
        self._secrets = collect_secrets()  # providers read many variables, and quote them in errors
        self._models: dict[bytes, Model] = {}
        self._loading = asyncio.Lock()
        self._loads = loads_weights(name)
        pool = f"inspect/{self._name}" if self._loads else f"inspect/{self._name_pool()}"
        self.limiter = http.limiter(pool, _BATCH if in_process else None)
        self._connections = self.limiter.limit if in_process else _CONNECTIONS

    @property
    def left_out(self) -> Collection[str]:
        """Settings that it turned out not to take."""
        return self._left_out.fields

    def _name_pool(self) -> str:
        """Open the model without arguments, so that missing settings are reported at once; return
        the name of the connections that it shares.
        """
        try:
            api = self._open({}).api
        # the user has to fix any error of a provider when it is opened
        except Exception as error:
            raise InputError(f"{self.identity}: {plain_line(error, self._secrets)}") from error
        return f"{self._provider}/{api.connection_key()}"

    def _open(self, arguments: dict[str, Any]) -> Model:
        key = canonical_json(arguments)
        if key not in self._models:
            # our own client calls it, outside of any task
            model = (
                get_model(  # inspect-evals-lint: ignore[get_model_location] -- not part of the task
                    self._name, memoize=False, **arguments
                )
            )
            client = getattr(model.api, "client", None)
            if isinstance(getattr(client, "max_retries", None), int):
                client.max_retries = 0  # type: ignore[union-attr]  # a provider's own retries would not be in the ledger
            self._models[key] = model
            self._http.push_async_callback(_close, model)
        return self._models[key]

    async def _model(self, sampling: Sampling) -> Model:
        """Return the model with the arguments that a call brings; weights are loaded once, beside
        the loop.
        """
        arguments = {
            name: value for name, value in sampling.extra.items() if name not in _CONFIG_FIELDS
        }
        if (model := self._models.get(canonical_json(arguments))) is not None:
            return model
        async with self._loading:
            return await asyncio.to_thread(self._open, arguments)

    async def attempt(self, call: Call) -> Attempt:
        """Make one request and return its result, or a few, as settings turn out not to be taken;
        nothing is raised but cancellation.
        """
        left_out = self._left_out
        await left_out.wait_for_trials()
        result, field = await self._request(call, left_out.fields)
        if field is None:
            return result
        return await left_out.ask_without(field, result, partial(self._request, call))

    async def _request(self, call: Call, left_out: Collection[str]) -> tuple[Attempt, str | None]:
        """Make a request; return the result, and the setting that it names as not taken."""
        started = time.monotonic()
        model: Model | None = None
        settings: dict[str, Any] = {}
        try:
            with _send_warnings_to(self):
                settings = self._settings(call, left_out)
                config = self._config(settings)
                model = await self._model(call.sampling)
                # in a task of its own: Inspect's notes about a call stay in that task's context
                output = await asyncio.create_task(
                    model.generate(chat_messages(call), config=config, cache=False)
                )
        # every provider raises its own client library's errors
        except Exception as error:
            failed = classify_attempt(error, model, self._secrets, time.monotonic() - started)
            return failed, self._find_not_taken(error, failed, settings)
        return self._read(output, call, time.monotonic() - started), None

    def _find_not_taken(
        self, error: BaseException, failed: Attempt, settings: Mapping[str, Any]
    ) -> str | None:
        """Return the setting that a failed attempt names as not taken."""
        if not isinstance(failed, Failure) or failed.retry:
            return None
        cause = find_cause(error)
        status = http_status(cause)
        sent = {_OUR_NAMES.get(name, name): name for name in settings if name != "max_tokens"}
        # not of the provider: of its client library, or of Inspect AI
        if status is None:
            sent = {ours: name for ours, name in sent.items() if ours in _OUR_NAMES.values()}
        return find_named_field(status or 400, read_provider_error(cause), sent)

    def _read(self, output: ModelOutput, call: Call, seconds: float) -> Attempt:
        if complaint := complaint_in(output):
            return Failure(
                kind="rejected",
                error=one_line(self._secrets.scrub(complaint)),
                seconds=seconds,
            )
        body = self._secrets.scrub_bytes(make_completion(output, call.sampling.max_tokens))
        try:
            return Replied(read_reply(body), body, seconds)
        except NotAnAnswer as wrong:
            return no_answer(wrong, body, seconds)
        except ValueError as error:
            line = plain_line(error, self._secrets)
            return Failure(kind="malformed", error=line, retry=True, body=body, seconds=seconds)

    def _settings(self, call: Call, left_out: Collection[str]) -> dict[str, Any]:
        """Return how a call is sampled, by Inspect AI's names, without some settings."""
        sampling = call.sampling
        settings = name_sampling(sampling, self._provider)
        if sampling.json_schema:
            schema = JSONSchema.model_validate(sampling.json_schema)
            settings[_SCHEMA] = ResponseSchema(name="reply", json_schema=schema, strict=True)
        settings |= {
            name: value for name, value in sampling.extra.items() if name in _CONFIG_FIELDS
        }
        return {
            name: value
            for name, value in settings.items()
            if value is not None and _OUR_NAMES.get(name, name) not in left_out
        }

    def _config(self, settings: dict[str, Any]) -> GenerateConfig:
        ours = {
            "max_retries": 0,
            "max_connections": self._connections,
            # how long it takes on the user's own machine is no matter of ours
            "attempt_timeout": None
            if self._loads and self._http.timeout is None
            else ceil(self._http.attempt_seconds),
            "cache": False,
        }
        return GenerateConfig(**(settings | ours))


_SCHEMA = "response_schema"
_OUR_NAMES = {_SCHEMA: "response_format"}
"""Settings of Inspect AI that providers name otherwise."""


async def _close(model: Model) -> None:
    # the run is over: a client library's errors at its own end do not matter
    with suppress(Exception):
        await model.api.aclose()


_CONFIG_FIELDS = frozenset(GenerateConfig.model_fields)
"""Keys of `-M key=value` for sampling; any other key goes to the provider when it is opened."""

_asking: ContextVar[InspectModel | None] = ContextVar("asking", default=None)


class _ToNotices(logging.Handler):
    """Makes a provider's warning (a setting that it ignores) a notice of the model that was
    asked.
    """

    def emit(self, record: logging.LogRecord) -> None:
        model = _asking.get()
        if model is not None and record.levelno >= logging.WARNING:
            notice = f"{model.identity}: {one_line(model._secrets.scrub(record.getMessage()))}"
            if notice not in model.request_notes:
                model.request_notes.append(notice)


_handler = _ToNotices()


@contextmanager
def _send_warnings_to(model: InspectModel) -> Iterator[None]:
    logger = logging.getLogger("inspect_ai")
    if _handler not in logger.handlers:
        logger.addHandler(_handler)
    if not model.request_notes:
        _given_warnings.clear()  # Inspect AI gives each once a process; each model is to have it
    token = _asking.set(model)
    try:
        yield
    finally:
        _asking.reset(token)
