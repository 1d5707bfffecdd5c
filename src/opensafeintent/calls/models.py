"""From a model's name to what answers for it; lists of models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from opensafeintent.calls.baselines import BASELINES, ScriptedModel
from opensafeintent.calls.client import Model
from opensafeintent.calls.functions import CalledFunction, function_named
from opensafeintent.calls.http import ChatModel, HttpSession
from opensafeintent.calls.limiter import UNLIMITED, Limiter
from opensafeintent.calls.providers import (
    ENDPOINTS,
    LOCAL_WEIGHTS,
    PREFIX,
    is_native,
    provider_of,
    resolve_endpoint,
    variables,
)
from opensafeintent.calls.recorded import read_recorded
from opensafeintent.calls.records import Attempt, Call, Failure, Replied
from opensafeintent.calls.replies import NotAnAnswer, completion_body, read_reply
from opensafeintent.canonical import sha256_hex
from opensafeintent.errors import InputError, nearest
from opensafeintent.files import parse_toml, read_text
from opensafeintent.hostile import one_line, unprintable


class OtherProviders(Protocol):
    """What serves the names that the native client does not: handed in, since it lives above this
    part.
    """

    def check(self, name: str) -> None:
        """Raise the InputError that a name has, without asking for a key."""
        ...

    def open(self, name: str, http: HttpSession) -> Model:
        """Return what answers for a name."""
        ...


def open_models(
    names: Iterable[str], http: HttpSession, others: OtherProviders | None = None
) -> dict[str, Model]:
    """Return what answers for each name; nothing is sent yet.

    Raises:
        InputError: names, files or variables are not usable; a line each.
    """
    opened: dict[str, Model] = {}
    problems: list[str] = []
    for name in names:
        try:
            if (model := _in_process(name, http)) is not None:
                opened[name] = model
            elif others is not None and _is_foreign(name):
                opened[name] = others.open(name, http)
            else:
                opened[name] = ChatModel(name, resolve_endpoint(name), http)
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(*problems)
    return opened


def _in_process(name: str, http: HttpSession | None = None) -> Model | None:
    """Return what answers for a name without a provider; without `http` for its identity alone."""
    check_model_name(name)
    if name.startswith("baseline/"):
        return ScriptedModel(name)
    if name.startswith(PREFIX):
        return CalledFunction(function_named(name), http)
    return ReplayModel(name) if name.startswith("replay/") else None


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
    if (model := _in_process(name)) is not None:
        return model.identity
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
    in_process = {
        **{f"baseline/{name}": script.summary for name, script in BASELINES.items()},
        "replay/FILE": "recorded responses: JSONL of id, variant, response",
        "python/MODULE:FUNCTION@VERSION": "a function of yours: takes messages, returns text",
    }
    lines = [Served(name, "in process", about) for name, about in in_process.items()]
    for name, provider in ENDPOINTS.items():
        url, key = variables(name)
        optional = f"; {key} if it wants one" if provider.local else ""
        about = f"{provider.base_url}  (or {url}{optional})"
        lines.append(Served(f"{name}/MODEL", "native", about, () if provider.local else (key,)))
    about = "any chat-completions server; P in capitals, - and . as _"
    lines.append(Served("openai-api/P/MODEL", "native", about, ("P_BASE_URL", "P_API_KEY")))
    return lines


# Recorded responses as a model
# ------------------------------------------------------------------------------


class ReplayModel:
    """Answers with the response that a file holds for a prompt-set, variant and epoch; it cannot be
    asked anything else.
    """

    notices: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        self.limiter = Limiter(UNLIMITED)
        path = Path(name.removeprefix("replay/"))
        if not path.is_file():
            raise InputError(f"{name}: no such file of responses: {path}")
        self.identity = f"replay/{path.stem}@{sha256_hex(path.read_bytes())[:12]}"
        self._path = path
        self._responses = {
            (recorded.set_id, recorded.variant, recorded.epoch): recorded
            for recorded in read_recorded(path)
            if recorded.response is not None
        }

    async def attempt(self, call: Call) -> Attempt:
        """Return the recorded response, as if the model had just written it."""
        subject = call.subject
        if call.purpose != "generate" or subject is None:
            return Failure(kind="not_recorded", error=f"{self._path} holds responses only")
        recorded = self._responses.get((subject.set_id, subject.variant, subject.epoch))
        if recorded is None:
            asked = f"{subject.set_id}, {subject.variant}, epoch {subject.epoch}"
            line = f"{self._path} holds no response for {asked}"
            return Failure(kind="not_recorded", error=line)
        body = completion_body(recorded.response or "", self.identity, recorded.stop_reason)
        try:
            return Replied(read_reply(body), body)
        except NotAnAnswer as wrong:
            line = f"{self._path}: {subject.set_id}, {subject.variant}: {wrong}"
            return Failure(kind=wrong.kind, error=line, replied=True, body=body)


# Named lists of models, as data files that a user can copy and edit
# --------------------------------------------------


class SuiteModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model of a suite."""

    model: str
    """The name that it is called by."""
    paper: str = ""
    """What a publication calls it."""


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
    folder = resources.files("opensafeintent").joinpath("data/suites")
    shipped = sorted(
        Path(str(entry)).stem for entry in folder.iterdir() if entry.name.endswith(".toml")
    )
    if name in shipped:
        return _parse(folder.joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path = Path(name)
    if path.suffix != ".toml":
        raise InputError(
            f"--suite {one_line(name, 100)}: no such suite, and not the name of a .toml file;"
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
