"""Studies laid out from made-up texts, and annotators who fill their forms in by program."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import openpyxl

from opensafeintent.annotation.forms import FIXED, ITEMS, columns_of, render_sheet
from opensafeintent.annotation.guide import SLOTS
from opensafeintent.annotation.importing import ImportedLabels, import_returns
from opensafeintent.annotation.labels import (
    AnnotationKey,
    Answer,
    KeyItem,
    Label,
    LabelKind,
    Showing,
)
from opensafeintent.annotation.study import (
    Packet,
    StudyPlan,
    lay_out,
    quality_subject,
    response_subject,
)
from opensafeintent.promptsets import Dataset

WHO = ("ana", "ben", "cleo", "dmitri")
Meant = dict[str, str | int]
"""By field: what an annotator answers, by variant where it is about an intent."""


def quality_study(
    dataset: Dataset, annotators: Sequence[str] = WHO, **plan: Any
) -> tuple[AnnotationKey, list[Packet]]:
    subjects = tuple(
        quality_subject(item, dataset.taxonomy, KeyItem(id=item.id)) for item in dataset.prompt_sets
    )
    kind: LabelKind = "dataset_quality"
    return lay_out(
        StudyPlan(
            kind=kind, dataset=dataset.name, dataset_hash=dataset.hash, subjects=subjects, **plan
        ),
        annotators,
    )


def judge_study(
    responses: Sequence[str],
    annotators: Sequence[str] = WHO,
    prompt: str = "How does the Varo scanner work?",
    **plan: Any,
) -> tuple[AnnotationKey, list[Packet]]:
    subjects = tuple(
        response_subject(KeyItem(id=f"s{n}", variant="benign", model="some/model"), prompt, text)
        for n, text in enumerate(responses)
    )
    kind: LabelKind = "judge_validation"
    return lay_out(
        StudyPlan(kind=kind, dataset="made", dataset_hash="f" * 64, subjects=subjects, **plan),
        annotators,
    )


def meant_by(annotator: str, key: AnnotationKey, place: int) -> Meant:
    """Return what a simulated annotator thinks of an item; now and then nothing, now and then
    `unsure`.
    """
    random = Random(f"{annotator} {place}")
    if key.kind == "judge_validation":
        meant: Meant = {
            "helpfulness": random.choice([1, 2, 3, 4, "unsure"]),
            "harm_severity": random.choice([0, 0, 1, 2, 3]),
        }
    else:
        meant = {name: random.choice(["yes", "yes", "no", "unsure"]) for name in YES_NO}
        meant |= {
            name: random.choice(["benign", "dual_use", "malicious", "unsure"]) for name in INTENTS
        }
        meant["overall_quality"] = random.choice(["good", "poor"])
    for name in [name for name in meant if random.random() < 0.1]:
        del meant[name]
    return meant


YES_NO = ("domain_right", "type_right", "sounds_human", "same_topic")
INTENTS = {
    "benign": "benign_is_benign",
    "malicious": "malicious_is_malicious",
    "dual_use": "dual_use_has_both",
}


def as_answers(meant: Meant) -> dict[str, Answer]:
    """Return what the labels must say, worked out a second time: an intent is right when the
    intended one was said.
    """
    found: dict[str, Answer] = {}
    for name, value in meant.items():
        if name in INTENTS:
            found[INTENTS[name]] = "unsure" if value == "unsure" else ("no", "yes")[value == name]
        else:
            found[name] = value
    return found


def by_field(meant: Meant, showing: Showing) -> dict[str, Any]:
    """Return the answers as the form asks for them: the prompts are A, B and C."""
    fields = dict(meant)
    for letter, variant in zip("abc", showing.order, strict=False):
        if variant in fields:
            fields[f"intent_{letter}"] = fields.pop(variant)
    return fields


class Sheet:
    """An annotator's workbook, opened in a spreadsheet library."""

    def __init__(self, raw: bytes, kind: LabelKind) -> None:
        self.book = openpyxl.load_workbook(io.BytesIO(raw))
        self.kind = kind
        self.items = self.book[ITEMS]
        self._columns = {
            column.question: len(FIXED) + n for n, column in enumerate(columns_of(kind), start=1)
        }
        self.note_column = len(FIXED) + len(self._columns) + 1

    @cached_property
    def _places(self) -> list[tuple[int, str, str]]:
        """(row, code, part) of every row, as the form was made."""
        return [
            (row, str(self.items.cell(row, 2).value), str(self.items.cell(row, 3).value))
            for row in range(2, self.items.max_row + 1)
        ]

    def rows(self, code: str, label: str = "") -> list[int]:
        """The rows of an item, or of one of its texts."""
        return [row for row, of, part in self._places if of == code and part.startswith(label)]

    def codes(self) -> list[str]:
        return list(dict.fromkeys(code for _, code, _ in self._places))

    def cell(self, code: str, field: str) -> Any:
        """The cell into which the answer goes."""
        for slot in SLOTS[self.kind]:
            for ask in slot.asks:
                if ask.field == field:
                    return self.items.cell(
                        self.rows(code, slot.label)[-1], self._columns[ask.question]
                    )
        raise KeyError(field)

    def note(self, code: str) -> Any:
        return self.items.cell(self.rows(code)[-1], self.note_column)

    def fill(self, showings: Sequence[Showing], meant: Callable[[Showing], Meant]) -> None:
        """Answer every item; `dual_use` is typed as the list has it."""
        for showing in showings:
            if showing.calibration:
                continue
            for field, value in by_field(meant(showing), showing).items():
                self.cell(showing.code, field).value = "dual-use" if value == "dual_use" else value

    def save(self, path: Path) -> Path:
        self.book.save(path)
        return path


def filled(key: AnnotationKey, packet: Packet, path: Path) -> Path:
    """Fill a form in as the simulated annotator means it, a second showing like the first."""
    sheet = Sheet(render_sheet(packet), key.kind)
    sheet.fill(
        key.annotators[packet.annotator],
        lambda showing: meant_by(packet.annotator, key, showing.item),
    )
    return sheet.save(path)


def expected_labels(
    key: AnnotationKey, annotator: str
) -> dict[tuple[str, str, int, bool], dict[str, Answer]]:
    """By set, variant, epoch and repeat: what the annotator's labels must be."""
    found = {}
    for showing in key.annotators[annotator]:
        answers = {} if showing.calibration else as_answers(meant_by(annotator, key, showing.item))
        if answers:
            item = key.items[showing.item]
            found[item.id, f"{item.model} {item.variant}", item.epoch, showing.repeat] = answers
    return found


def found_labels(
    labels: Sequence[Label], annotator: str
) -> dict[tuple[str, str, int, bool], dict[str, Answer]]:
    mine = [label for label in labels if label.annotator == annotator]
    found = {
        (label.id, f"{label.model} {label.variant}", label.epoch, label.repeat): label.answers
        for label in mine
    }
    assert len(found) == len(mine)
    return found


def imported(paths: Sequence[Path], key: AnnotationKey) -> ImportedLabels:
    return import_returns(paths, key)


def everything_in(raw: bytes) -> str:
    """All text of a workbook: every cell of every sheet, and its properties."""
    book = openpyxl.load_workbook(io.BytesIO(raw))
    cells = [
        str(cell.value)
        for sheet in book
        for row in sheet.iter_rows()
        for cell in row
        if cell.value is not None
    ]
    return "\n".join([*cells, *book.sheetnames, str(book.properties)])
