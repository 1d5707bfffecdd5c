"""Coefficients of agreement between raters, and disagreement between wordings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.intervals import Floats

Drawn = NDArray[Any]
"""How often each item counts in each resample: shape (item, resample)."""

Scheme = Literal["identity", "quadratic"]
"""Weight of two different ratings: 0, or 1 minus the squared distance over the widest distance."""


class RatingCounts:
    """How many raters put each item into each category.

    Args:
        counts: r_ik, shape (item, category).
        categories: every category that a rater could have chosen, used or not: chance agreement
            depends on their number.
    """

    def __init__(self, counts: Floats, categories: Floats) -> None:
        self.counts = counts
        self.categories = categories
        self.raters: Floats = counts.sum(axis=1)
        """r_i: shape (item,)."""

    @classmethod
    def of(cls, ratings: Floats, categories: Sequence[float]) -> RatingCounts:
        """Count ratings of shape (item, rater), NaN if a rater did not rate an item.

        Raises:
            ValueError: a rating is none of the categories.
        """
        valid = np.asarray(categories, dtype=np.float64)
        if not (np.isnan(ratings) | np.isin(ratings, valid)).all():
            raise ValueError("a rating is none of the categories")
        return cls((ratings[:, :, None] == valid).sum(axis=1).astype(np.float64), valid)

    @cached_property
    def twice(self) -> NDArray[np.bool_]:
        """Which items have two ratings or more: shape (item,)."""
        return np.asarray(self.raters >= 2)

    @cached_property
    def once(self) -> Drawn:
        """Every item once: the sample itself."""
        return np.ones((len(self.counts), 1))

    def compute_weights(self, scheme: Scheme) -> Floats:
        """Return the agreement weights of pairs of ratings, w_kl: shape (category, category)."""
        if scheme == "identity":
            return np.eye(len(self.categories))
        span = self.categories.max() - self.categories.min()
        return np.asarray(1.0 - ((self.categories[:, None] - self.categories) / span) ** 2)

    def pairwise(self, scheme: Scheme = "identity") -> Floats:
        """Return each item's share of agreeing pairs, NaN with fewer than two ratings: shape
        (item,).

        a_i = Σ_k r_ik (r*_ik − 1) / (r_i (r_i − 1)) with r*_ik = Σ_l w_kl r_il.
        """
        pairs = self.raters * (self.raters - 1)
        agreeing = (self.counts * (self.counts @ self.compute_weights(scheme) - 1)).sum(axis=1)
        return np.where(pairs > 0, agreeing / np.where(pairs > 0, pairs, 1), np.nan)

    @cached_property
    def _shares(self) -> Floats:
        """Each item's ratings as shares; zeros if it has none."""
        return self.counts / np.maximum(self.raters, 1)[:, None]

    def compute_observed(self, drawn: Drawn, scheme: Scheme) -> Floats:
        """Return p_a, the mean of a_i over the items with two ratings or more: shape
        (resample,).
        """
        pairwise = self.pairwise(scheme)
        twice = ~np.isnan(pairwise)
        return _ratio(_sums(drawn, np.where(twice, pairwise, 0.0)), _sums(drawn, twice))

    def _prevalence(self, drawn: Drawn) -> Floats:
        """Return π_k, the mean share of ratings in each category over the rated items: shape
        (resample, category).
        """
        return _ratio(_sums(drawn, self._shares), _sums(drawn, self.raters > 0)[:, None])

    def compute_expected(self, drawn: Drawn, scheme: Scheme) -> Floats:
        """Return Gwet's chance agreement p_e = T / (q (q − 1)) · Σ_k π_k (1 − π_k), T = Σ w_kl:
        shape (resample,).
        """
        prevalence = self._prevalence(drawn)
        return np.asarray(self._chance(scheme) * (prevalence * (1 - prevalence)).sum(axis=1))

    def _chance(self, scheme: Scheme) -> float:
        size = len(self.categories)
        return float(self.compute_weights(scheme).sum()) / (size * (size - 1))

    def gwet(self, drawn: Drawn, scheme: Scheme = "identity") -> Floats:
        """Return Gwet's coefficient (p_a − p_e) / (1 − p_e), AC1 with `identity` and AC2 otherwise:
        shape (resample,).

        Gwet, British Journal of Mathematical and Statistical Psychology 61, 2008; Handbook of
        Inter-Rater Reliability, 4th edition, 2014. It is 1 if all ratings are equal, and NaN if no
        item has two.
        """
        expected = self.compute_expected(drawn, scheme)
        return _ratio(self.compute_observed(drawn, scheme) - expected, 1 - expected)

    def gwet_error(self, scheme: Scheme) -> float:
        """Return the standard error of Gwet's coefficient over items (Gwet 2008; for missing
        ratings 2014).

        √(Σ_i (c_i − γ)² / (n (n − 1))) over the n rated items, with

        - γ the coefficient, and n₂ the items with two ratings or more;
        - c_i = n/n₂ · (a_i − p_e)/(1 − p_e) − 2 (1 − γ)(e_i − p_e)/(1 − p_e), its first part 0 if
          the item has one rating;
        - e_i = T / (q (q − 1)) · Σ_k (1 − π_k) r_ik / r_i.
        """
        value = float(self.gwet(self.once, scheme)[0])
        expected = float(self.compute_expected(self.once, scheme)[0])
        rated = self.raters > 0
        items = int(rated.sum())
        if items < 2 or np.isnan(value):
            return float("nan")
        pairwise = self.pairwise(scheme)[rated]
        twice = ~np.isnan(pairwise)
        observed = np.where(twice, pairwise - expected, 0.0) * items / twice.sum()
        chance = self._chance(scheme) * (self._shares[rated] @ (1 - self._prevalence(self.once)[0]))
        parts = (observed - 2 * (1 - value) * (chance - expected)) / (1 - expected)
        return float(np.sqrt(((parts - value) ** 2).sum() / (items * (items - 1))))

    def alpha(self, drawn: Drawn) -> Floats:
        """Return Krippendorff's alpha for nominal data: shape (resample,).

        α = 1 − (n − 1) Σ o_kl δ_kl / Σ n_k n_l δ_kl (Krippendorff, Computing Krippendorff's
        Alpha-Reliability, 2011), with

        - o_kl the coincidences Σ_i (pairs k, l in i) / (r_i − 1) over items with two ratings or
          more;
        - n_k = Σ_l o_kl and n = Σ n_k;
        - δ_kl 1 for two different categories.

        It is NaN if all ratings are equal: chance disagreement is then 0.
        """
        size = len(self.categories)
        same = np.eye(size)
        pairs = self.counts[:, :, None] * self.counts[:, None, :] - self.counts[:, :, None] * same
        pairs = pairs * (self.twice / np.maximum(self.raters - 1, 1))[:, None, None]
        coincidences = _sums(drawn, pairs.reshape(len(pairs), size * size)).reshape(-1, size, size)
        totals = coincidences.sum(axis=2)
        ratings = totals.sum(axis=1)
        disagreement = (coincidences * (1 - same)).sum(axis=(1, 2))
        chance = (totals[:, :, None] * totals[:, None, :] * (1 - same)).sum(axis=(1, 2))
        return 1 - _ratio((ratings - 1) * disagreement, chance)


