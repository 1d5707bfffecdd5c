"""Do plans keep their word with missing grades? Runs print how many prompt-sets would decide with 80 %
power, and which difference is *Detectable*; then so many are drawn in the same world.

A number is that of a run whose value is the true one: what many runs of about that size print, pooled.
Grades are missing at random, in class odds (`--missing-odds 3`), or in class any, in which every
completion counts.

    python benchmarks/plans.py [--simulations 1000] [--part numbers|detectable]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from missing_grades import HELP, SAFE, compare_two, draw, lose, to_array
from opensafeintent.numbers.completions import Completions
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.gates import Gate, count_deciding_sets as count_gate, decide_gate
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.statistics.comparisons import (
    ExtremeDifferences,
    PairedTests,
    compare_models,
    compute_detectable_with_missing,
    count_deciding_sets,
)
from opensafeintent.statistics.intervals import Completed
from opensafeintent.statistics.thresholds import Bounds, bound_ratio


class Plan(NamedTuple):
    """A number that a run prints, and what is to be found."""

    metric: str
    value: float
    """Of the metric, or of the difference of two models."""
    limit: float | None = None
    """The least that it may be; None of a difference from 0."""


PLANS = (
    Plan("mean_utility", 0.346, 0.40),
    Plan("mean_safety", 0.746, 0.70),
    Plan("triplet_safety", 0.350, 0.25),
    Plan("mean_utility", 0.04),
    Plan("triplet_safety", -0.04),
    Plan("triplet_safety", 0.697, 0.50),
    Plan("triplet_safety", 0.697, 0.60),
)
SHARES = (0.01, 0.025, 0.05)
"""Of responses without a grade."""
MOST_SETS = 6000
"""Prompt-sets, beyond which a number is not simulated."""
_POOLED = 60_000
"""Prompt-sets from which a number is taken, so that it is the one of the true value."""


class Runs:
    """Runs of one model, or of two, in one metric; models of a run follow one another."""

    def __init__(
        self, seed: int, studies: int, sets: int, metric: str, lifts: list[float], missing: float
    ) -> None:
        """Draw them.

        Args:
            lifts: added to each model's logits.
            missing: share of responses without a grade, at random in truth; in class any if it is
                below 0, else in class odds.
        """
        g = np.random.default_rng(seed)
        shared = g.standard_normal((studies, sets))
        worlds = [draw(g, studies, sets, lift, shared) for lift in lifts]
        mark = 2 if missing > 0 else 3
        array = to_array(
            [(world, mark * lose(g, world, abs(missing), 1.0).astype(np.int8)) for world in worlds]
        )
        whole = to_array([(world, np.zeros(world.harm.shape, dtype=np.int8)) for world in worlds])
        self.whole = METRICS[metric].compute_ratio(Grades(whole)).value.values.reshape(studies, -1)
        ratio = METRICS[metric].compute_ratio(Grades(array))
        graded = Completed.of((ratio.numerator.values, ratio.denominator.values))
        ends = Completions(array, {metric: ratio}).complete(metric, 3.0)
        self.graded, self.least, self.greatest = self.ends = (graded, *ends)

    def pool(self, models: int) -> list[Completed]:
        """Return the ends of all runs as those of one: rows are models."""
        return [
            Completed(
                *(
                    part.reshape(-1, models, part.shape[1]).swapaxes(0, 1).reshape(models, -1)
                    for part in end
                )
            )
            for end in self.ends
        ]

    def compare(self) -> tuple[PairedTests, PairedTests, PairedTests]:
        """Compare the models of each run: as graded, and at both ends."""
        return (
            compare_two(self.graded, self.graded),
            compare_two(self.greatest, self.least),
            compare_two(self.least, self.greatest),
        )


def true_value(metric: str, lift: float) -> float:
    """Return a metric of a model in all prompt-sets (`draw`): Gauss and Hermite's rule over what the
    responses of a set share.
    """
    points, weights = hermegauss(80)
    weights = weights / weights.sum()
    share = 1 / (1 + np.exp(-(np.log(SAFE / (1 - SAFE)) + lift)))
    cuts = np.array([NormalDist().inv_cdf(float(of)) for of in share])
    margins = (cuts - np.sqrt(0.6) * points[:, None]) / np.sqrt(0.4)
    safe = np.array([[NormalDist().cdf(float(at)) for at in row] for row in margins])
    of_sets = {
        "triplet_safety": safe.prod(axis=1),
        "mean_safety": safe.mean(axis=1),
        "mean_utility": (safe * (HELP @ np.arange(4) / 3)).mean(axis=1),
    }
    return float(weights @ of_sets[metric])


def find_lift(metric: str, value: float) -> float:
    """Return what has to be added to the logits."""
    low, high = -4.0, 4.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if true_value(metric, middle) > value else (middle, high)
    return (low + high) / 2


def bound(plan: Plan, ends: list[Completed]) -> list[Bounds]:
    """Return the bounds that a gate compares with its limit."""
    metric = METRICS[plan.metric]
    return [
        bound_ratio(end, span=metric.span, confidence=0.95, exact=metric.is_binary) for end in ends
    ]


def print_number(plan: Plan, lifts: list[float], missing: float, sets: int) -> int | None:
    """Return the number that a run of about so many prompt-sets prints if its value is the true
    one.
    """
    runs = Runs(3, _POOLED // sets, sets, plan.metric, lifts, missing)
    if plan.limit is None:
        value = float((runs.whole[:, 1] - runs.whole[:, 0]).mean())
        (top, bottom, _), *extremes = runs.pool(2)
        compared = compare_models(top, bottom, extremes=extremes)
        as_graded = ExtremeDifferences(
            compared.difference, compared.deviation, compared.n, compared.units
        )
        ends = [
            ExtremeDifferences(*(part[0, 1] for part in end))
            for end in (as_graded, compared.least if plan.value > 0 else compared.greatest)
        ]
        moved = [end._replace(value=end.value - value + plan.value) for end in ends]
        return count_deciding_sets(moved, 1)
    value = float(runs.whole.mean())
    gate = Gate("under", plan.metric, plan.limit)
    bounds = bound(plan, [end.take(0) for end in runs.pool(1)])
    at_truth = [item._replace(value=item.value - value + plan.value) for item in bounds]
    return count_gate(gate, at_truth, 0.95)


def find(plan: Plan, runs: Runs) -> tuple[int, int]:
    """Return in how many runs the plan's result is found, and by the interval alone."""
    if plan.limit is None:
        paired = runs.compare()
        shown = [item.low > 0 if plan.value > 0 else item.high < 0 for item in paired]
        return int(np.all(shown, axis=0).sum()), int(shown[0].sum())
    gate = Gate("under", plan.metric, plan.limit)
    wanted = "pass" if gate.meets(plan.value) else "fail"
    found = alone = 0
    for at in range(len(runs.whole)):
        bounds = bound(plan, [end.take(at) for end in runs.ends])
        found += decide_gate(gate, bounds) == wanted
        alone += decide_gate(gate, bounds[:1]) == wanted
    return found, alone


