"""Strata shrunken towards their model's own value, within a model over the strata of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.metrics import Ratio
from opensafeintent.statistics.shrinkage import shrunken

__all__ = ["shrunken_strata"]

Floats = NDArray[np.float64]


class _Strata(NamedTuple):
    """What is known of the strata of some models; rows are models, and their average."""

    values: Floats
    """NaN where undefined: shape (row, stratum)."""
    centre: Floats
    """Shape (row,)."""
    squares: Floats
    """Σ e² over the sets of a stratum, e being what a set adds to its value: shape (row, stratum)."""
    counts: Floats
    """Sets that count: shape (row, stratum)."""


def shrunken_strata(
    ratios: Mapping[str, Ratio], members: Sequence[NDArray[np.bool_]], averaged: Sequence[int]
) -> dict[str, Floats]:
    """Return the values of strata of one kind (harm domains, task types or cells), shrunken within each model.

    Args:
        ratios: by metric, each of shape (model, prompt_set).
        members: the prompt-sets of each stratum, each of shape (prompt_set,).
        averaged: the models whose average is shrunken too, as if it were a model.

    Returns:
        By metric, shape (model + 1, stratum), the average last; NaN where there is none.
    """
    within = np.array(members, dtype=np.float64).T
    found = [_strata(ratio, within, averaged) for ratio in ratios.values()]
    moved = shrunken(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    return dict(zip(ratios, np.split(moved, len(found)), strict=True)) if found else {}


def _strata(ratio: Ratio, within: Floats, averaged: Sequence[int]) -> _Strata:
    top, bottom = ratio.numerator.values, ratio.denominator.values
    total, counts = bottom @ within, (bottom > 0) @ within
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(total > 0, (top @ within) / total, np.nan)
        centre = top.sum(axis=1) / bottom.sum(axis=1)
    at = np.where(within.any(axis=1), within.argmax(axis=1), -1)
    adds = np.where(bottom > 0, top - np.nan_to_num(values)[:, at] * bottom, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.where(total > 0, (adds**2) @ within * (counts / total) ** 2, 0.0)
    average = _average(values, centre, adds / np.where(total > 0, total, 1.0)[:, at], bottom, within, averaged)
    return _Strata(*(np.concatenate(parts) for parts in zip((values, centre, squares, counts), average, strict=True)))


def _average(
    values: Floats, centre: Floats, adds: Floats, bottom: Floats, within: Floats, averaged: Sequence[int]
) -> _Strata:
    """Return what is known of the mean over some models, each where it is defined.

    Args:
        values, centre, bottom, within: of every model.
        adds: what a set adds to the value of its stratum, shape (model, prompt_set).
        averaged: the models.
    """
    there = ~np.isnan(values[averaged])
    models = there.sum(axis=0)
    counts = (bottom[averaged] > 0).any(axis=0).astype(np.float64) @ within
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(models > 0, np.where(there, values[averaged], 0.0).sum(axis=0) / models, np.nan)
        of_all = np.nan_to_num(centre[averaged]).sum() / max((~np.isnan(centre[averaged])).sum(), 1)
        squares = np.where(models > 0, (adds[averaged].sum(axis=0) ** 2) @ within * (counts / models) ** 2, 0.0)
    return _Strata(mean[None], np.array([of_all]), squares[None], counts[None])
