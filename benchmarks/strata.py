"""Samples of equally many sets of every cell, and shrunken strata, in worlds whose truth is known.

The cells are as large as those of the authors' 700 prompt-sets, their strata those of the 700 and of the 115.

    python benchmarks/strata.py [--studies 1000]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opensafeintent.promptsets import Prompts, PromptSet, cell_shares, drawn
from opensafeintent.statistics import Resamples, estimate
from opensafeintent.statistics.shrinkage import shrunken

Floats = NDArray[np.float64]

SEED = 13
CELLS = (1, 2, 4, 4, 4, 7, 11, 11, 15, 16, 16, 16, 17, 18, 19, 19, *[20] * 26)
"""Prompt-sets of each cell; the first six are one harm domain."""
STRATA = {
    "domains of 700": (120, 119, 118, 115, 106, 100, 22),
    "domains of 115": (24, 22, 16, 16, 15, 12, 10),
    "types of 115": (25, 24, 18, 17, 16, 15),
    "domains of 42": (6,) * 7,
    "cells of 700": CELLS,
    "cells of 115": (*[1] * 4, *[2] * 10, *[3] * 8, *[4] * 8, *[5] * 7),
}
BETWEEN = (0.0, 0.03, 0.07, 0.15, 0.3)
"""Standard deviations of the strata's true values."""
LEVELS = (0.5, 0.6, 0.85, 0.95)
RESAMPLES = 2_000


def values(generator: np.random.Generator, means: Floats, *, binary: bool) -> Floats:
    """Return a value between 0 and 1 for each mean: 0 or 1, or a score."""
    if binary:
        return (generator.random(means.shape) < means).astype(np.float64)
    return generator.beta(2 * means, 2 * (1 - means))


def dataset() -> tuple[PromptSet, ...]:
    """Return prompt-sets in cells of those sizes."""
    prompts = Prompts(benign="b", dual_use="d", malicious="m")
    return tuple(
        PromptSet(id=f"{cell}-{n}", harm_domain=str(cell // 6), task_type=str(cell % 6), underlying_task="t", prompts=prompts)
        for cell, size in enumerate(CELLS)
        for n in range(size)
    )


def samples(studies: int) -> None:
    """How often the weighted interval holds the truth, and how far the value is from it."""
    sets = dataset()
    places = {cell: n for n, cell in enumerate(dict.fromkeys(item.cell for item in sets))}
    sizes = np.array(list(Counter(item.cell for item in sets).values()))
    print("Samples: cells differ, logits with a standard deviation of .8 around that of the level\n")
    print("sample       sets   values  level  covered   width   error    bias")
    for rule, limit in (
        ("per_cell", 1),
        ("per_cell", 3),
        ("per_cell", 5),
        ("webster", 42),
        ("webster", 123),
        ("webster", 200),
    ):
        sample = drawn(sets, limit, rule)  # type: ignore[arg-type]
        shares = cell_shares(sets, sample) if rule == "per_cell" else {}
        weights = np.array([shares.get(item.cell, 1.0) for item in sample])
        at = np.array([places[item.cell] for item in sample])
        resamples = Resamples(len(sample), RESAMPLES)
        for binary in (True, False):
            for level in LEVELS:
                generator = np.random.default_rng([SEED, limit, binary, int(100 * level)])
                logits = np.log(level / (1 - level)) + generator.normal(0, 0.8, (studies, len(places)))
                means = 1 / (1 + np.exp(-logits))
                truth = (means * sizes).sum(axis=1) / sizes.sum()
                drawn_values = values(generator, means[:, at], binary=binary)
                got = estimate(drawn_values * weights, np.tile(weights, (studies, 1)), resamples, binary=binary)
                covered = ((got.low <= truth) & (truth <= got.high)).mean()
                off, width = got.value - truth, (got.high - got.low).mean()
                error = np.sqrt((off**2).mean())
                print(
                    f"{rule:9} {limit:3}  {len(sample):4}   {'0/1   ' if binary else 'scores'}  {level:5.2f} {covered:8.1%} "
                    f"{width:7.3f} {error:7.4f} {off.mean():+7.4f}"
                )


def moved(generator: np.random.Generator, truth: Floats, sizes: Sequence[int], *, binary: bool) -> tuple[Floats, Floats]:
    """Return the raw and the shrunken values of one sample of sets for each row of true values: shape (study, stratum)."""
    raw, squares = np.empty(truth.shape), np.empty(truth.shape)
    for place, size in enumerate(sizes):
        found = values(generator, np.repeat(truth[:, place, None], size, axis=1), binary=binary)
        raw[:, place] = found.mean(axis=1)
        squares[:, place] = ((found - raw[:, place, None]) ** 2).sum(axis=1)
    counts = np.array(sizes, dtype=np.float64)
    centre = (raw * counts).sum(axis=1) / counts.sum()
    return raw, shrunken(raw, centre, squares, np.broadcast_to(counts, raw.shape))


def ratios(raw: Floats, found: Floats, truth: Floats) -> tuple[float, float, int]:
    """Return the mean squared error over the raw values' on average, and for the stratum where that is most."""
    errors = [((part - truth) ** 2).mean(axis=0) for part in (found, raw)]
    each = errors[0] / errors[1]
    return float(errors[0].sum() / errors[1].sum()), float(each.max()), int(each.argmax())


def shrinking(studies: int) -> None:
    """Mean squared errors of shrunken strata."""
    print("\nShrunken strata: mean squared error over that of the raw values; in brackets the stratum where that is most\n")
    print("strata           values  level   " + "   ".join(f"between {spread:.2f}" for spread in BETWEEN) + "    one apart")
    for name, sizes in STRATA.items():
        for binary, level in ((True, 0.6), (True, 0.95), (False, 0.5)):
            cells = []
            for spread in BETWEEN:
                generator = np.random.default_rng([SEED, len(sizes), sum(sizes), binary, int(100 * level), int(100 * spread)])
                truth = np.clip(generator.normal(level, spread, (studies, len(sizes))), 0.005, 0.995)
                overall, worst, _ = ratios(*moved(generator, truth, sizes, binary=binary), truth)
                cells.append(f"{overall:5.2f} ({worst:4.2f})")
            generator = np.random.default_rng([SEED, len(sizes), sum(sizes), binary, int(100 * level)])
            truth = np.full((studies, len(sizes)), level)
            truth[:, int(np.argmin(sizes))] = level - 0.4
            overall, worst, _ = ratios(*moved(generator, truth, sizes, binary=binary), truth)
            cells.append(f"{overall:5.2f} ({worst:4.2f})")
            print(f"{name:15}  {'0/1   ' if binary else 'scores'}  {level:5.2f}  " + "   ".join(cells))
    print("\nOne apart: every stratum has the level, the smallest one .4 less.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    options = parser.parse_args()
    samples(options.studies)
    shrinking(4 * options.studies)


if __name__ == "__main__":
    main()
