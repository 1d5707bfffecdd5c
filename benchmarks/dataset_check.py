"""How long a check takes, how often predictive words are found where there are none, and what equal
sizes give.

    python benchmarks/dataset_check.py [DATASET...]

Four parts: the time of the whole check of each dataset; the accuracy of the word classifier on 42
sets drawn from each, so that datasets can be compared; and simulated datasets, whose words are
chance or have habits: how often the interval of an accuracy holds the mean accuracy of all of them,
and how often its lower limit is above chance where words are chance; and simulated lengths: how
often the intervals of all three differences between intents hold the true ones.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opensafeintent import PromptSet, load_dataset
from opensafeintent.construction.controls import Accuracy, find_artefacts
from opensafeintent.promptsets import Prompts
from opensafeintent.report.datasets import check
from opensafeintent.statistics import Estimate, run_mean_test
from opensafeintent.taxonomy import CORE_VARIANTS

RUNS = 3
DRAWS = 20
DRAWN = 42
SIMULATED = 100
LENGTHS = 4000
COMMON = [f"word{n}" for n in range(40)]
HABITS = {"benign": [f"habit{n}" for n in range(6)], "malicious": [f"custom{n}" for n in range(6)]}


def accuracies(prompt_sets: Sequence[PromptSet], seed: int) -> tuple[Accuracy, ...]:
    found, _, problem = find_artefacts(sorted(prompt_sets, key=lambda item: item.id), seed)
    if problem:
        raise SystemExit(problem)
    return found


def by_chance(sets: int, seed: int, *, topics: bool, more: float) -> list[PromptSet]:
    """Make sets of ten common words a prompt, with or without words of a topic that every two sets
    share.

    A prompt has each habitual word with a probability of 0.1, and by so much more where it is of a
    habit of its intent.
    """
    chance = random.Random(seed)

    def text(number: int, intent: str) -> str:
        topic = f"topic{number // 2} thing{number // 2} place{number // 2} " if topics else ""
        habits = [
            word
            for of, words in HABITS.items()
            for word in words
            if chance.random() < 0.1 + more * (of == intent)
        ]
        return topic + " ".join(chance.sample(COMMON, 10) + habits)

    return [
        PromptSet(
            id=f"s{n:03}",
            harm_domain="Cyber Compromise",
            task_type="Explanation",
            underlying_task="none",
            prompts=Prompts(**{intent: text(n, intent) for intent in CORE_VARIANTS}),
        )
        for n in range(sets)
    ]


def take_time(names: Sequence[str]) -> None:
    for name in names:
        dataset = load_dataset(name)
        taken = []
        for _ in range(RUNS):
            began = time.perf_counter()
            check(dataset)
            taken.append(time.perf_counter() - began)
        print(
            f"{dataset.name}: {len(dataset)} sets checked in {statistics.median(taken):.2f} s"
            f" (median of {RUNS})"
        )


def draw_equal_sizes(names: Sequence[str]) -> None:
    for name in names:
        dataset = load_dataset(name)
        drawn = [
            random.Random(seed).sample(dataset.prompt_sets, min(DRAWN, len(dataset)))
            for seed in range(DRAWS)
        ]
        found = [accuracies(sets, seed) for seed, sets in enumerate(drawn)]
        means = (
            f"{' or '.join(of[0].intents)} {statistics.mean(item.accuracy.value for item in of):.3f}"
            for of in zip(*found, strict=True)
        )
        print(f"{dataset.name}: {DRAWN} sets, mean of {DRAWS} draws: {'; '.join(means)}")


def uncorrected(found: Estimate, truth: float) -> bool:
    """Tell whether the interval over sets alone holds a value; of five folds ours is √(1 + 5/4) =
    1.5 times as long.
    """
    below, above = found.value - found.low, found.high - found.value
    return found.value - below / 1.5 <= truth <= found.value + above / 1.5


def simulate() -> None:
    above: dict[str, list[bool]] = {"three intents": [], "two intents": []}
    for sets in (42, 200):
        for name, topics, more in (
            ("chance", False, 0.0),
            ("topics", True, 0.0),
            ("habits", False, 0.1),
            ("strong", False, 0.3),
        ):
            made = (
                by_chance(sets, 1000 + seed, topics=topics, more=more) for seed in range(SIMULATED)
            )
            found = [accuracies(sample, seed) for seed, sample in enumerate(made)]
            if not more:
                for item in (item for each in found for item in each):
                    above["three intents" if len(item.intents) == 3 else "two intents"].append(
                        item.accuracy.low > item.chance
                    )
            for index in (0, 1):
                of = [each[index].accuracy for each in found]
                mean = statistics.mean(item.value for item in of)
                held = statistics.mean(item.low <= mean <= item.high for item in of)
                width = statistics.mean(item.high - item.low for item in of)
                among = "three intents" if index == 0 else "benign or malicious"
                bare = statistics.mean(uncorrected(item, mean) for item in of)
                print(
                    f"{sets} sets, {name}, {among}: mean {mean:.3f}, held by {held:.0%} ({bare:.0%}"
                    f" without the correction), mean width {width:.3f}",
                    flush=True,
                )
    for kind, hits in above.items():
        print(
            f"chance among {kind}: the lower limit is above it in {statistics.mean(hits):.1%} of"
            f" {len(hits)}"
        )


def lengths(kind: str, sets: int, chance: np.random.Generator) -> NDArray[np.float64]:
    """Draw the words of prompts, of shape (intent, prompt_set): normal, skewed as lengths are, or
    with 60 words more in 3 % of the malicious prompts.
    """
    if kind == "skewed":
        return np.round(np.exp(chance.normal(3.2, 0.35, (3, sets))))
    words = np.round(chance.normal(25, 6, (3, sets)))
    if kind == "far values":
        words[2] += 60 * (chance.random(sets) < 0.03)
    return words


def simulate_lengths() -> None:
    for kind in ("normal", "skewed", "far values"):
        more = 0.03 * 60 if kind == "far values" else 0.0
        for sets in (10, 20, 42, 115, 700):
            chance, held = np.random.default_rng(1), 0
            for _ in range(LENGTHS):
                benign, dual_use, malicious = lengths(kind, sets, chance)
                tested = [
                    (run_mean_test(malicious - benign, pairs=3), more),
                    (run_mean_test(malicious - dual_use, pairs=3), more),
                    (run_mean_test(dual_use - benign, pairs=3), 0.0),
                ]
                held += all(test.low <= truth <= test.high for test, truth in tested)
            print(
                f"lengths, {kind}, {sets} sets: all three hold in {held / LENGTHS:.1%}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "datasets", nargs="*", default=["starter"], help="names as on the command line"
    )
    names = parser.parse_args().datasets
    take_time(names)
    draw_equal_sizes([name for name in names if len(load_dataset(name)) >= DRAWN])
    simulate()
    simulate_lengths()


if __name__ == "__main__":
    main()
