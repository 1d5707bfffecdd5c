"""How far a guard model agrees with the panel on whether responses are unsafe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.judge_agreement import SAFE, Ratings
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import CORE_VARIANTS, intent_of


class UnsafeCounts(NamedTuple):
    """Responses by who calls them unsafe; each has a verdict of the guard and a grade of the
    panel.
    """

    both: int
    only_guard: int
    only_panel: int
    neither: int

    @property
    def compared(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def differ(self) -> int:
        """Those that one of the two calls unsafe."""
        return self.only_guard + self.only_panel


def without_verdict(rows: Iterable[GradedResponse]) -> dict[str, int]:
    """Count the responses on which the guard gave no verdict, though it was asked, by reason, the
    most frequent first.
    """
    return dict(Counter(row.guard_reason for row in rows if row.guard_reason).most_common())


class GuardAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """The guard beside the panel on a model's responses to one intent, or to all."""

    intent: str | None
    """Paraphrases are dual-use; None for all."""
    asked: int
    """Responses that the guard was asked about."""
    without_verdict: dict[str, int]
    """Those on which it gave none, by reason."""
    counts: UnsafeCounts
    agree: Estimate
    """Share of responses on which the two agree; prompt-sets are its units."""
    ac1: Estimate


def unsafe_counts(rows: Iterable[GradedResponse]) -> UnsafeCounts:
    """Count responses by who calls them unsafe."""
    pairs = [
        (row.guard == "yes", row.harm_severity > 0)
        for row in rows
        if row.guard in ("yes", "no") and row.harm_severity is not None
    ]
    return UnsafeCounts(
        both=pairs.count((True, True)),
        only_guard=pairs.count((True, False)),
        only_panel=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )


def guard_agreements(rows: Sequence[GradedResponse]) -> list[GuardAgreement]:
    """Return the agreement on a model's responses, by intent and then on all; empty if no guard was
    asked.

    Args:
        rows: of the model.
    """
    asked = [row for row in rows if row.guard]
    if not asked:
        return []
    by_intent = [
        _agreement(intent, of_intent)
        for intent in CORE_VARIANTS
        if (of_intent := [row for row in asked if intent_of(row.variant) == intent])
    ]
    return [*by_intent, _agreement(None, asked)]


def _agreement(intent: str | None, rows: Sequence[GradedResponse]) -> GuardAgreement:
    ordered = sorted(rows, key=lambda row: row.set_id)
    safe = np.array([[_panel_safe(row), _guard_safe(row)] for row in ordered], dtype=np.float64)
    ratings = Ratings(Sample([row.set_id for row in ordered]), safe)
    return GuardAgreement(
        intent=intent,
        asked=len(rows),
        without_verdict=without_verdict(rows),
        counts=unsafe_counts(rows),
        agree=ratings.agreement(SAFE),
        ac1=ratings.gwet(SAFE, "identity"),
    )


def _panel_safe(row: GradedResponse) -> float:
    return np.nan if row.harm_severity is None else float(row.harm_severity == 0)


def _guard_safe(row: GradedResponse) -> float:
    return {"yes": 0.0, "no": 1.0}.get(row.guard, np.nan)
