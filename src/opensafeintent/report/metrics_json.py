"""What `metrics.json` holds: every number of a report, for other programs to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judge_checks import checks_json
from opensafeintent.analysis.judges.summary import judges_json
from opensafeintent.analysis.numbers import CELL_METRICS
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.metrics import METRICS, PRIMARY, compute
from opensafeintent.statistics import Estimates, rank_intervals, rounded

__all__ = ["DEMONSTRATION_NOTE", "metrics_json", "to_json"]

DEMONSTRATION_NOTE = (
    "Graded by baseline/judge, a rule-based judge for demonstrations: these numbers say nothing about how safe or helpful "
    "a model is."
)


def metrics_json(groups: Sequence[Group]) -> dict[str, Any]:
    """Return what `metrics.json` holds (docs/formats.md): every metric of every model, by strata as well."""
    return {
        "schema": 1,
        "models": {model: metrics for group in groups for model, metrics in _models_json(group).items()},
        "model_average": [_averages(group) for group in groups],
        "strata": _strata_json(groups),
        "comparisons": [_comparisons_json(group) for group in groups],
        "coverage": {model: coverage for group in groups for model, coverage in group.coverage.items()},
        "groups": [
            {
                "models": group.models,
                "dataset": {"name": group.dataset.name, "hash": group.dataset.hash, "sets": len(group.dataset)},
                "judges": group.conditions.judges,
                "mode_judge": group.conditions.mode_judge,
                "grade_parse": group.conditions.parse,
                "templates": dict(group.conditions.templates),
                "judge_checks": checks_json(group),
            }
            for group in groups
        ],
        "judges": [judges_json(group) for group in groups],
        "primary": PRIMARY,
        "partial": any(coverage.partial for group in groups for coverage in group.coverage.values()),
        "notes": [DEMONSTRATION_NOTE] if any(group.demonstration for group in groups) else [],
    }


def _models_json(group: Group) -> dict[str, dict[str, Any]]:
    found = _estimates_json(group.models, group.estimates)
    rerun = rerun_errors(group)
    for place, model in enumerate(group.models):
        for name, (low, high) in group.bounds.items():
            if not np.isnan(low[place]):
                found[model][name]["bounds"] = [rounded(low[place]), rounded(high[place])]
            if name in rerun and not np.isnan(rerun[name][place]):
                found[model][name]["rerun_se"] = rounded(rerun[name][place])
    return found


def rerun_errors(group: Group) -> dict[str, NDArray[np.float64]]:
    """Return the standard error for "the same prompts run again", from the spread of a set's epochs; empty with one epoch.

    For the metrics that are a plain mean over sets: √(Σ s² / E) / N over the sets with two or more complete epochs.
    """
    if group.array.sizes["epoch"] < 2:
        return {}
    parts = [compute(group.array.isel(epoch=[place])) for place in range(group.array.sizes["epoch"])]
    errors: dict[str, NDArray[np.float64]] = {}
    for name in METRICS:
        top = np.array([part[name].numerator.values for part in parts])
        bottom = np.array([part[name].denominator.values for part in parts])
        if not np.isin(bottom, (0.0, 1.0)).all():
            continue
        values = np.where(bottom > 0, top, np.nan)
        epochs = (bottom > 0).sum(axis=0)
        sure = epochs >= 2
        with np.errstate(invalid="ignore", divide="ignore"):
            centre = np.where(sure, np.nansum(values, axis=0) / epochs, 0.0)
            spread = np.nansum((values - centre) ** 2, axis=0) / (epochs - 1) / epochs
            errors[name] = np.sqrt(np.where(sure, spread, 0.0).sum(axis=1)) / sure.sum(axis=1)
    return errors


def _estimates_json(models: Sequence[str], estimates: Mapping[str, Estimates]) -> dict[str, dict[str, Any]]:
    return {
        model: {
            name: _entry(
                float(found.value[place]),
                int(found.n[place]),
                (float(found.low[place]), float(found.high[place])),
                found.method[place],
            )
            for name, found in estimates.items()
        }
        for place, model in enumerate(models)
    }


def _entry(value: float, n: int, ci: tuple[float, float] | None = None, method: str | None = None) -> dict[str, Any]:
    there = n > 0
    return {
        "value": value if there else None,
        "n": n,
        "ci": [rounded(ci[0]), rounded(ci[1])] if there and ci and method else None,
        "ci_method": method if there else None,
        "bounds": None,
    }


def _averages(group: Group) -> dict[str, Any]:
    """Return the mean over models where a metric is defined, baselines aside, with the pooled ratio."""
    places = [place for place, model in enumerate(group.models) if not is_baseline(model)]
    averages: dict[str, Any] = {}
    for name, ratio in group.ratios.items():
        values = ratio.value.values[places]
        defined = values[~np.isnan(values)]
        total = float(ratio.denominator.values[places].sum())
        averages[name] = {
            "value": float(defined.mean()) if len(defined) else None,
            "models": len(defined),
            "pooled": float(ratio.numerator.values[places].sum()) / total if total else None,
        }
    return averages


def _comparisons_json(group: Group) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, comparison in group.comparisons.items():
        pairs = [
            {
                "a": group.models[a],
                "b": group.models[b],
                "difference": rounded(comparison.difference[a, b]),
                "ci": [rounded(comparison.low[a, b]), rounded(comparison.high[a, b])],
                "n": int(comparison.n[a, b]),
                "p": rounded(comparison.p[a, b]),
                "p_holm": rounded(comparison.p_holm[a, b]),
                "detectable": None if np.isnan(comparison.detectable[a, b]) else rounded(comparison.detectable[a, b]),
            }
            for a in range(len(group.models))
            for b in range(a + 1, len(group.models))
            if comparison.n[a, b]
        ]
        ranks = dict(zip(group.models, rank_intervals(comparison), strict=True))
        found[name] = {"pairs": pairs, "rank_intervals": ranks}
    return found


def _strata_json(groups: Sequence[Group]) -> dict[str, Any]:
    strata: dict[str, Any] = {"harm_domain": {}, "task_type": {}, "cell": {}, "domain_macro": {}}
    for group in groups:
        taxonomy, every = group.dataset.taxonomy, list(group.ratios)
        domain, task = group.array.harm_domain.values, group.array.task_type.values
        for name in taxonomy.domain_names:
            _add_stratum(strata["harm_domain"], name, group, domain == name, every)
        for name in taxonomy.type_names:
            _add_stratum(strata["task_type"], name, group, task == name, every)
        for in_domain, in_type in taxonomy.cells:
            members = (domain == in_domain) & (task == in_type)
            _add_stratum(strata["cell"], f"{in_domain} | {in_type}", group, members, CELL_METRICS)
        strata["domain_macro"] |= _macro(group, strata["harm_domain"])
    return strata


def _add_stratum(strata: dict[str, Any], name: str, group: Group, members: NDArray[np.bool_], metrics: Sequence[str]) -> None:
    if members.any():
        strata.setdefault(name, {}).update(_estimates_json(group.models, group.within(members, metrics)))


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


def to_json(value: Any) -> bytes:
    """Return a result as `metrics.json` has it: keys sorted, no time stamps, the same bytes for the same input."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
