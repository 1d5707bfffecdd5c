"""Models that may be compared with one another, and what is computed of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.coverage import Coverage, coverage_of
from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.run import Regrade
from opensafeintent.grades import GradeRow, to_array
from opensafeintent.metrics import BINARY, PRIMARY, SPANS, compute
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import Comparison, Estimates, Resamples, compare_models, estimate
from opensafeintent.statistics.bounds import missing_bounds

__all__ = ["COMPARED", "Conditions", "Group", "Origin", "Study", "group_studies"]

COMPARED = (*PRIMARY, "mean_safety", "worst_case_utility", "dual_use_utility", "safety_flip")
"""Metrics in which every two models are compared; each is a family of its own."""


class Study(NamedTuple):
    """One run as a report takes it: what it is made of, and every response with its grades."""

    name: str
    """The run's folder."""
    manifest: Manifest
    dataset: Dataset
    rows: Sequence[GradeRow]
    regrades: Sequence[Regrade] = ()
    """Responses that the judges graded twice."""


class Origin(NamedTuple):
    """Where a model of a report comes from."""

    run: str
    model: str
    """Its name in the run."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be the same for two models' numbers to be comparable."""

    dataset: str
    """Hash."""
    judges: tuple[str, ...]
    mode_judge: str
    parse: str
    templates: tuple[tuple[str, str], ...]
    """(role, hash) of the templates in force."""


class Group:
    """Models that were evaluated under the same conditions: one section of a report.

    Attributes:
        models: names as the report shows them, in order of appearance.
        origins: by that name, the run and the model's name in it.
        manifests: of the runs that they come from.
        ratios: every metric by name, each of shape (model, prompt_set).
    """

    def __init__(self, conditions: Conditions, dataset: Dataset, members: dict[str, tuple[Study, str]]) -> None:
        self.conditions = conditions
        self.dataset = dataset
        self.models = list(members)
        self.origins = {shown: Origin(study.name, model) for shown, (study, model) in members.items()}
        self.manifests = list({study.name: study.manifest for study, _ in members.values()}.values())
        self.coverage: dict[str, Coverage] = {}
        self.rows: dict[str, list[GradeRow]] = {}
        self.regrades: dict[str, list[Regrade]] = {}
        for shown, (study, model) in members.items():
            rows = [row for row in study.rows if row.model == model]
            self.rows[shown] = rows if shown == model else [msgspec.structs.replace(row, model=shown) for row in rows]
            self.regrades[shown] = [item for item in study.regrades if item.model == model]
            self.coverage[shown] = coverage_of(model, study.manifest, dataset, rows)
        self.array = to_array((row for rows in self.rows.values() for row in rows), dataset, self.models)
        self.ratios = compute(self.array)
        self.resamples = Resamples(len(dataset))
        self._strata: dict[bytes, dict[str, Estimates]] = {}

    @property
    def extent(self) -> str:
        """How many prompt-sets there are, and how many of them the models were to be asked, where that is fewer."""
        whole = len(self.dataset)
        asked = sorted({coverage.sets for coverage in self.coverage.values()})
        part = "" if asked == [whole] else f"{'–'.join(f'{count:,}' for count in dict.fromkeys((asked[0], asked[-1])))} of "
        return f"{part}{whole:,} prompt-sets"

    @cached_property
    def estimates(self) -> dict[str, Estimates]:
        """Every metric of every model with its interval."""
        return self._estimate(tuple(self.ratios), self.resamples)

    @cached_property
    def bounds(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """How far missing grades could move each metric: (least, greatest), each of shape (model,)."""
        return missing_bounds(self.array, self.ratios)

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Differences of every two models, for the metrics that are compared."""
        ratios = {name: (self.ratios[name].numerator.values, self.ratios[name].denominator.values) for name in COMPARED}
        return compare_models(ratios, self.resamples, binary=BINARY)

    def within(self, members: NDArray[np.bool_], metrics: Sequence[str]) -> dict[str, Estimates]:
        """Return metrics over some of the prompt-sets only: `members` has shape (prompt_set,)."""
        known = self._strata.setdefault(members.tobytes(), {})
        if wanted := [name for name in metrics if name not in known]:
            known |= self._estimate(wanted, Resamples(int(members.sum())), members)
        return {name: known[name] for name in metrics}

    def _estimate(
        self, metrics: Sequence[str], resamples: Resamples, members: NDArray[np.bool_] | slice = slice(None)
    ) -> dict[str, Estimates]:
        """Estimate all metrics in one go: the weights are read once."""
        models = len(self.models)
        tops = np.concatenate([self.ratios[name].numerator.values[:, members] for name in metrics])
        bottoms = np.concatenate([self.ratios[name].denominator.values[:, members] for name in metrics])
        spans = np.repeat([SPANS.get(name, (0.0, 1.0)) for name in metrics], models, axis=0)
        value, n, low, high, method = estimate(tops, bottoms, resamples, span=spans)
        parts = {name: slice(place * models, (place + 1) * models) for place, name in enumerate(metrics)}
        return {name: Estimates(value[at], n[at], low[at], high[at], method[at]) for name, at in parts.items()}

    @property
    def demonstration(self) -> bool:
        """Whether the demonstration judge took part in the grading."""
        return DEMONSTRATION_JUDGE in (*self.conditions.judges, self.conditions.mode_judge)


def group_studies(studies: Sequence[Study]) -> list[Group]:
    """Sort the models of all runs into groups of equal conditions; nothing is mixed that cannot be compared.

    A model's name is made unique where two runs share it: by the dataset's hash, or by the run's folder.
    """
    found: dict[Conditions, list[tuple[Study, str]]] = {}
    for study in studies:
        for model, entry in sorted(study.manifest.models.items()):  # in an order that no manifest's writing changes
            conditions = Conditions(
                dataset=study.manifest.dataset.hash,
                judges=_judges(study, model),
                mode_judge=entry.mode_judge,
                parse=entry.parse,
                templates=tuple(sorted(entry.templates.items())),
            )
            found.setdefault(conditions, []).append((study, model))
    names = _shown_names([member for members in found.values() for member in members])
    return [
        Group(conditions, members[0][0].dataset, {names[study.name, model]: (study, model) for study, model in members})
        for conditions, members in found.items()
    ]


def _judges(study: Study, model: str) -> tuple[str, ...]:
    """Return who graded a model: the judges that were named, and whoever graded what was imported."""
    named = study.manifest.models[model].judges
    graded = {judge for row in study.rows if row.model == model for judge in row.by_judge}
    return tuple(sorted({*named, *graded}))  # a panel is the same in whatever order its judges were named


def _shown_names(members: Sequence[tuple[Study, str]]) -> dict[tuple[str, str], str]:
    """Return the name that a report shows by (run, model); which of two equal ones gets a number depends on their order."""
    times = Counter(model for _, model in members)
    by_dataset = Counter((model, study.manifest.dataset.hash) for study, model in members)
    names: dict[tuple[str, str], str] = {}
    for study, model in members:
        digest = study.manifest.dataset.hash
        name = model
        if times[model] > by_dataset[model, digest]:
            name += f"@{digest[:8]}"
        if by_dataset[model, digest] > 1:
            name += f" [{study.name}]"
        names[study.name, model] = _unlike(name, names.values())
    return names


def _unlike(name: str, taken: Collection[str]) -> str:
    """Return a name that no other model has: one may be named as another is shown."""
    number, unlike = 2, name
    while unlike in taken:
        unlike, number = f"{name} #{number}", number + 1
    return unlike
