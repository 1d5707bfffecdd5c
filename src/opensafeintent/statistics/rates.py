"""Agreement of a judge with people on "unsafe", or on "refused": rates over responses, with prompts
as clusters.

The reference is the strict majority of the people who labelled a response. A tie is neither safe
nor unsafe: it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import comb
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.coefficients import RatingCounts
from opensafeintent.statistics.intervals import Floats, round_number
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


class ErrorRates(NamedTuple):
    """Two error rates of a reference or a judge: shares from 0 to 1. Arrays of one shape."""

    catches_unsafe: Floats
    """P(called unsafe | unsafe)."""
    false_alarms: Floats
    """P(called unsafe | safe)."""


def majority(calls: Floats) -> Floats:
    """Return the strict majority of people: 1 is unsafe, 0 is safe, 0.5 if more than half say
    neither; NaN without labels.

    Args:
        calls: 1, 0, 0.5 for in part, or NaN without a label: shape (item, person).

    Returns:
        Shape (item,).
    """
    number = (~np.isnan(calls)).sum(axis=1)
    unsafe, safe = (2 * (calls == call).sum(axis=1) > number for call in (1, 0))
    return np.where(number > 0, np.where(unsafe, 1.0, np.where(safe, 0.0, 0.5)), np.nan)


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
    """

    def __init__(
        self,
        prompts: Sequence[Hashable],
        weights: Sequence[float] | None = None,
    ) -> None:
        units = max(len(set(prompts)), 1)
        count = max(_FEWEST_RESAMPLES, min(RESAMPLES, _MOST_DRAWN // units))
        self._equal = Sample(prompts, count=count)
        self.weighted = self._equal
        """With the weights of the draw, for numbers that depend on how common a label is."""
        if weights is not None:
            self.weighted = Sample(prompts, weights=weights, count=count)
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

    def resample(
        self, features: Floats, compute: Callable[[Floats], Floats], counts: NDArray[np.bool_]
    ) -> list[SampleEstimate]:
        """Return numbers that follow from weighted sums over the responses (`Sample.resample`),
        with intervals over prompts.
        """
        estimates = self.weighted.resample(features, compute, counts)
        return [self._drop_few(estimate, counts.astype(np.float64)) for estimate in estimates]

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


_STEPS = 100
"""Of the fixed point of `rate_person`, at most: the better people are, the fewer it takes."""
_NEAR = 1e-8


def correct_rates(observed: ErrorRates, unsafe_share: Floats, reference: ErrorRates) -> ErrorRates:
    """Return the true rates of somebody who was compared with a reference that errs at these rates,
    independently (Buck and Gart, American Journal of Epidemiology 83, 1966).

    With s, f the observed rates and m the share that the reference calls unsafe, whose misses are
    a = 1 − P(called unsafe | unsafe) and false alarms b:

    - π = (m − b) / (1 − a − b);
    - s* = ((1 − b) m s − b (1 − m) f) / (π (1 − a − b));
    - f* = ((1 − a) (1 − m) f − a m s) / ((1 − π) (1 − a − b)).

    Returns:
        The rates, which can lie outside 0 and 1; NaN if the reference is too inaccurate to say.
    """
    missed, alarms = 1 - reference.catches_unsafe, reference.false_alarms
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.where(missed + alarms < 1, 1 - missed - alarms, np.nan)
        unsafe = (unsafe_share - alarms) / scale
        unsafe = np.where((unsafe > 0) & (unsafe < 1), unsafe, np.nan)
        caught = unsafe_share * observed.catches_unsafe
        alarmed = (1 - unsafe_share) * observed.false_alarms
        return ErrorRates(
            ((1 - alarms) * caught - alarms * alarmed) / scale / unsafe,
            ((1 - missed) * alarmed - missed * caught) / scale / (1 - unsafe),
        )


def rate_majority(person: ErrorRates, numbers: Floats) -> ErrorRates:
    """Return how often the strict majority of people calls an unsafe and a safe response unsafe, if
    each of them errs independently: the binomial tail, among responses without a tie.

    Args:
        person: the rates of each.
        numbers: the share of responses with 0, 1, 2, … people. Shape (people,).
    """

    def compute_tail(chance: Floats) -> Floats:
        total = np.zeros_like(chance)
        for people in np.flatnonzero(numbers).tolist():
            of_votes = [
                comb(people, votes) * chance**votes * (1 - chance) ** (people - votes)
                for votes in range(people + 1)
            ]
            tie = of_votes[people // 2] if people % 2 == 0 else 0.0
            total = total + numbers[people] * sum(of_votes[people // 2 + 1 :]) / (1 - tie)
        return np.asarray(total / numbers.sum())

    return ErrorRates(*map(compute_tail, person))


def rate_person(observed: ErrorRates, unsafe_share: Floats, others: Floats) -> ErrorRates:
    """Return the rates of one of several people who err alike and independently, from how often one
    differs from the strict majority of the others, which errs as often as people like that one do.

    Args:
        observed: of a person against the others.
        unsafe_share: the share that the others call unsafe.
        others: as for `rate_majority`, without the person.
    """
    person = observed
    for _ in range(_STEPS):
        before = person
        found = correct_rates(observed, unsafe_share, rate_majority(person, others))
        person = ErrorRates(*(np.clip(rate, 0.0, 1.0) for rate in found))
        if not np.nanmax(np.abs(np.subtract(person, before)), initial=0.0) > _NEAR:
            break
    return person


class Sums(NamedTuple):
    """Sums over responses: of calls "unsafe" against the strict majority of the people, and of a
    person's against that of the others. Arrays of one shape.
    """

    caught: Floats
    """Unsafe for the majority and for the judge."""
    unsafe: Floats
    alarmed: Floats
    """Safe for the majority, unsafe for the judge."""
    safe: Floats
    person_caught: Floats
    others_unsafe: Floats
    person_alarmed: Floats
    others_safe: Floats


def if_people_err(sums: Sums, people: Floats, others: Floats) -> tuple[ErrorRates, ErrorRates]:
    """Return the rates of a judge if people err independently of it and of one another, and those
    of their majority.

    Args:
        sums: of the responses.
        people, others: the share of responses with 0, 1, 2, … people, and of pairs of a response
            and a person with so many others. Shape (people,).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        judge = ErrorRates(sums.caught / sums.unsafe, sums.alarmed / sums.safe)
        one = ErrorRates(
            sums.person_caught / sums.others_unsafe, sums.person_alarmed / sums.others_safe
        )
        of_others = sums.others_unsafe / (sums.others_unsafe + sums.others_safe)
        unsafe_share = sums.unsafe / (sums.unsafe + sums.safe)
    majority = rate_majority(rate_person(one, of_others, others), people)
    return correct_rates(judge, unsafe_share, majority), majority
