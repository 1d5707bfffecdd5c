"""The command that continues a build, from the settings that it stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opensafeintent.construction.folder import BuildManifest
from opensafeintent.construction.instructions import load_instructions
from opensafeintent.taxonomy import default_taxonomy
from opensafeintent.workflows.reproduce import command_line, headers_stated
from opensafeintent.workflows.settings import BuildSettings


def build_command(manifest: BuildManifest, build: str) -> str:
    """Return the command that continues a build in its folder.

    Args:
        manifest: of the build.
        build: the path of its folder, as the command is to name it.
    """
    return command_line("build", BuildSettings, stated_of_build(manifest, build))


def stated_of_build(manifest: BuildManifest, build: str) -> dict[str, Any]:
    """Return the settings that continue a build, by name; see `build_command`."""
    generator, judge = manifest.generator_sampling, manifest.judge_sampling
    ours = load_instructions().sources()
    return {
        "seeds": manifest.seeds,
        "generator": manifest.generator,
        "judge": manifest.judge,
        "out": build,
        "per_cell": manifest.per_cell,
        "stages": manifest.stages,
        "labels": manifest.labels,
        "limit": manifest.limit,
        "taxonomy": build if manifest.taxonomy != default_taxonomy() else None,
        "templates": build if manifest.templates != ours else None,
        "temperature": generator.temperature,
        "max_tokens": generator.max_tokens,
        "reasoning_effort": generator.reasoning_effort,
        "extra": generator.extra,
        "judge_args": judge.extra,
        "judge_reasoning_effort": judge.reasoning_effort,
        "judge_max_tokens": judge.max_tokens,
        "structured_output": manifest.structured_output,
        "header": headers_stated(manifest.headers, manifest.headers),
        "ledger": manifest.ledger if Path(manifest.ledger).is_absolute() else None,
    }
