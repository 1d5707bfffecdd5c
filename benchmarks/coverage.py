"""Do 95 % intervals hold the truth 95 % of the time?

Simulates studies with a known truth: prompt-sets whose difficulty is shared by their intents and wordings, so that grades
within a set are correlated. Prints, for every metric, the share of studies whose interval holds the true value, beside the
plain percentile bootstrap, with the intervals' widths; then the false-positive rate of the paired tests in families of 190.

    python benchmarks/coverage.py [--studies 1000] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.labelled import LabelledSet
from opensafeintent.metrics import METRICS, Grades, compute
from opensafeintent.statistics import Resamples, compare_models, estimate

VARIANTS = ["benign", "dual_use", "malicious", *(f"dual_use_paraphrase_{n}" for n in range(1, 5))]
TRUTH_SETS = 400_000


class World(NamedTuple):
    """What decides the grades: how safe each intent is, how helpful, how much a set's difficulty matters."""

    name: str
    safe: tuple[float, float, float]
    helpful: tuple[float, float, float]
    shared: float
    modes: tuple[float, ...] = (0.1, 0.1, 0.25, 0.25, 0.3)


WORLDS = [
    World("middling", (0.9, 0.6, 0.7), (0.75, 0.6, 0.3), 0.6),
    World("weak", (0.6, 0.3, 0.2), (0.8, 0.75, 0.7), 0.6),
    World("cautious", (0.93, 0.8, 0.88), (0.5, 0.3, 0.15), 0.8),
    World("independent", (0.8, 0.5, 0.6), (0.6, 0.5, 0.4), 0.0),
    World("nearly perfect", (0.995, 0.97, 0.985), (0.95, 0.9, 0.3), 0.5),
]


def simulate(world: World, studies: int, sets: int, seed: int) -> LabelledSet:
    """Grades of `studies` models on `sets` prompt-sets, as `grades.to_array` would give them."""
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal
    shape = (studies, sets, len(VARIANTS))
    intent = np.array([0, 1, 2, 1, 1, 1, 1])
    shared = world.shared
    from scipy.stats import norm

    def latent() -> NDArray[np.float64]:
        common = normal((studies, sets, 1))
        return np.sqrt(shared) * common + np.sqrt(1 - shared) * normal(shape)

    safe = latent() < norm.ppf(np.array(world.safe))[intent]
    quality = norm.cdf(latent() * 0.8 + norm.ppf(np.array(world.helpful))[intent])
    helpfulness = 1.0 + np.minimum((quality * 4).astype(int), 3)
    severity = np.where(safe, 0.0, 1.0 + (generator.random(shape) < 0.5) + (generator.random(shape) < 0.2))
    mode = np.full(shape, np.nan)
    mode[..., :3] = generator.choice(5, p=world.modes, size=(studies, sets, 3))
    strategy = np.full(shape, np.nan)
    asked = ~safe[..., 1]
    strategy[..., 1][asked] = generator.choice(3, p=(0.35, 0.5, 0.15), size=int(asked.sum()))
    dims = ("model", "prompt_set", "variant", "epoch")
    fields = {"helpfulness": helpfulness, "harm_severity": severity, "mode": mode, "strategy": strategy}
    return LabelledSet(
        {name: (dims, values[..., None]) for name, values in fields.items()}
        | {"exists": (("prompt_set", "variant"), np.ones((sets, len(VARIANTS)), dtype=bool))},
        {"model": range(studies), "prompt_set": range(sets), "variant": VARIANTS, "epoch": [1]},
    )


class Covered(NamedTuple):
    """What became of one metric's intervals in one world."""

    world: str
    metric: str
    sets: float
    truth: float
    coverage: float
    plain: float
    width: float
    wilson: float


def plain_bootstrap(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], resamples: Resamples, truth: float
) -> float:
    replicates = resamples.ratios(numerator, denominator)
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile(replicates, [0.025, 0.975], axis=1)
    return float(((low <= truth) & (truth <= high)).mean())


