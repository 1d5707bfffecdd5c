"""A model by any name: one that our client calls, or one that Inspect AI does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel
from opensafeintent.calls.client import Model
from opensafeintent.calls.headers import NO_HEADERS, Headers, find_unset, read_header_values
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.model_names import Served, check_model_name
from opensafeintent.calls.providers import (
    ENDPOINTS,
    PYTHON_PREFIX,
    RECORDED_FILE_PREFIX,
    is_in_process,
    is_native,
    name_variables,
    resolve_endpoint,
    unset,
)
from opensafeintent.calls.python_models import (
    NO_FUNCTIONS,
    CalledFunction,
    Functions,
    function_named,
)
from opensafeintent.calls.service_tiers import NO_FLEX, FlexPlan
from opensafeintent.errors import InputError
from opensafeintent.inspect.inspect_providers import (
    check_inspect_name,
    find_unset_variables,
    list_inspect_models,
    open_inspect_model,
)


def open_models(
    names: Iterable[str],
    http: HttpSession,
    functions: Functions = NO_FUNCTIONS,
    left_out: Mapping[str, Collection[str]] = {},
    flex: FlexPlan = NO_FLEX,
    headers: Headers = NO_HEADERS,
) -> dict[str, Model]:
    """Return the model of each name; nothing is sent yet.

    Args:
        names: the models.
        http: the connections.
        functions: those that settings carry.
        left_out: by model, fields that an earlier run found out that it does not take.
        flex: the models that are asked at the flex tier.
        headers: of their requests.

    Raises:
        InputError: names, files or variables are not usable; a line each.
    """
    opened: dict[str, Model] = {}
    problems: list[str] = []
    for name in names:
        try:
            if (model := _open_in_process(name, functions, http)) is not None:
                opened[name] = model
            elif _needs_inspect(name):
                opened[name] = open_inspect_model(name, http, left_out.get(name, ()))
            else:
                added = read_header_values(name, headers.get(name, {}))
                endpoint = msgspec.structs.replace(resolve_endpoint(name), headers=added)
                opened[name] = EndpointModel(
                    name, endpoint, http, left_out.get(name, ()), flex.find_tier(name)
                )
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(*problems)
    return opened


def model_identity(name: str, functions: Functions = NO_FUNCTIONS) -> str:
    """Return a model's identity in call keys, without asking for an API key or a server.

    Args:
        name: the model.
        functions: those that settings carry.

    Raises:
        InputError: the name or its file is not usable.
    """
    if (model := _open_in_process(name, functions)) is not None:
        return model.identity
    if _needs_inspect(name):
        check_inspect_name(name)
    else:
        resolve_endpoint(name, for_calls=False)
    return name


def _open_in_process(
    name: str, functions: Functions, http: HttpSession | None = None
) -> Model | None:
    """Return the model of a name without a provider; without `http` for its identity alone."""
    check_model_name(name)
    if name.startswith("baseline/"):
        return ScriptedModel(name)
    if name.startswith(PYTHON_PREFIX):
        return CalledFunction(function_named(name, functions), http)
    if name.startswith(RECORDED_FILE_PREFIX):
        raise InputError(
            f"{name}: a file of responses is no model; `opensafeintent import` reads it, then"
            " `opensafeintent grade` grades it"
        )
    return None


def _needs_inspect(name: str) -> bool:
    provider, _, model = name.partition("/")
    return bool(provider and model) and not is_native(name)


def served_models() -> list[Served]:
    """List the names of models, and the variables that each needs."""
    in_process = {
        **{f"baseline/{name}": script.summary for name, script in BASELINES.items()},
        "python/MODULE:FUNCTION@VERSION": "your function: messages in, text out",
    }
    lines = [Served(name, about) for name, about in in_process.items()]
    for name, provider in ENDPOINTS.items():
        url_variable, key_variable = name_variables(name)
        server = "server at " if provider.local else ""
        about = f"{server}{provider.base_url} (or {url_variable})"
        lines.append(Served(f"{name}/MODEL", about, () if provider.local else (key_variable,)))
    about = "any chat-completions server, under a name P of your choice"
    lines.append(Served("openai-api/P/MODEL", about, ("P_BASE_URL", "P_API_KEY")))
    return [*lines, *list_inspect_models()]


def describe_unset_variables(names: Iterable[str], headers: Headers = NO_HEADERS) -> list[str]:
    """Say which variables are not set without which models cannot be asked, a line for each
    variable; `headers` are those of their requests.
    """
    needed: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if is_in_process(name):
            continue
        list_unset = unset if is_native(name) else find_unset_variables
        for variable in list_unset(name):
            needed.setdefault(variable, []).append(name)
        for header in find_unset(headers.get(name, {})):
            needed.setdefault(f"the variable of the header {header}", []).append(name)
    return [
        f"{variable} is not set: {', '.join(models)} cannot be asked without it"
        for variable, models in needed.items()
    ]
