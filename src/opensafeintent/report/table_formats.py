"""Tables as CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from math import ceil
from typing import NamedTuple, Never

import msgspec

from opensafeintent.hostile import cell_safe
from opensafeintent.markdown import markdown_text
from opensafeintent.numbers.estimates import AVERAGE
from opensafeintent.numbers.metrics import METRICS, MetricScope
from opensafeintent.numbers.second_turn import MEASURES
from opensafeintent.report.columns import (
    DASH,
    TEXTS,
    Cell,
    Column,
    Style,
    Table,
    format_cell,
    format_value_and_limits,
    shorten,
)
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS, MODES, QUESTIONS


class Behind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A state of the prompt-set browser: its filter, and its order."""

    kind: str = ""
    mode: str = ""
    order: str = ""
    """Empty for the worst first; `utility` for the lowest first; `range` for the widest first."""


class GlossaryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, and the state that lists its prompt-sets; None if none does."""

    label: str
    about: str
    behind: Behind | None = Behind()


_BEHIND: dict[str, Behind | None] = {
    "mean_safety": Behind(kind="unsafe_triplet"),
    "triplet_safety": Behind(kind="unsafe_triplet"),
    "pair_safety": Behind(kind="unsafe_pair"),
    "pair_success": Behind(order="utility"),
    "wording_averaged_triplet_safety": None,
    "mean_utility": Behind(order="utility"),
    "stable_safe": None,
    "stable_unsafe": None,
    "worst_case_utility": Behind(order="utility"),
    "intent_calibrated_utility": Behind(order="utility"),
    "calibrated_success": Behind(order="utility"),
    **{
        f"{intent}_{what}": Behind(kind=f"unsafe_{intent}")
        for intent in CORE_VARIANTS
        for what in ("harm_severity", "safety")
    },
    "safety_flip": Behind(kind="flip"),
    "utility_range": Behind(order="range"),
    "utility_range_safe_only": Behind(order="range"),
    **{f"mode_share_{mode}": Behind(mode=mode[1]) for mode in MODES},
    "mode_share_refusal": Behind(mode="01"),
    **{f"unsafe_rate_{mode}": Behind(mode=mode[1], kind="unsafe_dual_use") for mode in MODES},
    "unsafe_rate_refusal": Behind(mode="01", kind="unsafe_dual_use"),
    "detection_failure": Behind(kind="unsafe_dual_use"),
    "execution_failure": Behind(kind="unsafe_dual_use"),
    "low_help_rate_benign": Behind(kind="over_refusal"),
}


def glossary(scope: MetricScope) -> dict[str, GlossaryEntry]:
    """Return every metric that there is by its name in `metrics.json`."""
    return {
        name: GlossaryEntry(
            label=metric.label, about=metric.about, behind=_BEHIND.get(name, Behind())
        )
        for name, metric in scope.metrics.items()
    }


@cache
def labels() -> dict[str, str]:
    """Return the words for each metric, intent and scale, by their names in files."""
    return {
        **{name: metric.label for name, metric in METRICS.items()},
        **{measure.effect: measure.label for measure in MEASURES},
        **INTENT_WORDS,
        **{question.grade: question.label for question in QUESTIONS},
    }


_INTERVAL = re.compile(r"\[[+−]?\d[\d.,]*, [+−]?\d[\d.,]*\]")
"""The limits of an interval as people see them, as in `[0.52, 0.60]`."""


class Compact(NamedTuple):
    """A table for people: text throughout, each on one line."""

    headings: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: list[tuple[str, ...]]


def compact(table: Table, *, without_empty: bool = False) -> Compact:
    """Return a table's shown columns as text, not escaped for any format; all of them, or those
    with a value.
    """
    shown = [
        (index, column)
        for index, column in table.shown
        if not (without_empty and table.rows and all(_is_empty(row[index]) for row in table.rows))
    ]
    rows = [tuple(_text(column, row[index]) for index, column in shown) for row in table.rows]
    return Compact(
        tuple(" ".join((column.heading or "").split()) for _, column in shown),
        tuple(column.style for _, column in shown),
        rows,
    )


def explain_signs(table: Table, content: Compact) -> tuple[str, ...]:
    """Return the notes of a table and, last, what the signs that occur in it mean: a dash, and the
    brackets of an interval.

    Args:
        table: the table.
        content: its text, as people see it.
    """
    signs = []
    if any(DASH in row for row in content.rows):
        signs.append(f"{DASH} is undefined or does not apply.")
    if _has_interval(table, content):
        signs.append(f"Brackets hold the {100 * table.confidence:g} % interval.")
    return (*table.notes, " ".join(signs)) if signs else table.notes


def _has_interval(table: Table, content: Compact) -> bool:
    """Tell whether any cell or note has an interval in brackets; a name has none."""
    cells = (
        cell
        for row in content.rows
        for cell, style in zip(row, content.styles, strict=True)
        if style != "name"
    )
    return any(map(_INTERVAL.search, (*table.notes, *cells)))


def _is_empty(cell: Cell) -> bool:
    return all(value is None or value == "" for value in cell.fields)


def _text(column: Column[Never], cell: Cell) -> str:
    """Return a cell as people see it; the name of a metric or an intent is its label."""
    shown = format_cell(column.style, cell)
    if column.style != "text":
        return shown
    return labels().get(shown, _first_items(shown, column.most_items))


def _first_items(items: str, most: int | None) -> str:
    """Return at most some of the items of a text, and how many there are more."""
    first = items.split("; ")
    if most is None or len(first) <= most:
        return items
    return "; ".join((*first[:most], f"and {len(first) - most} more"))


_MOST_ROWS = 25_000
"""A table with more is shown in part; the whole is in its CSV file."""


_AT_ONCE = 200
"""Rows in the page itself; further ones are embedded in a compressed form, for the script."""


def data_table(table: Table, common: str = "") -> tuple[str, str]:
    """Return a table as HTML, finished, with its first rows, and the further rows; empty columns
    are left out, and `common`, with which all names of models begin.

    If a script's key for sorting and filtering differs from a cell's own text, it is in the cell's
    `data-v`.
    """
    rows = table.rows[:_MOST_ROWS]
    shown = [
        (index, column)
        for index, column in table.shown
        if not rows or any(row[index].fields[0] is not None for row in rows)
    ]
    title = html.escape(table.title)
    head = "".join(_head(column) for _, column in shown)
    names = [index for index, column in shown if column.style == "name"]
    body = []
    for row in rows:
        is_average = any(row[index].fields[0] == AVERAGE for index in names)
        cells = "".join(_html_cell(column.style, row[index], common) for index, column in shown)
        body.append(f"<tr{' class=average' if is_average else ''}>{cells}")
    first, further = "\n".join(body[:_AT_ONCE]), "\n".join(body[_AT_ONCE:])
    note = (
        f"The first {_AT_ONCE} of {len(table.rows):,} lines; all of them are in"
        f" {html.escape(table.name)}.csv."
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{title}">'
        f'<table aria-label="{title}" data-name="{html.escape(table.name)}"'
        f' data-of="{len(table.rows)}">\n'
        f"<thead><tr>{head}</thead>\n<tbody>\n{first}\n</tbody></table></div>"
        f"{f'<noscript><p class=note>{note}</p></noscript>' if further else ''}"
    ), further


def html_table(table: Table) -> str:
    """Return a table with its title and notes, for a notebook."""
    notes = (f"<p>{html.escape(note)}</p>" for note in explain_signs(table, compact(table)))
    return "\n".join((f"<p>{html.escape(table.title)}</p>", data_table(table)[0], *notes))


def _head(column: Column[Never]) -> str:
    number = "" if column.style in TEXTS else " class=number"
    return (
        f"<th scope=col{number}"
        f' data-source="{html.escape(column.name)}">{html.escape(column.heading or "")}'
    )


def _html_cell(style: Style, cell: Cell, common: str) -> str:
    """Return one cell as HTML; a text from outside is text, and must not turn the line's
    direction.
    """
    value = cell.fields[0]
    text, limits = format_value_and_limits(style, cell)
    if style not in TEXTS:
        number = value.replace(",", "") if isinstance(value, str) else value
        behind = "" if number is None or style == "count" else f" data-v={round(float(number), 6)}"
        interval = f"<span class=interval> {limits}</span>" if limits else ""
        kind = '"number words"' if isinstance(value, str) else "number"
        return f"<td class={kind}{behind}>{html.escape(text)}{interval}"
    raw = value if isinstance(value, str) else text
    label = raw.removeprefix(common) if style == "name" else labels().get(raw, raw)
    # with the line ends and the NUL that a parser of HTML would make of it
    parsed = raw.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    behind = (
        f' data-v="{html.escape(parsed)}"'
        if label != raw or not raw.isprintable() or value == DASH
        else ""
    )
    if style == "name":
        parts = "<wbr>".join(map(show_text, _BREAKS.split(label)))
        return f"<th scope=row{behind}><bdi class=name>{parts}</bdi>"
    return f"<td{behind}><bdi>{show_text(label)}</bdi>"


_BREAKS = re.compile(r"(?<=[/_.:-])")


def show_text(text: str) -> str:
    """Return a text as HTML; an invisible character is shown as its code point."""
    if text.isprintable():
        return html.escape(text)
    return "".join(
        (
            html.escape(char)
            if char in _WHITE or unicodedata.category(char) not in _UNSEEN
            else f'<span class="invisible" title="an invisible character">U+{ord(char):04X}</span>'
        )
        for char in text.replace("\r\n", "\n")
    )


_WHITE = "\n\t\u200c\u200d"


_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


TEXT_WIDTH = 360.0
"""Points of a line of LaTeX's article class at 11 points, on A4 and on letter paper."""

