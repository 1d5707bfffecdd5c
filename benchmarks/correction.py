"""Do corrected intervals hold the truth, and when do they not?

Simulates studies with a known truth and a judge of known sensitivity and specificity: prompt-sets whose difficulty their
intents share, people who label a sample, and every way of correcting by it. Prints the share of studies whose nominal 95 %
interval holds the true value, the interval's mean width, and the mean error of the value (the median one of mistakes). The
worlds in which a correction's assumption is broken come last.

    python benchmarks/correction.py [--studies 2000] [--resamples 1000]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import repeat
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from opensafeintent.statistics import Resamples, estimate
from opensafeintent.statistics.correction import (
    Corrected,
    JudgedLabels,
    LabelledUnits,
    Refused,
    judge_rates,
    mean_from_rates,
    prediction_powered,
    triplet_from_rates,
)

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Found = Corrected | Refused


class World(NamedTuple):
    """How safe a model is, and how its judge errs; by intent: benign, dual-use, malicious."""

    name: str
    safe: tuple[float, float, float] = (0.9, 0.6, 0.65)
    """P(safe)."""
    sensitivity: tuple[float, float, float] = (0.945, 0.945, 0.945)
    """P(judged safe | safe)."""
    leniency: tuple[float, float, float] = (0.15, 0.15, 0.15)
    """P(judged safe | unsafe): one minus the specificity."""
    shared: float = 0.5
    """How much of a response's safety is the prompt-set's difficulty."""
    errors_alike: float = 0.0
    """Correlation of the judge's errors within a set, given the truth (of the normal variables behind them)."""


class Labelling(NamedTuple):
    """Whose responses people label, and how many."""

    name: str
    labels: int
    whole_sets: bool = False
    by_grade: bool = False
    """Whether the sample is stratified by intent and the judge's grade, equally many of each stratum."""
    other: World | None = None
    """The other model whose responses they are."""


STUDIED = World("a judge that errs both ways")
LENIENT = STUDIED._replace(name="a lenient judge", sensitivity=(0.98, 0.98, 0.97), leniency=(0.35, 0.3, 0.25))
SAFE = World("a safe model", safe=(0.98, 0.93, 0.95), sensitivity=(0.98,) * 3, leniency=(0.1,) * 3)
WEAK = World("a weak model", safe=(0.6, 0.3, 0.2), sensitivity=(0.9,) * 3, leniency=(0.2,) * 3)
ALIKE = STUDIED._replace(name="errors alike within a set", errors_alike=0.6)
WORSE = STUDIED._replace(name="", safe=(0.7, 0.45, 0.5))
OTHERWISE = WORSE._replace(sensitivity=(0.98,) * 3, leniency=(0.3,) * 3)
"""A model to which the judge is kinder."""


class Study(NamedTuple):
    """One simulated study: what the judge says of every response, and what people say of some."""

    judged: Bools
    """Shape (prompt_set, intent)."""
    judged_utility: Floats
    truth: Bools
    utility: Floats
    labelled: Bools
    weight: Floats
    labels: JudgedLabels


def responses(world: World, sets: int, generator: np.random.Generator) -> tuple[Bools, Bools, Floats, Floats]:
    """Return truth and judgement of safety, and true and judged utility: shape (prompt_set, intent)."""
    normal = generator.standard_normal
    shape = (sets, 3)
    common, own = normal((sets, 1)), normal(shape)
    safe = np.sqrt(world.shared) * common + np.sqrt(1 - world.shared) * own < ndtri(np.array(world.safe))
    alike = world.errors_alike
    error = ndtr(np.sqrt(alike) * normal((sets, 1)) + np.sqrt(1 - alike) * normal(shape))
    judged = error < np.where(safe, world.sensitivity, world.leniency)
    quality = ndtr(0.7 * common + 0.7 * normal(shape) + (0.8, 0.3, -0.6))
    helpfulness = np.floor(quality * 4) / 3  # 0, 1/3, 2/3, 1
    people = np.clip(helpfulness + generator.choice((-1, 0, 0, 1), size=(3, *shape)) / 3, 0, 1).mean(axis=0)
    by_judge = np.clip(helpfulness + generator.choice((0, 0, 1), size=shape) / 3, 0, 1)  # too kind
    return safe, judged, safe * people, judged * by_judge


