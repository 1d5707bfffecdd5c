"""How often do the intervals of history effects cover the truth, and what does a plan detect?

Draws a direct and a second reply to each prompt-set, once or in three epochs, from models that
ignore the first turn, that are locked in or opened up in some sets, or a little in all. Each set
has a chance of its own; a reply is safe or not, or has one of four utilities. Every simulation goes
through `compare_pairs`, as a report does.

    python benchmarks/second_turn.py [--simulations 4000]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics.comparisons import compare_pairs
from opensafeintent.statistics.intervals import make_parts

Floats = NDArray[np.float64]
SIZES = (12, 20, 42, 115, 700)
EPOCHS = (1, 3)
TRUTH_DRAWS = 1_000_000


class Model(NamedTuple):
    """A model by the chances that it has in a set directly, and after the first turn."""

    name: str
    direct: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    after: Callable[[np.random.Generator, Floats], Floats]


def _vary(g: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return g.beta(0.7, 0.3, shape)


def _nearly_sure(g: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.where(g.random(shape) < 0.98, 1.0, 0.5)


def _some(share: float, chance: float) -> Callable[[np.random.Generator, Floats], Floats]:
    """Return a first turn that gives a share of the sets another chance."""
    return lambda g, before: np.where(g.random(before.shape) < share, chance, before)


MODELS = (
    Model("ignores the first turn", _vary, lambda g, before: before),
    Model("ignores it, nearly sure", _nearly_sure, lambda g, before: before),
    Model("locked in in a tenth", _vary, _some(0.1, 0.0)),
    Model("locked in in a fiftieth, nearly sure", _nearly_sure, _some(0.02, 0.0)),
    Model("opened up in a third", _vary, _some(0.3, 1.0)),
    Model("lower everywhere", _vary, lambda g, before: before * 0.7),
    Model("refuses afterwards", _vary, lambda g, before: before * 0.0),
)


def means(g: np.random.Generator, chances: Floats, epochs: int, levels: int) -> Floats:
    """Return the mean over epochs of the replies to each set: safe or not with one level, or a
    utility with three.
    """
    return g.binomial(levels * epochs, chances) / (levels * epochs)


def cover(
    model: Model, sets: int, epochs: int, levels: int, simulations: int, seed: int
) -> tuple[float, float, float]:
    """Return how often the interval covers the truth, how often it leaves 0 out, and its half
    width.
    """
    g = np.random.default_rng(seed)
    many = model.direct(g, (TRUTH_DRAWS,))
    truth = float((model.after(g, many) - many).mean())
    before = model.direct(g, (simulations, sets))
    after = model.after(g, before)
    paired = compare_pairs(
        make_parts(means(g, before, epochs, levels)),
        make_parts(means(g, after, epochs, levels)),
        family=np.zeros(simulations, dtype=bool),
    )
    covered = (paired.low <= truth + 1e-9) & (truth - 1e-9 <= paired.high)
    found = (paired.low > 0) | (paired.high < 0)
    half = (paired.high - paired.low).mean() / 2
    return float(covered.mean()), float(found.mean()), float(half)


def power(sets: int, epochs: int, effect: float, simulations: int) -> float:
    """Return how often an effect is found that turns sets from any chance to 0, if two replies to
    one prompt differ in 20 % of the sets.
    """
    g = np.random.default_rng(11)
    high = 0.5 + np.sqrt(0.25 - 0.1)  # 2 p (1 − p) = 0.2
    before = np.where(g.random((simulations, sets)) < 0.9, high, 1 - high)
    turned = g.random((simulations, sets)) < effect / (0.9 * high + 0.1 * (1 - high))
    paired = compare_pairs(
        make_parts(means(g, before, epochs, 1)),
        make_parts(means(g, np.where(turned, 0.0, before), epochs, 1)),
        family=np.zeros(simulations, dtype=bool),
    )
    return float((paired.high < 0).mean())


def main() -> None:
    """Print coverage by size, and the power of the plan's effects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    simulations = parser.parse_args().simulations
    print("coverage, %: least over models; false effects of models that ignore the first turn, %")
    for sets, epochs in product(SIZES, EPOCHS):
        lines = [
            (model, cover(model, sets, epochs, levels, simulations, 100 * number + levels))
            for number, model in enumerate(MODELS)
            for levels in (1, 3)
        ]
        least, worst = min((result[0], model.name) for model, result in lines)
        wrong = max(result[1] for model, result in lines if model.name.startswith("ignores"))
        half = lines[0][1][2]
        print(
            f"{sets:4} sets, {epochs} epochs: {100 * least:5.1f} ({worst}), false"
            f" {100 * wrong:.1f}, half-width of safety {half:.3f}"
        )
    for sets, epochs, effect in (
        *((42, 1, 0.21), (42, 1, 0.27), (42, 3, 0.14), (42, 3, 0.23)),
        *((115, 1, 0.12), (115, 1, 0.15), (700, 1, 0.048), (700, 1, 0.052)),
    ):
        found = 100 * power(sets, epochs, effect, simulations)
        print(
            f"{sets:4} sets, {epochs} epochs: an effect of {effect:.3f} is found in {found:.0f} %"
        )


if __name__ == "__main__":
    main()
