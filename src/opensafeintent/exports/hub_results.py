"""A run's headline metrics as files for model repositories on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.exports.shared import (
    COLLECTION,
    RUBRICS,
    Json,
    RunOrigin,
    folder_numbers,
    list_defined_headlines,
    model_id,
    models_with_results,
    name_folders,
)
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import MetricEstimate
from opensafeintent.promptsets.cards import yaml_text
from opensafeintent.report.cohort_columns import name_judges
from opensafeintent.report.notices import DEMONSTRATION_NOTE

_REPO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def write_hf_results(cohort: Cohort, origin: RunOrigin, out: Path) -> list[Path]:
    """Write `DEVELOPER/MODEL/.eval_results/opensafeintent.yaml` for each model, and return the
    files.

    A file has a value for each headline metric, and in `notes` the facts without a field in the
    format.

    Raises:
        InputError: nothing names the dataset on the hub, two models would be one, or a file cannot
            be written.
    """
    written: list[Path] = []
    for model, number in folder_numbers(cohort).items():
        if number > 1:
            folder = "/".join(name_folders(model_id(model)))
            raise InputError(
                f"{clean_for_display(model)}: another model of the run has its folder,"
                f" {clean_for_display(folder)}; export each from a run of its own"
            )
    repo, revision = _find_repo(cohort.dataset.name, origin)
    dataset: Json = {"id": repo} | ({"revision": revision} if revision else {})
    for model in models_with_results(cohort):
        name = cohort.members[model].origin.model
        lines = [
            line
            for estimate in list_defined_headlines(cohort, model)
            for line in (
                "- dataset:",
                *(f"    {key}: {yaml_text(value)}" for key, value in dataset.items()),
                f"    task_id: {estimate.metric}",
                f"  value: {estimate.value:.6f}",
                f'  date: "{origin.latest[:10]}"',
                f"  notes: {yaml_text(_notes(cohort, model, origin.manifest, estimate))}",
            )
        ]
        results = out.joinpath(*name_folders(model_id(name)), ".eval_results")
        make_private_folder(results)
        written.append(results / f"{COLLECTION}.yaml")
        write_private(written[-1], "\n".join(lines) + "\n")
    return written


def _find_repo(dataset: str, origin: RunOrigin) -> tuple[str, str]:
    """Return the name of a run's dataset on the hub, and its revision; empty if none is known.

    Raises:
        InputError: the run does not know the name and nobody states it, or another is given.
    """
    named, _, revision = dataset.partition("#")[0].partition("@")
    own = named.removeprefix("hf:") if named.startswith("hf:") else ""
    if origin.dataset_repo is not None:
        if not _REPO.fullmatch(origin.dataset_repo):
            raise InputError(
                f"--dataset-repo {clean_for_display(origin.dataset_repo)}: expected OWNER/NAME, as"
                " the hub names a dataset"
            )
        if origin.repo not in (None, origin.dataset_repo):
            raise InputError(
                f"--repo {clean_for_display(origin.repo or '')}, --dataset-repo"
                f" {origin.dataset_repo}: name two datasets; expected one option, and"
                " --dataset-repo if the run does not know the name"
            )
        # a revision belongs to the repository that was evaluated
        return origin.dataset_repo, revision if origin.dataset_repo == own else ""
    stating = "state its name with --dataset-repo OWNER/NAME"
    if origin.repo not in (None, own):
        raise InputError(
            f"--repo: {clean_for_display(origin.repo or '')}; the run evaluated"
            f" {clean_for_display(dataset)}; if the hub has these prompt-sets, {stating}"
        )
    if not own:
        raise InputError(
            "--dataset-repo: is not given, and results on the hub name a dataset there; the run"
            f" evaluated {clean_for_display(dataset)}; if the hub has these prompt-sets, {stating}"
        )
    return own, revision


def _notes(cohort: Cohort, model: str, manifest: Manifest, estimate: MetricEstimate) -> str:
    """Describe a value's precision, its sample, its judges and their rubrics."""
    coverage = cohort.coverage[model]
    rubrics: list[str] = []
    for role in RUBRICS:
        if stored := manifest.templates.get(manifest.plan.templates.get(role, "")):
            rubrics.append(f"{role} {stored.id} {stored.version}")
    parts = (
        estimate.interval and f"95 % CI [{estimate.low:.4f}, {estimate.high:.4f}]",
        pluralize(estimate.n, "prompt-set"),
        f"dataset sha256 {cohort.dataset.hash}",
        f"judge {name_judges(cohort) or 'unknown'}",
        f"rubrics: {', '.join(rubrics) or 'unknown'}",
        f"opensafeintent {manifest.version}",
        coverage.partial
        and f"PARTIAL: {coverage.responses} of {coverage.planned} responses are stored",
        cohort.uses_demonstration_judge and DEMONSTRATION_NOTE,
    )
    return "; ".join(part for part in parts if part)
