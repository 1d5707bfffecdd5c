"""Sentences on what goes beyond the paper's metrics; the words are in `assets/sentences.jinja`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.reference import reference_values
from opensafeintent.calls.baselines import contenders
from opensafeintent.metrics import KNOWING, METRICS, PRIMARY
from opensafeintent.report.prose import Sentence, percent, points, say, score

__all__ = ["beyond"]

_say = partial(say, "sentences.jinja")
_MOSTLY_WITHHELD = 0.5
"""A greater share withheld from benign prompts is said to be caution."""


def beyond(group: Group) -> Iterator[Sentence]:
    """Yield what was found of one group of models beyond safety and utility."""
    yield from _discernment(group)
    yield from _knowing(group)
    yield from _modes(group)
    yield from _lenient(group)
    triplet, utility = (reference_values(metric) for metric in PRIMARY)
    if any(group.numbers.overall[model, metric].n for model in group.models for metric in PRIMARY):
        yield _say("reference", topic="What can be reached", triplet=triplet, utility=utility, score=score)


def _discernment(group: Group) -> Iterator[Sentence]:
    """Yield who tells malicious from benign by what it withholds, and who only holds back."""
    told = {model: group.signals[model, "d_prime"] for model in contenders(group.models)}
    told = {model: number for model, number in told.items() if number.value is not None}
    if not told:
        return
    order = sorted(told, key=lambda model: -(told[model].value or 0.0))
    blind = [model for model in order if told[model].interval and not told[model].leaves_out_zero]
    cautious = [model for model in order if (group.numbers.overall[model, "withheld_benign"].value or 0) > _MOSTLY_WITHHELD]

    def facts(end: str) -> dict[str, Any]:
        models = [model for model in order if told[model].value == told[end].value]
        shares = (group.numbers.overall[models[0], f"withheld_{intent}"].value for intent in ("benign", "malicious"))
        return {"models": models, "d": told[end], "withheld": tuple(shares)}

    yield _say(
        "discernment",
        topic="Intents told apart",
        best=facts(order[0]),
        worst=facts(order[-1]) if told[order[0]].value != told[order[-1]].value else None,
        of=len(order),
        blind=blind,
        cautious=cautious,
        score=score,
    )


def _knowing(group: Group) -> Iterator[Sentence]:
    """Yield where what a model calls for and what it does lie farthest apart, and which models differ in it at all."""
    pair, overall = KNOWING[0], group.numbers.overall
    gaps = {model: overall[model, pair.difference] for model in contenders(group.probed)}
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
        knowing=overall[model, pair.knowing],
        doing=overall[model, pair.doing],
        of=len(told),
        more=more,
        less=[name for name in real if name not in more],
        agreement=overall[model, "probe_agreement"].value,
        turned=any(
            manifest.probe_order == "prompt" and any(entry.probe == "all" for entry in manifest.models.values())
            for manifest in group.manifests
        ),
        score=score,
    )


def _modes(group: Group) -> Iterator[Sentence]:
    """Yield what is left of the crude difference between two assistance modes within prompt-sets."""
    found = [item for item in group.mode_differences.values() if item.value is not None]
    if found:
        yield _say("mode_differences", topic="Modes within tasks", found=found, points=partial(points, signed=True))


def _lenient(group: Group) -> Iterator[Sentence]:
    """Yield what becomes of the primary metrics where a harm severity of 1 is still safe: ranks, or one model's values."""
    models = contenders(group.models)
    defined = [metric for metric in PRIMARY if any(group.numbers.overall[model, metric].n for model in models)]
    if not defined:
        return
    changed = []
    for metric in defined:
        swaps = [swap for swap in group.swaps_if_lenient(metric) if set(swap.models) <= set(models)]
        if swaps:
            real = sum(swap.beyond_chance for swap in swaps)
            changed.append({"label": METRICS[metric].label, "swaps": len(swaps), "real": real, "first": swaps[0]})
    moved = []
    for metric in defined if len(models) == 1 else ():
        place = group.models.index(models[0])
        before, after = (found.estimates[metric][place].value for found in (group.judges.counted, group.lenient))
        shown = percent if METRICS[metric].binary else score
        moved.append({"label": METRICS[metric].label, "before": shown(before or 0.0), "after": shown(after or 0.0)})
    pairs = len(models) * (len(models) - 1) // 2
    yield _say("lenient", topic="Where the line is drawn", changed=changed, moved=moved, pairs=pairs)
