"""What people said of prompt-sets or responses, as it is kept: one line of JSON for each item an annotator answered."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from opensafeintent.errors import InputError
from opensafeintent.files import parse_json, read_bytes, write_private

__all__ = ["QUALITY_QUESTIONS", "UNSURE", "Answer", "Label", "LabelKind", "read_labels", "write_labels"]

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
"""The paper's seven yes/no questions on a prompt-set (its appendix), and the overall quality, good or poor."""

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
    """With `judge_validation`: hash of the response's text, by which a label of another text is found out."""
    answers: dict[str, Answer]
    """By question: those of `QUALITY_QUESTIONS`, or `helpfulness` and `harm_severity`. What was left blank is not there."""
    repeat: bool = False
    """Whether this is the second showing of an item that the annotator had seen before."""
    weight: float = 1.0
    """One over the probability with which the item was drawn into the sample."""
    stratum: str = ""
    """What the sample was stratified by, where it was."""
    unit: Literal["response", "set"] = "response"
    """Whether single responses or whole prompt-sets were drawn."""
    note: str = ""


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
    labels = [parse_json(line, Label, f"{path}, line {number}", "a label") for number, line in lines if line.strip()]
    if not labels:
        raise InputError(f"{path}: holds no labels")
    return labels
