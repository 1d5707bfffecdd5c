"""Is one model better than another? Paired over the prompt-sets that count for both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import SEED, Floats, Resamples, estimate

__all__ = ["PERMUTATIONS", "Comparison", "compare_models", "holm", "rank_intervals"]

PERMUTATIONS = 100_000
_BLOCK = 5_000
_DETECTABLE = 2.8
"""z(0.975) + z(0.80): the difference that a two-sided test at 5 % finds with a power of 80 %, in standard errors."""


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
    """Smallest detectable difference: 2.8 × the paired standard error."""


def compare_models(
    numerator: Floats, denominator: Floats, resamples: Resamples, *, binary: bool, span: tuple[float, float] = (0.0, 1.0)
) -> Comparison:
    """Compare every two models on the sets that count for both.

    Args:
        numerator, denominator: shape (model, prompt_set).
        resamples: the same weights as for the models' own intervals.
        binary: whether a set's value is 0 or 1; with several epochs it no longer is, and the permutation test is used.
        span: least and greatest value that the metric can take.
    """
    models = len(numerator)
    shape = (models, models)
    difference, low, high, p, detectable = (np.full(shape, np.nan) for _ in range(5))
    n = np.zeros(shape, dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(denominator > 0, numerator / denominator, np.nan)
    pairs = [(a, b) for a in range(models) for b in range(a + 1, models)]
    rows = []
    for a, b in pairs:
        both = ~np.isnan(values[a]) & ~np.isnan(values[b])
        rows.append(np.where(both, values[a] - values[b], 0.0))
        n[a, b] = n[b, a] = int(both.sum())
    if not pairs:
        return Comparison(difference, low, high, n, p, p.copy(), detectable)
    paired = np.array(rows)
    counted = np.array([~np.isnan(values[a]) & ~np.isnan(values[b]) for a, b in pairs], dtype=float)
    width = span[1] - span[0]
    got = estimate(paired, counted, resamples, span=(-width, width))
    exact = binary and bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all())
    tested = _mcnemar(paired) if exact else _sign_flips(paired)
    for row, (a, b) in enumerate(pairs):
        if not n[a, b]:
            continue
        inside = paired[row][counted[row] > 0]
        error = float(inside.std(ddof=1)) / np.sqrt(n[a, b]) if n[a, b] > 1 else np.nan
        difference[a, b], difference[b, a] = got.value[row], -got.value[row]
        low[a, b], high[a, b] = got.low[row], got.high[row]
        low[b, a], high[b, a] = -got.high[row], -got.low[row]
        p[a, b] = p[b, a] = tested[row]
        detectable[a, b] = detectable[b, a] = _DETECTABLE * error
    p_holm = np.full(shape, np.nan)
    corrected = holm(np.array([p[a, b] for a, b in pairs]))
    for value, (a, b) in zip(corrected, pairs, strict=True):
        p_holm[a, b] = p_holm[b, a] = value
    return Comparison(difference, low, high, n, p, p_holm, detectable)


def _mcnemar(paired: Floats) -> Floats:
    """Exact two-sided McNemar: binomial on the discordant sets (McNemar 1947)."""
    from scipy.stats import binom

    better, worse = (paired > 0).sum(axis=1), (paired < 0).sum(axis=1)
    discordant = better + worse
    p: Floats = np.minimum(2 * binom.cdf(np.minimum(better, worse), discordant, 0.5), 1.0)
    return p


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


def rank_intervals(comparison: Comparison, alpha: float = 0.05) -> list[tuple[int, int]]:
    """Return the ranks that each model may have: [1 + significantly better, m − significantly worse]."""
    with np.errstate(invalid="ignore"):
        significant = comparison.p_holm < alpha
        better = (significant & (comparison.difference < 0)).sum(axis=1)
        worse = (significant & (comparison.difference > 0)).sum(axis=1)
    models = len(better)
    return [(1 + int(above), models - int(below)) for above, below in zip(better, worse, strict=True)]
