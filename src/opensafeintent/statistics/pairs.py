"""How far two models are apart, standardised: one statistic for differences of 0/1 and of
scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import Floats, rounded

_HALVINGS = 40
_BETWEEN = 32
_REFINEMENTS = 5
"""An end of an interval is looked for among 32 differences at a time: to a part in 32⁵ of the span.
"""
_NOTHING = 1e-12


def score_statistic(
    values: Floats,
    counts: NDArray[np.integer] | Floats,
    against: Floats | float,
    width: float,
    *,
    skewness: bool = True,
) -> Floats:
    """Return the score statistic of a mean difference, corrected for skewness: standard normal
    where the mean is `against`.

    z = Σ(d − Δ) / √(n V), V the variance of the likeliest distribution of differences within ±
    `width` whose mean is Δ: the empirical likelihood (Owen, Biometrika 75, 1988) with both greatest
    differences as possible values, observed or not. For differences of 0/1 it is that of Tango
    (Statistics in Medicine 17, 1998), and at Δ = 0 McNemar's. With γ the third
    central moment over V^(3/2) √n, what is returned is the x of z = x + γ (x² − 1) / 6 (Gart and
    Nam, Biometrics 44, 1988): where one model alone fails now and then, z itself errs up to four
    times α at the small α of many comparisons.

    Args:
        values: the differences that there are. Shape (value,).
        counts: how many prompt-sets have each, at least one in all. Shape (…, value).
        against: Δ, above −`width` and below `width`. Shape (…,).
        width: the greatest difference that a set can have.
        skewness: whether to correct for it.

    Returns:
        Shape (…,); 0 where all differences are Δ.
    """
    against = np.asarray(against, dtype=np.float64)
    away = values - against[..., None]
    shape = np.broadcast_shapes(counts.shape[:-1], against.shape)
    low = np.broadcast_to(-1 / (width - against), shape).copy()
    high = np.broadcast_to(1 / (width + against), shape).copy()
    for _ in range(
        _HALVINGS
    ):  # the tilt λ at which Σ (d − Δ) / (1 + λ (d − Δ)) is 0, within what all differences allow
        tilt = (low + high) / 2
        positive = (counts * away / np.maximum(1 + tilt[..., None] * away, _NOTHING)).sum(
            axis=-1
        ) > 0
        low, high = np.where(positive, tilt, low), np.where(positive, high, tilt)
    tilt = (low + high) / 2
    n = counts.sum(axis=-1)
    likeliest = counts / n[..., None] / np.maximum(1 + tilt[..., None] * away, _NOTHING)
    unseen = np.maximum(
        1 - likeliest.sum(axis=-1), 0
    )  # what the greatest difference against the tilt must have
    farthest = np.where(tilt > 0, -width, width) - against
    variance = (likeliest * away**2).sum(axis=-1) + unseen * farthest**2
    third = (likeliest * away**3).sum(axis=-1) + unseen * farthest**3
    spread = np.where(variance > _NOTHING, variance, np.inf)
    z: Floats = (counts * away).sum(axis=-1) / np.sqrt(n * spread)
    return _unskewed(z, third / (spread**1.5 * np.sqrt(n)) / 6) if skewness else z


def _unskewed(z: Floats, skew: Floats) -> Floats:
    """Return the x of z = x + skew·(x² − 1); where there is none, the x nearest to it."""
    root = np.sqrt(np.maximum(1 + 4 * skew * (z + skew), 0)) - 1
    small = np.abs(skew) < 1e-6
    return np.where(small, z, root / np.where(small, 1, 2 * skew))


def differences_not_rejected(
    values: Floats, counts: Floats, quantile: float, width: float, *, skewness: bool = True
) -> tuple[float, float]:
    """Return the mean differences whose statistic stays within ± `quantile`: an interval within ±
    `width`.

    Args:
        values, counts: as for `score_statistic`, counts of shape (value,).
        quantile: above 0.
        width: the greatest difference that a set can have.
        skewness: whether the statistic is corrected for it.
    """
    mean = float(values @ counts) / float(counts.sum())

    def end(far: float) -> float:
        near = mean
        if abs(near - far) < _NOTHING:
            return far
        for _ in range(_REFINEMENTS):
            tried = np.linspace(near, far, _BETWEEN + 1)[1:-1]
            every = np.broadcast_to(counts, (len(tried), len(counts)))
            rejected = (
                np.abs(score_statistic(values, every, tried, width, skewness=skewness)) >= quantile
            )
            first = int(rejected.argmax()) if rejected.any() else len(tried)
            near, far = (
                (near if first == 0 else float(tried[first - 1])),
                (far if first == len(tried) else float(tried[first])),
            )
        return far

    return rounded(end(-width)), rounded(end(width))
