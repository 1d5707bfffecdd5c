"""Prediction-powered inference: a judge's mean corrected by a model's own human labels."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.corrections import Corrected
from opensafeintent.statistics import rounded
from opensafeintent.statistics.intervals import CONFIDENCE, Floats, spread_of

FEWEST_LABELS = 30
"""With fewer of its own, a model's mean is not corrected by them."""


class LabelledUnits(NamedTuple):
    """The judge's value of every unit, and the annotators' value of some: arrays of shape
    (prompt_set, unit).

    A unit is a response, or the triplet of one epoch.
    """

    judged: Floats
    """The judge's value, between 0 and 1; NaN if the unit does not count."""
    truth: Floats
    """The annotators' value; NaN if there is no label."""
    weight: Floats
    """One over the probability with which a labelled unit was drawn."""
    share: Floats
    """The unit's weight in its metric."""

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which units count and have a label: shape (prompt_set, unit)."""
        return np.asarray(~np.isnan(self.judged) & ~np.isnan(self.truth))

    @property
    def n(self) -> int:
        """How many units have a label."""
        return int(self.labelled.sum())

    @property
    def sets(self) -> int:
        """How many prompt-sets have a labelled unit."""
        return int(self.labelled.any(axis=1).sum())


def prediction_powered(sample: LabelledUnits) -> Corrected:
    """Return the mean of the truth over all units (Angelopoulos, Duchi and Zrnic, PPI++, 2023,
    section 2 and example 6.1).

    θ = mean_labelled(truth) + λ · (mean_all(judged) − mean_labelled(judged)), the labelled means
    weighted by the inverse of the sampling probabilities (Hájek). λ is the one with the least
    estimated variance, between 0 and 1, without the pseudo-observations of the interval. The
    variance is over prompt-sets, because responses of one set are dependent.

    The labelled units are among all units. With n labels of N units drawn at random, λ is
    Cov(truth, judged) / Var(judged). That is the published λ / (1 − n/N) for n labelled and N − n
    other units.

    The interval is Student's t over the prompt-sets, with two labelled pseudo-observations, one at
    each end of the span of truth − λ · judged (`intervals.spread_of`). So errors that no label
    showed count as possible: 40 labelled sets that are all safe are as uncertain as any 40 sets.
    The span grows with λ, so with few labels the interval can be wider than with λ = 0. The λ of
    the narrowest interval is not used: the value is then further from the truth.

    Args:
        sample: the units, `FEWEST_LABELS` of them labelled or more.
    """
    counts, labelled = ~np.isnan(sample.judged), sample.labelled
    weight = np.where(labelled, sample.weight * sample.share, 0.0)
    share = np.where(counts, sample.share, 0.0)
    judged = np.nan_to_num(sample.judged)
    true_part = (weight * np.nan_to_num(sample.truth)).sum(axis=1)
    judged_part, drawn = (weight * judged).sum(axis=1), weight.sum(axis=1)
    judged_all, there = (share * judged).sum(axis=1), share.sum(axis=1)

    truth, judged_labelled, judged_mean = (
        top.sum() / bottom.sum()
        for top, bottom in ((true_part, drawn), (judged_part, drawn), (judged_all, there))
    )
    # each set's addition to the estimate: its linear part
    of_truth = (true_part - truth * drawn) / drawn.sum()
    of_shift = (judged_all - judged_mean * there) / there.sum() - (
        judged_part - judged_labelled * drawn
    ) / drawn.sum()
    power = _power(of_truth, of_shift)

    shifted = true_part - power * judged_part
    with_pseudo = spread_of(shifted[None], drawn[None], (-power, 1.0))
    alone = (shifted - float(with_pseudo.value[0]) * drawn) / drawn.sum()
    together = of_truth + power * of_shift
    # the variance with pseudo-observations changes by the judge's values of all units
    error = sqrt(max(float(with_pseudo.error[0]) ** 2 + together @ together - alone @ alone, 0.0))
    centre = float(with_pseudo.centre[0]) + power * judged_mean
    half = float(with_pseudo.quantiles(CONFIDENCE)[0]) * error
    value = float(np.clip(truth + power * (judged_mean - judged_labelled), 0.0, 1.0))
    return Corrected(
        value=rounded(value),
        interval=(
            rounded(max(min(centre - half, value), 0.0)),
            rounded(min(max(centre + half, value), 1.0)),
        ),
        n=sample.n,
        sets=sample.sets,
        power=rounded(power),
    )


def _power(of_truth: Floats, of_shift: Floats) -> float:
    """Return λ from each set's addition to the truth and to the judge's shift."""
    variance = float(of_shift @ of_shift)
    return float(np.clip(-(of_truth @ of_shift) / variance, 0.0, 1.0)) if variance > 0 else 0.0
