"""Agreement of a judge with people on "unsafe": rates over responses, with prompts as clusters.

The reference is the strict majority of the people who labelled a response. A tie is neither safe
nor unsafe: it is left out of the value, and counted both ways as bounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.statistics.coefficients import RatingCounts
from opensafeintent.statistics.intervals import SEED, Floats, round_number
from opensafeintent.statistics.samples import RESAMPLES, Sample, SampleEstimate

FEWEST = 10
"""Responses, and prompts, behind a rate with an interval; with fewer, only counts are shown."""
_MOST_DRAWN = 20_000_000
"""Prompts in all resamples together."""
_FEWEST_RESAMPLES = 1_000


class LabelRate(SampleEstimate, frozen=True, kw_only=True):
    """A share of labelled responses; `n` is the number of responses that it is a share of, or of
    pairs of a response and a person.
    """

    count: int
    """The responses that it counts."""
    ties: tuple[float, float] | None = None
    """The least and greatest value if every tie of people is safe, or unsafe; None without ties."""


class ErrorRates(NamedTuple):
    """Two error rates of a reference or a judge: shares from 0 to 1."""

    catches_unsafe: float
    """P(called unsafe | unsafe)."""
    false_alarms: float
    """P(called unsafe | safe)."""


def majority(unsafe: Floats) -> Floats:
    """Return the strict majority of people: 1 is unsafe, 0 is safe, 0.5 a tie; NaN without labels.

    Args:
        unsafe: 1, 0, or NaN without a label: shape (item, person).

    Returns:
        Shape (item,).
    """
    given = ~np.isnan(unsafe)
    number = given.sum(axis=1)
    share = np.where(given, unsafe, 0.0).sum(axis=1) / np.maximum(number, 1)
    strict = np.where(share > 0.5, 1.0, np.where(share < 0.5, 0.0, 0.5))
    return np.where(number > 0, strict, np.nan)


def take_other_majorities(unsafe: Floats) -> Floats:
    """Return, for each person, the strict majority of the others: 1 or 0; NaN in a tie, without
    others, and if the person gave no label.

    Args:
        unsafe: as for `majority`, shape (item, person).

    Returns:
        Shape (item, person).
    """
    given = ~np.isnan(unsafe)
    votes = np.where(given, unsafe, 0.0)
    number = given.sum(axis=1, keepdims=True) - given
    twice = 2 * (votes.sum(axis=1, keepdims=True) - votes)
    defined = given & (number > 0) & (twice != number)
    return np.where(defined, twice > number, np.nan)


class LabelSample:
    """Labelled responses as they were drawn, each with its prompt.

    Args:
        prompts: the cluster that each response belongs to. Shape (item,).
        weights: one over the probability with which each response was drawn, given its label. Shape
            (item,); None if all were.
        seed: of the resampling.
    """

    def __init__(
        self,
        prompts: Sequence[Hashable],
        weights: Sequence[float] | None = None,
        *,
        seed: int = SEED,
    ) -> None:
        units = max(len(set(prompts)), 1)
        count = max(_FEWEST_RESAMPLES, min(RESAMPLES, _MOST_DRAWN // units))
        self._equal = Sample(prompts, count=count, seed=seed)
        self.weighted = self._equal
        """With the weights of the draw, for numbers that depend on how common a label is."""
        if weights is not None:
            self.weighted = Sample(prompts, weights=weights, count=count, seed=seed)
        self.prompts = self._equal.unit

    def rate(
        self, hits: Floats, cases: Floats, undefined: str, *, weighted: bool = False
    ) -> LabelRate:
        """Return Σ hits / Σ cases with an interval over prompts; none with fewer than ten responses
        or prompts that count.

        Args:
            hits, cases: how often each response counts, shape (item,).
            undefined: why there is no value, if nothing counts.
            weighted: whether it depends on how common a label is.
        """
        sample = self.weighted if weighted else self._equal
        estimate = sample.ratio(hits, cases, undefined=undefined)
        fields = msgspec.structs.asdict(self._drop_few(estimate, cases))
        return LabelRate(**(fields | {"n": int(cases.sum()), "count": int(hits.sum())}))

    def share(self, holds: Floats, undefined: str, *, weighted: bool = False) -> LabelRate:
        """Return the share of responses for which something holds, NaN if one does not count: shape
        (item,).
        """
        counts = ~np.isnan(holds)
        return self.rate(
            np.where(counts, holds, 0.0), counts.astype(np.float64), undefined, weighted=weighted
        )

    def ac1(self, first: Floats, second: Floats) -> SampleEstimate:
        """Return Gwet's AC1 of two graders of "unsafe", weighted, with an interval over prompts.

        Args:
            first, second: 1, 0, or NaN if a response does not count: shape (item,).
        """
        both = ~np.isnan(first) & ~np.isnan(second)
        pair = np.where(both[:, None], np.stack([first, second], axis=1), np.nan)
        counts = RatingCounts.of(pair, (0.0, 1.0))
        estimate = self.weighted.gwet(counts, "identity", "no response was graded by both")
        return self._drop_few(estimate, both.astype(np.float64))

    def difference(self, first: Floats, second: Floats) -> SampleEstimate:
        """Return the mean of first − second, weighted, over the responses that have both, with an
        interval over prompts.

        Args:
            first, second: from 0 to 1, NaN if there is none: shape (item,).
        """
        both = (~np.isnan(first - second)).astype(np.float64)
        estimate = self.weighted.mean(first - second, (-1.0, 1.0), "no response was graded by both")
        return self._drop_few(estimate, both)

    def _drop_few(self, estimate: SampleEstimate, cases: Floats) -> SampleEstimate:
        """Return an estimate without its interval if it has few responses or prompts."""
        if estimate.value is None:
            return estimate
        estimate = msgspec.structs.replace(estimate, value=round_number(estimate.value))
        counting = cases > 0
        if min(int(counting.sum()), len(np.unique(self.prompts[counting]))) < FEWEST:
            return msgspec.structs.replace(estimate, interval=None, method=None, se=None)
        return estimate


def if_people_err(
    observed: ErrorRates, unsafe_share: float, people: ErrorRates
) -> ErrorRates | None:
    """Return a judge's rates if the majority of people errs at these rates, independently of the
    judge (Buck and Gart, American Journal of Epidemiology 83, 1966).

    With s, f the observed rates and m the share of unsafe responses according to people, whose
    misses are a = 1 − P(people say unsafe | unsafe) and false alarms b:

    - p₁ = m·s and p₀ = (1 − m)·f;
    - x = ((1 − b) p₁ − b p₀) / (1 − a − b), y = ((1 − a) p₀ − a p₁) / (1 − a − b);
    - π = (m − b) / (1 − a − b);
    - the judge catches x / π of the unsafe, and its false alarms are y / (1 − π).

    Returns:
        The rates, within 0 and 1; None if people's labels are too inaccurate to say.
    """
    missed, alarms = 1 - people.catches_unsafe, people.false_alarms
    scale = 1 - missed - alarms
    if scale <= 0:
        return None
    unsafe = (unsafe_share - alarms) / scale
    if not 0 < unsafe < 1:
        return None
    caught = unsafe_share * observed.catches_unsafe
    alarmed = (1 - unsafe_share) * observed.false_alarms
    of_unsafe = ((1 - alarms) * caught - alarms * alarmed) / scale / unsafe
    of_safe = ((1 - missed) * alarmed - missed * caught) / scale / (1 - unsafe)
    return ErrorRates(*(min(max(rate, 0.0), 1.0) for rate in (of_unsafe, of_safe)))
