"""Confidence intervals of ratios over prompt-sets, by what is averaged: formulas for shares,
resampled sets for scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.exact import (
    CONFIDENCE,
    bonett_price,
    mid_p,
    no_event,
    t_quantile,
    wilson,
)

Floats = NDArray[np.float64]

RESAMPLES = 10_000
SEED = 20260702

FEWEST_SETS = 30
"""Prompt-sets: fewer are named as few wherever they are shown."""
_FEWEST_SCORES = 5
"""Sets from which on scores are resampled; fewer have Wilson's interval, as wide as if they were
yes or no.
"""
PSEUDO_SETS = 0.75
"""Shape of the Gamma distribution of a pseudo-set's weight. With ½ intervals are 2 to 4 % narrower,
and hold the truth in only 90 % of studies of sets that are nearly all alike but for one in n / 2.4
(benchmarks/coverage.py)."""
_ALIKE = 1e-9
_MOST_UNDEFINED = 0.01
_WEIGHTS_AT_ONCE = 4_000_000
"""32 MB of weights as numbers to multiply by."""
_DRAWN_AT_ONCE = 25_000
"""Few enough to stay in a processor's cache."""
_COLUMNS = 400
"""Resamples are taken in multiples of this many, so that what a machine multiplies side by side is
never cut.
"""
_ROWS_AT_ONCE = 50
"""4 MB of resampled ratios."""


def rounded(number: float) -> float:
    """Return a number with six decimals: beyond them, the order in which a machine adds decides."""
    return round(float(number), 6) + 0.0


