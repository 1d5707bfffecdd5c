"""Tables as columns and cells, and the text of a value: numbers, shares, intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from math import ceil, inf, log10
from typing import Generic, Literal, Never, TypeVar

import msgspec

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.hostile import terminal_safe
from opensafeintent.numbers.metrics import Unit
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
    "odds",
]
"""The values of a column, and their presentation to people:

- `text`; `name`, a text that identifies the row;
- `count`; `number`, with two decimals; `gap`, the size of a difference; `difference`, with
  a plus sign; `share`, in per cent;
- `p`, a p-value; `odds`, a factor of the odds;
- `interval`, an estimate (`value`, `low`, `high`) with its 95 % interval; `signed`, a difference,
  the same with a plus sign;
- `span` of two numbers, `signed_span` of two differences and `ranks`, all pairs of the lower and
  the upper end.
"""

TEXTS = ("text", "name")
"""Styles of texts; all others are of numbers."""

DASH = "–"


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A cell of a table: its values, and what its text depends on."""

    fields: tuple[Scalar, ...]
    """The values in files: one, or several if the style has several columns (`Column.fields`)."""
    unit: Unit = "score"
    with_decimal: bool = False
    """Whether a share is shown with a decimal (`needs_decimal`)."""


def needs_decimal(low: Scalar, high: Scalar) -> bool:
    """Tell whether a share is shown with a decimal: if its interval is narrower than two points."""
    return isinstance(low, int | float) and isinstance(high, int | float) and high - low < 0.02


def format_cell(style: Style, cell: Cell) -> str:
    """Return the text of a cell for people, by its column's style (`Style`)."""
    value, limits = format_value_and_limits(style, cell)
    return f"{value} {limits}" if limits else value


def format_value_and_limits(style: Style, cell: Cell) -> tuple[str, str]:
    """Return the text of a cell's value, and that of the limits of its interval in brackets: an
    empty text without an interval.
    """
    match style:
        case "interval" | "signed":
            value, low, high = cell.fields
            return _format_interval_parts(value, low, high, cell.unit, signed=style == "signed")
        case "span" | "signed_span":
            low, high = cell.fields
            signed = style == "signed_span"
            shown = partial(
                format_number, unit=cell.unit, signed=signed, with_decimal=cell.with_decimal
            )
            return _format_between(shown, low, high), ""
        case "ranks":
            low, high = cell.fields
            return _format_between(str, low, high), ""
        case _:
            (value,) = cell.fields
            return _format_single(style, value, cell), ""


def _format_single(style: Style, value: Scalar, cell: Cell) -> str:
    if style in TEXTS or not isinstance(value, int | float):
        return _format_plain(value)
    match style:
        case "p":
            return "<0.001" if value < 0.001 else f"{value:.3f}"
        case "share":
            return format_percent(value)
        case "odds":
            return "any" if value == inf else f"{value:g} ×"
        case "gap" if cell.unit == "share":
            return f"{_format_share(value, unit=False, with_decimal=cell.with_decimal)} points"
        case "difference":
            return format_number(value, cell.unit, signed=True, with_decimal=cell.with_decimal)
        case "gap":
            return format_number(value)
        case "number":
            return format_number(value, cell.unit, with_decimal=cell.with_decimal)
        case _:
            return f"{value:,}" if isinstance(value, int) else _format_plain(value)


def format_number(
    value: Scalar,
    unit: Unit = "score",
    *,
    signed: bool = False,
    decimals: int = 2,
    with_decimal: bool = False,
) -> str:
    """Return a number with two decimals or more, a share in per cent, a dash if it is undefined.

    Args:
        value: the number.
        unit: of the number.
        signed: whether it is a difference of two such numbers.
        decimals: of a score.
        with_decimal: whether a share is shown with a decimal.
    """
    if not isinstance(value, int | float):
        return DASH
    if unit == "share":
        return _format_share(value, signed=signed, with_decimal=with_decimal)
    rounded, signed = round(value, decimals), signed or unit == "difference"
    if not signed or value == 0:
        rounded += 0.0  # no -0.00, but of a difference that is below 0
    return f"{rounded:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def format_percent(value: float) -> str:
    """Return a share without a decimal, below 1 % with two digits: 89 %, 5 %, 0.25 %."""
    return f"{100 * value + 0.0:{'.2g' if abs(value) < 0.0095 else '.0f'}} %".replace("-", "−")


