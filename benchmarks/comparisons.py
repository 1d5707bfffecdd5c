"""Are equal models called different, and are different ones found?

Simulates 2 to 20 models on the same 20 to 700 prompt-sets, whose difficulty the models share, and
compares every two of them as a report does. Prints in how many simulations any two equal models are
called different (the familywise error), over models that are all equal and if some differ; and the
share of truly different pairs that is found, beside Šidák's and Holm's corrections of the same p
values and step-down max-T of plain sign flips; how wide rank intervals are; and the time it takes.

    python benchmarks/comparisons.py [--simulations 2000] [--part error|some|pair|power|time]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import product
from math import comb
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import compare_models, compute_rank_intervals, estimate
from opensafeintent.statistics.comparisons import Comparison

Floats = NDArray[np.float64]

SETS = (20, 42, 115, 700)
ERROR = 0.05
FLIPS = 500
"""Drawn anew in every simulation, the error rate does not depend on their number; a report takes
10,000.
"""


class Scenario(NamedTuple):
    """The values that a set can have, how often it has each for each kind of model, and how much of
    its difficulty models share.
    """

    name: str
    values: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]
    """By kind of model; models take turns."""
    shared: float

    def draw(self, models: int, generator: np.random.Generator, sets: int) -> Floats:
        """Return the value of each model in each set: shape (model, prompt_set)."""
        common = generator.standard_normal(sets)
        own = generator.standard_normal((models, sets))
        latent = np.sqrt(self.shared) * common + np.sqrt(1 - self.shared) * own
        cuts = [
            [NormalDist().inv_cdf(max(float(cut), 1e-12)) for cut in np.cumsum(kind)[:-1]]
            for kind in self.shares
        ]
        values = np.asarray(self.values)
        return np.array(
            [values[np.digitize(row, cuts[at % len(cuts)])] for at, row in enumerate(latent)]
        )


def shares_of(safe: Floats, shared: float) -> Scenario:
    """Models with these shares of safe sets."""
    return Scenario("", (0.0, 1.0), tuple((1 - p, p) for p in safe.tolist()), shared)


NINTHS = tuple(ninth / 9 for ninth in range(10))
UTILITY = (0.22, 0.04, 0.06, 0.1, 0.1, 0.14, 0.18, 0.08, 0.05, 0.03)
EVEN = (0.02, 0.07, 0.13, 0.2, 0.27, 0.13, 0.1, 0.04, 0.03, 0.01)
"""The mean of UTILITY, .43, with few zeros."""
EQUAL = [
    Scenario("0/1, .60", (0.0, 1.0), ((0.4, 0.6),), 0.0),
    Scenario("0/1, .60, correlated", (0.0, 1.0), ((0.4, 0.6),), 0.7),
    Scenario("0/1, .95", (0.0, 1.0), ((0.05, 0.95),), 0.3),
    Scenario("scores, Mean Utility .43", NINTHS, (UTILITY,), 0.5),
    Scenario("scores, 90 % 0, 8 % .05, 2 % 1", (0.0, 0.05, 1.0), ((0.9, 0.08, 0.02),), 0.3),
    Scenario("equal means: many zeros, or few", NINTHS, (UTILITY, EVEN), 0.5),
    Scenario(
        "equal means: 0 in a tenth, or .8 to 1",
        (0.0, 0.8, 0.9, 1.0),
        ((0.1, 0.0, 0.0, 0.9), (0.0, 0.3, 0.4, 0.3)),
        0.0,
    ),
]
"""The models of the last two are equal on average and in nothing else."""


def compare(values: Floats) -> Comparison:
    return compare_models(values, np.ones_like(values))


def any_called_different(values: Floats, equal: NDArray[np.bool_]) -> int:
    """Tell whether any two equal models are called different."""
    return int((compare(values).significant & np.triu(equal, 1)).any())


def show(name: str, cells: Iterator[str]) -> None:
    print(f"{name:<52} | " + " | ".join(f"{cell:<11}" for cell in cells), flush=True)


def per_cent(wrong: int, simulations: int) -> str:
    share = wrong / simulations
    error = np.sqrt(share * (1 - share) / simulations)
    return f"{100 * share:.1f} ± {100 * error:.1f}"


def familywise(simulations: int) -> None:
    """Print the error of the family among models that are all equal on average."""
    show("equal on average: any called different, %", (f"{n} sets" for n in SETS))
    for number, scenario in enumerate(EQUAL):
        for models, share in ((2, 2.0), (5, 1.0), (20, 0.5)):
            equal = np.ones((models, models), dtype=bool)

            def cells(
                scenario: Scenario = scenario,
                models: int = models,
                share: float = share,
                equal: NDArray[np.bool_] = equal,
                number: int = number,
            ) -> Iterator[str]:
                for sets in SETS:
                    generator = np.random.default_rng((20260702, number, models, sets))
                    count = int(simulations * share * (0.5 if sets == SETS[-1] else 1))
                    wrong = sum(
                        any_called_different(scenario.draw(models, generator, sets), equal)
                        for _ in range(count)
                    )
                    yield per_cent(wrong, count)

            show(f"{scenario.name}, {models} models", cells())


def some_differ(simulations: int) -> None:
    """Print the error among models that are equal if others differ clearly."""
    show("\nsome differ: any two equal models called different", (f"{n} sets" for n in SETS))
    half = np.r_[np.full(10, 0.6), np.linspace(0.7, 0.95, 10)]
    for name, safe in (
        ("10 at .6, 10 at .7 to .95", half),
        ("pairs at .3, .4, …, .9", np.repeat(np.linspace(0.3, 0.9, 7), 2)),
        ("19 at .95, one at .5", np.r_[np.full(19, 0.95), 0.5]),
    ):

        def cells(safe: Floats = safe) -> Iterator[str]:
            scenario, equal = shares_of(safe, 0.3), np.asarray(safe[:, None] == safe)
            for sets in SETS:
                generator = np.random.default_rng((20260702, 77, sets))
                count = simulations // (4 if sets == SETS[-1] else 2)
                wrong = sum(
                    any_called_different(scenario.draw(len(safe), generator, sets), equal)
                    for _ in range(count)
                )
                yield per_cent(wrong, count)

        show(name, cells())


def pair_alone() -> None:
    """Print how often two models with 0/1 are called different, exactly: of equal models at worst,
    and of models that differ; beside McNemar's mid-P test.
    """
    show("\none pair, 0/1, exact: ours, mid-P", (f"{n} sets" for n in SETS[:3]))

    def cells(gained: float, lost: float) -> Iterator[tuple[float, float]]:
        for sets in SETS[:3]:
            counts = np.array([(a, b) for a in range(sets + 1) for b in range(sets + 1 - a)])
            ours, mid = rejected(sets)
            chance = np.array(
                [
                    comb(sets, a)
                    * comb(sets - a, b)
                    * gained**a
                    * lost**b
                    * (1 - gained - lost) ** (sets - a - b)
                    for a, b in counts.tolist()
                ]
            )
            yield float(chance @ ours), float(chance @ mid)

    even = [list(cells(d / 2, d / 2)) for d in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    worst = np.max(even, axis=0)
    show("equal, 2 to 60 % of sets differ: worst", (f"{a:.3f}, {b:.3f}" for a, b in worst))
    for gained, lost in (
        (0.05, 0.0),
        (0.1, 0.0),
        (0.15, 0.05),
        (0.2, 0.1),
        (0.3, 0.1),
        (0.35, 0.2),
    ):
        found = cells(gained, lost)
        show(f"{gained:.0%} gained, {lost:.0%} lost", (f"{a:.3f}, {b:.3f}" for a, b in found))


_REJECTED: dict[int, tuple[Floats, Floats]] = {}


def rejected(sets: int) -> tuple[Floats, Floats]:
    """Tell which counts of sets gained and lost are called a difference."""
    if sets not in _REJECTED:
        counts = [(a, b) for a in range(sets + 1) for b in range(sets + 1 - a)]
        place = np.arange(sets)
        gained = np.array([place < a for a, _ in counts]).astype(float)
        lost = np.array([(place >= a) & (place < a + b) for a, b in counts]).astype(float)
        found = estimate(gained - lost, np.ones_like(gained), span=(-1, 1))
        ours = (found.low > 0) | (found.high < 0)
        mid = np.array([mid_p(a, b) < ERROR for a, b in counts])
        _REJECTED[sets] = ours.astype(float), mid.astype(float)
    return _REJECTED[sets]


def mid_p(better: int, worse: int) -> float:
    """McNemar's test, the observed count taken half."""
    n, least = better + worse, min(better, worse)
    tail = sum(comb(n, k) for k in range(least)) + comb(n, least) / 2
    return min(2 * tail / 2**n, 1.0)