def _sums(drawn: Drawn, features: NDArray[Any]) -> Floats:
    """Return the sums of features over drawn items: shape (resample,) or (resample, feature)."""
    return np.asarray(drawn.T @ features.astype(drawn.dtype), dtype=np.float64)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """Return top / bottom, NaN if the bottom is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(bottom > 1e-9, top / bottom, np.nan)


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

    With p̂_w the safe share of wording w, k wordings and E epochs:

    - W = (1/k) Σ 2p̂_w(1−p̂_w)·E/(E−1);
    - B = [2k²p̄(1−p̄) − Σ 2p̂_w(1−p̂_w)] / [k(k−1)], the mean over pairs of wordings of
      p̂_w(1−p̂_w′) + p̂_w′(1−p̂_w).

    Args:
        safe: safe answers to each wording, shape (prompt_set, wording); NaN if a set has no such
            wording.
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


def excess_span(safe: Floats, epochs: NDArray[np.int64]) -> tuple[float, float]:
    """Return the least and greatest B − W that these sets can have.

    With k wordings and E epochs it lies between −1/(2(E−1)), if half of the answers to each wording
    are safe, and 2⌊k/2⌋⌈k/2⌉/(k(k−1)), if every answer to half of the wordings is.

    Args:
        safe, epochs: as for `disagreement`, of the sets that count.
    """
    if not len(epochs):
        return -1.0, 1.0
    k = (~np.isnan(safe)).sum(axis=1)
    most = 2 * (k // 2) * ((k + 1) // 2) / (k * (k - 1))
    return float((-1 / (2 * (epochs - 1))).min()), float(most.max())
