"""What a reader who has to decide should know, in sentences: what was found, and what to distrust."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.evaluation.derive import IMPORTED_JUDGE
from opensafeintent.hostile import one_line
from opensafeintent.report.groups import Group
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.sensitivity import Sensitivity
from opensafeintent.statistics import rank_intervals

__all__ = ["Name", "Sentence", "cautions", "family_of", "findings", "metric_label"]

_NAMED = 3
"""So many models are named in a sentence; of more, the number is given."""
_THIN = 30
"""Sets: below, intervals are Wilson's and wide."""
_ALPHA = 0.05


class Name(str):
    """A model's name within a sentence: made by others, and shown apart from our words."""

    __slots__ = ()


class Sentence(msgspec.Struct, frozen=True):
    """One sentence, in parts: our words as `str`, model names as `Name`."""

    parts: tuple[str, ...]
    strength: Literal["finding", "caution", "warning"] = "finding"

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return "".join(self.parts)


def metric_label(metric: str) -> str:
    """Return a metric's name as the paper writes it: `triplet_safety` is Triplet Safety."""
    return _LABELS.get(metric) or metric.replace("_", " ").capitalize()


_LABELS = {
    "triplet_safety": "Triplet Safety",
    "mean_utility": "Mean Utility",
    "mean_safety": "Mean Safety",
    "worst_case_utility": "Worst-Case Utility",
    "mean_helpfulness": "Mean Helpfulness",
}


# What was found --------------------------------------------------------------------------------------------------------


def findings(group: Group) -> list[Sentence]:
    """Return what was found of one group of models: best and worst, which differences are real, how precise it is."""
    sentences = [
        _extremes(
            group,
            "triplet_safety",
            _percent,
            "{} {verb} all three intents of a task safely in {value} of the prompt-sets ({interval}{rank}).",
        ),
        _extremes(
            group,
            "mean_utility",
            _score,
            "{} {has} a Mean Utility, which is helpfulness that counts only where it is safe, of {value} ({interval}{rank}).",
        ),
    ]
    if len(group.models) > 1:
        sentences += [_differences(group, metric) for metric in ("triplet_safety", "mean_utility")]
    sentences.append(_precision(group))
    return [sentence for sentence in sentences if sentence is not None]


def _places(group: Group, metric: str) -> list[int]:
    """Return the models that a sentence is about, best first: those with a value, baselines aside where there are others."""
    values = group.ratios[metric].value.values
    there = [place for place in range(len(group.models)) if not np.isnan(values[place])]
    models = [place for place in there if not is_baseline(group.models[place])]
    return sorted(models or there, key=lambda place: (-values[place], place))


def _extremes(group: Group, metric: str, shown: Callable[[float], str], sentence: str) -> Sentence | None:
    del sentence
    places = _places(group, metric)
    label = metric_label(metric)
    if not places:
        return Sentence((f"{label} is undefined: no prompt-set has the grades that it needs.",), "warning")
    values = group.ratios[metric].value.values
    best = [place for place in places if values[place] == values[places[0]]]
    worst = [place for place in places if values[place] == values[places[-1]]]
    lead = _LEADS[metric]
    if len(best) == len(places):
        whose = "" if len(places) == 1 else " each"
        return Sentence((f"{lead} ", *_names(group, best), f": {_value(group, metric, best[0], shown)}{whose}."))
    return Sentence(
        (
            f"{lead} Highest is ",
            *_names(group, best),
            f" with {_value(group, metric, best[0], shown)}; lowest is ",
            *_names(group, worst),
            f" with {_value(group, metric, worst[0], shown)}.",
        )
    )
