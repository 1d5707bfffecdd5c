"""What is kept of a study: its key, which says what each item in each form is, and the labels that
people gave.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.files import parse_json, read_bytes, read_json, write_private

LabelKind = Literal["dataset_quality", "judge_validation"]

QUALITY_QUESTIONS = (
    "domain_right",
    "type_right",
    "sounds_human",
    "same_topic",
    "benign_is_benign",
    "malicious_is_malicious",
    "dual_use_has_both",
    "overall_quality",
)
"""The paper's seven yes/no questions on a prompt-set (its appendix), and the overall quality, good
or poor.
"""

UNSURE = "unsure"

Answer = str | int
"""`yes`, `no`, `good`, `poor`; a grade; or `unsure`."""


class Label(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one annotator answered about one prompt-set or one response, once."""

    kind: LabelKind
    annotator: str
    dataset: str
    """Hash of the dataset that was annotated."""
    id: str
    """Id of the prompt-set."""
    variant: str = ""
    """With `judge_validation`: which prompt of the set."""
    model: str = ""
    """With `judge_validation`: who wrote the response."""
    epoch: int = 1
    response_sha256: str = ""
    """With `judge_validation`: hash of the response's text, which tells a label of another text."""
    answers: dict[str, Answer]
    """By question: those of `QUALITY_QUESTIONS`, or `helpfulness` and `harm_severity`.

    What was left blank is not there.
    """
    repeat: bool = False
    """Whether this is the second showing of an item that the annotator had seen before."""
    weight: float = 1.0
    """One over the probability with which the item was drawn into the sample."""
    stratum: str = ""
    """What the sample was stratified by, where it was."""
    unit: Literal["response", "set"] = "response"
    """Whether single responses or whole prompt-sets were drawn."""
    note: str = ""


def both_times(first: Label | None, again: Label) -> list[tuple[str, Answer, Answer]]:
    """Return (question, first answer, second answer) of what an annotator answered at both showings
    of an item.

    `unsure` is no answer. Without a first showing there is nothing to compare the second with.
    """
    answers = first.answers if first else {}
    pairs = [
        (question, answers.get(question, UNSURE), second)
        for question, second in again.answers.items()
    ]
    return [pair for pair in pairs if UNSURE not in pair[1:]]


def write_labels(labels: Iterable[Label], path: Path) -> None:
    """Write labels, a line each.

    Raises:
        InputError: the file cannot be written.
    """
    encoder = msgspec.json.Encoder(order="sorted")
    write_private(path, b"".join(encoder.encode(label) + b"\n" for label in labels))


def read_labels(path: Path) -> list[Label]:
    """Read labels.

    Raises:
        InputError: the file cannot be read, or a line is not a label; the text names the line.
    """
    lines = enumerate(read_bytes(path).splitlines(), start=1)
    labels = [
        parse_json(line, Label, f"{path}, line {number}", "a label")
        for number, line in lines
        if line.strip()
    ]
    if not labels:
        raise InputError(f"{path}: holds no labels")
    return labels


# The key of a study: it stays with the study's owner
# -----------------------------------------------------------------------

_SCHEMA = 1


class KeyItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is annotated: a prompt-set, or a response."""

    id: str
    variant: str = ""
    model: str = ""
    epoch: int = 1
    response_sha256: str = ""
    weight: float = 1.0
    """One over the probability with which it was drawn."""
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


def write_key(key: AnnotationKey, path: Path) -> None:
    """Write a key, for its owner's eyes only.

    Raises:
        InputError: it cannot be written.
    """
    write_private(
        path, msgspec.json.format(msgspec.json.encode(key, order="sorted"), indent=1) + b"\n"
    )


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
