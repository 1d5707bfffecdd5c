"""Sign flips of paired differences: is any of many differences more than chance explains?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import SEED, Floats

FLIPS = 10_000
_PAIRS_AT_ONCE = 64
_SIGNS_AT_ONCE = 4_000_000
"""32 MB of signs as numbers to multiply by."""
_TIE = 1e-9
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
        same: NDArray[np.bool_] = (self.weights == self.weights[:1]).all(axis=0)
        return same

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


class Flipped(NamedTuple):
    """Two-sided p-values of every two models: arrays of shape (model, model), NaN where no set
    counts for both.
    """

    p: Floats
    """Of each pair on its own."""
    p_adjusted: Floats
    """Among all pairs."""


def step_down(paired: Paired, flips: int = FLIPS) -> Flipped:
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
    """
    test = _Test(paired, flips)
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

    return Flipped(square(share(alone)), square(share(among_all)))


class _Test:
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
        self.least = observed * (1 - _TIE) - _TIE
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
