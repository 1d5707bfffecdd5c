"""The providers that are served through Inspect AI, and the variables that each needs."""

from __future__ import annotations

import msgspec

from opensafeintent.calls.models import Served
from opensafeintent.interop.inspect.extra import installed

__all__ = ["PROVIDERS", "ForeignProvider", "served_through_inspect"]


class ForeignProvider(msgspec.Struct, frozen=True):
    """A provider by the name that Inspect AI gives it."""

    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""
    package: str = ""
    """What has to be installed besides the extra."""


PROVIDERS: dict[str, ForeignProvider] = {
    "anthropic": ForeignProvider(
        "Claude; anthropic/bedrock/…, anthropic/vertex/… and anthropic/azure/… are its other houses",
        ("ANTHROPIC_API_KEY",),
        "anthropic",
    ),
    "google": ForeignProvider(
        "Gemini; google/vertex/… takes the credentials of Google Cloud", ("GOOGLE_API_KEY",), "google-genai"
    ),
    "azureai": ForeignProvider("Azure AI Foundry", ("AZUREAI_API_KEY", "AZUREAI_BASE_URL"), "azure-ai-inference"),
    "openai/azure": ForeignProvider("Azure OpenAI", ("AZUREAI_OPENAI_API_KEY", "AZUREAI_OPENAI_BASE_URL"), "openai"),
    "openai/bedrock": ForeignProvider("models of OpenAI on Amazon Bedrock; the credentials of AWS", (), "openai"),
    "mistral/azure": ForeignProvider(
        "Mistral on Azure", ("AZUREAI_MISTRAL_API_KEY", "AZUREAI_MISTRAL_BASE_URL"), "mistralai"
    ),
    "bedrock": ForeignProvider("Amazon Bedrock; the credentials of AWS as its own tools take them", (), "aioboto3"),
    "sagemaker": ForeignProvider("Amazon SageMaker; the credentials of AWS", (), "aioboto3"),
    "cloudflare": ForeignProvider("Workers AI", ("CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"), "openai"),
    "meta": ForeignProvider("Meta's own service", ("META_API_KEY",), "openai"),
    "moonshot": ForeignProvider("Kimi", ("MOONSHOT_API_KEY",), "openai"),
    "litellm-proxy": ForeignProvider("a LiteLLM gateway", ("LITELLM_PROXY_BASE_URL",), "openai"),
    "hf": ForeignProvider("weights by name or path, in this process; -M model_path=DIR", (), "torch transformers accelerate"),
    "nnterp": ForeignProvider("weights, in this process", (), "nnterp"),
    "transformer_lens": ForeignProvider("weights, in this process", (), "transformer_lens"),
}
"""Those that Inspect AI has and the native client has not. A provider that a package registers with it works as well."""


def served_through_inspect() -> list[Served]:
    """List what the extra serves, and which variables each needs."""
    state = "inspect extra" if installed() else "inspect extra (not installed)"
    lines = []
    for name, provider in PROVIDERS.items():
        about = f"{provider.about}  (pip install {provider.package})"
        lines.append(Served(f"{name}/MODEL", state, about, provider.needs))
    lines.append(
        Served("inspect/P/MODEL", state, "any provider of Inspect AI, also one that is served natively: inspect/vllm/NAME")
    )
    return lines
