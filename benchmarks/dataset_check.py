"""How long a check takes, how often telling words are found where there are none, and what equal sizes give.

    python benchmarks/dataset_check.py [DATASET...]

Three parts: the time of the whole check of each dataset; the accuracy of the word classifier on 42 sets drawn from each,
so that datasets can be compared; and simulated datasets whose words are chance, where the lower limit of an accuracy should
be above chance in 2.5 % of them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence

from opensafeintent import PromptSet, load_dataset
from opensafeintent.construction.controls.artefacts import artefacts_of
from opensafeintent.construction.controls.findings import check
from opensafeintent.construction.controls.records import Artefacts
from opensafeintent.promptsets import Prompts
from opensafeintent.statistics import Resamples

RUNS = 3
DRAWS = 20
DRAWN = 42
SIMULATED = 100
COMMON = [f"word{n}" for n in range(40)]


def artefacts(prompt_sets: Sequence[PromptSet], seed: int, resamples: Resamples) -> Artefacts:
    found = artefacts_of(sorted(prompt_sets, key=lambda item: item.id), seed, resamples)
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def by_chance(sets: int, seed: int, *, topics: bool) -> list[PromptSet]:
    """Make sets of ten common words a prompt, with or without words of a topic that every two sets share."""
    chance = random.Random(seed)

    def text(number: int) -> str:
        topic = f"topic{number // 2} thing{number // 2} place{number // 2} " if topics else ""
        return topic + " ".join(chance.sample(COMMON, 10))

    return [
        PromptSet(
            id=f"s{n:03}",
            harm_domain="Cyber Compromise",
            task_type="Explanation",
            underlying_task="none",
            prompts=Prompts(benign=text(n), dual_use=text(n), malicious=text(n)),
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
        print(f"{dataset.name}: {len(dataset)} sets checked in {statistics.median(taken):.2f} s (median of {RUNS})")


def draw_equal_sizes(names: Sequence[str]) -> None:
    resamples = Resamples(DRAWN)
    for name in names:
        dataset = load_dataset(name)
        drawn = [random.Random(seed).sample(dataset.prompt_sets, min(DRAWN, len(dataset))) for seed in range(DRAWS)]
        found = [artefacts(sets, seed, resamples).accuracies for seed, sets in enumerate(drawn)]
        means = (
            f"{' or '.join(of[0].intents)} {statistics.mean(item.value for item in of):.3f}"
            for of in zip(*found, strict=True)
        )
        print(f"{dataset.name}: {DRAWN} sets, mean of {DRAWS} draws: {'; '.join(means)}")


def simulate_chance() -> None:
    above: dict[str, list[bool]] = {"three intents": [], "two intents": []}
    for sets in (40, 150):
        resamples = Resamples(sets)
        for topics in (False, True):
            for seed in range(SIMULATED):
                made = by_chance(sets, 1000 + seed, topics=topics)
                for item in artefacts(made, seed, resamples).accuracies:
                    above["three intents" if len(item.intents) == 3 else "two intents"].append(item.low > item.chance)
    for among, hits in above.items():
        print(f"chance among {among}: the lower limit is above it in {statistics.mean(hits):.1%} of {len(hits)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=["starter"], help="names as on the command line")
    names = parser.parse_args().datasets
    take_time(names)
    draw_equal_sizes([name for name in names if len(load_dataset(name)) >= DRAWN])
    simulate_chance()


if __name__ == "__main__":
    main()
