"""`metrics.json`, and its schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from opensafeintent.evaluation.gold_cases import Borderline
from opensafeintent.evaluation.manifest import StopQuestion
from opensafeintent.files import to_json
from opensafeintent.numbers.cohort import (
    CheckedJudge,
    Cohort,
    compute_borderline_acceptance,
    list_checked_judges,
)
from opensafeintent.numbers.completions import StoredOdds, store_turning_odds
from opensafeintent.numbers.coverage import Coverage
from opensafeintent.numbers.estimates import (
    ALL_SETS,
    AVERAGE,
    MetricEstimate,
    Reference,
    Stratum,
    Wording,
    get_reference,
)
from opensafeintent.numbers.judges import (
    METRICS_BY_JUDGE,
    JudgeAgreement,
    JudgeShift,
    Noise,
    Ranking,
    Swap,
    find_rank_changes,
)
from opensafeintent.numbers.label_checks import LabelCheck
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.numbers.own_answers import AnswerAgreement, LineAgreement
from opensafeintent.numbers.repeats import Fragility
from opensafeintent.numbers.request_swap import Audit
from opensafeintent.numbers.second_turn import TurnAudit, TurnCoverage, TurnNumber
from opensafeintent.report.facts import JsonFact, Level, Statement, facts_as_json
from opensafeintent.statistics import Estimate, compute_rank_intervals, share_estimate
from opensafeintent.statistics.comparisons import Comparison
from opensafeintent.statistics.thresholds import Verdict

Interval = tuple[float, float]


class _Number(Struct, forbid_unknown_fields=True):
    """A number with its interval."""

    value: float | None
    n: int
    ci: Interval | None
    ci_method: str | None


class MetricValue(_Number):
    """A metric of a model or stratum; `value` is null if `n` is 0."""

    bounds: Interval | None
    missing_ci: Interval | None
    """The ends of the interval over all missing grades; null if none can move the value."""
    rerun_se: float | UnsetType | None = UNSET
    between: float | UnsetType | None = UNSET
    """Of `paraphrase_effect`: how often two wordings disagree."""
    within: float | UnsetType | None = UNSET
    """Of `paraphrase_effect`: how often one wording disagrees with itself."""
    unknown: str | UnsetType | None = UNSET
    """Of `paraphrase_effect`: the reason if it is null."""


class ModelAverage(_Number):
    """The mean of a metric over models, and the ratio of sums."""

    models: int | None
    pooled: float | None


class Pair(Struct, forbid_unknown_fields=True):
    """The difference of two models, b minus a."""

    a: str
    b: str
    difference: float | None
    ci: Interval | None
    missing_ci: Interval
    """The ends of the interval over all missing grades."""
    n: int
    p_adjusted: float
    minimum_detectable_difference: float | None
    family: int
    turning_odds: StoredOdds = UNSET
    """If grades are missing and the interval leaves 0 out: the greatest factor of the odds at which
    that holds, 0 if at none; null if no factor turns it.
    """


class MetricComparison(Struct, forbid_unknown_fields=True):
    """All pairs of models in one metric, and the ranks that they leave open."""

    pairs: list[Pair]
    rank_intervals: dict[str, tuple[int, int] | None]


class ModelRepeats(Struct, forbid_unknown_fields=True):
    """Each prompt-set k times of N, of a model with two epochs or more."""

    repeats: int
    """N."""
    safe_at_least_k: list[MetricValue]
    """For k from 1 to N."""
    success_at_least_k: list[MetricValue]
    fragile: Fragility


class DatasetIdentity(Struct, forbid_unknown_fields=True):
    """The dataset of all models."""

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


class JudgeRank(Struct, forbid_unknown_fields=True):
    """The rank of a model by one judge, and its interval."""

    rank: int | None
    interval: tuple[int, int] | None


class ByJudge(Struct, forbid_unknown_fields=True):
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
    missing_ci: Interval | None
    oracle: float | None
    refuse_all: float | None
    reason: str
    k: int | UnsetType = UNSET
    """Of a metric of k epochs or more."""
    turning_odds: StoredOdds = UNSET
    """If grades are missing and the interval alone decides: the greatest factor of the odds at
    which its verdict holds, 0 if at none; null if no factor turns it.
    """


class GateResults(Struct, forbid_unknown_fields=True):
    """All gates of a report."""

    verdict: Verdict | None
    baseline: str | None
    untested: list[str]
    incomplete: list[str]
    warnings: list[str]
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


class SecondTurnResults(Struct, forbid_unknown_fields=True):
    """The second turn of the models that were asked a second message."""

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


class FindingFacts(Struct, forbid_unknown_fields=True):
    """A finding: its code, and the facts behind its text."""

    code: str
    facts: list[dict[str, JsonFact]]


class NoticeFacts(Struct, forbid_unknown_fields=True):
    """A notice (docs/notices.md): its code, its level, and the facts behind its text."""

    code: str
    level: Level
    facts: list[dict[str, JsonFact]]


class OwnQuestionsResults(Struct, forbid_unknown_fields=True):
    """The prompt-sets' own questions, and on which line of harm judges agree better."""

    hash: str
    """Of the questions that judges were asked."""
    template: str
    """Hash of the template by which they were."""
    agreements: list[LineAgreement]
    """Of every two judges, and of all if there are three or more."""
    answers: list[AnswerAgreement]
    """Of the same judges, on the answers to questions."""
    verdicts: dict[str, LineVerdicts]
    """The panel's by rubric and by questions, by harm domain; `all` has every response."""


