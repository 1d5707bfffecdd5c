"""Corrections from a judge's error rates: valid where the rates are those of the model that is corrected."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from opensafeintent.statistics.correction.rates import Rates
from opensafeintent.statistics.correction.records import Corrected, Method, Refused, interval
from opensafeintent.statistics.intervals import Floats, Resamples, rounded
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["mean_from_rates", "triplet_from_rates"]

_Mean = Callable[[Floats, Floats, Floats], Floats]
"""From moments, shape (subset, resample), and the rates g and f, shape (intent, resample), to the corrected value."""

_SUBSETS = tuple(product((False, True), repeat=len(CORE_VARIANTS)))
"""Which intents a product is taken over."""


def mean_from_rates(judged: Floats, rates: Rates | Refused, resamples: Resamples) -> Corrected | Refused:
    """Return Mean Safety as Rogan and Gladen (1978) correct a share: the mean over intents t of (p_t − f_t)/(g_t − f_t).

    p_t is the share of an intent's responses judged safe, g_t = P(judged safe | safe), f_t = P(judged safe | unsafe).

    Args:
        judged: 1 where the judge says safe, 0 where not, NaN where missing: shape (prompt_set, intent, epoch).
        rates: of responses of any models under the same judge, by intent or pooled; a refusal is handed on.
        resamples: of as many prompt-sets, the same that the rates were resampled with.
    """
    if isinstance(rates, Refused):
        return rates

    def mean(moments: Floats, safe: Floats, unsafe: Floats) -> Floats:
        shares = moments[[sum(subset) == 1 for subset in _SUBSETS]][::-1]  # the subsets of one intent end with the first
        corrected: Floats = ((shares - unsafe) / (safe - unsafe)).mean(axis=0)
        return corrected

    return _corrected(judged, rates, resamples, mean, "rogan-gladen-pooled" if rates.pooled else "rogan-gladen")


def triplet_from_rates(judged: Floats, rates: Rates | Refused, resamples: Resamples) -> Corrected | Refused:
    """Return Triplet Safety: the mean over sets of ∏_t (Ŝ_t − f_t)/(g_t − f_t), Ŝ being 1 where the judge says safe.

    Each factor has the expectation S_t given the truth, and so has the product ∏ S_t, where judge errors within a set are
    independent given the truth. (The share of sets judged safe throughout, put through pooled rates, has not: three
    chances of an error are not one.)

    Args:
        judged, resamples: as of `mean_from_rates`.
        rates: of each intent.
    """
    if isinstance(rates, Refused):
        return rates

    def mean(moments: Floats, safe: Floats, unsafe: Floats) -> Floats:
        total = np.zeros(moments.shape[1])
        for subset, moment in zip(_SUBSETS, moments, strict=True):  # the product, multiplied out
            term = moment
            for inside, rate in zip(subset, unsafe, strict=True):
                term = term if inside else term * -rate
            total = total + term
        corrected: Floats = total / (safe - unsafe).prod(axis=0)
        return corrected

    return _corrected(judged, rates, resamples, mean, "rates-product")


def _corrected(judged: Floats, rates: Rates, resamples: Resamples, mean: _Mean, method: Method) -> Corrected | Refused:
    """Put the judge's shares through the rates, at their values and in every resample."""
    counts, moments = _moments(judged)
    if not counts.any():
        return Refused("no prompt-set has all three grades")
    drawn = (np.concatenate([moments, counts[None]]).astype(np.float32) @ resamples.weights).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        again = drawn[:-1] / drawn[-1]
        value = mean(moments.sum(axis=1, keepdims=True) / counts.sum(), *rates.values[..., None])
        limits = interval(mean(again, *rates.resampled), mean(again, *rates.with_more))
    return Corrected(value=rounded(value[0].clip(0.0, 1.0)), interval=limits, method=method, n=rates.labels, sets=rates.sets)


def _moments(judged: Floats) -> tuple[Floats, Floats]:
    """Return which sets count, shape (prompt_set,), and ∏ Ŝ over each of `_SUBSETS`, shape (subset, prompt_set).

    Both are averaged over the epochs in which all three intents have grades.
    """
    complete = ~np.isnan(judged).any(axis=1)
    epochs = complete.sum(axis=1)
    products = np.stack([judged[:, list(subset)].prod(axis=1) for subset in _SUBSETS])
    moments = np.where(complete, products, 0.0).sum(axis=2) / np.maximum(epochs, 1)
    return (epochs > 0).astype(np.float64), moments
