"""Text that others wrote, made readable for annotators: nothing invisible, nothing dangerous,
nothing cut.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from opensafeintent.canonical import sha256_hex

_KEPT = "\n\u200c\u200d"
"""New lines; and the joiners, without which emoji and several scripts fall apart."""
_JOINING = "\u200c\u200d\ufe0e\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_NEW_LINE = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WORD = re.compile(r"\s*\S+\s?|\s+")
_ESCAPE = "x005F_"
"""How a spreadsheet file escapes text that looks like one of its own escapes; programs differ in
undoing it.
"""


def readable(text: str) -> str:
    """Return `text` as annotators see it: what cannot be seen, or not be kept in a file, stands as
    its code point.

    Control and formatting characters (escape codes, bidi overrides, zero-width spaces), lone
    surrogates, characters of private use and code points that are no characters become `[U+202E]`;
    every kind of line break becomes a new line, a tab four spaces.
    """
    text = _NEW_LINE.sub("\n", text).replace("\t", "    ")
    return "".join(
        char if char in _KEPT or not _unseen(char) else f"[U+{ord(char):04X}]" for char in text
    )


def _unseen(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co")
        or ord(char) & 0xFFFE == 0xFFFE
        or "\ufdd0" <= char <= "\ufdef"
    )


def text_hash(text: str) -> str:
    """Return the SHA-256 of a response's own text, lone surrogates and all."""
    return sha256_hex(text.encode("utf-8", "surrogatepass"))


def words_hash(text: str) -> str:
    """Return the SHA-256 of a text without its white space, which tells an edited cell.

    Spreadsheet programs trim and re-break white space when they save; no wording hides there.
    """
    return sha256_hex("".join(text.replace(_ESCAPE, "").split()))


def lines_of(text: str, width: int) -> int:
    """Return how many lines a text takes when it is wrapped at words into `width` columns; wide
    characters take two.
    """
    return sum(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> int:
    lines, used = 1, 0
    for word in _WORD.findall(line):
        taken = _columns(word)
        if used and used + _columns(word.rstrip()) > width:
            lines += 1
            used = 0
        used += taken
        if used > width:  # a word longer than a line
            lines += (used - 1) // width
            used = (used - 1) % width + 1
    return lines


def _columns(text: str) -> int:
    return (
        len(text)
        if text.isascii()
        else sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    )


def split_text(text: str, width: int, most: int) -> list[str]:
    """Split a text into parts of at most about `most` lines at `width` columns; joined, they are
    the text again.

    It is split between lines where it can be, else between words, else between characters.
    """
    parts: list[list[str]] = [[]]
    used = 0
    for piece in _pieces(text, width * most // 2):
        taken = lines_of(piece.removesuffix("\n"), width)
        if parts[-1] and used + taken > most:
            parts.append([])
            used = 0
        parts[-1].append(piece)
        used += taken
    return ["".join(pieces) for pieces in parts]


def _pieces(text: str, most: int) -> Iterator[str]:
    """Yield the lines of a text; one that would fill half a part or more falls into pieces at its
    words.
    """
    for line in _LINE.findall(text) or [""]:
        rest = line
        while _columns(rest) > most:
            cut = rest.rfind(" ", 0, most // 2) + 1 or most // 2
            while cut < len(rest) and _belongs_to_the_one_before(rest, cut):
                cut += 1
            yield rest[:cut]
            rest = rest[cut:]
        yield rest


def _belongs_to_the_one_before(text: str, index: int) -> bool:
    """Tell whether a character continues the one before it: accents, joined emoji, skin tones."""
    char = text[index]
    return bool(unicodedata.combining(char)) or char in _JOINING or text[index - 1] == "\u200d"
