"""Do decisions with fewer calls err as little as they promise, and how many calls do they save?

Simulates studies at the value on which the verdict turns, where each verdict errs most, and counts how often either boundary
is ever crossed, at whatever look: what is reported holds for every time at which somebody might stop. Then, for true values
away from it, the share of prompt-sets that is used, beside the power of one test at the end with the same error; and how
often the repeated interval holds the truth. Errors are in multiples of α.

    python benchmarks/decisions.py [--studies 20000] [--only thresholds|pairs|savings|intervals]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.metrics import METRICS
from opensafeintent.statistics.boundaries import binomial_boundary, normal_boundary
from opensafeintent.statistics.decisions import Design, Look, Question, design_of, take_look
from opensafeintent.statistics.pairs import score_statistic
from opensafeintent.statistics.power import expected, tilted

Floats = NDArray[np.float64]

SIZES = (42, 115, 700)
SEED = 13
ALPHA = 0.05
MANY = 20
"""Models or pairs that α is divided by, where it is."""


def threshold(sets: int, at: float, families: int = 1) -> Design:
    question = Question(metric="triplet_safety", kind="at_least", threshold=at)
    return design_of(question, sets, confidence=1 - ALPHA, families=families, binary=True, span=(0.0, 1.0))


def pair(sets: int, metric: str, margin: float | None = None, families: int = 1) -> Design:
    kind = "better" if margin is None else "not_worse"
    question = Question(metric=metric, kind=kind, model="a", against="b", margin=margin)
    found = METRICS[metric]
    return design_of(question, sets, confidence=1 - ALPHA, families=families, binary=found.binary, span=found.span)


# Thresholds --------------------------------------------------------------------------------------------------------------

CELLS = (150, 130, 110, 90, 70, 60, 40, 28, 22)
"""Prompt-sets of nine strata, of 700."""
PATTERNS = 20
"""Ways in which strata differ, or sets are missing; the studies are shared out among them."""


def in_order(sets: int, generator: np.random.Generator, mean: float) -> Floats:
    """Chances of being safe, set by set as they are taken: every stratum has its own, as far about `mean` as can be."""
    sizes = np.maximum(np.round(np.array(CELLS) * sets / sum(CELLS)), 1).astype(int)
    sizes[0] += sets - sizes.sum()
    away = generator.uniform(-1, 1, len(sizes))
    away -= away @ sizes / sets
    away *= min((1 - mean) / away.max(), mean / -away.min())
    places = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    taken: Floats = np.repeat(mean + away, sizes)[np.argsort(places + generator.uniform(0, 1e-6, sets))]
    return taken


def simulated(design: Design, world: str, studies: int, generator: np.random.Generator) -> str:
    """How often either boundary is ever crossed, in multiples of α: below, above."""
    ever = np.zeros(2)
    ends = np.array(design.looks) - 1
    for _ in range(PATTERNS):
        chance = in_order(design.sets, generator, design.tested) if world == "strata" else np.full(design.sets, design.tested)
        there = generator.random(design.sets) >= (0.05 if world == "missing" else 0.0)
        if world == "look":
            there[design.looks[2] : design.looks[4]] = False
        counts = there.cumsum()[ends]
        successes = ((generator.random((studies // PATTERNS, design.sets)) < chance) & there).cumsum(axis=1)[:, ends]
        upper = binomial_boundary(counts.tolist(), design.allowed, design.tested).at
        lower = binomial_boundary(counts.tolist(), design.allowed, 1 - design.tested).at
        ever += (counts - successes >= np.array(lower)).any(axis=1).sum(), (successes >= np.array(upper)).any(axis=1).sum()
    no, yes = ever / (studies // PATTERNS * PATTERNS) / design.alpha
    return f"{no:.2f}, {yes:.2f}"


def error_of_thresholds(studies: int) -> None:
    print(f"\nThresholds, 20 looks: error at the threshold, at any look, in multiples of α: no, yes; {studies:,} studies")
    heads = f"{'exact':>14}{'strata differ':>16}{'5 % missing':>16}{'two looks empty':>17}"
    print(f"{'sets':>6}{'threshold':>11}{'α':>9}{heads}")
    for sets in SIZES:
        for at in (0.5, 0.8, 0.95):
            for families in (1, MANY):
                design = threshold(sets, at, families)
                row = expected(design, at)
                generator = np.random.default_rng([SEED, sets, int(100 * at), families])
                strata, missing, look = (
                    simulated(design, world, studies, generator) for world in ("strata", "missing", "look")
                )
                exact = f"{row.no / design.alpha:.2f}, {row.yes / design.alpha:.2f}"
                print(f"{sets:>6}{at:>11}{design.alpha:>9.4f}  {exact:>12}{strata:>16}{missing:>16}{look:>17}", flush=True)


# Pairs -------------------------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """How two models differ from set to set, with the mean that the verdict turns on."""

    name: str
    values: Floats
    shares: Floats
    binary: bool

    @property
    def mean(self) -> float:
        return float(self.values @ self.shares)


NINTHS = np.arange(-9, 10) / 9
SIGNS = np.array([-1.0, 0.0, 1.0])


def scores(name: str, **ninths: float) -> World:
    """Differences of scores by ninths: `up9=.1` is a tenth of sets with 1, `down3` is −1/3; the rest have none."""
    shares = np.zeros(19)
    for place, share in ninths.items():
        shares[9 + (1 if place.startswith("up") else -1) * int(place.strip("updown"))] += share
    shares[9] += 1 - shares.sum()
    return World(name, NINTHS, shares, binary=False)


def smooth(name: str, deviation: float, mean: float = 0.0) -> World:
    shares = np.exp(-0.5 * (NINTHS / deviation) ** 2)
    return World(name, NINTHS, tilted(NINTHS, shares / shares.sum(), mean), binary=False)


def noisy(name: str, world: World, deviation: float) -> World:
    shares = np.convolve(world.shares, smooth("", deviation).shares)[9:28]
    return World(name, NINTHS, shares / shares.sum(), binary=False)


def signs(name: str, worse: float, better: float) -> World:
    return World(name, SIGNS, np.array([worse, 1 - worse - better, better]), binary=True)


FAILS = scores("one alone fails 5 %, by a third to all", down3=0.02, down6=0.02, down9=0.01)
WORLDS = [
    signs("0/1, differ in 2 %", 0.01, 0.01),
    signs("0/1, differ in 20 %", 0.1, 0.1),
    signs("0/1, differ in 60 %", 0.3, 0.3),
    signs("0/1, one alone fails 2 %", 0.02, 0.0),
    signs("0/1, one alone fails 5 %", 0.05, 0.0),
    signs("0/1, one alone fails 10 %", 0.1, 0.0),
    signs("0/1, 5 % worse, differ in 9 %", 0.07, 0.02),
    signs("0/1, 5 % worse, differ in 25 %", 0.15, 0.1),
    smooth("scores, deviation .33", 0.33),
    smooth("scores, deviation .15", 0.15),
    smooth("scores, .05 worse, deviation .33", 0.33, -0.05),
    scores("scores, often +1/9, rarely -1", up1=0.5, down9=0.5 / 9),
    scores("scores, seldom +1/9, rarely -1", up1=0.18, down9=0.02),
    scores("one alone fails 2 % fully", down9=0.02),
    scores("one alone fails 5 % fully", down9=0.05),
    scores("one alone fails 10 % fully", down9=0.1),
    FAILS,
    noisy("the same among small differences", FAILS, 0.12),
]


def plain(world: World, counts: Floats) -> Floats:
    """Σ(d − Δ) / √Σ(d − Δ)²."""
    away = world.values - world.mean
    spread = (counts * away**2).sum(axis=-1)
    return np.where(spread > 1e-12, (counts @ away) / np.sqrt(np.maximum(spread, 1e-12)), 0.0)


def one_short(world: World, counts: Floats) -> Floats:
    """The same, one set short, with one set more in its variance."""
    away = world.values - world.mean
    distance = counts @ away
    return np.sign(distance) * np.maximum(np.abs(distance) - 1, 0) / np.sqrt((counts * away**2).sum(axis=-1) + 1)


def tango(world: World, counts: Floats) -> Floats:
    """The score statistic without correction for skewness: of 0/1, Tango's."""
    return score_statistic(world.values, counts, world.mean, 1.0, skewness=False)


