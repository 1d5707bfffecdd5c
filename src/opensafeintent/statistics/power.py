"""What a decision is expected to cost, by the code that decides, and what precision calls buy (docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, sqrt
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.boundaries import binomial_boundary, crossings, normal_boundary
from opensafeintent.statistics.decisions import Design
from opensafeintent.statistics.exact import CONFIDENCE
from opensafeintent.statistics.intervals import SEED, rounded
from opensafeintent.statistics.pairs import score_statistic

__all__ = [
    "ASSUMED_DISCORDANT",
    "ASSUMED_SPREAD",
    "Components",
    "Differences",
    "PowerRow",
    "PrecisionRow",
    "affordable",
    "assumed_components",
    "assumed_differences",
    "components_of",
    "differences_of",
    "expected",
    "power_rows",
    "precision_rows",
    "usual_truths",
]

Floats = NDArray[np.float64]

ASSUMED_DISCORDANT = 0.3
"""Share of sets in which two models differ, where nothing is known of them: two that have .6 and a correlation of .4."""
ASSUMED_SPREAD = 0.3
"""Standard deviation of the difference of two models' scores of a set, likewise: .26 to .31 in `benchmarks/decisions.py`."""
ASSUMED_SCORE_VARIANCE = 0.07
"""Of one model's score of a set, likewise. Of 0/1 the variance is .25 at most."""
ASSUMED_WITHIN = 1 / 3
"""Share of a set's variance that is owed to the target's sampling, likewise: in simulations three epochs on a third of the
sets made standard errors 1.3 to 1.6 times as large, which is .2 to .65."""
ASSUMED_JUDGES = 1 / 6
"""Share of a set's variance that is owed to the judge, likewise."""
_PATHS = 2_000
"""Simulated for a pair: a probability is right to a point or two."""
_LATTICE = 9
"""Scores are means of three thirds: multiples of a ninth."""
_AWAY = (0.05, 0.1, 0.2)
_HALVINGS = 60


class PowerRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be expected of a decision if the truth were so."""

    truth: float
    """The true share, or the true mean difference, model minus the other one."""
    yes: float
    """Probability of this verdict."""
    no: float
    undecided: float
    sets: float
    """Expected number of prompt-sets that are used."""
    share: float
    """The same as a share of all."""
    calls: float | None = None
    """Expected calls."""


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """How two models' values of a set differ, which is what a pair's power depends on."""

    values: tuple[float, ...]
    shares: tuple[float, ...]
    """Of the sets, of each value; 1 in all."""
    source: str
    """Where this is from, for whoever reads the plan."""


# Expected calls of a decision -------------------------------------------------------------------------------------------


def affordable(sets: int, calls_per_set: float, budget_calls: int | None) -> int:
    """Return how many prompt-sets a budget is enough for, at most `sets`."""
    return sets if budget_calls is None else min(sets, int(budget_calls / calls_per_set))


def usual_truths(design: Design) -> tuple[float, ...]:
    """Return the true values that a plan shows: the one tested, and .05, .1 and .2 to either side as far as there are any."""
    width = design.span[1] - design.span[0]
    least, greatest = (-width, width) if design.question.paired else design.span
    away = sorted({sign * step for step in (0.0, *_AWAY) for sign in (-1, 1)})
    return tuple(rounded(design.tested + step) for step in away if least < rounded(design.tested + step) < greatest)


def power_rows(
    design: Design,
    truths: Sequence[float] | None = None,
    *,
    differences: Differences | None = None,
    calls_per_set: float | None = None,
) -> tuple[PowerRow, ...]:
    """Return what to expect at some true values, the usual ones by default. See `expected`."""
    truths = usual_truths(design) if truths is None else truths
    return tuple(expected(design, truth, differences=differences, calls_per_set=calls_per_set) for truth in truths)


def expected(
    design: Design, truth: float, *, differences: Differences | None = None, calls_per_set: float | None = None
) -> PowerRow:
    """Return what to expect of a decision at one true value, with no set missing: exact for thresholds, simulated for pairs.

    Args:
        design: of the decision.
        truth: the true share, or mean difference.
        differences: of a pair, moved to the true mean by exponential tilting; those assumed by default.
        calls_per_set: of both models, for a pair.
    """
    if design.question.paired:
        below, above = _paired_stops(design, truth, differences or assumed_differences(binary=design.binary))
    else:
        below, above = _threshold_stops(design, truth)
    low, high = float(below.sum()), float(above.sum())
    yes, no = (low, high) if design.less_is_better else (high, low)
    sets = float((below + above) @ design.looks) + (1 - low - high) * design.sets
    return PowerRow(
        truth=truth,
        yes=rounded(yes),
        no=rounded(no),
        undecided=rounded(max(1 - low - high, 0)),
        sets=rounded(sets),
        share=rounded(sets / design.sets),
        calls=None if calls_per_set is None else rounded(sets * calls_per_set),
    )


def _threshold_stops(design: Design, truth: float) -> tuple[Floats, Floats]:
    """Return the probability of stopping below and above at each look."""
    upper = binomial_boundary(design.looks, design.allowed, design.tested).at
    lower = binomial_boundary(design.looks, design.allowed, 1 - design.tested).at
    successes = [-inf if failures == inf else count - failures for count, failures in zip(design.looks, lower, strict=True)]
    return crossings(design.looks, successes, upper, truth)


def _paired_stops(design: Design, truth: float, differences: Differences) -> tuple[Floats, Floats]:
    """Return the share of simulated paths that stop below and above at each look."""
    generator = np.random.default_rng(SEED)
    values = np.array(differences.values)
    shares = tilted(values, np.array(differences.shares), truth)
    quantiles = normal_boundary(tuple(float(look) for look in design.looks), design.allowed).at
    counts = np.zeros((_PATHS, len(values)))
    below, above = np.zeros(len(design.looks)), np.zeros(len(design.looks))
    before = 0
    for look, (planned, quantile) in enumerate(zip(design.looks, quantiles, strict=True)):
        counts += generator.multinomial(planned - before, shares, size=len(counts))
        before = planned
        statistic = score_statistic(values, counts, design.tested, design.span[1] - design.span[0])
        below[look], above[look] = (statistic <= -quantile).sum(), (statistic >= quantile).sum()
        counts = counts[np.abs(statistic) < quantile]
        if not len(counts):
            break
    return below / _PATHS, above / _PATHS


def tilted(values: Floats, shares: Floats, mean: float) -> Floats:
    """Return the shares nearest to some, in the sense of Kullback and Leibler, under which the mean of the values is another.

    Where the values that occur do not reach so far, the least and the greatest value are given a share of one in a thousand.
    """
    occurring = values[shares > 0]
    if not occurring.min() < mean < occurring.max():
        shares = 0.998 * shares + 0.001 * (values == values.min()) + 0.001 * (values == values.max())
    low, high = -200.0, 200.0
    weights = shares
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        exponent = middle * values
        weights = shares * np.exp(exponent - exponent.max())
        weights /= weights.sum()
        low, high = (middle, high) if weights @ values < mean else (low, middle)
    return weights


def assumed_differences(
    *, binary: bool, discordant: float = ASSUMED_DISCORDANT, spread: float = ASSUMED_SPREAD
) -> Differences:
    """Return how two models of which nothing is known are taken to differ."""
    if binary:
        shares: tuple[float, ...] = (discordant / 2, 1 - discordant, discordant / 2)
        source = f"assumed: the two models differ in {100 * discordant:.0f} % of the sets where they are equally good"
        return Differences(values=(-1.0, 0.0, 1.0), shares=shares, source=source)
    values = np.arange(-_LATTICE, _LATTICE + 1) / _LATTICE
    weights = np.exp(-0.5 * (values / spread) ** 2)
    source = f"assumed: the differences of two models have a standard deviation of {spread:g} from set to set"
    return Differences(values=tuple(values.tolist()), shares=tuple((weights / weights.sum()).tolist()), source=source)


def differences_of(values: Floats, *, width: float, source: str) -> Differences | None:
    """Return how two models of a run differ; None where no set counts for both.

    Args:
        values: the differences, NaN where a set does not count. Shape (prompt_set,).
        width: the greatest difference that a set can have; both are possible values, observed or not.
        source: where they are from.
    """
    counted = np.round(values[~np.isnan(values)], 6)
    if not len(counted):
        return None
    there, times = np.unique(np.append(counted, (-width, width)), return_counts=True)
    times = times - np.isin(there, (-width, width))
    return Differences(values=tuple(there.tolist()), shares=tuple((times / times.sum()).tolist()), source=source)


# Sets, epochs or judges -------------------------------------------------------------------------------------------------


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a set's value vary."""

    sets: float
    """Variance of the sets' true values."""
    epochs: float
    """Variance of one response to the next, within a set."""
    judges: float
    """Variance of one judge to the next, on the same responses."""
    source: str
    """Where this is from, for whoever reads the plan."""

    def error(self, sets: int, epochs: int, judges: int) -> float:
        """Return the standard error of a mean over so many sets, epochs each, and judges."""
        return sqrt((self.sets + (self.epochs + self.judges / judges) / epochs) / sets)


class PrecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What precision a number of calls buys, spent one way."""

    sets: int
    epochs: int
    judges: int
    calls: int
    se: float
    half_width: float
    """Of the 95 % interval."""
    best: bool
    """Whether no other way shown has a smaller error."""


def assumed_components(*, binary: bool, variance: float | None = None) -> Components:
    """Return components for a model of which at most the variance of a set's value, of one epoch and judge, is known."""
    if variance is None:
        variance = 0.25 if binary else ASSUMED_SCORE_VARIANCE
    source = (
        f"assumed: of a set's variance of {variance:.3g}, {100 * ASSUMED_WITHIN:.0f} % is the model's sampling "
        f"and {100 * ASSUMED_JUDGES:.0f} % the judge's"
    )
    return Components(
        sets=rounded((1 - ASSUMED_WITHIN - ASSUMED_JUDGES) * variance),
        epochs=rounded(ASSUMED_WITHIN * variance),
        judges=rounded(ASSUMED_JUDGES * variance),
        source=source,
    )


def components_of(values: Floats, *, source: str) -> Components | None:
    """Return what makes the values of a run vary, by the method of moments over the sets that are complete.

    What cannot be told apart with one epoch, or with one judge, is taken to have the share that is assumed elsewhere; then
    `source` says so. A judge who is stricter throughout is no variance here: no number of sets makes up for it.

    Args:
        values: the metric by set, epoch and judge; NaN where it is missing. Shape (prompt_set, epoch, judge).
        source: where they are from.

    Returns:
        None with fewer than two complete sets.
    """
    complete = values[~np.isnan(values).any(axis=(1, 2))]
    sets, epochs, judges = complete.shape
    if sets < 2:
        return None
    complete = complete - complete.mean(axis=(0, 1))
    by_response, by_set = complete.mean(axis=2), complete.mean(axis=(1, 2))
    of_judges = float(complete.var(axis=2, ddof=1).mean()) if judges > 1 else nan
    of_epochs = float(by_response.var(axis=1, ddof=1).mean()) if epochs > 1 else nan  # holds the judges' share as well
    total = float(by_set.var(ddof=1))
    if judges == 1:
        of_judges = ASSUMED_JUDGES / (ASSUMED_JUDGES + ASSUMED_WITHIN) * of_epochs if epochs > 1 else ASSUMED_JUDGES * total
        source += f"; the judge's share of {100 * ASSUMED_JUDGES:.0f} % is assumed: two judges would tell"
    if epochs == 1:
        of_epochs = ASSUMED_WITHIN * total + of_judges / judges
        source += f"; the sampling's share of {100 * ASSUMED_WITHIN:.0f} % is assumed: two epochs would tell"
    return Components(
        sets=rounded(max(total - of_epochs / epochs, 0.0)),
        epochs=rounded(max(of_epochs - of_judges / judges, 0.0)),
        judges=rounded(of_judges),
        source=source,
    )


def precision_rows(
    components: Components,
    sets: int,
    *,
    target_calls: float,
    judge_calls: float,
    budget_calls: int | None = None,
    epochs: Sequence[int] = (1, 2, 3, 5),
    judges: Sequence[int] = (1, 2, 3),
) -> tuple[PrecisionRow, ...]:
    """Return what a budget buys, spent on sets, epochs or judges: a row for each number of epochs and of judges.

    Args:
        components: of the variance.
        sets: prompt-sets that there are.
        target_calls: for one set and epoch, whatever the number of judges.
        judge_calls: for one set, epoch and judge.
        budget_calls: calls in all; by default those of all sets with one epoch and one judge.
        epochs: numbers of epochs to show.
        judges: numbers of judges to show.
    """
    budget = budget_calls if budget_calls is not None else round(sets * (target_calls + judge_calls))
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    found: list[tuple[float, int, int, int, int]] = []
    for many in epochs:
        for panel in judges:
            each = many * (target_calls + panel * judge_calls)
            bought = affordable(sets, each, budget)
            if bought >= 2:
                found.append((components.error(bought, many, panel), bought, many, panel, round(bought * each)))
    least = min((error for error, *_ in found), default=0.0)
    return tuple(
        PrecisionRow(
            sets=bought,
            epochs=many,
            judges=panel,
            calls=calls,
            se=rounded(error),
            half_width=rounded(z * error),
            best=error == least,
        )
        for error, bought, many, panel, calls in found
    )
