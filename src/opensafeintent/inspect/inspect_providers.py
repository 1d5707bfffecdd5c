"""The providers that the extra [inspect] brings, and whether it is installed."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version

import msgspec

from opensafeintent.calls.baselines import BASELINES
from opensafeintent.calls.client import Model
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.model_names import Served
from opensafeintent.calls.providers import (
    ENDPOINTS,
    FOREIGN,
    INSPECT_PROVIDERS,
    parse_provider,
    split_name,
    unknown_provider,
)
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


def find_unset_variables(name: str) -> tuple[str, ...]:
    """Return the variables that a model served through the extra needs and that are not set; none
    if they are unknown.
    """
    plain = name.removeprefix(FOREIGN)
    provider, _, model = plain.partition("/")
    row = PROVIDERS.get(f"{provider}/{model.partition('/')[0]}") or PROVIDERS.get(provider)
    if row is None:
        return ()
    return Served(name, "", row.needs).unset


def from_inspect(model: str) -> str:
    """Return a model's name in a run of ours: `opensafeintent/judge` is `baseline/judge`."""
    provider, _, script = model.partition("/")
    return f"baseline/{script}" if provider == "opensafeintent" and script in BASELINES else model


def check_inspect_name(name: str) -> None:
    """Refuse a name that no provider could be found for, without asking for a key.

    Raises:
        InputError: the provider is unknown, or the extra is missing or too old.
    """
    provider = parse_provider(name)
    in_inspect = provider in INSPECT_PROVIDERS or name.startswith(
        (FOREIGN, "openai/", "mistral/", "anthropic/", "google/")
    )
    if find_installed_version() is None and not in_inspect:
        split_name(name)  # says which providers there are
    require_inspect(f"{name}: provider {provider!r}")
    if "/" not in name.removeprefix(FOREIGN):
        raise InputError(f"{name!r}: is not a model name; expected inspect/provider/model")
    from opensafeintent.inspect.provider_models import list_registered

    if provider not in (registered := list_registered()):
        valid = registered if name.startswith(FOREIGN) else [*ENDPOINTS, *registered]
        raise unknown_provider(name, valid)


def open_inspect_model(name: str, http: HttpSession, left_out: Collection[str] = ()) -> Model:
    """Return the model of a name, without the fields that it does not take; weights are not loaded
    yet.

    Raises:
        InputError: see `check_inspect_name`; or a key or another variable is missing.
    """
    check_inspect_name(name)
    from opensafeintent.inspect.provider_models import InspectModel

    return InspectModel(name, http, left_out)