_TALL = 36
"""Lines beyond which a table may break over pages."""

_NAME = 48
"""Characters of a model's name."""

_NAMING = 0.5
"""Share of the line that the columns that name a row may take, if others stand beside them."""

_SAFETY = 1.03
"""Widths are taken larger by this: the fonts of smaller sizes are wider than ten points scaled."""


_ESCAPES = {
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
    "\u00a0": "~",
    "‐": "-",
    "‑": "-",
    "‒": "--",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "ı": r"\i{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "§": r"\S{}",
    "©": r"\copyright{}",
}
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho varsigma sigma"
    " tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_MATHS = {
    **{"−": "-", "′": "'", "✓": r"\surd", "√": r"\surd", "✗": r"\times", "×": r"\times"},
    **{"→": r"\to", "←": r"\leftarrow", "↑": r"\uparrow", "↓": r"\downarrow"},
    **{"≤": r"\le", "≥": r"\ge", "±": r"\pm", "≈": r"\approx", "≠": r"\ne", "∞": r"\infty"},
    **{"·": r"\cdot", "²": "^2", "³": "^3", "°": r"^\circ", "µ": r"\mu"},
    **{
        letter: f"\\{name}"
        for letter, name in zip("αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)
    },
}
_ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0323\u0327\u0331",
        "`'^~=u.\"rHvdcb",
        strict=True,
    )
)
"""LaTeX's accents by the combining mark of Unicode; Computer Modern has all of them."""


