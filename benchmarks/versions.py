"""What is said of versions: does it hold?

Simulates versions of a model on the same prompt-sets, and prints how often the interval of the trend holds the true slope;
how far the number of sets to expect with nothing changed is from the truth, and how often the interval of what goes beyond it
holds that; and how often a judge is said to have changed that has not, and that has.

    python benchmarks/versions.py [--studies 500]
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.drift import SecondGrades, drift_of
from opensafeintent.analysis.versions import slope, turnover
from opensafeintent.evaluation.records import JudgeGrades
from opensafeintent.statistics import Estimate, Resamples

Floats = NDArray[np.float64]

RESAMPLES = 2_000


def holds(found: Estimate, truth: float) -> bool:
    low, high = found.interval or (np.nan, np.nan)
    return bool(low <= truth + 1e-9 and truth - 1e-9 <= high)


def trends(studies: int, generator: np.random.Generator) -> None:
    """Versions whose sets are safe, or useful, more often each time: the slope is known."""
    print("trend: versions  sets  kind      slope   mean found  held by 95 %")
    for versions, sets, scores, per_version in (
        *((3, 42, False, 0.0), (3, 115, False, 0.05), (3, 115, True, 0.05), (5, 115, True, 0.02)),
        *((3, 700, False, 0.02), (8, 42, True, 0.03)),
    ):
        resamples, found = Resamples(sets, RESAMPLES), []
        for _ in range(studies):
            hard = generator.beta(1.2, 0.8, size=sets) * 0.7
            share = np.clip(hard + per_version * np.arange(versions)[:, None], 0, 1)
            values = (generator.random((versions, sets)) < share).astype(np.float64)
            if scores:
                values = generator.binomial(9, share) / 9
            found.append(slope(values, np.ones_like(values), (0.0, 1.0), resamples))
        truth = float(np.mean([estimate.value for estimate in found])) if versions == 8 else per_version
        mean = float(np.mean([estimate.value for estimate in found]))
        held = float(np.mean([holds(estimate, truth) for estimate in found]))
        kind = "scores" if scores else "0/1"
        print(f"       {versions:8}  {sets:4}  {kind:8}  {per_version:5.3f}   {mean:10.4f}  {held:12.3f}")


def turnovers(studies: int, generator: np.random.Generator) -> None:
    """Sets of unequal probabilities, some of which change for good; what chance does is known."""
    print("\nturnover: sets  repeats  changed  expected truly  mean found  newly fail beyond: truth  mean   held by 95 %")
    for sets, repeats, changed in (
        *((42, (2, 2), 0.0), (115, (2, 2), 0.0), (115, (3, 3), 0.0), (115, (1, 3), 0.0)),
        *((115, (2, 2), 0.1), (700, (2, 2), 0.05), (115, (5, 5), 0.1)),
    ):
        resamples, ids = Resamples(sets, RESAMPLES), [str(number) for number in range(sets)]
        rows = []
        for _ in range(studies):
            before = generator.beta(0.5, 0.3, size=sets)
            after = np.where(generator.random(sets) < changed, 0.1 * before, before)
            shares = [
                generator.binomial(count, chance) / count for count, chance in zip(repeats, (before, after), strict=True)
            ]
            counts = [np.full(sets, float(count)) for count in repeats]
            found = turnover((shares[0], counts[0]), (shares[1], counts[1]), ids, resamples)
            told = [chance for count, chance in zip(repeats, (before, after), strict=True) if count > 1]
            noise = np.mean([chance * (1 - chance) for chance in told], axis=0).sum()
            excess = float((before * (1 - after)).sum() - noise)
            assert found.expected is not None
            assert found.failing_excess is not None
            rows.append((noise, found.expected, excess, found.failing_excess.value, found.failing_excess))
        truth = float(np.mean([row[2] for row in rows]))
        means = [float(np.mean([row[place] for row in rows])) for place in (0, 1, 3)]
        held = float(np.mean([holds(row[4], truth) for row in rows]))
        print(
            f"          {sets:4}  {repeats!s:7}  {changed:7.2f}  {means[0]:14.2f}  {means[1]:10.2f}  {truth:24.2f}  "
            f"{means[2]:5.2f}  {held:12.3f}"
        )


def graded(generator: np.random.Generator, noise: float, harsher: float, judges: int) -> list[SecondGrades]:
    """Grade 100 responses of 60 sets twice; the first judge is harsher the second time, the others are as they were.

    Args:
        generator: of what is random.
        noise: of each grading, in points of the scale.
        harsher: by how many points.
        judges: how many.
    """
    helpful, harm = generator.uniform(0.5, 4.5, 100), generator.uniform(-2, 3, 100)
    sets = generator.integers(0, 60, 100)

    def grade(place: int, change: float) -> JudgeGrades:
        level, severity = (base[place] + noise * generator.standard_normal() for base in (helpful, harm))
        return JudgeGrades(
            helpfulness=int(np.clip(np.rint(level - change), 1, 4)),
            harm_severity=int(np.clip(np.rint(severity + change), 0, 3)),
        )

    return [
        SecondGrades(
            model="m",
            set_id=f"s{sets[place]}",
            variant="benign",
            epoch=place,
            first={f"j{judge}": grade(place, 0.0) for judge in range(judges)},
            again={f"j{judge}": grade(place, harsher if judge == 0 else 0.0) for judge in range(judges)},
        )
        for place in range(100)
    ]


def drifts(studies: int, generator: np.random.Generator) -> None:
    """A judge that answers the same response differently now and then, as it was or harsher."""
    print("\ndrift: judges  same grade twice  harsher by  mean shift of helpfulness, of safe  told changed")
    for judges, noise, harsher in (
        *((1, 0.05, 0.0), (1, 0.2, 0.0), (1, 0.5, 0.0), (3, 0.2, 0.0)),
        *((1, 0.05, 0.1), (1, 0.05, 0.2), (1, 0.2, 0.1), (1, 0.2, 0.2), (1, 0.2, 0.3), (1, 0.5, 0.3), (3, 0.2, 0.2)),
    ):
        told, same, shifts = 0, [], []
        names = [f"j{judge}" for judge in range(judges)]
        for _ in range(studies):
            grades = graded(generator, noise, harsher, judges)
            found = drift_of(grades, names, run="old", kept="new")
            told += bool(found.changed)
            same += [item.first["j0"].helpfulness == item.again["j0"].helpfulness for item in grades]
            shifts.append([found.shifts[place].shift.value for place in (0, 1)])
        means = np.mean(np.array(shifts, dtype=np.float64), axis=0)
        print(
            f"       {judges:6}  {np.mean(same):16.2f}  {harsher:10.1f}  {means[0]:26.2f}  {means[1]:7.3f}  "
            f"{told / studies:12.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=500)
    studies = parser.parse_args().studies
    for part in (trends, turnovers, drifts):
        part(studies, np.random.default_rng(13))


if __name__ == "__main__":
    main()
