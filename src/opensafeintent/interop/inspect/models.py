"""Models behind Inspect AI's model layer, as our client calls them.

Only its providers are used: the ledger, retries, limits and budgets are ours, its cache and its
retries are off.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.http import (
    ATTEMPT_SECONDS,
    FATAL,
    STRUCTURED,
    HttpSession,
    Secrets,
    bounded_wait,
    kind_of_error,
)
from opensafeintent.calls.providers import (
    FOREIGN,
    INSPECT_PROVIDERS,
    LOCAL_WEIGHTS,
    provider_of,
    split_name,
)
from opensafeintent.calls.records import Attempt, Call, Failure, Refused, Replied, Sampling
from opensafeintent.calls.replies import REFUSING, NotAnAnswer, is_filter, no_answer, read_reply
from opensafeintent.canonical import canonical_json
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.interop.inspect.conversion import (
    chat_messages,
    complaint_in,
    completion_of,
    sampling_fields,
)
from opensafeintent.interop.inspect.extra import PROVIDERS, installed, require_inspect

if TYPE_CHECKING:
    from inspect_ai.model import GenerateConfig, Model


_STARTS_A_SERVER = ("vllm", "vllm-completions", "sglang")
_BATCH = 32
"""Prompts that a model in this process works on together, unless --max-connections says otherwise.
"""
_CONNECTIONS = 4096
"""Far above what our own limiter lets through: Inspect's pool is to hold nothing back."""


class InspectProviders:
    """Serves every model name that the native client does not."""

    def check(self, name: str) -> None:
        """Refuse a name that no provider could be found for, without asking for a key.

        Raises:
            InputError: the provider is unknown, or the extra is missing or too old.
        """
        provider = provider_of(name)
        known = provider in INSPECT_PROVIDERS or name.startswith((FOREIGN, "openai/", "mistral/"))
        if installed() is None and not known:
            split_name(name)  # says which providers there are
        require_inspect(f"{name}: provider {provider!r}")
        if "/" not in name.removeprefix(FOREIGN):
            raise InputError(f"{name!r}: is not a model name; expected inspect/provider/model")
        if provider not in (found := _registered()):
            raise InputError(f"{name}: unknown provider {provider!r}; {nearest(provider, found)}")

    def open(self, name: str, http: HttpSession) -> InspectModel:
        """Return what answers for a name; weights are not loaded yet.

        Raises:
            InputError: see `check`; or a package, a key or another variable is missing.
        """
        self.check(name)
        if (provider := provider_of(name)) in LOCAL_WEIGHTS:
            packages = PROVIDERS[provider].package.split()
            if lacking := [package for package in packages if find_spec(package) is None]:
                raise InputError(
                    f"{name}: provider {provider!r} needs further packages: pip install"
                    f" {' '.join(lacking)}"
                )
        return InspectModel(name, http)


def _registered() -> list[str]:
    """Return the names of all providers that Inspect AI knows, those of installed packages among
    them.
    """
    # inspect-evals-lint: ignore[private_api_imports] -- no public way
    from inspect_ai._util.entrypoints import (
        ensure_entry_points,
    )

    # inspect-evals-lint: ignore[private_api_imports] -- no public list of providers
    from inspect_ai._util.registry import (
        registry_find,
        registry_unqualified_name,
    )

    ensure_entry_points()
    return sorted(
        {
            registry_unqualified_name(info)
            for info in registry_find(lambda info: info.type == "modelapi")
        }
    )


