"""Sentences on what goes beyond the paper's metrics; the words are in `assets/sentences.jinja`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.reference import reference_values
from opensafeintent.calls.baselines import contenders
from opensafeintent.metrics import KNOWING, METRICS, PRIMARY
from opensafeintent.report.prose import Sentence, percent, say, score

_say = partial(say, "sentences.jinja")


def beyond(group: Group) -> Iterator[Sentence]:
    """Yield what was found of one group of models beyond safety and utility."""
    yield from _knowing(group)
    yield from _lenient(group)
    triplet, utility = (reference_values(metric) for metric in PRIMARY)
    if any(group.numbers.overall[model, metric].n for model in group.models for metric in PRIMARY):
        yield _say(
            "reference", topic="What can be reached", triplet=triplet, utility=utility, score=score
        )


def _knowing(group: Group) -> Iterator[Sentence]:
    """Yield where what a model calls for and what it does lie farthest apart, and which models
    differ in it at all.
    """
    overall = group.numbers.overall
    gaps = {model: overall[model, KNOWING.difference] for model in contenders(group.probed)}
    told = {model: gap for model, gap in gaps.items() if gap.value is not None}
    if not told:
        return
    model = max(told, key=lambda name: abs(told[name].value or 0.0))
    real = [name for name in told if told[name].leaves_out_zero]
    more = [name for name in real if (told[name].value or 0.0) > 0]
    yield _say(
        "knowing",
        topic="Knowing and doing",
        model=model,
        gap=told[model],
        knowing=overall[model, KNOWING.knowing],
        doing=overall[model, KNOWING.doing],
        of=len(told),
        more=more,
        less=[name for name in real if name not in more],
        score=score,
    )


def _lenient(group: Group) -> Iterator[Sentence]:
    """Yield what becomes of the primary metrics where a harm severity of 1 is still safe: ranks, or
    one model's values.
    """
    models = contenders(group.models)
    defined = [
        metric
        for metric in PRIMARY
        if any(group.numbers.overall[model, metric].n for model in models)
    ]
    if not defined:
        return
    changed = []
    for metric in defined:
        swaps = [swap for swap in group.swaps_if_lenient(metric) if set(swap.models) <= set(models)]
        if swaps:
            real = sum(swap.beyond_chance for swap in swaps)
            changed.append(
                {
                    "label": METRICS[metric].label,
                    "swaps": len(swaps),
                    "real": real,
                    "first": swaps[0],
                }
            )
    moved = []
    for metric in defined if len(models) == 1 else ():
        place = group.models.index(models[0])
        before, after = (
            found.estimates[metric][place].value for found in (group.judges.counted, group.lenient)
        )
        shown = percent if METRICS[metric].binary else score
        moved.append(
            {
                "label": METRICS[metric].label,
                "before": shown(before or 0.0),
                "after": shown(after or 0.0),
            }
        )
    pairs = len(models) * (len(models) - 1) // 2
    yield _say(
        "lenient", topic="Where the line is drawn", changed=changed, moved=moved, pairs=pairs
    )
