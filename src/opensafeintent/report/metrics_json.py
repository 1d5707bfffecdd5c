"""Content of `metrics.json`: every number of a report, for other programs to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import AVERAGE, EVERYWHERE, MetricEstimate
from opensafeintent.analysis.judge_checks import CheckedJudge, accepted_at_lines, checked_judges
from opensafeintent.analysis.judges import SHOWN, rank_changes_of
from opensafeintent.analysis.reference_models import reference_values
from opensafeintent.analysis.request_swap import Audit
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.cohort_columns import DEMONSTRATION_NOTE
from opensafeintent.statistics import rank_intervals, share_estimate

Json = dict[str, object]


def metrics_json(cohorts: Sequence[Cohort]) -> Json:
    """Return the content of `metrics.json` (docs/run-folder.md): every metric of every model, also
    by strata.
    """
    return {
        "schema": 1,
        "models": {
            model: metrics for cohort in cohorts for model, metrics in _models_json(cohort).items()
        },
        "model_average": [_averages(cohort) for cohort in cohorts],
        "strata": _strata_json(cohorts),
        "comparisons": [_comparisons_json(cohort) for cohort in cohorts],
        "coverage": {
            model: coverage for cohort in cohorts for model, coverage in cohort.coverage.items()
        },
        "groups": [
            {
                "models": cohort.models,
                "dataset": {
                    "name": cohort.dataset.name,
                    "hash": cohort.dataset.hash,
                    "sets": len(cohort.dataset),
                },
                "judges": cohort.conditions.judges,
                "mode_judge": cohort.conditions.mode_judge,
                "grade_parse": cohort.conditions.parse,
                "judge_arguments": {
                    judge: msgspec.json.decode(given)
                    for judge, given in cohort.conditions.arguments
                },
                "templates": dict(cohort.conditions.templates),
                "judge_checks": {item.judge: _check_json(item) for item in checked_judges(cohort)},
                "stop_when": [
                    manifest.stop_when for manifest in cohort.manifests if manifest.stop_when
                ],
                "stopped_early": cohort.stopped_early,
            }
            for cohort in cohorts
        ],
        "judges": [judges_json(cohort) for cohort in cohorts],
        "request_swap": [request_swap_json(cohort) for cohort in cohorts],
        "safe_up_to_1": [_safe_up_to_1_json(cohort) for cohort in cohorts],
        "primary": PRIMARY,
        "reference": {metric: reference_values(metric) for metric in METRICS},
        "partial": any(
            coverage.partial for cohort in cohorts for coverage in cohort.coverage.values()
        ),
        "notes": [DEMONSTRATION_NOTE] if any(cohort.demonstration for cohort in cohorts) else [],
    }


def _models_json(cohort: Cohort) -> dict[str, Json]:
    overall = cohort.estimates.overall
    return {
        wording.model: {
            **{metric: _entry(overall[wording.model, metric]) for metric in METRICS},
            "paraphrase_effect": {  # no sum over sets alone, and so without bounds
                **msgspec.to_builtins(wording.excess),
                "bounds": None,
                "worst_case": None,
                "between": wording.between.value,
                "within": wording.within.value,
                "unknown": wording.unknown,
            },
        }
        for wording in cohort.wordings
    }


def _entry(number: MetricEstimate) -> Json:
    rerun = {} if number.rerun_se is None else {"rerun_se": number.rerun_se}
    ends = {"bounds": number.bounds, "worst_case": number.worst_case}
    return _estimate_json(number) | ends | rerun


def _estimate_json(found: MetricEstimate) -> Json:
    """Return the fields that a number shares with any estimate."""
    return {"value": found.value, "n": found.n, "ci": found.interval, "ci_method": found.method}


def _averages(cohort: Cohort) -> Json:
    """Return the mean over the models for which a metric is defined, baselines aside, with the
    pooled ratio.
    """
    averages = cohort.estimates.averages
    none = MetricEstimate(value=None, n=0, model=AVERAGE, metric="", models=0)
    return {
        metric: _estimate_json(average) | {"models": average.models, "pooled": average.pooled}
        for metric in METRICS
        for average in (averages.get((metric, EVERYWHERE), none),)
    }


def _comparisons_json(cohort: Cohort) -> Json:
    return {
        metric: {
            "pairs": [
                {
                    "a": cohort.models[a],
                    "b": cohort.models[b],
                    "difference": difference.value,
                    "ci": difference.interval,
                    "worst_case": difference.worst_case,
                    "n": difference.n,
                    "p_adjusted": difference.p_adjusted,
                    "minimum_detectable_difference": difference.minimum_detectable_difference,
                    "family": difference.pairs,
                }
                for a, b in combinations(range(len(cohort.models)), 2)
                if (difference := comparison.pair(a, b))
            ],
            "rank_intervals": dict(
                zip(
                    cohort.models,
                    rank_intervals(comparison, less_is_better=METRICS[metric].less_is_better),
                    strict=True,
                )
            ),
        }
        for metric, comparison in cohort.estimates.comparisons.items()
    }


def _strata_json(cohorts: Sequence[Cohort]) -> Json:
    strata: dict[str, dict[str, dict[str, Json]]] = {"harm_domain": {}, "task_type": {}, "cell": {}}
    macros: dict[str, Json] = {}
    for cohort in cohorts:
        for (model, metric, (domain, task)), number in cohort.estimates.strata.items():
            kind = "cell" if domain and task else "harm_domain" if domain else "task_type"
            name = " | ".join(part for part in (domain, task) if part)
            strata[kind].setdefault(name, {}).setdefault(model, {})[metric] = _entry(number)
        for (model, metric), number in cohort.estimates.macros.items():
            macros.setdefault(model, {})[metric] = _entry(number)
    return {**strata, "domain_macro": macros}


def _check_json(item: CheckedJudge) -> Json:
    check = item.check
    if check is None:
        return {"state": item.state}
    return {
        "state": item.state,
        "accepted": check.accepted,
        "cases": check.cases,
        "ci": share_estimate(check.accepted, check.cases).interval,
        "missing": check.missing,
        "min_accuracy": check.min_accuracy,
        "reasons": check.reasons,
        "kinds": {kind.kind: [kind.accepted, kind.cases] for kind in check.kinds},
        "groups": accepted_at_lines(check),
        "borderline": check.borderline,
        "unscored": [check.unscored.accepted, check.unscored.cases],
        "failed": [case.id for case in check.failed],
    }


def judges_json(cohort: Cohort) -> Json:
    """Return the results of a cohort's judges; empty with one judge that graded once.

    With several judges: `models` (model, then judge, `judge_average` or `panel`, then metric),
    `ranks` (metric, then judge, then model), `agreement` and `rank_changes`. If responses were
    graded twice: `noise`, by judge.
    """
    result: Json = {}
    if graders := cohort.judges.graders:
        result["models"] = {
            model: {
                grader.name: {metric: grader.estimates[metric][index] for metric in SHOWN}
                for grader in graders
            }
            for index, model in enumerate(cohort.models)
        }
        result["ranks"] = {
            metric: {
                grader.name: {
                    model: {
                        "rank": grader.rank(metric, index),
                        "interval": grader.rank_interval(metric, index),
                    }
                    for index, model in enumerate(cohort.models)
                }
                for grader in graders
            }
            for metric in PRIMARY
        }
        result["agreement"] = cohort.judges.agreements
        result["rank_changes"] = {metric: cohort.judges.rank_changes(metric) for metric in PRIMARY}
    if noise := cohort.judges.noise:
        result["noise"] = noise
    return result


def request_swap_json(cohort: Cohort) -> Json:
    """Return the effects of requests on grades, by model, or of their average, then by judge or
    panel; empty without an audit.
    """
    by_model: dict[str, dict[str, Audit]] = {}
    for (model, grader), audit in cohort.audits.items():
        by_model.setdefault(model, {})[grader] = audit
    average = by_model.pop(AVERAGE, {})
    return {"models": by_model, "model_average": average} if cohort.audits else {}


def _safe_up_to_1_json(cohort: Cohort) -> Json:
    """Return the main metrics and ranks if a harm severity of 1 counted as safe, and the pairs that
    change ranks.
    """
    return {
        "models": {
            model: {metric: cohort.safe_up_to_1.estimates[metric][index] for metric in SHOWN}
            for index, model in enumerate(cohort.models)
        },
        "ranks": {
            metric: {
                model: cohort.safe_up_to_1.rank(metric, index)
                for index, model in enumerate(cohort.models)
            }
            for metric in PRIMARY
        },
        "rank_changes": {
            metric: rank_changes_of(
                cohort.models, metric, (cohort.judges.counted, cohort.safe_up_to_1)
            )
            for metric in PRIMARY
        },
    }


def to_json(value: object) -> bytes:
    """Return a result in the form of `metrics.json`: keys sorted, no time stamps, the same bytes
    for the same input.
    """
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
