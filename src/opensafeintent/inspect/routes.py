"""Which model answers for a name: our client's, or one that the extra [inspect] brings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

import msgspec

from opensafeintent.calls import models, providers
from opensafeintent.calls.baselines import BASELINES
from opensafeintent.calls.client import Model
from opensafeintent.calls.functions import FunctionModel
from opensafeintent.calls.headers import NO_HEADERS, Headers, find_unset
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.models import Served
from opensafeintent.calls.service_tiers import NO_FLEX, FlexPlan
from opensafeintent.errors import InputError, install_extra

_OLDEST = (0, 3, 285)
"""The oldest Inspect AI whose metrics can see every epoch, and whose unscored samples carry a
reason.
"""


def find_installed_version() -> tuple[int, ...] | None:
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
    installed = find_installed_version()
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
    "anthropic/bedrock": ForeignProvider(
        "Claude on Amazon Bedrock; the credentials of AWS", (), "anthropic"
    ),
    "anthropic/vertex": ForeignProvider(
        "Claude on Google Cloud; the credentials of Google Cloud", (), "anthropic"
    ),
    "anthropic/azure": ForeignProvider(
        "Claude on Azure",
        ("AZUREAI_ANTHROPIC_API_KEY", "AZUREAI_ANTHROPIC_BASE_URL"),
        "anthropic",
    ),
    "google/vertex": ForeignProvider(
        "Gemini on Google Cloud; the credentials of Google Cloud", (), "google-genai"
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


def list_inspect_models() -> list[Served]:
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


def _find_unset_foreign(name: str) -> tuple[str, ...]:
    """Return the variables that a model served through the extra needs and that are not set; none
    if they are unknown.
    """
    plain = name.removeprefix(providers.FOREIGN)
    provider, _, model = plain.partition("/")
    row = PROVIDERS.get(f"{provider}/{model.partition('/')[0]}") or PROVIDERS.get(provider)
    return Served(name, "", row.needs).unset if row else ()


def from_inspect(model: str) -> str:
    """Return a model's name in a run of ours: `opensafeintent/judge` is `baseline/judge`."""
    provider, _, script = model.partition("/")
    return f"baseline/{script}" if provider == "opensafeintent" and script in BASELINES else model


class InspectProviders:
    """Serves every model name that the native client does not."""

    def check(self, name: str) -> None:
        """Refuse a name that no provider could be found for, without asking for a key.

        Raises:
            InputError: the provider is unknown, or the extra is missing or too old.
        """
        provider = providers.parse_provider(name)
        in_inspect = provider in providers.INSPECT_PROVIDERS or name.startswith(
            (providers.FOREIGN, "openai/", "mistral/", "anthropic/", "google/")
        )
        if find_installed_version() is None and not in_inspect:
            providers.split_name(name)  # says which providers there are
        require_inspect(f"{name}: provider {provider!r}")
        if "/" not in name.removeprefix(providers.FOREIGN):
            raise InputError(f"{name!r}: is not a model name; expected inspect/provider/model")
        from opensafeintent.inspect.provider_models import list_registered

        if provider not in (registered := list_registered()):
            valid = (
                registered
                if name.startswith(providers.FOREIGN)
                else [*providers.ENDPOINTS, *registered]
            )
            raise providers.unknown_provider(name, valid)

    def open(self, name: str, http: HttpSession, left_out: Collection[str] = ()) -> Model:
        """Return the model of a name, without the fields that it does not take; weights are not
        loaded yet.

        Raises:
            InputError: see `check`; or a key or another variable is missing.
        """
        self.check(name)
        from opensafeintent.inspect.provider_models import InspectModel

        return InspectModel(name, http, left_out)


def open_models(
    names: Iterable[str],
    http: HttpSession,
    functions: Mapping[str, FunctionModel] = {},
    left_out: Mapping[str, Collection[str]] = {},
    flex: FlexPlan = NO_FLEX,
    headers: Headers = NO_HEADERS,
) -> dict[str, Model]:
    """Return the model of each name; nothing is sent yet. `functions` are those of settings;
    `left_out` are fields that a model is known not to take; `flex` names the models that are asked
    at the flex tier; `headers` are those of their requests.

    Raises:
        InputError: a name, a file or a variable is not usable, or a provider needs an extra that is
            not installed.
    """
    others = InspectProviders()
    return models.open_models(names, http, others, functions, left_out, flex, headers)


def model_identity(name: str, functions: Mapping[str, FunctionModel] = {}) -> str:
    """Return a model's identity in call keys, without asking for an API key or a server.
    `functions` are those of settings.

    Raises:
        InputError: the name or its file is not usable.
    """
    return models.model_identity(name, InspectProviders(), functions)


def served_models() -> list[Served]:
    """List the names of models, and the variables that each needs."""
    return [*models.served_models(), *list_inspect_models()]


def unset_lines(names: Iterable[str], headers: Headers = NO_HEADERS) -> list[str]:
    """Say which variables are not set without which models cannot be asked, a line for each
    variable; `headers` are those of their requests.
    """
    needed: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if providers.is_in_process(name):
            continue
        list_unset = providers.unset if providers.is_native(name) else _find_unset_foreign
        for variable in list_unset(name):
            needed.setdefault(variable, []).append(name)
        for header in find_unset(headers.get(name, {})):
            needed.setdefault(f"the variable of the header {header}", []).append(name)
    return [
        f"{variable} is not set: {', '.join(without)} cannot be asked without it"
        for variable, without in needed.items()
    ]
