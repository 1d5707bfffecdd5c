"""From a model's name to what answers for it."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel
from opensafeintent.calls.client import Model
from opensafeintent.calls.http import ChatModel, HttpSession
from opensafeintent.calls.providers import ENDPOINTS, resolve_endpoint, variables
from opensafeintent.calls.replay import ReplayModel

__all__ = ["Served", "is_local", "model_identity", "open_models", "served_models"]


def open_models(names: Iterable[str], http: HttpSession) -> dict[str, Model]:
    """Return what answers for each name; nothing is sent yet.

    Raises:
        InputError: a name, a file or a variable is not usable.
    """
    return {name: _open(name, http) for name in names}


def _open(name: str, http: HttpSession) -> Model:
    if name.startswith("baseline/"):
        return ScriptedModel(name)
    if name.startswith("replay/"):
        return ReplayModel(name)
    return ChatModel(name, resolve_endpoint(name), http)


def model_identity(name: str) -> str:
    """Return what a model's calls are keyed by, without asking for a key or a server.

    Raises:
        InputError: the name or its file is not usable.
    """
    if name.startswith("baseline/"):
        return ScriptedModel(name).identity
    if name.startswith("replay/"):
        return ReplayModel(name).identity
    resolve_endpoint(name, for_calls=False)
    return name


def is_local(name: str) -> bool:
    """Tell whether a model runs on the user's own machines, by its provider's name."""
    provider = name.removeprefix("openai-api/").partition("/")[0]
    return provider == "hf" or (provider in ENDPOINTS and ENDPOINTS[provider].local)


class Served(msgspec.Struct, frozen=True):
    """One line of the `models` command."""

    name: str
    how: str
    """`in process` or `native`."""
    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""
    set_now: bool = True
    """Whether they are set."""


def served_models() -> list[Served]:
    """List what can be named as a model, and which variables each needs."""
    lines = [Served(f"baseline/{name}", "in process", script.summary) for name, script in BASELINES.items()]
    lines.append(Served("replay/FILE", "in process", "recorded responses: JSONL of id, variant, response"))
    for name, provider in ENDPOINTS.items():
        url, key = variables(name)
        needs = () if provider.local else (key,)
        about = f"{provider.base_url}  (or {url}{f'; {key} if it wants one' if provider.local else ''})"
        lines.append(Served(f"{name}/MODEL", "native", about, needs, all(map(os.environ.get, needs))))
    about = "any chat-completions server; P in capitals, - and . as _"
    lines.append(Served("openai-api/P/MODEL", "native", about, ("P_BASE_URL", "P_API_KEY"), set_now=False))
    return lines