def _format_share(
    value: float, *, signed: bool = False, unit: bool = True, with_decimal: bool = False
) -> str:
    """Return a share in per cent, a difference of two in points."""
    shown = f"{100 * value + 0.0:{'+' if signed else ''}.{int(with_decimal)}f}".removesuffix(".0")
    shown = shown.replace("-", "−")
    if not unit:
        return shown
    return f"{shown} points" if signed else f"{shown} %"


def format_interval(
    value: Scalar, low: Scalar, high: Scalar, unit: Unit = "score", *, signed: bool = False
) -> str:
    """Return a value with its interval: `0.56 [0.52, 0.60]`; of a share `5 % [1, 16]`, with a
    decimal if the interval is narrower than two points. The end of a difference has as many
    decimals as show its side of 0, at most five, or one of points.
    """
    shown, limits = _format_interval_parts(value, low, high, unit, signed=signed)
    return f"{shown} {limits}" if limits else shown


def _format_interval_parts(
    value: Scalar, low: Scalar, high: Scalar, unit: Unit, *, signed: bool
) -> tuple[str, str]:
    signed = signed or unit == "difference"
    if not isinstance(low, int | float) or not isinstance(high, int | float) or value is None:
        return format_number(value, unit, signed=signed), ""
    near_zero = [limit for limit in (low, high) if signed and 0 < abs(limit) <= 0.005]
    if unit == "share":
        with_decimal = needs_decimal(low, high) or bool(near_zero)
        limits = ", ".join(
            _format_share(limit, signed=signed, unit=False, with_decimal=with_decimal)
            for limit in (low, high)
        )
        return format_number(value, unit, signed=signed, with_decimal=with_decimal), f"[{limits}]"
    limits = ", ".join(
        format_number(
            limit,
            signed=signed,
            decimals=min(ceil(-log10(abs(limit))), 5) if limit in near_zero else 2,
        )
        for limit in (low, high)
    )
    return format_number(value, signed=signed), f"[{limits}]"


def format_estimate(estimate: Estimate, unit: Unit = "score", *, signed: bool = False) -> str:
    """Return an estimate with its interval; see `format_interval`."""
    return format_interval(estimate.value, estimate.low, estimate.high, unit, signed=signed)


def format_estimate_value(estimate: Estimate, unit: Unit) -> str:
    """Return the value of `format_estimate` alone."""
    value, _ = _format_interval_parts(
        estimate.value, estimate.low, estimate.high, unit, signed=False
    )
    return value


def format_share_with_interval(count: int, n: int) -> str:
    """Return the share of `count` of `n` independent answers, with its interval."""
    return format_interval(count / n, *share_interval(count / n, n), "share")


def _format_between(text: Callable[[Scalar], str], low: Scalar, high: Scalar) -> str:
    if low is None or high is None:
        return DASH
    first, last = text(low), text(high)
    if first == last:
        return first
    for unit in (" %", " points"):
        first = first.removesuffix(unit) if last.endswith(unit) else first  # the unit once
    signed = {"−", "+"} & {*first, *last}
    return f"{first}{' to ' if signed else '–'}{last}"


def _format_plain(value: Scalar) -> str:
    """Return a value on one line, without control and formatting characters."""
    if value is None:
        return DASH
    return f"{value:.3f}" if isinstance(value, float) else _one_line(str(value))


@lru_cache(maxsize=4096)
def _one_line(text: str) -> str:
    return terminal_safe(" ".join(text.split()))


