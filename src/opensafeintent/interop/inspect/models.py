"""Models behind Inspect AI's model layer, as our client calls them.

Only its providers are used: the ledger, retries, limits and budgets are ours, its cache and its
retries are off. Inspect AI is imported when such a model is opened, not before.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.baselines import BASELINES
from opensafeintent.calls.http import ATTEMPT_SECONDS, HttpSession
from opensafeintent.calls.left_out import LeftOut, named_field
from opensafeintent.calls.models import Served
from opensafeintent.calls.outcomes import NotAnAnswer, no_answer
from opensafeintent.calls.provider_errors import (
    FATAL,
    LIMITED,
    REFUSING,
    ProviderError,
    bounded_wait,
    error_of,
    is_filter,
    kind_of_error,
    stated_delay,
)
from opensafeintent.calls.providers import (
    FOREIGN,
    INSPECT_PROVIDERS,
    LOCAL_WEIGHTS,
    loads_weights,
    provider_of,
    split_name,
    unknown_provider,
)
from opensafeintent.calls.records import Attempt, Call, Failure, Refused, Replied, Sampling
from opensafeintent.calls.replies import read_reply
from opensafeintent.errors import InputError, install_extra
from opensafeintent.files import canonical_json
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.secrets import Secrets, known_secrets

if TYPE_CHECKING:
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        GenerateConfig,
        Model,
        ModelOutput,
    )


_BATCH = 32
"""Prompts that a model in this process works on together, unless --max-connections says otherwise.
"""
_CONNECTIONS = 4096
"""Far above the limit of our own limiter: Inspect's pool must not delay calls."""


# The extra [inspect], and its models
# ------------------------------------------------------------------------------

_OLDEST = (0, 3, 285)
"""The oldest Inspect AI whose metrics can see every epoch, and whose unscored samples carry a
reason.
"""


def _installed() -> tuple[int, ...] | None:
    """Return the installed version of Inspect AI, without importing it; None if there is none."""
    try:
        installed = version("inspect_ai")
    except PackageNotFoundError:
        return None
    return tuple(int(part) for part in re.findall(r"\d+", installed)[:3])


def require_inspect(what: str) -> None:
    """Refuse an operation that needs the extra.

    Args:
        what: the operation; begins the line of the error.

    Raises:
        InputError: Inspect AI is not installed, or too old.
    """
    installed = _installed()
    if installed is None:
        raise InputError(f"{what} needs an extra: {install_extra('inspect')}")
    if installed < _OLDEST:
        names = [".".join(map(str, parts)) for parts in (installed, _OLDEST)]
        raise InputError(
            f"{what} needs inspect-ai {names[1]} or newer, {names[0]} is installed: "
            "pip install --upgrade inspect-ai"
        )


class ForeignProvider(msgspec.Struct, frozen=True):
    """A provider by the name that Inspect AI gives it."""

    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""
    package: str = ""
    """A package to install besides the extra."""


PROVIDERS: dict[str, ForeignProvider] = {
    "anthropic": ForeignProvider(
        "Claude; anthropic/bedrock/…, anthropic/vertex/… and anthropic/azure/… are its other"
        " houses",
        ("ANTHROPIC_API_KEY",),
        "anthropic",
    ),
    "google": ForeignProvider(
        "Gemini; google/vertex/… takes the credentials of Google Cloud",
        ("GOOGLE_API_KEY",),
        "google-genai",
    ),
    "azureai": ForeignProvider(
        "Azure AI Foundry", ("AZUREAI_API_KEY", "AZUREAI_BASE_URL"), "azure-ai-inference"
    ),
    "openai/azure": ForeignProvider(
        "Azure OpenAI", ("AZUREAI_OPENAI_API_KEY", "AZUREAI_OPENAI_BASE_URL"), "openai"
    ),
    "openai/bedrock": ForeignProvider(
        "models of OpenAI on Amazon Bedrock; the credentials of AWS", (), "openai"
    ),
    "mistral/azure": ForeignProvider(
        "Mistral on Azure", ("AZUREAI_MISTRAL_API_KEY", "AZUREAI_MISTRAL_BASE_URL"), "mistralai"
    ),
    "bedrock": ForeignProvider(
        "Amazon Bedrock; the credentials of AWS as its own tools take them", (), "aioboto3"
    ),
    "sagemaker": ForeignProvider("Amazon SageMaker; the credentials of AWS", (), "aioboto3"),
    "cloudflare": ForeignProvider(
        "Workers AI", ("CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"), "openai"
    ),
    "meta": ForeignProvider("Meta's own service", ("META_API_KEY",), "openai"),
    "moonshot": ForeignProvider("Kimi", ("MOONSHOT_API_KEY",), "openai"),
    "litellm-proxy": ForeignProvider("a LiteLLM gateway", ("LITELLM_PROXY_BASE_URL",), "openai"),
    "hf": ForeignProvider(
        "weights by name or path, in this process; -M model_path=DIR",
        (),
        "torch transformers accelerate",
    ),
    "nnterp": ForeignProvider("weights, in this process", (), "nnterp"),
    "transformer_lens": ForeignProvider("weights, in this process", (), "transformer_lens"),
}
"""Those that Inspect AI has and the native client has not.

A provider that a package registers with it works as well.
"""


