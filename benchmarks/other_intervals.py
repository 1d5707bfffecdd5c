"""Other intervals of a ratio over prompt-sets, to hold ours against: Wilson, Clopper–Pearson, t,
BCa, Korn and Graubard, and t with two pseudo-sets.

Each takes rows of studies, Σ numerator / Σ denominator between 0 and 1, and returns 95 % limits of
each row. Written here from the sources; no other package is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from math import lgamma
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import Resamples
from opensafeintent.statistics.exact import t_quantile

Floats = NDArray[np.float64]
Limits = tuple[Floats, Floats]
Method = Callable[[Floats, Floats], Limits]

Z = NormalDist().inv_cdf(0.975)
RESAMPLES = 2_000


def effective(bottom: Floats) -> Floats:
    """Kish's number of sets of equal weight: shape (row,)."""
    return np.asarray(bottom.sum(axis=1) ** 2 / (bottom**2).sum(axis=1))


def values(top: Floats, bottom: Floats) -> Floats:
    return np.asarray(top.sum(axis=1) / bottom.sum(axis=1))


def variance(top: Floats, bottom: Floats) -> Floats:
    """The linearised variance of each row's ratio."""
    n = (bottom > 0).sum(axis=1)
    residuals = top - values(top, bottom)[:, None] * bottom
    return np.asarray(
        (residuals**2).sum(axis=1) / bottom.sum(axis=1) ** 2 * n / np.maximum(n - 1, 1)
    )


def wilson(top: Floats, bottom: Floats) -> Limits:
    """Wilson (1927), without continuity correction, of as many answers as there are sets."""
    p, n = values(top, bottom), effective(bottom)
    centre, spread = p + Z * Z / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (centre - spread) / (1 + Z * Z / n), (centre + spread) / (1 + Z * Z / n)


def clopper_pearson(top: Floats, bottom: Floats) -> Limits:
    """Clopper and Pearson (1934), exact for shares; scores as if their sum were a number of
    events.
    """
    p, n = values(top, bottom), effective(bottom)
    return beta_limits(p * n, n)


def korn_graubard(top: Floats, bottom: Floats) -> Limits:
    """Korn and Graubard (1998): Clopper–Pearson on as many answers as have this variance, for its
    degrees of freedom.
    """
    p, spread, n = values(top, bottom), variance(top, bottom), (bottom > 0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(spread > 1e-12, p * (1 - p) / spread, effective(bottom))
    size *= np.array([(Z / t_quantile(0.975, max(int(count) - 1, 1))) ** 2 for count in n])
    return beta_limits(p * size, size)


def student(top: Floats, bottom: Floats) -> Limits:
    """The mean and t standard errors."""
    p, n = values(top, bottom), (bottom > 0).sum(axis=1)
    half = np.sqrt(variance(top, bottom)) * np.array(
        [t_quantile(0.975, max(int(count) - 1, 1)) for count in n]
    )
    return p - half, p + half


def bca(top: Floats, bottom: Floats) -> Limits:
    """Efron's bias-corrected and accelerated bootstrap (1987)."""
    p = values(top, bottom)
    resamples = _resamples(top.shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = resamples.sums(top) / resamples.sums(bottom)
    drawn = np.sort(np.where(np.isfinite(drawn), drawn, np.nan), axis=1)
    below = ((drawn < p[:, None]).mean(axis=1) + (drawn <= p[:, None]).mean(axis=1)) / 2
    shift = _normal_quantile(np.clip(below, 1e-4, 1 - 1e-4))
    with np.errstate(invalid="ignore", divide="ignore"):
        without = (top.sum(axis=1, keepdims=True) - top) / (
            bottom.sum(axis=1, keepdims=True) - bottom
        )
        away = np.where(bottom > 0, np.nanmean(without, axis=1, keepdims=True) - without, 0.0)
        skew = (away**3).sum(axis=1) / (6 * (away**2).sum(axis=1) ** 1.5)
    skew = np.nan_to_num(skew)
    ends = []
    for z in (-Z, Z):
        share = _normal_share(shift + (shift + z) / (1 - skew * (shift + z)))
        at = np.clip(np.nan_to_num(share) * (drawn.shape[1] - 1), 0, drawn.shape[1] - 1).astype(int)
        ends.append(drawn[np.arange(len(drawn)), at])
    return ends[0], ends[1]


def with_pseudo_sets(weight: float, top: Floats, bottom: Floats) -> Limits:
    """The t interval over the sets and two pseudo-sets of this weight, one at each end of the
    scale; degrees of freedom from Kish's number of sets.
    """
    counts = weight * bottom.sum(axis=1) / (bottom > 0).sum(axis=1)
    total = bottom.sum(axis=1) + 2 * counts
    p = (top.sum(axis=1) + counts) / total
    squares = ((top - p[:, None] * bottom) ** 2).sum(axis=1)
    squares += counts**2 / weight * (p**2 + (1 - p) ** 2)
    n = total**2 / ((bottom**2).sum(axis=1) + 2 * counts**2 / weight)
    half = np.sqrt(squares / total**2 * n / (n - 1))
    half *= np.array([t_quantile(0.975, max(int(count) - 1, 1)) for count in n])
    return p - half, p + half


OTHERS: dict[str, Method] = {
    "Wilson": wilson,
    "Clopper–Pearson": clopper_pearson,
    "t": student,
    "BCa": bca,
    "Korn–Graubard": korn_graubard,
    "t, pseudo-sets ¾": partial(with_pseudo_sets, 0.75),
    "t, pseudo-sets 1": partial(with_pseudo_sets, 1.0),
}


@cache
def _resamples(sets: int) -> Resamples:
    return Resamples(sets, RESAMPLES)


def _normal_quantile(shares: Floats) -> Floats:
    return np.array([NormalDist().inv_cdf(float(share)) for share in shares])


def _normal_share(quantiles: Floats) -> Floats:
    return np.array([NormalDist().cdf(float(z)) for z in quantiles])


def beta_limits(events: Floats, n: Floats) -> Limits:
    """Clopper–Pearson limits, also of fractions of events: quantiles of beta distributions, by
    bisection.
    """
    events = np.clip(events, 0.0, n)
    none, every = events < 1e-9, events > n - 1e-9
    low = _beta_quantile(0.025, np.where(none, 1.0, events), n - events + 1)
    high = _beta_quantile(0.975, events + 1, np.where(every, 1.0, n - events))
    return np.where(none, 0.0, low), np.where(every, 1.0, high)


def _beta_quantile(share: float, a: Floats, b: Floats) -> Floats:
    low, high = np.zeros_like(a), np.ones_like(a)
    for _ in range(24):
        middle = (low + high) / 2
        under = beta_share(middle, a, b) < share
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return (low + high) / 2


def beta_share(x: Floats, a: Floats, b: Floats) -> Floats:
    """The incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun
    1964, 26.5.8).
    """
    swap = x > (a + 1) / (a + b + 2)
    x, a, b = np.where(swap, 1 - x, x), np.where(swap, b, a), np.where(swap, a, b)
    log_gamma = np.vectorize(lgamma)
    front = (
        np.exp(
            log_gamma(a + b)
            - log_gamma(a)
            - log_gamma(b)
            + a * np.log(x + 1e-300)
            + b * np.log1p(-x)
        )
        / a
    )
    d = 1 / (1 - (a + b) * x / (a + 1))
    c, fraction = np.ones_like(x), d
    for m in range(1, 30):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction = fraction * d * c
    return np.where(swap, 1 - front * fraction, front * fraction)
