"""What Inspect AI finds of ours: it imports this module by the entry point `inspect_ai` of the
package.
"""

from __future__ import annotations

from inspect_ai.model import ModelAPI, modelapi

from opensafeintent.interop.inspect.scorers import (
    opensafeintent_harm_severity,
    opensafeintent_helpfulness,
    opensafeintent_mode,
    opensafeintent_sets,
    opensafeintent_strategy,
    prompt_set_metrics,
    set_coverage,
)
from opensafeintent.interop.inspect.tasks import opensafeintent, respond

__all__ = [
    "opensafeintent",
    "opensafeintent_harm_severity",
    "opensafeintent_helpfulness",
    "opensafeintent_mode",
    "opensafeintent_sets",
    "opensafeintent_strategy",
    "prompt_set_metrics",
    "respond",
    "scripted_models",
    "set_coverage",
]


@modelapi(name="opensafeintent")
def scripted_models() -> type[ModelAPI]:
    """Return the provider of the baselines and of recorded responses."""
    from opensafeintent.interop.inspect.scripted import ScriptedAPI

    return ScriptedAPI