def served_through_inspect() -> list[Served]:
    """List the models that the extra serves, and the variables that each needs."""
    lines = [
        Served(
            f"{name}/MODEL",
            f"{provider.about}; through Inspect AI",
            provider.needs,
            ("inspect-ai", *provider.package.split()),
        )
        for name, provider in PROVIDERS.items()
    ]
    about = "any provider P of Inspect AI: inspect/vllm/NAME"
    return [*lines, Served("inspect/P/MODEL", about, (), ("inspect-ai",))]


_OTHER_HOUSES = ("anthropic/bedrock/", "anthropic/vertex/", "anthropic/azure/", "google/vertex/")
"""Services whose credentials are not a variable of the provider's own."""


def unset(name: str) -> tuple[str, ...]:
    """Return the variables that a model served through the extra needs and that are not set; none
    if they are unknown.
    """
    plain = name.removeprefix(FOREIGN)
    provider, _, model = plain.partition("/")
    known = PROVIDERS.get(f"{provider}/{model.partition('/')[0]}") or PROVIDERS.get(provider)
    if known is None or plain.startswith(_OTHER_HOUSES):
        return ()
    return Served(name, "", known.needs).unset


def from_inspect(model: str) -> str:
    """Return a model's name in a run of ours: `opensafeintent/judge` is `baseline/judge`."""
    provider, _, script = model.partition("/")
    return f"baseline/{script}" if provider == "opensafeintent" and script in BASELINES else model


# The names that our client does not serve
# ------------------------------------------------------------------------------


class InspectProviders:
    """Serves every model name that the native client does not."""

    def check(self, name: str) -> None:
        """Refuse a name that no provider could be found for, without asking for a key.

        Raises:
            InputError: the provider is unknown, or the extra is missing or too old.
        """
        provider = provider_of(name)
        known = provider in INSPECT_PROVIDERS or name.startswith((FOREIGN, "openai/", "mistral/"))
        if _installed() is None and not known:
            split_name(name)  # says which providers there are
        require_inspect(f"{name}: provider {provider!r}")
        if "/" not in name.removeprefix(FOREIGN):
            raise InputError(f"{name!r}: is not a model name; expected inspect/provider/model")
        if provider not in (registered := _registered()):
            raise unknown_provider(name, registered)

    def open(self, name: str, http: HttpSession, left_out: Collection[str] = ()) -> InspectModel:
        """Return the model of a name, without the fields that it does not take; weights are not
        loaded yet.

        Raises:
            InputError: see `check`; or a key or another variable is missing.
        """
        self.check(name)
        return InspectModel(name, http, left_out)


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


# Calls and outputs
# ------------------------------------------------------------------------------


def sampling_fields(sampling: Sampling, provider: str) -> dict[str, Any]:
    """Return how a call is sampled, as Inspect AI names it."""
    fields: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "reasoning_effort": sampling.reasoning_effort,
    }
    if provider in LOCAL_WEIGHTS and sampling.temperature == 0:
        # `transformers` refuses 0, which means the likeliest token alone
        fields |= {"temperature": None, "top_k": 1}
    return fields