@lru_cache(maxsize=4096)
def _set(char: str) -> str:
    """Return what sets a character in every LaTeX. One that pdfLaTeX does not know, such as a
    Chinese letter, is its code point there.
    """
    if char in _ESCAPES or " " <= char <= "~":
        return _ESCAPES.get(char, char)
    if char in _MATHS:
        return f"${_MATHS[char]}$"
    letter, *marks = list(unicodedata.normalize("NFD", char))
    if "A" <= letter <= "z" and marks and all(mark in _ACCENTS for mark in marks):
        for mark in marks:
            letter = f"\\{_ACCENTS[mark]}{{{letter}}}"
        return letter
    code = _code_point(char)
    return f"\\othercharacter{{{code}}}{{{char if char.isprintable() else code}}}"


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X}"


class _Size(NamedTuple):
    """A size of text, and the room between columns."""

    command: str
    points: float
    padding: float
    """Points on each side of a column."""


_SIZES = (_Size(r"\small", 10.0, 6.0), _Size(r"\footnotesize", 9.0, 3.0))
"""The first in which all columns fit beside one another; else the last."""


class _Column(NamedTuple):
    """A column as it is set."""

    place: int
    """In the table, from 0."""
    style: Style
    width: float
    """Points, the room beside it aside."""
    natural: float
    """Points of its widest cell on one line."""

    @property
    def is_paragraph(self) -> bool:
        """Whether its cells break over lines."""
        return self.width < self.natural

    @property
    def alignment(self) -> str:
        """Its letter in LaTeX's list of columns."""
        if self.is_paragraph:
            return f">{{\\raggedright\\arraybackslash}}p{{{self.width:.1f}pt}}"
        return "l" if self.style in TEXTS else "r"