def cover(world: World, studies: int, sets: int, seed: int, progress: Callable[[str], None]) -> list[Covered]:
    """Coverage of every metric, on all sets and on a thin stratum of them (every sixth)."""
    truths = {name: float(ratio.value.values[0]) for name, ratio in compute(simulate(world, 1, TRUTH_SETS, seed + 1)).items()}
    found = []
    array = simulate(world, studies, sets, seed)
    for stratum, members in (("", slice(None)), ("stratum", slice(0, sets, 6))):
        part = array.isel(prompt_set=members)
        size = part.sizes["prompt_set"]
        resamples = Resamples(size)
        for name, ratio in compute(part).items():
            if np.isnan(truths[name]):
                continue
            top, bottom = ratio.numerator.values, ratio.denominator.values
            got = estimate(top, bottom, resamples, span=METRICS[name].span)
            there = got.n > 0
            if not there.any():
                continue
            held = (got.low <= truths[name] + 1e-9) & (truths[name] - 1e-9 <= got.high)
            found.append(
                Covered(
                    f"{world.name}{', ' if stratum else ''}{stratum}",
                    name,
                    float(got.n[there].mean()),
                    truths[name],
                    float(held[there].mean()),
                    plain_bootstrap(top[there], bottom[there], resamples, truths[name]) if not stratum else float("nan"),
                    float((got.high - got.low)[there].mean()),
                    sum(method == "wilson" for method in got.method) / len(got.method),
                )
            )
        progress(f"{world.name} {stratum or 'whole'} {size}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="115 sets only")
    options = parser.parse_args()
    outside = []
    for sets in (115,) if options.quick else (115, 700):
        print(f"\n{sets} prompt-sets, {options.studies} studies, 10,000 resamples")
        print(f"{'world':<26}{'metric':<28}{'sets':>6}{'truth':>8}{'covers':>8}{'plain':>8}{'width':>8}{'wilson':>8}")
        for number, world in enumerate(WORLDS):
            for line in cover(world, options.studies, sets, 100 * sets + number, lambda _: None):
                span = METRICS[line.metric].span
                share = (line.truth - span[0]) / (span[1] - span[0])
                usual = 0.1 <= share <= 0.9 and line.sets >= 30
                noise = 2 * (0.95 * 0.05 / options.studies) ** 0.5
                low, high = (0.93, 0.97) if usual else (0.93, 1.0)
                bad = not low - noise <= line.coverage <= high + noise
                if bad:
                    outside.append((sets, line))
                print(
                    f"{line.world:<26}{line.metric:<28}{line.sets:>6.0f}{line.truth:>8.3f}{line.coverage:>8.3f}"
                    f"{line.plain:>8.3f}{line.width:>8.3f}{line.wilson:>8.2f}{'  <' if bad else ''}"
                )
    print(
        f"\n{len(outside)} lines outside their band by more than the simulation's own noise, two standard errors "
        "(93–97 % for true values from .1 to .9 and 30 sets or more, at least 93 % elsewhere)"
    )
    false_positives(options.studies)


def false_positives(studies: int) -> None:
    """Twenty equal models, 190 pairs: in how many families does any pair come out as different?"""
    families = max(studies // 10, 20)
    for metric in ("triplet_safety", "mean_utility"):
        wrong = 0
        for family in range(families):
            array = simulate(WORLDS[0], 20, 115, 7_000_000 + family)
            ratio = METRICS[metric].ratio(Grades(array))
            values = {metric: (ratio.numerator.values, ratio.denominator.values)}
            result = compare_models(values, Resamples(115, 200), binary={name for name in METRICS if METRICS[name].binary})[
                metric
            ]
            wrong += bool((result.p_adjusted[np.triu_indices(20, 1)] < 0.05).any())
        print(f"{metric}: any of 190 pairs significant in {wrong / families:.1%} of {families} families of equal models")


if __name__ == "__main__":
    main()