def chat_messages(call: Call) -> list[ChatMessage]:
    """Return a call's messages as Inspect AI has them."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds = {
        "system": ChatMessageSystem,
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
    }
    return [kinds[message.role](content=message.content) for message in call.messages]


def complaint_in(output: ModelOutput) -> str | None:
    """Return the error that a provider of Inspect's gave as an answer; None for an answer, or a
    filter's stop.

    Some providers turn an error into the text of an answer, without a count of tokens: for a prompt
    that is too long, and for an apparent content filter's error. If they decide by its words
    ("blocked", or any that come with `error`), we count no refusal; if they decide by its code, we
    do.
    """
    if output.empty or output.usage is not None or not (text := output.choices[0].message.text):
        return None
    choice = output.choices[0]
    details = choice.stop_details
    by_words = output.error or (details and details.explanation == text and "blocked" in text)
    if choice.stop_reason == "model_length" or (
        choice.stop_reason == "content_filter" and by_words
    ):
        return output.error or text
    return None


def completion_of(output: ModelOutput, max_tokens: int | None = None) -> bytes:
    """Return an output as a chat completion, which the ledger keeps and `read_reply` reads.

    Reasoning stays apart from the text, for nobody grades it. Tokens that came from or went to a
    prompt cache are input tokens, reasoning tokens are output tokens.
    """
    if output.empty:
        return canonical_json(
            {"choices": [], "error": one_line(output.error or "the provider gave no answer")}
        )
    choice = output.choices[0]
    stop: str = choice.stop_reason
    usage = output.usage
    thoughts = _reasoning(choice.message.content)
    if (
        stop == "unknown" and usage and max_tokens
    ):  # a provider without a stop reason: an answer at the limit was cut, or one of its batch
        # was; a text of fewer bytes was not
        text = f"{''.join(thoughts)}{choice.message.text}"
        short = 0 < len(text.encode("utf-8", "replace")) < max_tokens
        stop = "length" if usage.output_tokens >= max_tokens and not short else "stop"
    # without a count of tokens no model wrote the text: it is an error in other words
    foreign = stop == "content_filter" and usage is None
    message = {
        "role": "assistant",
        "content": None if foreign else _content(choice.message),
        **({"reasoning_content": "\n".join(thoughts) or "(hidden)"} if thoughts else {}),
    }
    body: dict[str, Any] = {
        "model": output.model,
        "choices": [
            {"message": message, "finish_reason": STOP_REASONS.get(stop, stop)},
        ],
    }
    if usage is not None:
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        body["usage"] = {
            "prompt_tokens": usage.input_tokens + cached,
            "completion_tokens": usage.output_tokens,
        }
        if usage.reasoning_tokens:
            body["usage"]["completion_tokens_details"] = {
                "reasoning_tokens": usage.reasoning_tokens
            }
    return canonical_json(body)


STOP_REASONS = {"max_tokens": "length", "unknown": ""}
"""Those of Inspect AI that chat completions name otherwise; `unknown` if the provider gave none."""


def only_reasons(output: ModelOutput) -> bool:
    """Tell whether an output shows reasoning and has no text."""
    tokens = output.usage.reasoning_tokens if output.usage else 0
    return not output.completion.strip() and bool(tokens or _reasoning(output.message.content))


def _content(message: ChatMessageAssistant) -> str | list[dict[str, str]] | None:
    """Return the text of a message, as its provider most likely sent it: Inspect turns a missing
    text into "".
    """
    from inspect_ai.model import ContentReasoning, ContentText

    if text := message.text:
        return text
    parts = message.content if isinstance(message.content, list) else []
    if any(not isinstance(part, ContentText | ContentReasoning) for part in parts):
        return [{"type": part.type} for part in parts]
    return None if message.tool_calls else ""


def _reasoning(content: Any) -> list[str]:
    """Return the texts of a message's reasoning, each "" if its provider hides it."""
    from inspect_ai.model import ContentReasoning

    parts = content if isinstance(content, list) else []
    return [part.text or "" for part in parts if isinstance(part, ContentReasoning)]


# A model
# ------------------------------------------------------------------------------


