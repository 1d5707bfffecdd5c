"""Does the interval of a number that human labels correct cover the truth?

Simulates the responses of one model in prompt-sets that fail together, a judge that misses some
failures and reports others that are none, and people who label whole sets or single responses.

    python benchmarks/correction.py [--simulations 1000]
"""

from __future__ import annotations

import argparse
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.report.corrections import LabelledUnits, prediction_powered
from opensafeintent.statistics import estimate

Floats = NDArray[np.float64]


class Scenario(NamedTuple):
    """A model, its judge, and the labels."""

    name: str
    safe: float
    """True share of safe responses."""
    shared: float
    """How much the three responses of a set share: with 1 they fail together."""
    missed: float
    """Share of unsafe responses that the judge calls safe."""
    accused: float
    """Share of safe responses that the judge calls unsafe."""
    sets: int
    labels: int
    """Labelled sets, or single responses if `single`."""
    single: bool = False
    triplet: bool = False
    """Whether a unit is a whole set: Triplet Safety."""
    graded: bool = False
    """Whether a safe response has a helpfulness: Mean Utility, of which the judge errs on "safe"."""


SCENARIOS = [
    Scenario("safe model, failures by the set", 0.957, 0.98, 0.1, 0.02, 115, 40),
    Scenario("… a lenient judge", 0.957, 0.98, 0.5, 0.02, 115, 40),
    Scenario("… 700 sets", 0.957, 0.98, 0.1, 0.02, 700, 40),
    Scenario("… single responses", 0.957, 0.98, 0.1, 0.02, 115, 60, single=True),
    Scenario("… single responses, 700 sets", 0.957, 0.98, 0.1, 0.02, 700, 60, single=True),
    Scenario("… 30 single responses", 0.957, 0.98, 0.1, 0.02, 115, 30, single=True),
    Scenario("safer still, .99", 0.99, 0.98, 0.1, 0.01, 115, 40),
    Scenario("failures one by one", 0.957, 0.0, 0.1, 0.02, 115, 60, single=True),
    Scenario("an ordinary model, .70", 0.7, 0.6, 0.2, 0.1, 115, 40),
    Scenario("… a lenient judge", 0.7, 0.6, 0.5, 0.02, 700, 40),
    Scenario("… a judge at random", 0.7, 0.6, 0.5, 0.5, 115, 40),
    Scenario("… 120 single responses", 0.7, 0.6, 0.2, 0.1, 115, 120, single=True),
    Scenario("… 30 of 42 sets", 0.7, 0.6, 0.2, 0.1, 42, 30),
    Scenario("Mean Utility of the ordinary model", 0.7, 0.6, 0.2, 0.1, 42, 30, graded=True),
    Scenario("… 30 single responses", 0.7, 0.6, 0.2, 0.1, 42, 30, single=True, graded=True),
    Scenario("… 40 of 115 sets", 0.7, 0.6, 0.2, 0.1, 115, 40, graded=True),
    Scenario("… 120 single responses", 0.7, 0.6, 0.2, 0.1, 115, 120, single=True, graded=True),
    Scenario("Triplet Safety of the ordinary model", 0.7, 0.6, 0.2, 0.1, 115, 40, triplet=True),
    Scenario("… of the safe one", 0.957, 0.9, 0.2, 0.02, 115, 40, triplet=True),
    Scenario("… of the safe one, 700 sets", 0.957, 0.9, 0.5, 0.02, 700, 60, triplet=True),
]


def drawn(scenario: Scenario, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Return what people would say of each unit, and what the judge says: shape (prompt_set,
    unit).
    """
    shape = (scenario.sets, 3)
    latent = np.sqrt(scenario.shared) * generator.standard_normal((scenario.sets, 1))
    latent = latent + np.sqrt(1 - scenario.shared) * generator.standard_normal(shape)
    truth = (latent < NormalDist().inv_cdf(scenario.safe)).astype(float)
    wrong = generator.random(shape) < np.where(truth > 0, scenario.accused, scenario.missed)
    judged = np.where(wrong, 1 - truth, truth)
    if scenario.graded:
        helpfulness = generator.integers(0, 4, shape) / 3
        return truth * helpfulness, judged * helpfulness
    if scenario.triplet:
        return truth.min(axis=1, keepdims=True), judged.min(axis=1, keepdims=True)
    return truth, judged


def simulate(scenario: Scenario, simulations: int) -> None:
    """Print how often the corrected interval, that of the labels alone, and the judge's own cover
    the truth.
    """
    large = scenario._replace(sets=400_000)
    true = float(drawn(large, np.random.default_rng(5))[0].mean())
    generator = np.random.default_rng(20261123)
    rows = []
    for _ in range(simulations):
        truth, judged = drawn(scenario, generator)
        chosen = np.zeros(truth.shape, dtype=bool)
        if scenario.single:
            chosen.flat[generator.choice(truth.size, scenario.labels, replace=False)] = True
        else:
            chosen[generator.choice(scenario.sets, scenario.labels, replace=False)] = True
        ones = np.ones_like(truth)
        corrected = prediction_powered(
            LabelledUnits(judged, np.where(chosen, truth, np.nan), ones, ones)
        )
        alone = estimate((truth * chosen).sum(axis=1)[None], chosen.sum(axis=1)[None].astype(float))
        raw = estimate(judged.sum(axis=1)[None], ones.sum(axis=1)[None])
        ends = [
            corrected.interval,
            *((float(each.low[0]), float(each.high[0])) for each in (alone, raw)),
        ]
        rows.append([number for low, high in ends for number in (low <= true <= high, high - low)])
    held, width, held_alone, width_alone, held_raw, _ = np.mean(rows, axis=0)
    widest = max(of_run[1] / of_run[3] for of_run in rows)
    what = f"{scenario.labels} {'responses' if scenario.single else 'sets'} of {scenario.sets} sets"
    print(
        f"{scenario.name:<38} {true:.3f} {what:<28} corrected {held:.3f} (width {width:.3f}, at"
        f" most {widest:.2f} times that of the labels), labels alone {held_alone:.3f} ({width_alone:.3f}), judge {held_raw:.3f}",
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
