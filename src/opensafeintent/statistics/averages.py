"""Averages over models, and over strata, as sums over prompt-sets: their intervals are those of any
ratio.

A mean of several ratios is no ratio. But the ratio that has its value, and to which each prompt-set
adds what it adds to the mean, its linear part, varies like the mean from sample to sample
(Woodruff, Journal of the American Statistical Association 66, 1971). The unit stays the prompt-set:
twenty models that agree on twenty sets are twenty observations, not four hundred.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.exact import Floats


class Averaged(NamedTuple):
    """A mean of ratios as one: Σ numerator / Σ denominator is the mean, and has its spread."""

    numerator: Floats
    denominator: Floats
    parts: int
    """Ratios that are defined, of which it is the mean."""


def over_models(numerator: Floats, denominator: Floats) -> Averaged:
    """Return the mean over the models that have a value, prompt-set by prompt-set.

    Where every set counts for every model, a set's value is its mean over the models. Where some
    are missing, each model still weighs the same in the mean, and a set counts as much as it does
    for the models together.

    Args:
        numerator, denominator: shape (model, prompt_set).

    Returns:
        Arrays of shape (prompt_set,).
    """
    top, bottom, total = _defined(numerator, denominator)
    if not len(total):
        return _nothing(numerator.shape[1])
    if (bottom == bottom[0]).all():
        return Averaged(top.mean(axis=0), bottom[0], len(total))
    return _mean_of(
        bottom,
        total,
        float((top.sum(axis=1) / total).mean()),
        top - (top.sum(axis=1) / total)[:, None] * bottom,
    )


def over_strata(numerator: Floats, denominator: Floats, strata: NDArray[np.int64]) -> Averaged:
    """Return the mean over the strata in which one model has a value, prompt-set by prompt-set.

    Sets vary about the value of their own stratum, n_h of them by n_h / (n_h − 1) more in variance
    (Rao and Wu, Journal of the American Statistical Association 83, 1988); the only one of a
    stratum about the mean over all strata.

    Args:
        numerator, denominator: shape (prompt_set,).
        strata: the stratum of each set, shape (prompt_set,).

    Returns:
        Arrays of shape (prompt_set,).
    """
    within = strata == np.unique(strata)[:, None]
    top, bottom, total = _defined(numerator * within, denominator * within)
    if not len(total):
        return _nothing(len(strata))
    values = top.sum(axis=1) / total
    sets = (bottom > 0).sum(axis=1)
    centre = np.where(sets > 1, values, values.mean())
    more = np.sqrt(sets / np.maximum(sets - 1, 1))
    return _mean_of(
        bottom, total, float(values.mean()), (top - centre[:, None] * bottom) * more[:, None]
    )


def _defined(numerator: Floats, denominator: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the rows that have a value, with their denominators' sums: shape (row, prompt_set),
    twice, and (row,).
    """
    total = denominator.sum(axis=1)
    there = total > 0
    return numerator[there], denominator[there], total[there]


def _mean_of(bottom: Floats, total: Floats, mean: float, residuals: Floats) -> Averaged:
    """Return what has the value `mean` and varies like the mean of the rows' residuals, each over
    its row's total.
    """
    scale = float((bottom > 0).any(axis=0).sum()) / len(total) / total[:, None]
    denominator = (bottom * scale).sum(axis=0)
    added = (residuals * scale).sum(axis=0)
    added -= denominator * (added.sum() / denominator.sum())
    return Averaged(added + mean * denominator, denominator, len(total))


def _nothing(sets: int) -> Averaged:
    return Averaged(np.zeros(sets), np.zeros(sets), 0)
