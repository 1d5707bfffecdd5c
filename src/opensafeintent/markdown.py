"""Text from outside in Markdown: the one place that escapes it."""

from __future__ import annotations

import re
from functools import lru_cache

from opensafeintent.hostile import one_line

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~&!$])|(?<=:)(?=//)|(?<=www)(?=\.)")
"""Markup within a line, addresses included."""

_REFERENCE = re.compile(
    r"(?<!\w)@(?=\w)|(?<=[\w.+-])@(?=[\w-]+\.)|#(?=\d)|\bGH-(?=\d)|\b(?:xmpp|mailto):",
    re.IGNORECASE,
)
"""Mentions, references to issues, bare addresses: hosts make links of them and notify people."""

_JOINER = "\u2060"
"""Word joiner: has no width, and no line breaks at it."""

_LONGEST = 2_000


class Plain(str):
    """A text that needs no escaping in a card: ours, or escaped already."""

    __slots__ = ()


@lru_cache(maxsize=4096)
def markdown_text(text: str) -> str:
    """Escape Markdown's markup, addresses included; `_REFERENCE` gets an invisible character."""
    apart = _REFERENCE.sub(lambda match: match.group() + _JOINER, text)
    return _MARKUP.sub(lambda match: "\\" + match.group(), apart)


def card_text(text: str, most: int = _LONGEST) -> Plain:
    """Return a text as a card shows it: escaped, on one line, in at most `most` characters."""
    # the backslash before an @ shows nothing; cards have always had it, and stay as they are
    return Plain(markdown_text(one_line(text, most)).replace("@", "\\@"))
