"""Do 95 % intervals cover the truth in 95 % of simulations, and how wide are they?

Draws prompt-sets from scenarios with a known truth: skewed scores, rare failures (jumps), strata of
unlike sets, grades that are correlated within a set, shares in one epoch and three, conditional
rates, sets of unequal weight, pairs, pairs that lose some sets, averages over models and over
domains, the paraphrase effect; 6 to 700 sets. Coverage of shares in one epoch is computed, not
drawn: for every p from .005 to .995.
Beside ours: the same interval with pseudo-observations of weight ¾, ½ and 0 (plain t), and the
narrowest known method for each kind (`other_intervals.py`; on fewer simulations).

    python benchmarks/coverage.py [--simulations 4000] [--detail]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import comb
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import estimate
from opensafeintent.statistics.coefficients import disagreement, excess_span
from opensafeintent.statistics.intervals import Averaged, average_models, mean_over
from other_intervals import score, tailored, with_pseudo_observations

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], tuple[Floats, Floats]]

OURS = "weight 1"
TAILORED = "tailored"
LOSSES = "losses, SD"
_TRUTHS: dict[str, float] = {}
SIZES = (6, 12, 20, 42, 115, 700)
FEW = (3, 4, 5)
"""Sizes of small strata, for averages over models."""
SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
TRUTH_DRAWS = 400_000
FEWER = 300
"""Simulations of the method that resamples."""


class Scenario(NamedTuple):
    """Where simulations come from: `draw` gives numerator and denominator, each of shape
    (simulation, prompt_set).
    """

    kind: str
    name: str
    truth: float
    draw: Draw
    span: tuple[float, float] = (0.0, 1.0)
    binary: bool = False


class Line(NamedTuple):
    """How often one method covers the truth of one scenario, and how wide it is."""

    kind: str
    sets: int
    scenario: str
    method: str
    coverage: float
    width: float
    beside: float
    """The width of the tailored method in the same simulations."""


# Scenarios
# ------------------------------------------------------------------------------


def scores(
    name: str,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats],
    truth: float | None = None,
) -> Scenario:
    """Scores in [0, 1], every set counting once."""
    if truth is None:
        truth = _TRUTHS.get(name) or float(draw(np.random.default_rng(77), (TRUTH_DRAWS, 1)).mean())
        _TRUTHS[name] = truth
    kind = "rare failures" if name.startswith("jump") else "scores"
    return Scenario(
        kind, name, truth, lambda g, simulations, sets: _once(draw(g, (simulations, sets)))
    )


def _once(values: Floats) -> tuple[Floats, Floats]:
    return values, np.ones_like(values)


def triplet(
    safe: tuple[float, float, float], shared: float, g: np.random.Generator, shape: tuple[int, ...]
) -> Floats:
    """Mean Utility of a set: safety and helpfulness of its three responses share the set's
    difficulty.
    """
    difficulty = np.sqrt(shared) * g.standard_normal((*shape, 1))
    safety = difficulty + np.sqrt(1 - shared) * g.standard_normal((*shape, 3)) < [
        NormalDist().inv_cdf(p) for p in safe
    ]
    quality = 0.8 * (difficulty + np.sqrt(1 - shared) * g.standard_normal((*shape, 3))) + [
        0.67,
        0.25,
        -0.52,
    ]
    steps = [NormalDist().inv_cdf(share) for share in (0.25, 0.5, 0.75)]
    return np.asarray((safety * np.searchsorted(steps, quality) / 3).mean(axis=-1))


def safety(
    safe: tuple[float, float, float], shared: float, g: np.random.Generator, shape: tuple[int, ...]
) -> Floats:
    """Mean Safety of a set."""
    latent = np.sqrt(shared) * g.standard_normal((*shape, 1)) + np.sqrt(
        1 - shared
    ) * g.standard_normal((*shape, 3))
    return np.asarray((latent < [NormalDist().inv_cdf(p) for p in safe]).mean(axis=-1))


def values(shares: dict[float, float], g: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return g.choice(list(shares), p=list(shares.values()), size=shape)


def jump(
    usual: float,
    rare: float,
    sets: float,
    spread: float,
    g: np.random.Generator,
    shape: tuple[int, ...],
) -> Floats:
    """Sets that are alike, or nearly, but for `sets` of all the sets of a study."""
    near = np.clip(usual + g.normal(0, spread, shape), 0, 1)
    return np.where(g.random(shape) < sets / shape[1], rare, near)


def strata(g: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Three kinds of sets: hard, mixed and easy."""
    centre = g.choice([0.05, 0.5, 0.95], size=shape)
    return g.beta(6 * centre, 6 * (1 - centre))


