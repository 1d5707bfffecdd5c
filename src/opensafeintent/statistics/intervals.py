"""Confidence intervals of ratios over prompt-sets, by what is averaged: formulas for shares,
resampled sets for scores; averages of ratios; bounds for missing grades.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby, product
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, Grades, Needs, Ratio
from opensafeintent.statistics.exact import (
    CONFIDENCE,
    bonett_price,
    mid_p,
    no_event,
    t_quantile,
    wilson,
)
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, MODES, STRATEGIES, intent_of

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
        found = _formula(
            numerator[row, counted],
            denominator[row, counted],
            spans[row],
            bool(yes_or_no[row]),
            confidence,
        )
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


def percentiles(drawn: NDArray[np.floating[Any]], n: int) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of `n` units from their resamples, at levels widened for
    few units.

    A percentile interval is too narrow by about √((n−1)/n), and by the normal instead of the t
    quantile (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section 5.3).

    Args:
        drawn: a value of each resample, NaN where it is undefined: shape (resample,).
        n: units behind them.

    Returns:
        The limits; None with fewer than two units, or with more than 1 % of the resamples
        undefined.
    """
    defined = drawn[~np.isnan(drawn)]
    if n < 2 or len(defined) < (1 - _MOST_UNDEFINED) * len(drawn):
        return None
    tail = _normal_tail(t_quantile(0.5 + CONFIDENCE / 2, n - 1) * sqrt(n / (n - 1)))
    return _quantile(defined, tail), _quantile(defined, 1 - tail)


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


# Averages over models, and over strata, as sums over prompt-sets
# ------------------------------------------------------------------------------
# Their intervals are those of any ratio. A mean of several ratios is no ratio. But the ratio that
# has its value, and to which each prompt-set adds what it adds to the mean, its linear part, varies
# like the mean from sample to sample (Woodruff, Journal of the American Statistical Association 66,
# 1971). The unit stays the prompt-set: twenty models that agree on twenty sets are twenty
# observations, not four hundred.


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


# What a flip is made of
# ------------------------------------------------------------------------------
# Wordings of one prompt that differ, or one wording whose answers differ (docs/statistics.md).


class Disagreement(NamedTuple):
    """How often two answers to one prompt-set disagree, whether they are safe: arrays of shape
    (prompt_set,).

    NaN for sets with fewer than two wordings or two answers to each.
    """

    between: Floats
    """B: two answers to two wordings, without bias."""
    within: Floats
    """W: two answers to the same wording, without bias."""

    @property
    def excess(self) -> Floats:
        """B − W, which is E(p_w − p_w′)² for the safe rates of two wordings, without bias; may be
        negative in one set.
        """
        return self.between - self.within


def disagreement(safe: Floats, epochs: NDArray[np.int64]) -> Disagreement:
    """Return how often two answers disagree.

    With p̂_w the safe share of wording w, k wordings and E epochs: W = (1/k) Σ
    2p̂_w(1−p̂_w)·E/(E−1), and B = [2k²p̄(1−p̄) − Σ 2p̂_w(1−p̂_w)] / [k(k−1)], which is the mean
    over pairs of wordings of p̂_w(1−p̂_w′) + p̂_w′(1−p̂_w).

    Args:
        safe: how many answers to each wording are safe, shape (prompt_set, wording); NaN where a
            set has no such wording.
        epochs: answers to each wording of a set, shape (prompt_set,).
    """
    wordings = (~np.isnan(safe)).sum(axis=1)
    counted = (wordings >= 2) & (epochs >= 2)
    k, e = (np.where(counted, number, 2).astype(np.float64) for number in (wordings, epochs))
    share = safe / e[:, None]
    spread = np.nansum(2 * share * (1 - share), axis=1)
    mean = np.nansum(share, axis=1) / k
    within = spread / k * e / (e - 1)
    between = (2 * k * k * mean * (1 - mean) - spread) / (k * (k - 1))
    return Disagreement(*(np.where(counted, part, np.nan) for part in (between, within)))


# How far missing grades could move a number
# ------------------------------------------------------------------------------
# The least and greatest value that they leave open, prompt-set by prompt-set. Grades are not
# missing at random: judges tend to refuse the worst responses.

Parts = tuple[Floats, Floats]
"""Numerator and denominator."""

_GRADES = ((1.0, 3.0), (4.0, 0.0))
"""Helpfulness and harm severity: the worst, and the best."""
_CORNERS = (*_GRADES, (1.0, 0.0))
"""And safe without help: of metrics that compare responses, or leave unsafe ones out, an extreme
may lie there.
"""
_Triple = tuple[tuple[float, float], ...]
"""Of each intent; of wordings, of the first that is missing and of the others."""
_COUNTED = 1e-9
"""A completion in which a set counts goes before one in which it does not, if the value is the
same.
"""
_SAME_BOUND: list[_Triple] = [(grades,) * 3 for grades in _GRADES]
_MODES: list[_Codes] = [(place, None) for place in range(len(MODES))]
_Codes = tuple[int | None, tuple[int, ...] | None]
_OPTIONS: dict[Needs, tuple[list[_Triple], list[_Codes]]] = {
    "triplet": (list(product(_CORNERS, _CORNERS, _GRADES)), [(None, None)]),
    "wordings": (
        [(first, *(others,) * 2) for first, others in product(_CORNERS, repeat=2)],
        [(None, None)],
    ),
    "mode": (_SAME_BOUND[:1], _MODES),
    "mode_and_grades": (_SAME_BOUND, _MODES),
    "strategy": (_SAME_BOUND, [(None, (place,) * 3) for place in range(len(STRATEGIES))]),
    "probes": (list(product(_GRADES, repeat=3)), [(None, (0, 1, 2)), (None, (2, 1, 0))]),
    "benign_mode": (_SAME_BOUND[:1], _MODES),
}
"""What is filled in, by what a metric needs: grades of each intent or wording; mode and strategy of
each intent.
"""


