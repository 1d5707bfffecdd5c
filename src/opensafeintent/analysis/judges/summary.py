"""What `metrics.json` holds of judges under the key `judges`."""

from __future__ import annotations

from typing import Any

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges.agreement import agreements
from opensafeintent.analysis.judges.conflicts import conflicts_of, without_conflicts
from opensafeintent.analysis.judges.graders import SHOWN, Ranking, rankings, swaps
from opensafeintent.analysis.judges.noise import noise_of
from opensafeintent.metrics import PRIMARY

__all__ = ["judges_json"]


def judges_json(group: Group) -> dict[str, Any]:
    """Return what is known of a group's judges; empty with one judge that graded once and is in no conflict.

    With several judges `models` (model, then judge or `panel`, then metric), `ranks` (metric, judge or `panel`, model),
    `agreement` and `swaps`; where responses were graded twice `noise`, by judge; `conflicts` with the rankings without them.
    """
    found: dict[str, Any] = {}
    if graders := rankings(group):
        found["models"] = {
            model: {grader.name: {metric: grader.estimates[metric][place] for metric in SHOWN} for grader in graders}
            for place, model in enumerate(group.models)
        }
        found["ranks"] = {metric: {grader.name: _ranks(group, grader, metric) for grader in graders} for metric in PRIMARY}
        found["agreement"] = agreements(group)
        found["swaps"] = {metric: swaps(group, metric) for metric in PRIMARY}
    if noise := noise_of(group):
        found["noise"] = noise
    if conflicts := conflicts_of(group):
        found["conflicts"] = {"found": conflicts, "without": {metric: _without(group, metric) for metric in PRIMARY}}
    return found


def _ranks(group: Group, grader: Ranking, metric: str) -> dict[str, Any]:
    return {
        model: {"rank": grader.rank(metric, place), "interval": grader.rank_interval(metric, place)}
        for place, model in enumerate(group.models)
    }


def _without(group: Group, metric: str) -> dict[str, Any]:
    """Return each model's value and rank by the judges that are in no conflict with it, and its rank among free models."""
    without = without_conflicts(group)
    counted = Ranking("", group.numbers.estimates, group.numbers.comparisons)
    found = {}
    for place, model in enumerate(group.models):
        others = without.others(model)
        found[model] = {
            "judges": without.left.get(model),
            "value": None if others is None else others.estimates[metric][place].value,
            "rank": None if others is None else others.rank(metric, place),
            "rank_of_models_without_conflict": counted.rank(metric, place, without.free) if place in without.free else None,
        }
    return found
