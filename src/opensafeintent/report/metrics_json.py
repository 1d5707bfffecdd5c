"""What `metrics.json` holds: every number of a report, for other programs to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

from opensafeintent.analysis.cohort import CheckedJudge, Group, accepted_at_lines, checked_judges
from opensafeintent.analysis.estimates import AVERAGE, EVERYWHERE, Number, reference_values
from opensafeintent.analysis.judges import SHOWN, Audit, swaps_of
from opensafeintent.calls.scripted import is_baseline
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.formats import Column
from opensafeintent.statistics import rank_intervals

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
                "judge_checks": {item.judge: _check_json(item) for item in checked_judges(group)},
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
                **msgspec.to_builtins(found.excess),
                "bounds": None,
                "between": found.between.value,
                "within": found.within.value,
                "unknown": found.unknown,
            },
        }
        for found in group.wordings
    }


def _entry(number: Number) -> Json:
    rerun = {} if number.rerun_se is None else {"rerun_se": number.rerun_se}
    return _estimate_json(number) | {"bounds": number.bounds} | rerun


def _estimate_json(found: Number) -> Json:
    """Return what a number has as any estimate."""
    return {"value": found.value, "n": found.n, "ci": found.interval, "ci_method": found.method}


def _averages(group: Group) -> Json:
    """Return the mean over models where a metric is defined, baselines aside, with the pooled
    ratio.
    """
    averages = group.numbers.averages
    none = Number(value=None, n=0, model=AVERAGE, metric="", models=0)
    return {
        metric: _estimate_json(average) | {"models": average.models, "pooled": average.pooled}
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


def _check_json(item: CheckedJudge) -> Json:
    check = item.check
    if check is None:
        return {"state": item.state}
    return {
        "state": item.state,
        "accepted": check.accepted,
        "cases": check.cases,
        "ci": [round(end, 6) for end in item.interval],
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
        "swaps": {
            metric: swaps_of(group.models, metric, (group.judges.counted, group.lenient))
            for metric in PRIMARY
        },
    }


def to_json(value: object) -> bytes:
    """Return a result as `metrics.json` has it: keys sorted, no time stamps, the same bytes for the
    same input.
    """
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


# What every table of a report's groups starts with
# ------------------------------------------------------------------------------

UNDEFINED = "– is undefined. Brackets hold the 95 % interval."

MEASURED = (Column("dataset"), Column("judge"))
"""Columns of a row's dataset and judges."""


def judges_of(group: Group) -> str:
    """Return who graded a group's responses."""
    judges, mode_judge = group.conditions.judges, group.conditions.mode_judge
    other = f" (modes: {mode_judge})" if mode_judge and mode_judge not in judges else ""
    return " + ".join(judges) + other


def measured_of(group: Group) -> tuple[str, str]:
    """Return the values of MEASURED."""
    return group.dataset.name, judges_of(group)


def numbered(groups: Sequence[Group]) -> Column:
    """Return the column of the group's number, from 1; people are shown it, first, where there are
    several.
    """
    return Column("group", "Group" if len(groups) > 1 else None, "count", order=-2)


def lead(groups: Sequence[Group]) -> tuple[Column, ...]:
    """Return the columns of a row's group, model, dataset and judges."""
    return numbered(groups), Column("model", "Model", "name"), *MEASURED


def lead_of(groups: Sequence[Group], index: int, model: str) -> tuple[int, str, str, str]:
    """Return the values of `lead` for a model of the group with an index."""
    return index + 1, model, *measured_of(groups[index])


def group_line(groups: Sequence[Group], number: int) -> str:
    """Say on what and by whom a group was measured."""
    group = groups[number]
    which = f"Group {number + 1}: dataset" if len(groups) > 1 else "Dataset"
    judges = one_line(judges_of(group), 80) or "none"
    return f"{which} {one_line(group.dataset.name, 60)} ({group.extent}), judge {judges}."


def group_notes(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return a line for each group, and what to distrust."""
    lines = [group_line(groups, number) for number in range(len(groups))]
    demonstration = [number + 1 for number, group in enumerate(groups) if group.demonstration]
    if demonstration:
        which = f"Group {', '.join(map(str, demonstration))}: " if len(groups) > 1 else ""
        lines.append(which + DEMONSTRATION_NOTE)
    if any(coverage.partial for group in groups for coverage in group.coverage.values()):
        lines.append(
            "Partial: some responses that were planned are not on record (table coverage)."
        )
    return tuple(lines)


def averaged_notes(groups: Sequence[Group], more: str = "") -> tuple[str, ...]:
    """Say what an average over models is, and `more` of it; nothing where no group has one."""
    counts = [sum(not is_baseline(model) for model in group.models) for group in groups]
    if not any(counts):
        return ()
    which = ", ".join(
        f"{count} in group {number}" if len(counts) > 1 else str(count)
        for number, count in enumerate(counts, 1)
    )
    return (
        (
            f"The model average is the mean over the models where a metric is defined ({which};"
            " baselines are left aside); its interval is for the same models on other"
            f" prompt-sets.{more}"
        ),
    )
