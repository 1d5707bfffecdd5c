"""What `metrics.json` holds: every number of a report, for other programs to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec

from opensafeintent.analysis.groups import Group, accepted_at_lines, checked_judges
from opensafeintent.analysis.judges import SHOWN, Ranking
from opensafeintent.analysis.numbers import AVERAGE, EVERYWHERE, Number
from opensafeintent.analysis.reference import reference_values
from opensafeintent.analysis.wording import Wording
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.statistics import Comparison, Difference, Estimate, rank_intervals

DEMONSTRATION_NOTE = (
    "Graded by baseline/judge, a rule-based judge for demonstrations: these numbers say nothing"
    " about how safe or helpful a model is."
)


def metrics_json(groups: Sequence[Group]) -> dict[str, Any]:
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


def _models_json(group: Group) -> dict[str, dict[str, Any]]:
    overall = group.numbers.overall
    return {
        found.model: (
            {metric: _entry(overall[found.model, metric]) for metric in METRICS}
            | _wording_json(found)
        )
        for found in group.wordings
    }


def _wording_json(found: Wording) -> dict[str, Any]:
    """Return the effect of the wording: no sum over sets alone, and so without bounds."""
    more = {"between": found.between.value, "within": found.within.value, "unknown": found.unknown}
    return {"wording_excess": estimate_json(found.excess) | {"bounds": None} | more}


def _entry(number: Number) -> dict[str, Any]:
    entry = estimate_json(number) | {"bounds": number.bounds}
    return entry if number.rerun_se is None else entry | {"rerun_se": number.rerun_se}


def estimate_json(found: Estimate) -> dict[str, Any]:
    """Return what `metrics.json` has of every number with an interval."""
    return {"value": found.value, "n": found.n, "ci": found.interval, "ci_method": found.method}


def difference_json(found: Difference) -> dict[str, Any]:
    """Return what `metrics.json` has of every difference of two models or versions."""
    return {
        "difference": found.value,
        "ci": found.interval,
        "n": found.n,
        "p": found.p,
        "p_adjusted": found.p_adjusted,
        "detectable": found.detectable,
    }


def _averages(group: Group) -> dict[str, Any]:
    """Return the mean over models where a metric is defined, baselines aside, with the pooled
    ratio.
    """
    averages = {metric: group.numbers.averages.get((metric, EVERYWHERE)) for metric in METRICS}
    return {
        metric: (
            estimate_json(average or Estimate(value=None, n=0))
            | {
                "models": average.models if average else 0,
                "pooled": average.pooled if average else None,
            }
        )
        for metric, average in averages.items()
    }


def _comparisons_json(group: Group) -> dict[str, Any]:
    compared: dict[str, Any] = {}
    for name, comparison in group.numbers.comparisons.items():
        pairs = [
            {"a": group.models[a], "b": group.models[b]} | difference_json(found)
            for a, b in combinations(range(len(group.models)), 2)
            if (found := comparison.pair(a, b))
        ]
        compared[name] = {
            "pairs": pairs,
            "rank_intervals": _open_ranks(group, name, comparison),
        }
    return compared


def _open_ranks(
    group: Group, metric: str, comparison: Comparison
) -> dict[str, tuple[int, int] | None]:
    """Return the ranks that each model may have; null where it has no value."""
    ranks = rank_intervals(comparison, less_is_better=METRICS[metric].less_is_better)
    return dict(zip(group.models, ranks, strict=True))


def _strata_json(groups: Sequence[Group]) -> dict[str, Any]:
    strata: dict[str, Any] = {"harm_domain": {}, "task_type": {}, "cell": {}, "domain_macro": {}}
    for group in groups:
        for (model, metric, (domain, task)), number in group.numbers.strata.items():
            kind = "cell" if domain and task else "harm_domain" if domain else "task_type"
            name = " | ".join(part for part in (domain, task) if part)
            strata[kind].setdefault(name, {}).setdefault(model, {})[metric] = _entry(number)
        strata["domain_macro"] |= {
            model: {metric: _entry(group.numbers.macros[model, metric]) for metric in METRICS}
            for model in group.models
        }
    return strata


def checks_json(group: Group) -> dict[str, dict[str, object]]:
    """Return what `metrics.json` says of the judges' checks, by judge."""
    found: dict[str, dict[str, object]] = {}
    for item in checked_judges(group):
        found[item.judge] = {"state": item.state}
        if item.check is not None:
            low, high = item.interval
            found[item.judge] |= {
                "accepted": item.check.accepted,
                "cases": item.check.cases,
                "ci": [round(low, 6), round(high, 6)],
                "missing": item.check.missing,
                "pass_mark": item.check.pass_mark,
                "reasons": item.check.reasons,
                "kinds": {kind.kind: [kind.accepted, kind.cases] for kind in item.check.kinds},
                "groups": {
                    name: estimate_json(share)
                    for name, share in accepted_at_lines(item.check).items()
                },
                "at_the_line": msgspec.to_builtins(item.check.at_the_line),
                "contested": [item.check.contested.accepted, item.check.contested.cases],
                "failed": [case.id for case in item.check.failed],
            }
    return found


def judges_json(group: Group) -> dict[str, Any]:
    """Return what is known of a group's judges; empty with one judge that graded once.

    With several judges `models` (model, then judge, `judge_average` or `panel`, then metric),
    `ranks` (metric, the same, model), `agreement` and `swaps`; if responses were graded twice
    `noise`, by judge.
    """
    found: dict[str, Any] = {}
    if graders := group.judges.graders:
        found["models"] = {
            model: {
                grader.name: {metric: grader.estimates[metric][place] for metric in SHOWN}
                for grader in graders
            }
            for place, model in enumerate(group.models)
        }
        found["ranks"] = {
            metric: {grader.name: _ranks(group, grader, metric) for grader in graders}
            for metric in PRIMARY
        }
        found["agreement"] = group.judges.agreements
        found["swaps"] = {metric: group.judges.swaps(metric) for metric in PRIMARY}
    if noise := group.judges.noise:
        found["noise"] = noise
    return found


def swap_json(group: Group) -> dict[str, Any]:
    """Return what requests lend to grades, by model, or of their average, then by judge or panel;
    empty without an audit.
    """
    found: dict[str, Any] = {"models": {}, "model_average": {}}
    for (model, grader), audit in group.audits.items():
        place = (
            found["model_average"] if model == AVERAGE else found["models"].setdefault(model, {})
        )
        place[grader] = audit
    return found if group.audits else {}


def _lenient_json(group: Group) -> dict[str, Any]:
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


def _ranks(group: Group, grader: Ranking, metric: str) -> dict[str, Any]:
    return {
        model: {"rank": grader.rank(metric, place), "interval": grader.rank_interval(metric, place)}
        for place, model in enumerate(group.models)
    }


def to_json(value: Any) -> bytes:
    """Return a result as `metrics.json` has it: keys sorted, no time stamps, the same bytes for the
    same input.
    """
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
