"""Files that are written for people to edit, and never replaced once they did.

Each carries a checksum of its text. A text with another checksum was edited.
"""

from __future__ import annotations

import re

from opensafeintent.files import sha256_hex

CHECKSUM = "Checksum of the rest:"
"""A line of every such file, in YAML behind `# `; `sealed` completes it."""

_LENGTH = 16
_SEAL = re.compile(rf"^((?:# )?{CHECKSUM})(?: ([0-9a-f]{{{_LENGTH}}}))?$", re.MULTILINE)


def sealed(text: str) -> str:
    """Return a text with its checksum in the line for it (`CHECKSUM`)."""
    return _SEAL.sub(lambda line: f"{line[1]} {_checksum(text)}", text, count=1)


def is_sealed(text: str) -> bool:
    """Tell whether a text is as it was sealed; the ends of its lines and of the text may differ."""
    text = text.replace("\r\n", "\n")
    line = _SEAL.search(text)
    return line is not None and line[2] == _checksum(_SEAL.sub(r"\1", text, count=1))


def _checksum(text: str) -> str:
    return sha256_hex(text.rstrip())[:_LENGTH]
