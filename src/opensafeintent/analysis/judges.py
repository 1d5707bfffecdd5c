"""The results of a cohort of models by judge: by each judge alone, by the judges' average and by
the panel; the pairs of models that judges order differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.estimates import MetricEstimates, comparisons_of, estimates_of
from opensafeintent.analysis.judge_agreement import (
    JudgeAgreement,
    Noise,
    agreement_of,
    noise_of,
)
from opensafeintent.analysis.judge_shift import JudgeShift, judge_shifts
from opensafeintent.equations import Grades, Ratio
from opensafeintent.evaluation.manifest import MOST_JUDGES
from opensafeintent.evaluation.regrade import Regrade
from opensafeintent.grades import PANEL, to_array
from opensafeintent.labelled import Labelled
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import Comparison, Estimate, rank_intervals
from opensafeintent.statistics.missing import extreme_ratios
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import CORE_VARIANTS, METRIC_GRADES, SCALES

JUDGE_AVERAGE = "judge_average"
"""The name of the ranking by the mean over judges."""

SHOWN = ("mean_safety", "triplet_safety", "mean_utility", "worst_case_utility")
"""Metrics that are shown by judge; all of them need core responses only."""


class Ranking(NamedTuple):
    """The models of a group as one judge, or the panel, has them."""

    name: str
    ratios: Mapping[str, Ratio]
    """By metric of SHOWN."""
    estimates: Mapping[str, Sequence[Estimate]]
    """By metric of SHOWN, one of each model of the group."""
    comparisons: Mapping[str, Comparison]
    """By metric of PRIMARY."""

    def rank(self, metric: str, index: int) -> int | None:
        """Return a model's rank, 1 for the highest value; equal values share one."""
        values = [estimate.value for estimate in self.estimates[metric]]
        own_value = values[index]
        if own_value is None:
            return None
        return 1 + sum(value is not None and value > own_value + 1e-9 for value in values)

    def rank_interval(self, metric: str, index: int) -> tuple[int, int] | None:
        """Return a model's interval of ranks from the paired tests of all models; None if it has no
        value.
        """
        return rank_intervals(self.comparisons[metric])[index]


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


class JudgeResults:
    """The judges of a cohort of models, and the results according to each.

    Args:
        estimates: of the models, by the grades that count.
        dataset: the prompt-sets.
        rows: every response with its grades, by model.
        regrades: by model, responses that were graded twice.
        named: the judges in the order in which the runs name them.
    """

    def __init__(
        self,
        estimates: MetricEstimates,
        dataset: Dataset,
        rows: Mapping[str, Sequence[GradedResponse]],
        regrades: Mapping[str, Sequence[Regrade]],
        named: Sequence[str] = (),
    ) -> None:
        self._estimates = estimates
        self._dataset = dataset
        self._rows = rows
        self._regrades = regrades
        self._named = named

    @property
    def rows(self) -> Iterator[GradedResponse]:
        """Every response with its grades."""
        return (row for rows in self._rows.values() for row in rows)

    @cached_property
    def panel(self) -> tuple[str, ...]:
        """The judges that graded the same responses; none if every response has one judge."""
        together = {judge for row in self.rows if len(row.by_judge) > 1 for judge in row.by_judge}
        return tuple(sorted(together))

    @property
    def counted(self) -> Ranking:
        """The ranking by the grades that count: the panel's, if there is one."""
        return Ranking(
            PANEL, self._estimates.ratios, self._estimates.by_metric, self._estimates.comparisons
        )

    @cached_property
    def by_judge(self) -> list[Ranking]:
        """The ranking by each judge of a panel alone; none without a panel."""
        return [self._by(judge) for judge in self.panel]

    @cached_property
    def graders(self) -> list[Ranking]:
        """The rankings by each judge, by the judges' average, and by the panel; none without a
        panel.
        """
        return [*self.by_judge, self._average(), self.counted] if self.panel else []

    def _average(self) -> Ranking:
        """Rank by the mean of each judge's own metric, whose level, unlike a panel's, does not
        depend on how many they are.

        A judge that graded nothing of a model is left out of its mean.
        """
        ratios = {
            metric: _mean_ratio([ranking.ratios[metric] for ranking in self.by_judge])
            for metric in SHOWN
        }
        return ranking_of(JUDGE_AVERAGE, ratios)

    @cached_property
    def agreements(self) -> list[JudgeAgreement]:
        """Agreement of every two judges, and of all if there are three or more.

        Refusals that were classified without a judge are left out.
        """
        rows = sorted(
            (row for row in self.rows if not row.refused and len(row.by_judge) > 1),
            key=lambda row: row.set_id,
        )
        if not rows:
            return []
        sample = Sample([row.set_id for row in rows])
        pairs = np.array(
            [
                [[row.grade(what, judge) for what in METRIC_GRADES] for judge in self.panel]
                for row in rows
            ],
            dtype=np.float64,
        )  # None becomes NaN
        places = range(len(self.panel))
        groups: list[tuple[int, ...]] = list(combinations(places, 2))
        if len(places) > 2:
            groups.append(tuple(places))
        return [
            agreement_of([self.panel[index] for index in group], sample, pairs[:, list(group)])
            for group in groups
        ]

    @cached_property
    def shifts(self) -> list[JudgeShift]:
        """The shift between every two judges, the one that was named first as the old one; none
        without a panel.
        """
        judges = sorted(
            self.panel,
            key=lambda judge: self._named.index(judge) if judge in self._named else MOST_JUDGES,
        )
        models = self._estimates.models
        return judge_shifts(judges, models, self._dataset, self._rows, self._regrades)

    @cached_property
    def noise(self) -> dict[str, Noise]:
        """Test–retest noise of each judge and of the panel; empty if nothing was graded twice."""
        twice = sorted(
            (item for items in self._regrades.values() for item in items if item.again),
            key=lambda item: item.set_id,
        )
        if not twice:
            return {}
        judges = sorted({judge for item in twice for judge in item.again})
        sample = Sample([item.set_id for item in twice])
        sets = int(np.median([estimate.n for estimate in self._estimates.by_metric["mean_safety"]]))
        return {
            grader: noise_of(twice, sample, grader, sets * self._estimates.epochs)
            for grader in (*judges, *([PANEL] if len(judges) > 1 else []))
        }

    def _by(self, judge: str) -> Ranking:
        """Rank the models by the grades of one judge alone."""
        rows = [
            msgspec.structs.replace(row, **{what: row.grade(what, judge) for what in SCALES})
            for row in self.rows
            if row.variant in CORE_VARIANTS
        ]
        grades = Grades(to_array(rows, self._dataset, list(self._rows)))
        return ranking_of(judge, shown_ratios(grades), grades)

    def rank_changes(self, metric: str) -> list[Swap]:
        """Return the pairs of models that two judges of the panel order differently, the widest
        apart first.
        """
        return rank_changes_of(list(self._rows), metric, self.by_judge)


