"""How far two models are apart, standardised, from three sums over the sets that count for both."""

from __future__ import annotations

from collections.abc import Callable
from math import isinf

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import rounded

__all__ = ["differences_not_rejected", "guarded", "statistic_of", "tango"]

Floats = NDArray[np.float64]
Statistic = Callable[..., Floats]
"""Of n, Σd, Σd² and the difference that is tested; each a number or an array."""
_HALVINGS = 40


def tango(n: Floats | int, total: Floats | float, squares: Floats | float, against: Floats | float) -> Floats:
    """Return the score statistic of a difference of paired shares (Tango, Statistics in Medicine 17, 1998, equation 4).

    With b sets in which the first model alone succeeds and c in which the second does: (b − c − nΔ) / √(n(2q + Δ(1 − Δ))),
    q the likeliest share of the second kind if the difference were Δ. At Δ = 0 it is McNemar's (b − c) / √(b + c).

    Args:
        n: sets; one or more.
        total: Σd = b − c.
        squares: Σd² = b + c.
        against: Δ, above −1 and below 1.
    """
    n, total, squares, against = np.broadcast_arrays(n, total, squares, against)
    rarer = (squares - total) / 2
    quadratic, constant = 2 * n, -rarer * against * (1 - against)
    linear = (2 * n - total) * against - squares
    share = (np.sqrt(np.maximum(linear**2 - 4 * quadratic * constant, 0)) - linear) / (2 * quadratic)
    variance = n * (2 * share + against * (1 - against))
    return _over_root(total - n * against, variance)


def guarded(n: Floats | int, total: Floats | float, squares: Floats | float, against: Floats | float, width: float) -> Floats:
    """Return the standardised sum of differences less `against`, one set short and with one set more in its variance.

    sign·max(|Σ(d − Δ)| − width, 0) / √(Σ(d − Δ)² + width²): no single set decides, however few there are.

    Args:
        n: sets; one or more.
        total: Σd.
        squares: Σd².
        against: Δ, the difference that is tested.
        width: the greatest difference that a set can have.
    """
    distance = total - n * against
    spread = squares - 2 * against * total + n * np.square(against)
    return _over_root(np.sign(distance) * np.maximum(np.abs(distance) - width, 0), spread + width**2)


def _over_root(distance: Floats, variance: Floats) -> Floats:
    """Return a distance in standard deviations: 0 where there is neither."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 1e-12, distance / np.sqrt(np.maximum(variance, 1e-300)), np.sign(distance) * 0.0)


def statistic_of(*, binary: bool, width: float) -> Statistic:
    """Return the statistic that decides: Tango's for differences of 0/1, the guarded mean for scores."""

    def of_scores(n: Floats, total: Floats, squares: Floats, against: Floats) -> Floats:
        return guarded(n, total, squares, against, width)

    return tango if binary else of_scores


def differences_not_rejected(
    statistic: Statistic, n: int, total: float, squares: float, quantile: float, width: float
) -> tuple[float, float]:
    """Return the differences whose statistic stays within ± `quantile`: an interval within ± `width`."""

    def end(sign: float) -> float:
        near, far = total / n, sign * width
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            within = abs(float(statistic(n, total, squares, middle))) < quantile
            near, far = (middle, far) if within else (near, middle)
        return far

    if isinf(quantile):
        return -width, width
    return rounded(end(-1.0)), rounded(end(1.0))
