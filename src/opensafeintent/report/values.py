"""Values as people see them: numbers in their unit, intervals, and names of models.

A value has its interval beside it, as in `0.56 [0.52, 0.60]`, and an undefined value is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from itertools import takewhile
from math import ceil, log10
from typing import Literal

from opensafeintent.calls.baselines import contenders
from opensafeintent.hostile import terminal_safe
from opensafeintent.metrics import METRICS
from opensafeintent.statistics import Estimate, share_interval

Cell = str | int | float | None


Style = Literal[
    "text", "name", "count", "number", "gap", "interval", "signed", "span", "ranks", "p", "share"
]
"""The values of a column, and their presentation to people:

- `text`; `name`, a text that identifies the row;
- `count`; `number`, with two decimals; `gap`, the size of a difference; `share`, in per cent;
- `p`, a p-value;
- `interval`, an estimate (`value`, `low`, `high`) with its 95 % interval; `signed`, a difference,
  the same with a plus sign;
- `span` of two numbers and `ranks`, both pairs of the lower and the upper end.
"""


TEXTS = ("text", "name")
"""Styles of texts; all others are of numbers."""


class Share(float):
    """A share of responses or prompt-sets: from 0 to 1 in files, and shown in per cent, without a
    decimal.
    """


class FineShare(Share):
    """A share that is known well enough for a decimal."""


_SHARES = frozenset(
    [
        "flip",
        "between",
        "within",
        "paraphrase_effect",
        "safe",
        "safe_flips",
        "helpfulness_equal",
        "harm_severity_equal",
        "safety_shift",
        "sensitivity",
        "specificity",
    ]
)
"""Columns of shares besides those of metrics."""


@cache
def _is_share(name: str) -> bool:
    """Tell whether a column is of a share by its name, as `triplet_safety_without` and the `share`
    of a mode are.
    """
    named = [metric for metric in METRICS.values() if f"{name}_".startswith(f"{metric.name}_")]
    return (
        name in _SHARES
        or f"{name}_".startswith(("share_", "unsafe_rate_"))
        or any(one.is_share for one in named)
    )


def in_unit(name: str, cells: Iterable[Cell], of: object = None) -> tuple[Cell, ...]:
    """Return cells of a column or metric in the unit for people, with the decimals of the estimate
    that they are of, if any.
    """
    if not _is_share(name):
        return tuple(cells)
    unit = FineShare if isinstance(of, Estimate) and _is_fine(of.low, of.high) else Share
    return tuple(unit(cell) if isinstance(cell, float) else cell for cell in cells)


def _is_fine(low: Cell, high: Cell) -> bool:
    """Tell whether an interval of a share is narrower than two points."""
    return isinstance(low, int | float) and isinstance(high, int | float) and high - low < 0.02


DASH = "–"


def text(style: Style, cells: Sequence[Cell]) -> str:
    """Return a column's cells as people see them; see `Style`."""
    match style:
        case "interval" | "signed":
            return interval(*cells, signed=style == "signed")
        case "span":
            return _between(number, *cells)
        case "ranks":
            return _between(str, *cells)
    (value,) = cells
    if style in TEXTS or not isinstance(value, int | float):
        return _plain(value)
    match style:
        case "p":
            return "<0.001" if value < 0.001 else f"{value:.3f}"
        case "share":
            return percent(value)
        case "gap" if isinstance(value, Share):
            return f"{_share(value, unit=False)} points"
        case "number" | "gap":
            return number(value)
        case _:
            return f"{value:,}" if isinstance(value, int) else _plain(value)


def number(value: Cell, *, signed: bool = False, decimals: int = 2) -> str:
    """Return a number with two decimals or more, a dash if it is undefined."""
    if not isinstance(value, int | float):
        return DASH
    if isinstance(value, Share):
        return _share(value, signed=signed)
    rounded = round(value, decimals)
    if not signed or value == 0:
        rounded += 0.0  # no -0.00, but of a difference that is below 0
    return f"{rounded:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def percent(value: float) -> str:
    """Return a share without a decimal, below 1 % with two digits: 89 %, 5 %, 0.25 %."""
    return f"{100 * value + 0.0:{'.2g' if abs(value) < 0.0095 else '.0f'}} %".replace("-", "−")


def _share(value: float, *, signed: bool = False, unit: bool = True, fine: bool = False) -> str:
    """Return a share in per cent, a difference of two in points; `fine`: with a decimal."""
    style = f"{'+' if signed else ''}.{int(fine or isinstance(value, FineShare))}f"
    shown = f"{100 * value + 0.0:{style}}".removesuffix(".0")
    return shown.replace("-", "−") + (" points" if signed else " %") * unit


def interval(value: Cell, low: Cell, high: Cell, *, signed: bool = False) -> str:
    """Return a value with its interval: `0.56 [0.52, 0.60]`; of a share `5 % [1, 16]`, with a
    decimal if the interval is narrower than two points. The end of a difference has as many
    decimals as show its side of 0, at most five, or one of points.
    """
    if not isinstance(low, int | float) or not isinstance(high, int | float) or value is None:
        return number(value, signed=signed)
    small = [end for end in (low, high) if signed and 0 < abs(end) <= 0.005]
    if isinstance(value, Share):
        in_percent = partial(_share, signed=signed, fine=_is_fine(low, high) or bool(small))
        limits = ", ".join(in_percent(end, unit=False) for end in (low, high))
        return f"{in_percent(value)} [{limits}]"
    limits = ", ".join(
        number(end, signed=signed, decimals=min(ceil(-log10(abs(end))), 5) if end in small else 2)
        for end in (low, high)
    )
    return f"{number(value, signed=signed)} [{limits}]"


def share_of(count: int, n: int) -> str:
    """Return the share of `count` of `n` independent answers, with its interval."""
    return interval(Share(count / n), *share_interval(count / n, n))


def _between(text: Callable[[Cell], str], low: Cell, high: Cell) -> str:
    if low is None or high is None:
        return DASH
    first, last = text(low), text(high)
    if first == last:
        return first
    first = first.removesuffix(" %") if last.endswith(" %") else first  # the unit once
    return f"{first}{' to ' if '−' in first + last else '–'}{last}"


def _plain(value: Cell) -> str:
    """Return a cell on one line, without control and formatting characters."""
    if value is None:
        return DASH
    return f"{value:.3f}" if isinstance(value, float) else _one_line(str(value))


@lru_cache(maxsize=4096)
def _one_line(text: str) -> str:
    return terminal_safe(" ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """Return `text` in at most `most` characters: names differ at their ends, so the middle
    goes.
    """
    if len(text) <= most:
        return text
    head = (most - 1) // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def common_beginning(models: Iterable[str]) -> str:
    """Return the common beginning of two names or more, baselines aside (`openai-api/lab/`)."""
    own = [model.split("/")[:-1] for model in contenders(models)]
    alike = takewhile(lambda heads: len({*heads}) == 1, zip(*own, strict=False))
    return "".join(f"{heads[0]}/" for heads in alike) if len(own) > 1 else ""
