"""Look at a dataset, check it, convert it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.interop.huggingface import Publication, write_hub_folder
from opensafeintent.promptsets import Dataset, load_dataset, read_dataset, write_dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import Taxonomy, load_taxonomy

__all__ = [
    "DatasetInfo",
    "ExportDatasetSettings",
    "ExportedDataset",
    "convert_dataset",
    "dataset_info",
    "export_dataset",
    "validate_dataset",
]


class DatasetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `dataset info` shows."""

    name: str
    hash: str
    sets: int
    prompts: int
    taxonomy: Taxonomy
    cells: dict[tuple[str, str], int]
    """Prompt-sets by (harm domain, task type), empty cells left out."""
    words: dict[str, tuple[int, float, int]]
    """Least, median and most words of a prompt, by variant."""
    languages: dict[str, int]
    """Prompt-sets by language; `not stated` where the field is not there."""
    paraphrases: dict[int, int]
    """Prompt-sets by number of paraphrases."""


def _taxonomy(path: Path | None) -> Taxonomy | None:
    return load_taxonomy(path) if path else None


def dataset_info(name: str, taxonomy: Path | None = None, max_rows: int | None = MOST_ROWS) -> DatasetInfo:
    """Describe a dataset: counts per cell, lengths, hash.

    Raises:
        InputError: there is no valid dataset under that name.
    """
    dataset = load_dataset(name, _taxonomy(taxonomy), max_rows)
    words: dict[str, list[int]] = {variant: [] for variant in dataset.variants}
    for prompt_set in dataset.prompt_sets:
        for variant, prompt in prompt_set.wordings().items():
            words[variant].append(len(prompt.split()))
    return DatasetInfo(
        name=dataset.name,
        hash=dataset.hash,
        sets=len(dataset),
        prompts=sum(map(len, words.values())),
        taxonomy=dataset.taxonomy,
        cells=dict(Counter(prompt_set.cell for prompt_set in dataset.prompt_sets)),
        words={variant: (min(counts), median(counts), max(counts)) for variant, counts in words.items()},
        languages=dict(Counter(prompt_set.language or "not stated" for prompt_set in dataset.prompt_sets)),
        paraphrases=dict(Counter(len(prompt_set.dual_use_paraphrases) for prompt_set in dataset.prompt_sets)),
    )


def validate_dataset(name: str, taxonomy: Path | None = None, max_rows: int | None = MOST_ROWS) -> tuple[Dataset, list[str]]:
    """Check every record of a dataset; return it with remarks on what is valid and yet unusual.

    Raises:
        InputError: something is wrong; every problem stands on a line of its own.
    """
    dataset, problems = read_dataset(name, _taxonomy(taxonomy), max_rows)
    if dataset is None:
        raise InputError(*problems)
    return dataset, _remarks(dataset)


def _remarks(dataset: Dataset) -> list[str]:
    remarks = []
    for prompt_set in dataset.prompt_sets:
        wordings = list(prompt_set.wordings().values())
        if len(set(wordings)) < len(wordings):
            remarks.append(f"set {prompt_set.id}: two of its prompts are the same text")
        if not prompt_set.dual_use_paraphrases:
            remarks.append(f"set {prompt_set.id}: no paraphrases; stability is not measured on it")
    empty = sorted(set(dataset.taxonomy.cells) - {prompt_set.cell for prompt_set in dataset.prompt_sets})
    if empty:
        remarks.append(f"{len(empty)} of {len(dataset.taxonomy.cells)} cells hold no set")
    return remarks


def convert_dataset(name: str, out: Path, taxonomy: Path | None = None, max_rows: int | None = MOST_ROWS) -> Dataset:
    """Write a dataset in our format; the suffix of `out` names it: `.jsonl` or `.parquet`.

    Raises:
        InputError: the dataset is not valid, or `out` cannot be written.
    """
    dataset = load_dataset(name, _taxonomy(taxonomy), max_rows)
    write_dataset(dataset, out)
    return dataset


class ExportDatasetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which dataset to export, where to, and what its publisher says of it."""

    dataset: str
    out: Path
    taxonomy: Path | None = None
    max_rows: int | None = MOST_ROWS
    """Of the dataset; None sets no limit."""
    publication: Publication = Publication()


class ExportedDataset(msgspec.Struct, frozen=True, kw_only=True):
    """What was exported, the files, and the options that Croissant's required properties still wait for."""

    dataset: Dataset
    files: tuple[Path, ...]
    unsaid: tuple[str, ...]


def export_dataset(settings: ExportDatasetSettings) -> ExportedDataset:
    """Write a dataset as a folder for the Hugging Face hub: Parquet, a card and Croissant metadata.

    `datasets.load_dataset` and our own `load_dataset` read the folder; the dataset's hash stays the same. The starter set is
    exported under its own title and licence where no others are given.

    Raises:
        InputError: the dataset is not valid, the extra `[parquet]` is missing, something said of the dataset is not of its
            form, or the folder cannot be written.
    """
    taxonomy = load_taxonomy(settings.taxonomy) if settings.taxonomy else None
    dataset = load_dataset(settings.dataset, taxonomy, settings.max_rows)
    publication = settings.publication
    if settings.dataset == "starter":
        publication = msgspec.structs.replace(
            publication,
            title=publication.title or "OpenSafeIntent starter set",
            license=publication.license or "apache-2.0",
            creator=publication.creator or "The OpenSafeIntent maintainers",
        )
    files = write_hub_folder(dataset, settings.out, publication)
    return ExportedDataset(dataset=dataset, files=tuple(files), unsaid=publication.unsaid)
