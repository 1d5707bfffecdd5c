"""Do intervals cover the truth if prompt-sets come in families, and how wide are they?

Families share a latent difficulty. A world is a dataset's shape (families of five; of one to ten;
half of the sets alone) and what is measured (a share, Mean Utility, the difference of two models).
Compared are sets as units, families as units with a pseudo-observation of the average family's
weight (ours), and with one of a single set's weight. Two further parts: means over harm domains
whose sets share families, and the components of variance of one model.

    python benchmarks/families.py [--simulations 4000] [--part intervals|domains|components]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from statistics import NormalDist, fmean
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.numbers.estimates import FEWEST_SETS_IN_DOMAIN
from opensafeintent.statistics import estimate
from opensafeintent.statistics.components import average_components, find_components
from opensafeintent.statistics.intervals import Units, correlate_parts, mean_over

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


class Layout(NamedTuple):
    """How the sets of a dataset fall into harm domains and families."""

    name: str
    domains: tuple[int, ...]
    """Sets of each."""
    shape: Shape | None
    """Of families within a domain; None if a family has one set of each domain."""

    @property
    def units(self) -> list[NDArray[np.int64]]:
        """The family of each set, by domain."""
        if self.shape is None:
            return [np.arange(sets) for sets in self.domains]
        starts = np.cumsum([0, *self.domains])
        return [
            start + units_of(self.shape, sets)
            for start, sets in zip(starts[:-1], self.domains, strict=True)
        ]


LAYOUTS = (
    Layout("one set in each of 7 domains, 12 families", (12,) * 7, None),
    Layout("one set in each of 7 domains, 100 families", (100,) * 7, None),
    Layout("one set in each of up to 7 domains", (10, 13, 15, 16, 18, 19, 24), None),
    Layout("fives within a domain", (50, 90, 100, 110, 112, 116, 120), SHAPES[0]),
    Layout("fives within a domain, of 10 families", (50,) * 7, SHAPES[0]),
    Layout("one to ten within a domain", (60, 60, 90, 90, 120, 120, 120), SHAPES[1]),
)
LEVELS = tuple((first, others) for first in (0.99, 0.8, 0.4) for others in (0.99, 0.9, 0.6))
"""Share of safe sets of the first domain, and of the others."""


def cover_domains(
    layout: Layout, correlation: float, level: tuple[float, float], simulations: int
) -> tuple[float, float]:
    """Return coverage and mean width of the mean over domains."""
    first, others = level
    generator = np.random.default_rng([int(10 * correlation), int(100 * first), int(100 * others)])
    units = layout.units
    together = np.concatenate(units)
    shares = [first, *[others] * (len(units) - 1)]
    limits = np.repeat([NormalDist().inv_cdf(p) for p in shares], layout.domains)
    domain_of = np.repeat(np.arange(len(units)), layout.domains)
    truth, hits, width = fmean(shares), 0, 0.0
    common = generator.standard_normal((simulations, together.max() + 1))[:, together]
    own = generator.standard_normal(common.shape)
    safe = (correlation**0.5 * common + (1 - correlation) ** 0.5 * own < limits).astype(float)
    columns = []
    for at, families in enumerate(units):
        values = safe[:, domain_of == at]
        found = estimate(values, np.ones_like(values), units=families).records()
        count = len(np.unique(families))
        columns.append([msgspec.structs.replace(record, n=count) for record in found])
    inside = [(domain_of == at).astype(float) for at in range(len(units))]
    for row, parts in zip(safe, zip(*columns, strict=True), strict=True):
        related = correlate_parts([(row * members, members) for members in inside], together)
        low, high = mean_over(parts, FEWEST_SETS_IN_DOMAIN, related).interval or (0.0, 1.0)
        hits += low <= truth + 1e-9 and truth - 1e-9 <= high
        width += high - low
    return hits / simulations, width / simulations


def part_domains(simulations: int) -> None:
    print("layout | correlation | coverage of the mean over domains: least, mean | mean width")
    for layout in LAYOUTS:
        for correlation in CORRELATIONS:
            found = [cover_domains(layout, correlation, of, simulations // 4) for of in LEVELS]
            coverage, widths = zip(*found, strict=True)
            text = f"{100 * min(coverage):.1f}, {100 * fmean(coverage):.1f} | {fmean(widths):.3f}"
            print(f"{layout.name} | {correlation} | {text}", flush=True)


class Truth(NamedTuple):
    """Variances of one value of a set: of its family, itself, a wording, a repeat, a judge, and a
    judge from family to family.
    """

    family: float
    sets: float
    wording: float
    repeat: float
    judge: float
    judge_by_family: float


TRUTHS = (
    Truth(0.03, 0.03, 0.0, 0.02, 0.0, 0.0),
    Truth(0.03, 0.03, 0.02, 0.02, 0.0, 0.0),
    Truth(0.06, 0.01, 0.02, 0.02, 0.004, 0.01),
    Truth(0.0, 0.06, 0.02, 0.02, 0.004, 0.01),
)


def draw_values(
    generator: np.random.Generator, truth: Truth, units: Units, judges: int, epochs: int
) -> Floats:
    """Return values of shape (judge, prompt_set, wording, epoch), three wordings if they vary."""

    def draw_part(variance: float, *shape: int) -> Floats:
        return variance**0.5 * generator.standard_normal(shape)

    sets, families = len(units), int(units.max()) + 1
    wordings = 3 if truth.wording else 1
    return np.asarray(
        draw_part(truth.family, 1, families, 1, 1)[:, units]
        + draw_part(truth.sets, 1, sets, 1, 1)
        + draw_part(truth.wording, 1, sets, wordings, 1)
        + draw_part(truth.repeat, 1, sets, wordings, epochs)
        + draw_part(truth.judge, judges, 1, 1, 1)
        + draw_part(truth.judge_by_family, judges, families, 1, 1)[:, units]
    )


def part_components(simulations: int) -> None:
    """Print the mean estimate of the variance of a mean over the true one, and how often the mean
    lies within so many standard errors of the truth.
    """
    print(
        "truth | shape | sets, judges | variance, one more judge, twice the epochs: mean estimate"
    )
    print("over the true one | coverage of t intervals with this variance")
    for truth, shape, sets in product(TRUTHS, SHAPES, SIZES):
        judges, epochs, units = 3 if truth.judge else 1, 2, units_of(shape, sets)
        generator = np.random.default_rng([sets, len(shape.name)])
        counts = np.bincount(units)

        def find_variance(k: int, e: int, truth: Truth = truth, counts: Floats = counts) -> float:
            by_family = truth.family + truth.judge_by_family / k
            by_set = truth.sets + truth.wording + truth.repeat / e
            n = counts.sum()
            return float(by_family * (counts**2).sum() / n**2 + by_set / n + truth.judge / k)

        found = []
        for _ in range(simulations // 4):
            values = draw_values(generator, truth, units, judges, epochs)
            components = find_components(values, units)
            assert components is not None
            kept = average_components([components])
            found.append(
                (
                    kept.variance / find_variance(judges, epochs),
                    kept.with_another_judge / find_variance(judges + 1, epochs),
                    kept.with_twice_the_epochs / find_variance(judges, 2 * epochs),
                )
            )
        ratios = np.array(found).mean(axis=0)
        shown = ", ".join("–" if np.isnan(of) else f"{of:.2f}" for of in ratios)
        print(f"{tuple(truth)} | {shape.name} | {sets}, {judges} | {shown}", flush=True)


def part_intervals(simulations: int) -> None:
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


PARTS: dict[str, Callable[[int], None]] = {
    "intervals": part_intervals,
    "domains": part_domains,
    "components": part_components,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--part", choices=PARTS)
    options = parser.parse_args()
    for name in [options.part] if options.part else PARTS:
        PARTS[name](options.simulations)
