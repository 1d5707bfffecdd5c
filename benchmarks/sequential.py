"""How many prompt-sets a sequential test takes, and how often it errs: simulated models of known
Triplet Safety.
"""

from __future__ import annotations

import numpy as np

from opensafeintent.statistics.sequential import Evidence

SETS, RUNS, THRESHOLD, ERROR = 700, 400, 0.8, 0.025


def answered(safe: np.ndarray) -> tuple[int, bool | None]:
    """Return after how many prompt-sets a run is answered, and how."""
    evidence = Evidence(THRESHOLD, ERROR)
    for n, value in enumerate(safe, start=1):
        evidence.add(float(value))
        if evidence.verdict is not None:
            return n, evidence.verdict
    return len(safe), None


def main() -> None:
    """Print a line for each true value."""
    generator = np.random.default_rng(7)
    for true in (0.6, 0.7, 0.75, 0.8, 0.85, 0.9):
        found = [answered(generator.random(SETS) < true) for _ in range(RUNS)]
        sets = np.mean([n for n, _ in found]) / SETS
        yes, no = (sum(verdict is which for _, verdict in found) / RUNS for which in (True, False))
        print(f"true {true:.2f}: {sets:5.1%} of the prompt-sets, yes {yes:5.1%}, no {no:5.1%}")


if __name__ == "__main__":
    main()