class LineVerdicts(Struct, forbid_unknown_fields=True):
    """Responses by what the panel calls unsafe."""

    both: int
    only_rubric: int
    only_questions: int
    neither: int


class MetricsFile(Struct, forbid_unknown_fields=True):
    """`metrics.json`."""

    schema: Literal[1]
    dataset: DatasetIdentity
    judges: list[str]
    mode_judge: str | None
    grade_parse: str
    judge_arguments: dict[str, dict[str, msgspec.Raw]]
    """Request fields of the judges beyond temperature and token limit."""
    templates: dict[str, str]
    judge_checks: dict[str, CheckResult]
    stop_when: list[StopQuestion]
    """Of each run that has one."""
    stopped_early: list[str]
    models: dict[str, dict[str, MetricValue]]
    model_average: dict[str, ModelAverage]
    strata: Strata
    comparisons: dict[str, MetricComparison]
    coverage: dict[str, Coverage]
    by_judge: ByJudge
    swap: SwapAudit
    safe_up_to_1: HarmUpTo1
    primary: list[str]
    reference: dict[str, Reference]
    partial: bool
    notices: list[NoticeFacts] = []
    findings: list[FindingFacts] = []
    other_models: list[OtherModel] | UnsetType = UNSET
    gates: GateResults | UnsetType = UNSET
    corrected: CorrectedMetrics | UnsetType = UNSET
    judge_labels: list[LabelCheck] | UnsetType = UNSET
    """The judges against people, on labelled responses."""
    follow_ups: SecondTurnResults | UnsetType = UNSET
    repeats: dict[str, ModelRepeats] | UnsetType = UNSET
    """By model, of those with two epochs or more."""
    questions: OwnQuestionsResults | UnsetType = UNSET
    """If judges were asked the prompt-sets' own questions."""


