"""Model names, and the endpoints, variables and proxies behind them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote, urlsplit

import msgspec

from opensafeintent.calls.protocols import WireProtocol
from opensafeintent.calls.protocols.anthropic import MESSAGES
from opensafeintent.calls.protocols.chat_completions import CHAT_COMPLETIONS, ChatCompletions
from opensafeintent.calls.service_tiers import Way
from opensafeintent.errors import InputError, did_you_mean


class Provider(msgspec.Struct, frozen=True):
    """A service that the native client can call."""

    base_url: str
    """Its default address; empty if only the user knows it, who then has to set its variable."""
    local: bool = False
    """Runs on the user's own machines: a key is optional."""
    variable: str = ""
    """First part of its variables' names, if that is not the provider's name."""
    key: str = "API_KEY"
    """Second part of the name of the variable with its key."""
    priced_as: str | None = ""
    """Its name in the list of `genai-prices`, if that is another; None if the list lacks it."""
    protocol: WireProtocol = CHAT_COMPLETIONS
    """What its requests and replies look like."""
    flex: Way | None = None
    """Its slower tier; None if it has none that the client can ask for."""
    batch: Way | None = None
    """Its batches; None if it has none that the client can make."""

    @property
    def path(self) -> str:
        """The path of its address; that of most servers, if only the user knows it."""
        return urlsplit(self.base_url).path if self.base_url else "/v1"


def _way(factor: float, takes: str, source: str) -> Way:
    return Way(factor=factor, takes=takes, source=source, checked="2026-11")


_DAY = "up to 24 hours"

ENDPOINTS: dict[str, Provider] = {
    "openai": Provider(
        "https://api.openai.com/v1",
        protocol=ChatCompletions(limit_field="max_completion_tokens"),
        flex=_way(
            0.5,
            "up to 15 minutes a call",
            "https://developers.openai.com/api/docs/guides/flex-processing",
        ),
        batch=_way(0.5, _DAY, "https://developers.openai.com/api/docs/guides/batch"),
    ),
    "anthropic": Provider(
        "https://api.anthropic.com",
        protocol=MESSAGES,
        batch=_way(
            0.5, _DAY, "https://platform.claude.com/docs/en/build-with-claude/batch-processing"
        ),
    ),
    "google": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        flex=_way(
            0.5,
            "1 to 15 minutes a call",
            "https://ai.google.dev/gemini-api/docs/flex-inference",
        ),
    ),
    "openrouter": Provider("https://openrouter.ai/api/v1"),
    "together": Provider(
        "https://api.together.xyz/v1",
        batch=_way(0.5, _DAY, "https://docs.together.ai/docs/batch-inference"),
    ),
    "groq": Provider(
        "https://api.groq.com/openai/v1",
        # ten times the rate limits for the same price
        flex=_way(1.0, "as usual", "https://console.groq.com/docs/flex-processing"),
        batch=_way(0.5, _DAY, "https://console.groq.com/docs/batch"),
    ),
    "deepseek": Provider("https://api.deepseek.com/v1"),
    "mistral": Provider(
        "https://api.mistral.ai/v1",
        batch=_way(0.5, _DAY, "https://docs.mistral.ai/capabilities/batch"),
    ),
    "fireworks": Provider("https://api.fireworks.ai/inference/v1"),
    "grok": Provider("https://api.x.ai/v1", variable="XAI", priced_as="x-ai"),
    "perplexity": Provider("https://api.perplexity.ai"),
    "cerebras": Provider("https://api.cerebras.ai/v1"),
    "sambanova": Provider("https://api.sambanova.ai/v1", priced_as=None),
    "nebius": Provider("https://api.studio.nebius.com/v1", priced_as=None),
    "hf-inference-providers": Provider(
        "https://router.huggingface.co/v1", variable="HF", key="TOKEN", priced_as=None
    ),
    "ollama": Provider("http://localhost:11434/v1", local=True),
    "vllm": Provider("http://localhost:8000/v1", local=True),
    "sglang": Provider("http://localhost:30000/v1", local=True),
    "llama-cpp-python": Provider(
        "http://localhost:8080/v1", local=True, variable="LLAMA_CPP_PYTHON"
    ),
    "lmstudio": Provider("http://localhost:1234/v1", local=True),
}
"""The providers of the native client by the names that Inspect AI gives them, if it has one."""

INSPECT_PROVIDERS = (
    "azureai",
    "bedrock",
    "cloudflare",
    "hf",
    "litellm-proxy",
    "meta",
    "moonshot",
    "nnterp",
    "sagemaker",
    "transformer_lens",
)
"""Providers that the native client does not serve and Inspect AI does."""

LOCAL_WEIGHTS = ("hf", "nnterp", "transformer_lens")
"""Those of them that load a model's weights into this process."""

FOREIGN = "inspect/"
"""Start of a name that goes to Inspect AI although its provider is served natively:
`inspect/vllm/NAME`.
"""

