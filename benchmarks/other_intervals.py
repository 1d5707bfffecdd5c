"""Other intervals of a ratio over prompt-sets, to compare ours with.

The same t interval with another weight of the pseudo-observations; a plain t interval; and the
narrowest known method for each kind: mid-P for shares, Bonett and Price's for differences of
shares, the percentile bootstrap with pseudo-observations for everything else ("tailored"). For
differences of scores also the score interval. Each takes rows of simulations and returns 95 %
limits of each row. Written from the sources.
"""

from __future__ import annotations

from functools import cache
from math import lgamma
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import t_quantile

Floats = NDArray[np.float64]
Limits = tuple[Floats, Floats]

Z = NormalDist().inv_cdf(0.975)
RESAMPLES = 1_000


def with_pseudo_observations(
    top: Floats, bottom: Floats, span: tuple[float, float], weight: float
) -> Limits:
    """The t interval over the sets and two pseudo-observations of this weight, one at each end of
    the scale.
    """
    total, squares = bottom.sum(axis=1), (bottom**2).sum(axis=1)
    more = weight * squares / total
    every = total + 2 * more
    centre = (top.sum(axis=1) + more * sum(span)) / every
    away = ((top - centre[:, None] * bottom) ** 2).sum(axis=1)
    if weight:
        away += more**2 / weight * ((span[0] - centre) ** 2 + (span[1] - centre) ** 2)
        squares = squares + 2 * more**2 / weight
    n = np.round(every**2 / squares, 9)
    half = np.sqrt(away * n / np.maximum(n - 1, 1e-9)) / every
    half *= np.array([t_quantile(0.975, max(int(count) - 1, 1)) for count in n])
    return np.maximum(centre - half, span[0]), np.minimum(centre + half, span[1])


def tailored(top: Floats, bottom: Floats, span: tuple[float, float], binary: bool) -> Limits:
    """The narrowest known method for this kind of data."""
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(bottom > 0, top / bottom, np.nan)
    n = np.round(bottom.sum(axis=1) ** 2 / (bottom**2).sum(axis=1), 9)
    if span[0] < 0 and binary:
        return bonett_price(top, bottom)
    found = bootstrap(top, bottom, span, n)
    value = top.sum(axis=1) / bottom.sum(axis=1)
    alike = np.nanmax(values, axis=1) - np.nanmin(values, axis=1) < 1e-9
    missed = 1 - 0.05 ** (1 / n)
    low = np.where(alike, value - (value - span[0]) * missed, found[0])
    high = np.where(alike, value + (span[1] - value) * missed, found[1])
    if binary:
        exact = ~alike & (np.isnan(values) | np.isin(values, (0, 1))).all(axis=1)
        exact &= (np.where(bottom > 0, bottom, bottom.max()) == bottom.max()).all(axis=1)
        for row in np.flatnonzero(exact):
            low[row], high[row] = mid_p(int(np.nansum(values[row])), int((bottom[row] > 0).sum()))
    return low, high


def bootstrap(top: Floats, bottom: Floats, span: tuple[float, float], n: Floats) -> Limits:
    """The percentile bootstrap, each resample with two pseudo-observations that count Gamma(¾) times
    as much as a set; its tails are as much wider as Student's t is than the normal distribution.
    """
    weights, pseudo = resampled(top.shape[1])
    once = ((bottom**2).sum(axis=1) / bottom.sum(axis=1))[:, None]
    total = bottom @ weights + once * pseudo.sum(axis=0)
    ends = []
    for end, chances in ((0, pseudo), (1, pseudo[::-1])):
        drawn = np.sort((top @ weights + once * (np.array(span) @ chances)) / total, axis=1)
        tails = [NormalDist().cdf(-t_quantile(0.975, max(int(each) - 1, 1))) for each in n]
        at = np.round(np.abs(end - np.array(tails)) * (RESAMPLES - 1)).astype(int)
        ends.append(drawn[np.arange(len(drawn)), at])
    value = top.sum(axis=1) / bottom.sum(axis=1)
    return np.minimum(ends[0], value), np.maximum(ends[1], value)


