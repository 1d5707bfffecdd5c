"""A response with its grades."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from opensafeintent.taxonomy import Graded, GuardVerdict, Mode, Strategy


class ResponseKey(NamedTuple):
    """Identity of a response within a run."""

    model: str
    set_id: str
    variant: str
    epoch: int


class AboutResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A record about one response of a run."""

    model: str
    set_id: str
    variant: str
    epoch: int

    @property
    def key(self) -> ResponseKey:
        """Which response it is about."""
        return ResponseKey(self.model, self.set_id, self.variant, self.epoch)


NO_FIRST_REPLY = "no_first_reply"
"""The reason of a missing second reply without a first one to go on from."""


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """A grade that was requested but not obtained. Never a number."""

    reason: str
    """One of `evaluation.missing`, or a file's own reason."""


JudgeGrades = Mapping[Graded, int | Missing]
"""One judge's grades of one response, raw: one for each question that the run asks."""


Refusal = Literal["", "filter", "empty", "text_not_kept"]
"""Why a response counts as a refusal without a judge: the provider's filter gave no text, the
answer ended by itself without a word, or a filter's text was not stored.
"""


class GradedResponse(AboutResponse, frozen=True, kw_only=True):
    """A target's response to one prompt, as far as metrics need it: the text itself stays in the
    ledger.
    """

    stop_reason: str = ""
    """As the provider gave it; `content_filter` for a filtered response, empty if there is none."""
    truncated: bool = False
    """Whether a token limit or a filter cut the text that was graded."""
    refused: Refusal = ""
    """Why it counts as a refusal without a judge."""
    mark: str = ""
    """The beginning of a graded text, if it looks like a mark of reasoning that no table has."""
    reasoning_only: bool = False
    """Whether an attempt at it held reasoning and no text."""
    missing_response: str = ""
    """Why there is no response to grade."""
    grades: dict[str, JudgeGrades] = {}
    """By judge. Empty if no judge was needed or none was asked."""
    mode: Mode | Missing | None = None
    """None if it was not asked for."""
    strategy: Strategy | Missing | None = None
    guard: GuardVerdict | Missing | None = None
    """Whether the guard model calls it unsafe; None if there is no guard, or no text."""