_NEEDS = "% Needs \\usepackage{array,booktabs,longtable}.\n"
_OTHER_CHARACTERS = (
    "% pdfLaTeX shows some characters as code points; LuaLaTeX and XeLaTeX have them with a font.\n"
    "\\providecommand{\\othercharacter}[2]{\\ifdefined\\Uchar#2\\else#1\\fi}\n"
)


def to_latex(table: Table) -> str:
    """Return a booktabs table with caption, label and notes, at most `TEXT_WIDTH` wide; a long one
    may break over pages.
    """
    content = _shorten_names(compact(table, without_empty=True))
    size, parts = _parts(content)
    lines = sum(_lines(content, part, size) for part in parts)
    explanations = explain_signs(table, content)
    lines += sum(ceil(_width(note, 9.0) / TEXT_WIDTH) for note in explanations)
    caption = f"\\caption{{{escape_latex(table.title)}}}\\label{{tab:{table.name}}}"
    setting = [size.command, f"\\setlength{{\\tabcolsep}}{{{size.padding:g}pt}}"]
    notes = _notes(explanations)
    if lines > _TALL:
        body = list(_yield_over_pages(content, parts, size, caption))
        written = [r"\begingroup", *setting, *body, *notes, r"\endgroup"]
    else:
        body = list(_yield_on_one_page(content, parts, size))
        written = [r"\begin{table}", r"\centering", *setting, caption, *body, *notes]
        written.append(r"\end{table}")
    text = "\n".join(written) + "\n"
    return _NEEDS + _OTHER_CHARACTERS * (r"\othercharacter" in text) + text


def _shorten_names(content: Compact) -> Compact:
    """Return a table in which no model's name is longer than a line can hold."""
    rows = [
        tuple(
            shorten(cell, _NAME) if style == "name" else cell
            for cell, style in zip(row, content.styles, strict=True)
        )
        for row in content.rows
    ]
    return content._replace(rows=rows)


def _notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    paragraphs = "\\\\\n".join(_breakable(note, TEXT_WIDTH, 9.0) for note in notes)
    return [f"\\par\\smallskip\n{{\\footnotesize\\raggedright\n{paragraphs}\\par}}"]


def _yield_on_one_page(
    content: Compact, parts: Sequence[Sequence[_Column]], size: _Size
) -> Iterator[str]:
    """Yield the lines of a table that stays on one page, its parts below one another."""
    for number, part in enumerate(parts):
        if number:
            yield r"\par\medskip"
        yield f"\\begin{{tabular}}{{{_alignments(part)}}}"
        yield r"\toprule"
        yield from _yield_headings(content, part, size)
        yield r"\midrule"
        yield from _rows(content, part, size)
        yield r"\bottomrule"
        yield r"\end{tabular}"


def _yield_over_pages(
    content: Compact, parts: Sequence[Sequence[_Column]], size: _Size, caption: str
) -> Iterator[str]:
    """Yield the lines of a table that may break over pages; only its first page has the caption,
    and its other pages and parts have the same number.
    """
    for number, part in enumerate(parts):
        heading = (r"\toprule", *_yield_headings(content, part, size), r"\midrule")
        if number:
            yield r"\addtocounter{table}{-1}"
        yield f"\\begin{{longtable}}{{{_alignments(part)}}}"
        if not number:
            yield from (caption + r" \\", *heading, r"\endfirsthead")
        yield f"\\multicolumn{{{len(part)}}}{{@{{}}l@{{}}}}{{Table~\\thetable{{}}, continued}} \\\\"
        yield from (*heading, r"\endhead")
        yield r"\bottomrule"
        yield r"\endfoot"
        yield from _rows(content, part, size)
        yield r"\end{longtable}"