class InspectModel:
    """One model of one of Inspect AI's providers."""

    def __init__(self, name: str, http: HttpSession) -> None:
        self.identity = name
        self.notices: list[str] = []
        self._name = name.removeprefix(FOREIGN)
        self._provider = provider_of(name)
        self._http = http
        self._secrets = keys_of_environment()
        self._models: dict[bytes, Model] = {}
        self._takes_schemas = True
        self._loading = asyncio.Lock()
        loads = self._provider in (*LOCAL_WEIGHTS, *_STARTS_A_SERVER)
        self._patient = loads
        """Has no deadline for an attempt: how long it takes is a matter of the user's own machine.
        """
        pool = f"inspect/{self._name}" if loads else f"inspect/{self._pool()}"
        self.limiter = http.limiter(pool, _BATCH if self._provider in LOCAL_WEIGHTS else None)

    def _pool(self) -> str:
        """Open the model without arguments, so that what is missing is said at once; return whose
        connections it shares.
        """
        try:
            api = self._open({}).api
        except (
            Exception
        ) as error:  # whatever a provider raises as it is opened, the user has to mend
            raise InputError(f"{self.identity}: {plain_line(error, self._secrets)}") from error
        return f"{self._provider}/{api.connection_key()}"

    def _open(self, arguments: dict[str, Any]) -> Model:
        from inspect_ai.model import get_model

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
                client.max_retries = 0  # type: ignore[union-attr]  # a provider's own retries would not be on record
            self._models[key] = model
            self._http.closing(partial(_close, model))
        return self._models[key]

    async def _model(self, sampling: Sampling) -> Model:
        """Return the model with the arguments that a call brings; weights are loaded once, beside
        the loop.
        """
        arguments = {
            name: value for name, value in sampling.extra.items() if name not in _config_fields()
        }
        if (model := self._models.get(canonical_json(arguments))) is not None:
            return model
        async with self._loading:
            return await asyncio.to_thread(self._open, arguments)

    async def attempt(self, call: Call) -> Attempt:
        """Make one request and say what came of it; nothing is raised but cancellation."""
        started = time.monotonic()
        model: Model | None = None
        with_schema = bool(call.sampling.json_schema) and self._takes_schemas
        try:
            with _warnings_to(self):
                config = self._config(call.sampling)
                model = await self._model(call.sampling)
                # in a task of its own: what Inspect notes of a call in the context goes with it
                output = await asyncio.create_task(
                    model.generate(chat_messages(call), config=config, cache=False)
                )
        except Exception as error:  # every provider raises its own client library's errors
            failed = failed_attempt(error, model, self._secrets, time.monotonic() - started)
            return self._without_schemas(failed) if with_schema else failed
        seconds = time.monotonic() - started
        if complaint := complaint_in(output):
            return Failure(
                kind="rejected",
                error=one_line(self._secrets.scrub(complaint), 300),
                seconds=seconds,
            )
        body = self._secrets.scrub_bytes(completion_of(output, call.sampling.max_tokens))
        try:
            return Replied(read_reply(body), body, seconds)
        except NotAnAnswer as wrong:
            return no_answer(wrong, body, seconds)
        except ValueError as error:
            return failed_attempt(error, None, self._secrets, seconds, body)

    def _without_schemas(self, attempt: Attempt) -> Attempt:
        """Ask without a schema from now on, if that is what the provider does not take."""
        if (
            not isinstance(attempt, Failure)
            or attempt.retry
            or not STRUCTURED.search(attempt.error)
        ):
            return attempt
        if self._takes_schemas:
            self._takes_schemas = False
            self.notices.append(
                f"{self.identity}: does not take structured output; it was asked without"
            )
        return Failure(
            kind="unsupported_field", error=attempt.error, retry=True, seconds=attempt.seconds
        )

    def _config(self, sampling: Sampling) -> GenerateConfig:
        from inspect_ai.model import GenerateConfig, ResponseSchema
        from inspect_ai.util import JSONSchema

        further = {
            name: value for name, value in sampling.extra.items() if name in _config_fields()
        }
        if sampling.json_schema and self._takes_schemas:
            schema = JSONSchema.model_validate(sampling.json_schema)
            further = {
                "response_schema": ResponseSchema(name="reply", json_schema=schema, strict=True)
            } | further
        batches = self._provider in LOCAL_WEIGHTS
        ours = {
            "max_retries": 0,
            "max_connections": self.limiter.limit if batches else _CONNECTIONS,
            "attempt_timeout": None if self._patient else int(ATTEMPT_SECONDS),
            "cache": False,
        }
        return GenerateConfig(**(sampling_fields(sampling, self._provider) | further | ours))


async def _close(model: Model) -> None:
    with suppress(
        Exception
    ):  # the run is over: what a client library makes of its own end is nobody's error
        await model.api.aclose()


def _config_fields() -> frozenset[str]:
    """Return what `-M key=value` may say of sampling; any other key goes to the provider as it is
    opened.
    """
    from inspect_ai.model import GenerateConfig

    return frozenset(GenerateConfig.model_fields)


# What providers warn of
# ------------------------------------------------------------------------------