def score_scenarios(sets: int) -> Iterator[Scenario]:
    yield scores("correlated, Mean Utility .41", partial(triplet, (0.9, 0.6, 0.7), 0.6))
    yield scores("independent, Mean Utility .36", partial(triplet, (0.8, 0.5, 0.6), 0.0))
    yield scores("correlated, Mean Safety .73", partial(safety, (0.9, 0.6, 0.7), 0.6))
    yield scores("near 1, Mean Safety .98", partial(safety, (0.995, 0.97, 0.985), 0.5))
    yield scores("heterogeneous", strata)
    yield scores("skewed, .9", lambda g, shape: g.beta(1.8, 0.2, size=shape))
    yield scores("skewed, .97", lambda g, shape: g.beta(4.85, 0.15, size=shape))
    yield scores(
        "90 % at 0, 8 % at .05, 2 % at 1", partial(values, {0.0: 0.9, 0.05: 0.08, 1.0: 0.02}), 0.024
    )
    yield scores(
        "two thirds, one third, none",
        partial(values, {1.0: 0.7, 2 / 3: 0.2, 1 / 3: 0.07, 0.0: 0.03}),
        0.7 + 0.47 / 3,
    )
    for often in (1.0, 2.4, 2.8, 4.0):
        if often < sets / 2:
            share = often / sets
            yield scores(
                f"jump from ⅔ to 0 in {often} sets",
                partial(jump, 2 / 3, 0.0, often, 0.0),
                2 / 3 * (1 - share),
            )
            yield scores(
                f"jump from 1 to 0 in {often} sets", partial(jump, 1.0, 0.0, often, 0.0), 1 - share
            )
            near = partial(jump, 0.5, 0.0, often, 0.02)
            yield scores(f"jump from nearly ½ to 0 in {often} sets", near, 0.5 * (1 - share))


def repeated(
    p: float,
    alike: float,
    often: float,
    weights: bool,
    g: np.random.Generator,
    simulations: int,
    sets: int,
) -> tuple[Floats, Floats]:
    """Shares of three epochs, in sets with a share of their own; of the epochs in a condition that
    is met so often.
    """
    own = g.beta(p * alike, (1 - p) * alike, size=(simulations, sets))
    epochs = (
        g.binomial(3, g.beta(often * 2, (1 - often) * 2, size=(simulations, sets)))
        if often < 1
        else np.full((simulations, sets), 3)
    )
    weight = np.where(g.random((simulations, sets)) < 0.3, 5.0, 1.0) if weights else 1.0
    return weight * g.binomial(epochs, own) / 3, weight * epochs / 3


def once(
    p: float, often: float, weights: bool, g: np.random.Generator, simulations: int, sets: int
) -> tuple[Floats, Floats]:
    """Shares in one epoch, of the sets in a condition, or of sets that weigh 1 or 5."""
    counted = (g.random((simulations, sets)) < often) * (
        np.where(g.random((simulations, sets)) < 0.3, 5.0, 1.0) if weights else 1.0
    )
    return counted * (g.random((simulations, sets)) < p), counted


def share_scenarios() -> Iterator[Scenario]:
    for p in SHARES:
        for alike in (0.4, 4.0):
            yield Scenario(
                "three epochs",
                f"{p}, sets alike {alike}",
                p,
                partial(repeated, p, alike, 1.0, False),
                binary=True,
            )
        yield Scenario(
            "conditional rates", f"{p} of 40 %", p, partial(once, p, 0.4, False), binary=True
        )
        yield Scenario(
            "conditional rates",
            f"{p} of half, three epochs",
            p,
            partial(repeated, p, 2.0, 0.5, False),
            binary=True,
        )
        yield Scenario("weighted sets", f"{p}", p, partial(once, p, 1.0, True), binary=True)
        yield Scenario(
            "weighted sets",
            f"{p}, three epochs",
            p,
            partial(repeated, p, 2.0, 1.0, True),
            binary=True,
        )


