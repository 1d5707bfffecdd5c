"""Does an interval cover the mean over all judges, if the run's judges are a sample of them?

A set's log odds of "safe" are normal with a standard deviation of 1.5, and a judge's leniency is
normal with 0.4 on the same scale. The truth is the mean over all sets and judges.

    python benchmarks/judges_as_draws.py [--simulations 4000]
"""

from __future__ import annotations

import argparse

import numpy as np

from opensafeintent.statistics.intervals import (
    FEWEST_JUDGES,
    SEED,
    Estimate,
    compute_interval,
    compute_spread,
    estimate_for_judges,
)

LEVEL, SETS_SD, JUDGES_SD = 1.0, 1.5, 0.4
SPAN = (0.0, 1.0)


def simulate(sets: int, judges: int, simulations: int, generator: np.random.Generator) -> list[str]:
    """Return coverage and mean width of the interval over sets, and of that for other judges."""
    severity = generator.normal(LEVEL, SETS_SD, (simulations, 1, sets))
    leniency = generator.normal(0, JUDGES_SD, (simulations, judges, 1))
    safe = generator.random((simulations, judges, sets)) < _share(severity + leniency)
    values = safe.mean(axis=1)
    spread = compute_spread(values, np.ones_like(values), SPAN)
    plain = compute_interval(spread, spread.quantiles(0.95), SPAN).records()
    results = [plain]
    if judges >= FEWEST_JUDGES:
        results.append(estimate_for_judges(spread, safe.mean(axis=2).T, SPAN))
    return [_describe(estimates) for estimates in results]


def _share(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))


def find_truth() -> float:
    """Return the mean over all sets and judges: log odds are normal with both variances."""
    grid = np.linspace(-8, 8, 4001)
    density = np.exp(-(grid**2) / 2)
    log_odds = LEVEL + grid * np.hypot(SETS_SD, JUDGES_SD)
    return float((density * _share(log_odds)).sum() / density.sum())


TRUTH = find_truth()


def _describe(estimates: list[Estimate]) -> str:
    ends = np.array([estimate.interval for estimate in estimates])
    covered = (ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)
    return f"{100 * covered.mean():.0f} %, {(ends[:, 1] - ends[:, 0]).mean():.2f}"


def main() -> None:
    """Print a row for each number of judges and sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    simulations = parser.parse_args().simulations
    generator = np.random.default_rng(SEED)
    for judges in (1, 3, 5):
        for sets in (42, 115, 700):
            print(judges, sets, *simulate(sets, judges, simulations, generator), sep=" | ")


if __name__ == "__main__":
    main()
