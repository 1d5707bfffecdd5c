"""What Inspect AI finds of ours: it imports this module by the entry point `inspect_ai` of the
package.
"""

from __future__ import annotations

from inspect_ai.model import ModelAPI, modelapi


@modelapi(name="opensafeintent")
def scripted_models() -> type[ModelAPI]:
    """Return the provider of the baselines and of recorded responses."""
    from opensafeintent.interop.inspect.scripted import ScriptedAPI

    return ScriptedAPI