def single_step(values: Floats, generator: np.random.Generator) -> Floats:
    """Single-step max-T: p from the largest of our statistics in each flip of all pairs' signs."""
    first, second = np.triu_indices(len(values), 1)
    differences = values[second] - values[first]
    unit = differences / np.sqrt((differences**2).sum(axis=1) + 2)[:, None]
    signs = generator.choice((-1.0, 1.0), size=(values.shape[1], FLIPS))
    highest = np.sort(((unit @ signs) ** 2).max(axis=0))
    observed = unit.sum(axis=1) ** 2 * (1 - 1e-9)
    flipped = (1 + FLIPS - np.searchsorted(highest, observed)) / (1 + FLIPS)
    return np.asarray(np.maximum(flipped, compare(values).p_unadjusted[first, second]))


def step_down(values: Floats, generator: np.random.Generator) -> Floats:
    """Step-down max-T by plain sign flips (Romano and Wolf 2005): T = |Σ d| / √Σ d²; a pair's p is
    the share of flips in which the largest T, of it and of the pairs with a smaller T, reaches it.
    """
    first, second = np.triu_indices(len(values), 1)
    differences = values[second] - values[first]
    unit = differences / np.maximum(np.sqrt((differences**2).sum(axis=1)), 1e-12)[:, None]
    observed = np.abs(unit.sum(axis=1))
    order = np.argsort(observed)
    signs = generator.choice((-1.0, 1.0), size=(values.shape[1], FLIPS))
    highest = np.maximum.accumulate(np.abs(unit @ signs)[order], axis=0)
    p = (1 + (highest >= observed[order, None] - 1e-9).sum(axis=1)) / (1 + FLIPS)
    return np.asarray(np.maximum.accumulate(p[::-1]))


