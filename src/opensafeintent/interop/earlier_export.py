"""The files of an earlier export that people edit: whether somebody did, and the answers in them.

Each is sealed (`promptsets.sealing`). One that was edited since is not replaced.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from opensafeintent.files import read_text
from opensafeintent.promptsets.sealing import is_sealed
from opensafeintent.promptsets.sources import CARD

MARK = "Written by `opensafeintent dataset export`."
"""In every file that an export writes for people."""
TASKS = "eval.yaml"
EDITABLE = (CARD, TASKS)
"""The files that people edit; the others hold data."""
NO_LICENCE = "none-chosen-yet"
"""The name of the licence in a card, as long as the publisher named none."""

_LICENSE = re.compile(r"^license: ([\w.-]+)$", re.MULTILINE)
_TITLE = re.compile(r'^pretty_name: (".*")$', re.MULTILINE)
_REPO = re.compile(r"^opensafeintent evaluate .*\bhf:(\S+/\S+)$", re.MULTILINE)


class EarlierExport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a folder before an export."""

    ours: bool = False
    """Whether an export wrote it."""
    edited: tuple[str, ...] = ()
    """The names of its files that were edited since."""
    card: str = ""
    """Empty if there is none."""

    @classmethod
    def of(cls, folder: Path) -> EarlierExport:
        """Look at a folder, which need not exist."""
        texts = {name: _text(folder / name) for name in EDITABLE}
        return cls(
            ours=any(MARK in text for text in texts.values()),
            edited=tuple(name for name, text in texts.items() if text and not is_sealed(text)),
            card=texts[CARD],
        )

    @property
    def license(self) -> str | None:
        """As the hub names it; None if the card states none."""
        return _first(_LICENSE, self.card)

    @property
    def repo(self) -> str | None:
        """The name on the hub in the card's command; the publisher may have named none."""
        return _first(_REPO, self.card)

    @property
    def title(self) -> str | None:
        """The name of the dataset in the card; None if it states none."""
        quoted = _first(_TITLE, self.card)
        try:
            return None if quoted is None else str(json.loads(quoted))
        except ValueError:  # somebody's own quotation marks
            return None


def _text(path: Path) -> str:
    """Return a text; empty if there is none.

    Raises:
        InputError: it is there, and cannot be read.
    """
    return read_text(path) if path.exists() else ""


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text.replace("\r\n", "\n"))
    return match[1] if match else None
