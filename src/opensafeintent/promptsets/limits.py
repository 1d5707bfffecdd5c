"""What a file of rows may hold: so many rows and characters, and no column twice."""

from __future__ import annotations

from collections import Counter

from opensafeintent.errors import InputError
from opensafeintent.files import MOST_ROWS
from opensafeintent.hostile import show_name

_CHARACTERS_A_ROW = 2_000
"""On average, of as many rows as may be read; but 500 million characters always.

A prompt-set with paraphrases has 2,000.
"""


class RowLimit:
    """The remaining rows and characters, over all files of a dataset.

    Args:
        rows: rows at most; characters at most are 2,000 times as many, or 500 million if that is
            more. None sets no limit.
    """

    def __init__(self, rows: int | None = MOST_ROWS) -> None:
        self.most = rows
        self.most_characters = None if rows is None else max(rows, MOST_ROWS) * _CHARACTERS_A_ROW
        self._rows = 0
        self._characters = 0

    def count(self, name: str, characters: int = 0) -> None:
        """Count a row that was read of the file `name`.

        Raises:
            InputError: it is one too many.
        """
        self._rows += 1
        self._characters += characters
        self.check(name, self._rows, self._characters)

    def check(self, name: str, rows: int = 0, characters: int = 0) -> None:
        """Refuse a file that says it has more than may be read.

        Raises:
            InputError: it has.
        """
        if self.most is not None and rows > self.most:
            raise InputError(
                f"{name}: has more than {self.most:,} rows; expected fewer, or a larger --max-rows"
                " in a command that has it"
            )
        if self.most_characters is not None and characters > self.most_characters:
            raise InputError(
                f"{name}: holds more than {self.most_characters:,} characters; expected fewer, or"
                f" a larger --max-rows: {_CHARACTERS_A_ROW:,} are allowed for each row"
            )


def refuse_repeated(columns: list[str], name: str) -> None:
    """Refuse a table with two columns of one name.

    Raises:
        InputError: it has.
    """
    for column, count in Counter(columns).items():
        if count > 1:
            raise InputError(f"{name}: the column {show_name(column)!r} is there twice")
