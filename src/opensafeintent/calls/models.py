"""From a model's name to the object that answers its calls."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel
from opensafeintent.calls.client import Model
from opensafeintent.calls.functions import (
    NO_FUNCTIONS,
    CalledFunction,
    Functions,
    function_named,
)
from opensafeintent.calls.headers import NO_HEADERS, Headers, values_of
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.providers import (
    ENDPOINTS,
    LOCAL_WEIGHTS,
    PREFIX,
    REPLAY,
    is_native,
    provider_of,
    resolve_endpoint,
    variables,
)
from opensafeintent.calls.service_tiers import NO_FLEX, FlexPlan
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line, unprintable


class OtherProviders(Protocol):
    """Opens models whose names the native client does not serve. It is passed in, since it belongs
    to a higher layer.
    """

    def check(self, name: str) -> None:
        """Raise the InputError that a name has, without asking for a key."""

    def open(self, name: str, http: HttpSession, left_out: Collection[str] = ()) -> Model:
        """Return the model of a name, without the fields that it does not take."""


def open_models(
    names: Iterable[str],
    http: HttpSession,
    other_providers: OtherProviders | None = None,
    functions: Functions = NO_FUNCTIONS,
    left_out: Mapping[str, Collection[str]] = {},
    flex: FlexPlan = NO_FLEX,
    headers: Headers = NO_HEADERS,
) -> dict[str, Model]:
    """Return the model of each name; nothing is sent yet.

    Args:
        names: the models.
        http: the connections.
        other_providers: opens the names that the native client does not serve.
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
            if (model := _in_process(name, functions, http)) is not None:
                opened[name] = model
            elif other_providers is not None and _is_foreign(name):
                opened[name] = other_providers.open(name, http, left_out.get(name, ()))
            else:
                added = values_of(name, headers.get(name, {}))
                endpoint = msgspec.structs.replace(resolve_endpoint(name), headers=added)
                opened[name] = EndpointModel(
                    name, endpoint, http, left_out.get(name, ()), flex.tier_of(name)
                )
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(*problems)
    return opened


def _in_process(name: str, functions: Functions, http: HttpSession | None = None) -> Model | None:
    """Return the model of a name without a provider; without `http` for its identity alone."""
    check_model_name(name)
    if name.startswith("baseline/"):
        return ScriptedModel(name)
    if name.startswith(PREFIX):
        return CalledFunction(function_named(name, functions), http)
    if name.startswith(REPLAY):
        raise InputError(
            f"{name}: a file of responses is no model; `opensafeintent import` reads it, then"
            " `opensafeintent grade` grades it"
        )
    return None


MOST_NAME = 500
"""Characters of a model's name: every table, figure and folder has it. The longest in use are paths
to weights.
"""


def check_model_name(name: str, where: str = "model") -> None:
    """Refuse a name that could not be written into files, figures and pages.

    Raises:
        InputError: it is too long, or holds such a character; the text begins with `where`, the
            option or file.
    """
    if len(name) > MOST_NAME:
        raise InputError(
            f"{where} {one_line(name, 60)!r}: has {len(name):,} characters; expected at most"
            f" {MOST_NAME}"
        )
    if character := unprintable(name):
        raise InputError(
            f"{where} {one_line(name, 60)!r}: holds {character}; expected a printable name"
        )


def _is_foreign(name: str) -> bool:
    provider, _, model = name.partition("/")
    return bool(provider and model) and not is_native(name)


def model_identity(
    name: str, other_providers: OtherProviders | None = None, functions: Functions = NO_FUNCTIONS
) -> str:
    """Return a model's identity in call keys, without asking for an API key or a server.

    Raises:
        InputError: the name or its file is not usable.
    """
    if (model := _in_process(name, functions)) is not None:
        return model.identity
    if other_providers is not None and _is_foreign(name):
        other_providers.check(name)
    else:
        resolve_endpoint(name, for_calls=False)
    return name


def is_local(name: str) -> bool:
    """Tell whether a model runs on the user's own machines, by its provider's name."""
    provider = provider_of(name)
    return provider in LOCAL_WEIGHTS or (provider in ENDPOINTS and ENDPOINTS[provider].local)


class Served(msgspec.Struct, frozen=True):
    """One line of the `models` command."""

    name: str
    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""
    packages: tuple[str, ...] = ()
    """Those that have to be installed, as pip names them."""

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables that are not set."""
        return tuple(name for name in self.needs if not os.environ.get(name, "").strip())

    @property
    def lacking(self) -> tuple[str, ...]:
        """Variables to set and packages to install before it can be used, a line each."""
        there = {name for name in self.packages if _is_installed(name)}
        absent = " ".join(name for name in self.packages if name not in there)
        return (*self.unset, *([f"pip install {absent}"] if absent else []))


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def served_models() -> list[Served]:
    """List the names of models, and the variables that each needs."""
    in_process = {
        **{f"baseline/{name}": script.summary for name, script in BASELINES.items()},
        "python/MODULE:FUNCTION@VERSION": "your function: messages in, text out",
    }
    lines = [Served(name, about) for name, about in in_process.items()]
    for name, provider in ENDPOINTS.items():
        url, key = variables(name)
        server = "server at " if provider.local else ""
        about = f"{server}{provider.base_url} (or {url})"
        lines.append(Served(f"{name}/MODEL", about, () if provider.local else (key,)))
    about = "any chat-completions server, under a name P of your choice"
    lines.append(Served("openai-api/P/MODEL", about, ("P_BASE_URL", "P_API_KEY")))
    return lines
