"""How many prompt-sets a sequential test takes, and how often it errs: simulated models.

    python benchmarks/sequential.py

The models have a known Triplet Safety on 700 prompt-sets and are asked "≥ 0.80?"; two models are
asked which one is better. Then come the fixed order of samples, with cells whose size and rate of
safe sets go together; and prompt-sets without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent import load_dataset
from opensafeintent.promptsets.loading import sample_order
from opensafeintent.statistics.sequential import Evidence

SETS, THRESHOLD, ERROR = 700, 0.8, 0.025
GENERATOR = np.random.default_rng(7)
[FIRST, *_] = load_dataset("starter").prompt_sets


def share(true: float) -> Iterable[float]:
    """Which prompt-sets a model is safe on, in random order."""
    return (GENERATOR.random(SETS) < true).astype(float)


def pair(difference: float, deviation: float = 0.35) -> Iterable[float]:
    """Differences of two models' utility, scaled to [0, 1]."""
    values = GENERATOR.normal(difference, deviation, SETS)
    return (np.clip(values, -1, 1) + 1) / 2


class World(NamedTuple):
    """Cells of unequal size, whose rates of safe sets follow their size; 0.8 of all sets are safe."""

    name: str
    sizes: Sequence[int]
    rates: Sequence[float]


def sloped(name: str, sizes: Sequence[int], slope: float) -> World:
    """Return a world in which the log-odds of being safe fall or rise with the size of the cell."""
    weights = np.array(sizes, dtype=float)
    away = (weights - weights.mean()) / weights.std()
    low, high = -20.0, 20.0
    while high - low > 1e-9:  # the rates average 0.8 over all sets
        level = (low + high) / 2
        rates = 1 / (1 + np.exp(-(level + slope * away)))
        short = (rates @ weights) / weights.sum() < THRESHOLD
        low, high = (level, high) if short else (low, level)
    return World(name, sizes, rates.tolist())


SMALL = [1 + number % 5 for number in range(37)] + [4]  # 115 sets in 38 cells
LARGE = [2 + number % 7 * 5 for number in range(42)]  # 714 sets in 42 cells
WORLDS = (
    sloped("115 in 38 cells of 1 to 5, slope -1", SMALL, -1),
    sloped("115 in 38 cells of 1 to 5, slope -2", SMALL, -2),
    sloped("115 in 38 cells of 1 to 5, slope 2", SMALL, 2),
    World(
        "96: 6 cells of 10, 36 of 1, .90 and .63",
        (10,) * 6 + (1,) * 36,
        (0.9,) * 6 + (0.6333,) * 36,
    ),
    World("96: … .95 and .55", (10,) * 6 + (1,) * 36, (0.95,) * 6 + (0.55,) * 36),
    World("96: … 1.0 and .47", (10,) * 6 + (1,) * 36, (1.0,) * 6 + (0.4667,) * 36),
    sloped("714 in 42 cells of 2 to 32, slope -2", LARGE, -2),
    sloped("714 in 42 cells of 2 to 32, slope 2", LARGE, 2),
)


def in_order(world: World) -> list[float]:
    """Return which sets of a world are safe, in the order of samples."""
    order, safe = [], {}
    kinds = 6
    for number, (size, rate) in enumerate(zip(world.sizes, world.rates, strict=True)):
        for _ in range(size):
            name = f"{len(order)}-{GENERATOR.integers(1 << 40)}"
            order.append(
                msgspec.structs.replace(
                    FIRST,
                    id=name,
                    harm_domain=f"domain {number // kinds}",
                    task_type=f"type {number % kinds}",
                )
            )
            safe[name] = float(GENERATOR.random() < rate)
    return [safe[item.id] for item in sample_order(order)]


def asked(values: Iterable[tuple[float, float]], threshold: float) -> tuple[int, bool | None]:
    """Return after how many values a question is answered, and the answer."""
    evidence, taken = Evidence(threshold, ERROR), 0
    for least, greatest in values:
        evidence.add(least, greatest)
        taken += 1
        if evidence.verdict is not None:
            break
    return taken, evidence.verdict


def known(values: Iterable[float]) -> list[tuple[float, float]]:
    return [(float(value), float(value)) for value in values]


def show(
    name: str,
    values: Callable[[], Sequence[tuple[float, float]]],
    threshold: float,
    runs: int,
) -> None:
    """Print how many sets it took, and the answers."""
    taken, of, verdicts = 0, 0, []
    for _ in range(runs):
        drawn = values()
        sets, verdict = asked(drawn, threshold)
        taken, of = taken + sets, of + len(drawn)
        verdicts.append(verdict)
    yes, no = (sum(verdict is which for verdict in verdicts) / runs for which in (True, False))
    print(f"{name}: {taken / of:5.1%} of the prompt-sets, yes {yes:5.2%}, no {no:5.2%}", flush=True)


def fixed_order(runs: int) -> None:
    """Print the errors in the order of samples, and the bias of its first sets."""
    for world in WORLDS:
        drawn = [in_order(world) for _ in range(runs)]
        verdicts = [asked(known(values), THRESHOLD)[1] for values in drawn]
        third = np.mean([np.mean(values[: len(values) // 3]) for values in drawn])
        yes, no = (sum(each is which for each in verdicts) / runs for which in (True, False))
        print(
            f"{world.name}: yes {yes:5.1%}, no {no:5.1%}, mean of the first third {third:.3f}",
            flush=True,
        )


def missing(runs: int) -> None:
    """Print wrong answers if a share of the sets has no value, all of them unsafe."""
    for sets, lost in ((300, 0.03), (300, 0.04), (700, 0.04), (700, 0.045)):
        counts = {"skipped": 0, "as worst and best": 0}
        for _ in range(runs):
            safe = GENERATOR.random(sets) < THRESHOLD
            gone = ~safe & (GENERATOR.random(sets) < lost / (1 - THRESHOLD))
            ends = [
                (0.0, 1.0) if none else (float(value), float(value))
                for value, none in zip(safe, gone, strict=True)
            ]
            counts["as worst and best"] += asked(ends, THRESHOLD)[1] is True
            counts["skipped"] += (
                asked([each for each in ends if each != (0.0, 1.0)], THRESHOLD)[1] is True
            )
        shown = ", ".join(f"{how} {count / runs:.1%}" for how, count in counts.items())
        print(f"{sets} sets, {lost:.1%} missing and unsafe, wrong yes: {shown}", flush=True)


def main() -> None:
    """Print a line for each world; those at the threshold, whose answers are errors, take longest."""
    for true, runs in ((0.6, 400), (0.7, 400), (0.75, 400), (0.8, 4000), (0.85, 400), (0.9, 400)):
        show(f"true {true:.2f}", lambda true=true: known(share(true)), THRESHOLD, runs)  # type: ignore[misc]
    show("pair, +0.05", lambda: known(pair(0.05)), 0.5, 400)
    show("pair, equal", lambda: known(pair(0.0)), 0.5, 2000)
    fixed_order(1000)
    missing(1000)


if __name__ == "__main__":
    main()
