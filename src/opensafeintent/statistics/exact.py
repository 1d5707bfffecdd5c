"""Intervals with a formula for shares and for their differences; Student's t quantiles.

Nothing here is drawn at random. scipy need not be installed.
"""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, exp, lgamma, log, pi, sin, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95


# Shares
# ------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def mid_p(events: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the mid-P interval of a binomial share (Lancaster 1961; Berry and Armitage 1995).

    It holds every p under which neither tail, the observed count taken half, is rarer than (1 −
    confidence) / 2. With no event its upper end is where (1 − p)ⁿ = 1 − confidence, and the other
    way round. `events` and `n − events` have mirrored intervals, exactly.

    Args:
        events: 0 to n.
        n: independent answers, 1 or more.
        confidence: above 0 and below 1.
    """
    if 2 * events > n:
        low, high = mid_p(n - events, n, confidence)
        return 1.0 - high, 1.0 - low
    tail = (1 - confidence) / 2
    if events == 0:
        return 0.0, no_event(n, confidence)
    return _share_at(events, n, tail), 1.0 - _share_at(n - events, n, tail)


def no_event(n: float, confidence: float = CONFIDENCE) -> float:
    """Return the share at which n independent answers have no event in 1 − confidence of all
    studies.
    """
    return 1.0 - float((1 - confidence) ** (1 / n))


def least_share(events: int, n: int, confidence: float) -> float:
    """Return the lower end of a binomial share at a one-sided confidence (Clopper and Pearson
    1934).

    It is the p at which so many events or more come in 1 − `confidence` of all studies; 0 where
    there is none.
    """
    return _share_at(events, n, 1 - confidence, counted=1.0) if events else 0.0


def _share_at(events: int, n: int, tail: float, counted: float = 0.5) -> float:
    """Return the p at which P(X > events) + `counted` · P(X = events) is `tail`: Newton's steps,
    kept within a bracket.
    """
    low, high = 0.0, 1.0
    share = events / n
    share = min(max(share - 2 * sqrt(share * (1 - share) / n), share / 4), 0.999)
    for _ in range(100):
        term = exp(
            lgamma(n + 1)
            - lgamma(events + 1)
            - lgamma(n - events + 1)
            + events * log(share)
            + (n - events) * log(1 - share)
        )
        beyond, odds, count, added = 0.0, share / (1 - share), events, term
        while count < n and (added > 1e-17 or count < n * share):
            added *= (n - count) / (count + 1) * odds
            count += 1
            beyond += added
        found = beyond + counted * term
        if found < tail:
            low = share
        else:
            high = share
        slope = term * (counted * events / share + (1 - counted) * (n - events) / (1 - share))
        closer = share - found * log(found / tail) / slope if found > 0 and slope > 0 else low
        if not low < closer < high:
            closer = (low + high) / 2
        if abs(closer - share) < 1e-12:
            return closer
        share = closer
    return share


def wilson(
    share: float, n: float, *, continuity: bool = False, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Wilson's interval of a share of `n` (Wilson 1927).

    With `continuity` the share is first moved by half an event to either side (Newcombe 1998,
    method 4). Plain Wilson covers only 84–93 % for some shares near 0 and 1 and for few sets; the
    corrected one covers at least 95 % there, and is wider.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    half_event = 0.5 / n if continuity else 0.0

    def limit(shifted: float, sign: float) -> float:
        centre = shifted + z * z / (2 * n)
        spread = z * sqrt(shifted * (1 - shifted) / n + z * z / (4 * n * n))
        return (centre + sign * spread) / (1 + z * z / n)

    low = 0.0 if share <= half_event else limit(share - half_event, -1.0)
    high = 1.0 if share >= 1 - half_event else limit(share + half_event, 1.0)
    return max(low, 0.0), min(high, 1.0)


# Differences of shares
# ------------------------------------------------------------------------------


def bonett_price(
    values: Floats, weights: Floats, greatest: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of a mean of paired differences of shares (Bonett and Price 2012).

    Two sets are added, one with the greatest difference either way; the rest is the normal
    interval.

    Args:
        values: differences of the sets that count, shape (prompt_set,).
        weights: what each set counts, shape (prompt_set,).
        greatest: difference that a set can have.
    """
    more = float(weights @ weights / weights.sum())
    values, weights = np.append(values, (greatest, -greatest)), np.append(weights, (more, more))
    centre = float(values @ weights / weights.sum())
    apart = weights * (values - centre)
    half = (
        NormalDist().inv_cdf(0.5 + confidence / 2)
        * sqrt(float(apart @ apart))
        / float(weights.sum())
    )
    return max(centre - half, -greatest), min(centre + half, greatest)


# Student's t, for whole degrees of freedom
# ------------------------------------------------------------------------------

_MANY = 200
"""Degrees of freedom from which on the expansion in their inverse is exact to eight digits or more.
"""


@lru_cache(maxsize=4096)
def t_quantile(share: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, exact to about eight digits.

    Args:
        share: 0.5 or more, below 1.
        degrees: degrees of freedom, 1 or more.

    Source: Abramowitz and Stegun (1964), 26.7.3 and 26.7.4 for few degrees of freedom, 26.7.5 for
    many.
    """
    if degrees >= _MANY:
        return _expanded(NormalDist().inv_cdf(share), degrees)
    low, high = 0.0, 1.0
    while _within(high, degrees) < 2 * share - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 2 * share - 1 else (low, middle)
    return (low + high) / 2


def _within(t: float, degrees: int) -> float:
    """Return the probability of a value between −t and t: a finite sum for whole degrees of
    freedom.
    """
    angle = atan(t / sqrt(degrees))
    square = cos(angle) ** 2
    odd = degrees % 2
    term = total = 1.0
    for step in range(2 + odd, degrees - 1, 2):
        term *= square * (step - 1) / step
        total += term
    if not odd:
        return sin(angle) * total if degrees > 0 else 0.0
    return 2 / pi * (angle + (sin(angle) * cos(angle) * total if degrees > 1 else 0.0))


def _expanded(x: float, degrees: int) -> float:
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(degrees) ** power for power, term in enumerate(terms, start=1))
