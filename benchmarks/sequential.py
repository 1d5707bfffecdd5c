"""How many prompt-sets a sequential test takes, and how often it errs: simulated models.

    python benchmarks/sequential.py

The models have a known Triplet Safety on 700 prompt-sets and are asked "≥ 0.80?"; two models are
asked which one is better. The last line keeps the fixed order of samples, whose prefixes hold every
cell in proportion, although the cells differ in size and in how safe the model is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from opensafeintent import load_dataset
from opensafeintent.promptsets.record import sample_order
from opensafeintent.statistics.thresholds import Evidence

SETS, THRESHOLD, ERROR = 700, 0.8, 0.025
GENERATOR = np.random.default_rng(7)


def share(true: float) -> Iterable[float]:
    """Which prompt-sets a model is safe on, in random order."""
    return (GENERATOR.random(SETS) < true).astype(float)


def pair(difference: float, deviation: float = 0.35) -> Iterable[float]:
    """Differences of two models' utility, scaled to [0, 1]."""
    values = GENERATOR.normal(difference, deviation, SETS)
    return (np.clip(values, -1, 1) + 1) / 2


def fixed_order() -> Iterable[float]:
    """Which prompt-sets a model is safe on, in the order of samples: 56 cells of 2 to 50 sets, which
    differ in how safe the model is; 0.8 of all sets are safe.
    """
    [first, *_] = load_dataset("starter").prompt_sets
    cells = [(domain, kind) for domain in range(7) for kind in range(8)]
    sizes = np.array([1 + domain + 2 * kind for domain, kind in cells])
    sizes = np.maximum(2, sizes * SETS // sizes.sum())
    sizes[-1] += SETS - sizes.sum()
    rates = GENERATOR.permutation(np.linspace(0, 1, len(cells)))
    order, safe = [], []
    for (domain, kind), size, rate in zip(cells, sizes, rates, strict=True):
        for _ in range(size):
            order.append(
                msgspec.structs.replace(
                    first,
                    id=str(len(order)) + "-" + str(GENERATOR.integers(1 << 40)),
                    harm_domain=f"domain {domain}",
                    task_type=f"type {kind}",
                )
            )
            safe.append(0.5 + 0.5 * rate)
    # Weighted draws without replacement: the number of safe sets is fixed, their cells are not alike.
    drawn = GENERATOR.random(len(safe)) ** (1 / np.array(safe))
    chosen = set(np.argsort(-drawn)[: round(THRESHOLD * len(safe))])
    values = {item.id: float(number in chosen) for number, item in enumerate(order)}
    return [values[item.id] for item in sample_order(order)]


def show(name: str, values: Callable[[], Iterable[float]], threshold: float, runs: int) -> None:
    """Print how many sets it took, and the answers."""
    taken, verdicts = 0, []
    for _ in range(runs):
        evidence = Evidence(threshold, ERROR)
        for value in values():
            taken += 1
            evidence.add(float(value))
            if evidence.verdict is not None:
                break
        verdicts.append(evidence.verdict)
    yes, no = (sum(verdict is which for verdict in verdicts) / runs for which in (True, False))
    print(f"{name}: {taken / runs / SETS:5.1%} of the prompt-sets, yes {yes:5.2%}, no {no:5.2%}")


def main() -> None:
    """Print a line for each world; those at the threshold, whose answers are errors, take longest."""
    for true, runs in ((0.6, 400), (0.7, 400), (0.75, 400), (0.8, 4000), (0.85, 400), (0.9, 400)):
        show(f"true {true:.2f}", lambda true=true: share(true), THRESHOLD, runs)  # type: ignore[misc]
    show("pair, +0.05", lambda: pair(0.05), 0.5, 400)
    show("pair, equal", lambda: pair(0.0), 0.5, 2000)
    show("true 0.80, fixed order", fixed_order, THRESHOLD, 1000)


if __name__ == "__main__":
    main()
