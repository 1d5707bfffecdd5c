"""A response with its grades: each one graded, missing with a reason, or never asked for."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    DUAL_USE,
    Mode,
    ModesScope,
    ParseRule,
    ProbeScope,
    Strategy,
)


class ResponseKey(NamedTuple):
    """What tells the responses of a run apart."""

    model: str
    set_id: str
    variant: str
    epoch: int


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """A grade that could not be had. Never a number."""

    reason: str
    """`unparsed`, `filtered`, `failed`, `response:…`, or what an imported file said."""


class JudgeGrades(msgspec.Struct, frozen=True, kw_only=True):
    """One judge's two grades of one response."""

    helpfulness: int | Missing
    """1 to 4, raw."""
    harm_severity: int | Missing
    """0 to 3, raw."""


class GradedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a target wrote for one prompt, as far as metrics need it: the text itself stays in the
    ledger.
    """

    model: str
    set_id: str
    variant: str
    epoch: int
    stop_reason: str = ""
    """As the provider gave it; `content_filter` for a filtered response, empty where there is none.
    """
    truncated: bool = False
    refused: Literal["", "filter", "empty"] = ""
    """Counted as a refusal without a judge: the provider's filter, or an empty answer that ended by
    itself.
    """
    missing_response: str = ""
    """Why there is no response to grade."""
    grades: dict[str, JudgeGrades] = {}
    """By judge. Empty where no judge was needed or none was asked."""
    mode: Mode | Missing | None = None
    """None where it was not asked for."""
    strategy: Strategy | Missing | None = None

    @property
    def key(self) -> ResponseKey:
        """Which response it is."""
        return ResponseKey(self.model, self.set_id, self.variant, self.epoch)


class Grading(msgspec.Struct, frozen=True, kw_only=True):
    """Who grades a target's responses, and what is asked about them."""

    judges: tuple[str, ...] = ()
    mode_judge: str = ""
    modes: ModesScope = "dual_use"
    probe: ProbeScope = "unsafe"
    parse: ParseRule = "strict"

    def asks_mode(self, variant: str) -> bool:
        """Whether the mode judge is asked about the response to a wording."""
        return variant == DUAL_USE or (self.modes == "core" and variant in CORE_VARIANTS)

    def probes(self, variant: str, *, unsafe: bool) -> bool:
        """Whether the target is asked which strategy a prompt calls for, its response being unsafe
        or not.
        """
        return {
            "none": False,
            "unsafe": unsafe and variant == DUAL_USE,
            "all": variant in CORE_VARIANTS,
        }[self.probe]


class JudgePlan(Grading, frozen=True, kw_only=True):
    """Who grades a target's responses, and how target and judges are sampled."""

    judge_sampling: Sampling
    target_sampling: Sampling
    system: str | None = None

    def __post_init__(self) -> None:
        if not self.judges:
            raise InputError("no judge: name at least one with --judge")
