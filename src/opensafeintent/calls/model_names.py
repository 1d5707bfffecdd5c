"""What the names of models tell: who makes them and where they run; and suites of models."""

from __future__ import annotations

import os
import re
import tomllib
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated

import msgspec

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.calls.providers import (
    ENDPOINTS,
    LOCAL_WEIGHTS,
    parse_provider,
)
from opensafeintent.errors import InputError, nearest
from opensafeintent.files import parse_toml, read_text
from opensafeintent.hostile import clean_for_display, unprintable

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
    folder = resources.files("opensafeintent").joinpath("data/suites")
    shipped = sorted(
        Path(str(entry)).stem for entry in folder.iterdir() if entry.name.endswith(".toml")
    )
    if name in shipped:
        return _parse(folder.joinpath(f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path = Path(name)
    if path.suffix != ".toml":
        raise InputError(
            f"--suite {clean_for_display(name)}: no such suite, and not the name of a .toml file;"
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
            f"{where} {clean_for_display(name)!r}: has {len(name):,} characters; expected at most"
            f" {MOST_NAME}"
        )
    if character := unprintable(name):
        raise InputError(
            f"{where} {clean_for_display(name)!r}: holds {character}; expected a printable name"
        )


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
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
