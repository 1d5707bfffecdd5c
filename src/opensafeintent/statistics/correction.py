"""A mean corrected for what a judge gets wrong, from units that people have labelled
(docs/correction.md).

Prediction-powered inference corrects the judge's mean by this model's own labels, whatever the
judge's errors are like.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.exact import CONFIDENCE, wilson
from opensafeintent.statistics.intervals import SEED, Estimate, Floats, Resamples, rounded

Limits = tuple[float, float]
"""The ends of an interval."""


class Corrected(Estimate, frozen=True, kw_only=True):
    """A corrected value; `n` units are labelled, and the labels are resampled as well as the
    prompt-sets.
    """

    value: float
    interval: Limits
    sets: int
    """Prompt-sets that the labels are of."""
    power: float
    """How far the judge is relied on, from 0 (the labels alone) to 1."""


@lru_cache(maxsize=4)
def _half_labels(kinds: int, resamples: int) -> Floats:
    """Return random numbers of labels with mean one half, shape (kind, resample), seeded.

    A percentile bootstrap takes an error that does not occur among a few labels for one that never
    occurs. Half a label of each kind is what Jeffreys' prior adds to a share: with a Gamma(½)
    number of them the resampled share has its posterior.
    """
    drawn = np.random.default_rng([SEED, kinds]).gamma(0.5, size=(kinds, resamples))
    drawn.setflags(write=False)  # everyone is given the same ones
    return drawn


def _percentile_limits(drawn: Floats) -> Limits:
    """Return the 95 % limits of a bootstrap distribution, shape (resample,), NaN where no label was
    drawn.
    """
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn[np.isfinite(drawn)], [tail, 1 - tail])
    return low, high


# Prediction-powered inference
# ------------------------------------------------------------------------------

FEWEST_LABELS = 30
"""With fewer of its own, a model's mean is not corrected by them."""


class LabelledUnits(NamedTuple):
    """What the judge says of every unit, and people of a part of them: arrays of shape (prompt_set,
    unit).

    A unit is a response, or the triplet of one epoch.
    """

    judged: Floats
    """The judge's value, between 0 and 1; NaN where the unit does not count."""
    truth: Floats
    """People's value; NaN where there is no label."""
    weight: Floats
    """One over the probability with which a labelled unit was drawn."""
    share: Floats
    """What the unit weighs in its metric."""

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which units count and have a label: shape (prompt_set, unit)."""
        return np.asarray(~np.isnan(self.judged) & ~np.isnan(self.truth))

    @property
    def n(self) -> int:
        """How many units have a label."""
        return int(self.labelled.sum())


def prediction_powered(sample: LabelledUnits, resamples: Resamples) -> Corrected:
    """Return the mean of the truth over all units (Angelopoulos, Duchi and Zrnic, PPI++, 2023,
    section 2 and example 6.1).

    θ = mean_labelled(truth) + λ · (mean_all(judged) − mean_labelled(judged)), the labelled means
    weighted by the inverse of the sampling probabilities (Hájek). λ is the one with the least
    estimated variance, between 0 and 1; the variance is over prompt-sets, whose responses stand and
    fall together. The labelled units are among all: with n labels of N units drawn at random λ is
    Cov(truth, judged) / Var(judged), which is the published λ / (1 − n/N) for n labelled and N − n
    other units.

    The interval is the widest of three, as each fails somewhere (docs/correction.md): a bootstrap
    over prompt-sets with their labels; the same with half a label of the greatest error in either
    direction, for where errors are few among the labels; and Wilson's, on as many yes-or-no answers
    as have the estimate's variance, for values near 0 and 1.

    Args:
        sample: the units, `FEWEST_LABELS` of them labelled or more.
        resamples: of as many prompt-sets.
    """
    counts, labelled = ~np.isnan(sample.judged), sample.labelled
    weight = np.where(labelled, sample.weight * sample.share, 0.0)
    share = np.where(counts, sample.share, 0.0)
    judged = np.nan_to_num(sample.judged)
    true_part = (weight * np.nan_to_num(sample.truth)).sum(axis=1)
    judged_part, drawn = (weight * judged).sum(axis=1), weight.sum(axis=1)
    judged_all, there = (share * judged).sum(axis=1), share.sum(axis=1)

    truth, seen, everything = (
        top.sum() / bottom.sum()
        for top, bottom in ((true_part, drawn), (judged_part, drawn), (judged_all, there))
    )
    of_truth = (
        true_part - truth * drawn
    ) / drawn.mean()  # what each set adds to the estimate: its linear part
    of_shift = (judged_all - everything * there) / there.mean() - (
        judged_part - seen * drawn
    ) / drawn.mean()
    spread = float(of_shift @ of_shift)
    power = float(np.clip(-(of_truth @ of_shift) / spread, 0.0, 1.0)) if spread > 0 else 0.0

    left, drawn_again, all_again, there_again = (
        np.stack([true_part - power * judged_part, drawn, judged_all, there]).astype(np.float32)
        @ resamples.weights
    ).astype(np.float64)
    more, less = _half_labels(2, resamples.count)
    more = more * _mean_weight(weight, labelled * (1 - judged))
    less = less * _mean_weight(weight, labelled * judged)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = power * all_again / there_again
        as_they_are = left / drawn_again + shift
        with_more = (left + more - power * less) / (drawn_again + more + less) + shift
    value = float(np.clip(truth + power * (everything - seen), 0.0, 1.0))
    limits = [
        _percentile_limits(as_they_are),
        _percentile_limits(with_more),
        _wilson_limits(value, of_truth + power * of_shift),
    ]
    low = np.clip(min(low for low, _ in limits), 0.0, 1.0)
    high = np.clip(max(high for _, high in limits), 0.0, 1.0)
    return Corrected(
        value=rounded(value),
        interval=(rounded(low), rounded(high)),
        n=sample.n,
        sets=int(labelled.any(axis=1).sum()),
        power=rounded(power),
    )


def _mean_weight(weight: Floats, likeness: Floats) -> float:
    """Return what a label weighs on average, those counting most that are most like the one that
    may be missing.

    A truth far above the judge's value is to be had where that is low, one far below it where it is
    high; in a sample stratified by the judge's grade the two weigh differently.
    """
    total = float(likeness.sum())
    return (
        float((weight * likeness).sum()) / total if total > 0 else float(weight[weight > 0].mean())
    )


def _wilson_limits(value: float, parts: Floats) -> Limits:
    """Return the limits of Wilson's interval on as many yes-or-no answers as have the estimate's
    variance.

    Args:
        value: the estimate.
        parts: what each prompt-set adds to it, its linear part.
    """
    variance = float(parts @ parts) / max(len(parts) - 1, 1) / len(parts)
    if variance <= 0 or not 0 < value < 1:
        return value, value
    return wilson(value, value * (1 - value) / variance)
