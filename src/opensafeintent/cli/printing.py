"""What every printed answer starts from: a console of the terminal's width, and text that cannot command it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from opensafeintent.hostile import one_line, terminal_safe

__all__ = ["new_console", "plain", "print_notes"]


def new_console() -> Console:
    """Return a console: as wide as the terminal, or 120 columns where the output goes elsewhere."""
    width = shutil.get_terminal_size((120, 40)).columns if sys.stdout.isatty() else 120
    return Console(width=width, highlight=False)


def plain(text: str) -> Text:
    """Return a text as it is: no markup is read in it, and control characters are made visible."""
    return Text(terminal_safe(text))


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what a reader should know of a result, a note a line: a name in one of them cannot forge another."""
    for note in notes:
        console.print(plain(f"note: {one_line(note, 2000)}"))
