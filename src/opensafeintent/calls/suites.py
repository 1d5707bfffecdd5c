"""Named lists of models, as data files that a user can copy and edit."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Annotated

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.files import parse_toml, read_text
from opensafeintent.hostile import one_line


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
