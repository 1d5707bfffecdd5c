"""From a model's name to what answers for it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel
from opensafeintent.calls.client import Model
from opensafeintent.calls.http import ChatModel, HttpSession
from opensafeintent.calls.providers import ENDPOINTS, LOCAL_WEIGHTS, is_native, provider_of, resolve_endpoint, variables
from opensafeintent.calls.replay import ReplayModel
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line, unprintable

__all__ = ["OtherProviders", "Served", "check_model_name", "is_local", "model_identity", "open_models", "served_models"]


class OtherProviders(Protocol):
    """What serves the names that the native client does not: handed in, since it lives above this part."""

    def check(self, name: str) -> None:
        """Raise the InputError that a name has, without asking for a key."""
        ...

    def open(self, name: str, http: HttpSession) -> Model:
        """Return what answers for a name."""
        ...


def open_models(names: Iterable[str], http: HttpSession, others: OtherProviders | None = None) -> dict[str, Model]:
    """Return what answers for each name; nothing is sent yet.

    Raises:
        InputError: names, files or variables are not usable; a line each.
    """
    found: dict[str, Model] = {}
    problems: list[str] = []
    for name in names:
        try:
            found[name] = _open(name, http, others)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(*problems)
    return found


def _open(name: str, http: HttpSession, others: OtherProviders | None) -> Model:
    check_model_name(name)
    if name.startswith("baseline/"):
        return ScriptedModel(name)
    if name.startswith("replay/"):
        return ReplayModel(name)
    if others is not None and _is_foreign(name):
        return others.open(name, http)
    return ChatModel(name, resolve_endpoint(name), http)


def check_model_name(name: str, where: str = "model") -> None:
    """Refuse a name that could not be written into files, figures and pages.

    Raises:
        InputError: it holds such a character; the text names `where` it stands.
    """
    if held := unprintable(name):
        raise InputError(f"{where} {one_line(name, 60)!r}: holds {held}; expected a printable name")


def _is_foreign(name: str) -> bool:
    provider, _, model = name.partition("/")
    return bool(provider and model) and not is_native(name)


def model_identity(name: str, others: OtherProviders | None = None) -> str:
    """Return what a model's calls are keyed by, without asking for a key or a server.

    Raises:
        InputError: the name or its file is not usable.
    """
    check_model_name(name)
    if name.startswith("baseline/"):
        return ScriptedModel(name).identity
    if name.startswith("replay/"):
        return ReplayModel(name).identity
    if others is not None and _is_foreign(name):
        others.check(name)
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
    how: str
    """`in process`, `native`, or which extra serves it."""
    about: str
    needs: tuple[str, ...] = ()
    """Variables without which it cannot be used."""

    @property
    def lacking(self) -> tuple[str, ...]:
        """Those of them that are not set."""
        return tuple(name for name in self.needs if not os.environ.get(name, "").strip())


def served_models() -> list[Served]:
    """List what can be named as a model, and which variables each needs."""
    lines = [Served(f"baseline/{name}", "in process", script.summary) for name, script in BASELINES.items()]
    lines.append(Served("replay/FILE", "in process", "recorded responses: JSONL of id, variant, response"))
    for name, provider in ENDPOINTS.items():
        url, key = variables(name)
        needs = () if provider.local else (key,)
        about = f"{provider.base_url}  (or {url}{f'; {key} if it wants one' if provider.local else ''})"
        lines.append(Served(f"{name}/MODEL", "native", about, needs))
    about = "any chat-completions server; P in capitals, - and . as _"
    lines.append(Served("openai-api/P/MODEL", "native", about, ("P_BASE_URL", "P_API_KEY")))
    return lines
