"""Every number that tables and figures show, once: metrics of models, and averages over models, in all sets and in strata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isnan
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.metrics import METRICS, SPANS, Ratio
from opensafeintent.statistics import Estimate, Estimates, rounded, wilson
from opensafeintent.statistics.distributions import t_quantile

__all__ = ["AVERAGE", "CELL_METRICS", "STRATUM_METRICS", "Number", "Numbers", "Stratum", "numbers_of", "ranked"]

AVERAGE = "model average"
"""What tables and figures call the mean over models."""

AVERAGE_METHOD = "korn-graubard"

CELL_METRICS = ("triplet_safety", "mean_utility", "mean_safety", "worst_case_utility", "dual_use_utility")
"""Metrics that are told by cell as well."""

STRATUM_METRICS = (
    *CELL_METRICS,
    *("benign_utility", "malicious_utility", "dual_use_safety", "safety_flip", "utility_range", "utility_range_safe_only"),
)

Floats = NDArray[np.float64]
Stratum = tuple[str | None, str | None]
"""Harm domain and task type; None is all of them."""


class Number(Estimate, frozen=True, kw_only=True):
    """One metric of one model, or its average over models; of an average, `n` counts the sets of at least one model."""

    model: str
    metric: str
    stratum: Stratum = (None, None)
    models: int | None = None
    """Of an average: models in which the metric is defined."""
    pooled: float | None = None
    """Of an average: the ratio of the sums over models."""
    bounds: tuple[float, float] | None = None
    """Its value if every missing grade were the worst, and the best."""


def ranked(group: Group, metric: str = "mean_utility") -> list[int]:
    """Return the places of a group's models, the highest value of a metric first, undefined ones last."""
    values = group.ratios[metric].value.values.tolist()
    return sorted(range(len(values)), key=lambda place: (isnan(values[place]), -values[place], place))


class Numbers:
    """The numbers of one group.

    Attributes:
        models: in the order of every table and figure, the highest Mean Utility first.
        averaged: the models that averages are over: baselines are reference points and stay aside.
    """

    def __init__(self, group: Group) -> None:
        self.order = ranked(group)
        self.models = [group.models[place] for place in self.order]
        self.averaged = [model for model in self.models if not is_baseline(model)]
        self.overall = _overall(group, self.order)
        """By (model, metric)."""
        self.averages = _averages(group, {(None, None): np.ones(len(group.dataset), dtype=bool)}, tuple(METRICS))
        """By (metric, stratum)."""
        self.strata, of_strata = _strata(group, self.order)
        """By (model, metric, stratum); an average's model is AVERAGE."""
        self.averages |= of_strata
        labels = group.array.harm_domain.values.tolist(), group.array.task_type.values.tolist()
        self.sets = Counter[Stratum]()
        """Prompt-sets by stratum."""
        for domain, task in zip(*labels, strict=True):
            self.sets.update(((domain, None), (None, task), (domain, task)))

    def every(self) -> Iterator[Number]:
        """Yield every metric of every model, then every average."""
        yield from self.overall.values()
        yield from (number for number in self.averages.values() if number.stratum == (None, None))

    def in_strata(self) -> Iterator[Number]:
        """Yield every number of every stratum, an average after its models."""
        found: dict[tuple[Stratum, str], list[Number]] = {}
        for number in (*self.strata.values(), *self.averages.values()):
            if number.stratum != (None, None):
                found.setdefault((number.stratum, number.metric), []).append(number)
        for numbers in found.values():
            yield from numbers

    def lines(self, metric: str) -> list[Number]:
        """Return a metric of every model in order, and its average where there is one."""
        numbers = [self.overall[model, metric] for model in self.models]
        average = self.averages.get((metric, (None, None)))
        return [*numbers, average] if average else numbers


_KNOWN: WeakKeyDictionary[Group, Numbers] = WeakKeyDictionary()


def numbers_of(group: Group) -> Numbers:
    """Return the numbers of a group, computed once."""
    if group not in _KNOWN:
        _KNOWN[group] = Numbers(group)
    return _KNOWN[group]


def _overall(group: Group, order: Sequence[int]) -> dict[tuple[str, str], Number]:
    found = {}
    for place in order:
        for metric in METRICS:
            low, high = (float(bound[place]) for bound in group.bounds[metric])
            bounds = None if isnan(low) else (rounded(low), rounded(high))
            number = _number(group.models[place], metric, (None, None), group.estimates[metric], place)
            found[number.model, metric] = msgspec.structs.replace(number, bounds=bounds)
    return found


def _number(model: str, metric: str, stratum: Stratum, estimates: Estimates, place: int) -> Number:
    return Number(model=model, metric=metric, stratum=stratum, **msgspec.structs.asdict(estimates.at(place)))


