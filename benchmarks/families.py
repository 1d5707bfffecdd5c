"""Do intervals cover the truth if prompt-sets come in families, and how wide are they?

Families share a latent difficulty. A world is a dataset's shape (families of five; of one to ten;
half of the sets alone) and what is measured (a share, Mean Utility, the difference of two models).
Compared are sets as units, families as units with a pseudo-observation of the average family's
weight (ours), and with one of a single set's weight.

    python benchmarks/families.py [--simulations 4000]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import estimate
from opensafeintent.statistics.intervals import Units

Floats = NDArray[np.float64]
SIZES = (42, 115, 700)
CORRELATIONS = (0.0, 0.3, 0.5)
SHARES = (0.5, 0.7, 0.85, 0.95)
_TRUTH_SETS = 2_000_000


class Shape(NamedTuple):
    """How the sets of a dataset fall into families."""

    name: str
    sizes: tuple[int, ...]
    """Of families, repeated until there are enough sets."""


SHAPES = (
    Shape("fives", (5,)),
    Shape("one to ten", (1, 2, 3, 5, 10)),
    Shape("fives and alone", (5, 1, 1, 1, 1, 1)),
)


class World(NamedTuple):
    """What is measured of sets whose latent difficulty is correlated within families."""

    kind: str
    truth: float
    draw: Callable[[np.random.Generator, Floats], Floats]
    """Returns values of the same shape as the difficulty, (simulation, prompt_set)."""
    span: tuple[float, float]


def units_of(shape: Shape, sets: int) -> NDArray[np.int64]:
    """Return the family of each set."""
    sizes: list[int] = []
    while sum(sizes) < sets:
        sizes += shape.sizes
    return np.repeat(np.arange(len(sizes)), sizes)[:sets]


def share(p: float, g: np.random.Generator, difficulty: Floats) -> Floats:
    """1 if the set is answered safely."""
    return (difficulty < NormalDist().inv_cdf(p)).astype(float)


def utility(g: np.random.Generator, difficulty: Floats) -> Floats:
    """Three responses, each safe with help in steps of a third."""
    quality = 0.7 * difficulty[..., None] + 0.7 * g.standard_normal((*difficulty.shape, 3))
    help_given = np.searchsorted([-0.7, 0.0, 0.7], quality) / 3
    return np.asarray((help_given * (quality > -1.2)).mean(axis=-1))


def pair(p: float, g: np.random.Generator, difficulty: Floats) -> Floats:
    """Later minus earlier, of two models of which one alone stumbles over families."""
    limit = NormalDist().inv_cdf(p)
    earlier = g.standard_normal(difficulty.shape) < limit
    return (difficulty < limit).astype(float) - earlier


def worlds() -> Iterator[World]:
    for p in SHARES:
        yield World("shares", p, partial(share, p), (0, 1))
    generator = np.random.default_rng(77)
    truth = float(utility(generator, generator.standard_normal((1, _TRUTH_SETS))).mean())
    yield World("Mean Utility", truth, utility, (0, 1))
    for p in SHARES[:3]:
        yield World("differences", 0.0, partial(pair, p), (-1, 1))


def cover(
    values: Floats, world: World, units: Units | None, weight: Floats | None
) -> tuple[float, float]:
    """Return coverage and mean width of the intervals of some simulations."""
    found = estimate(
        values, np.ones_like(values), span=world.span, units=units, pseudo_weight=weight
    )
    hit = (found.low <= world.truth + 1e-9) & (world.truth - 1e-9 <= found.high)
    return float(hit.mean()), float((found.high - found.low).mean())


def measure(
    shape: Shape, sets: int, correlation: float, world: World, simulations: int
) -> dict[str, tuple[float, float]]:
    """Return coverage and width of each method."""
    seed = [sets, int(10 * correlation), len(shape.name), int(1000 * world.truth)]
    generator = np.random.default_rng(seed)
    units = units_of(shape, sets)
    common = generator.standard_normal((simulations, units[-1] + 1))[:, units]
    own = generator.standard_normal((simulations, sets))
    values = world.draw(generator, correlation**0.5 * common + (1 - correlation) ** 0.5 * own)
    return {
        "sets": cover(values, world, None, None),
        "families": cover(values, world, units, None),
        "families, pseudo-set": cover(values, world, units, np.ones(simulations)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    simulations = parser.parse_args().simulations
    print(
        "correlation | shape | sets | units | measured | coverage (least), width ÷ sets' by method"
    )
    everything = list(worlds())
    for correlation in CORRELATIONS:
        for shape in SHAPES:
            for sets in SIZES:
                found: defaultdict[str, list[dict[str, tuple[float, float]]]] = defaultdict(list)
                for world in everything:
                    found[world.kind].append(measure(shape, sets, correlation, world, simulations))
                for kind, results in found.items():
                    columns = [
                        f"{method} {100 * min(result[method][0] for result in results):.1f},"
                        f" {fmean(result[method][1] / result['sets'][1] for result in results):.2f}"
                        for method in results[0]
                    ]
                    units = units_of(shape, sets)[-1] + 1
                    print(correlation, shape.name, sets, units, kind, *columns, sep=" | ")


if __name__ == "__main__":
    main()
