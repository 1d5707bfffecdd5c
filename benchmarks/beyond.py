"""Do the intervals of d′, caution, the dual-use position and the differences between modes hold the truth?

Simulates studies with a known truth. Signal detection: prompt-sets whose difficulty is shared by their intents, so
that what is withheld from one goes with what is withheld from another. Modes: sets that differ in how often responses
to them are unsafe and, with that, in which mode they get. Prints the share of 95 % intervals that hold the truth, and
their median width.

    python benchmarks/beyond.py [--studies 1000]
"""

from __future__ import annotations

import argparse
from statistics import NormalDist

import numpy as np

from opensafeintent.analysis.modes import mode_differences
from opensafeintent.labelled import LabelledSet
from opensafeintent.statistics import Resamples
from opensafeintent.statistics.signal import signal_detection
from opensafeintent.taxonomy import MODES

SETS = (12, 42, 115, 700)
WITHHELD = (
    (0.02, 0.1, 0.5),
    (0.05, 0.3, 0.8),
    (0.1, 0.4, 0.95),
    (0.3, 0.5, 0.6),
    (0.4, 0.4, 0.4),
    (0.01, 0.5, 0.99),
    (0.8, 0.9, 0.97),
)
"""True shares withheld from benign, dual-use and malicious prompts."""
SHARED = (0.0, 0.6)
"""Correlation of what a set's intents are given."""
RESAMPLES = 2_000


def held(intervals: list[tuple[float, float]], truth: float) -> str:
    """Return how many of some intervals hold the truth, with their median width."""
    share = np.mean([low <= truth <= high for low, high in intervals])
    return f"{share:8.3f}{np.median([high - low for low, high in intervals]):8.2f}"


def signal(studies: int) -> list[float]:
    """Print a line for each world, and return every coverage, of a tenth of the studies or more."""
    heads = "".join(f"{name:>8}{'width':>8}" for name in ("d′", "caution", "dual"))
    print(f"\n{'sets':>5}  {'withheld b, d, m':<18}{'shared':>7}{heads}")
    found: list[float] = []
    for sets in SETS:
        resamples = Resamples(sets, RESAMPLES)
        for number, shares in enumerate(WITHHELD):
            quantiles = np.array([NormalDist().inv_cdf(share) for share in shares])
            truths = {"d_prime": quantiles[2] - quantiles[0], "caution": (quantiles[2] + quantiles[0]) / 2}
            if shares[0] != shares[2]:
                truths["dual_use_position"] = (quantiles[1] - quantiles[0]) / truths["d_prime"]
            for shared in SHARED:
                generator = np.random.default_rng((sets, number, int(10 * shared)))
                common, own = generator.standard_normal((studies, sets, 1)), generator.standard_normal((studies, sets, 3))
                withheld = (np.sqrt(shared) * common + np.sqrt(1 - shared) * own < quantiles).astype(float)
                one = np.ones((studies, sets))
                signals = signal_detection([(withheld[..., intent], one) for intent in range(3)], resamples)
                columns = []
                for name, truth in truths.items():
                    intervals = [interval for item in signals if (interval := getattr(item, name).interval)]
                    enough = len(intervals) >= studies / 10  # the position is defined where d′ is told from 0
                    columns.append(held(intervals, truth) if enough else f"{'–':>8}{'–':>8}")
                    if enough:
                        found.append(float(np.mean([low <= truth <= high for low, high in intervals])))
                print(f"{sets:5}  {'  '.join(map(str, shares)):<18}{shared:7}{''.join(columns)}", flush=True)
    return found


def modes(studies: int) -> list[float]:
    """Print a line for each world, and return every coverage."""
    print(f"\n{'sets':>5}{'models':>7}{'epochs':>7}{'truth':>7}{'crude':>8}{'value':>8}{'covers':>8}{'width':>8}")
    found = []
    for sets in SETS:
        resamples = Resamples(sets, RESAMPLES)
        for models, epochs in ((2, 1), (5, 1), (20, 1), (1, 3)):
            for truth in (0.0, -0.15):
                generator = np.random.default_rng((sets, models, epochs))
                results = [mode_differences(study(generator, models, epochs, sets, truth), resamples) for _ in range(studies)]
                items = [result["unsafe_difference_A3_A4"] for result in results]
                intervals = [item.interval for item in items if item.interval]
                values, crude = (
                    [getattr(item, name) for item in items if item.value is not None] for name in ("value", "crude")
                )
                found.append(float(np.mean([low <= truth <= high for low, high in intervals])))
                means = f"{np.mean(crude):8.3f}{np.mean(values):8.3f}"
                print(f"{sets:5}{models:7}{epochs:7}{truth:7}{means}{held(intervals, truth)}", flush=True)
    return found


def study(generator: np.random.Generator, models: int, epochs: int, sets: int, truth: float) -> LabelledSet:
    """Half of the sets are hard: .8 unsafe where answered in A4, as 70 % are; the others .2 and 30 %. A3 adds `truth`."""
    hard = np.arange(sets) % 2 == 0
    shape = (models, sets, 1, epochs)
    direct = generator.random(shape) < np.where(hard, 0.7, 0.3)[:, None, None]
    rate = np.where(hard, 0.8, 0.2)[:, None, None] + np.where(direct, 0.0, truth)
    unsafe = (generator.random(shape) < rate).astype(float)
    dims = ("model", "prompt_set", "variant", "epoch")
    mode = np.where(direct, MODES.index("A4"), MODES.index("A3")).astype(float)
    return LabelledSet(
        {"harm_severity": (dims, unsafe), "mode": (dims, mode)},
        {"model": range(models), "prompt_set": range(sets), "variant": ["dual_use"], "epoch": range(epochs)},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    options = parser.parse_args()
    for name, found in (("signal detection", signal(options.studies)), ("modes", modes(options.studies))):
        print(f"{name}: coverage {min(found):.3f} to {max(found):.3f}, {np.mean(found):.3f} on average")


if __name__ == "__main__":
    main()
