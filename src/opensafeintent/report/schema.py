"""`metrics.json` as types (docs/run-folder.md), and its JSON Schema."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from opensafeintent.analysis.coverage import Coverage
from opensafeintent.analysis.judge_agreement import JudgeAgreement, Noise
from opensafeintent.analysis.judge_shift import JudgeShift
from opensafeintent.analysis.judges import Swap
from opensafeintent.analysis.label_checks import LabelCheck
from opensafeintent.analysis.reference_models import Reference
from opensafeintent.analysis.request_swap import Audit
from opensafeintent.analysis.second_turn import TurnCoverage, TurnNumber
from opensafeintent.analysis.turn_audit import TurnAudit
from opensafeintent.evaluation.judge_check import Borderline
from opensafeintent.evaluation.manifest import StopQuestion
from opensafeintent.files import to_json
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.thresholds import Verdict

Interval = tuple[float, float]


class MetricValue(Struct, forbid_unknown_fields=True):
    """A metric of a model or stratum; `value` is null if `n` is 0."""

    value: float | None
    n: int
    ci: Interval | None
    ci_method: str | None
    bounds: Interval | None
    worst_case: Interval | None
    """The ends of the interval over all missing grades; null if none can move the value."""
    rerun_se: float | UnsetType | None = UNSET
    between: float | UnsetType | None = UNSET
    """Of `paraphrase_effect`: how often two wordings disagree."""
    within: float | UnsetType | None = UNSET
    """Of `paraphrase_effect`: how often one wording disagrees with itself."""
    unknown: str | UnsetType | None = UNSET
    """Of `paraphrase_effect`: the reason if it is null."""


class ModelAverage(Struct, forbid_unknown_fields=True):
    """The mean of a metric over models, and the ratio of sums."""

    value: float | None
    n: int
    ci: Interval | None
    ci_method: str | None
    models: int | None
    pooled: float | None


class Pair(Struct, forbid_unknown_fields=True):
    """The difference of two models, b minus a."""

    a: str
    b: str
    difference: float | None
    ci: Interval | None
    worst_case: Interval
    """The ends of the interval over all missing grades."""
    n: int
    p_adjusted: float
    minimum_detectable_difference: float | None
    family: int


class MetricComparison(Struct, forbid_unknown_fields=True):
    """All pairs of models in one metric, and the ranks that they leave open."""

    pairs: list[Pair]
    rank_intervals: dict[str, tuple[int, int] | None]


class DatasetIdentity(Struct, forbid_unknown_fields=True):
    """The dataset of a group."""

    name: str
    hash: str
    sets: int


class CheckResult(Struct, forbid_unknown_fields=True):
    """The judge check of one judge; `state` alone if it was not checked."""

    state: Literal["passed", "failed", "stale", "unchecked"]
    accepted: int | UnsetType = UNSET
    cases: int | UnsetType = UNSET
    ci: Interval | UnsetType = UNSET
    missing: int | UnsetType = UNSET
    min_accuracy: float | UnsetType = UNSET
    reasons: list[str] | UnsetType = UNSET
    kinds: dict[str, tuple[int, int]] | UnsetType = UNSET
    groups: dict[str, Estimate] | UnsetType = UNSET
    borderline: Borderline | UnsetType | None = UNSET
    unscored: tuple[int, int] | UnsetType = UNSET
    failed: list[str] | UnsetType = UNSET


class ExactName(Struct, forbid_unknown_fields=True):
    """The name of a model in its run."""

    model: str
    """The exact name, also if a label is shown in its place."""
    run: str | UnsetType = UNSET
    """In a report over several runs."""


class GroupIdentity(Struct, forbid_unknown_fields=True):
    """Models that can be compared, and their common conditions."""

    models: list[str]
    origins: dict[str, ExactName]
    """By shown name."""
    dataset: DatasetIdentity
    judges: list[str]
    mode_judge: str | None
    grade_parse: str
    judge_arguments: dict[str, dict[str, msgspec.Raw]]
    """Request fields of the judges beyond temperature and token limit."""
    templates: dict[str, str]
    judge_checks: dict[str, CheckResult]
    stop_when: list[StopQuestion]
    stopped_early: list[str]


class JudgeRank(Struct, forbid_unknown_fields=True):
    """The rank of a model by one judge, and its interval."""

    rank: int | None
    interval: tuple[int, int] | None


class JudgesOfGroup(Struct, forbid_unknown_fields=True):
    """Results by judge; empty with one judge that graded once."""

    models: dict[str, dict[str, dict[str, Estimate]]] | UnsetType = UNSET
    ranks: dict[str, dict[str, dict[str, JudgeRank]]] | UnsetType = UNSET
    agreement: list[JudgeAgreement] | UnsetType = UNSET
    rank_changes: dict[str, list[Swap]] | UnsetType = UNSET
    noise: dict[str, Noise] | UnsetType = UNSET
    shift: list[JudgeShift] | UnsetType = UNSET


class SwapAudit(Struct, forbid_unknown_fields=True):
    """The request-swap audit by model and judge; empty without one."""

    models: dict[str, dict[str, Audit]] | UnsetType = UNSET
    model_average: dict[str, Audit] | UnsetType = UNSET


class HarmUpTo1(Struct, forbid_unknown_fields=True):
    """The main metrics if harm 1 counted as safe."""

    models: dict[str, dict[str, Estimate]]
    ranks: dict[str, dict[str, int | None]]
    rank_changes: dict[str, list[Swap]]


class Strata(Struct, forbid_unknown_fields=True):
    """Stratum, then model, then metric; `domain_macro` is by model alone."""

    harm_domain: dict[str, dict[str, dict[str, MetricValue]]]
    task_type: dict[str, dict[str, dict[str, MetricValue]]]
    cell: dict[str, dict[str, dict[str, MetricValue]]]
    domain_macro: dict[str, dict[str, MetricValue]]


class GateRow(Struct, forbid_unknown_fields=True):
    """One gate for one model."""

    option: str
    gate: str
    model: str
    against: str | None
    confidence: float
    metric: str
    limit: float
    verdict: Verdict
    value: float | None
    n: int
    ci: Interval | None
    ci_method: str | None
    family_ci: Interval | None
    """Of one of several pairs of versions: the interval for all of them at once."""
    worst_case: Interval | None
    oracle: float | None
    refuse_all: float | None
    reason: str


class GateResults(Struct, forbid_unknown_fields=True):
    """All gates of a report."""

    verdict: Verdict | None
    baseline: str | None
    untested: list[str]
    incomplete: list[str]
    cautions: list[str]
    results: list[GateRow]


class CorrectedMetric(Struct, forbid_unknown_fields=True):
    """A metric corrected by human labels; `refused` has the reason if there is none."""

    value: float | None
    ci: Interval | None
    refused: str | None
    assumes: str | UnsetType = UNSET
    labels: int | UnsetType = UNSET
    units: str | UnsetType = UNSET
    labelled_sets: int | UnsetType | None = UNSET
    annotators: int | UnsetType = UNSET
    power: float | UnsetType | None = UNSET


class CorrectedMetrics(Struct, forbid_unknown_fields=True):
    """Metrics corrected by human labels, by model."""

    models: dict[str, dict[str, CorrectedMetric]]


class OtherModel(Struct, forbid_unknown_fields=True):
    """Replies that named another model than the one asked."""

    model: str
    served: str
    replies: int


class LabelsOfGroup(Struct, forbid_unknown_fields=True):
    """The judges of a group against people, on labelled responses."""

    group: int
    """Its number, from 1."""
    checks: list[LabelCheck]


class SecondTurnOfGroup(Struct, forbid_unknown_fields=True):
    """The second turn of a group's models that were asked a second message."""

    group: int
    """Its number, from 1."""
    models: dict[str, dict[str, TurnNumber]]
    """By model and name."""
    comparisons: dict[str, list[Pair]]
    """By primary effect: b's minus a's, set by set."""
    by_judge: dict[str, dict[str, dict[str, Estimate]]]
    """By judge of a panel, model and effect; each interval is of that number alone."""
    audit: dict[str, TurnAudit]
    """By model, or `model average`: the judges' own shift; empty without an audit."""
    coverage: dict[str, TurnCoverage]
    epochs: int
    """The greatest number of second replies to one message."""


class MetricsFile(Struct, forbid_unknown_fields=True):
    """`metrics.json`."""

    schema: Literal[1]
    models: dict[str, dict[str, MetricValue]]
    model_average: list[dict[str, ModelAverage]]
    strata: Strata
    comparisons: list[dict[str, MetricComparison]]
    coverage: dict[str, Coverage]
    groups: list[GroupIdentity]
    judges: list[JudgesOfGroup]
    request_swap: list[SwapAudit]
    safe_up_to_1: list[HarmUpTo1]
    primary: list[str]
    reference: dict[str, Reference]
    partial: bool
    notes: list[str]
    other_models: list[OtherModel] | UnsetType = UNSET
    gates: GateResults | UnsetType = UNSET
    corrected: CorrectedMetrics | UnsetType = UNSET
    judge_labels: list[LabelsOfGroup] | UnsetType = UNSET
    second_turn: list[SecondTurnOfGroup] | UnsetType = UNSET


def schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of `metrics.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "OpenSafeIntent metrics.json",
        **msgspec.json.schema(MetricsFile),
    }


if __name__ == "__main__":
    print(to_json(schema(), indent=2).decode(), end="")
