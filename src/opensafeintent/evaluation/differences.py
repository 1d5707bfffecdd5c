"""What a new evaluation asks for and an existing run does not have: one run cannot mix them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from opensafeintent.calls.records import Sampling
from opensafeintent.errors import counted
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.promptsets import Dataset


def differences(manifest: Manifest, dataset: Dataset, sampling: dict[str, Any]) -> list[str]:
    """Return the settings in which a new evaluation differs from a run, and which one run cannot
    mix.

    Args:
        manifest: the run's.
        dataset: the new evaluation's.
        sampling: its `target_sampling`, `judge_sampling`, `system` and `preset`.
    """
    lines = []
    if manifest.dataset.hash != dataset.hash:
        old = manifest.dataset
        lines.append(
            f"dataset: the run has {old.name} ({counted(old.sets, 'set')}, {old.hash[:8]}), "
            f"this is {dataset.name} ({counted(len(dataset), 'set')}, {dataset.hash[:8]})"
        )
    labels: dict[str, str] = {}
    if manifest.target_sampling:
        labels = {"target_sampling": "sampling", "system": "system prompt", "preset": "preset"}
    for field, label in labels.items():
        old_value, new_value = getattr(manifest, field), sampling[field]
        if old_value != new_value:
            lines.append(f"{label}: the run has {_show(old_value)}, this has {_show(new_value)}")
    return lines


def judge_differences(
    manifest: Manifest, common: Sampling, samplings: Mapping[str, Sampling]
) -> list[str]:
    """Return the settings of judges in which a new evaluation differs from a run, a line each.

    Args:
        manifest: the run's.
        common: how judges of the new evaluation are sampled that have no arguments of their own.
        samplings: how each of its judges is sampled.
    """
    old = manifest.judge_sampling
    if old is None:
        return []
    if old != common:
        return [f"judge sampling: the run has {_show(old)}, this has {_show(common)}"]
    return [
        f"arguments of judge {judge}: the run has {_show(earlier)}, this has {_show(new)}"
        for judge, new in samplings.items()
        if judge in manifest.judges and (earlier := manifest.sampling_of_judge(judge)) != new
    ]


def _show(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value is not None else "none"
