"""Records of metrics that human labels correct (`extensions.correction`)."""

from __future__ import annotations

import msgspec

from opensafeintent.statistics import Estimate


class Corrected(Estimate, frozen=True, kw_only=True):
    """A corrected value; `n` units are labelled."""

    value: float
    interval: tuple[float, float]
    sets: int
    """Prompt-sets that the labels are of."""
    power: float
    """How far the judge is relied on, from 0 (the labels alone) to 1."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one model, according to the judge and corrected."""

    group: int
    """Index among the report's groups."""
    model: str
    metric: str
    raw: Estimate
    corrected: Corrected | None
    units: str
    """The labelled unit: single responses, or whole prompt-sets."""
    annotators: int
    """People who labelled them."""
    refused: str | None = None
    """Why there is no corrected value."""
