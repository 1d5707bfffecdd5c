"""All that a report states, computed once from graded responses: what `metrics.json` holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.grades import GradeRow, to_array
from opensafeintent.grades.table import NOT_GRADED
from opensafeintent.metrics import PRIMARY, Ratio, compute
from opensafeintent.promptsets import Dataset
from opensafeintent.taxonomy import CORE_VARIANTS

__all__ = [
    "DEMONSTRATION_NOTE",
    "Conditions",
    "Coverage",
    "Group",
    "Study",
    "coverage_of",
    "group_studies",
    "metrics_json",
    "to_json",
]

DEMONSTRATION_NOTE = (
    "Graded by baseline/judge, a rule-based judge for demonstrations: these numbers say nothing about how safe or helpful "
    "a model is."
)


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was planned for one model is there."""

    sets: int
    """Prompt-sets planned."""
    complete_triplets: int
    """(Set, epoch) pairs whose three core responses count."""
    planned: int
    """Responses planned, epochs included."""
    responses: int
    """Responses on record, those without a text included."""
    counted: int
    """Responses with both grades."""
    missing_core: float
    """Share of the grades of core responses on record that could not be had."""
    missing_paraphrase: float
    missing: dict[str, dict[str, int]]
    """Number of missing grades by kind of prompt (`core`, `paraphrase`) and reason."""
    not_graded: int
    """Responses that no judge was asked about."""
    filtered: int
    """Responses that the provider's content filter took: counted as refusals."""
    empty: int
    """Answers that ended by themselves without a word: counted as refusals."""
    truncated: int
    """Responses cut by the token limit and graded as they stand."""

    @property
    def partial(self) -> bool:
        """Whether responses that were planned are not on record."""
        return self.responses < self.planned

    def missing_beyond(self, most: float) -> bool:
        """Whether core or paraphrase grades are missing beyond a share."""
        return self.missing_core > most or self.missing_paraphrase > most


def coverage_of(model: str, manifest: Manifest, dataset: Dataset, rows: Sequence[GradeRow]) -> Coverage:
    """Count what is there of one model's responses and grades."""
    entry = manifest.models[model]
    sets = manifest.sets_of(model, dataset)
    planned = sum(len(prompt_set.wordings()) for prompt_set in sets) * entry.epochs
    reasons: dict[str, Counter[str]] = {"core": Counter(), "paraphrase": Counter()}
    asked: Counter[str] = Counter()
    triplets: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if NOT_GRADED in row.missing:
            continue
        kind = "core" if row.variant in CORE_VARIANTS else "paraphrase"
        asked[kind] += 2
        if row.counts and kind == "core":
            triplets[row.set_id, row.epoch] += 1
        for what, reason in (text.split(":", 1) for text in row.missing):
            if what == "response":
                reasons[kind][reason] += 2
            elif what.startswith(("helpfulness", "harm_severity")) and not row.counts:
                reasons[kind][reason] += 1
    gone = {
        kind: sum((row.helpfulness is None) + (row.harm_severity is None) for row in rows if _is(row, kind))
        for kind in reasons
    }
    return Coverage(
        sets=len(sets),
        complete_triplets=sum(count == len(CORE_VARIANTS) for count in triplets.values()),
        planned=planned,
        responses=len(rows),
        counted=sum(row.counts for row in rows),
        missing_core=gone["core"] / asked["core"] if asked["core"] else 0.0,
        missing_paraphrase=gone["paraphrase"] / asked["paraphrase"] if asked["paraphrase"] else 0.0,
        missing={kind: dict(sorted(counter.items())) for kind, counter in reasons.items()},
        not_graded=sum(NOT_GRADED in row.missing for row in rows),
        filtered=sum(row.refused == "filter" for row in rows),
        empty=sum(row.refused == "empty" for row in rows),
        truncated=sum(row.truncated and row.counts for row in rows),
    )


def _is(row: GradeRow, kind: str) -> bool:
    return NOT_GRADED not in row.missing and (row.variant in CORE_VARIANTS) == (kind == "core")


