"""Values as people see them: numbers in their unit, intervals, and names of models.

A value has its interval beside it, as in `0.56 [0.52, 0.60]`, and an undefined value is a dash. A
share is from 0 to 1 in files, and shown in per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import takewhile
from math import ceil, log10
from typing import Literal, NamedTuple

from opensafeintent.calls.baselines import contenders
from opensafeintent.hostile import terminal_safe
from opensafeintent.metrics import Unit
from opensafeintent.statistics import Estimate, share_interval

Scalar = str | int | float | None

Style = Literal[
    "text",
    "name",
    "count",
    "number",
    "gap",
    "difference",
    "interval",
    "signed",
    "span",
    "signed_span",
    "ranks",
    "p",
    "share",
]
"""The values of a column, and their presentation to people:

- `text`; `name`, a text that identifies the row;
- `count`; `number`, with two decimals; `gap`, the size of a difference; `difference`, with
  a plus sign; `share`, in per cent;
- `p`, a p-value;
- `interval`, an estimate (`value`, `low`, `high`) with its 95 % interval; `signed`, a difference,
  the same with a plus sign;
- `span` of two numbers, `signed_span` of two differences and `ranks`, all pairs of the lower and
  the upper end.
"""

TEXTS = ("text", "name")
"""Styles of texts; all others are of numbers."""

DASH = "–"


class Cell(NamedTuple):
    """A cell of a table."""

    fields: tuple[Scalar, ...]
    """Its values in files for programs."""
    unit: Unit = "score"
    fine: bool = False
    """Whether a share is known well enough for a decimal."""


def is_fine(low: Scalar, high: Scalar) -> bool:
    """Tell whether an interval of a share is narrower than two points."""
    return isinstance(low, int | float) and isinstance(high, int | float) and high - low < 0.02


def text(style: Style, cell: Cell) -> str:
    """Return a cell as people see it; see `Style`."""
    value, limits = text_and_limits(style, cell)
    return f"{value} {limits}" if limits else value


def text_and_limits(style: Style, cell: Cell) -> tuple[str, str]:
    """Return a cell as people see it, the limits of its interval apart, in brackets; an empty text
    if it has none.
    """
    match style:
        case "interval" | "signed":
            value, low, high = cell.fields
            return _value_and_limits(value, low, high, cell.unit, signed=style == "signed")
        case "span" | "signed_span":
            low, high = cell.fields
            signed = style == "signed_span"
            shown = partial(number, unit=cell.unit, signed=signed, fine=cell.fine)
            return _between(shown, low, high), ""
        case "ranks":
            low, high = cell.fields
            return _between(str, low, high), ""
        case _:
            (value,) = cell.fields
            return _single(style, value, cell), ""


def _single(style: Style, value: Scalar, cell: Cell) -> str:
    if style in TEXTS or not isinstance(value, int | float):
        return _plain(value)
    match style:
        case "p":
            return "<0.001" if value < 0.001 else f"{value:.3f}"
        case "share":
            return percent(value)
        case "gap" if cell.unit == "share":
            return f"{_share(value, unit=False, fine=cell.fine)} points"
        case "difference":
            return number(value, cell.unit, signed=True, fine=cell.fine)
        case "number" | "gap":
            return number(value, cell.unit, fine=cell.fine)
        case _:
            return f"{value:,}" if isinstance(value, int) else _plain(value)


def number(
    value: Scalar,
    unit: Unit = "score",
    *,
    signed: bool = False,
    decimals: int = 2,
    fine: bool = False,
) -> str:
    """Return a number with two decimals or more, a share in per cent, a dash if it is undefined.

    Args:
        value: the number.
        unit: of the number.
        signed: whether it is a difference.
        decimals: of a score.
        fine: whether a share has a decimal.
    """
    if not isinstance(value, int | float):
        return DASH
    if unit == "share":
        return _share(value, signed=signed, fine=fine)
    rounded = round(value, decimals)
    if not signed or value == 0:
        rounded += 0.0  # no -0.00, but of a difference that is below 0
    return f"{rounded:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def percent(value: float) -> str:
    """Return a share without a decimal, below 1 % with two digits: 89 %, 5 %, 0.25 %."""
    return f"{100 * value + 0.0:{'.2g' if abs(value) < 0.0095 else '.0f'}} %".replace("-", "−")


def _share(value: float, *, signed: bool = False, unit: bool = True, fine: bool = False) -> str:
    """Return a share in per cent, a difference of two in points; `fine`: with a decimal."""
    shown = f"{100 * value + 0.0:{'+' if signed else ''}.{int(fine)}f}".removesuffix(".0")
    shown = shown.replace("-", "−")
    if not unit:
        return shown
    return f"{shown} points" if signed else f"{shown} %"


def interval(
    value: Scalar, low: Scalar, high: Scalar, unit: Unit = "score", *, signed: bool = False
) -> str:
    """Return a value with its interval: `0.56 [0.52, 0.60]`; of a share `5 % [1, 16]`, with a
    decimal if the interval is narrower than two points. The end of a difference has as many
    decimals as show its side of 0, at most five, or one of points.
    """
    shown, limits = _value_and_limits(value, low, high, unit, signed=signed)
    return f"{shown} {limits}" if limits else shown


def _value_and_limits(
    value: Scalar, low: Scalar, high: Scalar, unit: Unit, *, signed: bool
) -> tuple[str, str]:
    if not isinstance(low, int | float) or not isinstance(high, int | float) or value is None:
        return number(value, unit, signed=signed), ""
    near_zero = [limit for limit in (low, high) if signed and 0 < abs(limit) <= 0.005]
    if unit == "share":
        fine = is_fine(low, high) or bool(near_zero)
        limits = ", ".join(
            _share(limit, signed=signed, unit=False, fine=fine) for limit in (low, high)
        )
        return number(value, unit, signed=signed, fine=fine), f"[{limits}]"
    limits = ", ".join(
        number(
            limit,
            signed=signed,
            decimals=min(ceil(-log10(abs(limit))), 5) if limit in near_zero else 2,
        )
        for limit in (low, high)
    )
    return number(value, signed=signed), f"[{limits}]"


def estimate_text(estimate: Estimate, unit: Unit = "score") -> str:
    """Return an estimate with its interval; see `interval`."""
    return interval(estimate.value, estimate.low, estimate.high, unit)


def estimate_value(estimate: Estimate, unit: Unit = "score") -> str:
    """Return the value of `estimate_text` alone."""
    value, _ = _value_and_limits(estimate.value, estimate.low, estimate.high, unit, signed=False)
    return value


def share_of(count: int, n: int) -> str:
    """Return the share of `count` of `n` independent answers, with its interval."""
    return interval(count / n, *share_interval(count / n, n), "share")


def _between(text: Callable[[Scalar], str], low: Scalar, high: Scalar) -> str:
    if low is None or high is None:
        return DASH
    first, last = text(low), text(high)
    if first == last:
        return first
    for unit in (" %", " points"):
        first = first.removesuffix(unit) if last.endswith(unit) else first  # the unit once
    signed = {"−", "+"} & {*first, *last}
    return f"{first}{' to ' if signed else '–'}{last}"


def _plain(value: Scalar) -> str:
    """Return a value on one line, without control and formatting characters."""
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
    folders = [model.split("/")[:-1] for model in contenders(models)]
    alike = takewhile(lambda heads: len({*heads}) == 1, zip(*folders, strict=False))
    return "".join(f"{heads[0]}/" for heads in alike) if len(folders) > 1 else ""
