"""Is one model better than another? Paired over the prompt-sets that count for both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import SEED, Estimate, Floats, Resamples, estimate, rounded

__all__ = [
    "PERMUTATIONS",
    "SIGNIFICANCE",
    "Comparison",
    "Difference",
    "binomial_tail",
    "compare_models",
    "holm",
    "rank_intervals",
]

PERMUTATIONS = 100_000
SIGNIFICANCE = 0.05
"""A difference with a corrected p below is more than chance explains."""
_BLOCK = 5_000
_DETECTABLE = 2.8
"""z(0.975) + z(0.80): the difference that a two-sided test at 5 % finds with a power of 80 %, in standard errors."""


class Difference(Estimate, frozen=True, kw_only=True):
    """The difference of two models, first minus second; `n` prompt-sets count for both."""

    p: float
    p_holm: float
    detectable: float | None
    """None where no set differs from another."""


class Comparison(NamedTuple):
    """Differences of every two models in one metric: arrays of shape (model, model), row minus column; NaN where none."""

    difference: Floats
    low: Floats
    high: Floats
    """95 % interval of the difference."""
    n: NDArray[np.int64]
    """Prompt-sets that count for both."""
    p: Floats
    """Exact McNemar for binary metrics, sign-flip permutation for means; two-sided."""
    p_holm: Floats
    """Holm's correction within the family of all pairs."""
    detectable: Floats
    """Smallest detectable difference: 2.8 × the paired standard error; NaN where no set differs from another."""

    def pair(self, first: int, second: int) -> Difference | None:
        """Return the difference of two models, rounded; None where no prompt-set counts for both."""
        at = first, second
        if not self.n[at]:
            return None
        return Difference(
            value=rounded(self.difference[at]),
            n=int(self.n[at]),
            interval=(rounded(self.low[at]), rounded(self.high[at])),
            p=rounded(self.p[at]),
            p_holm=rounded(self.p_holm[at]),
            detectable=None if np.isnan(self.detectable[at]) else rounded(self.detectable[at]),
        )


def compare_models(
    ratios: Mapping[str, tuple[Floats, Floats]], resamples: Resamples, *, binary: Collection[str] = ()
) -> dict[str, Comparison]:
    """Compare every two models on the sets that count for both, in each of several metrics between 0 and 1.

    Args:
        ratios: numerator and denominator by metric, each of shape (model, prompt_set).
        resamples: the same weights as for the models' own intervals.
        binary: metrics in which a set's value is 0 or 1: tested by exact McNemar. With several epochs it no longer is, and
            the permutation test is used, as for means.
    """
    paired = {name: _Paired(top, bottom) for name, (top, bottom) in ratios.items()}
    exact = {name for name in paired if name in binary and paired[name].zero_or_one}
    means = [name for name in paired if name not in exact and len(paired[name].pairs)]
    flipped = _sign_flips(np.concatenate([paired[name].differences for name in means])) if means else np.empty(0)
    p = {name: _mcnemar(paired[name].differences) for name in exact}
    p |= dict(zip(means, np.split(flipped, len(means)), strict=True)) if means else {}
    return {name: pair.comparison(resamples, p.get(name, np.empty(0))) for name, pair in paired.items()}


