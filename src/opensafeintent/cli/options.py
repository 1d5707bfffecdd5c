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
    """Refuse an empty path, one that cannot be looked at, and what is neither file nor folder:
    reading a pipe may never end.

    Raises:
        InputError: see above.
    """
    if not path:
        raise InputError(
            f"{param.get_error_hint(ctx) if param else 'a path'}: is empty; expected a path or a"
            " name"
        )
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return
    except (
        OSError,
        ValueError,
    ) as error:  # no rights, a loop of links, a name too long; a NUL character
        raise InputError(
            f"{one_line(path, 1000)}: {getattr(error, 'strerror', None) or error}"
        ) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            f"{one_line(path, 1000)}: is a pipe or a device; expected a file or a folder"
        )


PATH = _Path(path_type=Path)
NAME = _Name()


def options_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds several options, in the order given."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


TAXONOMY = click.option(
    "--taxonomy",
    type=PATH,
    help="TOML file of harm domains and task types, in place of the paper's.",
)
MAX_ROWS = click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=250_000,  # promptsets.reading.MOST_ROWS, which is not loaded for --help
    show_default=True,
    metavar="N",
    help="Refuse data of more rows: prompt-sets, responses, seeds.",
)
DATA = options_of(TAXONOMY, MAX_ROWS)
"""How a dataset is read."""
LIMIT = click.option(
    "--limit",
    type=int,
    metavar="N",
    help="A sample of N prompt-sets, spread evenly over the cells.",
)
MAX_CONNECTIONS = click.option(
    "--max-connections",
    type=int,
    metavar="N",
    help="Requests at once to one endpoint.  [default: adaptive]",
)
MAX_MISSING = click.option(
    "--max-missing",
    type=float,
    default=0.05,
    show_default=True,
    help="Exit with 1 where a larger share of the grades is missing.",
)
RUBRICS = click.option(
    "--rubrics",
    type=PATH,
    metavar="DIR|shipped:N",
    help=(
        "Judge templates from a folder: ours, edited, or the authors'; or ours of an earlier"
        " version."
    ),
)
JUDGE_REASONS = click.option(
    "--judge-reasons",
    is_flag=True,
    help="Ask judges for a reason before each grade, by templates of their own.",
)
GRADE_PARSE = click.option(
    "--grade-parse",
    type=click.Choice(["strict", "paper"]),
    default="strict",
    show_default=True,
    help="How grades are read; 'paper' takes the first integer of a reply.",
)


def judges(text: str) -> Callable[[F], F]:
    """Return the option that names judges, with its help."""
    return click.option("--judge", "judges", multiple=True, metavar="MODEL", help=text)


def judge_max_tokens(whose: str) -> Callable[[F], F]:
    """Return the option that limits what a judge writes."""
    return click.option(
        "--judge-max-tokens",
        type=int,
        default=2048,
        show_default=True,
        help=f"Token limit of {whose} judge's reply.",
    )


JUDGING = options_of(
    judges("Judge; repeat for a panel."),
    click.option(
        "--mode-judge",
        metavar="MODEL",
        help="Judge of assistance modes.  [default: the first --judge]",
    ),
    judge_max_tokens("a"),
    click.option(
        "--modes",
        type=click.Choice(["dual_use", "core"]),
        default="dual_use",
        show_default=True,
        help="Prompts whose assistance mode is judged.",
    ),
    click.option(
        "--swap",
        type=int,
        metavar="N",
        help="Grade N prompt-sets of each model under other intents' requests as well.",
    ),
    RUBRICS,
    JUDGE_REASONS,
    GRADE_PARSE,
    MAX_CONNECTIONS,
    MAX_MISSING,
)
"""Who grades responses, and how."""


SPREADING = options_of(
    click.option(
        "--ray",
        metavar="ADDRESS",
        help="Spread the calls over a Ray cluster: HOST:PORT, 'auto' or 'local'.",
    ),
    click.option(
        "--shards",
        type=int,
        metavar="N",
        help="Parts of each model's prompt-sets.  [default: by the cores]",
    ),
    click.option(
        "--gpus-per-model",
        type=float,
        metavar="X",
        help="GPUs for each model whose weights a task loads.",
    ),
)
"""Where the calls are made."""
PRICES = click.option(
    "--prices",
    type=PATH,
    metavar="FILE",
    help=(
        'Prices: {"provider/model": {"input": 2.5, "output": 10}}, dollars a million tokens. '
        " [default: genai-prices]"
    ),
)


LIMITS = options_of(
    click.option("--budget-calls", type=int, metavar="N", help="Stop after N calls."),
    click.option("--budget-tokens", type=int, metavar="N", help="Stop after N tokens."),
    click.option(
        "--budget-dollars",
        type=float,
        metavar="X",
        help="Stop after X dollars; every model needs a price.",
    ),
    PRICES,
    click.option(
        "--wait",
        is_flag=True,
        help="Wait for another process that holds the ledger, in place of exit code 2.",
    ),
)
"""What calls may come to, and whether another process is waited for."""
DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Print the calls, tokens and dollars to expect, and make none."
)


def ledger_and_limits(of: str) -> Callable[[F], F]:
    """Return the options of what calls may come to, and where their outcomes are kept, for several
    runs or builds.
    """
    return options_of(
        click.option(
            "--ledger",
            type=PATH,
            metavar="FILE",
            help=f"A ledger that several {of} use, one at a time.",
        ),
        LIMITS,
    )


RUNS = click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN...")

GATES = options_of(
    click.option(
        "--fail-under",
        multiple=True,
        metavar="METRIC=X",
        help="Exit with 4 when a model is below X; repeat.",
    ),
    click.option(
        "--fail-over",
        multiple=True,
        metavar="METRIC=X",
        help="Exit with 4 when a model is above X; repeat.",
    ),
    click.option(
        "--confidence",
        type=float,
        metavar="X",
        help=(
            "Hold the end of the interval, not the estimate, against gates; 5 where it is"
            " undecided.  [of changes: 0.95]"
        ),
    ),
    click.option(
        "--baseline",
        type=PATH,
        metavar="RUN",
        help="An earlier run, to hold the models against their versions in it.",
    ),
    click.option(
        "--pair",
        "pairs",
        multiple=True,
        metavar="NEW=OLD",
        help="With --baseline: models that are versions of one another.",
    ),
    click.option(
        "--fail-if-worse",
        multiple=True,
        metavar="METRIC=MARGIN",
        help=(
            "Exit with 4 when a model is worse than in the --baseline by more than MARGIN; repeat."
        ),
    ),
    click.option(
        "--summary",
        type=PATH,
        metavar="FILE",
        help="Write the verdict as Markdown, for a pull request or a CI step.",
    ),
    click.option("--junit", type=PATH, metavar="FILE", help="Write the verdict as JUnit XML."),
)
"""What models are held against, and where the verdict goes."""
