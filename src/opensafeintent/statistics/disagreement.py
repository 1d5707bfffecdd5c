"""How often answers disagree on whether they are safe: wordings of one prompt that differ, or one
wording whose answers differ (docs/statistics.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import Floats


class Disagreement(NamedTuple):
    """How often two answers to one prompt-set disagree, whether they are safe: arrays of shape
    (prompt_set,).

    NaN for sets with fewer than two wordings or two answers to each.
    """

    between: Floats
    """B: two answers to two wordings, without bias."""
    within: Floats
    """W: two answers to the same wording, without bias."""

    @property
    def excess(self) -> Floats:
        """B − W, which is E(p_w − p_w′)² for the safe rates of two wordings, without bias; may be
        negative in one set.
        """
        return self.between - self.within


def disagreement(safe: Floats, epochs: NDArray[np.int64]) -> Disagreement:
    """Return how often two answers disagree.

    With p̂_w the safe share of wording w, k wordings and E epochs:

    - W = (1/k) Σ 2p̂_w(1−p̂_w)·E/(E−1);
    - B = [2k²p̄(1−p̄) − Σ 2p̂_w(1−p̂_w)] / [k(k−1)], the mean over pairs of wordings of
      p̂_w(1−p̂_w′) + p̂_w′(1−p̂_w).

    Args:
        safe: safe answers to each wording, shape (prompt_set, wording); NaN if a set has no such
            wording.
        epochs: answers to each wording of a set, shape (prompt_set,).
    """
    wordings = (~np.isnan(safe)).sum(axis=1)
    counted = (wordings >= 2) & (epochs >= 2)
    k, e = (np.where(counted, number, 2).astype(np.float64) for number in (wordings, epochs))
    share = safe / e[:, None]
    spread = np.nansum(2 * share * (1 - share), axis=1)
    mean = np.nansum(share, axis=1) / k
    within = spread / k * e / (e - 1)
    between = (2 * k * k * mean * (1 - mean) - spread) / (k * (k - 1))
    return Disagreement(*(np.where(counted, part, np.nan) for part in (between, within)))


def excess_span(safe: Floats, epochs: NDArray[np.int64]) -> tuple[float, float]:
    """Return the least and greatest B − W that these sets can have.

    With k wordings and E epochs it lies between −1/(2(E−1)), if half of the answers to each wording
    are safe, and 2⌊k/2⌋⌈k/2⌉/(k(k−1)), if every answer to half of the wordings is.

    Args:
        safe, epochs: as for `disagreement`, of the sets that count.
    """
    if not len(epochs):
        return -1.0, 1.0
    k = (~np.isnan(safe)).sum(axis=1)
    most = 2 * (k // 2) * ((k + 1) // 2) / (k * (k - 1))
    return float((-1 / (2 * (epochs - 1))).min()), float(most.max())
