"""Do the intervals of a judge's rates against people cover the truth?

Simulates runs, a judge that misses some unsafe responses and reports some safe ones, and the labels
that `annotate export` draws: as many of the responses that are safe according to the judge as of
the others, with weights. Beside ours: pseudo-observations of the average weight of what counts.

    python benchmarks/judge_rates.py [--simulations 1000]
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.people.study import allocate
from opensafeintent.statistics import estimate
from opensafeintent.statistics.intervals import Design
from opensafeintent.statistics.samples import Sample

Floats = NDArray[np.float64]


class Scenario(NamedTuple):
    """A run, its judge, and how many responses people label."""

    responses: int
    safe: float
    """True share of safe responses."""
    missed: float
    """Share of unsafe responses that the judge calls safe."""
    accused: float = 0.02
    """Share of safe responses that the judge calls unsafe."""
    labels: int = 120


SCENARIOS = [
    Scenario(700, 0.957, 0.1),
    Scenario(700, 0.957, 0.3),
    Scenario(700, 0.90, 0.1),
    Scenario(700, 0.90, 0.3),
    Scenario(230, 0.957, 0.3),
    Scenario(230, 0.90, 0.1),
    Scenario(115, 0.70, 0.3),
    Scenario(345, 0.957, 0.2),
    Scenario(1071, 0.955, 0.2),
    Scenario(2100, 0.957, 0.1),
    Scenario(700, 0.957, 0.1, accused=0.1),
    Scenario(700, 0.90, 0.1, accused=0.1),
    Scenario(700, 0.90, 0.1, labels=40),
]


class Rates(NamedTuple):
    """Numerator, denominator and truth of what a judge is measured by."""

    numerator: Floats
    denominator: Floats
    truth: float


def rates(safe: Floats, judged: Floats, scenario: Scenario) -> dict[str, Rates]:
    """Return the rates of some responses, and their true values."""
    agrees = (safe == judged).astype(float)
    true_agreement = scenario.safe * (1 - scenario.accused) + (1 - scenario.safe) * (
        1 - scenario.missed
    )
    return {
        "specificity": Rates((1 - safe) * (1 - judged), 1 - safe, 1 - scenario.missed),
        "sensitivity": Rates(safe * judged, safe, 1 - scenario.accused),
        "agreement": Rates(agrees, np.ones_like(safe), true_agreement),
    }


def simulate(scenario: Scenario, simulations: int) -> None:
    """Print how often each interval covers, how wide it is, and how often it lies wholly above."""
    generator = np.random.default_rng(20261126)
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for _ in range(simulations):
        safe = (generator.random(scenario.responses) < scenario.safe).astype(float)
        wrong = generator.random(scenario.responses) < np.where(
            safe > 0, scenario.accused, scenario.missed
        )
        judged = np.where(wrong, 1 - safe, safe)
        strata = {str(side): np.flatnonzero(judged == side) for side in (0, 1)}
        sizes = {name: len(members) for name, members in strata.items() if len(members)}
        drawn, weights, of = [], [], []
        for name, count in allocate(sizes, scenario.labels).items():
            drawn += generator.choice(strata[name], count, replace=False).tolist()
            weights += [sizes[name] / count] * count
            of += [name] * count
        sample = Sample([str(place) for place in drawn], of, weights)
        for name, (top, bottom, truth) in rates(safe[drawn], judged[drawn], scenario).items():
            if not bottom.any():
                continue
            ours = sample.ratio(top, bottom).interval
            before = estimate(
                (sample.weights * top)[None],
                (sample.weights * bottom)[None],
                design=Design(np.unique(of, return_inverse=True)[1], 1 / np.array(weights)),
            )
            light = float(before.low[0]), float(before.high[0])
            for method, interval in (("average", light), ("heaviest", ours)):
                assert interval is not None
                low, high = interval
                found.setdefault((name, method), []).append(
                    (low <= truth <= high, high - low, low > truth)
                )
    about = (
        f"{scenario.responses:,} responses, {scenario.safe:g} safe, misses {scenario.missed:.0%},"
        f" accuses {scenario.accused:.0%}, {scenario.labels} labels"
    )
    print(about)
    for (name, method), rows in found.items():
        held, width, above = np.mean(rows, axis=0)
        print(
            f"  {name:<12} {method:<9} covers {held:6.1%}, width {width:.3f}, above {above:6.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=1000)
    simulations = parser.parse_args().simulations
    for scenario in SCENARIOS:
        simulate(scenario, simulations)


if __name__ == "__main__":
    main()
