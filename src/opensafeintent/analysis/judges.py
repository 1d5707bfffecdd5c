"""The results of a group of models by who graded: by each judge alone, and by the panel."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib import resources
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.agreement import PANEL, JudgeAgreement, Noise, agreements_of, noise_of
from opensafeintent.analysis.numbers import Numbers, comparisons_of, estimates_of
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.evaluation.again import Regrade
from opensafeintent.grades import GradeRow, to_array
from opensafeintent.labelled import Labelled
from opensafeintent.metrics import METRICS, PRIMARY, Grades, Ratio
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import SIGNIFICANCE, Comparison, Estimate, Resamples, rank_intervals
from opensafeintent.taxonomy import CORE_VARIANTS

JUDGE_AVERAGE = "judge_average"
"""The name of the ranking by the mean over judges."""

SHOWN = ("mean_safety", "triplet_safety", "mean_utility", "worst_case_utility")
"""Metrics that are told by judge; all of them need core responses only."""


class Ranking(NamedTuple):
    """The models of a group as one judge, or the panel, has them."""

    name: str
    ratios: Mapping[str, Ratio]
    """By metric of SHOWN."""
    estimates: Mapping[str, Sequence[Estimate]]
    """By metric of SHOWN, one of each model of the group."""
    comparisons: Mapping[str, Comparison]
    """By metric of PRIMARY; empty where models were not compared."""

    def rank(self, metric: str, index: int) -> int | None:
        """Return a model's rank, 1 for the highest value; equal values share one."""
        values = [estimate.value for estimate in self.estimates[metric]]
        own = values[index]
        if own is None:
            return None
        return 1 + sum(value is not None and value > own + 1e-9 for value in values)

    def rank_interval(self, metric: str, index: int) -> tuple[int, int] | None:
        """Return the ranks that the paired tests of all models leave open to one; None where it has
        no value.
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
    """Whether both judges' differences are (5 %, corrected over all pairs), as far as their models
    were compared.
    """


class JudgeResults:
    """Who graded a group of models, and what each of them makes of it.

    Args:
        numbers: of the models, by the grades that count.
        dataset: the prompt-sets.
        rows: every response with its grades, by model.
        regrades: by model, responses that were graded twice.
    """

    def __init__(
        self,
        numbers: Numbers,
        dataset: Dataset,
        rows: Mapping[str, Sequence[GradeRow]],
        regrades: Mapping[str, Sequence[Regrade]],
    ) -> None:
        self._numbers = numbers
        self._dataset = dataset
        self._rows = rows
        self._regrades = regrades

    @property
    def rows(self) -> Iterator[GradeRow]:
        """Every response with its grades."""
        return (row for rows in self._rows.values() for row in rows)

    @cached_property
    def panel(self) -> tuple[str, ...]:
        """The judges that graded responses beside one another; none where every response has one
        judge.
        """
        together = {judge for row in self.rows if len(row.by_judge) > 1 for judge in row.by_judge}
        return tuple(sorted(together))

    @property
    def counted(self) -> Ranking:
        """The ranking by the grades that count: the panel's, where there is one."""
        return Ranking(
            PANEL, self._numbers.ratios, self._numbers.estimates, self._numbers.comparisons
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
        return ranking_of(JUDGE_AVERAGE, ratios, self._numbers.resamples)

    @cached_property
    def agreements(self) -> list[JudgeAgreement]:
        """How far every two judges agree, and all of them where there are three or more."""
        return agreements_of(self.rows, self.panel)

    @cached_property
    def noise(self) -> dict[str, Noise]:
        """How far each judge, and the panel, agrees with itself; empty where nothing was graded
        twice.
        """
        sets = int(np.median([found.n for found in self._numbers.estimates["mean_safety"]]))
        epochs = len(self._numbers.by_epoch)
        return noise_of(
            (item for items in self._regrades.values() for item in items), sets * epochs
        )

    def _by(self, judge: str) -> Ranking:
        """Rank the models by the grades of one judge alone."""
        rows = [
            msgspec.structs.replace(row, helpfulness=pair[0], harm_severity=pair[1])
            for of_model in self._rows.values()
            for row in of_model
            if row.variant in CORE_VARIANTS
            for pair in (row.by_judge.get(judge, (None, None)),)
        ]
        grades = Grades(to_array(rows, self._dataset, list(self._rows)))
        return ranking_of(judge, shown_ratios(grades), self._numbers.resamples)

    def swaps(self, metric: str) -> list[Swap]:
        """Return the pairs of models that two judges of the panel order differently, the widest
        apart first.
        """
        return swaps_of(list(self._rows), metric, self.by_judge)


def shown_ratios(grades: Grades) -> dict[str, Ratio]:
    """Return the metrics of SHOWN, of grades of every model."""
    return {metric: METRICS[metric].of_sets(grades) for metric in SHOWN}


def ranking_of(
    name: str, ratios: Mapping[str, Ratio], resamples: Resamples, *, compared: bool = True
) -> Ranking:
    """Rank models.

    Args:
        name: what the ranking is called.
        ratios: the metrics of SHOWN.
        resamples: the weights behind intervals.
        compared: whether every two models are compared.
    """
    primary = {metric: ratios[metric] for metric in PRIMARY}
    comparisons = comparisons_of(primary, resamples) if compared else {}
    return Ranking(name, ratios, estimates_of(ratios, resamples), comparisons)


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


def swaps_of(models: Sequence[str], metric: str, rankings: Sequence[Ranking]) -> list[Swap]:
    """Return the pairs of models that two of some rankings order differently, the widest apart
    first.
    """
    found = [
        swap
        for one, other in combinations(rankings, 2)
        for a, b in combinations(range(len(models)), 2)
        if (swap := _swap(models, metric, (one, other), (a, b)))
    ]
    return sorted(found, key=lambda swap: (not swap.beyond_chance, -swap.size))


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
        beyond_chance=all(
            judge.comparisons[metric].p_adjusted[pair] < SIGNIFICANCE
            for judge in judges
            if judge.comparisons
        ),
    )


# Makers
# ------------------------------------------------------------------------------

_VENDOR = re.compile(r"^(?:[a-z]+\.)+(?=[a-z])")
"""`anthropic.` or `us.anthropic.`, as some providers put before a model's name."""


def same_maker(one: str, other: str) -> bool:
    """Tell whether two models are one, or of one maker, as far as their names tell.

    Baselines are nobody's.
    """
    if is_baseline(one) or is_baseline(other):
        return False
    family = family_of(one)
    return _bare(one) == _bare(other) or (family is not None and family == family_of(other))


@lru_cache(maxsize=1)
def _makers() -> re.Pattern[str]:
    text = resources.files("opensafeintent").joinpath("data/families.toml").read_text("utf-8")
    families: dict[str, list[str]] = tomllib.loads(text)["families"]
    return re.compile(
        "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in families.items()),
        re.IGNORECASE,
    )


def family_of(model: str) -> str | None:
    """Return who made a model, as far as its name tells; the last part of the name goes before the
    provider's.
    """
    for part in (model.rpartition("/")[2], model):
        if found := _makers().search(part):
            return found.lastgroup
    return None


def _bare(model: str) -> str:
    """Return a model's name whoever serves it: of `openai/gpt-5.4`, `openrouter/openai/gpt-5.4`,
    `GPT-5.4` the same.
    """
    name = _VENDOR.sub("", model.rpartition("/")[2].strip().lower())
    return re.sub(r"[\s._:-]+", "-", name)
