"""Values of small strata, moved towards their model's own: less wrong on average than the raw ones, and not unbiased."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST_FREE", "FEWEST_STRATA", "shrunken", "spread_between"]

Floats = NDArray[np.float64]

FEWEST_STRATA = 4
"""With fewer nothing is gained (James and Stein 1961), and nothing is shrunken."""
FEWEST_FREE = 10
"""Prompt-sets beyond one a stratum: with fewer it is not known how far a stratum's value may be off."""
_HALVINGS = 60
_LEAST = 1e-12
"""A variance below is none."""


def shrunken(values: Floats, centre: Floats, squares: Floats, counts: Floats) -> Floats:
    """Return the values of strata moved towards a centre, by empirical Bayes.

    A stratum's value y with sampling variance V is taken for one of a true value that is normal around the centre with
    variance A: it is moved by B = (J − 3)/(J − 1) · V/(V + A) of its way there (Morris, JASA 78, 1983, sections 1 and 5; J
    strata). V is σ²/n, σ² being pooled over the strata: one or two sets say nothing of their own variance. A is Paule and
    Mandel's, see `spread_between`. Where A is 0, which is when strata differ no more than sets do, each keeps 2/(J − 1) of
    its distance; where no two sets of a stratum differ, nothing is moved.

    The mean squared error over all strata is below that of the raw values where the model of a normal spread holds; a stratum
    that stands apart from all others is pulled in, and has a larger one (benchmarks/strata.py). So it is no answer to whether
    one does.

    Args:
        values: of J strata in each row, NaN where undefined: shape (row, stratum).
        centre: where they are moved to: shape (row,).
        squares: Σ e² over the sets of a stratum, e being what a set adds to its value, its linear part: shape (row, stratum).
        counts: sets behind each value: shape (row, stratum).

    Returns:
        Shape (row, stratum); NaN where the value is undefined, and throughout a row with fewer than 4 strata, or with fewer
        than 10 sets beyond one a stratum.
    """
    there = ~np.isnan(values)
    strata = there.sum(axis=1)
    free = np.where(there, counts - 1, 0).sum(axis=1)
    known = (strata >= FEWEST_STRATA) & (free >= FEWEST_FREE)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_one = np.where(there, squares, 0.0).sum(axis=1) / np.maximum(free, 1)
        variance = np.where(there, of_one[:, None] / counts, np.nan)
        between = spread_between(values, variance)
        moved = np.where(variance > 0, variance / (variance + between[:, None]), 0.0)
        moved *= ((strata - 3) / np.maximum(strata - 1, 1))[:, None]
    found: Floats = np.where(known[:, None] & there, values - moved * (values - centre[:, None]), np.nan)
    return found


def spread_between(values: Floats, variances: Floats) -> Floats:
    """Return the variance of the strata's true values: the A at which Σ (y − μ)²/(V + A) = J − 1, or 0 where none is.

    μ is the mean weighted by 1/(V + A) (Paule and Mandel, Journal of Research of the NBS 87, 1982). Found by bisection.

    Args:
        values: shape (row, stratum), NaN where undefined.
        variances: their sampling variances V, of the same shape.

    Returns:
        Shape (row,).
    """
    there = ~np.isnan(values)
    values = np.where(there, values, 0.0)
    wanted = np.maximum(there.sum(axis=1) - 1, 0)

    def beyond(between: Floats) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore", divide="ignore"):
            weights = np.where(there, 1 / (variances + between[:, None]), 0.0)
            mean = (weights * values).sum(axis=1) / weights.sum(axis=1)
            above: NDArray[np.bool_] = (weights * (values - mean[:, None]) ** 2).sum(axis=1) > wanted
        return above

    low = np.zeros(len(values))
    high = np.where(there, values**2, 0.0).sum(axis=1) + _LEAST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = beyond(middle)
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(low > 0, (low + high) / 2, 0.0)
