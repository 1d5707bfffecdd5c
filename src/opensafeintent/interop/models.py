"""Every model that can be named: those of the native client, and through the extra those of Inspect
AI.
"""

from __future__ import annotations

from collections.abc import Iterable

from opensafeintent.calls import models as native
from opensafeintent.calls import providers
from opensafeintent.calls.client import Model
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.models import Served
from opensafeintent.interop.inspect import extra
from opensafeintent.interop.inspect.extra import served_through_inspect
from opensafeintent.interop.inspect.models import InspectProviders


def open_models(names: Iterable[str], http: HttpSession) -> dict[str, Model]:
    """Return what answers for each name; nothing is sent yet.

    Raises:
        InputError: a name, a file or a variable is not usable, or a provider needs an extra that is
            not installed.
    """
    return native.open_models(names, http, InspectProviders())


def model_identity(name: str) -> str:
    """Return what a model's calls are keyed by, without asking for a key or a server.

    Raises:
        InputError: the name or its file is not usable.
    """
    return native.model_identity(name, InspectProviders())


def served_models() -> list[Served]:
    """List what can be named as a model, and which variables each needs."""
    return [*native.served_models(), *served_through_inspect()]


def unset_lines(names: Iterable[str]) -> list[str]:
    """Say which variables are not set without which models cannot be asked, a line for each
    variable.
    """
    needed: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if not providers.is_in_process(name):
            for variable in (providers if providers.is_native(name) else extra).unset(name):
                needed.setdefault(variable, []).append(name)
    return [
        f"{variable} is not set: {', '.join(models)} cannot be asked without it"
        for variable, models in needed.items()
    ]
