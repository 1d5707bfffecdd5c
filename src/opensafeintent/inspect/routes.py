"""Which model answers for a name: our client's, or one that Inspect AI serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opensafeintent.calls.client import Model
    from opensafeintent.calls.functions import FunctionModel
    from opensafeintent.calls.headers import Headers
    from opensafeintent.calls.http import HttpSession
    from opensafeintent.calls.models import OtherProviders, Served
    from opensafeintent.calls.service_tiers import FlexPlan


def _other_providers() -> OtherProviders:
    from opensafeintent.inspect.provider_models import InspectProviders

    return InspectProviders()


def open_models(
    names: Iterable[str],
    http: HttpSession,
    functions: Mapping[str, FunctionModel] | None = None,
    left_out: Mapping[str, Collection[str]] | None = None,
    flex: FlexPlan | None = None,
    headers: Headers | None = None,
) -> dict[str, Model]:
    """Return the model of each name; nothing is sent yet. `functions` are those of settings;
    `left_out` are fields that a model is known not to take; `flex` names the models that are asked
    at the flex tier; `headers` are those of their requests.

    Raises:
        InputError: a name, a file or a variable is not usable, or a provider needs an extra that is
            not installed.
    """
    from opensafeintent.calls import models, service_tiers

    plan = flex or service_tiers.NO_FLEX
    others = _other_providers()
    return models.open_models(
        names, http, others, functions or {}, left_out or {}, plan, headers or {}
    )


def model_identity(name: str, functions: Mapping[str, FunctionModel] | None = None) -> str:
    """Return a model's identity in call keys, without asking for an API key or a server.
    `functions` are those of settings.

    Raises:
        InputError: the name or its file is not usable.
    """
    from opensafeintent.calls import models

    return models.model_identity(name, _other_providers(), functions or {})


def served_models() -> list[Served]:
    """List the names of models, and the variables that each needs."""
    from opensafeintent.calls import models
    from opensafeintent.inspect.inspect_providers import served_through_inspect

    return [*models.served_models(), *served_through_inspect()]


def unset_lines(names: Iterable[str], headers: Headers | None = None) -> list[str]:
    """Say which variables are not set without which models cannot be asked, a line for each
    variable; `headers` are those of their requests.
    """
    from opensafeintent.calls import providers
    from opensafeintent.calls.headers import without_value
    from opensafeintent.inspect import inspect_providers as inspect

    needed: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if providers.is_in_process(name):
            continue
        unset = providers.unset if providers.is_native(name) else inspect.unset
        for variable in unset(name):
            needed.setdefault(variable, []).append(name)
        for header in without_value((headers or {}).get(name, {})):
            needed.setdefault(f"the variable of the header {header}", []).append(name)
    return [
        f"{variable} is not set: {', '.join(models)} cannot be asked without it"
        for variable, models in needed.items()
    ]
