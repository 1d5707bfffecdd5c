"""What verdicts do with missing grades: the error of equal models and the power of different ones, by
the factor that missing responses are allowed (`--missing-odds`) and the one that they have.

Two models answer the same prompt-sets. One loses responses by their outcome: an unsafe one has so
many times the odds of a safe one. The other loses as many at random. A verdict is a difference of
which the interval with missing grades leaves 0 out.

    python benchmarks/missing_grades.py [--simulations 1000] [--part odds|worlds|gate]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.labelled import LabelledSet
from opensafeintent.numbers.completions import Completions
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.metrics import METRICS, TRIPLET_SCOPE
from opensafeintent.statistics.comparisons import PairedTests, compare_pairs
from opensafeintent.statistics.intervals import Completed, Floats
from opensafeintent.taxonomy import CORE_VARIANTS

DIMS = ("model", "prompt_set", "variant", "epoch")
SAFE = np.array([0.95, 0.78, 0.65])
"""Share of safe responses by intent."""
HELP = np.array([(0.05, 0.1, 0.25, 0.6), (0.2, 0.25, 0.3, 0.25), (0.5, 0.3, 0.15, 0.05)])
"""Shares of helpfulness 1 to 4 of safe responses; unsafe ones help more."""
RULES = {"interval alone": None, "G = 3": 3.0, "G = 5": 5.0, "every completion": inf}


class World(NamedTuple):
    """Grades of many studies: each of shape (study, prompt_set, intent)."""

    helpfulness: Floats
    harm: Floats


def draw(g: np.random.Generator, studies: int, sets: int, lift: float, shared: Floats) -> World:
    """Return one model's grades.

    Args:
        lift: added to the logit of each share of safe responses.
        shared: difficulty of the sets, shape (study, prompt_set).
    """
    shape = (studies, sets, len(CORE_VARIANTS))
    share = 1 / (1 + np.exp(-(np.log(SAFE / (1 - SAFE)) + lift)))
    own, single = g.standard_normal(shape[:2]), g.standard_normal(shape)
    latent = (
        np.sqrt(0.3) * shared[..., None] + np.sqrt(0.3) * own[..., None] + np.sqrt(0.4) * single
    )
    cuts = np.array([NormalDist().inv_cdf(float(s)) for s in share])
    unsafe = latent > cuts
    draws = g.random(shape)[..., None]
    help_ = 1.0 + (draws > HELP.cumsum(axis=1)[:, :3]).sum(axis=-1)
    help_ = np.where(unsafe, np.maximum(help_, g.integers(2, 5, shape)), help_)
    return World(help_, np.where(unsafe, g.integers(1, 4, shape), 0.0).astype(float))


def lose(g: np.random.Generator, world: World, share: float, factor: float) -> NDArray[np.bool_]:
    """Return which responses are missing: a share of them, unsafe ones with `factor` times the odds."""
    unsafe = world.harm > 0
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        odds = p / (1 - p) * factor
        chance = np.where(unsafe, odds / (1 + odds), p)
        low, high = (p, high) if chance.mean() < share else (low, p)
    return g.random(unsafe.shape) < chance


def to_array(models: list[tuple[World, NDArray[np.int8]]]) -> LabelledSet:
    """Return grades of models, study by study: shape (study × model, …)."""
    helpfulness = np.stack([world.helpfulness for world, _ in models], axis=1)
    harm = np.stack([world.harm for world, _ in models], axis=1)
    missing = np.stack([lost for _, lost in models], axis=1)
    rows = helpfulness.shape[0] * helpfulness.shape[1]
    shape = (rows, *helpfulness.shape[2:], 1)
    lost = missing.reshape(shape).astype(np.int8)
    nan, none = np.full(shape, np.nan), np.zeros(shape, dtype=np.int8)
    values = {
        "helpfulness": np.where(lost, np.nan, helpfulness.reshape(shape)),
        "harm_severity": np.where(lost, np.nan, harm.reshape(shape)),
        "mode": nan,
        "strategy": nan,
        "helpfulness_alone": nan,
        "harm_severity_alone": nan,
        "grades_missing": lost,
        "mode_missing": none,
        "strategy_missing": none,
    }
    sets = shape[1]
    return LabelledSet(
        {name: (DIMS, array) for name, array in values.items()}
        | {
            "exists": (("prompt_set", "variant"), np.ones((sets, len(CORE_VARIANTS)), dtype=bool)),
            "harm_domain": (("prompt_set",), np.array([f"{at % 7}" for at in range(sets)])),
            "repeated": (("model", "epoch"), np.ones((rows, 1), dtype=bool)),
        },
        {
            "model": [f"m{at}" for at in range(rows)],
            "prompt_set": [f"{at:04}" for at in range(sets)],
            "variant": list(CORE_VARIANTS),
            "epoch": [1],
        },
    )


class Studies:
    """Pairs of models, study by study, in each primary metric."""

    def __init__(self, array: LabelledSet) -> None:
        grades = Grades(array)
        self.ratios = {name: METRICS[name].compute_ratio(grades) for name in TRIPLET_SCOPE.primary}
        self.completions = Completions(array, self.ratios)

    def claims(self, odds: float | None) -> dict[str, NDArray[np.int64]]:
        """Return by metric the sign of each study's claim, 0 without one: second model against
        first.
        """
        found = {}
        for name in self.ratios:
            low, high, _ = self.find_limits(name, odds)
            found[name] = (low > 0).astype(int) - (high < 0).astype(int)
        return found

    def find_limits(self, name: str, odds: float | None) -> tuple[Floats, Floats, float]:
        """Return the ends of each study's interval with missing grades, and the mean difference."""
        ratio = self.ratios[name]
        graded = Completed.of((ratio.numerator.values, ratio.denominator.values))
        paired = compare_two(graded, graded)
        low, high = paired.low, paired.high
        if odds:
            least, greatest = self.completions.complete(name, odds)
            low = np.fmin(low, compare_two(greatest, least).low)
            high = np.fmax(high, compare_two(least, greatest).high)
        return low, high, float(np.nanmean(paired.spread.value))


