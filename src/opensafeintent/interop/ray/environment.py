"""The environment variables that a task on another node needs for its models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from opensafeintent.calls.headers import NO_HEADERS, Headers
from opensafeintent.calls.providers import (
    INSPECT_PROVIDERS,
    LOCAL_WEIGHTS,
    is_native,
    provider_of,
    variables,
)

_FURTHER_PREFIXES = {
    "bedrock": ("AWS_",),
    "sagemaker": ("AWS_",),
    "google": ("GOOGLE_", "GEMINI_", "VERTEX_"),
    "openai": ("OPENAI_", "AZUREAI_", "AZURE_"),
    "azureai": ("AZUREAI_", "AZURE_"),
    "anthropic": ("ANTHROPIC_", "AWS_", "GOOGLE_", "AZUREAI_", "AZURE_"),
    "vllm-completions": ("VLLM_",),
    "mistral": ("MISTRAL_", "AZUREAI_", "AZURE_"),
}
"""First parts of a provider's variables, if they are more than its own name."""


def variables_of(
    names: Iterable[str],
    environment: Mapping[str, str] = os.environ,
    headers: Headers = NO_HEADERS,
) -> dict[str, str]:
    """Return the environment variables that some models need, if they are set, and no other;
    `headers` are those of their requests.
    """
    values: dict[str, str] = {}
    for name in names:
        if name.startswith("baseline/"):
            continue
        provider = provider_of(name)
        prefixes: tuple[str, ...] = ()
        if provider in LOCAL_WEIGHTS:
            wanted = {"HF_TOKEN", "HF_ENDPOINT"}  # each node has its own place for weights
        elif is_native(name):
            wanted = set(variables(provider))
        else:
            from opensafeintent.interop.inspect.providers import PROVIDERS

            wanted = set(PROVIDERS[provider].needs) if provider in INSPECT_PROVIDERS else set()
            prefixes = (
                f"{provider.upper().replace('-', '_')}_",
                *_FURTHER_PREFIXES.get(provider, ()),
            )
        wanted |= set(headers.get(name, {}).values())
        values |= {
            variable: value
            for variable, value in environment.items()
            if variable in wanted or (prefixes and variable.startswith(prefixes))
        }
    return values
