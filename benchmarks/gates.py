"""How often a gate is wrong at its limit: thresholds on shares and on scores, "no worse than before"
of one version and of several, a second look; and the power of the sample sizes that it names.

    python benchmarks/gates.py [--simulations 2000]

Shares are exact: every count is tried. Of scores and of differences, simulations are drawn whose
truth is the threshold or the margin itself.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import estimate
from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.intervals import exact_share_interval, tails
from opensafeintent.statistics.shifts import EQUIVALENCE
from opensafeintent.statistics.thresholds import (
    Bounds,
    bound_pair_difference,
    bound_ratio,
    compare_with_limit,
)

SETS = (20, 42, 115, 700)
CONFIDENCE = 0.95
Floats = NDArray[np.float64]


def show(name: str, cells: Iterator[str]) -> None:
    print(f"{name:<44} | " + " | ".join(f"{cell:<14}" for cell in cells), flush=True)


def shares(confidence: float) -> None:
    """Print how often a share at the threshold passes and fails, at worst, in multiples of the
    nominal error: by the exact interval of gates, and by the one that values have elsewhere.
    """
    nominal = (1 - confidence) / 2
    limits = np.arange(0.5, 0.99, 0.005).round(3)
    show(f"\nshares, one epoch, {confidence:g}", (f"{sets} sets" for sets in SETS))
    for sets in SETS:
        safe = (np.arange(sets) < np.arange(sets + 1)[:, None]).astype(float)
        elsewhere = estimate(safe, np.ones_like(safe), confidence=confidence)
        ends = np.array([exact_share_interval(k, sets, confidence) for k in range(sets + 1)])
        cells = []
        for low, high in ((ends[:, 0], ends[:, 1]), (elsewhere.low, elsewhere.high)):
            passes, fails = low[:, None] >= limits, high[:, None] < limits
            worst = [
                max(float(chances(sets, limit) @ each[:, at]) for at, limit in enumerate(limits))
                for each in (passes, fails)
            ]
            cells.append(", ".join(f"{each / nominal:.1f}" for each in worst))
        print(
            f"  {sets} sets: passes, fails {cells[0]} x nominal; elsewhere {cells[1]}", flush=True
        )
    if confidence == CONFIDENCE:
        for true in (0.75, 0.85, 0.9):
            cells = []
            for sets in SETS:
                passing = [exact_share_interval(k, sets)[0] >= 0.8 for k in range(sets + 1)]
                cells.append(f"{chances(sets, true) @ passing:.3f}")
            show(f"a true {true} passes .80", iter(cells))


def deciding() -> None:
    """Print the number of prompt-sets that an undecided gate names, and their exact power."""
    print("\nthreshold, true value: prompt-sets that are named, their power")
    for limit, true in (
        (0.98, 0.99),
        (0.95, 0.97),
        (0.9, 0.95),
        (0.8, 0.9),
        (0.8, 0.85),
        (0.9, 0.85),
        (0.8, 0.7),
        (0.95, 0.9),
    ):
        ones = (np.arange(1000) < round(1000 * true)).astype(float)
        found = bound_ratio((ones, np.ones(1000)), span=(0, 1), confidence=CONFIDENCE, exact=True)
        n = found.count_deciding(limit, "least", CONFIDENCE)
        assert n
        ends = [exact_share_interval(k, n) for k in range(n + 1)]
        hits = [low >= limit if true > limit else high < limit for low, high in ends]
        print(f"  {limit}, {true}: {n}, {chances(n, true) @ np.array(hits):.3f}", flush=True)


def second_look(simulations: int, generator: np.random.Generator) -> None:
    """Print how often a gate at its limit passes if an undecided one is enlarged once, to the
    number of prompt-sets that it names (at most 5,000).
    """
    print("\na second look at the limit: passes after one look, after two, after two at .98")
    for sets, limit in ((42, 0.8), (115, 0.8), (115, 0.9), (300, 0.9)):
        once = twice = careful = 0
        for _ in range(simulations):
            safe = (generator.random(5000) < limit).astype(float)
            first = _exact(safe[:sets], CONFIDENCE)
            if compare_with_limit(first, limit, "least") != "undecided":
                passed = compare_with_limit(first, limit, "least") == "pass"
                once, twice, careful = once + passed, twice + passed, careful + passed
                continue
            n = min(first.count_deciding(limit, "least", CONFIDENCE) or sets, 5000)
            twice += compare_with_limit(_exact(safe[:n], CONFIDENCE), limit, "least") == "pass"
            careful += compare_with_limit(_exact(safe[:n], 0.98), limit, "least") == "pass"
        shown = ", ".join(f"{count / simulations:.3f}" for count in (once, twice, careful))
        print(f"  {sets} sets, threshold {limit}: {shown}", flush=True)


def _exact(safe: Floats, confidence: float) -> Bounds:
    return bound_ratio((safe, np.ones_like(safe)), span=(0, 1), confidence=confidence, exact=True)


def chances(sets: int, true: float) -> Floats:
    """Return the probability of each number of safe sets."""
    counts = range(sets + 1)
    if true in (0.0, 1.0):
        return np.array([float(k == true * sets) for k in counts])
    at_least = np.append(tails(sets, true), 0.0)
    return np.asarray(at_least[:-1] - at_least[1:])


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
        verdict = compare_with_limit(
            bound_pair_difference(paired, paired, row).negative, margin, "most"
        )
        verdicts[verdict] += 1 / simulations  # type: ignore[assignment]
    return verdicts


def one_way() -> None:
    """Print how often a change of exactly the margin, in which sets move one way only, is "not
    worse" (95 % interval) and "same within" (90 %, a judge in place of another): exactly.
    """
    for name, confidence in (("not worse", CONFIDENCE), ("same within", 1 - 2 * EQUIVALENCE)):
        worst = (0.0, 0, 0.0)
        for sets in (*range(20, 301), *range(305, 1001, 5)):
            moved = (np.arange(sets) < np.arange(min(sets, 300) + 1)[:, None]).astype(float)
            ends = estimate(moved, np.ones_like(moved), span=(-1.0, 1.0), confidence=confidence)
            for margin in np.arange(0.02, 0.1001, 0.005).round(3).tolist():
                passes = float(chances(sets, margin)[: len(moved)] @ (ends.high <= margin))
                worst = max(worst, (passes, sets, margin))
        print(f"\nsets move one way only: {name} in {worst[0]:.3f} at worst, {worst[1:]}")


def equivalence(simulations: int, generator: np.random.Generator) -> None:
    """Print how often a judge's replacement is "same within" a margin by the 95 % and by the 90 %
    interval: one that moves as many sets up as down, and one at the margin.
    """
    print("\nsame within: moved each way; no shift at 95 %, 90 %; at the margin at 95 %, 90 %")
    scenarios = ((42, 0.02, 0.1), (42, 0.085, 0.2), (115, 0.02, 0.1), (115, 0.06, 0.1))
    for sets, moved, margin in (*scenarios, (115, 0.1, 0.1), (700, 0.1, 0.1), (700, 0.1, 0.05)):
        shares_of = [[moved + shift, moved, 1 - shift - 2 * moved] for shift in (0.0, margin)]
        cells = []
        for each in shares_of:
            drawn = generator.choice((1.0, -1.0, 0.0), p=each, size=(simulations, sets))
            for confidence in (CONFIDENCE, 1 - 2 * EQUIVALENCE):
                ends = estimate(drawn, np.ones_like(drawn), span=(-1.0, 1.0), confidence=confidence)
                within = np.maximum(np.abs(ends.low), np.abs(ends.high)) <= margin
                cells.append(f"{within.mean():.3f}")
        print(f"  {sets} sets, {moved}, margin {margin}: {', '.join(cells)}", flush=True)


def families(simulations: int, generator: np.random.Generator) -> None:
    """Print how often all of several versions pass if one is worse by the margin and the others are
    as before; and how often any fails if all are worse by the margin.
    """
    print("\nseveral versions, 0/1, margin .05: all pass with one at its margin, any fails")
    for sets, pairs in ((42, 5), (300, 5), (300, 20)):
        passed = failed = 0
        for _ in range(simulations):
            for worse in (1, pairs):
                shares_of = np.where(np.arange(pairs) < worse, 0.05, 0.0)
                lost = (generator.random((pairs, sets)) < shares_of[:, None]).astype(float)
                ones = np.ones_like(lost)
                none = np.zeros(pairs, dtype=bool)
                alone, together = (
                    compare_pairs((ones, ones), (1 - lost, ones), family=family)
                    for family in (none, ~none)
                )
                verdicts = {
                    compare_with_limit(
                        bound_pair_difference(alone, together, at).negative, 0.05, "most"
                    )
                    for at in range(pairs)
                }
                passed += worse == 1 and verdicts == {"pass"}
                failed += worse == pairs and "fail" in verdicts
        print(
            f"  {pairs} pairs, {sets} sets: {passed / simulations:.3f}, {failed / simulations:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=2000)
    simulations = parser.parse_args().simulations
    generator = np.random.default_rng(20261122)
    for confidence in (0.95, 0.99, 0.999):
        shares(confidence)
    deciding()
    second_look(simulations, generator)
    scores(simulations, generator)
    changes(simulations, generator)
    families(simulations, generator)
    one_way()
    equivalence(simulations, generator)


if __name__ == "__main__":
    main()