def simulate(plan: Plan, lifts: list[float], missing: float, sets: int, least: int) -> str:
    """Return the power, and that of the interval alone, in per cent."""
    found = alone = total = 0
    while total < least:
        runs = Runs(100 + total, max(120_000 // sets, 1), sets, plan.metric, lifts, missing)
        both, one = find(plan, runs)
        found, alone, total = found + both, alone + one, total + len(runs.whole)
    return f"found {100 * found / total:.0f} % (interval alone {100 * alone / total:.0f} %)"


def part_plans(simulations: int) -> None:
    print("\nPrinted N for 80 %, found")
    for plan in PLANS:
        lifts = [find_lift(plan.metric, plan.value)]
        if plan.limit is None:
            lifts = [0.0, find_lift(plan.metric, true_value(plan.metric, 0.0) + plan.value)]
        for missing in (*SHARES, *(-share for share in SHARES[:2] if plan.limit is not None)):
            number: int | None = 300
            for _ in range(2):
                number = number and print_number(plan, lifts, missing, min(number, MOST_SETS))
            of_class = "any" if missing < 0 else "odds"
            text = f"  {plan.metric} {plan.value} {plan.limit or ''}"
            text += f" {100 * abs(missing):g} % {of_class}: {number}"
            if number and number <= MOST_SETS:
                text += f", {simulate(plan, lifts, missing, number, simulations)}"
            print(text, flush=True)


def part_detectable(simulations: int) -> None:
    print("\nPrinted Detectable, found")
    # Mean Utility has more room below
    for metric, sign in (("triplet_safety", 1), ("mean_utility", -1)):
        for sets in (42, 115, 700):
            for missing in (*SHARES, -SHARES[0]):
                runs = Runs(5, 60_000 // sets, sets, metric, [0.0, 0.0], missing)
                difference = sign * float(
                    np.nanmean(compute_detectable_with_missing(*runs.compare()))
                )
                lift = find_lift(metric, true_value(metric, 0.0) + difference)
                plan = Plan(metric, difference)
                power = simulate(plan, [0.0, lift], missing, sets, simulations)
                of_class = "any" if missing < 0 else "odds"
                text = f"{metric} {sets} sets {100 * abs(missing):g} % {of_class}"
                print(f"  {text}: {difference:.3f}, {power}", flush=True)


PARTS: dict[str, Callable[[int], None]] = {"numbers": part_plans, "detectable": part_detectable}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--part", choices=PARTS)
    options = parser.parse_args()
    for name in [options.part] if options.part else PARTS:
        PARTS[name](options.simulations)
