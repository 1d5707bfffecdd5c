"""Where a response's text is looked up."""

from __future__ import annotations

from typing import Protocol

__all__ = ["FoundText", "TextSource"]


class FoundText(Protocol):
    """A text and its row in the ledger."""

    @property
    def text(self) -> str:
        """What the target wrote."""
        ...

    @property
    def row(self) -> int:
        """Id of the ledger's row."""
        ...


class TextSource(Protocol):
    """Where the texts of one run are; `evaluation.derive.RunTexts` is one."""

    def find(self, model: str, set_id: str, variant: str, epoch: int = 1) -> FoundText | None:
        """Return a response's text, None where there is none."""
        ...