@cache
def resampled(sets: int) -> tuple[Floats, Floats]:
    """What each set, and each pseudo-observation, counts in each resample."""
    generator = np.random.default_rng(20260702)
    weights = generator.multinomial(sets, np.full(sets, 1 / sets), RESAMPLES).T
    return weights.astype(float), generator.standard_gamma(0.75, size=(2, RESAMPLES))


def bonett_price(top: Floats, bottom: Floats) -> Limits:
    """Bonett and Price (2012), differences of 0/1."""
    more = (bottom**2).sum(axis=1) / bottom.sum(axis=1)
    every = bottom.sum(axis=1) + 2 * more
    centre = top.sum(axis=1) / every
    away = ((top - centre[:, None] * bottom) ** 2).sum(axis=1)
    away += more**2 * ((1 - centre) ** 2 + (1 + centre) ** 2)
    half = Z * np.sqrt(away) / every
    return np.maximum(centre - half, -1), np.minimum(centre + half, 1)


def score(values: Floats) -> Limits:
    """Every mean difference Δ with |Σ(d − Δ)| / √(n V) ≤ Student's t quantile.

    V is the variance of the likeliest distribution within ±1 with the mean Δ: empirical likelihood
    (Owen, Biometrika 75, 1988), with the two greatest differences as possible values. For
    differences of 0/1 it is Tango's (Statistics in Medicine 17, 1998).
    """
    quantile = t_quantile(0.975, values.shape[1] - 1)
    ends = []
    for end in (-1, 1):
        near, far = values.mean(axis=1), np.full(len(values), end * (1 - 1e-9))
        for _ in range(30):
            middle = (near + far) / 2
            rejected = np.abs(score_statistic(values, middle)) > quantile
            near, far = np.where(rejected, near, middle), np.where(rejected, middle, far)
        ends.append(far)
    return ends[0], ends[1]


def score_statistic(values: Floats, against: Floats) -> Floats:
    """The statistic of `score` for a Δ of each row."""
    away = values - against[:, None]
    low, high = -1 / (1 - against), 1 / (1 + against)
    for _ in range(40):  # the tilt λ at which Σ (d − Δ) / (1 + λ (d − Δ)) is 0
        tilt = (low + high) / 2
        above = (away / np.maximum(1 + tilt[:, None] * away, 1e-12)).sum(axis=1) > 0
        low, high = np.where(above, tilt, low), np.where(above, high, tilt)
    likeliest = 1 / values.shape[1] / np.maximum(1 + tilt[:, None] * away, 1e-12)
    unseen = np.maximum(1 - likeliest.sum(axis=1), 0)
    variance = (likeliest * away**2).sum(axis=1)
    variance += unseen * (np.where(tilt > 0, -1.0, 1.0) - against) ** 2
    return np.asarray(away.sum(axis=1) / np.sqrt(values.shape[1] * np.maximum(variance, 1e-12)))


@cache
def mid_p(events: int, n: int) -> tuple[float, float]:
    """Lancaster (1961): every share at which neither tail, the observed count taken half, is rarer
    than 2.5 %.
    """
    if 2 * events > n:
        low, high = mid_p(n - events, n)
        return 1 - high, 1 - low
    if not events:
        return 0.0, 1 - float(0.05 ** (1 / n))
    counts = np.arange(n + 1)
    choose = np.array([lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) for k in counts])

    def at_most(share: float) -> float:
        chances = np.exp(choose + counts * np.log(share) + (n - counts) * np.log1p(-share))
        return float(chances[:events].sum() + chances[events] / 2)

    def where(below: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(middle) > below else (low, middle)
        return low

    return where(0.975), where(0.025)
