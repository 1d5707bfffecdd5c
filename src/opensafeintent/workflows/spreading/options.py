"""Where work is spread to, and what an interrupted run has left there; light, for every command looks here."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opensafeintent.calls.client import Budget
from opensafeintent.canonical import canonical_json, sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.interop.ray.cluster import check_address
from opensafeintent.interop.ray.folder import Merged, ShardsFolder

if TYPE_CHECKING:
    from opensafeintent.construction.folder import BuildFolder, BuildManifest
    from opensafeintent.evaluation.manifest import Manifest

__all__ = ["Spreading", "build_identity", "check_options", "left_shards", "run_identity", "take_up_build", "take_up_run"]


class Spreading(msgspec.Struct, frozen=True, kw_only=True):
    """Where to spread the work, and into how many parts."""

    address: str
    """HOST:PORT of a cluster's head, `auto`, or `local`."""
    shards: int | None = None
    """Of each target's prompt-sets, or of a stage's items."""
    gpus_per_model: float | None = None
    """For a model whose weights a task loads; by default one, where the cluster has any."""
    max_connections: int | None = None
    budget: Budget = Budget()


def check_options(
    ray: str | None, shards: int | None, gpus_per_model: float | None = None, budget_dollars: float | None = None
) -> None:
    """Refuse options that cannot be meant.

    Raises:
        InputError: see above; or the extra is missing.
    """
    if ray is not None:
        check_address(ray)
        if budget_dollars is not None:
            raise InputError("--budget-dollars: is not for --ray; leave one out, or give --budget-calls or --budget-tokens")
    for option, value in (("--shards", shards), ("--gpus-per-model", gpus_per_model)):
        if value is None:
            continue
        if ray is None:
            raise InputError(f"{option}: is for --ray, which is not given")
        if not isfinite(value) or value < (1 if option == "--shards" else 0):
            raise InputError(f"{option} {value}: expected a number from {1 if option == '--shards' else 0}")
    if gpus_per_model is not None and round(gpus_per_model, 0 if gpus_per_model > 1 else 4) != gpus_per_model:
        raise InputError(
            f"--gpus-per-model {gpus_per_model:g}: expected a whole number, or a part of one GPU with up to four decimals"
        )


def left_shards(run: Path) -> list[str]:
    """Say, to a command that does not take them up, that a run's folder holds shards of an interrupted run."""
    shards = ShardsFolder(run)
    if not shards.exists():
        return []
    return [f"{shards.path}: holds calls of an interrupted run, which are not counted here; running it again takes them up"]


def take_up_run(folder: RunFolder) -> list[str]:
    """Merge the shards that an interrupted evaluation has left in a run's folder; say what they came to.

    Raises:
        InputError: they are of another run, or damaged.
    """
    shards = ShardsFolder(folder.path)
    if not shards.exists():
        return []
    if not folder.exists():
        raise InputError(f"{shards.path}: holds shards of a run, and there is no run here; move the folder back to its run")
    manifest, _ = folder.load()
    return _taken_up(shards.take_up(run_identity(manifest), folder.ledger_path(manifest)))


def take_up_build(folder: BuildFolder) -> list[str]:
    """Merge the shards that an interrupted build has left in its folder; say what they came to.

    Raises:
        InputError: they are of another build, or damaged.
    """
    shards = ShardsFolder(folder.path)
    if not shards.exists():
        return []
    manifest = folder.load()
    if manifest is None:
        raise InputError(f"{shards.path}: holds shards, and there is no build here; move the folder back to its build")
    return _taken_up(shards.take_up(build_identity(manifest), folder.ledger_path(manifest)))


def _taken_up(merged: Merged | None) -> list[str]:
    if merged is None:
        return []
    waiting = merged.lost - merged.again
    lost = f"; {waiting:,} were in flight when it ended, and are made again" if waiting else ""
    return [f"{merged.added.made.total():,} calls were taken up from the shards of an interrupted run{lost}"]


def run_identity(manifest: Manifest) -> dict[str, str]:
    """Return what cannot differ within one run."""
    return {
        "dataset": f"{manifest.dataset.name} ({manifest.dataset.hash[:12]})",
        "sampling": _json(manifest.target_sampling),
        "judge sampling": _json(manifest.judge_sampling),
        "system prompt": _json(manifest.system),
        "preset": _json(manifest.preset),
    }


def build_identity(manifest: BuildManifest) -> dict[str, str]:
    """Return what cannot differ within one build."""
    return {
        "generator": manifest.generator,
        "judge": manifest.judge,
        "generator sampling": _json(manifest.generator_sampling),
        "judge sampling": _json(manifest.judge_sampling),
        "taxonomy": sha256_hex(canonical_json(manifest.taxonomy))[:12],
    }


def _json(value: object) -> str:
    return canonical_json(value).decode()
