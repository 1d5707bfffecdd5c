"""The results by each judge alone, and the panel's beside them: who is where, and who changes places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import isnan
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import comparisons_of, estimates_of
from opensafeintent.grades import GradeRow, to_array
from opensafeintent.metrics import METRICS, PRIMARY, Grades
from opensafeintent.statistics import SIGNIFICANCE, Comparison, Estimate, rank_intervals
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = ["PANEL", "SHOWN", "Pair", "Ranking", "Swap", "judges_of_panel", "ranking", "rankings", "swaps"]

PANEL = "panel"
"""What tables and figures call the panel of all judges."""

SHOWN = ("mean_safety", "triplet_safety", "mean_utility", "worst_case_utility")
"""Metrics that are told by judge; all of them need core responses only."""

Pair = tuple[int | None, int | None]
"""Helpfulness and harm severity of one response."""


class Ranking(NamedTuple):
    """The models of a group as one judge, or the panel, has them."""

    name: str
    estimates: Mapping[str, Sequence[Estimate]]
    """By metric of SHOWN, one of each model of the group."""
    comparisons: Mapping[str, Comparison]
    """By metric of PRIMARY; empty where models were not compared."""

    def rank(self, metric: str, index: int, among: Sequence[int] | None = None) -> int | None:
        """Return a model's rank, 1 for the highest value, among all models or some of them; equal values share one."""
        values = [estimate.value for estimate in self.estimates[metric]]
        own = values[index]
        if own is None:
            return None
        others = values if among is None else [values[other] for other in among]
        return 1 + sum(value is not None and value > own + 1e-9 for value in others)

    def rank_interval(self, metric: str, index: int) -> tuple[int, int] | None:
        """Return the ranks that the paired tests leave open to a model."""
        if not self.estimates[metric][index].n:
            return None
        return rank_intervals(self.comparisons[metric])[index]


def judges_of_panel(group: Group) -> tuple[str, ...]:
    """Return the judges that graded responses beside one another; none where every response has one judge."""
    together = {judge for rows in group.rows.values() for row in rows if len(row.by_judge) > 1 for judge in row.by_judge}
    return tuple(sorted(together))


_KNOWN: WeakKeyDictionary[Group, list[Ranking]] = WeakKeyDictionary()


def rankings(group: Group) -> list[Ranking]:
    """Return the ranking by each judge of a panel, and by the panel itself, last; nothing without a panel."""
    if group not in _KNOWN:
        judges = judges_of_panel(group)
        found = [ranking(group, judge, _grades_of(judge)) for judge in judges]
        panel = Ranking(PANEL, group.numbers.estimates, group.numbers.comparisons)
        _KNOWN[group] = [*found, panel] if judges else []
    return _KNOWN[group]


def _grades_of(judge: str) -> Callable[[GradeRow], Pair]:
    return lambda row: row.by_judge.get(judge, (None, None))


def ranking(group: Group, name: str, grades: Callable[[GradeRow], Pair], *, compared: bool = True) -> Ranking:
    """Rank a group's models under other grades of their responses than those that count.

    Args:
        group: the models.
        name: what the ranking is called.
        grades: of each response.
        compared: whether every two models are compared.
    """
    rows = [
        msgspec.structs.replace(row, helpfulness=pair[0], harm_severity=pair[1])
        for model in group.models
        for row in group.rows[model]
        if row.variant in CORE_VARIANTS
        for pair in (grades(row),)
    ]
    array = Grades(to_array(rows, group.dataset, group.models))
    ratios = {metric: METRICS[metric].ratio(array) for metric in SHOWN}
    resamples = group.numbers.resamples
    primary = {metric: ratios[metric] for metric in PRIMARY}
    return Ranking(name, estimates_of(ratios, resamples), comparisons_of(primary, resamples) if compared else {})


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """Two models that two judges put in opposite orders."""

    metric: str
    judges: tuple[str, str]
    models: tuple[str, str]
    """The first is above the second by the first judge, below it by the second."""
    size: float
    """The smaller of the two differences."""
    beyond_chance: bool
    """Whether both judges' differences are (5 %, corrected over all pairs)."""


def swaps(group: Group, metric: str) -> list[Swap]:
    """Return the pairs of models that two judges of the panel order differently, the widest apart first."""
    judges = [found for found in rankings(group) if found.name != PANEL]
    found = [
        swap
        for one, other in combinations(judges, 2)
        for a, b in combinations(range(len(group.models)), 2)
        for swap in _swap(group, metric, one, other, a, b)
    ]
    return sorted(found, key=lambda swap: (not swap.beyond_chance, -swap.size))


def _swap(group: Group, metric: str, one: Ranking, other: Ranking, a: int, b: int) -> list[Swap]:
    values = [[judge.estimates[metric][index].value for index in (a, b)] for judge in (one, other)]
    differences = [float("nan") if first is None or second is None else round(first - second, 9) for first, second in values]
    if any(isnan(difference) for difference in differences) or differences[0] * differences[1] >= 0:
        return []
    p = [float(judge.comparisons[metric].p_holm[a, b]) for judge in (one, other)]
    first, second = (a, b) if differences[0] > 0 else (b, a)
    return [
        Swap(
            metric=metric,
            judges=(one.name, other.name),
            models=(group.models[first], group.models[second]),
            size=min(abs(difference) for difference in differences),
            beyond_chance=bool(np.less(p, SIGNIFICANCE).all()),
        )
    ]