def ours(world: World, counts: Floats) -> Floats:
    return score_statistic(world.values, counts, world.mean, 1.0)


STATISTICS: dict[str, Callable[[World, Floats], Floats]] = {
    "plain z": plain,
    "one set short": one_short,
    "uncorrected": tango,
    "ours": ours,
}


def paths(design: Design, shares: Floats, studies: int, generator: np.random.Generator) -> Floats:
    """How many sets have each value by each look: shape (study, look, value)."""
    steps = np.diff((0, *design.looks))
    return (
        np.stack([generator.multinomial(step, shares, studies) for step in steps], axis=1).cumsum(axis=1).astype(np.float64)
    )


def quantiles(design: Design) -> Floats:
    return np.array(normal_boundary(tuple(float(look) for look in design.looks), design.allowed).at)


def error_of_pairs(studies: int) -> None:
    print(f"\nPairs, 7 looks: error where the truth is the value tested, in multiples of α: no, yes; {studies:,} studies")
    print(f"(one standard error: {sqrt(1 / ALPHA / studies):.2f} at α .05, {sqrt(MANY / ALPHA / studies):.2f} at .0025)")
    worst: dict[tuple[str, float], float] = {}
    for sets in SIZES:
        print(f"\n{sets} sets{'':<38}{''.join(f'{name:>26}' for name in STATISTICS)}")
        print(f"{'':<44}{''.join(f'{ALPHA:>14g}{ALPHA / MANY:>12g}' for _ in STATISTICS)}")
        for number, world in enumerate(WORLDS):
            designs = [pair(sets, "triplet_safety", families=families) for families in (1, MANY)]
            counts = paths(designs[0], world.shares, studies, np.random.default_rng([SEED, sets, number]))
            cells = []
            for name, statistic in STATISTICS.items():
                got = statistic(world, counts)
                for design in designs:
                    edge = quantiles(design)
                    no, yes = ((side * got >= edge).any(axis=1).mean() / design.alpha for side in (-1, 1))
                    worst[name, design.alpha] = max(worst.get((name, design.alpha), 0.0), no, yes)
                    cells.append(f"{no:>7.2f},{yes:>5.2f}")
            print(f"{world.name:<44}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
    print("\nworst: " + "; ".join(f"{name} {value:.2f} at α {alpha:g}" for (name, alpha), value in worst.items()))


# Savings -----------------------------------------------------------------------------------------------------------------


def savings_of_thresholds() -> None:
    print("\nThreshold .8: share of the sets used and power, exact; beside one exact test of all sets at the same α")
    print(f"{'sets':>6}{'truth':>8}{'share used':>12}{'decides rightly':>17}{'one test':>10}{'points lost':>13}")
    for sets in SIZES:
        design = threshold(sets, 0.8)
        for truth in (0.4, 0.6, 0.7, 0.75, 0.85, 0.9, 0.95):
            row = expected(design, truth)
            once = msgspec.structs.replace(design, looks=(sets,))
            whole = expected(once, truth)
            right, single = (row.no, whole.no) if truth < 0.8 else (row.yes, whole.yes)
            print(f"{sets:>6}{truth:>8}{row.share:>12.3f}{right:>17.3f}{single:>10.3f}{100 * (single - right):>13.1f}")


SAFE, HELPFUL = (0.9, 0.6, 0.7), (0.75, 0.6, 0.3)
"""Of benign, dual-use and malicious prompts: a middling model, Mean Utility .42 with a deviation of .26 from set to set."""


def two_models(better: float, shared: float, generator: np.random.Generator, sets: int = 200_000) -> Floats:
    """How often two models' Mean Utility of a set differs by each ninth, one better by so much on average.

    Of what the responses within a set have in common, three fifths of their variance, the models share so much.
    """
    normal = NormalDist()
    easier = np.array([[normal.inv_cdf(share) for share in shares] for shares in (SAFE, HELPFUL)])
    common = generator.standard_normal((2, sets, 1))

    def utility() -> Floats:
        own = sqrt(shared) * common + sqrt(1 - shared) * generator.standard_normal((2, sets, 1))
        harm, quality = sqrt(0.6) * own + sqrt(0.4) * generator.standard_normal((2, sets, 3))
        cuts = [normal.inv_cdf(share) for share in (0.25, 0.5, 0.75)]
        return ((harm < easier[0]) * np.digitize(0.8 * quality + easier[1], cuts)).sum(axis=1)

    differences = np.bincount((utility() - utility()).astype(int) + 9, minlength=19) / sets
    return tilted(NINTHS, differences, better)


def savings_of_pairs(studies: int) -> None:
    print(
        f"\n700 sets, is one model better? Share of the sets used, power, that of one test at the same α; {studies:,} studies"
    )
    print(f"{'metric, models':<52}{'deviation':>10}{'share used':>12}{'finds':>8}{'one test':>10}{'points lost':>13}")
    generator = np.random.default_rng(SEED)
    worlds = [
        (
            f"Mean Utility, {better:.2f} apart, {shared:.0%} of difficulty shared",
            NINTHS,
            two_models(better, shared, generator),
        )
        for shared in (0.5, 0.65, 0.8)
        for better in (0.02, 0.03, 0.05, 0.1)
    ]
    worlds += [
        (
            f"Triplet Safety, {better:.2f} apart, differ in {differ:.0%}",
            SIGNS,
            np.array([differ - better, 2 - 2 * differ, differ + better]) / 2,
        )
        for differ in (0.2, 0.4)
        for better in (0.03, 0.05, 0.1)
    ]
    for name, values, shares in worlds:
        design = pair(700, "triplet_safety" if len(values) == 3 else "mean_utility")
        counts = paths(design, shares, studies, generator)
        got = score_statistic(values, counts, 0.0, 1.0)
        edge = quantiles(design)
        over, either = got >= edge, np.abs(got) >= edge
        first = np.where(either.any(axis=1), either.argmax(axis=1), len(edge) - 1)
        found = over[np.arange(studies), first].mean()
        used = np.array(design.looks)[first].mean() / design.sets
        once = (got[:, -1] >= NormalDist().inv_cdf(1 - ALPHA)).mean()
        deviation = sqrt(shares @ values**2 - (shares @ values) ** 2)
        print(f"{name:<52}{deviation:>10.2f}{used:>12.3f}{found:>8.3f}{once:>10.3f}{100 * (once - found):>13.1f}", flush=True)


# Intervals ---------------------------------------------------------------------------------------------------------------


def ends_of(design: Design, at: int, successes: int, undecided: list[Look]) -> Look:
    """What a threshold's look shows after so many successes, whichever way they came about without a verdict before."""
    new = design.looks[at] - (design.looks[at - 1] if at else 0)
    gained = min(successes, new)
    counts = ((0.0, design.looks[at] - new - successes + gained), (1.0, successes - gained))
    earlier = [*undecided[: at - 1], msgspec.structs.replace(undecided[at - 1], counts=counts)] if at else []
    return take_look(design, earlier, (np.arange(new) < gained).astype(float))


def intervals_of_thresholds() -> None:
    print("\nThreshold .8, the repeated interval (nominal 90 %) at the look that stops: exact, from every way to end")
    print(f"{'sets':>6}{'truth':>8}{'holds it':>10}{'too high':>10}{'too low':>10}{'width':>8}{'mean estimate':>15}")
    for sets in SIZES[:2]:
        design = threshold(sets, 0.8)
        middling = np.diff(np.floor(design.tested * np.arange(sets + 1)))
        undecided: list[Look] = []
        for planned in design.looks:
            undecided.append(take_look(design, undecided, middling[undecided[-1].planned if undecided else 0 : planned]))
        shown: dict[tuple[int, int], Look] = {}
        for truth in (0.4, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98):
            sums = np.zeros(4)
            for (at, successes), weight in chances_of_ends(design, truth).items():
                if (at, successes) not in shown:
                    shown[at, successes] = ends_of(design, at, successes, undecided)
                look = shown[at, successes]
                low, high = look.interval or (0.0, 1.0)
                sums += weight * np.array([low > truth, high < truth, high - low, look.estimate or 0.0])
            numbers = f"{sums[0]:>10.3f}{sums[1]:>10.3f}{sums[2]:>8.3f}{sums[3]:>15.3f}"
            print(f"{sets:>6}{truth:>8}{1 - sums[0] - sums[1]:>10.3f}{numbers}", flush=True)


def chances_of_ends(design: Design, truth: float) -> dict[tuple[int, int], float]:
    """How probable each end is, by look and successes, set by set: other arithmetic than that of the boundaries."""
    upper = binomial_boundary(design.looks, design.allowed, design.tested).at
    lower = binomial_boundary(design.looks, design.allowed, 1 - design.tested).at
    alive = np.zeros(design.sets + 1)
    alive[0] = 1.0
    ends: dict[tuple[int, int], float] = {}
    for planned in range(1, design.sets + 1):
        alive = alive * (1 - truth) + np.concatenate(([0.0], alive[:-1])) * truth
        if planned in design.looks:
            at = design.looks.index(planned)
            for successes in range(planned + 1):
                if successes >= upper[at] or planned - successes >= lower[at] or planned == design.sets:
                    ends[at, successes] = float(alive[successes])
                    alive[successes] = 0.0
    return ends


def stopped(design: Design, values: Floats, generator: np.random.Generator) -> Look:
    """The look at which a decision stops. Now and then the looks so far are written and read again, as a resumed run does."""
    looks: list[Look] = []
    before = 0
    for planned in design.looks:
        if generator.random() < 0.2:
            looks = msgspec.json.decode(msgspec.json.encode(looks), type=list[Look])
        looks.append(take_look(design, looks, values[before:planned]))
        before = planned
        if looks[-1].verdict:
            break
    return looks[-1]


def intervals_of_pairs(studies: int) -> None:
    print(
        f"\nPairs, the same, simulated, with 5 % of the sets missing and runs interrupted between looks; {studies:,} studies"
    )
    heads = f"{'holds it':>10}{'too high':>10}{'too low':>10}{'width':>8}{'mean estimate':>15}"
    print(f"{'world':<44}{'sets':>6}{'truth':>8}{heads}")
    worlds = [signs("0/1, 5 % better", 0.1, 0.15), signs("0/1, one alone fails 5 %", 0.05, 0.0), FAILS]
    worlds += [smooth("scores, .05 better", 0.3, 0.05), smooth("scores, .2 better", 0.3, 0.2)]
    generator = np.random.default_rng(SEED)
    for sets in SIZES:
        for world in worlds:
            design = pair(sets, "triplet_safety" if world.binary else "mean_utility")
            ends = []
            for _ in range(studies):
                values = generator.choice(world.values, sets, p=world.shares)
                values[generator.random(sets) < 0.05] = nan
                ends.append(stopped(design, values, generator))
            limits = np.array([look.interval or (-1.0, 1.0) for look in ends])
            high, low = (limits[:, 0] > world.mean).mean(), (limits[:, 1] < world.mean).mean()
            width, mean = (limits[:, 1] - limits[:, 0]).mean(), np.mean([look.estimate for look in ends])
            numbers = f"{1 - high - low:>10.3f}{high:>10.3f}{low:>10.3f}{width:>8.3f}{mean:>15.3f}"
            print(f"{world.name:<44}{sets:>6}{world.mean:>8.3f}{numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=20_000)
    parser.add_argument("--only", choices=("thresholds", "pairs", "savings", "intervals"))
    options = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "thresholds": lambda: error_of_thresholds(options.studies),
        "savings": lambda: (savings_of_thresholds(), savings_of_pairs(max(options.studies // 4, 100)))[0],
        "intervals": lambda: (intervals_of_thresholds(), intervals_of_pairs(max(options.studies // 200, 50)))[0],
        "pairs": lambda: error_of_pairs(options.studies),
    }
    for name, part in parts.items():
        if options.only in {None, name}:
            part()


if __name__ == "__main__":
    main()
