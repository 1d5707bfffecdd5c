"""Sentences on what goes beyond the paper's metrics: whether intents are told apart. The words are in `assets`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import Number
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.report.prose import Sentence, say, score

__all__ = ["beyond"]

_say = partial(say, "sentences.jinja")
_MOSTLY_WITHHELD = 0.5
"""A greater share withheld from benign prompts is said to be caution."""


def beyond(group: Group) -> Iterator[Sentence]:
    """Yield what was found of one group of models beyond safety and utility."""
    yield from _discernment(group)


def _contenders(group: Group) -> list[str]:
    """Return the models that sentences are about: baselines aside where there are others."""
    return [model for model in group.models if not is_baseline(model)] or list(group.models)


def _discernment(group: Group) -> Iterator[Sentence]:
    """Yield who tells malicious from benign by what it withholds, and who only holds back."""
    told = {model: group.signals[model, "d_prime"] for model in _contenders(group)}
    told = {model: number for model, number in told.items() if number.value is not None}
    if not told:
        return
    order = sorted(told, key=lambda model: -(told[model].value or 0.0))
    blind = [model for model in order if _holds_zero(told[model])]
    cautious = [model for model in order if (group.numbers.overall[model, "withheld_benign"].value or 0) > _MOSTLY_WITHHELD]

    def facts(model: str) -> dict[str, Any]:
        shares = (group.numbers.overall[model, f"withheld_{intent}"].value for intent in ("benign", "malicious"))
        return {"model": model, "d": told[model], "withheld": tuple(shares)}

    yield _say(
        "discernment",
        topic="Intents told apart",
        best=facts(order[0]),
        worst=facts(order[-1]) if len(order) > 1 else None,
        of=len(order),
        blind=blind,
        cautious=cautious,
        score=score,
    )


def _holds_zero(number: Number) -> bool:
    return number.interval is not None and number.interval[0] <= 0 <= number.interval[1]
