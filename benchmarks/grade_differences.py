"""How wide intervals of differences between grades are, and how often they cover the truth: two judges
grade 26 responses of each prompt-set. Before, a pseudo-observation weighed as much as a set; now it
weighs as much as one response.

    python benchmarks/grade_differences.py [--simulations 2000]
"""

from __future__ import annotations

import argparse

import numpy as np

from opensafeintent.statistics.intervals import estimate

RESPONSES = 26
VALUES = np.array([-2, -1, 0, 1, 2])
SHARES = np.array([0.005, 0.035, 0.9, 0.05, 0.01])
"""Of the second judge's grade less the first's: the mean is 0.025."""


def main(simulations: int) -> None:
    g = np.random.default_rng(1)
    truth = float(VALUES @ SHARES)
    for effect in (0.0, 0.3):
        for sets in (12, 42, 115):
            drawn = VALUES[
                np.searchsorted(SHARES.cumsum(), g.random((simulations, sets, RESPONSES)))
            ]
            # a judge reads some sets differently throughout
            shifts = g.choice([-effect, 0.0, effect], p=[0.1, 0.8, 0.1], size=(simulations, sets))
            top = drawn.sum(axis=-1) + RESPONSES * shifts
            bottom = np.full(top.shape, float(RESPONSES))
            plain = top / RESPONSES
            cells = [f"t {2 * np.std(plain, axis=1, ddof=1).mean() * 2 / np.sqrt(sets):.3f}"]
            for name, weight in (("before", None), ("now", np.ones(simulations))):
                found = estimate(top, bottom, span=(-3.0, 3.0), pseudo_weight=weight)
                covered = ((found.low <= truth) & (truth <= found.high)).mean()
                width = (found.high - found.low).mean()
                cells.append(f"{name}: width {width:.3f}, coverage {100 * covered:.0f} %")
            print(f"{sets} sets, set effects ± {effect:g}: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    main(parser.parse_args().simulations)