def _alignments(part: Sequence[_Column]) -> str:
    """Return LaTeX's list of columns, without room at the two ends."""
    return f"@{{}}{''.join(column.alignment for column in part)}@{{}}"


def _yield_headings(content: Compact, part: Sequence[_Column], size: _Size) -> Iterator[str]:
    """Yield the lines of the headings, which end in the same line."""
    stacks = [
        _wrap(content.headings[column.place], column.width, size.points)[::-1] for column in part
    ]
    for line in [*zip_longest(*stacks, fillvalue="")][::-1]:
        yield " & ".join(map(escape_latex, line)) + r" \\"


def _rows(content: Compact, part: Sequence[_Column], size: _Size) -> Iterator[str]:
    for row in content.rows:
        cells = (_latex_cell(row[column.place], column, size) for column in part)
        yield " & ".join(cells) + r" \\"


def _latex_cell(text: str, column: _Column, size: _Size) -> str:
    """Return a cell, escaped.

    A row must not start with a bracket: LaTeX reads it as an argument of the line before.
    """
    if column.style not in TEXTS:
        return _number(text)
    if column.is_paragraph:
        # after room of no width, LaTeX may hyphenate the first word too
        return r"\hspace{0pt}" + _breakable(text, column.width, size.points)
    return escape_latex(text)


def _parts(content: Compact) -> tuple[_Size, list[list[_Column]]]:
    """Return the size of the text, and the columns of each part."""
    for size in _SIZES:
        columns = [_column(content, index, size) for index in range(len(content.styles))]
        if _total(columns, size) <= TEXT_WIDTH:
            return size, [columns]
    naming_count = next(
        (index for index, style in enumerate(content.styles) if style not in TEXTS),
        len(content.styles),
    )
    naming, others = columns[:naming_count], columns[naming_count:]
    beside_all = TEXT_WIDTH - _total(others, size) - 2 * size.padding * len(naming)
    room = max(beside_all, _NAMING * TEXT_WIDTH - 2 * size.padding * len(naming))
    naming = _narrow_columns(content, naming, room, size)
    parts: list[list[_Column]] = [[*naming]]
    for column in others:
        left = TEXT_WIDTH - _total(naming, size) - 2 * size.padding
        fitting = column._replace(width=min(column.width, left))
        if len(parts[-1]) > len(naming) and _total([*parts[-1], fitting], size) > TEXT_WIDTH:
            parts.append([*naming])
        parts[-1].append(fitting)
    return size, parts


def _total(columns: Sequence[_Column], size: _Size) -> float:
    """Return the points that columns take, with the room between them."""
    room = 2 * size.padding * max(len(columns) - 1, 0)
    return sum(column.width for column in columns) + room


def _column(content: Compact, index: int, size: _Size) -> _Column:
    """Return a column that is as wide as its widest cell, or as the longest word of its heading."""
    cells = max((_width(row[index], size.points) for row in content.rows), default=0.0)
    natural = max(cells, _longest_word(content.headings[index], size))
    return _Column(index, content.styles[index], natural, natural)


def _longest_word(text: str, size: _Size) -> float:
    return max((_width(word, size.points) for word in text.split()), default=0.0)


def _narrow_columns(
    content: Compact, columns: Sequence[_Column], room: float, size: _Size
) -> list[_Column]:
    """Return columns that take no more than some points together: the widest give way first."""
    least = [_longest_word(content.headings[column.place], size) for column in columns]
    limit = max((column.width for column in columns), default=0.0)
    while limit > 1:
        widths = [
            min(column.width, max(limit, word)) for column, word in zip(columns, least, strict=True)
        ]
        if sum(widths) <= room:
            break
        limit -= 1
    else:
        widths = least
    return [column._replace(width=width) for column, width in zip(columns, widths, strict=True)]


