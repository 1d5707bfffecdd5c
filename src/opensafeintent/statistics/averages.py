"""Averages of ratios, over models as sums over prompt-sets, and over strata.

Averages over models have the interval of any ratio. A mean of several ratios is none, so it is
replaced by its linear part: a ratio with the value of the mean, and with each prompt-set's share
in the mean. It varies like the mean from sample to sample (Woodruff, Journal of the American
Statistical Association 66, 1971). The unit stays the prompt-set: twenty models on twenty sets are
twenty observations, not four hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.statistics.intervals import Estimate, Floats, rounded


class Averaged(NamedTuple):
    """A mean of ratios as one: Σ numerator / Σ denominator is the mean, and has its spread."""

    numerator: Floats
    denominator: Floats
    parts: int
    """Ratios that are defined, of which it is the mean."""


def over_models(numerator: Floats, denominator: Floats) -> Averaged:
    """Return the mean over the models that have a value, prompt-set by prompt-set.

    If every set counts for every model, a set's value is its mean over the models. If some are
    missing, each model still weighs the same in the mean. A set then counts as much as it does for
    the models together.

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


def mean_over(parts: Sequence[Estimate], fewest: int = 0) -> Estimate:
    """Return the mean of independent estimates, each weighing the same; `n` is their number.

    Its interval combines the distances of their limits, √Σ distance² / number (MOVER: Zou and
    Donner, Statistics in Medicine 27, 2008). There is none if a part has none, or an `n` below
    `fewest`.
    """
    if not parts:
        return Estimate(value=None, n=0)
    values = [part.value or 0.0 for part in parts]
    mean = fmean(values)
    estimate = Estimate(value=mean, n=len(parts))
    intervals = [part.interval for part in parts if part.interval and part.n >= fewest]
    if len(intervals) < len(parts):
        return estimate
    down, up = (
        hypot(*(limits[side] - value for limits, value in zip(intervals, values, strict=True)))
        / len(parts)
        for side in (0, 1)
    )
    interval = rounded(mean - down), rounded(mean + up)
    return msgspec.structs.replace(estimate, interval=interval, method="mover")


def _defined(numerator: Floats, denominator: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the rows that have a value, with their denominators' sums: shape (row, prompt_set),
    twice, and (row,).
    """
    total = denominator.sum(axis=1)
    defined = total > 0
    return numerator[defined], denominator[defined], total[defined]


def _mean_of(bottom: Floats, total: Floats, mean: float, residuals: Floats) -> Averaged:
    """Return the parts of a ratio with the value `mean` that varies like the mean of the rows'
    residuals, each over its row's total.
    """
    scale = float((bottom > 0).any(axis=0).sum()) / len(total) / total[:, None]
    denominator = (bottom * scale).sum(axis=0)
    added = (residuals * scale).sum(axis=0)
    added -= denominator * (added.sum() / denominator.sum())
    return Averaged(added + mean * denominator, denominator, len(total))


def _nothing(sets: int) -> Averaged:
    return Averaged(np.zeros(sets), np.zeros(sets), 0)