class _Paired:
    """Differences of every two models, set by set: arrays of shape (pair, prompt_set)."""

    def __init__(self, numerator: Floats, denominator: Floats) -> None:
        self.models = len(numerator)
        self.pairs = [(a, b) for a in range(self.models) for b in range(a + 1, self.models)]
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.where(denominator > 0, numerator / denominator, np.nan)
        self.zero_or_one = bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all())
        first, second = np.array(self.pairs, dtype=int).reshape(-1, 2).T
        differences = values[first] - values[second]
        self.counted = (~np.isnan(differences)).astype(np.float64)
        self.differences = np.nan_to_num(differences)

    def comparison(self, resamples: Resamples, p: Floats) -> Comparison:
        got = estimate(self.differences, self.counted, resamples, span=(-1.0, 1.0))
        p = np.where(got.n > 0, p, np.nan)
        centred = np.where(self.counted > 0, self.differences - got.value[:, None], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.sqrt((centred**2).sum(axis=1) / (got.n - 1) / got.n)
        error = np.where(error > 0, error, np.nan)
        n = np.zeros((self.models, self.models), dtype=np.int64)
        for count, (a, b) in zip(got.n, self.pairs, strict=True):
            n[a, b] = n[b, a] = count
        return Comparison(
            difference=self._square(got.value, -got.value),
            low=self._square(got.low, -got.high),
            high=self._square(got.high, -got.low),
            n=n,
            p=self._square(p, p),
            p_holm=self._square(holm(p), holm(p)),
            detectable=self._square(_DETECTABLE * error, _DETECTABLE * error),
        )

    def _square(self, above: Floats, below: Floats) -> Floats:
        """Return (model, model) from what belongs above and below the diagonal."""
        square = np.full((self.models, self.models), np.nan)
        for row, (a, b) in enumerate(self.pairs):
            square[a, b], square[b, a] = above[row], below[row]
        return square


def _mcnemar(paired: Floats) -> Floats:
    """Exact two-sided McNemar: binomial on the discordant sets (McNemar 1947)."""
    better, worse = (paired > 0).sum(axis=1), (paired < 0).sum(axis=1)
    discordant = better + worse
    rarer = np.minimum(better, worse)
    tails = [binomial_tail(int(few), int(count)) for few, count in zip(rarer, discordant, strict=True)]
    p: Floats = np.minimum(2 * np.asarray(tails, dtype=float), 1.0)
    return p


@lru_cache(maxsize=4096)
def binomial_tail(successes: int, trials: int) -> float:
    """Return the probability of so many successes or fewer in trials that succeed half of the time; exact."""
    return sum(comb(trials, count) for count in range(successes + 1)) / (1 << trials)


def _sign_flips(paired: Floats) -> Floats:
    """Two-sided sign-flip permutation test of a zero mean, 10⁵ seeded flips, the observed one counted in."""
    generator = np.random.default_rng(SEED)
    columns = np.ascontiguousarray(paired.T, dtype=np.float32)
    observed = np.abs(paired.sum(axis=1)) * (1 - 1e-5) - 1e-6  # ties by rounding count as ties
    beyond = np.zeros(len(paired), dtype=np.int64)
    for start in range(0, PERMUTATIONS, _BLOCK):
        rows = min(_BLOCK, PERMUTATIONS - start)
        bits = generator.integers(0, 2, size=(rows, paired.shape[1]), dtype=np.int8)
        flips = bits.astype(np.float32) * 2 - 1
        beyond += (np.abs(flips @ columns) >= observed).sum(axis=0)
    return np.asarray((1 + beyond) / (1 + PERMUTATIONS), dtype=np.float64)


def holm(p: Floats) -> Floats:
    """Return p-values after Holm's step-down correction; NaN stays NaN and is not part of the family (Holm 1979)."""
    corrected = np.full(len(p), np.nan)
    there = np.flatnonzero(~np.isnan(p))
    ordered = there[np.argsort(p[there], kind="stable")]
    running = 0.0
    for place, index in enumerate(ordered):
        running = max(running, min((len(ordered) - place) * float(p[index]), 1.0))
        corrected[index] = running
    return corrected


def rank_intervals(comparison: Comparison, alpha: float = SIGNIFICANCE) -> list[tuple[int, int]]:
    """Return the ranks that each model may have: [1 + significantly better, m − significantly worse]."""
    with np.errstate(invalid="ignore"):
        significant = comparison.p_holm < alpha
        better = (significant & (comparison.difference < 0)).sum(axis=1)
        worse = (significant & (comparison.difference > 0)).sum(axis=1)
    models = len(better)
    return [(1 + int(above), models - int(below)) for above, below in zip(better, worse, strict=True)]
