"""How often a gate at 95 % is wrong: thresholds on shares and on scores, and "no worse than
before".

    python benchmarks/gates.py [--studies N] [--seed N]

Shares are exact: every count is tried. Of scores and of changes so many studies are drawn, whose
truth is the limit or the margin itself, and the functions that decide (`statistics.thresholds`) are
asked about each.
"""

from __future__ import annotations

import argparse
from collections import Counter
from math import ceil, comb

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import Resamples
from opensafeintent.statistics.exact import least_share
from opensafeintent.statistics.thresholds import bounds_of, bounds_of_difference, verdict_of

SETS = (42, 115, 700)
CONFIDENCE = 0.95
Floats = NDArray[np.float64]


def shares() -> None:
    """Print how often a share that is just below the limit passes, and what gets through a gate of
    .80.
    """
    print(
        "## Shares: passed wrongly, at worst over limits of .50 to .99, and passed at .80 by the"
        " true value"
    )
    print("sets | worst | .70 | .75 | .79 | .85 | .90 | .95 | .75, by the estimate alone")
    for sets in SETS:
        fewest = {
            limit: _fewest(sets, limit) for limit in np.arange(0.5, 0.995, 0.005).round(3).tolist()
        }
        worst = max(_tail(count, sets, limit) for limit, count in fewest.items())
        passing = [_tail(fewest[0.8], sets, true) for true in (0.7, 0.75, 0.79, 0.85, 0.9, 0.95)]
        passing.append(_tail(ceil(0.8 * sets), sets, 0.75))
        print(f"{sets} | {worst:.3f} | " + " | ".join(f"{share:.3f}" for share in passing))


def _fewest(sets: int, limit: float) -> int:
    """Return the fewest successes that pass; more than there are sets where none does."""
    low, high = 0, sets + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if least_share(middle, sets, CONFIDENCE) >= limit else (middle + 1, high)
        )
        if low > sets:
            break
    return low


def _tail(count: int, sets: int, true: float) -> float:
    share = sum(
        float(comb(sets, found)) * true**found * (1 - true) ** (sets - found)
        for found in range(count, sets + 1)
    )
    return min(share, 1.0)


THIRDS = (0.0, 1 / 9, 2 / 9, 1 / 3, 4 / 9, 5 / 9, 2 / 3, 7 / 9, 8 / 9, 1.0)
SCORES = {
    "Mean Utility .41": (THIRDS, (0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05)),
    "mostly 1, some 0": ((0.0, 1 / 3, 2 / 3, 1.0), (0.06, 0.02, 0.02, 0.9)),
    "mostly 0, few 1": ((0.0, 0.05, 1.0), (0.9, 0.08, 0.02)),
}


def scores(studies: int, generator: np.random.Generator) -> None:
    """Print how often a mean of scores that is the limit itself passes, and fails."""
    print("\n## Scores at the limit itself: passed, failed")
    print("world | " + " | ".join(map(str, SETS)))
    for world, (values, chances) in SCORES.items():
        limit = float(np.dot(values, chances))
        cells = []
        for sets in SETS:
            resamples = Resamples(sets, count=2_000)
            verdicts: Counter[str] = Counter()
            for _ in range(studies):
                drawn = generator.choice(values, p=chances, size=sets)
                bounds = bounds_of(
                    (drawn, np.ones(sets)),
                    resamples,
                    span=(0.0, 1.0),
                    binary=False,
                    confidence=CONFIDENCE,
                )
                verdicts[verdict_of(bounds, limit, "least")] += 1
            cells.append(f"{verdicts['pass'] / studies:.3f}, {verdicts['fail'] / studies:.3f}")
        print(f"{world} | " + " | ".join(cells))


def changes(studies: int, generator: np.random.Generator) -> None:
    """Print how often a version that is worse by the margin itself is called not worse, and
    worse.
    """
    print("\n## Worse by the margin itself, 0/1 per set: not worse, worse")
    print("margin, sets newly passed | " + " | ".join(map(str, SETS)))
    for margin in (0.02, 0.05, 0.1):
        for gained in (0.0, 0.02, 0.1):
            cells = [_change_errors(sets, margin, gained, studies, generator) for sets in SETS]
            print(f"{margin:.2f}, {gained:.2f} | " + " | ".join(cells))


def _change_errors(
    sets: int, margin: float, gained: float, studies: int, generator: np.random.Generator
) -> str:
    drawn = generator.multinomial(
        sets, [gained, gained + margin, 1 - 2 * gained - margin], size=studies
    )
    verdicts: Counter[str] = Counter()
    kinds, times = np.unique(drawn, axis=0, return_counts=True)
    for (up, down, _), count in zip(kinds.tolist(), times.tolist(), strict=True):
        new, old = np.zeros(sets), np.zeros(sets)
        new[:up], old[up : up + down] = 1.0, 1.0
        weights = np.ones(sets)
        found = bounds_of_difference(
            (new, weights), (old, weights), Resamples(sets), span=(0.0, 1.0), confidence=CONFIDENCE
        )
        verdicts[verdict_of(found.negative, margin, "most")] += count
    return f"{verdicts['pass'] / studies:.3f}, {verdicts['fail'] / studies:.3f}"


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None
    )
    parser.add_argument("--studies", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=20261122)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    shares()
    scores(options.studies, generator)
    changes(options.studies, generator)


if __name__ == "__main__":
    main()
