"""The key of a study, from a form's items to prompt-sets and responses: it stays with the
study's owner.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from opensafeintent.annotation.labels import KeyItem, LabelKind, Unit
from opensafeintent.files import near, read_json, to_json, write_private
from opensafeintent.taxonomy import Intent

_SCHEMA = 1
KEY_FILE = "key.json"
"""Its file in the folder of a study."""


class Showing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item as one annotator meets it."""

    code: str
    """Its name in the form; the code reveals nothing to its reader."""
    item: Annotated[int, Meta(ge=0)]
    """Position in the key's items."""
    words: str
    """Hash of the texts as they are shown: see `guide.words_hash`."""
    order: tuple[Intent, ...] = ()
    """With dataset quality: the variants behind A, B and C."""


class AnnotationKey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an import needs to know about a study."""

    schema: int = _SCHEMA
    study: str
    """Identity of the study: of its task, items, texts and seed, but not of its annotators."""
    kind: LabelKind
    dataset: str
    """The dataset's name."""
    dataset_hash: str
    run: str = ""
    """With judge validation: the run's folder, seen from the key's; else empty."""
    unit: Unit = "response"
    guide: str
    """`ID@VERSION`."""
    items: tuple[KeyItem, ...]
    annotators: dict[str, tuple[Showing, ...]]
    """By annotator, in the order of the form."""

    @property
    def labels_file(self) -> str:
        """A name for the file of the study's labels that no other study has."""
        return f"labels-{self.study}.jsonl"

    def __post_init__(self) -> None:
        for name, showings in self.annotators.items():
            if any(showing.item >= len(self.items) for showing in showings):
                raise ValueError(f"{name} is shown an item that the key does not have")


def run_of(key: AnnotationKey, path: Path) -> Path | None:
    """Return the run whose responses a study shows; None if the key names none that is still there.

    Args:
        key: of the study.
        path: its file.
    """
    run = near(Path(os.path.normpath(path.absolute().parent / key.run)))
    return run if key.run and (run / "run.json").is_file() else None


def write_key(key: AnnotationKey, path: Path) -> None:
    """Write a key, for its owner's eyes only.

    Raises:
        InputError: it cannot be written.
    """
    write_private(path, to_json(key))


def read_key(path: Path) -> AnnotationKey:
    """Read a key.

    Raises:
        InputError: the file cannot be read, or is not a key of this version.
    """
    return read_json(
        path,
        AnnotationKey,
        "the key of a study (key.json, which annotate export wrote)",
        schema=_SCHEMA,
    )
