"""Components of the variance of a mean over prompt-sets, and what more sets, wordings, repeats or
judges would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan
from typing import NamedTuple

import numpy as np

from opensafeintent.statistics.intervals import Floats, Units, sum_units

NAN = float("nan")


class Components(NamedTuple):
    """Variances of one value of a metric: that of one set, wording, repeat and judge. NaN if the
    data do not identify one.
    """

    sets: int
    """Prompt-sets that every judge graded in every epoch."""
    units: int
    """Families of these, a set without one being its own; the sets if there are no families."""
    epochs: int
    judges: int
    by_set: float
    """Between units: what is left of the variance of their values."""
    wording: float
    """Between the dual-use wordings of a set; with one epoch, with the repeats of each."""
    repeat: float
    """Between repeats of the same prompts, graded by all judges."""
    judge: float
    """Between judges, over all sets."""
    judge_by_set: float
    """Between judges from unit to unit; with one epoch, with the noise of each."""
    saved_by_wordings: float
    """What a set's value loses of its variance as a mean over its wordings."""

    @property
    def sets_each(self) -> float:
        """Sets of a unit; their wordings and repeats are drawn independently."""
        return self.sets / self.units

    @property
    def of_unit(self) -> float:
        """The variance of a unit's value as it was observed, apart from that between judges."""
        parts = (
            self.by_set,
            self.wording / self.sets_each,
            self.repeat / self.epochs / self.sets_each,
            self.judge_by_set / self.judges,
        )
        return float(np.nansum(parts))

    @property
    def variance(self) -> float:
        """The variance of the mean over sets and judges."""
        return self.of_unit / self.units + _or_0(self.judge) / self.judges

    @property
    def tell_more_than_sets(self) -> bool:
        """Whether anything varies, and a component besides that between sets is known."""
        known = not all(map(isnan, (self.wording, self.repeat, self.judge)))
        return known and self.variance > 0

    def count_sets(self, variance: float) -> float:
        """Return how many further sets, in families as large, give the mean this variance; infinity
        if no number does.
        """
        left = variance - _or_0(self.judge) / self.judges
        units = self.of_unit / left - self.units if left > 0 else inf
        return max(units, 0.0) * self.sets_each

    @property
    def with_another_judge(self) -> float:
        """The variance with one more judge; NaN if that of judges is unknown."""
        return NAN if isnan(self.judge) else self._replace(judges=self.judges + 1).variance

    @property
    def with_twice_the_epochs(self) -> float:
        """The variance with twice the epochs; NaN if that of repeats is unknown."""
        return self.variance - self.repeat / self.epochs / 2 / self.sets

    @property
    def with_all_wordings(self) -> float:
        """The variance of the mean over wordings; NaN if that of wordings is unknown."""
        return self.variance - self.saved_by_wordings / self.sets


def _or_0(number: float) -> float:
    return 0.0 if isnan(number) else number


def find_components(values: Floats, units: Units | None = None) -> Components | None:
    """Return the components of one model's metric, from the sets that every judge graded in every
    epoch: by the analysis of variance of crossed factors (Searle, Casella and McCulloch, Variance
    Components, 1992). They can be negative.

    Args:
        values: of a set, NaN if it is missing; the first wording is the metric's own. Shape
            (judge, prompt_set, wording, epoch).
        units: families of prompt-sets, shape (prompt_set,).

    Returns:
        None with fewer than two units.
    """
    graded = np.asarray(~np.isnan(values[:, :, 0]))
    values = values[graded.any(axis=(1, 2))][..., graded.any(axis=(0, 1))]
    whole = ~np.isnan(values[:, :, 0]).any(axis=(0, 2))
    values, units = values[:, whole], None if units is None else units[whole]
    judges, sets, _, epochs = values.shape
    if sets < 2 or not judges:
        return None
    own = values[:, :, 0]
    by_judge, by_epoch = own.mean(axis=2), own.mean(axis=0)
    of_units = _gather_units(by_judge, units)
    count = of_units.shape[1]
    if count < 2:
        return None
    repeat = float(by_epoch.var(axis=1, ddof=1).mean()) if epochs > 1 else NAN
    judge = judge_by_set = NAN
    if judges > 1:
        together = float(_interaction(of_units[None])[0])
        judge = float(by_judge.mean(axis=1).var(ddof=1)) - together / count
        noise = _interaction(own.swapaxes(0, 1)).mean() if epochs > 1 else 0.0
        judge_by_set = together - float(noise) / epochs * count / sets
    wording, saved = _find_wording(values.mean(axis=0))
    found = Components(
        sets, count, epochs, judges, NAN, wording, repeat, judge, judge_by_set, saved
    )
    observed = float(of_units.mean(axis=0).var(ddof=1))
    return found._replace(by_set=observed - found.of_unit)


def _gather_units(values: Floats, units: Units | None) -> Floats:
    """Return the values of units, of which the mean is that of the sets: a large family counts for
    several. Shape (judge, prompt_set) becomes (judge, unit).
    """
    mean = values.mean(axis=1, keepdims=True)
    sums = sum_units(values - mean, units)
    return np.asarray(mean + sums * sums.shape[1] / values.shape[1])


def _find_wording(values: Floats) -> tuple[float, float]:
    """Return the variance between a set's wordings, and what a mean over them saves, both of the
    mean set: NaN if no set has two.

    Args:
        values: shape (prompt_set, wording, epoch); a wording without every epoch is left out.
    """
    complete = np.asarray(~np.isnan(values).any(axis=2))
    several = complete.sum(axis=1) > 1
    if not several.any():
        return NAN, NAN
    values = np.where(complete[..., None], values, np.nan)[several]
    between = np.nanvar(values.mean(axis=2), axis=1, ddof=1)
    saved = float((between * (1 - 1 / complete[several].sum(axis=1))).mean())
    epochs = values.shape[2]
    repeats = _interaction(values).mean() / epochs if epochs > 1 else 0.0
    return float(between.mean() - repeats), saved


def _interaction(values: Floats) -> Floats:
    """Return the mean square of what rows and columns do beyond each alone: shape (group, row,
    column) becomes (group,). A row of NaN is left out.
    """
    residuals = values - values.mean(axis=2, keepdims=True)
    residuals -= np.nanmean(residuals, axis=1, keepdims=True)
    rows = (~np.isnan(values[..., 0])).sum(axis=1)
    degrees = (rows - 1) * (values.shape[2] - 1)
    return np.asarray(np.nansum(residuals**2, axis=(1, 2)) / degrees)


def average_components(models: Sequence[Components]) -> Components:
    """Return the mean over models of each component, not below 0; sets, units, epochs and judges
    are those of the median model.
    """
    table = np.array(models, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        defined = ~np.isnan(table)
        means = np.where(defined, table, 0.0).sum(axis=0) / defined.sum(axis=0)
    sets, units, epochs, judges = (int(np.median(column)) for column in table.T[:4])
    return Components(sets, units, epochs, judges, *(np.maximum(means[4:], 0.0)).tolist())