PYTHON_PREFIX = "python/"
"""Start of the name of a function."""

RECORDED_FILE_PREFIX = "replay/"
"""Start of the name of a file of responses, which is no model any more: earlier runs have some."""

IN_PROCESS = ("baseline/", RECORDED_FILE_PREFIX, PYTHON_PREFIX)
"""Starts of the names of models that answer in this process."""

_GENERIC = "openai-api"
_ONLY_THROUGH_INSPECT = (
    *("anthropic/azure/", "anthropic/bedrock/", "anthropic/vertex/", "google/vertex/"),
    *("openai/azure/", "openai/bedrock/", "mistral/azure/"),
)
"""Services of a native provider that take another form of request."""


class Endpoint(msgspec.Struct, frozen=True):
    """Address and key of a model."""

    model: str
    """The name the endpoint knows it by."""
    base_url: str
    url_variable: str
    api_key: str | None
    key_variable: str
    local: bool
    protocol: WireProtocol
    headers: dict[str, str] = {}
    """Those that the user adds to its requests, with their values."""

    @property
    def url(self) -> str:
        """The address of its requests."""
        return f"{self.base_url}{_route(self.protocol, self.model)}"


def _route(protocol: WireProtocol, model: str) -> str:
    return protocol.route(quote(model, safe="/:@"))


def name_variables(provider: str) -> tuple[str, str]:
    """Return the names of a provider's variables: base URL and key."""
    row = ENDPOINTS.get(provider) or Provider("")
    stem = row.variable or re.sub(r"[^A-Z0-9]", "_", provider.upper())
    return f"{stem}_BASE_URL", f"{stem}_{row.key}"