def to_json(value: Any) -> bytes:
    """Return a result as `metrics.json` has it: keys sorted, no time stamps, the same bytes for the same input."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


class Study(NamedTuple):
    """One run as a report takes it: what it is made of, and every response with its grades."""

    name: str
    """The run's folder."""
    manifest: Manifest
    dataset: Dataset
    rows: Sequence[GradeRow]


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
        ratios: every metric by name, each of shape (model, prompt_set).
    """

    def __init__(self, conditions: Conditions, dataset: Dataset, members: dict[str, tuple[Study, str]]) -> None:
        self.conditions = conditions
        self.dataset = dataset
        self.models = list(members)
        self.coverage: dict[str, Coverage] = {}
        self.rows: dict[str, list[GradeRow]] = {}
        for shown, (study, model) in members.items():
            rows = [row for row in study.rows if row.model == model]
            self.rows[shown] = [msgspec.structs.replace(row, model=shown) for row in rows]
            self.coverage[shown] = coverage_of(model, study.manifest, dataset, rows)
        self.array = to_array((row for rows in self.rows.values() for row in rows), dataset, self.models)
        self.ratios = compute(self.array)

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
        for model, entry in study.manifest.models.items():
            conditions = Conditions(
                dataset=study.manifest.dataset.hash,
                judges=_judges(study, model),
                mode_judge=entry.mode_judge,
                parse=entry.parse,
                templates=tuple(sorted(entry.templates.items())),
            )
            found.setdefault(conditions, []).append((study, model))
    shown = _shown_names([member for members in found.values() for member in members])
    return [
        Group(conditions, members[0][0].dataset, {shown[study.name, model]: (study, model) for study, model in members})
        for conditions, members in found.items()
    ]


def _judges(study: Study, model: str) -> tuple[str, ...]:
    """Return who graded a model: the judges that were named, and whoever graded what was imported."""
    named = study.manifest.models[model].judges
    graded = {judge for row in study.rows if row.model == model for judge in row.by_judge}
    return (*named, *sorted(graded - set(named)))


def _shown_names(members: Sequence[tuple[Study, str]]) -> dict[tuple[str, str], str]:
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
        names[study.name, model] = name
    return names


# metrics.json ----------------------------------------------------------------------------------------------------------

_STRATA = {"harm_domain": "harm_domain", "task_type": "task_type"}
_CELL_METRICS = ("mean_safety", "triplet_safety", "mean_utility", "worst_case_utility", "dual_use_utility")


def metrics_json(groups: Sequence[Group]) -> dict[str, Any]:
    """Return what `metrics.json` holds (DESIGN, section 4): every metric of every model, by strata as well."""
    return {
        "schema": 1,
        "models": {model: metrics for group in groups for model, metrics in _metrics_of(group, group.ratios).items()},
        "strata": _strata_json(groups),
        "coverage": {model: coverage for group in groups for model, coverage in group.coverage.items()},
        "groups": [
            {
                "models": group.models,
                "dataset": {"name": group.dataset.name, "hash": group.dataset.hash, "sets": len(group.dataset)},
                "judges": group.conditions.judges,
                "mode_judge": group.conditions.mode_judge,
                "grade_parse": group.conditions.parse,
                "templates": dict(group.conditions.templates),
            }
            for group in groups
        ],
        "primary": PRIMARY,
        "partial": any(coverage.partial for group in groups for coverage in group.coverage.values()),
        "notes": [DEMONSTRATION_NOTE] if any(group.demonstration for group in groups) else [],
    }


def _metrics_of(group: Group, ratios: Mapping[str, Ratio]) -> dict[str, dict[str, Any]]:
    values = {name: (ratio.value.values, ratio.n.values) for name, ratio in ratios.items()}
    return {
        model: {name: _entry(float(value[place]), int(n[place])) for name, (value, n) in values.items()}
        for place, model in enumerate(group.models)
    }


def _entry(value: float, n: int) -> dict[str, Any]:
    return {"value": value if n else None, "n": n, "ci": None, "ci_method": None, "bounds": None}


def _strata_json(groups: Sequence[Group]) -> dict[str, Any]:
    strata: dict[str, Any] = {"harm_domain": {}, "task_type": {}, "cell": {}, "domain_macro": {}}
    for group in groups:
        taxonomy = group.dataset.taxonomy
        domain, task = group.array.harm_domain.values, group.array.task_type.values
        for name in taxonomy.domain_names:
            _add_stratum(strata["harm_domain"], name, group, domain == name, group.ratios)
        for name in taxonomy.type_names:
            _add_stratum(strata["task_type"], name, group, task == name, group.ratios)
        few = {name: group.ratios[name] for name in _CELL_METRICS}
        for in_domain, in_type in taxonomy.cells:
            members = (domain == in_domain) & (task == in_type)
            _add_stratum(strata["cell"], f"{in_domain} | {in_type}", group, members, few)
        strata["domain_macro"] |= _macro(group, strata["harm_domain"])
    return strata


def _add_stratum(
    strata: dict[str, Any], name: str, group: Group, members: NDArray[np.bool_], ratios: Mapping[str, Ratio]
) -> None:
    if members.any():
        within = {
            metric: Ratio(ratio.numerator.isel(prompt_set=members), ratio.denominator.isel(prompt_set=members))
            for metric, ratio in ratios.items()
        }
        strata.setdefault(name, {}).update(_metrics_of(group, within))


def _macro(group: Group, by_domain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean over the domains where a metric is defined; `n` is their number."""
    macro: dict[str, Any] = {}
    for model in group.models:
        macro[model] = {}
        for name in group.ratios:
            entries = [models[model][name]["value"] for models in by_domain.values() if model in models]
            defined = [value for value in entries if value is not None]
            macro[model][name] = _entry(float(np.mean(defined)) if defined else 0.0, len(defined))
    return macro
