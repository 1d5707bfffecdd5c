"""Boundaries of group-sequential designs: how much must be seen at each look so that all looks together err at most α.

Error is spent over the looks (Lan and DeMets, Biometrika 70, 1983) by the family of Hwang, Shih and DeCani (Statistics in
Medicine 9, 1990). What discrete counts leave unspent at a look is there at the next one. Each boundary is one-sided and is
found as if the other did not exist, so that its error holds whether or not the other one is obeyed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import erfc, expm1, inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["GAMMA", "Boundary", "binomial_boundary", "crossings", "error_spent", "looks_at", "normal_boundary"]

Floats = NDArray[np.float64]

GAMMA = -2.0
"""Of the spending function: of a one-sided 5 %, 0.08 % is spent at the first look of 20, 1.3 % by the middle."""
_EXACT = 1e-12
"""What sums of probabilities may be off by."""
_FARTHEST = 8.0
"""Standard deviations below 0 beyond which a normal path is not followed."""
_POINTS = 401
"""Of the grid on which a normal path is followed: quantiles are right to four decimals."""


def looks_at(sets: int, looks: int) -> tuple[int, ...]:
    """Return after how many of `sets` prompt-sets each of `looks` looks is taken, in steps as equal as can be."""
    return tuple((2 * sets * look + looks) // (2 * looks) for look in range(1, looks + 1))


def error_spent(time: float, alpha: float) -> float:
    """Return how much of `alpha` may be spent by `time`, the share of the planned sets: A(t) = α(1 − e^−γt)/(1 − e^−γ)."""
    return alpha * expm1(-GAMMA * time) / expm1(-GAMMA)


class Boundary(NamedTuple):
    """A one-sided upper boundary, a value for each look."""

    at: tuple[float, ...]
    """Reached or passed, it is crossed; infinite where it cannot be."""
    crossed: tuple[float, ...]
    """Probability of having crossed it by then, where the truth is the value tested."""


@lru_cache(maxsize=4096)
def _binomial(trials: int, p: float) -> Floats:
    """Return the probability of 0 … `trials` successes."""
    successes = np.arange(trials + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, trials + 1)))))
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = logs[-1] - logs - logs[::-1]
        density: Floats = np.exp(ways + successes * np.log(p) + (trials - successes) * np.log1p(-p))
    return density


def binomial_boundary(counts: Sequence[int], allowed: Sequence[float], p: float, kept: Sequence[float] = ()) -> Boundary:
    """Return how many successes cross at each look, exactly: the fewest whose error stays within what is allowed.

    Args:
        counts: trials by each look, cumulative.
        allowed: error that may be spent by each look, cumulative.
        p: the true share under which the error is counted, between 0 and 1.
        kept: the boundary at the first looks, where it was fixed before.
    """
    path = np.ones(1)
    spent, before = 0.0, 0
    at: list[float] = []
    crossed: list[float] = []
    for look, (count, most) in enumerate(zip(counts, allowed, strict=True)):
        path = np.convolve(path, _binomial(count - before, p))
        before = count
        if look < len(kept):
            first = len(path) if kept[look] > len(path) else int(kept[look])
        else:
            beyond = np.cumsum(path[::-1])[::-1]  # falls with the number of successes
            first = int((beyond + spent > most + _EXACT).sum())
        spent += float(path[first:].sum())
        at.append(float(first) if first <= count else inf)
        crossed.append(spent)
        path = path[:first] if first else np.zeros(1)
    return Boundary(tuple(at), tuple(crossed))


def crossings(counts: Sequence[int], lower: Sequence[float], upper: Sequence[float], p: float) -> tuple[Floats, Floats]:
    """Return the probability of stopping below and above at each look, exactly: two arrays of shape (look,).

    Args:
        counts: trials by each look, cumulative.
        lower: successes at which, or below which, a path stops; −∞ where it cannot.
        upper: successes from which on a path stops; ∞ where it cannot.
        p: the true share.
    """
    path = np.ones(1)
    before = 0
    below, above = np.zeros(len(counts)), np.zeros(len(counts))
    for look, (count, low, high) in enumerate(zip(counts, lower, upper, strict=True)):
        path = np.convolve(path, _binomial(count - before, p))
        before = count
        successes = np.arange(len(path))
        below[look], above[look] = path[successes <= low].sum(), path[successes >= high].sum()
        path = np.where((successes <= low) | (successes >= high), 0.0, path)
    return below, above


def _upper_tail(z: Floats) -> Floats:
    return np.array([0.5 * erfc(each) for each in (z / sqrt(2)).tolist()])


@lru_cache(maxsize=4096)
def normal_boundary(information: tuple[float, ...], allowed: tuple[float, ...]) -> Boundary:
    """Return the standard normal quantile that crosses at each look.

    The path of sums has independent normal increments, whose density is carried from look to look by numerical integration
    (Armitage, McPherson and Rowe, Journal of the Royal Statistical Society A 132, 1969).

    Args:
        information: by each look, cumulative: proportional to the variance of the sum.
        allowed: error that may be spent by each look, cumulative.
    """
    places, density = np.zeros(1), np.ones(1)  # the density times the width of its step
    spent, before = 0.0, 0.0
    at: list[float] = []
    crossed: list[float] = []
    for reached, most in zip(information, allowed, strict=True):
        if reached <= before or most <= spent:
            at.append(inf)
            crossed.append(spent)
            continue
        step, scale = sqrt(reached - before), sqrt(reached)
        edge = _edge(places, density, step, scale, most - spent)
        spent += _beyond(places, density, step, edge)
        at.append(edge / scale)
        crossed.append(spent)
        grid = np.linspace(-_FARTHEST * scale, edge, _POINTS)
        weights = np.full(_POINTS, 2.0)  # Simpson's rule
        weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
        kernel = np.exp(-0.5 * ((grid[:, None] - places) / step) ** 2) / (step * sqrt(2 * np.pi))
        density = kernel @ density * weights * (grid[1] - grid[0]) / 3
        places, before = grid, reached
    return Boundary(tuple(at), tuple(crossed))


def _beyond(places: Floats, density: Floats, step: float, edge: float) -> float:
    """Return the probability that a normal step leads from a path's places beyond an edge."""
    return float(density @ _upper_tail((edge - places) / step))


def _edge(places: Floats, density: Floats, step: float, scale: float, error: float) -> float:
    """Return the edge beyond which a step leads with probability `error`, or hardly less."""
    low, high = -_FARTHEST * scale, _FARTHEST * scale
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _beyond(places, density, step, middle) > error else (low, middle)
    return high