class InspectModel:
    """One model of one of Inspect AI's providers."""

    def __init__(self, name: str, http: HttpSession, left_out: Collection[str] = ()) -> None:
        self.identity = name
        self._left_out = LeftOut(left_out)
        self.notices: list[str] = []
        self._name = name.removeprefix(FOREIGN)
        self._provider = provider_of(name)
        in_process = self._provider in LOCAL_WEIGHTS
        self._http = http
        self._secrets = known_secrets()  # providers read many variables, and quote them in errors
        self._models: dict[bytes, Model] = {}
        self._loading = asyncio.Lock()
        self._loads = loads_weights(name)
        pool = f"inspect/{self._name}" if self._loads else f"inspect/{self._pool()}"
        self.limiter = http.limiter(pool, _BATCH if in_process else None)
        self._connections = self.limiter.limit if in_process else _CONNECTIONS

    @property
    def left_out(self) -> Collection[str]:
        """Settings that it turned out not to take."""
        return self._left_out.fields

    def _pool(self) -> str:
        """Open the model without arguments, so that missing settings are reported at once; return
        the name of the connections that it shares.
        """
        try:
            api = self._open({}).api
        except Exception as error:  # the user has to fix any error of a provider when it is opened
            raise InputError(f"{self.identity}: {_plain_line(error, self._secrets)}") from error
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
                client.max_retries = 0  # type: ignore[union-attr]  # a provider's own retries would not be in the ledger
            self._models[key] = model
            self._http.push_async_callback(_close, model)
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
        """Make one request and return its result, or a few, as settings turn out not to be taken;
        nothing is raised but cancellation.
        """
        return await self._left_out.ask(lambda left_out: self._request(call, left_out))

    async def _request(self, call: Call, left_out: Collection[str]) -> tuple[Attempt, str | None]:
        """Make a request; return the result, and the setting that it names as not taken."""
        started = time.monotonic()
        model: Model | None = None
        settings: dict[str, Any] = {}
        try:
            with _warnings_to(self):
                settings = self._settings(call, left_out)
                config = self._config(settings)
                model = await self._model(call.sampling)
                # in a task of its own: Inspect's notes about a call stay in that task's context
                output = await asyncio.create_task(
                    model.generate(chat_messages(call), config=config, cache=False)
                )
        except Exception as error:  # every provider raises its own client library's errors
            failed = _failed_attempt(error, model, self._secrets, time.monotonic() - started)
            return failed, self._not_taken(error, failed, settings)
        return self._read(output, call, time.monotonic() - started), None

    def _not_taken(
        self, error: BaseException, failed: Attempt, settings: Mapping[str, Any]
    ) -> str | None:
        """Return the setting that a failed attempt names as not taken."""
        if not isinstance(failed, Failure) or failed.retry:
            return None
        status = _status(error)
        sent = [_OUR_NAMES.get(name, name) for name in settings if name != "max_tokens"]
        if status is None:  # not of the provider: of its client library, or of Inspect AI
            sent = [name for name in sent if name in _OUR_NAMES.values()]
        return named_field(status or 400, _error_in(error), sent)

    def _read(self, output: ModelOutput, call: Call, seconds: float) -> Attempt:
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
            line = _plain_line(error, self._secrets)
            return Failure(kind="malformed", error=line, retry=True, body=body, seconds=seconds)

    def _settings(self, call: Call, left_out: Collection[str]) -> dict[str, Any]:
        """Return how a call is sampled, by Inspect AI's names, without some settings."""
        from inspect_ai.model import ResponseSchema
        from inspect_ai.util import JSONSchema

        sampling = call.sampling
        settings = sampling_fields(sampling, self._provider)
        if sampling.json_schema:
            schema = JSONSchema.model_validate(sampling.json_schema)
            settings[_SCHEMA] = ResponseSchema(name="reply", json_schema=schema, strict=True)
        settings |= {
            name: value for name, value in sampling.extra.items() if name in _config_fields()
        }
        return {
            name: value
            for name, value in settings.items()
            if value is not None and _OUR_NAMES.get(name, name) not in left_out
        }

    def _config(self, settings: dict[str, Any]) -> GenerateConfig:
        from inspect_ai.model import GenerateConfig

        ours = {
            "max_retries": 0,
            "max_connections": self._connections,
            # how long it takes on the user's own machine is no matter of ours
            "attempt_timeout": None if self._loads else int(ATTEMPT_SECONDS),
            "cache": False,
        }
        return GenerateConfig(**(settings | ours))


