"""Student's t distribution, for whole degrees of freedom."""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, pi, sin, sqrt
from statistics import NormalDist

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
    while t_within(high, degrees) < 2 * share - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, degrees) < 2 * share - 1 else (low, middle)
    return (low + high) / 2


def t_within(t: float, degrees: int) -> float:
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