def shown_ratios(grades: Grades) -> dict[str, Ratio]:
    """Return the metrics of SHOWN, of grades of every model."""
    return {metric: METRICS[metric].of_sets(grades) for metric in SHOWN}


def ranking_of(name: str, ratios: Mapping[str, Ratio], grades: Grades | None = None) -> Ranking:
    """Rank models.

    Args:
        name: of the ranking.
        ratios: the metrics of SHOWN.
        grades: behind them, if it is those of one grader.
    """
    primary = {metric: ratios[metric] for metric in PRIMARY}
    extremes = None
    if grades is not None:
        extremes = extreme_ratios(grades.array, PRIMARY, primary, grades.most_harm)
    return Ranking(name, ratios, estimates_of(ratios), comparisons_of(primary, extremes))


def _mean_ratio(ratios: Sequence[Ratio]) -> Ratio:
    """Return one ratio whose value is the mean of several, of each model over those that are
    defined.

    Each is scaled to the same sum of denominators, the number of sets that count for any of them.
    """
    tops, bottoms = (
        np.array([getattr(ratio, part).values for ratio in ratios]) for part in Ratio._fields
    )
    totals = bottoms.sum(axis=2, keepdims=True)
    n = (bottoms > 0).any(axis=0).sum(axis=1)[:, None]
    defined = (totals > 0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        top, bottom = (
            np.nan_to_num(part / totals).sum(axis=0) * n / defined for part in (tops, bottoms)
        )
    like = ratios[0].numerator
    return Ratio(*(Labelled(np.nan_to_num(part), like.dims, like.labels) for part in (top, bottom)))


def rank_changes_of(models: Sequence[str], metric: str, rankings: Sequence[Ranking]) -> list[Swap]:
    """Return the pairs of models that two of some rankings order differently, the widest apart
    first.
    """
    changes = [
        swap
        for judges in combinations(rankings, 2)
        for pair in combinations(range(len(models)), 2)
        if (swap := _swap(models, metric, judges, pair))
    ]
    return sorted(changes, key=lambda swap: (not swap.beyond_chance, -swap.size))


def _swap(
    models: Sequence[str], metric: str, judges: tuple[Ranking, Ranking], pair: tuple[int, int]
) -> Swap | None:
    differences = []
    for judge in judges:
        first, second = (judge.estimates[metric][index].value for index in pair)
        if first is None or second is None:
            return None
        differences.append(round(first - second, 9))
    if differences[0] * differences[1] >= 0:
        return None
    above, below = pair if differences[0] > 0 else pair[::-1]
    return Swap(
        metric=metric,
        judges=(judges[0].name, judges[1].name),
        models=(models[above], models[below]),
        size=min(abs(difference) for difference in differences),
        # the prompt-sets of both models may say otherwise than all of each
        beyond_chance=bool(
            judges[0].comparisons[metric].worst_low[below, above] > 0
            and judges[1].comparisons[metric].worst_high[below, above] < 0
        ),
    )
