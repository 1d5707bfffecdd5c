"""What `metrics.json` holds: every number of a report, for other programs to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

from opensafeintent.analysis.groups import CheckedJudge, Group, accepted_at_lines, checked_judges
from opensafeintent.analysis.judges import SHOWN
from opensafeintent.analysis.numbers import AVERAGE, EVERYWHERE, Number
from opensafeintent.analysis.reference import reference_values
from opensafeintent.analysis.swap import Audit
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.statistics import Estimate, rank_intervals

DEMONSTRATION_NOTE = (
    "Graded by baseline/judge, a rule-based judge for demonstrations: these numbers say nothing"
    " about how safe or helpful a model is."
)


Json = dict[str, object]


def metrics_json(groups: Sequence[Group]) -> Json:
    """Return what `metrics.json` holds (docs/formats.md): every metric of every model, by strata as
    well.
    """
    return {
        "schema": 1,
        "models": {
            model: metrics for group in groups for model, metrics in _models_json(group).items()
        },
        "model_average": [_averages(group) for group in groups],
        "strata": _strata_json(groups),
        "comparisons": [_comparisons_json(group) for group in groups],
        "coverage": {
            model: coverage for group in groups for model, coverage in group.coverage.items()
        },
        "groups": [
            {
                "models": group.models,
                "dataset": {
                    "name": group.dataset.name,
                    "hash": group.dataset.hash,
                    "sets": len(group.dataset),
                },
                "judges": group.conditions.judges,
                "mode_judge": group.conditions.mode_judge,
                "grade_parse": group.conditions.parse,
                "templates": dict(group.conditions.templates),
                "judge_checks": checks_json(group),
                "stop_when": [
                    manifest.stop_when for manifest in group.manifests if manifest.stop_when
                ],
                "stopped_early": group.stopped_early,
            }
            for group in groups
        ],
        "judges": [judges_json(group) for group in groups],
        "swap": [swap_json(group) for group in groups],
        "safe_up_to_1": [_lenient_json(group) for group in groups],
        "primary": PRIMARY,
        "reference": {metric: reference_values(metric) for metric in METRICS},
        "partial": any(
            coverage.partial for group in groups for coverage in group.coverage.values()
        ),
        "notes": [DEMONSTRATION_NOTE] if any(group.demonstration for group in groups) else [],
    }


def _models_json(group: Group) -> dict[str, Json]:
    overall = group.numbers.overall
    return {
        found.model: {
            **{metric: _entry(overall[found.model, metric]) for metric in METRICS},
            "wording_excess": {  # no sum over sets alone, and so without bounds
                **estimate_json(found.excess),
                "bounds": None,
                "between": found.between.value,
                "within": found.within.value,
                "unknown": found.unknown,
            },
        }
        for found in group.wordings
    }


def _entry(number: Number) -> Json:
    entry = estimate_json(number) | {"bounds": number.bounds}
    return entry if number.rerun_se is None else entry | {"rerun_se": number.rerun_se}


def estimate_json(found: Estimate) -> Json:
    """Return what `metrics.json` has of every number with an interval."""
    return {"value": found.value, "n": found.n, "ci": found.interval, "ci_method": found.method}


def _averages(group: Group) -> Json:
    """Return the mean over models where a metric is defined, baselines aside, with the pooled
    ratio.
    """
    averages = group.numbers.averages
    none = Number(value=None, n=0, model=AVERAGE, metric="", models=0)
    return {
        metric: estimate_json(average) | {"models": average.models, "pooled": average.pooled}
        for metric in METRICS
        for average in (averages.get((metric, EVERYWHERE), none),)
    }


def _comparisons_json(group: Group) -> Json:
    return {
        metric: {
            "pairs": [
                {
                    "a": group.models[a],
                    "b": group.models[b],
                    "difference": found.value,
                    "ci": found.interval,
                    "n": found.n,
                    "p": found.p,
                    "p_adjusted": found.p_adjusted,
                    "detectable": found.detectable,
                }
                for a, b in combinations(range(len(group.models)), 2)
                if (found := comparison.pair(a, b))
            ],
            "rank_intervals": dict(
                zip(
                    group.models,
                    rank_intervals(comparison, less_is_better=METRICS[metric].less_is_better),
                    strict=True,
                )
            ),
        }
        for metric, comparison in group.numbers.comparisons.items()
    }


def _strata_json(groups: Sequence[Group]) -> Json:
    strata: dict[str, dict[str, dict[str, Json]]] = {"harm_domain": {}, "task_type": {}, "cell": {}}
    macros: dict[str, Json] = {}
    for group in groups:
        for (model, metric, (domain, task)), number in group.numbers.strata.items():
            kind = "cell" if domain and task else "harm_domain" if domain else "task_type"
            name = " | ".join(part for part in (domain, task) if part)
            strata[kind].setdefault(name, {}).setdefault(model, {})[metric] = _entry(number)
        for (model, metric), number in group.numbers.macros.items():
            macros.setdefault(model, {})[metric] = _entry(number)
    return {**strata, "domain_macro": macros}


def checks_json(group: Group) -> dict[str, Json]:
    """Return what `metrics.json` says of the judges' checks, by judge."""
    return {item.judge: _check_json(item) for item in checked_judges(group)}