def _lines(content: Compact, part: Sequence[_Column], size: _Size) -> int:
    """Return about how many lines a part takes, its headings among them."""
    heading = max(
        len(_wrap(content.headings[column.place], column.width, size.points)) for column in part
    )
    texts = [column for column in part if column.is_paragraph]
    rows = (
        max(
            (ceil(1.2 * _width(row[column.place], size.points) / column.width) for column in texts),
            default=1,
        )
        for row in content.rows
    )
    return heading + sum(rows) + 2


def _wrap(text: str, width: float, points: float) -> list[str]:
    """Return a text in lines of some width, words whole."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _width(longer, points) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


_THOUSANDTHS = {
    **dict.fromkeys("bdhknpquvxyz", 556),
    **dict.fromkeys("0123456789/–aoceg", 500),
    **dict.fromkeys("il.,:;'|!", 278),
    **dict.fromkeys("fjrst-()[] ", 392),
    **dict.fromkeys("mw+−=<>_~%&@#$", 833),
    **dict.fromkeys("ABDEFGJKLNOPQRSTUVXYZC", 764),
    **dict.fromkeys("HKNM", 917),
    "I": 361,
    "W": 1028,
}
"""Widths of letters in thousandths of the size, in Computer Modern: not less than theirs."""

_OTHER = 1000
"""Of any other letter."""


@lru_cache(maxsize=65536)
def _width(text: str, points: float) -> float:
    """Return the points that a text takes on one line."""
    return _SAFETY * points * sum(map(_thousandths, text)) / 1000


def _thousandths(char: str) -> int:
    if char in _THOUSANDTHS or r"\othercharacter" not in _set(char):
        return _THOUSANDTHS.get(char, _OTHER)
    return _OTHER * len(_code_point(char))


_PIECES = re.compile(r"(?<=[/_.:,;@-])(?=\w)")


def _breakable(text: str, width: float, points: float) -> str:
    """Return an escaped text in which words that are wider than a line may be broken."""
    return " ".join(
        escape_latex(word)
        if _width(word, points) <= width
        else r"\allowbreak{}".join(
            _hyphenate(piece, width, points) for piece in _PIECES.split(word)
        )
        for word in text.split()
    )


def _hyphenate(word: str, width: float, points: float) -> str:
    """Return an escaped word; it may be hyphenated anywhere if it is wider than a line, and is none
    that LaTeX hyphenates itself.
    """
    if _width(word, points) <= width or (word.isascii() and word.isalpha() and len(word) < 18):
        return escape_latex(word)
    return r"\-".join(map(escape_latex, word))


def _number(text: str) -> str:
    return escape_latex(text).replace("{[}", "[").replace("{]}", "]")


@lru_cache(maxsize=4096)
def escape_latex(text: str) -> str:
    """Escape LaTeX's commands, and hyphens that it would join to a dash: those of an option."""
    parts = text.split("--")
    return "-{}-".join("".join(map(_set, part)) for part in parts)


def to_csv(table: Table) -> str:
    """Return every column as it is; an undefined value is an empty cell, and no cell is a
    formula.
    """
    written = io.StringIO(newline="")
    # lines end in \r\n, as RFC 4180 has it: only so is a lone \r in a cell quoted
    writer = csv.writer(written)
    writer.writerow([cell_safe(field) for field in table.fields])
    for row in table.rows:
        values = [value for cell in row for value in cell.fields]
        writer.writerow([cell_safe(value) if isinstance(value, str) else value for value in values])
    return written.getvalue()


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
    notes = [
        line for note in explain_signs(table, content) for line in ("", f"*{markdown_text(note)}*")
    ]
    return "\n".join([*lines, *notes]) + "\n"


TABLE_FORMATS: dict[str, tuple[str, Callable[[Table], str]]] = {
    "csv": ("csv", to_csv),
    "latex": ("tex", to_latex),
    "markdown": ("md", to_markdown),
}
"""The endings of file names, and how a table is written, by format."""
