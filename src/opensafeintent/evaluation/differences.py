"""What a new evaluation asks for and an existing run does not have: one run cannot mix them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.headers import Headers
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import counted
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.promptsets import Dataset


class Connections(NamedTuple):
    """What requests depend on that is no part of a call's key."""

    models: Set[str]
    """Every model that is asked."""
    headers: Headers
    code: Mapping[str, str]
    """By Python function, a hash of its code."""


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


class Unlike(NamedTuple):
    """How requests to a model differ from those that were made before."""

    text: str
    way_out: str
    """What to give so that they do not."""


def refusal(unlike: Iterable[Unlike]) -> str:
    """Return the end of an error: the differences, and the ways out."""
    texts, ways = zip(*unlike, strict=True)
    choices = " and ".join(dict.fromkeys(ways))
    return f"{'; '.join(texts)}; give {choices}, or choose a new --out"


def connection_differences(before: Connections, now: Connections) -> dict[str, Unlike]:
    """Return, by model, how its requests differ from those that were made before.

    Args:
        before: of the models that were asked before.
        now: of those that are asked now.
    """
    lines: dict[str, Unlike] = {}
    for model in before.models & now.models:
        old, new = (headers.get(model, {}) for headers in (before.headers, now.headers))
        if old != new:
            lines[model] = Unlike(
                f"headers of {model}: before {_headers_text(old)}, now {_headers_text(new)}",
                "the same --header again" if old else "no --header",
            )
        codes = {one.code[model] for one in (before, now) if model in one.code}
        if len(codes) > 1:
            lines[model] = Unlike(
                f"{model}: its code has changed, and its version has not",
                "another version of the function",
            )
    return dict(sorted(lines.items()))


def _headers_text(headers: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={headers[name]}" for name in sorted(headers)) or "none"


def _show(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value is not None else "none"
