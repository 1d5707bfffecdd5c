"""What is said of versions beside their tables: in `metrics.json`, and in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from opensafeintent.analysis.drift import Drift
from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import COMPARED
from opensafeintent.analysis.versions import Line, Step, Turnover, Versions
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.metrics_json import difference_json
from opensafeintent.report.prose import Sentence, say
from opensafeintent.report.tables.versions import changes_in

__all__ = ["version_cautions", "version_findings", "versions_json"]

_say = partial(say, "sentences.jinja")
_MOST = 3
"""Models that a sentence is about."""


# metrics.json ----------------------------------------------------------------------------------------------------------


def versions_json(groups: Sequence[Group]) -> dict[str, Any]:
    """Return what `metrics.json` has of versions, by group; nothing where runs are in no order."""
    if not any(group.versions for group in groups):
        return {}
    return {"versions": [_group_json(index, group.versions) if group.versions else {} for index, group in enumerate(groups)]}


def _group_json(index: int, versions: Versions) -> dict[str, Any]:
    order = versions.order
    return {
        "runs": order.versions,
        "left_aside": [{"run": run, "model": model} for run, model in order.left_aside],
        "lines": [_line_json(index, versions, line) for line in versions.lines],
        "judges": None if order.drift is None else _drift_json(order.drift),
    }


def _drift_json(drift: Drift) -> dict[str, Any]:
    """Return how far judges have shifted; the grades themselves are in the table `version_regrades`."""
    return {name: part for name, part in msgspec.structs.asdict(drift).items() if name != "grades"}


def _line_json(index: int, versions: Versions, line: Line) -> dict[str, Any]:
    return {
        "models": line.models,
        "changes": {
            metric: [
                {"from": found.older, "to": found.newer} | difference_json(found.difference)
                for found in changes_in(index, versions, line, metric)
            ]
            for metric in COMPARED
        },
        "trend": line.trends,
        "turnover": [
            {"from": older.run, "to": newer.run} | msgspec.structs.asdict(found)
            for older, newer, found in versions.turned(line)
        ],
    }


# Sentences -------------------------------------------------------------------------------------------------------------


def version_findings(group: Group) -> list[Sentence]:
    """Return what changed from the first version to the last, and which sets newly fail; nothing without versions."""
    if group.versions is None:
        return []
    versions = group.versions
    changed = [facts for line in versions.lines if (facts := _change_facts(versions, line))]
    changed.sort(key=lambda facts: min(change["p"] for change in facts["changes"]))
    found = [_told("version_changes", "From version to version", changed)] if changed else []
    turned = sorted((_turnover_facts(versions, line) for line in versions.lines), key=lambda facts: -facts["found"].failing)
    return [*found, _told("version_turnover", "Newly failing", turned)]


def _told(macro: str, topic: str, found: list[dict[str, Any]]) -> Sentence:
    """Say it of a few models, those of most note first; the others are in the tables."""
    return _say(macro, topic=topic, found=found[:_MOST], further=len(found) - _MOST)


def _change_facts(versions: Versions, line: Line) -> dict[str, Any] | None:
    """Return the change of the primary metrics from first to last, and which steps hold one that is more than chance."""
    step = Step(0, len(line.models) - 1)
    changes = []
    for metric in PRIMARY:
        if (found := line.change(metric, step)) is None:
            continue
        steps = [each for each in line.steps if each != step and _is_real(line, metric, each)]
        changes.append(
            {
                "metric": metric,
                "label": METRICS[metric].label,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "p": found.p_adjusted,
                "real": found.beyond_chance,
                "steps": [tuple(versions.order.versions[place].run for place in each) for each in steps],
            }
        )
    runs = [versions.order.versions[place].run for place in step]
    return {"model": line.name, "runs": runs, "changes": changes} if changes else None


def _is_real(line: Line, metric: str, step: Step) -> bool:
    found = line.change(metric, step)
    return found is not None and found.beyond_chance


def _turnover_facts(versions: Versions, line: Line) -> dict[str, Any]:
    """Return what newly fails in the last version, and what was mended."""
    last: Turnover = line.turnovers[-1]
    runs = [version.run for version in versions.order.versions[-2:]]
    beyond = [
        what
        for what, found in (("failing", last.failing_excess), ("mended", last.mended_excess))
        if found is not None and found.low is not None and found.low > 0
    ]
    return {"model": line.name, "runs": runs, "found": last, "beyond": beyond}


def version_cautions(group: Group) -> list[Sentence]:
    """Return what to distrust of versions: a judge that nobody asked again, models that are not in every run."""
    if group.versions is None:
        return []
    order = group.versions.order
    sentences = []
    if order.drift is None:
        sentences.append(_say("drift_unchecked", "warning"))
    else:
        sentences.append(_say("drift_checked", "caution", drift=order.drift))
    if order.left_aside:
        sentences.append(_say("left_aside", "caution", models=sorted({model for _, model in order.left_aside})))
    return sentences
