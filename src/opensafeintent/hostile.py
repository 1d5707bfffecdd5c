"""Model text is hostile input everywhere: make it harmless for each output."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0")
_RISKY = {*_FORMULA_STARTS, "'"}
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_USER_INFO = re.compile(r"://[^\s/?#]*@")

NAME = 80
"""Characters of a name, or of one word, as it is shown."""
LINE = 300
"""Of a line, such as somebody else's error."""
TEXT = 2_000
"""Of a text of several sentences on one line."""
_NAME_WORDS = 5
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of control, formatting, surrogate, private and separating characters."""

_ESCAPES = (
    (b"&", b"\\u0026"),
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
"""JSON contains none of these bytes outside a string."""


def terminal_safe(text: str) -> str:
    """Replace control and invisible formatting characters (escape codes, bidi overrides,
    separators) by visible escapes.
    """
    if text.isprintable():  # most texts, and none of those characters is
        return text
    return text.translate(_FOR_TERMINALS)


def is_unseen(char: str) -> bool:
    """Tell whether a character is invisible, or can look like another one."""
    return unicodedata.category(char) in _UNSEEN or _is_unprintable(char)


class Escapes(dict[int, str]):
    """A table for `str.translate`: invisible characters become visible, all others stay.

    Each character is looked at once: a text may have millions.

    Args:
        escape: the format of a code point, such as `[U+{:04X}]`.
        kept: invisible characters that stay.
    """

    def __init__(self, escape: str, kept: str) -> None:
        super().__init__()
        self._escape, self._kept = escape, kept

    def __missing__(self, number: int) -> str:
        char = chr(number)
        escaped = is_unseen(char) and char not in self._kept
        return self.setdefault(number, self._escape.format(number) if escaped else char)


_FOR_TERMINALS = Escapes("\\u{:04x}", "\n")


def unprintable(text: str) -> str | None:
    """Return the first character that no name may contain, as `U+0001`, or None if the name has
    none.

    They are control characters, halves of surrogate pairs, and the code points that Unicode defines
    as noncharacters. Figures, spreadsheets and XML refuse them.
    """
    if text.isprintable():  # most texts, and none of those characters is
        return None
    return next((f"U+{ord(char):04X}" for char in text if _is_unprintable(char)), None)


def visible(text: str) -> str:
    """Return a text with such characters, tabs and new lines aside, as visible escapes."""
    if text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if _is_unprintable(char) and char not in "\n\t" else char
        for char in text
    )


def _is_unprintable(char: str) -> bool:
    number = ord(char)
    return (
        unicodedata.category(char) in ("Cc", "Cs")
        or number & 0xFFFE == 0xFFFE
        or 0xFDD0 <= number <= 0xFDEF
    )


def one_line(text: str, most: int = LINE) -> str:
    """Return `text` on one line, terminal-safe, cut to at most `most` characters: NAME, LINE or
    TEXT.
    """
    if len(text) <= most and text.isalnum():
        return text
    # no more words are looked at than can be shown, and no more of them is made safe: the text may
    # have millions
    words = text.split(None, most + 1)[: most + 1]
    flat = terminal_safe(" ".join(words)[: most + 1])
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def clean_for_display(text: str) -> str:
    """Return a name, or one word, on one line, terminal-safe and cut (`NAME`)."""
    return one_line(text, NAME)


@lru_cache(maxsize=64)  # a server names itself alike in each reply
def clean_name(text: str) -> str:
    """Return a foreign name on one line: of a model, or of a reason. A name has few words; more are
    a text that stands in its place, such as the prompt.
    """
    return clean_for_display(" ".join(text.split(None, _NAME_WORDS)[:_NAME_WORDS]))


def remove_url_credentials(text: str) -> str:
    """Take names and passwords out of every URL in a text."""
    return _USER_INFO.sub("://", text) if "@" in text else text


def cell_safe(text: str) -> str:
    """Return `text` so that no spreadsheet reads it as a formula: an apostrophe goes before a
    formula's first character, and before apostrophes that stand there already.
    """
    if text[:1] not in _RISKY:  # as nearly all
        return text
    if not text.lstrip("'").startswith(_FORMULA_STARTS) or _NUMBER.fullmatch(text):
        return text
    return "'" + text


def restore_cell(cell: str) -> str:
    """Return the text that `cell_safe` made a cell of."""
    return cell[1:] if cell.startswith("'") and cell_safe(cell) != cell else cell


_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing."""


def show_unseen(text: str, instead: str) -> str:
    """Return a name with something visible in place of each character that is not: two files that
    look the same are the same.
    """
    return "".join(
        instead
        if is_unseen(char) or (char.isspace() and char != " ") or _BLANK.match(char)
        else char
        for char in text
    )


def name_safe(text: str) -> str:
    """Return `text` as a file name: letters and digits of any script, `.`, `_` and `-` only, no
    leading dot.
    """
    return re.sub(r"[^\w.-]+", "-", show_unseen(text, " ")).strip("-.")[:NAME] or "unnamed"


def json_for_html(value: Any) -> bytes:
    """Return JSON that is safe in a `<script type="application/json">`: no text in it can end the
    element.
    """
    import msgspec

    raw = msgspec.json.encode(value)
    for char, escape in _ESCAPES:
        raw = raw.replace(char, escape)
    return raw


def csp_hash(content: str) -> str:
    """Return the source expression that allows one inline script or style, and no other."""
    import base64
    import hashlib

    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def security_policy(*, scripts: tuple[str, ...], styles: tuple[str, ...]) -> str:
    """Return the content security policy: nothing is loaded, nothing is sent, and only our own
    scripts and styles run.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(csp_hash, scripts))}",
            f"style-src {' '.join(map(csp_hash, styles))}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
