"""What a flip is made of: wordings of one prompt that differ, or one wording whose answers differ (docs/statistics.md)."""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import SEED, Floats

__all__ = ["Disagreement", "disagreement", "permutation_p"]

_PERMUTATIONS = 10_000
_MOST_LISTED = 8
"""Epochs up to which every deal is listed; with more they are drawn."""


class Disagreement(NamedTuple):
    """How often two answers to one prompt-set disagree, whether they are safe: arrays of shape (prompt_set,).

    NaN for sets with fewer than two wordings or two answers to each.
    """

    between: Floats
    """B: two answers to two wordings, without bias."""
    within: Floats
    """W: two answers to the same wording, without bias."""

    @property
    def excess(self) -> Floats:
        """B − W, which is E(p_w − p_w′)² for the safe rates of two wordings, without bias; may be negative in one set."""
        return self.between - self.within


def disagreement(safe: Floats, epochs: NDArray[np.int64]) -> Disagreement:
    """Return how often two answers disagree.

    With p̂_w the safe share of wording w, k wordings and E epochs: W = (1/k) Σ 2p̂_w(1−p̂_w)·E/(E−1), and
    B = [2k²p̄(1−p̄) − Σ 2p̂_w(1−p̂_w)] / [k(k−1)], which is the mean over pairs of wordings of p̂_w(1−p̂_w′) + p̂_w′(1−p̂_w).

    Args:
        safe: how many answers to each wording are safe, shape (prompt_set, wording); NaN where a set has no such wording.
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


def permutation_p(safe: Floats, epochs: NDArray[np.int64], seed: int = SEED) -> float | None:
    """Return the p-value of "the wording makes no difference": a set's answers are dealt out to its wordings at random.

    One-sided, for an effect can only make wordings differ more; 10,000 seeded permutations, the observed one counted in.
    Sets with as many wordings, epochs and safe answers share the distribution that deals are drawn from.

    Args:
        safe, epochs: as for `disagreement`.

    Returns:
        None where no set's answers could be dealt out in two ways.
    """
    wordings = (~np.isnan(safe)).sum(axis=1)
    total = np.nansum(safe, axis=1)
    open_sets = np.flatnonzero((wordings >= 2) & (epochs >= 2) & (total > 0) & (total < wordings * epochs))
    if not len(open_sets):
        return None
    kinds = np.stack([wordings, epochs, total.astype(np.int64)], axis=1)[open_sets]
    shapes, times = np.unique(kinds, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    drawn = np.zeros(_PERMUTATIONS)
    for (k, e, there), many in zip(shapes.tolist(), times.tolist(), strict=True):
        if e <= _MOST_LISTED:
            values, chances = _deals(k, e, there)
            drawn += generator.multinomial(many, chances, size=_PERMUTATIONS) @ values
        else:
            for _ in range(many):
                dealt = generator.multivariate_hypergeometric([e] * k, there, size=_PERMUTATIONS).astype(np.float64)
                drawn += disagreement(dealt, np.full(_PERMUTATIONS, e)).excess
    observed = float(np.nansum(disagreement(safe[open_sets], epochs[open_sets]).excess))
    return float((1 + (drawn >= observed - 1e-9 * max(1.0, abs(observed))).sum()) / (1 + _PERMUTATIONS))


def _deals(k: int, e: int, there: int) -> tuple[Floats, Floats]:
    """Return the values that B − W can take, and their chances, when so many safe answers fall to k wordings of e answers."""
    ways: dict[tuple[int, int], float] = {(0, 0): 1.0}  # by answers dealt out and pairs that disagree within wordings
    choose = [comb(e, count) for count in range(e + 1)]
    for _ in range(k):
        longer: dict[tuple[int, int], float] = {}
        for (dealt, pairs), chance in ways.items():
            for count in range(min(e, there - dealt) + 1):
                key = dealt + count, pairs + count * (e - count)
                longer[key] = longer.get(key, 0.0) + chance * choose[count]
        scale = sum(longer.values())
        ways = {key: chance / scale for key, chance in longer.items()}
    ends = {pairs: chance for (dealt, pairs), chance in ways.items() if dealt == there}
    within = np.array(list(ends), dtype=np.float64)
    chances = np.array(list(ends.values()))
    across = there * (k * e - there) - within
    return 2 * across / (k * (k - 1) * e * e) - 2 * within / (k * e * (e - 1)), chances / chances.sum()
