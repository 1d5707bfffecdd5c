"""Is one model better than another? Sign flips, paired over the prompt-sets that count for both,
all pairs of a metric as one family; rank intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import SEED, Estimate, Floats, Resamples, estimate, rounded

FLIPS = 10_000
_PAIRS_AT_ONCE = 64
_SIGNS_AT_ONCE = 4_000_000
"""32 MB of signs as numbers to multiply by."""
_FLIP_TIE = 1e-9
"""Statistics that are no further apart are equal: beyond that the order in which a machine adds
decides.
"""


class Paired:
    """The values of some models, set by set, and their pairs: every pair once, the second after the
    first.

    Args:
        numerator, denominator: shape (model, prompt_set). A set's denominator is its weight, 0
            where it does not count.

    Attributes:
        values: 0 where a set does not count.
        weights: the denominators.
        first, second: the models of each pair, shape (pair,).
    """

    def __init__(self, numerator: Floats, denominator: Floats) -> None:
        self.weights = denominator
        with np.errstate(invalid="ignore", divide="ignore"):
            self.values = np.where(denominator > 0, numerator / denominator, 0.0) + 0.0
        self.first, self.second = np.triu_indices(len(denominator), 1)

    def differences(
        self, pairs: NDArray[np.intp] | slice, sets: NDArray[np.bool_] | slice = slice(None)
    ) -> tuple[Floats, Floats]:
        """Return weight × difference, second minus first, and weight, of some pairs: shape (pair,
        prompt_set).

        Both are 0 where a set does not count for both; where two models differ in its weight, it is
        the mean of the two.
        """
        first, second = self.first[pairs], self.second[pairs]
        values, weights = self.values[:, sets], self.weights[:, sets]
        both = (weights[first] + weights[second]) / 2
        both[(weights[first] <= 0) | (weights[second] <= 0)] = 0.0
        return both * (values[second] - values[first]), both

    @property
    def alike(self) -> NDArray[np.bool_]:
        """Sets that weigh the same in every model and pair: shape (prompt_set,)."""
        return np.asarray((self.weights == self.weights[:1]).all(axis=0))

    def blocks(self) -> Iterator[slice]:
        """Yield all pairs, some at a time, so that few are in memory."""
        for start in range(0, len(self.first), _PAIRS_AT_ONCE):
            yield slice(start, min(start + _PAIRS_AT_ONCE, len(self.first)))

    def square(self, above: NDArray[np.generic], below: NDArray[np.generic]) -> Floats:
        """Return (model, model) from what belongs above and below the diagonal, NaN on it: shape
        (pair,) each.
        """
        square = np.full((len(self.weights), len(self.weights)), np.nan)
        square[self.first, self.second], square[self.second, self.first] = above, below
        return square


def step_down(paired: Paired, flips: int = FLIPS) -> tuple[Floats, Floats]:
    """Test every pair for a mean difference of zero, adjusted for being one of many by step-down
    max-T.

    The statistic is T = |Σ d| / √Σ d², d being weight × difference in each set. One flip gives
    every set a sign, the same for all pairs, which is to flip the models' values and then subtract;
    √Σ d² stays what it is. A pair's adjusted p is the share of flips in which the largest T, of it
    and of all pairs with a smaller T, reaches its T, and at least that of every pair with a larger
    T (Westfall and Young 1993; Romano and Wolf, Journal of the American Statistical Association
    100, 2005). What a flip does to some pairs does not depend on the others, so the error rate
    holds whichever of them differ.

    Where there are no more different flips than `flips`, each is taken once, and p-values are
    exact. Time grows with pairs × flips; in memory are 64 × flips numbers, fewer flips at a time
    where sets are many.

    Returns:
        Two-sided p-values of every two models, of each pair on its own and among all pairs: shape
        (model, model), NaN where no set counts for both.
    """
    test = _FlipTest(paired, flips)
    pairs = len(paired.first)
    alone, among_all = np.zeros(pairs, dtype=np.int64), np.zeros(pairs, dtype=np.int64)
    taken = 0
    for signs in test.signs():
        taken += signs.shape[1]
        highest = np.zeros(signs.shape[1])
        for pair, drawn in test.drawn(signs):
            least = test.least[pair]
            alone[pair] += np.count_nonzero(drawn >= least)
            np.maximum(highest, drawn, out=highest)
            among_all[pair] += np.count_nonzero(highest >= least)
    # each pair's count is at least that of every pair with a larger T
    among_all[test.order[::-1]] = np.maximum.accumulate(among_all[test.order[::-1]])

    def share(counts: NDArray[np.int64]) -> Floats:
        observed = 0 if test.exact else 1  # besides what was drawn
        return np.asarray((observed + counts) / max(observed + taken, 1), dtype=np.float64)

    def square(p: Floats) -> Floats:
        p = np.where(test.differ, p, np.where(test.counted, 1.0, np.nan))
        return paired.square(p, p)

    return square(share(alone)), square(share(among_all))


class _FlipTest:
    """What is observed of every pair, and what flips make of it.

    Attributes:
        counted: pairs with a set that counts for both.
        differ: pairs with a set in which the two differ.
        least: what a flipped T has to reach to be as large as the observed one.
        order: pairs that differ, the smallest T first.
        exact: whether all flips that there are can be taken.
    """

    def __init__(self, paired: Paired, flips: int) -> None:
        self._paired, self._flips = paired, flips
        pairs = len(paired.first)
        observed, self._norms = np.zeros(pairs), np.zeros(pairs)
        self.counted = np.zeros(pairs, dtype=bool)
        active = np.zeros(paired.weights.shape[1], dtype=bool)
        for rows in paired.blocks():
            weighted, weights = paired.differences(rows)
            self._norms[rows] = np.sqrt((weighted**2).sum(axis=1))
            self.counted[rows] = weights.any(axis=1)
            observed[rows] = np.abs(weighted.sum(axis=1)) / np.maximum(
                self._norms[rows], np.finfo(np.float64).tiny
            )
            active |= weighted.any(axis=0)
        self.differ = self._norms > 0
        self.least = observed * (1 - _FLIP_TIE) - _FLIP_TIE
        order = np.argsort(observed, kind="stable")
        self.order = order[self.differ[order]]
        alike = paired.alike
        self._alike, self._unlike = active & alike, active & ~alike
        self._sets = int(active.sum())
        self.exact = 1 << max(self._sets - 1, 0) <= flips

    def signs(self) -> Iterator[Floats]:
        """Yield signs for the sets in which any pair differs, some flips at a time: shape
        (prompt_set, flip).

        They are drawn at random, or all that there are but their mirror images, which have the same
        T.
        """
        sets = self._sets
        if not sets:
            return
        if self.exact:
            every = 1 << (sets - 1)
            bits = (
                np.arange(every) >> np.arange(sets)[:, None] & 1
            )  # that of the last set is 0 throughout
            yield np.asarray(1 - 2 * bits, dtype=np.float64)
            return
        generator = np.random.default_rng(SEED)
        at_once = max(1, min(self._flips, _SIGNS_AT_ONCE // sets))
        for start in range(0, self._flips, at_once):
            shape = sets, min(at_once, self._flips - start)
            yield generator.integers(0, 2, size=shape, dtype=np.int8).astype(np.float64) * 2 - 1

    def drawn(self, signs: Floats) -> Iterator[tuple[int, Floats]]:
        """Yield every pair that differs, the smallest T first, with its T in each flip."""
        paired, alike = self._paired, int(self._alike.sum())
        sums = (paired.weights * paired.values)[:, self._alike] @ signs[:alike]
        for start in range(0, len(self.order), _PAIRS_AT_ONCE):
            block = self.order[start : start + _PAIRS_AT_ONCE]
            found = sums[paired.second[block]] - sums[paired.first[block]]
            if self._unlike.any():
                found += paired.differences(block, self._unlike)[0] @ signs[alike:]
            np.abs(found, out=found)
            found /= self._norms[block][:, None]
            yield from zip(block.tolist(), found, strict=True)


# How far two models are apart, standardised
# ------------------------------------------------------------------------------
# One statistic for differences of 0/1 and of scores.

_HALVINGS = 40
_BETWEEN = 32
_REFINEMENTS = 5
"""An end of an interval is looked for among 32 differences at a time: to a part in 32⁵ of the span.
"""
_NOTHING = 1e-12


def score_statistic(
    values: Floats,
    counts: NDArray[np.integer] | Floats,
    against: Floats | float,
    width: float,
    *,
    skewness: bool = True,
) -> Floats:
    """Return the score statistic of a mean difference, corrected for skewness: standard normal
    where the mean is `against`.

    z = Σ(d − Δ) / √(n V), V the variance of the likeliest distribution of differences within ±
    `width` whose mean is Δ: the empirical likelihood (Owen, Biometrika 75, 1988) with both greatest
    differences as possible values, observed or not. For differences of 0/1 it is that of Tango
    (Statistics in Medicine 17, 1998), and at Δ = 0 McNemar's. With γ the third
    central moment over V^(3/2) √n, what is returned is the x of z = x + γ (x² − 1) / 6 (Gart and
    Nam, Biometrics 44, 1988): where one model alone fails now and then, z itself errs up to four
    times α at the small α of many comparisons.

    Args:
        values: the differences that there are. Shape (value,).
        counts: how many prompt-sets have each, at least one in all. Shape (…, value).
        against: Δ, above −`width` and below `width`. Shape (…,).
        width: the greatest difference that a set can have.
        skewness: whether to correct for it.

    Returns:
        Shape (…,); 0 where all differences are Δ.
    """
    against = np.asarray(against, dtype=np.float64)
    away = values - against[..., None]
    shape = np.broadcast_shapes(counts.shape[:-1], against.shape)
    low = np.broadcast_to(-1 / (width - against), shape).copy()
    high = np.broadcast_to(1 / (width + against), shape).copy()
    for _ in range(
        _HALVINGS
    ):  # the tilt λ at which Σ (d − Δ) / (1 + λ (d − Δ)) is 0, within what all differences allow
        tilt = (low + high) / 2
        positive = (counts * away / np.maximum(1 + tilt[..., None] * away, _NOTHING)).sum(
            axis=-1
        ) > 0
        low, high = np.where(positive, tilt, low), np.where(positive, high, tilt)
    tilt = (low + high) / 2
    n = counts.sum(axis=-1)
    likeliest = counts / n[..., None] / np.maximum(1 + tilt[..., None] * away, _NOTHING)
    unseen = np.maximum(
        1 - likeliest.sum(axis=-1), 0
    )  # what the greatest difference against the tilt must have
    farthest = np.where(tilt > 0, -width, width) - against
    variance = (likeliest * away**2).sum(axis=-1) + unseen * farthest**2
    third = (likeliest * away**3).sum(axis=-1) + unseen * farthest**3
    spread = np.where(variance > _NOTHING, variance, np.inf)
    z: Floats = (counts * away).sum(axis=-1) / np.sqrt(n * spread)
    return _unskewed(z, third / (spread**1.5 * np.sqrt(n)) / 6) if skewness else z


def _unskewed(z: Floats, skew: Floats) -> Floats:
    """Return the x of z = x + skew·(x² − 1); where there is none, the x nearest to it."""
    root = np.sqrt(np.maximum(1 + 4 * skew * (z + skew), 0)) - 1
    small = np.abs(skew) < 1e-6
    return np.where(small, z, root / np.where(small, 1, 2 * skew))


def differences_not_rejected(
    values: Floats, counts: Floats, quantile: float, width: float, *, skewness: bool = True
) -> tuple[float, float]:
    """Return the mean differences whose statistic stays within ± `quantile`: an interval within ±
    `width`.

    Args:
        values, counts: as for `score_statistic`, counts of shape (value,).
        quantile: above 0.
        width: the greatest difference that a set can have.
        skewness: whether the statistic is corrected for it.
    """
    mean = float(values @ counts) / float(counts.sum())

    def end(far: float) -> float:
        near = mean
        if abs(near - far) < _NOTHING:
            return far
        for _ in range(_REFINEMENTS):
            tried = np.linspace(near, far, _BETWEEN + 1)[1:-1]
            every = np.broadcast_to(counts, (len(tried), len(counts)))
            rejected = (
                np.abs(score_statistic(values, every, tried, width, skewness=skewness)) >= quantile
            )
            first = int(rejected.argmax()) if rejected.any() else len(tried)
            near, far = (
                (near if first == 0 else float(tried[first - 1])),
                (far if first == len(tried) else float(tried[first])),
            )
        return far

    return rounded(end(-width)), rounded(end(width))


# Is one model better than another?
# ------------------------------------------------------------------------------

SIGNIFICANCE = 0.05
"""A difference with an adjusted p below is more than chance explains."""
_DETECTABLE = 2.8
"""z(0.975) + z(0.80): the difference that a two-sided test at 5 % finds with a power of 80 %, in
standard errors.
"""
_TIE = 1e-12
"""A standard error below is rounding: all differences are the same."""


class Difference(Estimate, frozen=True, kw_only=True):
    """The difference of two models, second minus first; `n` prompt-sets count for both."""

    p: float
    """Of this pair on its own."""
    p_adjusted: float
    """Of this pair among all pairs of models."""
    detectable: float | None
    """None where no set differs from another."""

    @property
    def beyond_chance(self) -> bool:
        """Whether it is more than chance explains, among all pairs."""
        return self.p_adjusted < SIGNIFICANCE


class Comparison(NamedTuple):
    """Differences of every two models in one metric: arrays of shape (model, model), column minus
    row; NaN where none.
    """

    difference: Floats
    """[a, b] is the value of b minus that of a: later minus earlier, where models stand in the
    order of their naming.
    """
    low: Floats
    high: Floats
    """95 % interval of the difference."""
    n: NDArray[np.int64]
    """Prompt-sets that count for both; on the diagonal, for the one."""
    p: Floats
    """Of each pair on its own: McNemar's mid-P for 0/1, sign-flip permutation for means and
    weighted sets; two-sided.
    """
    p_adjusted: Floats
    """Step-down max-T over all pairs: the chance to call any pair different that is not is 5 % at
    most.
    """
    detectable: Floats
    """Smallest detectable difference: 2.8 × the paired standard error; NaN where no set differs
    from another.
    """

    def pair(self, first: int, second: int) -> Difference | None:
        """Return what the second model has more than the first, rounded; None where no prompt-set
        counts for both.
        """
        at = first, second
        if not self.n[at]:
            return None
        return Difference(
            value=rounded(self.difference[at]),
            n=int(self.n[at]),
            interval=(rounded(self.low[at]), rounded(self.high[at])),
            p=rounded(self.p[at]),
            p_adjusted=rounded(self.p_adjusted[at]),
            detectable=None if np.isnan(self.detectable[at]) else rounded(self.detectable[at]),
        )


def compare_models(
    ratios: Mapping[str, tuple[Floats, Floats]],
    resamples: Resamples,
    *,
    binary: Collection[str] = (),
) -> dict[str, Comparison]:
    """Compare every two models on the sets that count for both, in each of several metrics between
    0 and 1.

    A model's numbers do not depend on the place at which it stands: they are computed in an order
    that the values decide.

    Args:
        ratios: numerator and denominator by metric, each of shape (model, prompt_set). A set's
            denominator is its weight, 0 where it does not count; where two models differ in it, the
            mean of the two.
        resamples: the same weights as for the models' own intervals.
        binary: metrics in which a set's value is 0 or 1: two models are tested by McNemar's mid-P.
            With several epochs it no longer is, and the permutation test is used, as for means.
    """
    return {
        name: _compared(numerator, denominator, resamples, binary=name in binary)
        for name, (numerator, denominator) in ratios.items()
    }


def rank_intervals(
    comparison: Comparison, *, less_is_better: bool = False
) -> list[tuple[int, int] | None]:
    """Return the ranks that each model may have: [1 + significantly better, m − significantly
    worse], m models with a value.

    They all hold the true ranks at once in 95 % of studies (Mogstad, Romano, Shaikh and Wilhelm,
    Review of Economic Studies 91, 2024).

    Args:
        comparison: of the models.
        less_is_better: whether rank 1 is the least value.

    Returns:
        By model; None where it has no value.
    """
    defined = np.diagonal(comparison.n) > 0
    with np.errstate(invalid="ignore"):
        significant = comparison.p_adjusted < SIGNIFICANCE
        ahead = comparison.difference < 0 if less_is_better else comparison.difference > 0
        better = (significant & ahead).sum(axis=1)
        worse = (significant & ~ahead).sum(axis=1)
    models = int(defined.sum())
    return [
        (1 + int(above), models - int(below)) if there else None
        for there, above, below in zip(defined, better, worse, strict=True)
    ]


# A metric
# ------------------------------------------------------------------------------


def _compared(
    numerator: Floats, denominator: Floats, resamples: Resamples, *, binary: bool
) -> Comparison:
    """Compare every two models in one metric; see `compare_models`."""
    keys = [
        top.tobytes() + bottom.tobytes()
        for top, bottom in zip(numerator + 0.0, denominator + 0.0, strict=True)
    ]
    order = sorted(
        range(len(keys)), key=keys.__getitem__
    )  # the same flips for the same values, wherever they stand
    found = _in_order(Paired(numerator[order], denominator[order]), resamples, binary=binary)
    back = np.argsort(order)
    return found._replace(
        **{name: part[np.ix_(back, back)] for name, part in found._asdict().items()}
    )


def _in_order(paired: Paired, resamples: Resamples, *, binary: bool) -> Comparison:
    exact = binary and _zero_or_one(paired)
    pairs = len(paired.first)
    value, low, high, error, mid = (np.full(pairs, np.nan) for _ in range(5))
    n, differ = np.zeros(pairs, dtype=np.int64), np.zeros(pairs)
    alike = not exact and paired.alike.all()
    of_models = resamples.sums(paired.weights * paired.values) if alike else None
    for rows in paired.blocks():
        weighted, weights = paired.differences(rows)
        sums = (
            None
            if of_models is None
            else of_models[paired.second[rows]] - of_models[paired.first[rows]]
        )
        got = estimate(weighted, weights, resamples, span=(-1.0, 1.0), binary=exact, sums=sums)
        value[rows], low[rows], high[rows], n[rows] = got.value, got.low, got.high, got.n
        error[rows], differ[rows] = (
            _standard_error(weighted, weights, got.value),
            weighted.any(axis=1),
        )
        if exact:
            better, worse = (weighted > 0).sum(axis=1), (weighted < 0).sum(axis=1)
            kinds = zip(better.tolist(), worse.tolist(), strict=True)
            mid[rows] = [mcnemar(more, less) for more, less in kinds]
    flipped, among_all = step_down(paired)
    p = np.where(np.isnan(paired.square(mid, mid)), flipped, paired.square(mid, mid))
    p[np.isnan(flipped)] = np.nan
    differing = paired.square(differ, differ) == 1
    counts = paired.square(n, n)
    np.fill_diagonal(counts, (paired.weights > 0).sum(axis=1))
    return Comparison(
        difference=paired.square(value, -value),
        low=paired.square(low, -high),
        high=paired.square(high, -low),
        n=counts.astype(np.int64),
        p=p,
        p_adjusted=p if differing.sum() == 2 else np.maximum(p, among_all),
        detectable=paired.square(_DETECTABLE * error, _DETECTABLE * error),
    )


def _zero_or_one(paired: Paired) -> bool:
    """Tell whether each set's value is 0 or 1 and all weigh the same: then McNemar's test is
    exact.
    """
    counted = paired.weights > 0
    return bool(
        np.isin(paired.values[counted], (0.0, 1.0)).all()
        and len(np.unique(paired.weights[counted])) <= 1
    )


def _standard_error(weighted: Floats, weights: Floats, mean: Floats) -> Floats:
    """Return the standard error of each mean difference, NaN where no set differs from another:
    shape (pair, prompt_set).
    """
    n = (weights > 0).sum(axis=1)
    residuals = weighted - weights * mean[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt((residuals**2).sum(axis=1) * n / (n - 1)) / weights.sum(axis=1)
    return np.where(error > _TIE, error, np.nan)


# 0 or 1
# ------------------------------------------------------------------------------


def mcnemar(better: int, worse: int) -> float:
    """Return McNemar's two-sided mid-P: 2 · P(X < x) + P(X = x), at most 1, x being the rarer kind
    of discordant sets.

    X is binomial on all of them. Its size is nearer to 5 % than that of the exact test, 2 · P(X ≤
    x), and in practice not above (Fagerland, Lydersen and Laake, BMC Medical Research Methodology
    13, 2013).
    """
    rarer, discordant = min(better, worse), better + worse
    return min(binomial_tail(rarer, discordant) + binomial_tail(rarer - 1, discordant), 1.0)


@lru_cache(maxsize=4096)
def binomial_tail(successes: int, trials: int) -> float:
    """Return the probability of so many successes or fewer in trials that succeed half of the time;
    exact.
    """
    return sum(comb(trials, count) for count in range(successes + 1)) / (1 << trials)
