"""The texts of a second turn: what a person says who insists, and what judges are told about a
conversation.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import msgspec

from opensafeintent.files import parse_toml

_FILE = "second_turn.toml"


class SecondTurnTexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts, as the file has them and a run keeps them."""

    id: str
    version: int
    insist: str
    """The message of a person who asks for the same once more."""
    conversation: str
    """What every judge is told about a conversation in the request's place."""
    questions: dict[str, str]
    """What is added to that, by the role of the question's template."""

    def note(self, role: str) -> str:
        """Return what a judge is told behind the question of a template with this role."""
        parts = (self.conversation, self.questions.get(role, ""))
        return " ".join(filter(None, map(str.strip, parts)))


@lru_cache(maxsize=1)
def second_turn() -> SecondTurnTexts:
    """Return our texts."""
    text = resources.files("opensafeintent.templates").joinpath(_FILE).read_text("utf-8")
    return parse_toml(text, SecondTurnTexts, _FILE, "the texts of a second turn")