def unset(name: str, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the variables that calls to a model of the native client need and that are not set:
    base URL, key.

    Raises:
        InputError: the name or a variable is not usable.
    """
    endpoint = resolve_endpoint(name, environment, for_calls=False)
    needed = (
        (endpoint.url_variable, endpoint.base_url),
        (endpoint.key_variable, endpoint.local or endpoint.api_key),
    )
    return tuple(variable for variable, value in needed if not value)


def is_in_process(name: str) -> bool:
    """Tell whether a model answers in this process: without a provider, and free of charge."""
    return name.startswith(IN_PROCESS)


def is_native(name: str) -> bool:
    """Tell whether a name is one of the native client's, well formed or not."""
    prefix = name.partition("/")[0]
    return (prefix == _GENERIC or prefix in ENDPOINTS) and not name.startswith(
        _ONLY_THROUGH_INSPECT
    )


def find_provider(name: str) -> Provider | None:
    """Return the row of a model's provider; None if the native client has none for it."""
    return ENDPOINTS.get(name.partition("/")[0]) if is_native(name) else None


def own_headers(name: str) -> set[str]:
    """Return the headers that the protocol of a model of the native client sets, in lower case."""
    row = find_provider(name) or Provider("")
    return {header.lower() for header in row.protocol.headers("key")}


def parse_provider(name: str) -> str:
    """Return the provider in a model's name."""
    return name.removeprefix(FOREIGN).removeprefix(f"{_GENERIC}/").partition("/")[0]


_VERSION = re.compile(r"-((\d{4}-)?\d{2}-\d{2}|\d{4}-\d{2}|\d{2}-\d{4}|\d{3,8})$")


def name_and_version(name: str) -> tuple[str, str]:
    """Split a model's name, ours or its server's, into the name and its date or version number; ""
    if it has none.
    """
    plain = re.sub(r"[._:@]", "-", name.rpartition("/")[2].lower()).removesuffix("-latest")
    match = _VERSION.search(plain)
    return (plain[: match.start()], match[0].replace("-", "")) if match else (plain, "")


def names_version(name: str) -> bool:
    """Tell whether a model's name, ours or its server's, has a date or a version number."""
    return bool(name_and_version(name)[1]) or re.search(r"\d{4}", name) is not None


def is_another(asked: str, served: str) -> bool:
    """Tell whether a reply names another model than the requested one: another name, or another
    version if both have one (docs/missing-grades.md).
    """
    return bool(served) and not is_in_process(asked) and are_unlike(asked, served)


@lru_cache(maxsize=256)
def are_unlike(name: str, other: str) -> bool:
    """Tell whether two names are of unlike models: other names, or other versions if both have
    one.
    """
    (stem, version), (other_stem, other_version) = name_and_version(name), name_and_version(other)
    return stem != other_stem or bool(version and other_version and version != other_version)


def split_name(name: str) -> tuple[str, str]:
    """Split a model's name into provider and model: `provider/model`, or
    `openai-api/provider/model`.

    Raises:
        InputError: the provider is unknown, or the name is incomplete.
    """
    if "://" in name:
        address = "…@" + name.rpartition("@")[2] if "@" in name else name
        raise InputError(
            f"{address}: is the address of a server; name the model vllm/NAME, as the server calls"
            " it, and set VLLM_BASE_URL to the address"
        )
    prefix, _, model = name.partition("/")
    if not (prefix and model):
        raise InputError(
            f"{name!r}: is not a model name; expected provider/model, such as openai/gpt-5.4 or"
            " baseline/judge"
        )
    if prefix == _GENERIC:
        slug, _, model = model.partition("/")
        if not model or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", slug):
            raise InputError(
                f"{name!r}: is not a model name; expected openai-api/<provider>/<model>"
            )
        return slug, model
    if is_native(name):
        return prefix, model
    if prefix in INSPECT_PROVIDERS or name.startswith((FOREIGN, *_ONLY_THROUGH_INSPECT)):
        raise InputError(
            f"{name}: provider {parse_provider(name)!r} is not served by the native client, only"
            " through Inspect AI"
        )
    raise unknown_provider(name, [*ENDPOINTS, *INSPECT_PROVIDERS, _GENERIC, "baseline"])


def unknown_provider(name: str, valid: Iterable[str]) -> InputError:
    """Return the error for a model of no valid provider; it says how another server is named."""
    url, key = name_variables(provider := parse_provider(name))
    hint = did_you_mean(provider, valid) or (
        "`opensafeintent models` lists the providers; for another server, name the model"
        f" {_GENERIC}/{name.removeprefix(FOREIGN)} and set {url} and {key}"
    )
    return InputError(f"{name}: unknown provider {provider!r}; {hint}")


def resolve_endpoint(
    name: str, environment: Mapping[str, str] = os.environ, *, for_calls: bool = True
) -> Endpoint:
    """Find the endpoint of a model name. If no call is to be made, key and URL may be missing, but
    not invalid.

    Raises:
        InputError: the name is not usable, or a variable that it needs is not set.
    """
    slug, model = split_name(name)
    provider = ENDPOINTS.get(slug) or Provider("")
    url_variable, key_variable = name_variables(slug)
    base_url = (environment.get(url_variable) or "").strip() or provider.base_url
    api_key = (environment.get(key_variable) or "").strip() or None
    any_key = "" if slug in ENDPOINTS else "; any text, if the server takes none"
    route = _route(provider.protocol, model)
    if for_calls and not base_url:
        needs_key = not (provider.local or api_key)
        and_key = f", and {key_variable} to its key{any_key}" if needs_key else ""
        raise InputError(
            f"{name}: set {url_variable} to the server's base URL, such as"
            f" {_example_url(provider, route)}{and_key}"
        )
    if base_url:
        _check_url(base_url, url_variable, provider, route)
    if for_calls and not (provider.local or api_key):
        raise InputError(f"{name}: no key; set {key_variable}{any_key}")
    if api_key is not None and not (
        api_key.isascii() and api_key.isprintable() and " " not in api_key
    ):
        raise InputError(
            f"{key_variable}: holds white space or characters that a key cannot have; set it again"
        )
    return Endpoint(
        model=model,
        # the route's version may stand at the end of the address too
        base_url=base_url.rstrip("/").removesuffix(_route_version(route)),
        url_variable=url_variable,
        api_key=api_key,
        key_variable=key_variable,
        local=provider.local,
        protocol=provider.protocol,
    )


def _route_version(route: str) -> str:
    """Return the version at the start of a route, such as `/v1`; "" if it has none."""
    version = re.match(r"/v\d\w*(?=/)", route)
    return version[0] if version else ""


def _example_url(provider: Provider, route: str) -> str:
    """Return a base URL for an error to suggest: with a version, unless the route has one."""
    return f"http://localhost:8000{'' if _route_version(route) else provider.path}"


def _check_url(base_url: str, variable: str, provider: Provider, route: str) -> None:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = "…@" + base_url.rpartition("@")[2] if "@" in base_url else base_url
        raise InputError(
            f"{variable}: is {shown!r}; expected a URL such as {_example_url(provider, route)}"
        )
    if parts.username is not None:
        raise InputError(
            f"{variable}: holds a user name or password; put the key into its own variable"
        )
    excess = re.search(rf"\?|#|{re.escape(route)}/*$", base_url)
    if excess is not None:
        raise InputError(
            f"{variable}: holds {excess[0]!r}; expected a URL that ends before {route},"
            f" such as {_example_url(provider, route)}"
        )


_SERVERS = {
    "vllm": "VLLM_BASE_URL",
    "vllm-completions": "VLLM_BASE_URL",
    "sglang": "SGLANG_BASE_URL",
}
"""Providers of Inspect AI that start a server, unless this variable gives the address of one."""


def loads_weights(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether asking a model loads its weights in the asking process, or in a server that
    this process starts.
    """
    provider = parse_provider(name)
    if provider in LOCAL_WEIGHTS:
        return True
    return not is_native(name) and provider in _SERVERS and not environment.get(_SERVERS[provider])
