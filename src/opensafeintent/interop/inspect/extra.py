"""The extra `[inspect]`: whether it is there, which providers it serves, and what models are called
there.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

import msgspec

from opensafeintent.calls.baselines import BASELINES
from opensafeintent.calls.models import Served
from opensafeintent.calls.providers import FOREIGN
from opensafeintent.errors import InputError

OLDEST = (0, 3, 285)
"""The oldest Inspect AI whose metrics can see every epoch, and whose unscored samples carry a
reason.
"""


def installed() -> tuple[int, ...] | None:
    """Return the version of Inspect AI that is installed, without importing it; None where it is
    not.
    """
    try:
        found = version("inspect_ai")
    except PackageNotFoundError:
        return None
    return tuple(int(part) for part in re.findall(r"\d+", found)[:3])


def require_inspect(what: str) -> None:
    """Refuse what cannot be done without the extra.

    Args:
        what: what needs it; begins the line of the error.

    Raises:
        InputError: Inspect AI is not installed, or too old.
    """
    found = installed()
    if found is None:
        raise InputError(f'{what} needs an extra: pip install "opensafeintent[inspect]"')
    if found < OLDEST:
        names = [".".join(map(str, parts)) for parts in (found, OLDEST)]
        raise InputError(
            f"{what} needs inspect-ai {names[1]} or newer, {names[0]} is installed: "
            'pip install --upgrade "opensafeintent[inspect]"'
        )


# Providers
# ------------------------------------------------------------------------------


class ForeignProvider(msgspec.Struct, frozen=True):
    """A provider by the name that Inspect AI gives it."""

    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""
    package: str = ""
    """What has to be installed besides the extra."""


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
    """List what the extra serves, and which variables each needs."""
    state = "inspect extra" if installed() else "inspect extra (not installed)"
    lines = []
    for name, provider in PROVIDERS.items():
        about = f"{provider.about}  (pip install {provider.package})"
        lines.append(Served(f"{name}/MODEL", state, about, provider.needs))
    lines.append(
        Served(
            "inspect/P/MODEL",
            state,
            "any provider of Inspect AI, also one that is served natively: inspect/vllm/NAME",
        )
    )
    return lines


_OTHER_HOUSES = ("anthropic/bedrock/", "anthropic/vertex/", "anthropic/azure/", "google/vertex/")
"""Services whose credentials are not a variable of the provider's own."""


def unset(name: str) -> tuple[str, ...]:
    """Return the variables that a model served through the extra needs and that are not set; none
    where that is not known.
    """
    plain = name.removeprefix(FOREIGN)
    provider, _, model = plain.partition("/")
    known = PROVIDERS.get(f"{provider}/{model.partition('/')[0]}") or PROVIDERS.get(provider)
    if known is None or plain.startswith(_OTHER_HOUSES):
        return ()
    return Served(name, "", "", known.needs).lacking


# Names
# ------------------------------------------------------------------------------


_OURS, _THEIRS = "baseline/", "opensafeintent/"


def to_inspect(model: str) -> str:
    """Return a model's name as Inspect AI has it: `baseline/judge` is its
    `opensafeintent/judge`.
    """
    return _renamed(model, _OURS, _THEIRS)


def from_inspect(model: str) -> str:
    """Return a model's name as a run of ours has it."""
    return _renamed(model, _THEIRS, _OURS)


def _renamed(model: str, old: str, new: str) -> str:
    script = model.removeprefix(old)
    return f"{new}{script}" if script != model and script in BASELINES else model
