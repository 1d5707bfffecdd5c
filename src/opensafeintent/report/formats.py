"""A table: its columns and rows; as CSV, complete and for programs; as Markdown, LaTeX and on the
terminal, compact and for people.

For people a value has its interval beside it, as in `0.56 [0.52, 0.60]`, and an undefined value is
a dash. Text in a table, a model's name above all, is hostile: it is escaped for each format.

A column has its values' names for programs and their style for people. Every format, the pages
among them, is a function of this record.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import takewhile
from math import ceil, log10
from textwrap import wrap
from typing import Literal, NamedTuple, cast

import msgspec
from rich.table import Table as RichTable
from rich.text import Text

from opensafeintent.calls.baselines import contenders
from opensafeintent.hostile import cell_safe, one_line, terminal_safe
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

_MEASURED = ("number", "gap", "interval", "signed", "span")
"""Styles of numbers that have the unit of their metric."""

TEXTS = ("text", "name")
"""Styles of texts; all others are of numbers."""

# fmt: off
Section = Literal[
    "headline", "utility", "strata", "modes", "stability", "probe", "stated_policy",
    "comparisons", "coverage", "judges", "request_swap", "judge_check", "correction", "gates",
    "numbers", "method",
]
# fmt: on
"""Sections of the page of a run."""

# fmt: off
Part = Literal[
    "n", "method", "bounds", "worst_case", "models", "pooled", "model", "rerun_se",
    "p_unadjusted", "p_adjusted", "minimum_detectable_difference", "pairs", "sets",
]
# fmt: on
"""Fields of an estimate besides its value and interval."""


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


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    """In files for programs; `fields` has the suffixes of a style."""
    heading: str | None = None
    """Its heading for people; None if they do not see it."""
    style: Style = "text"
    order: int = 0
    """People are shown columns of a lower order first."""
    part: Part | None = None
    """The field that it shows of the estimate of the last column before it that has values of its
    own; None for a column with values.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs that it fills."""
        match self.style:
            case "interval" | "signed":
                return self.name, f"{self.name}_low", f"{self.name}_high"
            case "span" | "ranks":
                return f"{self.name}_low", f"{self.name}_high"
            case _:
                return (self.name,)

    def cells(self, value: object) -> tuple[Cell, ...]:
        """Return the cells of `fields` for a value: a cell, the ends of a span, or an estimate;
        None is undefined.
        """
        if value is not None and self.part is not None:
            value = getattr(value, self.part)
        if value is None:
            return (None,) * len(self.fields)
        if isinstance(value, Estimate):
            return value.value, value.low, value.high
        return value if isinstance(value, tuple) else (cast("Cell", value),)


class Table(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A named table."""

    name: str
    """Of its files."""
    title: str
    section: Section | None = None
    """Of the page; None if it is on none."""
    columns: tuple[Column, ...]
    rows: Sequence[object]
    """Each a tuple of values, one for each column that is no `part`, or a record that has them by
    the columns' names.
    """
    notes: tuple[str, ...] = ()
    """Notes for a reader, a line each."""
    bold: frozenset[int] = frozenset()
    """Indices of rows that the terminal sets off from the others."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of files for programs."""
        return tuple(field for column in self.columns for field in column.fields)

    @cached_property
    def cells(self) -> list[list[tuple[Cell, ...]]]:
        """Of each row, the cells of each column."""
        return [self._cells_of(row) for row in self.rows]

    def _cells_of(self, row: object) -> list[tuple[Cell, ...]]:
        own = [column for column in self.columns if column.part is None]
        values = row if type(row) is tuple else tuple(getattr(row, column.name) for column in own)
        assert len(values) == len(own), self.name
        rest = iter(values)
        cells, estimates = [], []
        value: object = None
        for column in self.columns:
            if column.part is None:
                value = next(rest)
            cells.append(column.cells(value))
            estimates.append(value)
        if "metric" in (names := [column.name for column in self.columns]):
            names = [str(cells[names.index("metric")][0])] * len(names)
        return [
            in_unit(name, own, value) if column.style in _MEASURED else own
            for name, column, own, value in zip(names, self.columns, cells, estimates, strict=True)
        ]

    @property
    def shown(self) -> list[tuple[int, Column]]:
        """The columns for people, with their index, in the order of display."""
        headed = (
            (index, column)
            for index, column in enumerate(self.columns)
            if column.heading is not None
        )
        return sorted(headed, key=lambda item: item[1].order)

    def hiding(self, *names: str) -> Table:
        """Return the table in which people are not shown some columns."""
        columns = tuple(
            msgspec.structs.replace(column, heading=None) if column.name in names else column
            for column in self.columns
        )
        return msgspec.structs.replace(self, columns=columns)

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows by field."""
        fields = self.fields
        return [
            dict(zip(fields, (cell for cells in row for cell in cells), strict=True))
            for row in self.cells
        ]


_PART_STYLES: dict[Part, Style] = {
    "n": "count",
    "bounds": "span",
    "worst_case": "span",
    "models": "count",
    "pooled": "number",
}


def estimate_columns(
    name: str,
    heading: str | None,
    *,
    style: Literal["interval", "signed"] = "interval",
    parts: Iterable[Part] = ("n",),
    headings: Mapping[Part, str] | None = None,
    order: int = 0,
) -> tuple[Column, ...]:
    """Return the columns of an estimate: its value with the interval, and its other fields for
    files.

    Args:
        name: of the value; a part is called `NAME_PART`.
        heading: of the value.
        style: of the value.
        parts: the fields in files.
        headings: of the parts that people see.
        order: of those parts.
    """
    shown = headings or {}
    of_parts = (
        Column(
            f"{name}_{part}",
            shown.get(part),
            _PART_STYLES.get(part, "text"),
            order=order,
            part=part,
        )
        for part in parts
    )
    return Column(name, heading, style), *of_parts


# A table as CSV, complete and for programs
# ------------------------------------------------------------------------------

DASH = "–"
_LONG = 60
"""Lines beyond which a LaTeX table may break over pages."""
_NAME = 48
"""Characters of a model's name in LaTeX, whose lines cannot grow."""
_WIDE = 60
"""Characters beyond which a column of text is set as paragraphs."""