def missing_bounds(
    array: LabelledSet, ratios: Mapping[str, Ratio]
) -> dict[str, tuple[Floats, Floats]]:
    """Return the least and greatest value of every metric, each of shape (model,); NaN if nothing
    can count.

    Args:
        array: the grades, as `grades.to_array` gives them.
        ratios: every metric of them (`metrics.compute`).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            name: (
                low[0].sum(axis=1) / low[1].sum(axis=1),
                high[0].sum(axis=1) / high[1].sum(axis=1),
            )
            for name, (low, high) in extreme_ratios(array, METRICS, ratios).items()
        }


def extreme_ratios(
    array: LabelledSet, names: Collection[str], ratios: Mapping[str, Ratio]
) -> dict[str, tuple[Parts, Parts]]:
    """Return some metrics as they would be with what is missing at its worst and at its best.

    Args:
        array: the grades, as `grades.to_array` gives them.
        names: of the metrics.
        ratios: every metric of the grades.

    Returns:
        By metric, numerator and denominator of the least and of the greatest value, each of shape
        (model, prompt_set).
    """
    found: dict[str, tuple[Parts, Parts]] = {}
    for needs, family in groupby(
        sorted(names, key=lambda name: METRICS[name].needs), key=lambda name: METRICS[name].needs
    ):
        completed = [Grades(done) for done in _completions(array, needs)]
        for name in family:
            every = [METRICS[name].of_sets(grades) for grades in completed] or [ratios[name]]
            parts = tuple(
                np.stack([getattr(one, part).values for one in every]) for part in Ratio._fields
            )
            found[name] = _extreme(*parts, sign=-1), _extreme(*parts, sign=1)
    return found


def _extreme(tops: Floats, bottoms: Floats, *, sign: int) -> Parts:
    """Choose a completion of every set so that Σ top / Σ bottom is greatest (`sign` 1) or least
    (−1).

    That is Dinkelbach's iteration (Management Science 13, 1967): of a set counts what it has above
    the value so far.

    Args:
        tops, bottoms: each of shape (completion, model, prompt_set).
        sign: which end.

    Returns:
        Numerator and denominator, each of shape (model, prompt_set).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (
            np.nan_to_num(sign * tops.sum(axis=2) / bottoms.sum(axis=2), nan=-np.inf).max(axis=0)
            * sign
        )
        value = np.where(np.isfinite(value), value, 0.0)
        while True:
            gains = sign * (tops - value[:, None] * bottoms) + _COUNTED * bottoms
            which = gains.argmax(axis=0)[None]
            top, bottom = (np.take_along_axis(part, which, axis=0)[0] for part in (tops, bottoms))
            better = np.nan_to_num(top.sum(axis=1) / bottom.sum(axis=1), nan=0.0)
            if not (sign * (better - value) > 1e-12).any():
                return top, bottom
            value = better


def _completions(array: LabelledSet, needs: Needs) -> Iterator[LabelledSet]:
    """Yield the grades with what is missing filled in, in each way; none if nothing is missing."""
    missing = {name: array[f"{name}_missing"].values for name in ("grades", "mode", "strategy")}
    if not any(gone.any() for gone in missing.values()):
        return
    if (
        needs == "strategy"
    ):  # an unsafe response is probed: where its grade is missing, so is what the probe would say
        missing["strategy"] = missing["strategy"] | missing["grades"] & np.isnan(
            array["strategy"].values
        )
    dims = array["grades_missing"].dims
    intents = np.array(
        [CORE_VARIANTS.index(intent_of(str(name))) for name in array.labels["variant"]]
    )
    which = intents.reshape([-1 if dim == "variant" else 1 for dim in dims])
    if needs == "wordings":
        of_wordings = missing["grades"] & (which == CORE_VARIANTS.index(DUAL_USE))
        which = np.minimum(of_wordings.cumsum(axis=dims.index("variant")), 2) // 2
    for grades, (mode, strategies) in product(*_OPTIONS[needs]):
        fills = {
            "helpfulness": (missing["grades"], [helpfulness for helpfulness, _ in grades]),
            "harm_severity": (missing["grades"], [harm for _, harm in grades]),
            "mode": (missing["mode"], None if mode is None else [float(mode)] * 3),
            "strategy": (
                missing["strategy"],
                None if strategies is None else [float(place) for place in strategies],
            ),
        }
        arrays = {name: (array[name].dims, array[name].values) for name in array}
        for name, (gone, by_intent) in fills.items():
            if by_intent is not None:
                arrays[name] = (
                    dims,
                    np.where(gone, np.array(by_intent)[which], array[name].values),
                )
        yield LabelledSet(arrays, array.labels)
