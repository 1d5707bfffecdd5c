"""How fast, how exact and how large is the similarity join?

The published 700 prompt-sets: every pair of prompts of one cell, beside a plain dynamic-programming
LCS on a sample of them.
Then made-up prompts in 60 cells, with near-duplicates planted just above the threshold of 0.7,
exactly at it and just below: whether all that should be found are found, and nothing else, the
time, and the peak memory of the process.

    python benchmarks/similarity.py [--published FILE] [--sample 3000] [--prompts 100000 1000000]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np

from opensafeintent import load_dataset
from opensafeintent.construction.similarity import (
    ComparedSet,
    Threshold,
    duplicates,
    similar_pairs,
    words,
)

T = TypeVar("T")
PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data" / "opensafeintent-700.json"
CELLS = 60
PLANTED = 20
"""Near-duplicates of each kind in each cell."""
VOCABULARY = 30_000
PROMPTS_OF_A_SET = 7
REPEATS = 5
COLUMNS = (
    *(("seconds", 9, 1), ("cpu", 8, 1), ("before", 9, 0), ("peak", 7, 0)),
    *(("planted", 9, 0), ("found", 8, 0), ("others", 8, 0), ("invented", 10, 0)),
)
"""Field, width, decimal places."""


def timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def timed_twice(work: Callable[[], T]) -> tuple[dict[str, float], T]:
    """Return what `work` takes by the clock and of the processor: on a busy machine they differ."""
    began = time.process_time()
    seconds, result = timed(work)
    return {"seconds": seconds, "cpu": time.process_time() - began}, result


def plain_lcs(one: Sequence[str], other: Sequence[str]) -> int:
    """The textbook table, a row at a time."""
    row = [0] * (len(other) + 1)
    for word in one:
        previous, row = row, [0]
        for place, candidate in enumerate(other):
            row.append(
                previous[place] + 1 if word == candidate else max(previous[place + 1], row[place])
            )
    return row[-1]


# The published sets
# ------------------------------------------------------------------------------


def published(path: Path, sample: int) -> None:
    items = [
        ComparedSet(one.id, one.cell, one.wordings()) for one in load_dataset(str(path)).prompt_sets
    ]
    above = Threshold.of("0.000001")
    runs = [timed_twice(lambda: list(similar_pairs(items, above))) for _ in range(REPEATS)]
    seconds, cpu = (median(taken[kind] for taken, _ in runs) for kind in ("seconds", "cpu"))
    pairs = [match for _, match in runs[0][1]]
    chosen = random.Random(0).sample(pairs, min(sample, len(pairs)))
    texts = [(words(match.prompt), words(match.duplicate_prompt)) for match in chosen]
    plain, table = timed_twice(lambda: [plain_lcs(*pair) for pair in texts])
    equal = sum(match.overlap.lcs == lcs for match, lcs in zip(chosen, table, strict=True))
    ratio = plain["cpu"] / len(chosen) * len(pairs) / cpu
    print(
        f"{path.name}: {len(pairs):,} pairs of one cell with a word in common in {seconds:.2f} s,"
        f" {cpu:.2f} s CPU (median of {REPEATS})"
    )
    print(
        f"  {equal:,} of {len(chosen):,} sampled pairs equal to plain dynamic programming, which"
        f" takes {ratio:,.0f} × as long"
    )
    seconds = median(timed(lambda: duplicates(items))[0] for _ in range(REPEATS))
    print(f"  which sets to drop: {seconds:.2f} s, {len(duplicates(items))} sets")


# Made-up prompts
# ------------------------------------------------------------------------------


class Planted(NamedTuple):
    """Prompts of one cell, and which copies (second) of which (first) are planted, by kind."""

    texts: list[str]
    pairs: dict[str, set[tuple[int, int]]]


def made_up(count: int, seed: int) -> Planted:
    """`count` prompts as long as the published ones, with words as frequent as in English (Zipf),
    and planted copies.
    """
    generator = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, VOCABULARY + 1)
    cumulative = (frequency / frequency.sum()).cumsum()
    cumulative[-1] = 1.0
    vocabulary = np.array(
        [f"{'' if n < 100 else 'word'}{n:x}" for n in range(VOCABULARY)], dtype=object
    )
    lengths = np.clip(generator.normal(54, 18, count), 13, 150).astype(int)
    drawn = vocabulary[np.searchsorted(cumulative, generator.random(int(lengths.sum())))].tolist()
    ends = lengths.cumsum().tolist()
    tokens = [drawn[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
    half = count // (2 * PROMPTS_OF_A_SET) * PROMPTS_OF_A_SET
    originals = generator.choice(half, 3 * PLANTED, replace=False).tolist()
    copies = (half + generator.choice(count - half, 3 * PLANTED, replace=False)).tolist()
    pairs: dict[str, set[tuple[int, int]]] = {"above": set(), "at": set(), "below": set()}
    for n, (original, copy) in enumerate(zip(originals, copies, strict=True)):
        kind, more = (("above", 1), ("at", 0), ("below", -1))[n % 3]
        length = int(generator.integers(2, 9)) * 10
        base = (tokens[original] * 7)[:length]  # a prompt has 13 words or more
        own = set(
            generator.choice(length, length - (7 * length // 10 + more), replace=False).tolist()
        )
        # the copy's own words stand nowhere else: the LCS is 7/10 of the words, one more or one
        # fewer
        tokens[original] = base
        tokens[copy] = [
            f"own{copy}x{place}" if place in own else word for place, word in enumerate(base)
        ]
        pairs[kind].add((original, copy))
    return Planted([" ".join(part) for part in tokens], pairs)


def join(cells: list[Planted], *, inclusive: bool) -> dict[str, Any]:
    """Find all pairs; each prompt is a set of its own."""
    items = (
        ComparedSet(f"{cell} {n}", cell, {"prompt": text})
        for cell, planted in enumerate(cells)
        for n, text in enumerate(planted.texts)
    )
    taken, found = timed_twice(
        lambda: list(similar_pairs(items, Threshold.of("0.7", inclusive=inclusive)))
    )
    kinds = ("above", "at") if inclusive else ("above",)
    expected = {
        (f"{c} {a}", f"{c} {b}")
        for c, planted in enumerate(cells)
        for kind in kinds
        for a, b in planted.pairs[kind]
    }
    reported = {(match.duplicate, owner) for owner, match in found}
    invented = 0
    for _, match in found:
        one, other = words(match.prompt), words(match.duplicate_prompt)
        left, right = 20 * plain_lcs(one, other), 7 * (len(one) + len(other))
        invented += not (left > right or (inclusive and left == right))
    return {
        **taken,
        "planted": len(expected),
        "found": len(expected & reported),
        "others": len(reported - expected),
        "invented": invented,
    }


def dedup(cells: list[Planted]) -> dict[str, Any]:
    """Find which sets of seven prompts to drop."""

    def items() -> Iterator[ComparedSet]:
        for cell, planted in enumerate(cells):
            for start in range(0, len(planted.texts), PROMPTS_OF_A_SET):
                texts = planted.texts[start : start + PROMPTS_OF_A_SET]
                yield ComparedSet(
                    f"{cell} {start}", cell, {f"prompt {n}": text for n, text in enumerate(texts)}
                )

    taken, found = timed_twice(lambda: duplicates(items()))
    expected = {
        f"{cell} {copy // PROMPTS_OF_A_SET * PROMPTS_OF_A_SET}"
        for cell, planted in enumerate(cells)
        for _, copy in planted.pairs["above"]
    }
    dropped = set(found)
    others = len(dropped - expected)
    return {
        **taken,
        "planted": len(expected),
        "found": len(expected & dropped),
        "others": others,
        "invented": others,
    }


def phase(name: str, count: int) -> None:
    """Do one piece of work in this process, and print what came of it."""
    cells = [made_up(count // CELLS + (cell < count % CELLS), cell) for cell in range(CELLS)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = dedup(cells) if name == "dedup" else join(cells, inclusive=name == "join ≥")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(result | {"before": before / 1024, "peak": after / 1024}))


def synthetic(count: int) -> bool:
    fine = True
    for name in ("join >", "join ≥", "dedup"):
        command = [sys.executable, __file__, "--phase", name, "--prompts", str(count)]
        result = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        fine &= result["found"] == result["planted"] and not result["invented"]
        print(
            f"{count:>11,}  {name:<8}"
            + "".join(f"{result[field]:>{width},.{places}f}" for field, width, places in COLUMNS)
        )
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--published", type=Path, default=PUBLISHED)
    parser.add_argument(
        "--sample", type=int, default=3000, help="pairs compared with the plain table"
    )
    parser.add_argument("--prompts", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        phase(options.phase, options.prompts[0])
        return
    if options.published.exists():
        published(options.published, options.sample)
    print(
        f"\nmade-up prompts in {CELLS} cells; `before` and `peak` are MB of memory, without and"
        " with the work;"
    )
    print(
        "`planted` ones are to be found, `others` were not planted, `invented` are not above the"
        " threshold"
    )
    print(
        f"{'prompts':>11}  {'work':<8}"
        + "".join(f"{field:>{width}}" for field, width, _ in COLUMNS)
    )
    fine = [synthetic(count) for count in options.prompts]
    if not all(fine):
        sys.exit("a planted pair was lost, or one was invented")


if __name__ == "__main__":
    main()