def _strata(
    group: Group, order: Sequence[int]
) -> tuple[dict[tuple[str, str, Stratum], Number], dict[tuple[str, Stratum], Number]]:
    """Return the numbers of every domain, type and cell that has prompt-sets: of each model, and averaged."""
    taxonomy = group.dataset.taxonomy
    domain, task = group.array.harm_domain.values, group.array.task_type.values
    every = np.ones(len(domain), dtype=bool)
    wanted: list[tuple[Stratum, tuple[str, ...]]] = [
        *(((name, None), STRATUM_METRICS) for name in taxonomy.domain_names),
        *(((None, name), STRATUM_METRICS) for name in taxonomy.type_names),
        *((cell, CELL_METRICS) for cell in taxonomy.cells),
    ]
    found: dict[tuple[str, str, Stratum], Number] = {}
    averages: dict[tuple[str, Stratum], Number] = {}
    members: dict[tuple[str, ...], dict[Stratum, NDArray[np.bool_]]] = {}
    for stratum, metrics in wanted:
        within = (domain == stratum[0] if stratum[0] else every) & (task == stratum[1] if stratum[1] else every)
        if not within.any():
            continue
        members.setdefault(metrics, {})[stratum] = within
        for metric, estimates in group.within(within, metrics).items():
            for place in order:
                number = _number(group.models[place], metric, stratum, estimates, place)
                found[number.model, metric, stratum] = number
    for metrics, strata in members.items():
        averages |= _averages(group, strata, metrics)
    return found, averages


def _averages(
    group: Group, strata: dict[Stratum, NDArray[np.bool_]], metrics: Sequence[str]
) -> dict[tuple[str, Stratum], Number]:
    """Return the mean of each metric over the models where it is defined, baselines aside; nothing without such models."""
    places = [place for place, model in enumerate(group.models) if not is_baseline(model)]
    if not places:
        return {}
    return {
        (metric, stratum): _mean_over_models(metric, stratum, group.ratios[metric], places, within)
        for stratum, within in strata.items()
        for metric in metrics
    }


def _mean_over_models(
    metric: str, stratum: Stratum, ratio: Ratio, places: Sequence[int], within: NDArray[np.bool_]
) -> Number:
    top = ratio.numerator.values[places][:, within]
    bottom = ratio.denominator.values[places][:, within]
    total = bottom.sum(axis=1)
    defined = total > 0
    top, bottom, total = top[defined], bottom[defined], total[defined]
    counted = np.flatnonzero((bottom > 0).any(axis=0))
    nothing = Number(
        model=AVERAGE,
        metric=metric,
        stratum=stratum,
        value=None,
        n=len(counted),
        models=len(total),
    )
    if not len(total):
        return nothing
    values = top.sum(axis=1) / total
    mean = float(values.mean())
    residuals = (top - values[:, None] * bottom)[:, counted] * (len(counted) / total)[:, None]
    low, high = _average_interval(mean, residuals.mean(axis=0), len(values), SPANS.get(metric, (0.0, 1.0)))
    return msgspec.structs.replace(
        nothing,
        value=mean,
        interval=(rounded(low), rounded(high)),
        method=AVERAGE_METHOD,
        pooled=float(top.sum()) / float(total.sum()),
    )


def _average_interval(mean: float, residuals: Floats, models: int, span: tuple[float, float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean over models: for these models on other prompt-sets.

    It is Wilson's with the effective sample size of Korn and Graubard (Survey Methodology 24, 1998): as many yes-or-no
    answers as have the variance of the mean, fewer for the degrees of freedom that the number of prompt-sets leaves. A set
    holds at most one independent answer of each model. In simulations of 2 to 20 models with correlated grades it covers 92
    to 99 % from 29 sets on, and from 3 sets on where the mean is between .2 and .8; near 0 and 1 90 % in few sets.

    Args:
        mean: over models.
        residuals: what each prompt-set adds to it, its linear part: (1/M) Σ_m (numerator_mi − v_m · denominator_mi) · N /
            Σ_i denominator_mi for set i, shape (prompt_set,).
        models: where the metric is defined.
        span: least and greatest value that the metric can take.
    """
    least, width = span[0], span[1] - span[0]
    share, sets = (mean - least) / width, len(residuals)
    answers = sets * models
    size = 1.0
    if sets > 1:
        variance = float(residuals @ residuals) / width**2 / (sets - 1) / sets
        size = min(max(share * (1 - share) / variance, 1.0), answers) if variance > 0 else float(answers)
        size *= (t_quantile(0.975, answers - 1) / t_quantile(0.975, sets - 1)) ** 2
    low, high = wilson(min(max(share, 0.0), 1.0), size, continuity=True)
    return least + width * low, least + width * high
