"""A table as LaTeX that fits the text width of an 11-point article.

A table that is too wide is split by columns, below one another, and each part begins with the
columns that name a row. A column without any value is left out. Long names and texts are set as
paragraphs. Widths are computed here, from those of Computer Modern's letters, because nobody knows
the document that a table goes into.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from math import ceil
from typing import NamedTuple

from opensafeintent.report.columns import Table
from opensafeintent.report.compact import Compact, compact, explained
from opensafeintent.report.values import TEXTS, Style, shortened

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
    content = _named_shortly(compact(table, without_empty=True))
    size, parts = _parts(content)
    lines = sum(_lines(content, part, size) for part in parts)
    explanations = explained(table, content)
    lines += sum(ceil(_width(note, 9.0) / TEXT_WIDTH) for note in explanations)
    caption = f"\\caption{{{escaped(table.title)}}}\\label{{tab:{table.name}}}"
    setting = [size.command, f"\\setlength{{\\tabcolsep}}{{{size.padding:g}pt}}"]
    notes = _notes(explanations)
    if lines > _TALL:
        body = list(_over_pages(content, parts, size, caption))
        written = [r"\begingroup", *setting, *body, *notes, r"\endgroup"]
    else:
        body = list(_on_one_page(content, parts, size))
        written = [r"\begin{table}", r"\centering", *setting, caption, *body, *notes]
        written.append(r"\end{table}")
    text = "\n".join(written) + "\n"
    return _NEEDS + _OTHER_CHARACTERS * (r"\othercharacter" in text) + text


def _named_shortly(content: Compact) -> Compact:
    """Return a table in which no model's name is longer than a line can hold."""
    rows = [
        tuple(
            shortened(cell, _NAME) if style == "name" else cell
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


def _on_one_page(
    content: Compact, parts: Sequence[Sequence[_Column]], size: _Size
) -> Iterator[str]:
    """Yield the lines of a table that stays on one page, its parts below one another."""
    for number, part in enumerate(parts):
        if number:
            yield r"\par\medskip"
        yield f"\\begin{{tabular}}{{{_alignments(part)}}}"
        yield r"\toprule"
        yield from _heading(content, part, size)
        yield r"\midrule"
        yield from _rows(content, part, size)
        yield r"\bottomrule"
        yield r"\end{tabular}"


def _over_pages(
    content: Compact, parts: Sequence[Sequence[_Column]], size: _Size, caption: str
) -> Iterator[str]:
    """Yield the lines of a table that may break over pages; only its first page has the caption,
    and its other pages and parts have the same number.
    """
    for number, part in enumerate(parts):
        heading = (r"\toprule", *_heading(content, part, size), r"\midrule")
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


def _heading(content: Compact, part: Sequence[_Column], size: _Size) -> Iterator[str]:
    """Yield the lines of the headings, which end in the same line."""
    stacks = [
        _wrapped(content.headings[column.place], column.width, size.points)[::-1] for column in part
    ]
    for line in [*zip_longest(*stacks, fillvalue="")][::-1]:
        yield " & ".join(map(escaped, line)) + r" \\"


def _rows(content: Compact, part: Sequence[_Column], size: _Size) -> Iterator[str]:
    for row in content.rows:
        cells = (_cell(row[column.place], column, size) for column in part)
        yield " & ".join(cells) + r" \\"


def _cell(text: str, column: _Column, size: _Size) -> str:
    """Return a cell, escaped.

    A row must not start with a bracket: LaTeX reads it as an argument of the line before.
    """
    if column.style not in TEXTS:
        return _number(text)
    if column.is_paragraph:
        # after room of no width, LaTeX may hyphenate the first word too
        return r"\hspace{0pt}" + _breakable(text, column.width, size.points)
    return escaped(text)


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
    naming = _narrowed(content, naming, room, size)
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


def _narrowed(
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
        len(_wrapped(content.headings[column.place], column.width, size.points)) for column in part
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


def _wrapped(text: str, width: float, points: float) -> list[str]:
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
        escaped(word)
        if _width(word, points) <= width
        else r"\allowbreak{}".join(
            _in_pieces(piece, width, points) for piece in _PIECES.split(word)
        )
        for word in text.split()
    )


def _in_pieces(word: str, width: float, points: float) -> str:
    """Return an escaped word; it may be hyphenated anywhere if it is wider than a line, and is none
    that LaTeX hyphenates itself.
    """
    if _width(word, points) <= width or (word.isascii() and word.isalpha() and len(word) < 18):
        return escaped(word)
    return r"\-".join(map(escaped, word))


def _number(text: str) -> str:
    return escaped(text).replace("{[}", "[").replace("{]}", "]")


@lru_cache(maxsize=4096)
def escaped(text: str) -> str:
    """Escape LaTeX's commands, and hyphens that it would join to a dash: those of an option."""
    parts = text.split("--")
    return "-{}-".join("".join(map(_set, part)) for part in parts)
