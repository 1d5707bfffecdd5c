"""What so many prompt-sets can decide at a gate, or about a second turn, said before the first
call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt

from opensafeintent.analysis.gate_results import Gate
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


def undecidable_margins(gates: Iterable[Gate], sets: int, confidence: float) -> tuple[Gate, ...]:
    """Return the gates whose margin is too narrow for so many prompt-sets: an unchanged model does
    not pass with a probability of 80 %. The arguments are those of `margins_in_reach`.
    """
    return tuple(
        gate
        for gate in gates
        if gate.kind == "worse" and _least_margin(gate, sets, confidence) > gate.limit
    )


def _least_margin(gate: Gate, sets: int, confidence: float) -> float:
    """Return the least margin that so many prompt-sets can decide."""
    deviation = assumed_deviation(shares=METRICS[gate.metric].is_share)
    return detectable_difference(sets, deviation, confidence=confidence)


_ASSUMED = (
    f"assumed SD of the difference within a prompt-set: {assumed_deviation(shares=True):g} for a"
    f" share, {assumed_deviation(shares=False):g} for a score. opensafeintent sample-size"
    " --margin X --pilot RUN takes the SD of your models"
)


def margins_in_reach(gates: Iterable[Gate], sets: int, confidence: float) -> tuple[str, ...]:
    """Return the margin that so many prompt-sets can decide in each metric, a line each, and a line
    on what they assume.

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
        deviation = assumed_deviation(shares=METRICS[gate.metric].is_share)
        least = _least_margin(gate, sets, confidence)
        needed = sets_needed(gate.limit, deviation, confidence=confidence)
        enough = (
            f"; {needed:,} are needed for {gate.shown}" if needed and least > gate.limit else ""
        )
        lines.append(
            f"{gate.option} {gate.metric}={gate.limit:g}: with {counted(sets, 'prompt-set')}, an"
            " unchanged model passes with a probability of 80 % or more if the margin is"
            f" {gate.in_unit(least, sets)} or more{enough}"
        )
    return (*lines, _ASSUMED) if lines else ()


def second_turn_in_reach(sets: int, epochs: int, models: int) -> str:
    """Return the history effect on safety that so many prompt-sets can detect, in one line.

    A direct reply and a second one are two samples, so without an effect a set's difference has a
    variance of 0.2 / E with E epochs (`_REPLIES_DIFFER`). An effect d that turns a share d of the
    sets from safe to unsafe adds d (1 − d). The number "at best" is of an effect that adds nothing
    (benchmarks/second_turn.py has the power of both).

    Args:
        sets: the number of prompt-sets.
        epochs: how often each prompt is sent.
        models: those that are asked a second message, baselines aside, 1 or more.
    """
    tests = 2 * models
    alone, adjusted = (
        f"{100 * _least_effect(sets, epochs, pairs, of_sets=True):.0f}" for pairs in (1, tests)
    )
    at_best = f"{100 * _least_effect(sets, epochs, 1, of_sets=False):.0f}"
    return (
        f"second turn: with {counted(sets, 'prompt-set')} and {counted(epochs, 'epoch')}, a history"
        f" effect on safety is detected with 80 % power from {alone} points on ({adjusted} with"
        f" {tests} adjusted tests), at best from {at_best} points on"
    )


def _least_effect(sets: int, epochs: int, pairs: int, *, of_sets: bool) -> float:
    """Return the least effect that is detected with 80 % power.

    Args:
        sets, epochs: the plan.
        pairs: tests that are adjusted together.
        of_sets: whether the effect turns some of the sets and adds its own variance.
    """
    low, high = 0.0, 1.0
    while high - low > _PRECISION:
        effect = (low + high) / 2
        share = effect if of_sets else 0.0
        variance = (1 - share) * _REPLIES_DIFFER / epochs + share * (1 - share)
        if detectable_difference(sets, sqrt(variance), pairs=pairs) <= effect:
            high = effect
        else:
            low = effect
    return high


_PRECISION = 1e-4
