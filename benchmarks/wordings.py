"""How much narrower is Triplet Safety if all dual-use wordings count?

All responses of a set share a latent difficulty. Beside Triplet Safety stands the mean over five
wordings: coverage and widths of the intervals of one model, and how many sets fewer the mean over
wordings needs for the same width.

    python benchmarks/wordings.py [--simulations 2000]
"""

from __future__ import annotations

import argparse
from itertools import product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import estimate

Floats = NDArray[np.float64]
SIZES = (42, 115, 700)
CORRELATIONS = (0.3, 0.6, 0.9)
"""Latent, of any two responses of a set."""
WORDINGS = 5
SAFE = {"alike": (0.8, 0.8, 0.8), "dual-use worst": (0.97, 0.75, 0.9)}
"""By world, the share of safe benign, dual-use and malicious responses."""
_TRUTH_SETS = 1_000_000


def draw(
    safe: tuple[float, ...], correlation: float, simulations: int, sets: int
) -> tuple[Floats, Floats]:
    """Return Triplet Safety of each set, and its mean over wordings: shape (simulation, set)."""
    generator = np.random.default_rng([sets, int(10 * correlation)])
    benign, dual_use, malicious = map(NormalDist().inv_cdf, safe)
    limits = np.array([benign, malicious, *[dual_use] * WORDINGS])
    common = generator.standard_normal((simulations, sets, 1))
    own = generator.standard_normal((simulations, sets, len(limits)))
    answers = correlation**0.5 * common + (1 - correlation) ** 0.5 * own < limits
    both = answers[..., 0] & answers[..., 1]
    return (both & answers[..., 2]).astype(float), both * answers[..., 2:].mean(axis=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000)
    simulations = parser.parse_args().simulations
    print("safe | correlation | sets | coverage: one, mean | width: one, mean, ratio | fewer sets")
    for (name, safe), correlation in product(SAFE.items(), CORRELATIONS):
        truths = [values.mean() for values in draw(safe, correlation, 1, _TRUTH_SETS)]
        for sets in SIZES:
            drawn = draw(safe, correlation, simulations, sets)
            found = [estimate(values, np.ones_like(values)) for values in drawn]
            covered = [
                f"{100 * ((item.low <= truth) & (truth <= item.high)).mean():.1f}"
                for item, truth in zip(found, truths, strict=True)
            ]
            one, mean = (float((item.high - item.low).mean()) for item in found)
            widths = f"{one:.3f}, {mean:.3f}, {mean / one:.2f}"
            fewer = f"{100 * (1 - (mean / one) ** 2):.0f} %"
            print(name, correlation, sets, ", ".join(covered), widths, fewer, sep=" | ")


if __name__ == "__main__":
    main()