_asking: ContextVar[InspectModel | None] = ContextVar("asking", default=None)


class _ToNotices(logging.Handler):
    """Makes a provider's warning (a setting that it ignores) a notice of the model that was
    asked.
    """

    def emit(self, record: logging.LogRecord) -> None:
        model = _asking.get()
        if model is not None and record.levelno >= logging.WARNING:
            notice = f"{model.identity}: {one_line(record.getMessage(), 300)}"
            if notice not in model.notices:
                model.notices.append(notice)


_handler = _ToNotices()


@contextmanager
def _warnings_to(model: InspectModel) -> Iterator[None]:
    logger = logging.getLogger("inspect_ai")
    if _handler not in logger.handlers:
        logger.addHandler(_handler)
    token = _asking.set(model)
    try:
        yield
    finally:
        _asking.reset(token)


# What a provider raised
# ------------------------------------------------------------------------------


_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.I)
_MARKUP = re.compile(r"\[/?(bold|blue|red|green|yellow|dim|italic|cyan)[^\]]*\]")


def keys_of_environment() -> Secrets:
    """Return the values of variables that are named like keys: providers read many, and quote them
    in errors.
    """
    return Secrets(value for name, value in os.environ.items() if _SECRET.search(name))


def plain_line(error: BaseException, secrets: Secrets) -> str:
    """Return what an error says, on one line, without markup and secrets."""
    told = (
        getattr(error, "provider_message", None)
        or getattr(error, "message", None)
        or str(error)
        or type(error).__name__
    )
    text = _MARKUP.sub("", str(told)).removeprefix("ERROR:").strip()
    return one_line(without_user_info(secrets.scrub(text)), 300)


def failed_attempt(
    error: BaseException, model: Model | None, secrets: Secrets, seconds: float, body: bytes = b""
) -> Attempt:
    """Say what a failed attempt was.

    Args:
        error: what was raised; Inspect AI wraps what it would have tried again.
        model: the model that was asked; None where it could not be opened, or answered with what is
            no answer.
        secrets: what must not be quoted.
        seconds: how long the attempt took.
        body: what came, if anything did.
    """
    last = getattr(
        error, "last_attempt", None
    )  # what Inspect AI wraps an error in that it would have tried again
    retry = last is not None
    cause: BaseException = (last.exception() if last is not None else None) or error
    line = plain_line(cause, secrets)
    if body:
        return Failure(
            kind="malformed",
            error=line,
            retry=True,
            body=secrets.scrub_bytes(body),
            seconds=seconds,
        )
    status = _status(cause)
    fields = _fields(cause)
    if status in REFUSING and is_filter(fields):
        refused = msgspec.json.encode({"error": {**fields, "message": line}}, enc_hook=str)
        return Replied(Refused(reason=line), secrets.scrub_bytes(refused), seconds)
    kind = _kind(cause, status, line, model)
    fatal = kind in (*FATAL, "unusable")
    told = line if status is None or str(status) in line else f"{status}: {line}"
    if kind == "unauthorized" and (
        names := getattr(getattr(model, "api", None), "api_key_vars", None)
    ):
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


def _kind(cause: BaseException, status: int | None, line: str, model: Model | None) -> str:
    """Return the kind of a failure."""
    # inspect-evals-lint: ignore[private_api_imports] -- it has no public name
    from inspect_ai._util.error import (
        PrerequisiteError,
    )

    if isinstance(cause, Exception) and model is not None and model.api.is_auth_failure(cause):
        return "unauthorized"
    if status is not None:
        return kind_of_error(status, line)
    # it could not be opened, or not with these settings
    return "unusable" if model is None or isinstance(cause, PrerequisiteError) else "provider"


def _fields(error: BaseException) -> dict[str, Any]:
    """Return the fields of the error that a provider sent, as its client library kept them."""
    body = getattr(error, "body", None)
    found = body.get("error", body) if isinstance(body, dict) else None
    fields = {name: getattr(error, name, None) for name in ("code", "type")}
    return {name: value for name, value in fields.items() if isinstance(value, str | int)} | (
        found if isinstance(found, dict) else {}
    )


def _throttled(cause: BaseException, status: int | None, model: Model | None) -> tuple[bool, Any]:
    """Tell whether a provider said that it is too much, and after how many seconds it wants to be
    asked again.
    """
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
