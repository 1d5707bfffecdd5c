"""Options that several commands share."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line

__all__ = ["MAX_ROWS", "NAME", "PATH", "PRICES", "SPREADING", "TAXONOMY", "options_of"]

F = TypeVar("F", bound=Callable[..., Any])


class _Path(click.Path):
    """A path that can be one of a file or a folder, there already or not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what cannot be, whichever command it is for."""
        _check_path(os.fspath(value), param, ctx)
        return super().convert(value, param, ctx)


class _Name(click.types.StringParamType):
    """A name, or a path in its place."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a path that cannot be one of a file or a folder."""
        if not value.startswith("hf:"):
            _check_path(value, param, ctx)
        return super().convert(value, param, ctx)


def _check_path(path: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
    """Refuse an empty path, one that cannot be looked at, and what is neither file nor folder: reading a pipe may never end.

    Raises:
        InputError: see above.
    """
    if not path:
        raise InputError(f"{param.get_error_hint(ctx) if param else 'a path'}: is empty; expected a path or a name")
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # no rights, a loop of links, a name too long; a NUL character
        raise InputError(f"{one_line(path, 1000)}: {getattr(error, 'strerror', None) or error}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{one_line(path, 1000)}: is a pipe or a device; expected a file or a folder")


PATH = _Path(path_type=Path)
NAME = _Name()


def options_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds several options, in the order given."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


TAXONOMY = click.option("--taxonomy", type=PATH, help="TOML file of harm domains and task types, in place of the paper's.")
MAX_ROWS = click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=250_000,  # promptsets.reading.MOST_ROWS, which is not loaded for --help
    show_default=True,
    metavar="N",
    help="Refuse data of more rows: prompt-sets, responses, seeds.",
)
PRICES = click.option(
    "--prices",
    type=PATH,
    metavar="FILE",
    help='Show what is spent, by a JSON file: {"provider/model": {"input": 2.5, "output": 10}}, dollars a million tokens.',
)
SPREADING = options_of(
    click.option("--ray", metavar="ADDRESS", help="Spread the calls over a Ray cluster: HOST:PORT, 'auto' or 'local'."),
    click.option("--shards", type=int, metavar="N", help="Parts to spread the work in.  [default: by the cluster's size]"),
)
