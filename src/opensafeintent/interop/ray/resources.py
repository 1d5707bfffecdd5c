"""What a model needs where it is asked: weights in memory, and environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from opensafeintent.calls.providers import INSPECT_PROVIDERS, LOCAL_WEIGHTS, is_native, provider_of, variables
from opensafeintent.interop.inspect.providers import PROVIDERS

__all__ = ["loads_weights", "variables_of"]

_SERVERS = {"vllm": "VLLM_BASE_URL", "vllm-completions": "VLLM_BASE_URL", "sglang": "SGLANG_BASE_URL"}
"""Providers of Inspect AI that start a server, unless this variable says where one is."""
_FURTHER = {
    "bedrock": ("AWS_",),
    "sagemaker": ("AWS_",),
    "google": ("GOOGLE_", "GEMINI_", "VERTEX_"),
    "openai": ("OPENAI_", "AZUREAI_", "AZURE_"),
    "azureai": ("AZUREAI_", "AZURE_"),
    "anthropic": ("ANTHROPIC_", "AWS_", "GOOGLE_", "AZUREAI_", "AZURE_"),
    "vllm-completions": ("VLLM_",),
    "mistral": ("MISTRAL_", "AZUREAI_", "AZURE_"),
}
"""What the variables of a provider begin with, where it is more than its own name."""


def loads_weights(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether asking a model loads its weights where it is asked: in that process, or a server that it starts."""
    provider = provider_of(name)
    if provider in LOCAL_WEIGHTS:
        return True
    return not is_native(name) and provider in _SERVERS and not environment.get(_SERVERS[provider])


def variables_of(names: Iterable[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that some models need, as far as they are set, and no other."""
    found: dict[str, str] = {}
    for name in names:
        if name.startswith(("baseline/", "replay/")):
            continue
        provider = provider_of(name)
        stems: tuple[str, ...] = ()
        if provider in LOCAL_WEIGHTS:
            wanted = {"HF_TOKEN", "HF_ENDPOINT"}  # where weights are kept is each node's own matter
        elif is_native(name):
            wanted = set(variables(provider))
        else:
            wanted = set(PROVIDERS[provider].needs) if provider in INSPECT_PROVIDERS else set()
            stems = (f"{provider.upper().replace('-', '_')}_", *_FURTHER.get(provider, ()))
        found |= {
            variable: value
            for variable, value in environment.items()
            if variable in wanted or (stems and variable.startswith(stems))
        }
    return found