def shorten(text: str, most: int) -> str:
    """Return `text` in at most `most` characters, its middle cut: names differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1) // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def find_common_prefix(models: Iterable[str]) -> str:
    """Return the folders with which all names of models under test begin (`openai-api/lab/`); an
    empty text for fewer than two names.
    """
    folders = [model.split("/")[:-1] for model in drop_baselines(models)]
    alike = takewhile(lambda heads: len({*heads}) == 1, zip(*folders, strict=False))
    return "".join(f"{heads[0]}/" for heads in alike) if len(folders) > 1 else ""


# fmt: off
Section = Literal[
    "headline", "utility", "comparisons", "precision", "strata", "modes", "stability", "repeats",
    "probe", "stated_policy", "follow_ups", "judges", "judge_shift", "swap", "judge_check",
    "judge_labels", "correction", "coverage", "gates", "method",
]
# fmt: on
"""Sections of the page of a run, in its order."""

EstimatePart = Literal["n", "method", "bounds", "missing_ci", "models", "pooled"]
"""Fields of an estimate besides its value and interval."""

Value = Scalar | tuple[Scalar, ...] | Estimate
"""A scalar, the ends of a span, or an estimate; None is undefined."""

Row_contra = TypeVar("Row_contra", contravariant=True)
Row = TypeVar("Row")


class Column(msgspec.Struct, Generic[Row_contra], frozen=True):
    """A column of a table."""

    name: str
    """In files; an interval or a span has columns with suffixes (`fields`)."""
    get_value: Callable[[Row_contra], Value]
    """Returns the value of a row."""
    heading: str | None = None
    """The heading for people; None if the column is in files alone."""
    style: Style = "text"
    unit: Unit | Callable[[Row_contra], Unit] = "score"
    """The unit of every value, or a function that returns that of a row."""
    order: int = 0
    """People are shown columns of a lower order first."""
    estimate: Callable[[Row_contra], Estimate | None] | None = None
    """Returns the estimate whose part the value is: its interval decides on decimals."""
    most_items: int | None = None
    """How many of the items between semicolons a table for a document shows; None for all."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its columns in files."""
        match self.style:
            case "interval" | "signed":
                return self.name, f"{self.name}_low", f"{self.name}_high"
            case "span" | "signed_span" | "ranks":
                return f"{self.name}_low", f"{self.name}_high"
            case _:
                return (self.name,)

    def cell(self, row: Row_contra) -> Cell:
        """Return the cell of a row."""
        value = self.get_value(row)
        unit = self.unit if isinstance(self.unit, str) else self.unit(row)
        estimate = value if self.estimate is None else self.estimate(row)
        with_decimal = (
            unit == "share"
            and isinstance(estimate, Estimate)
            and needs_decimal(estimate.low, estimate.high)
        )
        return Cell(self._scalars(value), unit, with_decimal)

    def _scalars(self, value: Value) -> tuple[Scalar, ...]:
        if value is None:
            return (None,) * len(self.fields)
        if isinstance(value, Estimate):
            return value.value, value.low, value.high
        return value if isinstance(value, tuple) else (value,)