_SCHEMA = "response_schema"
_OUR_NAMES = {_SCHEMA: "response_format"}
"""Settings of Inspect AI that providers name otherwise."""


async def _close(model: Model) -> None:
    with suppress(
        Exception
    ):  # the run is over: a client library's errors at its own end do not matter
        await model.api.aclose()


def _config_fields() -> frozenset[str]:
    """Return the keys of `-M key=value` for sampling; any other key goes to the provider when it is
    opened.
    """
    from inspect_ai.model import GenerateConfig

    return frozenset(GenerateConfig.model_fields)


# Providers' warnings
# ------------------------------------------------------------------------------

_asking: ContextVar[InspectModel | None] = ContextVar("asking", default=None)


class _ToNotices(logging.Handler):
    """Makes a provider's warning (a setting that it ignores) a notice of the model that was
    asked.
    """

    def emit(self, record: logging.LogRecord) -> None:
        model = _asking.get()
        if model is not None and record.levelno >= logging.WARNING:
            notice = f"{model.identity}: {one_line(model._secrets.scrub(record.getMessage()), 300)}"
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


# Providers' errors
# ------------------------------------------------------------------------------


_MARKUP = re.compile(r"\[/?(bold|blue|red|green|yellow|dim|italic|cyan)[^\]]*\]")


def _plain_line(error: BaseException, secrets: Secrets) -> str:
    """Return the text of an error, on one line, without markup and secrets."""
    told = (
        getattr(error, "provider_message", None)
        or getattr(error, "message", None)
        or str(error)
        or type(error).__name__
    )
    text = _MARKUP.sub("", str(told)).removeprefix("ERROR:").strip()
    return one_line(without_user_info(secrets.scrub(text)), 300)


def _failed_attempt(
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
    line = _plain_line(cause, secrets)
    status = _status(cause)
    told = _error_in(cause)
    if status in REFUSING and is_filter(told):
        fields = {**told.fields[0], "message": line}
        refused = msgspec.json.encode({"error": fields}, enc_hook=str)
        return Replied(Refused(reason=line), secrets.scrub_bytes(refused), seconds)
    text = line if status is None or str(status) in line else f"{status}: {line}"
    decision: object = model.api.should_retry(cause) if model else False
    wait = getattr(decision, "retry_after", None)
    after = bounded_wait(wait) if isinstance(wait, int | float) else stated_delay({}, told)
    throttled = status in LIMITED or getattr(decision, "kind", "") == "rate_limit"
    if model and model.api.is_auth_failure(cause):
        kind = "unauthorized"
    elif status is not None:
        kind = kind_of_error(status, told, after)
    else:  # it could not be opened, or not with these settings; or any other error
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


def _error_in(error: BaseException) -> ProviderError:
    """Return the error that a provider sent, as its client library kept it; Inspect AI wraps the
    exceptions that it would have retried.
    """
    last = getattr(error, "last_attempt", None)
    error = (last and last.exception()) or error
    body = getattr(error, "body", None)
    fields = {name: getattr(error, name, None) for name in ("code", "type", "param")}
    told = {name: value for name, value in fields.items() if isinstance(value, str | int)}
    details = body if isinstance(body, dict | list) else {}
    if isinstance(details, dict) and "error" not in details:
        details = {"error": {"message": str(error)[:_MOST_READ], **told, **details}}
    return error_of(details)


_MOST_READ = 2000
"""Characters of an exception's text that are looked through."""


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error tells of, in the many ways of client libraries."""
    last = getattr(error, "last_attempt", None)
    error = (last and last.exception()) or error
    for holder in (error, error.__cause__):
        for name in ("status_code", "code", "status"):
            if isinstance(value := getattr(holder, name, None), int) and 100 <= value < 600:
                return value
        response = getattr(holder, "response", None)
        if isinstance(response, dict):  # botocore
            value = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return value if isinstance(value, int) else None
    return None
