"""Models by name: opening them, who makes them, and suites of them."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel, is_baseline
from opensafeintent.calls.client import Model
from opensafeintent.calls.headers import NO_HEADERS, Headers, read_header_values
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.providers import (
    ENDPOINTS,
    LOCAL_WEIGHTS,
    PREFIX,
    REPLAY,
    is_native,
    parse_provider,
    resolve_endpoint,
    variables,
)
from opensafeintent.calls.python_models import (
    NO_FUNCTIONS,
    CalledFunction,
    Functions,
    function_named,
)
from opensafeintent.calls.service_tiers import NO_FLEX, FlexPlan
from opensafeintent.errors import InputError, nearest
from opensafeintent.files import parse_toml, read_text
from opensafeintent.hostile import show_name, unprintable

_VENDOR = re.compile(r"^(?:[a-z]+\.)+(?=[a-z])")
"""`anthropic.` or `us.anthropic.`, as some providers put before a model's name."""


def same_maker(model: str, other: str) -> bool:
    """Tell whether two models are one, or of one maker, according to their names. Baselines have no
    maker.
    """
    if is_baseline(model) or is_baseline(other):
        return False
    family = guess_family(model)
    return _strip_provider(model) == _strip_provider(other) or (
        family is not None and family == guess_family(other)
    )


@lru_cache(maxsize=1)
def _makers() -> re.Pattern[str]:
    text = resources.files("opensafeintent").joinpath("data/families.toml").read_text("utf-8")
    families: dict[str, list[str]] = tomllib.loads(text)["families"]
    return re.compile(
        "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in families.items()),
        re.IGNORECASE,
    )


def guess_family(model: str) -> str | None:
    """Return who made a model, as far as its name tells; the last part of the name goes before the
    provider's.
    """
    for part in (model.rpartition("/")[2], model):
        if match := _makers().search(part):
            return match.lastgroup
    return None


def _strip_provider(model: str) -> str:
    """Return a model's name without its provider: the same for `openai/gpt-5.4`,
    `openrouter/openai/gpt-5.4` and `GPT-5.4`.
    """
    name = _VENDOR.sub("", model.rpartition("/")[2].strip().lower())
    return re.sub(r"[\s._:-]+", "-", name)


class SuiteModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model of a suite."""

    model: str
    """The name that it is called by."""
    paper: str = ""
    """Its name in a publication."""


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models that are evaluated together."""

    name: str
    models: Annotated[tuple[SuiteModel, ...], msgspec.Meta(min_length=1)]
    about: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names, in the suite's order."""
        return tuple(item.model for item in self.models)


def load_suite(name: str) -> Suite:
    """Read a suite: one of ours by its name (`paper`), or a TOML file of the same form.

    Raises:
        InputError: there is no such suite, or the file is none.
    """
    folder = importlib.resources.files("opensafeintent").joinpath("data/suites")
    shipped = sorted(
        Path(str(entry)).stem for entry in folder.iterdir() if entry.name.endswith(".toml")
    )
    if name in shipped:
        return _parse(folder.joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path = Path(name)
    if path.suffix != ".toml":
        raise InputError(
            f"--suite {show_name(name)}: no such suite, and not the name of a .toml file;"
            f" {nearest(name, shipped)}"
        )
    return _parse(read_text(path), str(path))


def _parse(text: str, location: str) -> Suite:
    suite = parse_toml(
        text, Suite, location, 'a suite (name = "…" and [[models]] with model = "…")'
    )
    twice = sorted({name for name in suite.names if suite.names.count(name) > 1})
    if twice:
        raise InputError(f"{location}: {twice[0]} is there twice")
    return suite


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
            if (model := _open_in_process(name, functions, http)) is not None:
                opened[name] = model
            elif other_providers is not None and _is_foreign(name):
                opened[name] = other_providers.open(name, http, left_out.get(name, ()))
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


def _open_in_process(
    name: str, functions: Functions, http: HttpSession | None = None
) -> Model | None:
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
            f"{where} {show_name(name)!r}: has {len(name):,} characters; expected at most"
            f" {MOST_NAME}"
        )
    if character := unprintable(name):
        raise InputError(
            f"{where} {show_name(name)!r}: holds {character}; expected a printable name"
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
    if (model := _open_in_process(name, functions)) is not None:
        return model.identity
    if other_providers is not None and _is_foreign(name):
        other_providers.check(name)
    else:
        resolve_endpoint(name, for_calls=False)
    return name


def is_local(name: str) -> bool:
    """Tell whether a model runs on the user's own machines, by its provider's name."""
    provider = parse_provider(name)
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
