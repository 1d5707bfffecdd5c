"""How often a gate at 95 % is wrong at its limit: thresholds on shares and on scores, and "no worse
than before".

    python benchmarks/gates.py [--simulations 2000]

Shares are exact: every count is tried. Of scores and of differences, simulations are drawn whose
truth is the threshold or the margin itself.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from math import comb

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import estimate
from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.thresholds import bounds_of_pair, verdict_of

SETS = (20, 42, 115, 700)
CONFIDENCE = 0.95
Floats = NDArray[np.float64]


def show(name: str, cells: Iterator[str]) -> None:
    print(f"{name:<44} | " + " | ".join(f"{cell:<14}" for cell in cells), flush=True)


def shares() -> None:
    """Print how often a share at the threshold passes and fails, at worst; and what passes .80."""
    show("shares, one epoch", (f"{sets} sets" for sets in SETS))
    limits = np.arange(0.5, 0.99, 0.005).round(3)
    passed, failed = {}, {}
    for sets in SETS:
        safe = (np.arange(sets) < np.arange(sets + 1)[:, None]).astype(float)
        found = estimate(safe, np.ones_like(safe), confidence=CONFIDENCE)
        passed[sets], failed[sets] = found.low[:, None] >= limits, found.high[:, None] < limits
    for what, verdict in (("passes", passed), ("fails", failed)):
        worst = {
            sets: [chances(sets, limit) @ verdict[sets][:, at] for at, limit in enumerate(limits)]
            for sets in SETS
        }
        show(
            f"at a threshold of .50 to .985, {what}: worst", (f"{max(worst[n]):.3f}" for n in SETS)
        )
        show("  … mean over thresholds", (f"{np.mean(worst[n]):.3f}" for n in SETS))
    at = int(np.argmin(np.abs(limits - 0.8)))
    for true in (0.75, 0.85, 0.9):
        cells = (f"{chances(sets, true) @ passed[sets][:, at]:.3f}" for sets in SETS)
        show(f"a true {true} passes .80", cells)


def chances(sets: int, true: float) -> Floats:
    """Return the probability of each number of safe sets."""
    counts = range(sets + 1)
    return np.array([comb(sets, k) * true**k * (1 - true) ** (sets - k) for k in counts])


NINTHS = tuple(ninth / 9 for ninth in range(10))
SCORES = {
    "Mean Utility .41": (NINTHS, (0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05)),
    "mostly 1, some 0": ((0.0, 1 / 3, 2 / 3, 1.0), (0.06, 0.02, 0.02, 0.9)),
    "mostly 0, few 1": ((0.0, 0.05, 1.0), (0.9, 0.08, 0.02)),
}


def scores(simulations: int, generator: np.random.Generator) -> None:
    """Print how often a mean of scores that is the threshold itself passes, and fails."""
    show("\nscores at the threshold: passes, fails", (f"{sets} sets" for sets in SETS))
    for name, (values, shares_of) in SCORES.items():
        limit = float(np.dot(values, shares_of))

        def cells(
            values: tuple[float, ...] = values,
            shares_of: tuple[float, ...] = shares_of,
            limit: float = limit,
        ) -> Iterator[str]:
            for sets in SETS:
                drawn = generator.choice(values, p=shares_of, size=(simulations, sets))
                found = estimate(drawn, np.ones_like(drawn), confidence=CONFIDENCE)
                yield f"{(found.low >= limit).mean():.3f}, {(found.high < limit).mean():.3f}"

        show(name, cells())


def changes(simulations: int, generator: np.random.Generator) -> None:
    """Print how often a version that is worse by the margin itself is called not worse, and worse
    by more.
    """
    show("\n0/1, worse by the margin: not worse, worse", (f"{sets} sets" for sets in SETS))
    for margin in (0.02, 0.05, 0.1):
        for gained in (0.0, 0.02, 0.1):
            found = (change(sets, margin, gained, simulations, generator) for sets in SETS)
            cells = (f"{each['pass']:.3f}, {each['fail']:.3f}" for each in found)
            show(f"margin {margin:.2f}, {gained:.2f} of the sets newly safe", cells)


def change(
    sets: int, margin: float, gained: float, simulations: int, generator: np.random.Generator
) -> Counter[str]:
    """Return how often each verdict comes."""
    shares_of = [gained, gained + margin, 1 - 2 * gained - margin]
    drawn = generator.choice((1.0, -1.0, 0.0), p=shares_of, size=(simulations, sets))
    ones, verdicts = np.ones_like(drawn), Counter[str]()
    paired = compare_pairs(
        (np.maximum(-drawn, 0), ones),
        (np.maximum(drawn, 0), ones),
        family=np.zeros(simulations, dtype=bool),
        confidence=CONFIDENCE,
    )
    for row in range(simulations):
        verdict = verdict_of(bounds_of_pair(paired, row).negative, margin, "most")
        verdicts[verdict] += 1 / simulations  # type: ignore[assignment]
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=2000)
    simulations = parser.parse_args().simulations
    generator = np.random.default_rng(20261122)
    shares()
    scores(simulations, generator)
    changes(simulations, generator)


if __name__ == "__main__":
    main()