def holm(p: Floats) -> float:
    """Return the share of pairs that Holm's correction finds."""
    limits = ERROR / np.arange(len(p), 0, -1)
    return float(np.append(np.sort(p) < limits, False).argmin()) / len(p)


def power(simulations: int) -> None:
    """Print the share of all pairs that is found among models that all differ; rank intervals."""
    print(
        "\npairs found: ours, Holm, single-step and step-down max-T; ranks left open; all ranks covered"
    )
    for models in (2, 5, 20):
        for kind in ("shares", "scores"):
            for shared in (0.0, 0.7):
                for sets in (42, 115, 700):
                    generator = np.random.default_rng((20260702, 88, models, sets))
                    count = max(simulations // (20 if sets == 700 else 10 if models > 2 else 2), 10)
                    found = [powers(kind, models, shared, sets, generator) for _ in range(count)]
                    ours, by_holm, flipped, stepped, wide, held = np.mean(found, axis=0)
                    print(
                        f"{models} models, {kind}, correlation {shared}, {sets} sets:"
                        f" {ours:.3f} {by_holm:.3f} {flipped:.3f} {stepped:.3f}; {wide:.1f};"
                        f" {100 * held:.1f} %",
                        flush=True,
                    )


def powers(
    kind: str, models: int, shared: float, sets: int, generator: np.random.Generator
) -> tuple[float, ...]:
    """Shares from .4 to .8 evenly, or scores whose mean rises from .28 to .43; two models: .6 and .75,
    .3 and .4.
    """
    if kind == "shares":
        scenario = shares_of(
            np.linspace(*((0.6, 0.75) if models == 2 else (0.4, 0.8)), models), shared
        )
    else:
        rising = np.linspace(*((0.4, 0.2) if models == 2 else (0.45, 0.15)), models)
        kinds = tuple((p, *np.full(9, (1 - p) / 9).tolist()) for p in rising.tolist())
        scenario = Scenario("", NINTHS, kinds, shared)
    values = scenario.draw(models, generator, sets)
    result = compare(values)
    above = np.triu_indices(models, 1)
    ranks = np.array(compute_rank_intervals(result))
    truth = models - np.arange(models)
    return (
        float(result.significant[above].mean()),
        holm(result.p_unadjusted[above]),
        float((single_step(values, generator) < ERROR).mean()),
        float((step_down(values, generator) < ERROR).mean()),
        float((ranks[:, 1] - ranks[:, 0]).mean()),
        float(((ranks[:, 0] <= truth) & (truth <= ranks[:, 1])).all()),
    )


def missing(simulations: int) -> None:
    """Print how often two equal models of .85 are called different if one lacks a share of its
    grades, all of unsafe responses: with the interval alone, and if every completion has to agree;
    and how often a true difference of 20 points is found.
    """
    print("\nmissing and unsafe: the interval alone, every completion; power at .85 and .65")
    generator = np.random.default_rng(11)
    level = NormalDist().inv_cdf
    for sets, lost in product((42, 115, 700), (0.02, 0.04, 0.05)):
        counts = np.zeros(4)
        for other, at in ((0.85, 0), (0.65, 2)):
            for _ in range(simulations):
                shared = 0.6 * generator.standard_normal(sets)
                own = shared + 0.8 * generator.standard_normal((2, sets))
                safe = (own < np.array([[level(0.85)], [level(other)]])).astype(float)
                there = np.ones_like(safe)
                unsafe = safe[0] == 0
                there[0] = 1 - unsafe * (generator.random(sets) < lost / max(unsafe.mean(), lost))
                ones = np.ones_like(safe)
                ends = [(safe * there, ones), (safe * there + 1 - there, ones)]
                found = compare_models(safe * there, there, extremes=ends)
                significant = found.low[0, 1] > 0 or found.high[0, 1] < 0
                counts[at] += significant
                counts[at + 1] += bool(found.significant[0, 1])
        shown = ", ".join(f"{count / simulations:.3f}" for count in counts)
        print(f"  {sets} sets, {lost:.0%} missing: {shown}", flush=True)


def takes() -> None:
    """Print the time of one metric, every pair."""
    print("\nevery pair of one metric")
    for models, sets in ((20, 115), (104, 115), (20, 700), (104, 700)):
        values = EQUAL[3].draw(models, np.random.default_rng(3), sets)
        began = time.process_time()
        compare(values)
        print(f"{models} models × {sets} sets: {time.process_time() - began:.1f} CPU s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--part", choices=("error", "some", "pair", "power", "missing", "time"))
    options = parser.parse_args()
    parts = {
        "error": lambda: familywise(options.simulations),
        "some": lambda: some_differ(options.simulations),
        "pair": pair_alone,
        "power": lambda: power(options.simulations),
        "missing": lambda: missing(options.simulations // 2),
        "time": takes,
    }
    for name, part in parts.items():
        if options.part in (None, name):
            part()


if __name__ == "__main__":
    main()
