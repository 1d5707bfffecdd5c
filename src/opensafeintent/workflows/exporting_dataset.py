"""Hand a dataset on to other programs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from opensafeintent.interop.huggingface import Publication, write_hub_folder
from opensafeintent.promptsets import Dataset, load_dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import load_taxonomy

__all__ = ["ExportDatasetSettings", "ExportedDataset", "export_dataset"]


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
