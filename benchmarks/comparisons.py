"""Are equal models called different, and are different ones found?

Simulates studies of 2 to 104 models on the same prompt-sets, whose difficulty the models share, and
tests every two of them as a report does. Prints the share of studies in which any two equal models
are called different (the familywise error), over models that are all equal and where some differ;
which share of truly different pairs is found, beside Holm's correction of McNemar's exact test; how
wide rank intervals are, and how often they hold the true ranks; and what it takes in time and
memory.

    python benchmarks/comparisons.py [--studies 2000]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from math import comb
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import (
    SIGNIFICANCE,
    Comparison,
    Resamples,
    compare_models,
    rank_intervals,
)
from opensafeintent.statistics.comparisons import Paired, binomial_tail, mcnemar, step_down

Floats = NDArray[np.float64]

SETS = 115
FLIPS = 400
"""The error rate of a permutation test does not depend on their number; a report takes 10,000."""


class World(NamedTuple):
    """What a set's value can be, how often it is that for each kind of model, and how much of its
    difficulty models share.
    """

    name: str
    values: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]
    """By kind of model; models take turns."""
    shared: float

    def draw(self, models: int, generator: np.random.Generator, sets: int = SETS) -> Floats:
        """Return the value of each model in each set: shape (model, prompt_set)."""
        common = generator.standard_normal(sets)
        own = generator.standard_normal((models, sets))
        latent = np.sqrt(self.shared) * common + np.sqrt(1 - self.shared) * own
        cuts = [
            [NormalDist().inv_cdf(max(float(cut), 1e-12)) for cut in np.cumsum(kind)[:-1]]
            for kind in self.shares
        ]
        return np.array(
            [
                np.asarray(self.values)[np.digitize(row, cuts[at % len(cuts)])]
                for at, row in enumerate(latent)
            ]
        )


NINTHS = tuple(ninth / 9 for ninth in range(10))
UTILITY = (0.22, 0.04, 0.06, 0.1, 0.1, 0.14, 0.18, 0.08, 0.05, 0.03)
EQUAL = [
    World("0/1, .60", (0.0, 1.0), ((0.4, 0.6),), 0.0),
    World("0/1, .60, correlated", (0.0, 1.0), ((0.4, 0.6),), 0.7),
    World("0/1, .95", (0.0, 1.0), ((0.05, 0.95),), 0.3),
    World("Mean Utility .43", NINTHS, (UTILITY,), 0.5),
    World("skewed: 90 % 0, 8 % .05, 2 % 1", (0.0, 0.05, 1.0), ((0.9, 0.08, 0.02),), 0.3),
]
EVEN = (0.02, 0.07, 0.13, 0.2, 0.27, 0.13, 0.1, 0.04, 0.03, 0.01)
"""The mean of UTILITY, .43, with few zeros."""
UNLIKE = [
    World("equal means: many zeros, or few", NINTHS, (UTILITY, EVEN), 0.5),
    World(
        "equal means: 0 in a tenth, or .8 to 1",
        (0.0, 0.8, 0.9, 1.0),
        ((0.1, 0.0, 0.0, 0.9), (0.0, 0.3, 0.4, 0.3)),
        0.0,
    ),
]
"""Two kinds of models that are equal on average and in nothing else: beyond what flips promise."""


def any_called_different(values: Floats, equal: NDArray[np.bool_]) -> bool:
    _, p = step_down(Paired(values, np.ones_like(values)), FLIPS)
    return bool((p[np.triu(equal, 1)] < SIGNIFICANCE).any())


def show(what: str, models: int, wrong: int, studies: int) -> None:
    share = wrong / studies
    error = (share * (1 - share) / studies) ** 0.5
    print(f"{what:<46}{models:>7}{studies:>9}{100 * share:>9.1f} ± {100 * error:.1f}", flush=True)


def familywise(studies: int) -> None:
    print(
        f"{'equal models, ' + str(SETS) + ' sets':<46}{'models':>7}{'studies':>9}{'any called different, %':>26}"
    )
    for number, world in enumerate([*EQUAL, *UNLIKE]):
        for models, times in ((2, 3.0), (5, 3.0), (20, 1.0), (104, 0.4)):
            if (models > 20 and world in UNLIKE) or (models == 2 and len(world.values) == 2):
                continue
            count = max(int(studies * times), 20)
            generator = np.random.default_rng((20260702, number, models))
            everyone = np.ones((models, models), dtype=bool)
            wrong = 0
            for _ in range(count):
                wrong += any_called_different(world.draw(models, generator), everyone)
            show(world.name, models, wrong, count)


def two_models() -> None:
    """Print how often McNemar's test calls two equal models different, exactly, where a set's value
    is 0 or 1.
    """
    print(
        f"\ntwo equal models, 0/1, {SETS} sets, exact: error in %, by the share of sets in which"
        " they differ"
    )
    print(f"{'':<10}{'mid-P':>8}{'exact test':>12}")

    def error(test: Callable[[int, int], float], differ: float) -> float:
        return sum(
            comb(SETS, k) * differ**k * (1 - differ) ** (SETS - k) * comb(k, x) / 2**k
            for k in range(SETS + 1)
            for x in range(k + 1)
            if test(x, k - x) < SIGNIFICANCE
        )

    for differ in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        print(
            f"{differ:<10}{100 * error(mcnemar, differ):>8.2f}{100 * error(exact_p, differ):>12.2f}"
        )


def exact_p(better: int, worse: int) -> float:
    return min(2 * binomial_tail(min(better, worse), better + worse), 1.0)


def partial_nulls(studies: int) -> None:
    """Some models differ clearly and fall out of the family: do those that are equal stay so?"""
    print("\nsome differ: errors among those that are equal")
    for number, (name, models, safe) in enumerate(
        (
            (
                "half at .6, the others at .7 to .95",
                20,
                np.r_[np.full(10, 0.6), np.linspace(0.7, 0.95, 10)],
            ),
            ("pairs at .3, .4, …, .9", 14, np.repeat(np.linspace(0.3, 0.9, 7), 2)),
            ("19 at .95, one at .5", 20, np.r_[np.full(19, 0.95), 0.5]),
        )
    ):
        generator = np.random.default_rng((20260702, 77, number))
        equal = np.asarray(safe[:, None] == safe)
        wrong = 0
        for _ in range(studies):
            world = World(
                name, (0.0, 1.0), tuple((1 - share, share) for share in safe.tolist()), 0.3
            )
            wrong += any_called_different(world.draw(models, generator), equal)
        show(name, models, wrong, studies)


def holm(values: Floats) -> float:
    """Return the share of pairs that McNemar's exact test finds with Holm's correction."""
    p = []
    for a in range(len(values)):
        for b in range(a):
            better, worse = int((values[a] > values[b]).sum()), int((values[a] < values[b]).sum())
            p.append(exact_p(better, worse))
    limits = SIGNIFICANCE / np.arange(len(p), 0, -1)
    return float(np.append(np.sort(p) < limits, False).argmin()) / len(p)


def power(studies: int) -> None:
    """Twenty models with Triplet Safety from .4 to .8: what is found, and which ranks are left
    open.
    """
    print(
        "\n20 models, .4 to .8 evenly, 115 sets: share of 190 pairs found; rank intervals: width,"
        " and how often they hold"
    )
    print(f"{'':<18}{'Holm':>7}{'max-T':>7}{'width':>9}{'all hold':>10}")
    safe = np.linspace(0.4, 0.8, 20)
    truth = 20 - np.arange(20)
    for shared in (0.0, 0.4, 0.7):
        generator = np.random.default_rng((20260702, 88, int(10 * shared)))
        world = World(
            "power", (0.0, 1.0), tuple((1 - share, share) for share in safe.tolist()), shared
        )
        found: list[tuple[float, ...]] = []
        for _ in range(studies):
            values = world.draw(20, generator)
            result = compare(values)
            ranks = np.array(rank_intervals(result))
            found.append(
                (
                    holm(values),
                    float((result.p_adjusted[np.triu_indices(20, 1)] < SIGNIFICANCE).mean()),
                    float((ranks[:, 1] - ranks[:, 0]).mean()),
                    float(((ranks[:, 0] <= truth) & (truth <= ranks[:, 1])).all()),
                )
            )
        by_holm, by_us, wide, all_hold = np.mean(found, axis=0)
        print(
            "correlation"
            f" {shared:<6}{by_holm:>7.3f}{by_us:>7.3f}{wide:>9.1f}{100 * all_hold:>8.1f}"
            " %",
            flush=True,
        )


def compare(values: Floats) -> Comparison:
    ratios = {"m": (values, np.ones_like(values))}
    return compare_models(ratios, Resamples(values.shape[1], 400), binary=("m",))["m"]


def takes() -> None:
    print("\none metric, every pair, 10,000 flips and 10,000 resamples")
    for models, sets, missing in (
        (20, 115, 0.0),
        (104, 115, 0.0),
        (104, 700, 0.0),
        (200, 115, 0.0),
        (200, 700, 0.0),
        (200, 700, 0.05),
    ):
        generator = np.random.default_rng(3)
        values = EQUAL[3].draw(models, generator, sets)
        weights = (generator.random(values.shape) >= missing).astype(float)
        started = time.process_time()
        compare_models({"m": (values * weights, weights)}, Resamples(sets))
        seconds = time.process_time() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        some = f", {missing:.0%} of grades missing" if missing else ""
        print(
            f"{models} models × {sets} sets{some:<24}{seconds:>8.1f} CPU s, at most {memory:.0f} MB"
            " so far",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=2000)
    options = parser.parse_args()
    familywise(options.studies)
    two_models()
    partial_nulls(max(options.studies // 2, 20))
    power(max(options.studies // 10, 20))
    takes()


if __name__ == "__main__":
    main()
