"""The key of a study: what each item in each annotator's form is. It stays with the study's owner."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from opensafeintent.files import read_json, write_private
from opensafeintent.people.labels import LabelKind

__all__ = ["AnnotationKey", "KeyItem", "Showing", "read_key", "write_key"]

_SCHEMA = 1


class KeyItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is annotated: a prompt-set, or a response."""

    id: str
    variant: str = ""
    model: str = ""
    epoch: int = 1
    response_sha256: str = ""
    weight: float = 1.0
    stratum: str = ""


class Showing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item as one annotator meets it."""

    code: str
    """What the form calls it; says nothing to its reader."""
    item: int
    """Position in the key's items; of a practice item, in the guide's."""
    words: tuple[str, ...]
    """Hash of each text as it is shown, by slot: see `texts.words_hash`."""
    order: tuple[str, ...] = ()
    """With dataset quality: the variants behind A, B and C."""
    repeat: bool = False
    calibration: bool = False


class AnnotationKey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an import needs to know about a study."""

    schema: int = _SCHEMA
    study: str
    """Identity of the study: of its task, items, texts and seed, and not of who annotates."""
    kind: LabelKind
    dataset: str
    """The dataset's name."""
    dataset_hash: str
    unit: Literal["response", "set"] = "response"
    seed: int
    repeat: float
    guide: str
    items: tuple[KeyItem, ...]
    annotators: dict[str, tuple[Showing, ...]]
    """By annotator, in the order of the form, practice items first."""

    def joined_with(self, other: AnnotationKey) -> AnnotationKey:
        """Return the key of one study with the annotators of both."""
        return msgspec.structs.replace(self, annotators=self.annotators | other.annotators)


def write_key(key: AnnotationKey, path: Path) -> None:
    """Write a key, for its owner's eyes only.

    Raises:
        InputError: it cannot be written.
    """
    write_private(path, msgspec.json.format(msgspec.json.encode(key, order="sorted"), indent=1) + b"\n")


def read_key(path: Path) -> AnnotationKey:
    """Read a key.

    Raises:
        InputError: the file cannot be read, or is not a key of this version.
    """
    return read_json(path, AnnotationKey, "the key of a study (key.json, which annotate export wrote)", schema=_SCHEMA)