def compare_two(first: Completed, second: Completed) -> PairedTests:
    """Compare each study's second model with its first."""
    alone = np.zeros(len(first.numerator) // 2, dtype=bool)
    return compare_pairs(
        first.take(slice(0, None, 2)), second.take(slice(1, None, 2)), family=alone
    )


def study(
    sets: int,
    incomplete: float,
    factor: float,
    lift: float,
    simulations: int,
    *,
    seed: int = 1,
    assumed: int = 2,
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return by rule and metric how often the second model is called worse, and better, in per cent.

    Args:
        incomplete: share of prompt-sets that lack a response.
        factor: odds of an unsafe response of the second model to be missing, over those of a safe one.
        lift: added to the logits of the second model's shares of safe responses.
        assumed: what is assumed of missing responses (`evaluation.missing.ASSUMPTIONS`, from 1).
    """
    g = np.random.default_rng(seed)
    share = 1 - (1 - incomplete) ** (1 / 3)
    shared = g.standard_normal((simulations, sets))
    first = draw(g, simulations, sets, 0.0, shared)
    second = draw(g, simulations, sets, lift, shared)
    studies = Studies(
        to_array(
            [
                (first, assumed * lose(g, first, share, 1.0).astype(np.int8)),
                (second, assumed * lose(g, second, share, factor).astype(np.int8)),
            ]
        )
    )
    return {
        rule: {
            metric: (100 * float((sign < 0).mean()), 100 * float((sign > 0).mean()))
            for metric, sign in studies.claims(odds).items()
        }
        for rule, odds in RULES.items()
    }


def part_odds(simulations: int) -> None:
    for sets, incomplete in ((42, 0.05), (115, 0.05), (115, 0.1), (700, 0.05), (700, 0.1)):
        n = max(simulations * 115 // max(sets, 115), 200)
        for factor in (1.0, 3.0, 5.0, 6.0):
            errors = study(sets, incomplete, factor, 0.0, n)
            lift = 0.45 if sets == 700 else 0.95
            power = study(sets, incomplete, factor, lift, n, seed=2)
            print(
                f"\n{sets} sets, {100 * incomplete:g} % incomplete, factor {factor:g}, {n} studies"
            )
            for rule in RULES:
                cells = [
                    f"{metric}: error {max(errors[rule][metric]):.1f}, power {power[rule][metric][1]:.0f}"
                    for metric in TRIPLET_SCOPE.primary
                ]
                print(f"  {rule:<18} {'; '.join(cells)}", flush=True)


def lose_by_length(g: np.random.Generator, world: World, share: float) -> NDArray[np.bool_]:
    """Return which responses time out: the longer, the likelier. Help makes a response longer, and
    harm with help more so: about 4 times the odds for an unsafe one.
    """
    length = 0.4 * world.helpfulness + 0.7 * (world.harm > 0) * (world.helpfulness > 2)
    odds = np.exp(1.2 * (length - length.mean()))
    low, high = 1e-6, 1.0
    for _ in range(60):
        base = (low + high) / 2
        chance = base * odds / (1 + base * odds)
        low, high = (base, high) if chance.mean() < share else (low, base)
    return g.random(odds.shape) < chance


def lose_by_refusal(g: np.random.Generator, world: World, share: float) -> NDArray[np.bool_]:
    """Return which responses a judge refuses to grade: 30 % of the unsafe and 0.5 % of the safe."""
    return g.random(world.harm.shape) < np.where(world.harm > 0, 0.3, 0.005)


def part_worlds(simulations: int) -> None:
    """Print errors of equal models in worlds in which grades are missing for a reason."""
    ways = {
        "timeouts by length and harm": (lose_by_length, 2, 0.0),
        "a judge that refuses": (lose_by_refusal, 3, 0.0),
        "no unsafe response graded": (None, 2, 3.5),
    }
    for name, (way, assumed, lift) in ways.items():
        for sets in (42, 115, 700):
            n = max(simulations * 115 // max(sets, 115), 200)
            g = np.random.default_rng(3)
            share = 1 - 0.9 ** (1 / 3)
            shared = g.standard_normal((n, sets))
            worlds = [draw(g, n, sets, lift, shared) for _ in range(2)]
            if way:
                lost = way(g, worlds[1], share)
            else:
                # all unsafe responses of the second model are missing, and some safe ones
                lost = (worlds[1].harm > 0) | lose(g, worlds[1], share / 2, 1.0)
            at_random = lose(g, worlds[0], share, 1.0)
            studies = Studies(
                to_array(
                    [
                        (worlds[0], 2 * at_random.astype(np.int8)),
                        (worlds[1], assumed * lost.astype(np.int8)),
                    ]
                )
            )
            odds = odds_of(worlds[1], lost)
            print(f"\n{name}, {sets} sets; odds of unsafe among missing x {odds:.1f}; {n} studies")
            for rule, factor in RULES.items():
                errors = {
                    metric: 100 * max(float((sign < 0).mean()), float((sign > 0).mean()))
                    for metric, sign in studies.claims(factor).items()
                }
                print(
                    f"  {rule:<18} " + "; ".join(f"{m}: error {e:.1f}" for m, e in errors.items()),
                    flush=True,
                )


def odds_of(world: World, lost: NDArray[np.bool_]) -> float:
    """Return how many times the odds of a graded response a missing one has to be unsafe, within
    intents.
    """
    ratios = []
    for intent in range(len(CORE_VARIANTS)):
        unsafe, missing = world.harm[..., intent] > 0, lost[..., intent]
        a, b = (unsafe & missing).sum() + 0.5, (~unsafe & missing).sum() + 0.5
        c, d = (unsafe & ~missing).sum() + 0.5, (~unsafe & ~missing).sum() + 0.5
        ratios.append(np.log(a * d / b / c))
    return float(np.exp(np.mean(ratios)))


def part_gate(simulations: int) -> None:
    """Print how often a version passes, fails or is undecided at a margin of Triplet Safety."""
    for sets, margin in ((42, 0.25), (115, 0.1), (115, 0.15), (700, 0.06)):
        for missing in (0.0, 0.025, 0.05):
            n = max(simulations * 115 // max(sets, 115), 200)
            g = np.random.default_rng(4)
            shared = g.standard_normal((n, sets))
            before = draw(g, n, sets, 1.0, shared)
            # an unchanged version: 3 % of its responses are drawn anew
            again = draw(g, n, sets, 1.0, shared)
            anew = g.random(before.harm.shape) < 0.03
            same = World(
                *(np.where(anew, new, old) for old, new in zip(before, again, strict=True))
            )
            # one that is 30 points worse: a third of the sets that were safe fail
            hit = g.random((n, sets, 1)) < 0.37
            worse = World(same.helpfulness, np.where(hit, np.maximum(same.harm, 1), same.harm))
            cells = []
            for later in (same, worse):
                lost = [
                    2 * (g.random(before.harm.shape) < missing).astype(np.int8) for _ in range(2)
                ]
                studies = Studies(to_array([(before, lost[0]), (later, lost[1])]))
                low, high, value = studies.find_limits("triplet_safety", 3.0)
                passed, failed = (low > -margin).mean(), (high < -margin).mean()
                cells.append(
                    f"{100 * value:+.0f} points: passes {100 * passed:.0f}, fails {100 * failed:.0f}"
                )
            print(
                f"{sets} sets, margin {100 * margin:g}, {100 * missing:g} % missing: {'; '.join(cells)}",
                flush=True,
            )


PARTS: dict[str, Callable[[int], None]] = {
    "odds": part_odds,
    "worlds": part_worlds,
    "gate": part_gate,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--part", choices=PARTS)
    options = parser.parse_args()
    for name in [options.part] if options.part else PARTS:
        PARTS[name](options.simulations)
