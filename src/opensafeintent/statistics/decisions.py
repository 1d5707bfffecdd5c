"""Deciding a question with fewer calls: a group-sequential design, fixed before the first call (docs/statistics.md).

A design says after how many prompt-sets one looks and how much error each look may spend; `take_look` says what a look shows.
The error of each verdict is at most α over all looks, whatever stops the run in between, for the process that the prompt-sets
come from and for grades as judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf, isinf
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.errors import InputError
from opensafeintent.metrics import METRICS
from opensafeintent.statistics.boundaries import binomial_boundary, error_spent, looks_at, normal_boundary
from opensafeintent.statistics.intervals import rounded
from opensafeintent.statistics.pairs import differences_not_rejected, score_statistic

__all__ = [
    "PAIR_LOOKS",
    "THRESHOLD_LOOKS",
    "TRIPLET_MEANS",
    "Ahead",
    "Design",
    "Look",
    "Question",
    "Verdict",
    "boundaries_ahead",
    "decidable",
    "design_of",
    "take_look",
]

Floats = NDArray[np.float64]
Kind = Literal["at_least", "at_most", "better", "not_worse"]
Verdict = Literal["yes", "no"]

THRESHOLD_LOOKS = 20
PAIR_LOOKS = 7
TRIPLET_MEANS = ("mean_safety", "mean_utility", "mean_helpfulness")
"""Metrics whose value of a set is a mean over its triplet: pairs of models are decided on them too."""
_CONDITIONAL = ("mode_and_grades", "strategy", "probes")
"""What metrics need that count only the sets where something happened."""
_HALVINGS = 24
_NONE = (np.empty(0), np.empty(0))
ValueCounts = tuple[tuple[float, int], ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be decided."""

    metric: str
    kind: Kind
    """`at_least` and `at_most` hold a model against a threshold, `better` and `not_worse` a model against another."""
    threshold: float | None = None
    model: str | None = None
    against: str | None = None
    margin: float | None = None
    """Of `not_worse`: by how much it may be worse, 0 or more."""

    @property
    def paired(self) -> bool:
        """Whether two models are compared."""
        return self.kind in {"better", "not_worse"}


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed before the first call."""

    question: Question
    sets: int
    """Prompt-sets at most."""
    looks: tuple[int, ...]
    """After how many sets each look is taken."""
    alpha: float
    """Most that the verdict `yes` may err over all looks, and likewise `no`."""
    span: tuple[float, float]
    """Least and greatest value of a set, of one model."""
    binary: bool
    """Whether a set's value is 0 or 1."""

    @property
    def allowed(self) -> tuple[float, ...]:
        """Error that may be spent by each look, in each direction: by planned sets, so that nothing seen can change it."""
        return tuple(error_spent(planned / self.sets, self.alpha) for planned in self.looks)

    @property
    def less_is_better(self) -> bool:
        """Whether it is the low values that answer `yes`."""
        question = self.question
        return question.kind == "at_most" or (question.paired and METRICS[question.metric].less_is_better)

    @property
    def tested(self) -> float:
        """The share, or the difference, on which the verdict turns."""
        if self.question.threshold is not None:
            return self.question.threshold
        margin = self.question.margin or 0.0
        return margin if self.less_is_better else -margin

    def answer(self, *, above: bool, below: bool) -> Verdict | None:
        """Return the verdict where the share, or the difference, was found above the one tested, or below."""
        if above == below:
            return None
        return "yes" if above != self.less_is_better else "no"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a look shows. All that a later look needs of an earlier one is here."""

    planned: int
    """Prompt-sets that were to be there."""
    n: int
    """Of these, the ones that count: of both models, for a pair."""
    total: float
    """Sum of the sets' values: successes, or of differences, model minus the other one."""
    counts: ValueCounts
    """Each value that occurs, in order, and how many sets have it."""
    statistic: float | None
    """What is held against the boundaries: of a threshold the share, of a pair the standardised difference."""
    lower: float | None
    """At or below, what is asked is decided one way; None where no value can."""
    upper: float | None
    """At or above, it is decided the other way."""
    spent_low: float
    """Error of the lower boundary so far, at the value that is tested."""
    spent_high: float
    estimate: float | None
    """The share, or the mean difference, model minus the other one."""
    interval: tuple[float, float] | None
    """Repeated interval: 1 − 2α, for all looks together."""
    verdict: Verdict | None


