"""Is one model better than another? Paired over the prompt-sets that count for both, all pairs of a
metric as one family.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.flips import Paired, step_down
from opensafeintent.statistics.intervals import Estimate, Floats, Resamples, estimate, rounded

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
    alike = not exact and bool((paired.weights == paired.weights[:1]).all())
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
        mid[rows] = _of_pairs(weighted) if exact else np.nan
    flipped = step_down(paired)
    p = np.where(np.isnan(paired.square(mid, mid)), flipped.p, paired.square(mid, mid))
    p[np.isnan(flipped.p)] = np.nan
    differing = paired.square(differ, differ) == 1
    counts = paired.square(n, n)
    np.fill_diagonal(counts, (paired.weights > 0).sum(axis=1))
    return Comparison(
        difference=paired.square(value, -value),
        low=paired.square(low, -high),
        high=paired.square(high, -low),
        n=counts.astype(np.int64),
        p=p,
        p_adjusted=p if differing.sum() == 2 else np.maximum(p, flipped.p_adjusted),
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


def _of_pairs(weighted: Floats) -> Floats:
    """Return McNemar's two-sided mid-P of each pair, NaN where no set differs: shape (pair,
    prompt_set).
    """
    better, worse = (weighted > 0).sum(axis=1), (weighted < 0).sum(axis=1)
    return np.array(
        [mcnemar(int(more), int(less)) for more, less in zip(better, worse, strict=True)],
        dtype=np.float64,
    )


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
