"""What a correction comes to: a value with its interval, or the reason why there is none."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from opensafeintent.statistics.intervals import CONFIDENCE, SEED, Estimate, Floats, rounded

__all__ = ["Corrected", "Limits", "Method", "Refused", "Unit", "half_labels", "interval"]

Limits = tuple[float, float]
"""The ends of an interval."""

Unit = Literal["responses", "prompt-sets"]
"""What is labelled: single responses, or whole prompt-sets."""

Method = Literal["ppi++", "rogan-gladen", "rogan-gladen-pooled", "rates-product"]
"""How a value was corrected:

- `ppi++`: the judge's mean over everything, shifted by the mean difference among this model's labelled responses (or sets);
- `rogan-gladen`: the share judged safe, put through the judge's error rates of each intent;
- `rogan-gladen-pooled`: the same with one pair of rates for all intents;
- `rates-product`: in each set the product over intents of what the error rates make of each judgement.
"""


class Corrected(Estimate, frozen=True, kw_only=True):
    """A corrected value; `n` units are labelled, and the labels are resampled as well as the prompt-sets."""

    value: float
    interval: Limits
    method: Method
    units: Unit = "responses"
    sets: int
    """Prompt-sets that the labels are of."""
    power: float | None = None
    """With `ppi++`: how far the judge is relied on, from 0 (the labels alone) to 1."""


class Refused(msgspec.Struct, frozen=True):
    """There is no corrected value."""

    reason: str


@lru_cache(maxsize=4)
def half_labels(kinds: int, resamples: int) -> Floats:
    """Return random numbers of labels with mean one half, shape (kind, resample), seeded.

    A percentile bootstrap takes an error that does not occur among a few labels for one that never occurs. Half a label of
    each kind is what Jeffreys' prior adds to a share: with a Gamma(½) number of them the resampled share has its posterior.
    """
    drawn = np.random.default_rng([SEED, kinds]).gamma(0.5, size=(kinds, resamples))
    drawn.setflags(write=False)  # everyone is given the same ones
    return drawn


def interval(*distributions: Floats, span: Limits = (0.0, 1.0), also: Limits | None = None) -> Limits:
    """Return the widest 95 % limits of several bootstrap distributions, within the values that there can be; rounded.

    Args:
        distributions: each of shape (resample,).
        span: the least and the greatest value.
        also: limits that were found in another way.
    """
    tail = (1 - CONFIDENCE) / 2
    finite = [drawn[np.isfinite(drawn)] for drawn in distributions]
    limits = [tuple(np.quantile(drawn, [tail, 1 - tail])) for drawn in finite if len(drawn)] or [span]
    limits += [also] if also else []
    low, high = min(pair[0] for pair in limits), max(pair[1] for pair in limits)
    return rounded(np.clip(low, *span)), rounded(np.clip(high, *span))