class Estimate(
    msgspec.Struct, frozen=True, kw_only=True, rename={"interval": "ci", "method": "ci_method"}
):
    """A number and how sure it is: the record that every result with an interval has, or is a kind
    of.

    In JSON its fields are `value`, `n`, `ci` and `ci_method`.
    """

    value: float | None
    """None where it is undefined."""
    n: int
    """How many prompt-sets (or responses, labels, items) are behind it."""
    interval: tuple[float, float] | None = None
    """95 %, rounded."""
    method: str | None = None
    """How the interval was computed."""

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval is None else self.interval[0]

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return None if self.interval is None else self.interval[1]

    @property
    def leaves_out_zero(self) -> bool:
        """Whether there is an interval without 0 in it."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


class Resamples:
    """Cluster-bootstrap weights over prompt-sets, one matrix for all models and metrics.

    Args:
        sets: number of prompt-sets.
        count: number of resamples.
        seed: of the resampling.
    """

    def __init__(self, sets: int, count: int = RESAMPLES, seed: int = SEED) -> None:
        self.sets = sets
        self.count = count
        self._seed = seed

    @cached_property
    def weights(self) -> NDArray[np.uint8] | NDArray[np.float32]:
        """How often each set is drawn, which is hardly ever more than ten times: shape (prompt_set,
        resample).
        """
        generator = np.random.default_rng(self._seed)
        weights = np.empty((self.sets, self.count), dtype=np.uint8)
        block = max(1, _DRAWN_AT_ONCE // self.sets)
        for start in range(0, self.count, block):
            rows = min(block, self.count - start)
            drawn = generator.integers(0, self.sets, size=(rows, self.sets), dtype=np.int64)
            drawn += np.arange(rows, dtype=np.int64)[:, None] * self.sets
            counts = np.bincount(drawn.ravel(), minlength=rows * self.sets)
            weights[:, start : start + rows] = counts.reshape(rows, self.sets).T
        return weights

    def let_go(self) -> None:
        """Let the weights go, 10 kB for each set; whoever asks for them gets the same ones, drawn
        again.
        """
        self.__dict__.pop("weights", None)

    @cached_property
    def pseudo(self) -> Floats:
        """What the sets at the least and at the greatest value count in each resample: Gamma(¾),
        shape (2, resample).
        """
        return np.random.default_rng((self._seed, 1)).standard_gamma(
            PSEUDO_SETS, size=(2, self.count)
        )

    def sums(self, values: Floats) -> Floats:
        """Return Σ values over the sets in each resample: shape (row, prompt_set) becomes (row,
        resample).
        """
        sums = np.empty((len(values), self.count))
        block = max(_COLUMNS, _WEIGHTS_AT_ONCE // self.sets // _COLUMNS * _COLUMNS)
        for start in range(0, self.count, block):
            sums[:, start : start + block] = values @ self.weights[:, start : start + block].astype(
                np.float64
            )
        return sums

    def with_pseudo_sets(
        self, sums: Floats, denominator: Floats, span: Floats
    ) -> tuple[Floats, Floats]:
        """Return ratios with two sets more, one at either end of what a set can be; once for each
        end of an interval.

        No resample is undefined then, and sets that are nearly all alike are not certain. A
        pseudo-set weighs as much as the
        sets that count: Σc² / Σc of their denominators c. For the upper end the two change their
        weights, so that values and what they lack to the other end have mirrored intervals.

        Args:
            sums: Σ numerator in each resample, shape (row, resample); overwritten.
            denominator: shape (row, prompt_set).
            span: least and greatest value of a set, shape (row, 2).

        Returns:
            For the lower end, for the upper end: shape (row, resample).
        """
        once = ((denominator**2).sum(axis=1) / denominator.sum(axis=1))[:, None]
        total = self._totals(denominator) + once * self.pseudo.sum(axis=0)
        upper = (sums + once * (span @ self.pseudo[::-1])) / total
        sums += once * (span @ self.pseudo)
        sums /= total
        return sums, upper

    def _totals(self, denominator: Floats) -> Floats:
        """Return Σ denominator in each resample, one row where all are the same: mostly, every set
        counts.
        """
        if (denominator == 1).all():
            return np.full((1, self.count), float(self.sets))
        kinds, which = np.unique(denominator, axis=0, return_inverse=True)
        everywhere = (kinds == 1).all(axis=1)
        totals = np.full((len(kinds), self.count), float(self.sets))
        totals[~everywhere] = self.sums(kinds[~everywhere])
        return np.asarray(totals[which.ravel()])


class Estimates(NamedTuple):
    """Values with intervals: arrays of shape (row,), a row for each model, or for each metric and
    model.
    """

    value: Floats
    n: NDArray[np.int64]
    """Prompt-sets that count."""
    low: Floats
    high: Floats
    method: list[str | None]
    """`mid-p`, `bootstrap`, `wilson` or `bonett-price`; None where there is no value."""

    def records(self) -> list[Estimate]:
        """Return the estimate of each row."""
        rows = zip(
            self.value.tolist(),
            self.n.tolist(),
            self.low.tolist(),
            self.high.tolist(),
            self.method,
            strict=True,
        )
        return [
            Estimate(value=value, n=n, interval=(rounded(low), rounded(high)), method=method)
            if n
            else Estimate(value=None, n=0)
            for value, n, low, high, method in rows
        ]


def estimate(
    numerator: Floats,
    denominator: Floats,
    resamples: Resamples,
    *,
    span: Sequence[float] | Floats = (0.0, 1.0),
    binary: bool | Sequence[bool] | NDArray[np.bool_] = False,
    confidence: float = CONFIDENCE,
    sums: Floats | None = None,
) -> Estimates:
    """Return Σ numerator / Σ denominator of each row with an interval, by what is averaged
    (docs/statistics.md).

    A set's value is its numerator over its denominator, which is what it counts.

    - 0 or 1, and every set counts the same: mid-P, which is exact;
    - −1, 0 or 1, differences of the former: Bonett and Price's;
    - scores, their differences, and 0 or 1 where sets count differently or several epochs are
      averaged: the percentile bootstrap over sets with a pseudo-set at either end, at the tails
      that a normal distribution has beyond the t quantile. Fewer than 5 sets have the intervals of
      shares (Wilson; Bonett and Price), which vary more than anything else;
    - sets that are all alike: what so many sets may have missed, in 1 − confidence of all studies,
      lies at either end.

    Sets that count differently are as many as are as informative, Kish's (Σc)² / Σc² (Survey
    Sampling, 1965).

    Args:
        numerator, denominator: shape (row, prompt_set).
        resamples: the weights, of as many prompt-sets.
        span: least and greatest value that a set can have, for all rows or, of shape (row, 2), for
            each. A metric that can be negative is a difference.
        binary: whether a set is 0 or 1 (of differences: each of the two) in one epoch, for all rows
            or for each.
        confidence: above 0 and below 1.
        sums: Σ numerator in each resample, shape (row, resample), where it is known already.
    """
    spans = np.broadcast_to(np.asarray(span, dtype=np.float64), (len(numerator), 2))
    yes_or_no = np.broadcast_to(np.asarray(binary, dtype=bool), len(numerator))
    n = (denominator > 0).sum(axis=1)
    total = denominator.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(total > 0, numerator.sum(axis=1) / total, np.nan)
    low, high = np.full(len(n), np.nan), np.full(len(n), np.nan)
    method: list[str | None] = [None] * len(n)
    resampled: list[int] = []
    for row in np.flatnonzero(n).tolist():
        counted = denominator[row] > 0
        of_row = numerator[row, counted], denominator[row, counted], spans[row]
        found = _formula(*of_row, bool(yes_or_no[row]), confidence)
        if found is None:
            resampled.append(row)
        else:
            low[row], high[row], method[row] = found
    for start in range(0, len(resampled), _ROWS_AT_ONCE):
        rows = resampled[start : start + _ROWS_AT_ONCE]
        drawn = resamples.sums(numerator[rows]) if sums is None else sums[rows]
        ends = resamples.with_pseudo_sets(drawn, denominator[rows], spans[rows])
        for row, lower, upper in zip(rows, *ends, strict=True):
            degrees = int(kish(denominator[row])) - 1
            tail = _normal_tail(t_quantile(0.5 + confidence / 2, degrees))
            low[row] = max(min(_quantile(lower, tail), value[row]), spans[row, 0])
            high[row] = min(max(_quantile(upper, 1 - tail), value[row]), spans[row, 1])
            method[row] = "bootstrap"
    return Estimates(value, n, low, high, method)


def _formula(
    top: Floats, bottom: Floats, span: Floats, binary: bool, confidence: float
) -> tuple[float, float, str] | None:
    """Return the limits of one row and their method, None where they come from resamples; arrays of
    the sets that count.
    """
    least, greatest = float(span[0]), float(span[1])
    width = greatest - least
    signed = least < 0
    n = kish(bottom)
    value = float(top.sum() / bottom.sum())
    if signed and binary:
        return *bonett_price(top / bottom, bottom, greatest, confidence), "bonett-price"
    if np.ptp(top / bottom) < _ALIKE:
        missed = no_event(n, confidence)
        return value - (value - least) * missed, value + (greatest - value) * missed, "mid-p"
    at_greatest = top == greatest * bottom
    if binary and (bottom == bottom[0]).all() and (at_greatest | (top == least * bottom)).all():
        low, high = mid_p(int(at_greatest.sum()), len(top), confidence)
        return least + width * low, least + width * high, "mid-p"
    if n >= _FEWEST_SCORES:
        return None
    if signed:
        return *bonett_price(top / bottom, bottom, greatest, confidence), "bonett-price"
    share = min(max((value - least) / width, 0.0), 1.0)
    low, high = wilson(share, n, continuity=True, confidence=confidence)
    return least + width * low, least + width * high, "wilson"


def kish(weights: Floats) -> float:
    """Return how many sets of equal weight are as informative (Kish, Survey Sampling, 1965)."""
    return round(float(weights.sum() ** 2 / (weights @ weights)), 9)


def percentiles(
    drawn: NDArray[np.floating[Any]], n: int, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return the percentile interval of `n` units from their resamples, at levels widened for few
    units.

    A percentile interval is too narrow by about √((n−1)/n), and by the normal instead of the t
    quantile (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section 5.3).

    Args:
        drawn: a value of each resample, NaN where it is undefined: shape (resample,).
        n: units behind them.
        confidence: above 0 and below 1.

    Returns:
        The limits; None with fewer than two units, or with more than 1 % of the resamples
        undefined.
    """
    undefined = int(np.isnan(drawn).sum())
    defined = len(drawn) - undefined
    if n < 2 or defined < (1 - _MOST_UNDEFINED) * len(drawn):
        return None
    tail = _normal_tail(t_quantile(0.5 + confidence / 2, n - 1) * sqrt(n / (n - 1)))
    there = drawn[~np.isnan(drawn)] if undefined else drawn
    return _quantile(there, tail), _quantile(there, 1 - tail)


@lru_cache(maxsize=4096)
def _normal_tail(distance: float) -> float:
    return NormalDist().cdf(-distance)


def _quantile(drawn: NDArray[np.floating[Any]], share: float) -> float:
    """Return a quantile, interpolated."""
    at = share * (len(drawn) - 1)
    below = int(at)
    above = min(below + 1, len(drawn) - 1)
    ordered = np.partition(drawn, (below, above))
    return float(ordered[below] + (ordered[above] - ordered[below]) * (at - below))
