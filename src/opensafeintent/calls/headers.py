"""Headers that a user adds to requests. Their values come from variables and are stored nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from opensafeintent.calls.providers import is_in_process, is_native, own_headers
from opensafeintent.errors import InputError, nearest
from opensafeintent.secrets import note_secret

Headers = Mapping[str, Mapping[str, str]]
"""By model, the variable of each header."""
NO_HEADERS: Headers = {}

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
"""A token of RFC 9110."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_BY_US = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of the connection, and those of keys: a key has a variable of its own."""


class Header(NamedTuple):
    """One `--header`."""

    model: str
    """"" for the models under test."""
    name: str
    """In lower case: HTTP knows no other difference."""
    variable: str


def parse_header(text: str) -> Header:
    """Read `[MODEL:]NAME=VARIABLE`. The last `=` and the last `:` before it separate the parts: a
    model's name may hold both. The variable counts as a secret from now on.

    Raises:
        InputError: it is of another form, which is not quoted since it may hold a key; or the
            program sets this header.
    """
    place, _, variable = text.rpartition("=")
    model, _, name = place.rpartition(":")
    if not (_NAME.fullmatch(name) and _VARIABLE.fullmatch(variable)):
        raise InputError(
            "--header: one is of another form; expected NAME=VARIABLE or MODEL:NAME=VARIABLE,"
            " with the name of an environment variable, never a value"
        )
    name = name.lower()
    if name in _SET_BY_US or name.startswith("content-"):
        raise InputError(
            f"--header {name}: the program sets {name}; expected another header, and a key in the"
            " variable of its provider"
        )
    note_secret(variable)
    return Header(model, name, variable)


def headers_by_model(
    texts: Iterable[str], tested: Sequence[str], judges: Collection[str], asked: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the headers of the requests to each model, by what a command states.

    Args:
        texts: one `--header` each.
        tested: the models under test, which get the headers without a model's name.
        judges: the models that judge; they get only headers with their own name.
        asked: every model that the command may ask.

    Raises:
        InputError: a header is for a model that is not asked or takes none, or is stated twice.
    """
    headers = sorted(map(parse_header, texts), key=lambda header: bool(header.model))
    stated: set[tuple[str, str]] = set()
    by_model: dict[str, dict[str, str]] = {}
    for model, name, variable in headers:
        shown = f"--header {model and f'{model}:'}{name}"
        if (model, name) in stated:
            raise InputError(f"{shown}: {name} is stated twice; expected it once for a model")
        stated.add((model, name))
        own = {item.model for item in headers if item.name == name}
        remote = [item for item in tested if not is_in_process(item)]
        if model and model not in asked:
            raise InputError(f"{shown}: no request goes to {model!r}; {nearest(model, asked)}")
        if not model and not remote:
            raise InputError(
                f"{shown}: is for models under test, and no request goes to one; for another model,"
                " expected MODEL:NAME=VARIABLE"
            )
        for item in [model] if model else remote:
            if not model and item in judges and item not in own:
                raise InputError(
                    f"{shown}: {item} judges too; expected {item}:{name}=VARIABLE if it is meant"
                )
            _refuse_unable(shown, item, name)
            by_model.setdefault(item, {})[name] = variable
    return by_model


def _refuse_unable(shown: str, model: str, name: str) -> None:
    """Refuse a header of a model that cannot have it.

    Raises:
        InputError: see above.
    """
    if is_in_process(model):
        raise InputError(f"{shown}: {model} answers in this process; expected a model of a server")
    if not is_native(model):
        raise InputError(
            f"{shown}: {model} is asked through Inspect AI, which takes no header here; expected a"
            " model of the built-in client"
        )
    if name in own_headers(model):
        raise InputError(f"{shown}: the program sets {name} for {model}; expected another header")


class Requests(Protocol):
    """What requests depend on that is no part of a call's key, as a manifest has it."""

    @property
    def headers(self) -> Headers:
        """Of each model."""

    @property
    def code(self) -> Mapping[str, str]:
        """By Python function, a hash of its code."""


def unlike_requests(models: Iterable[str], before: Requests, now: Requests) -> dict[str, str]:
    """Return, by model, how its requests differ from those that were made before, with the way out.

    Args:
        models: that were asked before, and are asked now.
        before, now: what their requests depend on.
    """
    lines: dict[str, str] = {}
    for model in sorted(models):
        old, new = (
            ", ".join(f"{name}={variable}" for name, variable in sorted(stated.items())) or "none"
            for stated in (one.headers.get(model, {}) for one in (before, now))
        )
        if old != new:
            way = "no --header" if old == "none" else "the same --header again"
            lines[model] = f"headers of {model}: before {old}, now {new}; give {way}"
        if len({one.code[model] for one in (before, now) if model in one.code}) > 1:
            lines[model] = (
                f"{model}: its code has changed, and its version has not; give another version of"
                " the function"
            )
    return lines


def find_unset(headers: Mapping[str, str]) -> list[str]:
    """Return the headers of a model whose variable is not set."""
    return [name for name, variable in headers.items() if not os.environ.get(variable, "").strip()]


def read_header_values(model: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return a model's headers with their values, for requests.

    Args:
        model: its name.
        headers: the variable of each.

    Raises:
        InputError: a variable is not set, or its value cannot be one of a header.
    """
    values: dict[str, str] = {}
    for name, variable in headers.items():
        note_secret(variable)
        value = os.environ.get(variable, "").strip()
        if not value:
            raise InputError(
                f"{model}: no value for the header {name}; set the variable that --header names"
            )
        if not (value.isascii() and value.isprintable()):
            raise InputError(
                f"{model}: the value for the header {name} holds control characters or letters"
                " beyond ASCII; set its variable again"
            )
        values[name] = value
    return values