Columns = Column[Row] | Sequence[Column[Row]]
"""A column, or several together."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A named table."""

    name: str
    """Of its files."""
    title: str
    section: Section | None = None
    """Of the page; None if it is on none."""
    columns: tuple[Column[Never], ...]
    rows: Sequence[Sequence[Cell]]
    """Each with a cell for each column."""
    notes: tuple[str, ...] = ()
    """Notes for a reader, a line each."""
    bold: frozenset[int] = frozenset()
    """Indices of the rows that the terminal prints in bold."""
    confidence: float = 0.95
    """Confidence of the intervals in brackets."""

    @classmethod
    def of(
        cls,
        columns: Iterable[Columns[Row]],
        rows: Iterable[Row],
        *,
        name: str,
        title: str,
        section: Section | None = None,
        notes: tuple[str, ...] = (),
        bold: frozenset[int] = frozenset(),
        confidence: float = 0.95,
    ) -> Table:
        """Return the table of some records, a row for each of them."""
        single = [
            column for item in columns for column in ([item] if isinstance(item, Column) else item)
        ]
        return cls(
            name=name,
            title=title,
            section=section,
            columns=tuple(single),
            rows=[tuple(column.cell(row) for column in single) for row in rows],
            notes=notes,
            bold=bold,
            confidence=confidence,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the columns in files."""
        return tuple(field for column in self.columns for field in column.fields)

    @property
    def has_values(self) -> bool:
        """Whether there is a row, and a defined estimate in it if any column has estimates."""
        places = [
            at for at, column in enumerate(self.columns) if column.style in ("interval", "signed")
        ]
        return any(
            not places or any(row[at].fields[0] is not None for at in places) for row in self.rows
        )

    @property
    def shown(self) -> list[tuple[int, Column[Never]]]:
        """The columns for people, with their index, in the order of display."""
        headed = (
            (index, column)
            for index, column in enumerate(self.columns)
            if column.heading is not None
        )
        return sorted(headed, key=lambda item: item[1].order)

    def hide_columns(self, *names: str) -> Table:
        """Return the table in which people are not shown some columns."""
        columns = tuple(
            msgspec.structs.replace(column, heading=None) if column.name in names else column
            for column in self.columns
        )
        return msgspec.structs.replace(self, columns=columns)

    def only(self, keep: Callable[[Mapping[str, Scalar]], bool]) -> Table:
        """Return the table with those of its rows that `keep` selects by their fields."""
        rows = [row for row, record in zip(self.rows, self.records(), strict=True) if keep(record)]
        return msgspec.structs.replace(self, rows=rows)

    def records(self) -> list[dict[str, Scalar]]:
        """Return the rows by field."""
        fields = self.fields
        return [
            dict(zip(fields, (value for cell in row for value in cell.fields), strict=True))
            for row in self.rows
        ]


_PART_STYLES: dict[EstimatePart, Style] = {
    "n": "count",
    "bounds": "span",
    "missing_ci": "span",
    "models": "count",
    "pooled": "number",
}


def make_estimate_columns(
    name: str,
    of: Callable[[Row], Estimate | None],
    heading: str | None,
    *,
    style: Literal["interval", "signed"] = "interval",
    unit: Unit | Callable[[Row], Unit] = "score",
    parts: Iterable[EstimatePart] = ("n",),
    headings: Mapping[EstimatePart, str] | None = None,
    order: int = 0,
) -> tuple[Column[Row], ...]:
    """Return the columns of an estimate: its value with the interval, and further fields (parts).

    Args:
        name: of the value; a part is called `NAME_PART`.
        of: returns the estimate of a row.
        heading: of the value.
        style: of the value.
        unit: of the value.
        parts: the further fields.
        headings: of the parts that people see; the others are in files alone.
        order: of the parts that people see.
    """
    shown = headings or {}
    part_columns = (
        Column(
            f"{name}_{part}",
            _make_part_reader(of, part),
            shown.get(part),
            _choose_part_style(part, style),
            unit,
            order,
            of,
        )
        for part in parts
    )
    return Column(name, of, heading, style, unit), *part_columns


def _choose_part_style(part: EstimatePart, style: Style) -> Style:
    """Return the style of a part of an estimate; in that of a difference, a span has signs."""
    own = _PART_STYLES.get(part, "text")
    return "signed_span" if own == "span" and style == "signed" else own


def _make_part_reader(
    of: Callable[[Row], Estimate | None], part: EstimatePart
) -> Callable[[Row], Scalar | tuple[Scalar, ...]]:
    return lambda row: None if (estimate := of(row)) is None else getattr(estimate, part)


def describe_turning_odds(odds: float) -> str:
    """Return a clause with the odds of missing responses up to which a result holds
    (`completions.find_turning_odds`).
    """
    if odds == inf:
        return "whatever the missing grades are"
    if odds == 0:
        return "only if no grade were missing"
    return f"unless missing responses are worse at more than {odds:g} × the odds"