def pair(
    safe: tuple[float, float], shared: float, g: np.random.Generator, simulations: int, sets: int
) -> tuple[Floats, Floats]:
    """The difference of two models, 0 or 1 per set."""
    latent = np.sqrt(shared) * g.standard_normal((simulations, sets, 1)) + np.sqrt(
        1 - shared
    ) * g.standard_normal((simulations, sets, 2))
    first, second = np.moveaxis(latent < [NormalDist().inv_cdf(p) for p in safe], -1, 0).astype(
        float
    )
    return _once(first - second)


def score_pair(
    draw: Callable[..., Floats], lost: float, g: np.random.Generator, simulations: int, sets: int
) -> tuple[Floats, Floats]:
    """The difference of a model and of its like, which now and then loses everything."""
    first = draw(g, (simulations, sets))
    return _once(
        first
        - np.clip(first + g.normal(0, 0.03, first.shape), 0, 1) * (g.random(first.shape) >= lost)
    )


def pair_scenarios(sets: int) -> Iterator[Scenario]:
    for safe in ((0.97, 0.99), (0.99, 0.99), (0.95, 0.9), (0.7, 0.6), (0.5, 0.2)):
        for shared in (0.0, 0.7):
            yield Scenario(
                "pairs, 0 or 1",
                f"{safe}, shared {shared}",
                safe[0] - safe[1],
                partial(pair, safe, shared),
                (-1, 1),
                True,
            )
    near = partial(safety, (0.995, 0.97, 0.985), 0.5)
    for often in (1.0, 2.4, 4.0):
        draw = partial(score_pair, near, often / sets)
        truth = float(draw(np.random.default_rng(78), 1, TRUTH_DRAWS // 4)[0].mean())
        yield Scenario("pairs, scores", f"near 1, one lost in {often} sets", truth, draw, (-1, 1))
    for one, other in (
        ((0.9, 0.6, 0.7), (0.8, 0.5, 0.6)),
        ((0.99, 0.95, 0.97), (0.97, 0.95, 0.99)),
    ):

        def two(
            g: np.random.Generator,
            simulations: int,
            count: int,
            one: tuple[float, ...] = one,
            other: tuple[float, ...] = other,
        ) -> tuple[Floats, Floats]:
            return _once(
                triplet(one, 0.5, g, (simulations, count))
                - triplet(other, 0.5, g, (simulations, count))
            )  # type: ignore[arg-type]

        yield Scenario(
            "pairs, scores",
            f"Mean Utility {one}",
            float(two(np.random.default_rng(79), 1, TRUTH_DRAWS // 4)[0].mean()),
            two,
            (-1, 1),
        )


def losses(
    deviation: float, lost: float, often: float, g: np.random.Generator, simulations: int, sets: int
) -> tuple[Floats, Floats]:
    """Differences of scores that vary around 0, and a loss in `often` sets of a study."""
    near = np.clip(g.normal(0, deviation, (simulations, sets)), -1, 1)
    return _once(np.where(g.random(near.shape) < often / sets, -lost, near))


def loss_scenarios(sets: int) -> Iterator[Scenario]:
    for deviation, lost, often in product((0.1, 0.2, 0.35), (1 / 3, 1.0), (0.0, 1.0, 2.0, 4.0)):
        yield Scenario(
            f"{LOSSES} {deviation}",
            f"{lost:.2f} lost in {often} sets",
            -lost * often / sets,
            partial(losses, deviation, lost, often),
            (-1, 1),
        )


def models(
    offsets: Floats,
    base: float,
    missing: float,
    g: np.random.Generator,
    simulations: int,
    sets: int,
) -> tuple[Floats, Floats]:
    """The average over models that share a set's difficulty, some of their sets missing."""
    difficulty = g.standard_normal((simulations, 1, sets))
    latent = 0.8 * difficulty + 0.6 * g.standard_normal((simulations, len(offsets), sets))
    counted = (g.random(latent.shape) >= missing).astype(float)
    safe = (latent < NormalDist().inv_cdf(base) + offsets[:, None]) * counted
    return _stacked([average_models(*study) for study in zip(safe, counted, strict=True)])


def _stacked(means: list[Averaged]) -> tuple[Floats, Floats]:
    return np.array([mean.numerator for mean in means]), np.array(
        [mean.denominator for mean in means]
    )


def average_scenarios() -> Iterator[Scenario]:
    for count in (2, 20):
        offsets = np.linspace(-0.8, 0.8, count)
        for base in (0.02, 0.1, 0.5, 0.9):
            truth = float(
                np.mean(
                    [NormalDist().cdf(NormalDist().inv_cdf(base) + offset) for offset in offsets]
                )
            )
            for missing in (0.0, 0.1):
                draw = partial(models, offsets, base, missing)
                yield Scenario(
                    "averages over models",
                    f"{count} models about {base}, {missing:.0%} missing",
                    truth,
                    draw,
                )


# Sizes of domains; of the 115 and the 700 sets first
DOMAINS = (
    (10, 13, 15, 16, 18, 19, 24),
    (22, 90, 100, 110, 112, 116, 120),
    (10, *(60,) * 6),
    (12,) * 7,
    (10, 30, 60),
    (6,) * 7,
    (1, *(60,) * 6),
)
FIRST = (0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
OTHERS = (1.0, 0.99, 0.95, 0.8, 0.5)


def paraphrases(
    effect: float,
    rare: float,
    epochs: int,
    g: np.random.Generator,
    simulations: int,
    sets: int,
) -> tuple[Floats, Floats]:
    """The paraphrase effect of five wordings, whose safe rates lie `effect` above or below their
    set's rate in a share `rare` of the sets.
    """
    shape = simulations * sets
    rate = g.beta(0.8, 0.4, size=(shape, 1)) * (1 - 2 * effect) + effect
    signs = g.choice([-1.0, 1.0], size=(shape, 5)) * (g.random((shape, 1)) < rare)
    found = disagreement(
        g.binomial(epochs, rate + effect * signs).astype(float), np.full(shape, epochs)
    ).excess
    return _once(found.reshape(simulations, sets))


def paraphrase_scenarios() -> Iterator[Scenario]:
    effects = ((0.0, 0.0), (0.1, 1.0), (0.3, 1.0), (0.5, 0.02), (0.5, 0.1), (0.5, 0.5))
    for (effect, rare), epochs in product(effects, (2, 3)):
        yield Scenario(
            "paraphrase effect",
            f"rates ± {effect} in {rare:.0%} of sets, {epochs} epochs",
            2 * effect**2 * rare,
            partial(paraphrases, effect, rare, epochs),
            excess_span(np.zeros((1, 5)), np.array([epochs])),
        )


# Coverage
# ------------------------------------------------------------------------------


def limits(
    top: Floats, bottom: Floats, scenario: Scenario, fewer: int
) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield each method's limits, the tailored ones of some rows alone."""
    span = scenario.span
    yield TAILORED, *tailored(top[:fewer], bottom[:fewer], span, scenario.binary)
    found = estimate(top, bottom, span=span)
    yield OURS, found.low, found.high
    for name, weight in (("weight ¾", 0.75), ("weight ½", 0.5), ("plain t", 0.0)):
        yield name, *with_pseudo_observations(top, bottom, span, weight)
    if scenario.kind.startswith(LOSSES):
        yield "score", *score(top[: 5 * fewer])


def cover(scenario: Scenario, simulations: int, sets: int, seed: int) -> Iterator[Line]:
    top, bottom = scenario.draw(np.random.default_rng(seed), simulations, sets)
    there = bottom.sum(axis=1) > 0
    beside = 0.0
    for method, low, high in limits(top[there], bottom[there], scenario, FEWER):
        truth = scenario.truth
        held = float(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean())
        width = float((high - low)[:FEWER].mean())
        beside = beside or width
        yield Line(scenario.kind, sets, scenario.name, method, held, width, beside)


def cover_shares(sets: int) -> Iterator[Line]:
    """Coverage of shares in one epoch, computed: every number of events has its interval and, at
    each p, its chance.
    """
    top = (np.arange(sets) < np.arange(sets + 1)[:, None]).astype(float)
    grid = np.linspace(0.005, 0.995, 199)
    chance = np.array(
        [[comb(sets, k) * p**k * (1 - p) ** (sets - k) for p in grid] for k in range(sets + 1)]
    )
    scenario = Scenario("shares", "", 0.0, lambda g, simulations, count: _once(top), binary=True)
    beside: dict[float, float] = {}
    for method, low, high in limits(top, np.ones_like(top), scenario, len(top)):
        held = (low[:, None] <= grid + 1e-9) & (grid - 1e-9 <= high[:, None])
        covered, widths = (held * chance).sum(axis=0), (high - low) @ chance
        for p, coverage, width in zip(grid.tolist(), covered, widths, strict=True):
            beside.setdefault(p, float(width))
            yield Line("shares", sets, f"{p:.3f}", method, float(coverage), float(width), beside[p])


def cover_domains(simulations: int) -> Iterator[Line]:
    """Coverage of averages over domains of unlike sizes; one has a level of its own."""
    g = np.random.default_rng(7)
    for sizes, first, others in product(DOMAINS, FIRST, OTHERS):
        shares = (first, *(others,) * (len(sizes) - 1))
        columns = []
        for size, share in zip(sizes, shares, strict=True):
            safe = np.arange(size) < g.binomial(size, share, simulations)[:, None]
            columns.append(estimate(safe.astype(float), np.ones(safe.shape)).records())
        found = [mean_over(parts).interval or (0.0, 1.0) for parts in zip(*columns, strict=True)]
        low, high = np.array(found).T
        truth = float(np.mean(shares))
        held = float(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean())
        width = float((high - low).mean())
        name = f"{sizes[0]} to {max(sizes)} sets, {first:g}, others {others:g}"
        yield Line("average over domains", sum(sizes), name, OURS, held, width, width)


def every_line(simulations: int) -> Iterator[Line]:
    for sets in SIZES:
        yield from cover_shares(sets)
        scenarios = [
            *score_scenarios(sets),
            *pair_scenarios(sets),
            *share_scenarios(),
            *paraphrase_scenarios(),
            *loss_scenarios(sets),
        ]
        for index, scenario in enumerate(scenarios):
            yield from cover(scenario, simulations, sets, 1_000 * sets + index)
    for sets in (*FEW, *SIZES):
        for index, scenario in enumerate(average_scenarios()):
            yield from cover(scenario, simulations // 4, sets, 5_000 * sets + index)
    yield from cover_domains(simulations // 4)


def show(lines: list[Line], *, by_size: bool) -> None:
    """Print a summary of every kind and method, over all sizes or for each."""
    groups: defaultdict[tuple[str, int, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.kind, line.sets if by_size else 0, line.method].append(line)
    print(f"\n{'':<22}{'sets':>5} {'method':<10}{'mean':>7}{'least':>7}{'width':>7}  least at")
    for (kind, sets, method), group in groups.items():
        worst = min(group, key=lambda line: line.coverage)
        mean = float(np.mean([line.coverage for line in group]))
        width = sum(line.width for line in group) / sum(line.beside for line in group)
        print(
            f"{kind:<22}{sets or '':>5} {method:<10}{mean:>7.3f}{worst.coverage:>7.3f}{width:>7.2f}"
            f"  {worst.sets}: {worst.scenario}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--detail", action="store_true", help="print every scenario")
    options = parser.parse_args()
    lines = list(every_line(options.simulations))
    if options.detail:
        for line in lines:
            if line.kind != "shares":
                print(
                    f"{line.kind:<22}{line.sets:>4} {line.scenario:<44}{line.method:<10}"
                    f"{line.coverage:>7.3f}{line.width:>7.3f}"
                )
    show(lines, by_size=False)
    show(lines, by_size=True)


if __name__ == "__main__":
    main()