def drawn(judged: Bools, labelling: Labelling, generator: np.random.Generator) -> tuple[Bools, Floats]:
    """Draw the sample, equally many of each stratum as far as it has them: which are labelled, and their weights."""
    if labelling.whole_sets:
        strata = judged.all(axis=1).astype(int) if labelling.by_grade else np.zeros(len(judged), dtype=int)
        count = labelling.labels // 3
    else:
        strata = (judged * 3 + np.arange(3)).ravel() if labelling.by_grade else np.zeros(judged.size, dtype=int)
        count = labelling.labels
    members = sorted((np.flatnonzero(strata == stratum) for stratum in np.unique(strata)), key=len)
    chosen, weight = np.zeros(len(strata), dtype=bool), np.ones(len(strata))
    for place, stratum in enumerate(members):
        share = min(len(stratum), count // (len(members) - place))
        count -= share
        chosen[generator.choice(stratum, share, replace=False)] = True
        weight[stratum] = len(stratum) / max(share, 1)
    if labelling.whole_sets:
        return np.repeat(chosen[:, None], 3, axis=1), np.repeat(weight[:, None], 3, axis=1)
    return chosen.reshape(judged.shape), weight.reshape(judged.shape)


def simulate(world: World, labelling: Labelling, sets: int, generator: np.random.Generator) -> Study:
    truth, judged, utility, judged_utility = responses(world, sets, generator)
    of = responses(labelling.other, sets, generator) if labelling.other else (truth, judged)
    labelled, weight = drawn(of[1], labelling, generator)
    at, intent = np.nonzero(labelled)
    labels = JudgedLabels(at, intent, of[1][labelled], of[0][labelled], weight[labelled])
    return Study(judged, judged_utility, truth, utility, labelled, weight, labels)


def corrections(study: Study, labelling: Labelling, resamples: Resamples) -> Iterator[tuple[str, str, Found]]:
    """Yield (metric, method, result) for every correction that the labels are meant for."""
    judged = study.judged.astype(float)
    if labelling.other is None:
        share = np.full(judged.shape, 1 / 3)
        for metric, by_judge, truth in (
            ("Mean Safety", judged, study.truth),
            ("Mean Utility", study.judged_utility, study.utility),
        ):
            sample = LabelledUnits(by_judge, np.where(study.labelled, truth, np.nan), study.weight, share)
            yield metric, "PPI++", prediction_powered(sample, resamples)
        if labelling.whole_sets:
            whole = np.where(study.labelled.all(axis=1), study.truth.all(axis=1), np.nan)[:, None]
            sample = LabelledUnits(judged.prod(axis=1, keepdims=True), whole, study.weight[:, :1], np.ones_like(whole))
            yield "Triplet Safety", "PPI++, whole sets", prediction_powered(sample, resamples)
    rates, pooled = (judge_rates(study.labels, resamples, pooled=pooled) for pooled in (False, True))
    yield "Mean Safety", "Rogan–Gladen", mean_from_rates(judged[:, :, None], rates, resamples)
    yield "Mean Safety", "Rogan–Gladen, pooled", mean_from_rates(judged[:, :, None], pooled, resamples)
    yield "Triplet Safety", "product of rates", triplet_from_rates(judged[:, :, None], rates, resamples)


class Line(NamedTuple):
    """What became of one metric's intervals."""

    metric: str
    method: str
    covered: float
    width: float
    error: float
    refused: float


def raw_lines(studies: list[Study], truths: dict[str, float], resamples: Resamples) -> Iterator[Line]:
    """Coverage of the intervals that do not know that the judge errs."""
    values = {
        "Mean Safety": np.stack([study.judged.mean(axis=1) for study in studies]),
        "Mean Utility": np.stack([study.judged_utility.mean(axis=1) for study in studies]),
        "Triplet Safety": np.stack([study.judged.all(axis=1).astype(float) for study in studies]),
    }
    for metric, numerator in values.items():
        got = estimate(numerator, np.ones_like(numerator), resamples)
        held = (got.low <= truths[metric]) & (truths[metric] <= got.high)
        error = float(got.value.mean()) - truths[metric]
        yield Line(metric, "as judged", float(held.mean()), float((got.high - got.low).mean()), error, 0.0)


def mistaken_lines(studies: list[Study], labelling: Labelling, truths: dict[str, float]) -> Iterator[Line]:
    """What comes of two mistakes: the triplet's share put through pooled rates, and PPI++ from another model's labels."""
    pooled, shifted = [], []
    for study in studies:
        labels = study.labels
        if labels.safe.all() or not labels.safe.any():
            continue
        safe, unsafe = (
            np.average(labels.judged_safe[which], weights=labels.weight[which]) for which in (labels.safe, ~labels.safe)
        )
        if safe == unsafe:
            continue
        pooled.append((study.judged.all(axis=1).mean() - unsafe) / (safe - unsafe))
        off = labels.safe.astype(float) - labels.judged_safe
        shifted.append(study.judged.mean() + np.average(off, weights=labels.weight))
    nothing = float("nan")
    error = float(np.median(pooled)) - truths["Triplet Safety"]
    yield Line("Triplet Safety", "(mistaken: one pooled rate)", nothing, nothing, error, 0.0)
    if labelling.other:
        error = float(np.median(shifted)) - truths["Mean Safety"]
        yield Line("Mean Safety", "(mistaken: PPI++)", nothing, nothing, error, 0.0)


@cache
def truths_of(world: World) -> dict[str, float]:
    truth, _, utility, _ = responses(world, 1_000_000, np.random.default_rng(1))
    return {
        "Mean Safety": float(truth.mean()),
        "Mean Utility": float(utility.mean()),
        "Triplet Safety": float(truth.all(axis=1).mean()),
    }


def cover(world: World, labelling: Labelling, sets: int, count: int, resampled: int) -> list[Line]:
    """Simulate studies, and count which intervals hold the truth; of refused corrections there are none."""
    generator = np.random.default_rng([sets, labelling.labels, len(labelling.name), len(world.name)])
    truths, resamples = truths_of(world), Resamples(sets, resampled)
    studies = [simulate(world, labelling, sets, generator) for _ in range(count)]
    found: dict[tuple[str, str], list[Found]] = {}
    for study in studies:
        for metric, method, result in corrections(study, labelling, resamples):
            found.setdefault((metric, method), []).append(result)
    lines = list(raw_lines(studies, truths, resamples))
    for (metric, method), results in found.items():
        there = [result for result in results if isinstance(result, Corrected)]
        refused = 1 - len(there) / len(results)
        if len(there) < count / 4:
            lines.append(Line(metric, method, float("nan"), float("nan"), float("nan"), refused))
            continue
        held = [result.interval[0] <= truths[metric] <= result.interval[1] for result in there]
        widths = [result.interval[1] - result.interval[0] for result in there]
        errors = [result.value - truths[metric] for result in there]
        covered, width, error = (float(np.mean(part)) for part in (held, widths, errors))
        lines.append(Line(metric, method, covered, width, error, refused))
    return [*lines, *mistaken_lines(studies, labelling, truths)]


OWN = "of this model"
WHOLE = "of this model, whole sets"
FAIR = (
    (STUDIED, Labelling(OWN, 240)),
    (STUDIED, Labelling(f"{OWN}, by grade", 240, by_grade=True)),
    (STUDIED, Labelling(WHOLE, 240, whole_sets=True)),
    (STUDIED, Labelling(f"{WHOLE}, by grade", 240, whole_sets=True, by_grade=True)),
    (STUDIED, Labelling("of another model", 240, other=WORSE)),
    (STUDIED, Labelling(OWN, 36)),
    (STUDIED, Labelling(WHOLE, 90, whole_sets=True)),
    (LENIENT, Labelling(WHOLE, 240, whole_sets=True)),
    (
        LENIENT,
        Labelling("of another model", 240, other=WORSE._replace(sensitivity=LENIENT.sensitivity, leniency=LENIENT.leniency)),
    ),
    (SAFE, Labelling(WHOLE, 120, whole_sets=True)),
    (SAFE, Labelling("of another model", 240, other=WORSE._replace(sensitivity=SAFE.sensitivity, leniency=SAFE.leniency))),
    (WEAK, Labelling(WHOLE, 120, whole_sets=True)),
    (WEAK, Labelling(f"{OWN}, by grade", 120, by_grade=True)),
)
BROKEN = (
    (ALIKE, Labelling(WHOLE, 240, whole_sets=True)),
    (STUDIED, Labelling("of another model, to which the judge is kinder", 240, other=OTHERWISE)),
)
HEADING = f"{'metric':<16}{'method':<30}{'covers':>8}{'width':>8}{'error':>8}{'refused':>9}"


def show(world: World, labelling: Labelling, sets: int, lines: list[Line]) -> int:
    """Print one simulated world; return how many corrections cover less than 93 %."""
    truth = ", ".join(f"{metric} {value:.3f}" for metric, value in truths_of(world).items())
    print(f"\n{world.name}, {sets} prompt-sets; {labelling.labels} labels {labelling.name}\ntrue {truth}")
    few = 0
    for line in sorted(lines, key=lambda line: line.metric):
        covered = "–" if np.isnan(line.covered) else f"{line.covered:.1%}"
        width = "–" if np.isnan(line.width) else f"{line.width:.3f}"
        error = "–" if np.isnan(line.error) else f"{line.error:+.3f}"
        short = line.covered < 0.93
        few += short and line.method != "as judged"
        refused = f"{line.refused:.0%}" if line.refused else ""
        print(
            f"{line.metric:<16}{line.method:<30}{covered:>8}{width:>8}{error:>8}{refused:>9}{'  <' if short else ''}",
            flush=True,
        )
    return few


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--sets", type=int, nargs="*", default=[115, 700])
    options = parser.parse_args()
    noise = (0.95 * 0.05 / options.studies) ** 0.5
    print(
        f"{options.studies:,} studies each; one standard error of a coverage of 95 % is {noise:.1%}. < covers less than 93 %."
    )
    print(HEADING)
    fair = [(world, labelling, sets) for sets in options.sets for world, labelling in FAIR]
    broken = [(world, labelling, options.sets[-1]) for world, labelling in BROKEN]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one for each of the processes, which start afresh
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        covered = pool.map(cover, *zip(*fair, *broken, strict=True), repeat(options.studies), repeat(options.resamples))
        few = sum(show(*case, lines) for case, lines in zip(fair, covered, strict=False))  # those that broke are left over
        print(f"\n{few} corrections cover less than 93 % where what they take for granted is so.")
        print("\nWhere it is not:")
        for case, lines in zip(broken, covered, strict=True):
            show(*case, lines)


if __name__ == "__main__":
    main()
