"""What was found, in sentences: best and worst, which differences are real, how precise it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from opensafeintent.analysis.groups import Group
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.report.sentences.judging import between_judges, own_noise
from opensafeintent.report.sentences.words import PERCENT, Sentence, listed, percent, precision_in_points, score
from opensafeintent.statistics import rank_intervals

__all__ = ["findings"]

_ALPHA = 0.05


class _Primary(msgspec.Struct, frozen=True):
    """How one of the two primary metrics is told."""

    metric: str
    label: str
    topic: str
    about: str
    shown: Callable[[float], str]
    difference: Callable[[float], str]


def _points(value: float) -> str:
    return f"{100 * value:.1f} points"


_PRIMARIES = (
    _Primary(
        "triplet_safety",
        "Triplet Safety",
        "Safe across intents",
        "the share of tasks answered safely under all three intents",
        percent,
        _points,
    ),
    _Primary(
        "mean_utility",
        "Mean Utility",
        "Useful without harm",
        "helpfulness from 0 to 1 that counts only where the response is safe",
        score,
        score,
    ),
)
"""In the order in which they are told; they are `metrics.PRIMARY`."""


def findings(group: Group) -> list[Sentence]:
    """Return what was found of one group of models: best and worst, which differences are real, how precise it is."""
    sentences = [
        *(_extremes(group, primary) for primary in _PRIMARIES),
        *(_differences(group), _precision(group), between_judges(group), own_noise(group)),
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _contenders(group: Group, metric: str) -> list[int]:
    """Return the models that a sentence is about, best first: those with a value, baselines aside where there are others."""
    values = group.numbers.ratios[metric].value.values
    there = [place for place in range(len(group.models)) if not np.isnan(values[place])]
    models = [place for place in there if not is_baseline(group.models[place])]
    return sorted(models or there, key=lambda place: (-values[place], place))


def _extremes(group: Group, primary: _Primary) -> Sentence:
    """Say who is highest and who is lowest, each with its interval and its rank."""
    places = _contenders(group, primary.metric)
    if not places:
        lacking = "no prompt-set has the three grades that it needs"
        return Sentence((f"{primary.label} is undefined for every model: {lacking}.",), "warning", topic=primary.topic)
    values = group.numbers.ratios[primary.metric].value.values
    best = [place for place in places if values[place] == values[places[0]]]
    worst = [place for place in places if values[place] == values[places[-1]]]
    lead = f"{primary.label}, {primary.about}, "
    if len(best) == len(places):
        each = "is" if len(places) == 1 else "is the same"
        parts = (lead, f"{each} for ", *_names(group, best), f": {_value(group, primary, best[0])}.")
        return Sentence(parts, topic=primary.topic)
    return Sentence(
        (
            f"{lead}is highest for ",
            *_names(group, best),
            f": {_value(group, primary, best[0])}. It is lowest for ",
            *_names(group, worst),
            f": {_value(group, primary, worst[0])}.",
        ),
        topic=primary.topic,
    )


def _names(group: Group, places: Sequence[int]) -> tuple[str, ...]:
    return listed(group.models[place] for place in places)


def _value(group: Group, primary: _Primary, place: int) -> str:
    found = group.numbers.estimates[primary.metric][place]
    remarks = []
    if found.interval is not None:
        low, high = map(primary.shown, found.interval)
        remarks.append(f"95{PERCENT} interval {low.removesuffix(PERCENT)} to {high}")
    if len(group.models) > 1:
        first, last = rank_intervals(group.numbers.comparisons[primary.metric])[place]
        remarks.append(f"rank {first}{f'–{last}' if last != first else ''} of {len(group.models)}")
    value = primary.shown(found.value or 0.0)
    return f"{value} ({', '.join(remarks)})" if remarks else value


def _pairs(group: Group, metric: str) -> list[tuple[int, int]]:
    p = group.numbers.comparisons[metric].p_holm
    models = range(len(group.models))
    return [(a, b) for a in models for b in models if a < b and not np.isnan(p[a, b])]


def _differences(group: Group) -> Sentence | None:
    """Say how many pairs differ by more than chance, and from whom the leader cannot be told apart."""
    parts: list[str] = []
    for primary in _PRIMARIES:
        pairs = _pairs(group, primary.metric)
        if len(pairs) == 1:
            parts += _one_difference(group, primary, *pairs[0])
        elif pairs:
            p = group.numbers.comparisons[primary.metric].p_holm
            real = sum(bool(p[pair] < _ALPHA) for pair in pairs)
            parts.append(f"In {primary.label} {real} of {len(pairs)} pairs of models differ by more than chance")
            parts += _leader(group, primary)
    if not parts:
        return None
    return Sentence(
        (*parts, f"Tests are paired, and corrected by Holm’s method for all pairs, at 5{PERCENT}."), topic="Real differences"
    )


def _leader(group: Group, primary: _Primary) -> list[str]:
    p = group.numbers.comparisons[primary.metric].p_holm
    leader = _contenders(group, primary.metric)[0]
    others = [place for place in range(len(group.models)) if place != leader and not np.isnan(p[leader, place])]
    unclear = [place for place in others if p[leader, place] >= _ALPHA]
    name = _names(group, [leader])
    if len(unclear) == len(others):
        return ["; the highest, ", *name, ", is told apart from none. "]
    if unclear:
        return ["; the highest, ", *name, ", is not told apart from ", *_names(group, unclear), ". "]
    return ["; the highest, ", *name, ", is told apart from every other. "]


def _one_difference(group: Group, primary: _Primary, a: int, b: int) -> list[str]:
    comparison = group.numbers.comparisons[primary.metric]
    if comparison.difference[a, b] < 0:
        a, b = b, a
    p = float(comparison.p_holm[a, b])
    low, high = (primary.difference(float(bound[a, b])) for bound in (comparison.low, comparison.high))
    how = f"95{PERCENT} interval {low.removesuffix(' points')} to {high}, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
    verdict = "more than chance explains" if p < _ALPHA else "no more than chance may explain"
    return [
        f"In {primary.label} ",
        *_names(group, [a]),
        " exceeds ",
        *_names(group, [b]),
        f" by {primary.difference(float(comparison.difference[a, b]))} ({how}), {verdict}. ",
    ]


def _precision(group: Group) -> Sentence | None:
    """Say how precise so many sets are, and which difference they can be expected to find."""
    counted = int(np.median([found.n for found in group.numbers.estimates["triplet_safety"]]))
    if not counted:
        return None
    sets = f"{counted:,} prompt-set{'s' if counted != 1 else ''}"
    text = f"With {sets}, a share near 60{PERCENT} is known to about ±{precision_in_points(counted):.2g} points."
    if (detectable := _detectable(group)) is not None:
        text += f" Two of these models have to differ by about {detectable} for the test to find it four times in five."
    return Sentence((text,), topic="Precision")


def _detectable(group: Group) -> str | None:
    found = []
    for primary in _PRIMARIES:
        of_pairs = group.numbers.comparisons[primary.metric].detectable
        of_pairs = of_pairs[~np.isnan(of_pairs)]
        if len(of_pairs):
            found.append(f"{primary.difference(float(np.median(of_pairs)))} of {primary.label}")
    return " or ".join(found) or None