def decidable(*, paired: bool) -> tuple[str, ...]:
    """Return the metrics that can be decided on: 0 or 1 in every set that counts.

    For pairs the triplet means too, and none of which neither more nor less is better.
    """
    every = {name: metric.binary and metric.needs not in _CONDITIONAL for name, metric in METRICS.items()}
    if not paired:
        return tuple(name for name, can in every.items() if can)
    return tuple(name for name, can in every.items() if (can and not METRICS[name].neutral) or name in TRIPLET_MEANS)


def design_of(
    question: Question, sets: int, *, confidence: float, families: int, binary: bool, span: tuple[float, float]
) -> Design:
    """Return the design that decides a question of one model, or of one pair.

    Args:
        question: of a metric that is `decidable`.
        sets: prompt-sets at most.
        confidence: of each verdict, for all models or pairs of all questions together.
        families: questions × models, or × pairs, that α is divided by; baselines aside.
        binary: whether a set's value is 0 or 1.
        span: least and greatest value of a set.

    Raises:
        InputError: the metric cannot be decided on, the threshold or margin is out of range, there are too few sets.
    """
    can = decidable(paired=question.paired)
    if question.metric not in can:
        kind = "two models" if question.paired else "a model and a threshold"
        raise InputError(f"{question.metric}: cannot be decided for {kind}; these can: {', '.join(can)}")
    if question.paired:
        width = span[1] - span[0]
        if question.kind == "not_worse" and not (question.margin is not None and 0 <= question.margin < width):
            raise InputError(f"margin {question.margin}: expected 0 or more, below {width:g}")
    elif question.threshold is None or not 0 < question.threshold < 1:
        raise InputError(f"threshold {question.threshold}: expected more than 0 and less than 1")
    elif not binary:
        raise InputError(f"{question.metric}: is not 0 or 1 in every prompt-set; a threshold takes what is, in one epoch")
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence {confidence}: expected 0.5 or more, below 1")
    looks = PAIR_LOOKS if question.paired else THRESHOLD_LOOKS
    if sets < looks:
        raise InputError(f"{sets} prompt-sets: expected {looks} or more, one for each look")
    return Design(
        question=question,
        sets=sets,
        looks=looks_at(sets, looks),
        alpha=(1 - confidence) / families,
        span=span,
        binary=binary,
    )


def take_look(design: Design, earlier: Sequence[Look], values: Floats) -> Look:
    """Return what the next look shows.

    Args:
        design: as it was fixed.
        earlier: the looks taken so far, in order, none of which decided.
        values: of the prompt-sets that are new since the last look: the metric, or the difference of the model named first
            minus the other one; NaN where a set does not count. Shape (planned sets − those of the last look,).

    Raises:
        InputError: a value that is not 0 or 1 where it has to be.
        ValueError: not one value for each new set; all looks were taken, or one has decided.
    """
    if len(earlier) >= len(design.looks) or any(look.verdict for look in earlier):
        raise ValueError("no look is left to take")
    planned, before = design.looks[len(earlier)], earlier[-1] if earlier else None
    if len(values) != planned - (before.planned if before else 0):
        raise ValueError(f"one value for each new set, not {len(values)}")
    counted = values[~np.isnan(values)]
    possible = (-1.0, 0.0, 1.0) if design.question.paired else (0.0, 1.0)
    if design.binary and not np.isin(counted, possible).all():
        raise InputError(f"{design.question.metric}: is not 0 or 1 in every prompt-set; decisions take one epoch")
    counts = Counter(dict(before.counts) if before else {})
    counts.update(rounded(value) for value in counted.tolist())
    show = _paired_look if design.question.paired else _threshold_look
    return show(design, earlier, planned, tuple(sorted(counts.items())))


class Ahead(NamedTuple):
    """What would decide a look that is still to come, where no set of it is missing."""

    planned: int
    lower: float | None
    upper: float | None


