"""One message of a conversation: what templates write, and calls send."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["system", "user", "assistant"]


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, kept in parts so that the ledger stores a repeated text
    once.
    """

    role: Role
    parts: tuple[str, ...]

    @property
    def content(self) -> str:
        """The message's text."""
        return "".join(self.parts)
