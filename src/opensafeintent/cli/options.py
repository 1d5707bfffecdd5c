"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["MAX_ROWS", "PATH", "PRICES", "SPREADING", "TAXONOMY", "options_of"]

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


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
    default=250_000,  # promptsets.limits.MOST_ROWS, which is not loaded for --help
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