def boundaries_ahead(design: Design, earlier: Sequence[Look]) -> tuple[Ahead, ...]:
    """Return what would decide each look that is still to come; see `Look.lower` and `Look.upper`."""
    planned = design.looks[len(earlier) :]
    missing = earlier[-1].planned - earlier[-1].n if earlier else 0
    counts = (*(look.n for look in earlier), *(look - missing for look in planned))
    if design.question.paired:
        quantiles = normal_boundary(tuple(map(float, counts)), design.allowed).at[len(earlier) :]
        return tuple(Ahead(at, _finite(-end), _finite(end)) for at, end in zip(planned, quantiles, strict=True))
    upper, lower = (
        binomial_boundary(counts, design.allowed, share, kept).at[len(earlier) :]
        for share, kept in zip((design.tested, 1 - design.tested), _kept(earlier), strict=True)
    )
    ahead = zip(planned, counts[len(earlier) :], lower, upper, strict=True)
    return tuple(Ahead(at, _finite((n - failures) / n), _finite(successes / n)) for at, n, failures, successes in ahead)


def _finite(boundary: float) -> float | None:
    return None if isinf(boundary) else rounded(boundary)


def _kept(earlier: Sequence[Look]) -> tuple[list[float], list[float]]:
    """Return the boundaries of the looks taken: in successes above, in failures below."""
    successes = [inf if look.upper is None else round(look.upper * look.n) for look in earlier]
    failures = [inf if look.lower is None else look.n - round(look.lower * look.n) for look in earlier]
    return successes, failures


# Thresholds: exact ------------------------------------------------------------------------------------------------------


def _threshold_look(design: Design, earlier: Sequence[Look], planned: int, values: ValueCounts) -> Look:
    threshold = design.tested
    n, total = sum(count for _, count in values), sum(value * count for value, count in values)
    counts = (*(look.n for look in earlier), n)
    allowed = design.allowed[: len(counts)]
    successes, failures = _kept(earlier)
    upper = binomial_boundary(counts, allowed, threshold, successes)
    lower = binomial_boundary(counts, allowed, 1 - threshold, failures)
    above, below = total >= upper.at[-1], n - total >= lower.at[-1]
    return Look(
        planned=planned,
        n=n,
        total=total,
        counts=values,
        statistic=rounded(total / n) if n else None,
        lower=_finite((n - lower.at[-1]) / n) if n else None,
        upper=_finite(upper.at[-1] / n) if n else None,
        spent_low=rounded(lower.crossed[-1]),
        spent_high=rounded(upper.crossed[-1]),
        estimate=rounded(total / n) if n else None,
        interval=_share_not_rejected(counts, allowed, total, threshold, above=above, below=below) if n else None,
        verdict=design.answer(above=above, below=below),
    )


def _share_not_rejected(
    counts: tuple[int, ...], allowed: tuple[float, ...], total: float, threshold: float, *, above: bool, below: bool
) -> tuple[float, float]:
    """Return the shares that the same design would not reject at this look, were they the threshold.

    The search for either end starts from the threshold, of which it is known, so that interval and verdict agree.
    """

    def end(total: float, known: float, rejected: bool) -> float:
        """Return the greatest share that so many successes are too many for."""
        low, high = (known, 1.0) if rejected else (0.0, known)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if total >= binomial_boundary(counts, allowed, middle).at[-1]:
                low = middle
            else:
                high = middle
        return low

    return rounded(end(total, threshold, above)), rounded(1 - end(counts[-1] - total, 1 - threshold, below))


# Pairs ------------------------------------------------------------------------------------------------------------------


def _paired_look(design: Design, earlier: Sequence[Look], planned: int, values: ValueCounts) -> Look:
    differences, sets = (np.array(column, dtype=np.float64) for column in zip(*values, strict=True)) if values else _NONE
    n, total = int(sets.sum()), float(differences @ sets)
    boundary = normal_boundary((*(float(look.n) for look in earlier), float(n)), design.allowed[: len(earlier) + 1])
    quantile = boundary.at[-1]
    width = design.span[1] - design.span[0]
    statistic = float(score_statistic(differences, sets, design.tested, width)) if n else 0.0
    return Look(
        planned=planned,
        n=n,
        total=rounded(total),
        counts=values,
        statistic=rounded(statistic) if n else None,
        lower=_finite(-quantile),
        upper=_finite(quantile),
        spent_low=rounded(boundary.crossed[-1]),
        spent_high=rounded(boundary.crossed[-1]),
        estimate=rounded(total / n) if n else None,
        interval=differences_not_rejected(differences, sets, quantile, width) if n else None,
        verdict=design.answer(above=statistic >= quantile, below=statistic <= -quantile),
    )