def _check_json(item: CheckedJudge) -> Json:
    if item.check is None:
        return {"state": item.state}
    check = item.check
    low, high = item.interval
    return {
        "state": item.state,
        "accepted": check.accepted,
        "cases": check.cases,
        "ci": [round(low, 6), round(high, 6)],
        "missing": check.missing,
        "pass_mark": check.pass_mark,
        "reasons": check.reasons,
        "kinds": {kind.kind: [kind.accepted, kind.cases] for kind in check.kinds},
        "groups": accepted_at_lines(check),
        "at_the_line": check.at_the_line,
        "contested": [check.contested.accepted, check.contested.cases],
        "failed": [case.id for case in check.failed],
    }


def judges_json(group: Group) -> Json:
    """Return what is known of a group's judges; empty with one judge that graded once.

    With several judges `models` (model, then judge, `judge_average` or `panel`, then metric),
    `ranks` (metric, the same, model), `agreement` and `swaps`; if responses were graded twice
    `noise`, by judge.
    """
    found: Json = {}
    if graders := group.judges.graders:
        found["models"] = {
            model: {
                grader.name: {metric: grader.estimates[metric][place] for metric in SHOWN}
                for grader in graders
            }
            for place, model in enumerate(group.models)
        }
        found["ranks"] = {
            metric: {
                grader.name: {
                    model: {
                        "rank": grader.rank(metric, place),
                        "interval": grader.rank_interval(metric, place),
                    }
                    for place, model in enumerate(group.models)
                }
                for grader in graders
            }
            for metric in PRIMARY
        }
        found["agreement"] = group.judges.agreements
        found["swaps"] = {metric: group.judges.swaps(metric) for metric in PRIMARY}
    if noise := group.judges.noise:
        found["noise"] = noise
    return found


def swap_json(group: Group) -> Json:
    """Return what requests lend to grades, by model, or of their average, then by judge or panel;
    empty without an audit.
    """
    by_model: dict[str, dict[str, Audit]] = {}
    for (model, grader), audit in group.audits.items():
        by_model.setdefault(model, {})[grader] = audit
    average = by_model.pop(AVERAGE, {})
    return {"models": by_model, "model_average": average} if group.audits else {}


def _lenient_json(group: Group) -> Json:
    """Return the main metrics and ranks where a harm severity of 1 is still safe, and the pairs
    that change places.
    """
    return {
        "models": {
            model: {metric: group.lenient.estimates[metric][place] for metric in SHOWN}
            for place, model in enumerate(group.models)
        },
        "ranks": {
            metric: {
                model: group.lenient.rank(metric, place) for place, model in enumerate(group.models)
            }
            for metric in PRIMARY
        },
        "swaps": {metric: group.swaps_if_lenient(metric) for metric in PRIMARY},
    }


def to_json(value: object) -> bytes:
    """Return a result as `metrics.json` has it: keys sorted, no time stamps, the same bytes for the
    same input.
    """
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
