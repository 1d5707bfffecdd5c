"""Model text is hostile input everywhere: make it harmless for where it is shown."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["cell_safe", "name_safe", "one_line", "terminal_safe"]

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def terminal_safe(text: str) -> str:
    """Replace control and invisible formatting characters (escape codes, bidi overrides) by visible escapes."""
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co") else f"\\u{ord(char):04x}"
        for char in text
    )


def one_line(text: str, most: int = 200) -> str:
    """Return `text` on one line, terminal-safe, cut to at most `most` characters."""
    flat = terminal_safe(" ".join(text.split()))
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def cell_safe(text: str) -> str:
    """Return `text` so that no spreadsheet reads it as a formula: an apostrophe goes before a formula's first character."""
    return "'" + text if text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text) else text


def name_safe(text: str, most: int = 100) -> str:
    """Return `text` as a file name: letters, digits, `.`, `_` and `-` only, no leading dot."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:most] or "unnamed"
