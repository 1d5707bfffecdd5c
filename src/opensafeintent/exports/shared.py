"""What the formats of shared results have in common, and the files of the export before."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from opensafeintent.calls.providers import is_in_process, parse_provider
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.files import sha256_hex
from opensafeintent.hostile import show_unseen
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.estimates import MetricEstimate
from opensafeintent.taxonomy import QUESTIONS
from opensafeintent.templates import Role

Json = dict[str, Any]

COLLECTION = "opensafeintent"
_NOT_IN_PATHS = re.compile(r'[<>"\\|?*\x00-\x1f]')

RUBRICS: tuple[Role, ...] = tuple(question.role for question in QUESTIONS if question.in_metrics)


class RunOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a run besides its numbers."""

    manifest: Manifest
    latest: str
    """When its ledger was last added to, ISO 8601."""
    organization: str
    relationship: str
    repo: str | None
    """The dataset's on the hub, as the user calls it; it has to be the run's own."""
    dataset_repo: str | None = None
    """The dataset's on the hub, as the user states it for a run that does not know."""


def models_with_results(cohort: Cohort) -> list[str]:
    """Return the models with a headline metric that is defined."""
    return [model for model in cohort.models if list_defined_headlines(cohort, model)]


def models_without_results(cohort: Cohort) -> list[str]:
    """Return the other models.

    Raises:
        InputError: there are only such, or no response was graded by rubric.
    """
    if not cohort.scope.rubric:
        raise InputError(
            f"{cohort.dataset.shown}: judges were asked the sets' own questions alone, and shared"
            " formats hold metrics of grades; expected a run with --judge-by both"
        )
    lacking = [model for model in cohort.models if not list_defined_headlines(cohort, model)]
    if len(lacking) == len(cohort.models):
        raise InputError(
            f"{', '.join(lacking)}: no headline metric is defined; expected graded prompt-sets"
        )
    return lacking


def list_defined_headlines(cohort: Cohort, model: str) -> list[MetricEstimate]:
    """Return the headline metrics of a model that are defined."""
    estimates = [cohort.estimates.overall[model, name] for name in cohort.scope.headlines]
    return [estimate for estimate in estimates if estimate.n and estimate.value is not None]


_RESERVED = re.compile(r"data\Z|(?i:con|prn|aux|nul|com\d|lpt\d)(?=\.|\Z)")
"""Names that no folder of theirs may have: their root, and those of devices in Windows."""


def model_id(model: str) -> str:
    """Return the name by which others know a model, as far as ours tells: developer/model, without
    characters that no folder can have.
    """
    provider = parse_provider(model)
    inner = model.partition(f"{provider}/")[2]
    if not inner:
        parts = ["imported", model]
    elif inner.startswith("/") or "/" not in inner or is_in_process(model):
        parts = [provider, inner.rpartition("/")[2]]  # of a path to weights, the last folder
    else:
        parts = inner.split("/")
    seen = (show_unseen(part, "_") for part in parts)
    safe = (_NOT_IN_PATHS.sub("_", part).rstrip(". ") or "_" for part in seen)
    return "/".join(_RESERVED.sub(r"\g<0>_", part) for part in safe)


_LONGEST_FOLDER = 150
"""Bytes; file systems take 255."""


def name_folders(name: str) -> tuple[str, str]:
    """Return the folders of a model: its developer and the rest of its name. A name that is too
    long for a folder ends with a hash of it.
    """
    developer, *names = name.replace(":", "_").split("/")
    return _short(developer), _short("_".join(names))


def _short(name: str) -> str:
    raw = name.encode()
    if len(raw) <= _LONGEST_FOLDER:
        return name
    return f"{raw[:_LONGEST_FOLDER].decode(errors='ignore')}-{sha256_hex(raw)[:12]}"


def folder_numbers(cohort: Cohort) -> dict[str, int]:
    """Return the number of each model among those that would have its folders, also if a file
    system ignores case: 1 of the first.
    """
    by_folders: dict[tuple[str, ...], list[str]] = {}
    numbers = {}
    for origin in cohort.origins:
        key = tuple(folder.casefold() for folder in name_folders(model_id(origin.model)))
        models = by_folders.setdefault(key, [])
        if origin.model not in models:
            models.append(origin.model)
        numbers[origin.model] = models.index(origin.model) + 1
    return numbers
