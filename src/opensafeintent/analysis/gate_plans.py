"""What so many prompt-sets can decide at a gate, or about a second turn, said before the first
call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt

from opensafeintent.analysis.gates import Gate
from opensafeintent.errors import counted
from opensafeintent.metrics import METRICS
from opensafeintent.statistics.comparisons import (
    assumed_deviation,
    detectable_difference,
    sets_needed,
)
from opensafeintent.statistics.thresholds import fewest_to_meet

_REPLIES_DIFFER = 0.2
"""Share of prompt-sets in which two replies of a model to one prompt differ in safety: a plan's
assumption. With one reply in either arm it is the variance of a set's difference.
"""


def out_of_reach(sets: Mapping[Gate, int], confidence: float, epochs: int) -> tuple[str, ...]:
    """Return the thresholds that no outcome with so many prompt-sets can show to be met, a line
    each. A margin is no threshold: a model that has become better may keep to each.

    Args:
        sets: the number of prompt-sets of each threshold.
        confidence: of the interval that has to lie on one side of the limit.
        epochs: how often each prompt is sent.
    """
    lines = []
    for gate, most in sets.items():
        if gate.kind == "worse":
            continue
        span, exact = METRICS[gate.metric].span, gate.is_exact(epochs)
        fewest = fewest_to_meet(gate.limit, gate.side, span, confidence, exact=exact)
        if 0 < most < fewest:
            lines.append(
                f"{gate.option} {gate.metric}={gate.limit:g}: {counted(most, 'prompt-set')} cannot"
                f" show it, however they turn out; {fewest:,} are needed at {100 * confidence:g} %"
            )
    return tuple(lines)


def margins_in_reach(gates: Iterable[Gate], sets: int, confidence: float) -> tuple[str, ...]:
    """Return the margin that so many prompt-sets can decide in each metric, a line each.

    A model that has not changed passes with a probability of 80 % if half of the interval, and what
    the power adds, is within the margin. That is `detectable_difference` of the margin.

    Args:
        gates: those of `--fail-if-worse` are used.
        sets: the number of prompt-sets.
        confidence: of the interval of the change.
    """
    lines = []
    for gate in gates:
        if gate.kind != "worse":
            continue
        metric = METRICS[gate.metric]
        deviation = assumed_deviation(shares=metric.is_share)
        least = detectable_difference(sets, deviation, confidence=confidence)
        planned = f"{gate.option} {gate.metric}={gate.limit:g}: with {counted(sets, 'prompt-set')}"
        if least <= gate.limit:
            lines.append(f"{planned}, an unchanged model passes with a probability of 80 % or more")
            continue
        needed = sets_needed(gate.limit, deviation, confidence=confidence)
        enough = f"; {needed:,} are needed for {gate.shown}" if needed else ""
        lines.append(
            f"{planned}, an unchanged model passes with a probability of 80 % only if the margin is"
            f" {gate.in_unit(least, sets)} or more{enough}"
        )
    return tuple(lines)


def second_turn_in_reach(sets: int, epochs: int, models: int) -> str:
    """Return the history effect on safety that so many prompt-sets can detect, in one line.

    A direct reply and a second one are two samples, so a set's difference has a variance of 0.2
    with one epoch (`_REPLIES_DIFFER`), and of 0.2 / E with E.

    Args:
        sets: the number of prompt-sets.
        epochs: how often each prompt is sent.
        models: those that are asked a second message, baselines aside, 1 or more.
    """
    deviation = sqrt(_REPLIES_DIFFER / epochs)
    tests = 2 * models
    alone, adjusted = (
        f"{100 * detectable_difference(sets, deviation, pairs=pairs):.0f}" for pairs in (1, tests)
    )
    return (
        f"second turn: {counted(sets, 'prompt-set')} and {counted(epochs, 'epoch')} have"
        f" 80 % power to detect a history effect on safety of {alone} points, or {adjusted} points"
        f" with {tests} adjusted tests"
    )