def schema() -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of `metrics.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "OpenSafeIntent metrics.json",
        **msgspec.json.schema(MetricsFile),
    }


if __name__ == "__main__":
    print(to_json(schema(), indent=2).decode(), end="")


def _questions(cohort: Cohort) -> OwnQuestionsResults | UnsetType:
    checklist = cohort.checklist
    if checklist is None:
        return UNSET
    return OwnQuestionsResults(
        hash=checklist[0],
        template=checklist[1],
        agreements=cohort.line_agreements,
        answers=cohort.answer_agreements,
        verdicts={
            domain or "all": LineVerdicts(*counts) for domain, counts in cohort.line_counts.items()
        },
    )


def make_metrics_file(cohort: Cohort) -> MetricsFile:
    """Return the content of `metrics.json` (docs/outputs.md): every metric of every model, also
    by strata.
    """
    dataset, conditions = cohort.dataset, cohort.conditions
    stop_questions = (manifest.stop_when for manifest in cohort.manifests)
    return MetricsFile(
        schema=1,
        dataset=DatasetIdentity(name=dataset.name, hash=dataset.hash, sets=len(dataset)),
        judges=list(conditions.judges),
        mode_judge=conditions.mode_judge,
        grade_parse=conditions.parse,
        judge_arguments={
            judge: _raw_fields(arguments) for judge, arguments in conditions.arguments
        },
        templates=dict(conditions.templates),
        judge_checks={item.judge: _check_result(item) for item in list_checked_judges(cohort)},
        stop_when=[question for question in stop_questions if question],
        stopped_early=cohort.stopped_early,
        models={wording.model: _metric_values(cohort, wording) for wording in cohort.wordings},
        model_average=_averages(cohort),
        strata=_strata(cohort),
        comparisons=_comparisons(cohort),
        coverage=cohort.coverage,
        by_judge=judge_results(cohort),
        swap=_swap_audit(cohort),
        safe_up_to_1=_safe_up_to_1(cohort),
        primary=list(cohort.scope.primary),
        reference={metric: get_reference(metric) for metric in cohort.scope.metrics},
        partial=any(item.partial for item in cohort.coverage.values()),
        follow_ups=_second_turn(cohort),
        repeats=_repeats(cohort) or UNSET,
        questions=_questions(cohort),
    )


def list_finding_facts(findings: Iterable[Statement]) -> list[FindingFacts]:
    """Return findings as `metrics.json` has them."""
    return [FindingFacts(said.code, [*map(facts_as_json, said.facts)]) for said in findings]


def list_notice_facts(notices: Iterable[Statement]) -> list[NoticeFacts]:
    """Return notices as `metrics.json` has them."""
    return [
        NoticeFacts(said.code, said.level, [*map(facts_as_json, said.facts)]) for said in notices
    ]


def _metric_values(cohort: Cohort, wording: Wording) -> dict[str, MetricValue]:
    """Return every metric of a model, and its paraphrase effect if there are dual-use prompts."""
    overall = cohort.estimates.overall
    values = {metric: _value(overall[wording.model, metric]) for metric in cohort.scope.metrics}
    if not (cohort.scope.has_triplets and cohort.scope.rubric):
        return values
    excess = wording.excess
    # no sum over sets alone, and so without bounds
    values["paraphrase_effect"] = MetricValue(
        value=excess.value,
        n=excess.n,
        ci=excess.interval,
        ci_method=excess.method,
        bounds=None,
        missing_ci=None,
        between=wording.between.value,
        within=wording.within.value,
        unknown=wording.unknown,
    )
    return values


def _value(number: MetricEstimate) -> MetricValue:
    return MetricValue(
        value=number.value,
        n=number.n,
        ci=number.interval,
        ci_method=number.method,
        bounds=number.bounds,
        missing_ci=number.missing_ci,
        rerun_se=UNSET if number.rerun_se is None else number.rerun_se,
    )


def _repeats(cohort: Cohort) -> dict[str, ModelRepeats]:
    """Return each prompt-set k times of N, of the models with two epochs or more."""
    found = cohort.repeats
    return {
        model: ModelRepeats(
            repeats=found.epochs[at],
            safe_at_least_k=[_value(number) for number in found.curve(at, "safe_at_least_k")],
            success_at_least_k=[_value(number) for number in found.curve(at, "success_at_least_k")],
            fragile=found.fragility[at],
        )
        for at, model in enumerate(cohort.models)
        if found.epochs[at] > 1
    }


def _averages(cohort: Cohort) -> dict[str, ModelAverage]:
    """Return the mean over the models for which a metric is defined, baselines aside, with the
    pooled ratio.
    """
    averages = cohort.estimates.averages
    undefined = MetricEstimate(value=None, n=0, model=AVERAGE, metric="", models=0)
    found = {name: averages.get((name, ALL_SETS), undefined) for name in cohort.scope.metrics}
    return {
        metric: ModelAverage(
            value=average.value,
            n=average.n,
            ci=average.interval,
            ci_method=average.method,
            models=average.models,
            pooled=average.pooled,
        )
        for metric, average in found.items()
    }


def _comparisons(cohort: Cohort) -> dict[str, MetricComparison]:
    comparisons = {}
    for metric, comparison in cohort.estimates.comparisons.items():
        less_is_better = METRICS[metric].less_is_better
        ranks = compute_rank_intervals(comparison, less_is_better=less_is_better)
        comparisons[metric] = MetricComparison(
            pairs=_pairs(cohort.models, comparison),
            rank_intervals=dict(zip(cohort.models, ranks, strict=True)),
        )
    return comparisons


def _pairs(models: Sequence[str], comparison: Comparison) -> list[Pair]:
    """Return the differences of every two models, if any prompt-set counts for both."""
    return [
        Pair(
            a=models[a],
            b=models[b],
            difference=difference.value,
            ci=difference.interval,
            missing_ci=difference.missing_ci,
            n=difference.n,
            p_adjusted=difference.p_adjusted,
            minimum_detectable_difference=difference.minimum_detectable_difference,
            family=difference.pairs,
            turning_odds=store_turning_odds(difference.turning_odds),
        )
        for a, b in combinations(range(len(models)), 2)
        if (difference := comparison.get_difference(a, b))
    ]


def _strata(cohort: Cohort) -> Strata:
    strata = Strata(harm_domain={}, task_type={}, cell={}, domain_macro={})
    for (model, metric, stratum), number in cohort.estimates.strata.items():
        if cohort.scope.has(metric):
            by_stratum, name = getattr(strata, _kind(stratum)), " | ".join(filter(None, stratum))
            by_stratum.setdefault(name, {}).setdefault(model, {})[metric] = _value(number)
    for (model, metric), number in cohort.estimates.domain_averages.items():
        if cohort.scope.has(metric) and strata.harm_domain:
            strata.domain_macro.setdefault(model, {})[metric] = _value(number)
    return strata


def _kind(stratum: Stratum) -> Literal["harm_domain", "task_type", "cell"]:
    if all(stratum):
        return "cell"
    return "harm_domain" if stratum[0] else "task_type"


def _raw_fields(text: str) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object as they are encoded here."""
    fields = msgspec.json.decode(text, type=dict[str, object])
    return {
        name: msgspec.Raw(msgspec.json.encode(value, order="sorted"))
        for name, value in fields.items()
    }


def _check_result(item: CheckedJudge) -> CheckResult:
    check = item.check
    if check is None:
        return CheckResult(state=item.state)
    return CheckResult(
        state=item.state,
        accepted=check.accepted,
        cases=check.cases,
        ci=share_estimate(check.accepted, check.cases).interval or UNSET,
        missing=check.missing,
        min_accuracy=check.min_accuracy,
        reasons=list(check.reasons),
        kinds={kind.kind: (kind.accepted, kind.cases) for kind in check.kinds},
        groups=compute_borderline_acceptance(check),
        borderline=check.borderline,
        unscored=(check.unscored.accepted, check.unscored.cases),
        failed=[case.id for case in check.failed],
    )


def judge_results(cohort: Cohort) -> ByJudge:
    """Return the results by judge; empty with one judge that graded once.

    With several judges: `models` (model, then judge, `judge_average`, `judges_like_these` or
    `panel`, then metric), `ranks` (metric, then judge, then model), `agreement`, `rank_changes` and
    `shift`. If responses were graded twice: `noise`, by judge.
    """
    graders, noise = cohort.judges.rankings, cohort.judges.noise
    if not graders:
        return ByJudge(noise=noise or UNSET)
    return ByJudge(
        models={
            model: {
                grader.name: {
                    metric: _plain(grader.estimates[metric][index])
                    for metric in cohort.scope.select(METRICS_BY_JUDGE)
                }
                for grader in graders
            }
            for index, model in enumerate(cohort.models)
        },
        ranks={
            metric: {
                grader.name: _ranks(cohort, grader, metric)
                for grader in graders
                if grader.comparisons
            }
            for metric in cohort.scope.primary
        },
        agreement=list(cohort.judges.agreements),
        rank_changes={
            metric: list(cohort.judges.rank_changes(metric)) for metric in cohort.scope.primary
        },
        noise=noise or UNSET,
        shift=list(cohort.judges.shifts),
    )


def _plain(number: Estimate) -> Estimate:
    """Return an estimate without the fields that a kind of estimate has besides."""
    return Estimate(value=number.value, n=number.n, interval=number.interval, method=number.method)


def _ranks(cohort: Cohort, grader: Ranking, metric: str) -> dict[str, JudgeRank]:
    return {
        model: JudgeRank(
            rank=grader.rank(metric, index), interval=grader.rank_interval(metric, index)
        )
        for index, model in enumerate(cohort.models)
    }


def _swap_audit(cohort: Cohort) -> SwapAudit:
    """Return the effects of requests on grades, by model, or of their average, then by judge or
    panel; empty without an audit.
    """
    if not cohort.audits:
        return SwapAudit()
    by_model: dict[str, dict[str, Audit]] = {}
    for (model, grader), audit in cohort.audits.items():
        by_model.setdefault(model, {})[grader] = audit
    average = by_model.pop(AVERAGE, {})
    return SwapAudit(models=by_model, model_average=average)


def _safe_up_to_1(cohort: Cohort) -> HarmUpTo1:
    """Return the main metrics and ranks if a harm severity of 1 counted as safe, and the pairs that
    change ranks.
    """
    ranking = cohort.safe_up_to_1
    rankings = (cohort.judges.official_ranking, ranking)
    return HarmUpTo1(
        models={
            model: {
                metric: ranking.estimates[metric][index]
                for metric in cohort.scope.select(METRICS_BY_JUDGE)
            }
            for index, model in enumerate(cohort.models)
        },
        ranks={
            metric: {model: ranking.rank(metric, at) for at, model in enumerate(cohort.models)}
            for metric in cohort.scope.primary
        },
        rank_changes={
            metric: list(find_rank_changes(cohort.models, metric, rankings))
            for metric in cohort.scope.primary
        },
    )


def _second_turn(cohort: Cohort) -> SecondTurnResults | UnsetType:
    """Return the numbers of the second turn; unset without one."""
    turn = cohort.second_turn
    if turn is None:
        return UNSET
    return SecondTurnResults(
        models=turn.numbers,
        comparisons={
            effect: _pairs(turn.models, comparison)
            for effect, comparison in turn.comparisons.items()
        },
        by_judge=turn.by_judge,
        audit=turn.audits,
        coverage=turn.coverage,
        epochs=turn.epochs,
    )
