"""What cannot differ within one run or build: by it shards are told from those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensafeintent.canonical import canonical_json, sha256_hex

if TYPE_CHECKING:
    from opensafeintent.construction.folder import BuildManifest
    from opensafeintent.evaluation.manifest import Manifest

__all__ = ["build_identity", "run_identity"]


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