class Compact(NamedTuple):
    """A table for people: text throughout."""

    headings: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: list[tuple[str, ...]]


def compact(table: Table) -> Compact:
    """Return a table's shown columns as text, not escaped for any format."""
    shown = table.shown
    rows = [tuple(text(column.style, row[index]) for index, column in shown) for row in table.cells]
    return Compact(
        tuple(column.heading or "" for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


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


def to_csv(table: Table) -> str:
    """Return every column as it is; an undefined value is an empty cell, and no cell is a
    formula.
    """
    written = io.StringIO(newline="")
    # lines end in \r\n, as RFC 4180 has it: only so is a lone \r in a cell quoted
    writer = csv.writer(written)
    writer.writerow([cell_safe(field) for field in table.fields])
    for row in table.cells:
        writer.writerow(
            [cell_safe(cell) if isinstance(cell, str) else cell for cells in row for cell in cells]
        )
    return written.getvalue()


# Markdown
# ------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&!$])|(?<=:)(?=//)|(?<=www)(?=\.)")


_REFERENCE = re.compile(
    r"(?<!\w)@(?=\w)|(?<=[\w.+-])@(?=[\w-]+\.)|#(?=\d)|\bGH-(?=\d)|\b(?:xmpp|mailto):",
    re.IGNORECASE,
)
_JOINER = "\u2060"
"""Word joiner: has no width, and no line breaks at it."""


def to_markdown(table: Table) -> str:
    """Return a GitHub-flavoured Markdown table with its title and notes."""
    content = compact(table)
    rows = (
        " | ".join(
            markdown_text(cell) if style in TEXTS else cell
            for cell, style in zip(row, content.styles, strict=True)
        )
        for row in content.rows
    )
    rules = (":---" if style in TEXTS else "---:" for style in content.styles)
    lines = [
        f"**{markdown_text(table.title)}**",
        "",
        "| " + " | ".join(markdown_text(heading) for heading in content.headings) + " |",
        "|" + "|".join(rules) + "|",
        *(f"| {row} |" for row in rows),
    ]
    notes = [line for note in table.notes for line in ("", f"*{markdown_text(note)}*")]
    return "\n".join([*lines, *notes]) + "\n"


@lru_cache(maxsize=4096)
def markdown_text(text: str) -> str:
    """Escape Markdown's markup, addresses included. Mentions, references to issues and bare
    addresses, which hosts turn into links and which notify people, get an invisible character.
    """
    apart = _REFERENCE.sub(lambda found: found.group() + _JOINER, text)
    return _MARKDOWN.sub(lambda found: "\\" + found.group(), apart)


# LaTeX
# ------------------------------------------------------------------------------

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "[": "{[}",
    "]": "{]}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "−": "$-$",
    "′": "$'$",
}
_LATEX_NEEDS = (
    "% Needs \\usepackage{booktabs,longtable}; for names that are not Latin, LuaLaTeX or XeLaTeX"
    " and a font that has them.\n"
)


def to_latex(table: Table) -> str:
    """Return a booktabs table with caption, label and notes; a long one may break over pages."""
    content = compact(table)
    alignment = _latex_columns(content)
    caption = f"\\caption{{{_latex(table.title)}}}\\label{{tab:{table.name}}}"
    heading = " & ".join(_latex(text) for text in content.headings) + r" \\"
    rows = [" & ".join(_latex_cells(row, content.styles)) + r" \\" for row in content.rows]
    notes = "\\\\\n".join(_latex(note) for note in table.notes)
    notes = f"\\par\\smallskip\n{{\\footnotesize\\raggedright\n{notes}\\par}}" if notes else ""
    if len(rows) > _LONG:
        lines = [
            r"\begingroup\small",
            f"\\begin{{longtable}}{{{alignment}}}",
            caption + r" \\",
            r"\toprule",
            heading,
            r"\midrule",
            r"\endhead",
            r"\bottomrule",
            r"\endfoot",
            *rows,
            r"\end{longtable}",
            notes,
            r"\endgroup",
        ]
    else:
        lines = [
            r"\begin{table}",
            r"\centering\small",
            caption,
            f"\\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            heading,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            notes,
            r"\end{table}",
        ]
    return _LATEX_NEEDS + "\n".join(line for line in lines if line) + "\n"


def _latex_columns(content: Compact) -> str:
    """Return the alignment of each column; columns of long texts share the line's width."""
    wide = [
        style == "text" and any(len(row[index]) > _WIDE for row in content.rows)
        for index, style in enumerate(content.styles)
    ]
    paragraph = f"p{{{0.8 / max(sum(wide), 1):.2f}\\linewidth}}"
    return "".join(
        paragraph if is_wide else "l" if style in TEXTS else "r"
        for is_wide, style in zip(wide, content.styles, strict=True)
    )


def _latex_cells(row: Sequence[str], styles: Sequence[Style]) -> list[str]:
    """Escape cells.

    A row must not start with a bracket: LaTeX reads it as an argument of the line before.
    """
    return [
        (
            _latex(shortened(cell, _NAME) if style == "name" else cell)
            if style in TEXTS
            else _latex_number(cell)
        )
        for cell, style in zip(row, styles, strict=True)
    ]


def _latex_number(text: str) -> str:
    return text.replace("–", "--").replace("−", "$-$").replace("%", r"\%").replace("<", r"$<$")


@lru_cache(maxsize=4096)
def _latex(text: str) -> str:
    """Escape LaTeX's commands."""
    return "".join(_LATEX.get(char, char) for char in text)


FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
"""By the file name's ending."""


# A table as the terminal shows it, through rich
# ------------------------------------------------------------------------------

_HEADING = 14
"""Characters beyond which a heading of numbers is broken."""
_NARROWEST = 14
"""Characters of a text that a narrow terminal leaves on a line."""
_NAME_STYLE = 300
"""Characters of a name."""


def plain(text: str) -> Text:
    """Return a text as it is: no markup is read in it, and control characters are made visible."""
    return Text(terminal_safe(text))


def to_terminal(table: Table, *, narrow: int = 0) -> RichTable:
    """Return a table without its title and notes.

    Args:
        table: the table.
        narrow: from 1 on, intervals are below their values; from 2 on, each part of a name is on a
            line of its own.
    """
    shown = table.shown
    cells = [[_cell(column, row[index], narrow) for index, column in shown] for row in table.cells]
    lines = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, (_, column) in enumerate(shown):
        heading = column.heading or ""
        if column.style in TEXTS:
            longest = max((row[number].cell_len for row in cells), default=0)
            lines.add_column(plain(heading), overflow="fold", min_width=min(longest, _NARROWEST))
        else:
            if "\n" not in heading:
                heading = "\n".join(wrap(heading, _HEADING, break_long_words=False))
            lines.add_column(plain(heading), justify="right", no_wrap=True, vertical="top")
    for index, row in enumerate(cells):
        lines.add_row(*row, style="bold" if index in table.bold else None)
    return lines


def _cell(column: Column, cells: tuple[Cell, ...], narrow: int) -> Text:
    """Return one cell; lines of a text stay lines, and an undefined value is a dash."""
    if column.style == "name" and cells[0] is not None:
        return plain(
            one_line(str(cells[0]), _NAME_STYLE).replace("/", "/\n" if narrow > 1 else "/")
        )
    if column.style in TEXTS:
        return plain(DASH if cells[0] is None else str(cells[0]))
    number, space, limits = text(column.style, cells).partition(" [")
    shown = Text(number)
    if space:
        shown.append(f"{chr(10) if narrow else ' '}[{limits}", style="dim")
    return shown
